#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "emulated_amx_kernels.h"
#include "error_of.h"
#include "support.h"
#include "transformer/inference/packed_matrix.h"
#include "transformer/kernels/inference_kernels.h"
#include "transformer/kernels/instruction_set.h"

namespace transformer::test {

namespace {

std::vector<float> random_values(int64_t count, unsigned seed, float spread = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> values(static_cast<size_t>(count));
  for (auto& value : values) value = normal(random);
  return values;
}

float to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t rest = bits & 0xffff;
  bits &= 0xffff0000u;
  if (rest > 0x8000 || (rest == 0x8000 && (bits & 0x10000))) bits += 0x10000;
  std::memcpy(&x, &bits, sizeof bits);
  return x;
}

/// Quantised as int8 is by its description: 127 steps to the largest magnitude.
struct Quantised {
  std::vector<double> integers;
  double scale;
};
Quantised quantised(const float* x, int64_t count) {
  Quantised result{{}, 0};
  for (int64_t i = 0; i < count; ++i) result.scale = std::max(result.scale, std::abs(static_cast<double>(x[i])));
  result.scale /= 127;
  for (int64_t i = 0; i < count; ++i) result.integers.push_back(std::nearbyint(x[i] / result.scale));
  return result;
}

/// All that run here, and those for AMX.
std::vector<const Kernels*> tested_kernels() {
  std::vector<const Kernels*> kernels(available_kernels().begin(), available_kernels().end());
#if defined(__x86_64__)
  for (const auto* available : available_kernels()) {
    if (available != avx512_instructions.inference) continue;
    kernels.push_back(&emulated_amx_kernels);
    break;
  }
#endif
  return kernels;
}

struct Shape {
  int64_t rows, depth, outputs;
};
constexpr Shape shapes[] = {{1, 1, 1},     {1, 16, 64},   {3, 17, 5},    {4, 64, 130},  {6, 33, 64},  {7, 50, 65},
                            {13, 128, 31}, {25, 512, 70}, {300, 30, 20}, {35, 203, 64}, {22, 70, 70}, {80, 203, 130}};

std::vector<float> product(const Kernels& kernels, Precision precision, const Shape& shape, const float* x,
                           const float* weight, const float* bias, bool relu) {
  const PackedMatrix matrix(kernels, precision, weight, shape.outputs, shape.depth, bias);
  Activations activations(kernels, precision);
  activations.set(x, shape.rows, shape.depth, shape.depth);
  const int64_t stride = PackedMatrix::padded(shape.outputs);
  std::vector<float> padded(static_cast<size_t>(shape.rows * stride)), values;
  matrix.multiply(activations, padded.data(), stride, relu);
  for (int64_t row = 0; row < shape.rows; ++row) {
    values.insert(values.end(), padded.begin() + row * stride, padded.begin() + row * stride + shape.outputs);
  }
  return values;
}

}  // namespace

TEST_CASE("a portable set of kernels comes last, and names differ") {
  const auto kernels = available_kernels();
  REQUIRE_FALSE(kernels.empty());
  CHECK(kernels.back() == portable_instructions.inference);
  for (size_t i = 1; i < kernels.size(); ++i) CHECK(std::string(kernels[i]->name) != kernels[i - 1]->name);
}

TEST_CASE("packed products are the products by definition, for every instruction set and precision") {
  for (const auto* kernels : tested_kernels()) {
    for (const auto precision : {Precision::float32, Precision::bf16, Precision::int8}) {
      for (const auto& shape : shapes) {
        for (const bool with_bias : {false, true}) {
          const auto x = random_values(shape.rows * shape.depth, 1);
          const auto weight = random_values(shape.outputs * shape.depth, 2, 0.3f);
          const auto bias = random_values(shape.outputs, 3);
          const auto found = product(*kernels, precision, shape, x.data(), weight.data(),
                                     with_bias ? bias.data() : nullptr, with_bias);
          INFO(kernels->name << " precision " << static_cast<int>(precision) << " rows " << shape.rows << " depth "
                             << shape.depth << " outputs " << shape.outputs);
          double worst = 0;
          for (int64_t row = 0; row < shape.rows; ++row) {
            const auto a = quantised(x.data() + row * shape.depth, shape.depth);
            for (int64_t output = 0; output < shape.outputs; ++output) {
              const float* w = weight.data() + output * shape.depth;
              double sum = 0, magnitude = 1;
              if (precision == Precision::int8) {
                const auto b = quantised(w, shape.depth);
                for (int64_t k = 0; k < shape.depth; ++k) sum += a.integers[k] * b.integers[k];
                sum *= a.scale * b.scale;
              } else {
                for (int64_t k = 0; k < shape.depth; ++k) {
                  float one = x[row * shape.depth + k], other = w[k];
                  if (precision == Precision::bf16) one = to_bf16(one), other = to_bf16(other);
                  sum += static_cast<double>(one) * static_cast<double>(other);
                  magnitude += std::abs(static_cast<double>(one) * static_cast<double>(other));
                }
              }
              if (with_bias) sum = std::max(0.0, sum + static_cast<double>(bias[output]));
              worst = std::max(worst, std::abs(found[row * shape.outputs + output] - sum) / magnitude);
            }
          }
          // int8: one step of one activation where rounding in float and in double differ.
          CHECK(worst < (precision == Precision::int8 ? 2e-2 : 1e-6));
        }
      }
    }
  }
}

TEST_CASE("a weight that comes some rows at a time is packed like one in memory") {
  const int64_t outputs = 300, depth = 3001;  // more than is asked for at once
  const auto weight = random_values(outputs * depth, 17), x = random_values(2 * depth, 18);
  for (const auto* kernels : tested_kernels()) {
    for (const auto precision : {Precision::float32, Precision::bf16, Precision::int8}) {
      int64_t calls = 0, next = 0;
      std::vector<float> lent;
      const auto rows = [&](int64_t first, int64_t count) {
        CHECK(first == next);
        next = first + count;
        ++calls;
        std::fill(lent.begin(), lent.end(), 1e9f);  // what was lent before is not read any more
        lent.assign(weight.begin() + first * depth, weight.begin() + next * depth);
        return lent.data();
      };
      const auto memory = std::make_shared<WeightMemory>();
      const PackedMatrix matrix(*kernels, precision, outputs, depth, rows, nullptr, memory);
      CHECK(next == outputs);
      CHECK(calls > 1);
      Activations activations(*kernels, precision);
      activations.set(x.data(), 2, depth, depth);
      const int64_t stride = PackedMatrix::padded(outputs);
      std::vector<float> found(static_cast<size_t>(2 * stride));
      matrix.multiply(activations, found.data(), stride);
      const auto expected = product(*kernels, precision, {2, depth, outputs}, x.data(), weight.data(), nullptr, false);
      for (int64_t row = 0; row < 2; ++row) {
        CHECK(std::equal(expected.begin() + row * outputs, expected.begin() + (row + 1) * outputs,
                         found.begin() + row * stride));
      }
    }
  }
}

TEST_CASE("a matrix that was stored is the one that was packed, whatever instruction set stored it") {
  for (const auto precision : {Precision::float32, Precision::bf16, Precision::int8}) {
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{130, 33}, {64, 8}, {7, 1}, {65, 30}}) {
      const int64_t outputs = rows, depth = columns;  // Clang 14 captures no part of a pair
      const auto weight = random_values(outputs * depth, 21), x = random_values(3 * depth, 22),
                 bias = random_values(outputs, 23);
      const auto multiplied = [&](const Kernels& kernels, const PackedMatrix& matrix) {
        Activations activations(kernels, precision);
        activations.set(x.data(), 3, depth, depth);
        std::vector<float> y(static_cast<size_t>(3 * PackedMatrix::padded(outputs)));
        matrix.multiply(activations, y.data(), PackedMatrix::padded(outputs));
        return y;
      };
      std::vector<unsigned char> first;
      for (const auto* writer : tested_kernels()) {
        const PackedMatrix packed(*writer, precision, weight.data(), outputs, depth, bias.data());
        const auto panels = packed.stored_panels();
        if (first.empty()) first = panels;
        CHECK(panels == first);
        for (const auto* reader : tested_kernels()) {
          INFO(writer->name << " to " << reader->name << " precision " << precision_name(precision) << " " << outputs);
          // In line, and one byte beside it, where nothing can be read in place.
          for (const size_t place : {size_t{0}, size_t{1}}) {
            const Buffer<unsigned char> line(static_cast<int64_t>(panels.size()) + 64);
            auto* memory = const_cast<unsigned char*>(line.data()) + place;
            std::copy(panels.begin(), panels.end(), memory);
            const PackedMatrix stored(*reader, precision, outputs, depth,
                                      {{memory, panels.size()}, packed.scales(), packed.sums()}, bias.data(),
                                      std::make_shared<WeightMemory>());
            CHECK(multiplied(*reader, stored) ==
                  multiplied(*reader, PackedMatrix(*reader, precision, weight.data(), outputs, depth, bias.data())));
            CHECK(stored.stored_panels() == panels);
          }
        }
      }
    }
  }
}

TEST_CASE("pieces of weight memory are aligned and lie apart") {
  WeightMemory memory(1000);
  std::vector<std::pair<unsigned char*, int64_t>> pieces;
  for (const int64_t bytes : {1, 64, 100, 900, 5000, 10, 999, 1000, 3}) {
    pieces.emplace_back(memory.take(bytes), bytes);
    CHECK(reinterpret_cast<uintptr_t>(pieces.back().first) % 64 == 0);
    std::fill_n(pieces.back().first, bytes, static_cast<unsigned char>(pieces.size()));
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto& [start, bytes] = pieces[i];
    CHECK(std::all_of(start, start + bytes, [&](unsigned char byte) { return byte == i + 1; }));
  }
}

TEST_CASE("int8 products are the same integers for every instruction set") {
  const Shape shape{9, 77, 40};
  // Values that are their own quantisation, up to the largest sums of products there can be.
  std::mt19937 random(4);
  std::vector<float> x(static_cast<size_t>(shape.rows * shape.depth)),
      weight(static_cast<size_t>(shape.outputs * shape.depth));
  for (auto* values : {&x, &weight}) {
    for (auto& value : *values)
      value = random() % 3 ? static_cast<float>(static_cast<int>(random() % 255) - 127) : -127.0f;
  }
  for (int64_t row = 0; row < shape.rows; ++row) x[row * shape.depth] = 127;
  for (int64_t row = 0; row < shape.outputs; ++row) weight[row * shape.depth] = -127;
  std::fill(x.begin(), x.begin() + shape.depth, 127.0f);
  std::fill(weight.begin(), weight.begin() + shape.depth, -127.0f);
  for (const auto* kernels : tested_kernels()) {
    const auto found = product(*kernels, Precision::int8, shape, x.data(), weight.data(), nullptr, false);
    INFO(kernels->name);
    for (int64_t row = 0; row < shape.rows; ++row) {
      for (int64_t output = 0; output < shape.outputs; ++output) {
        float sum = 0;  // exact: below 2^24
        for (int64_t k = 0; k < shape.depth; ++k) sum += x[row * shape.depth + k] * weight[output * shape.depth + k];
        CHECK(found[row * shape.outputs + output] == sum);
      }
    }
  }
}

TEST_CASE("a sum of int8 products has room for every depth that is taken, and a deeper matrix is refused") {
  constexpr int64_t deepest = PackedMatrix::deepest_int8;
  constexpr int64_t most_rows = 7;  // one and as many may be multiplied in different ways
  const std::vector<float> ones(static_cast<size_t>(most_rows * (deepest + 1)), 1.0f);
  for (const auto* kernels : tested_kernels()) {
    for (const int64_t rows : {int64_t{1}, most_rows}) {
      INFO(kernels->name << ", " << rows << " rows");
      const auto sum = [&](int64_t depth) {
        return product(*kernels, Precision::int8, {rows, depth, 1}, ones.data(), ones.data(), nullptr, false).back();
      };
      CHECK(sum(deepest) == Approx(deepest).epsilon(1e-5));
      CHECK_THAT(error_of([&] { sum(deepest + 1); }), Contains("66311") && Contains("bf16"));
    }
  }
}

TEST_CASE("int8 products are the same bit for bit on every instruction set, with or without fused multiplications") {
  const Shape shape{7, 203, 70};
  const auto x = random_values(shape.rows * shape.depth, 24), weight = random_values(shape.outputs * shape.depth, 25);
  const auto rounded = [&](const std::vector<float>& values, int64_t row, std::vector<int>& integers) {
    const float* from = values.data() + row * shape.depth;
    float largest = 0;
    for (int64_t k = 0; k < shape.depth; ++k) largest = std::max(largest, std::abs(from[k]));
    const float inverse = 127.0f / largest;
    for (int64_t k = 0; k < shape.depth; ++k) {
      integers.push_back(static_cast<int>(std::nearbyint(double(from[k]) * double(inverse))));  // rounded once
    }
    return largest / 127.0f;
  };
  std::vector<float> expected;
  for (int64_t row = 0; row < shape.rows; ++row) {
    std::vector<int> a;
    const float a_scale = rounded(x, row, a);
    for (int64_t output = 0; output < shape.outputs; ++output) {
      std::vector<int> b;
      const float b_scale = rounded(weight, output, b);
      int sum = 0;
      for (size_t k = 0; k < a.size(); ++k) sum += a[k] * b[k];
      expected.push_back(static_cast<float>(sum) * (a_scale * b_scale));
    }
  }
  for (const auto* kernels : tested_kernels()) {
    INFO(kernels->name);
    CHECK(product(*kernels, Precision::int8, shape, x.data(), weight.data(), nullptr, false) == expected);
  }
}

TEST_CASE("numbers next to ties are rounded to int8 once, on every instruction set") {
  for (const float largest : {1.0f, 0.7f, 3.1415927f, 1e-29f, 1e37f}) {
    const float inverse = 127.0f / largest;
    std::vector<float> x{largest};
    for (int step = -127; step < 127; ++step) {
      const auto tie = static_cast<float>((step + 0.5) / double(inverse));
      for (const float end : {-INFINITY, INFINITY}) x.push_back(std::nextafter(tie, end));
      x.push_back(tie);
    }
    std::vector<int> expected;  // doubles hold a product of two floats exactly
    for (const float value : x) expected.push_back(128 + static_cast<int>(std::nearbyint(double(value) * inverse)));
    for (const auto* kernels : tested_kernels()) {
      INFO(kernels->name << ", largest " << largest);
      std::vector<uint8_t> bytes(x.size());
      CHECK(kernels->to_int8(x.data(), static_cast<int64_t>(x.size()), bytes.data()) == largest / 127.0f);
      CHECK(std::vector<int>(bytes.begin(), bytes.end()) == expected);
    }
  }
}

TEST_CASE("a row's product is the same bit for bit in every batch") {
  const Shape shape{75, 200, 150};
  const auto x = random_values(shape.rows * shape.depth, 5), weight = random_values(shape.outputs * shape.depth, 6);
  for (const auto* kernels : tested_kernels()) {
    for (const auto precision : {Precision::float32, Precision::bf16, Precision::int8}) {
      const auto all = product(*kernels, precision, shape, x.data(), weight.data(), nullptr, false);
      for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 11, 24, 33}) {
        for (int64_t first = 0; first + rows <= shape.rows; first += 8) {
          const auto some = product(*kernels, precision, {rows, shape.depth, shape.outputs},
                                    x.data() + first * shape.depth, weight.data(), nullptr, false);
          INFO(kernels->name << " precision " << static_cast<int>(precision) << ", " << rows << " rows from " << first);
          CHECK(std::equal(some.begin(), some.end(), all.begin() + first * shape.outputs));
        }
      }
    }
  }
}

TEST_CASE("embeddings come back from packed matrices") {
  const int64_t outputs = 100, depth = 37;
  const auto weight = random_values(outputs * depth, 7);
  for (const auto* kernels : tested_kernels()) {
    for (const auto precision : {Precision::float32, Precision::bf16, Precision::int8}) {
      const PackedMatrix matrix(*kernels, precision, weight.data(), outputs, depth);
      std::vector<float> row(static_cast<size_t>(depth));
      for (const int64_t output : {0, 1, 15, 16, 63, 64, 99}) {
        matrix.row(output, 2, row.data());
        const auto expected = quantised(weight.data() + output * depth, depth);
        for (int64_t k = 0; k < depth; ++k) {
          const float value = weight[output * depth + k];
          if (precision == Precision::float32) CHECK(row[k] == 2 * value);
          if (precision == Precision::bf16) CHECK(row[k] == 2 * to_bf16(value));
          if (precision == Precision::int8) CHECK(std::abs(row[k] / 2 - value) <= expected.scale * 0.5001);
        }
      }
    }
  }
}

TEST_CASE("selection finds the best tokens and the softmax's normaliser") {
  std::mt19937 random(8);
  for (const auto* kernels : tested_kernels()) {
    for (const int64_t outputs : {3, 20, 64, 150, 1000}) {
      for (const int32_t width : {1, 5, 12}) {
        const int64_t rows = 1 + static_cast<int64_t>(random() % 9), depth = 24, allowed = 2;
        const auto x = random_values(rows * depth, static_cast<unsigned>(random()));
        auto weight = random_values(outputs * depth, static_cast<unsigned>(random()));
        // Equal logits rank by token; a token below `allowed` that is best of all must not appear.
        if (outputs > 20) std::copy_n(weight.begin() + 3 * depth, depth, weight.begin() + 17 * depth);
        for (int64_t k = 0; k < depth; ++k) weight[depth + k] = 2 * x[k];
        const PackedMatrix matrix(*kernels, Precision::float32, weight.data(), outputs, depth);
        Activations activations(*kernels, Precision::float32);
        activations.set(x.data(), rows, depth, depth);
        const auto logits =
            product(*kernels, Precision::float32, {rows, depth, outputs}, x.data(), weight.data(), nullptr, false);
        std::vector<float> best(static_cast<size_t>(rows * width));
        std::vector<int32_t> tokens(static_cast<size_t>(rows * width));
        const auto panels = static_cast<size_t>((outputs + kernels->columns - 1) / kernels->columns);
        std::vector<float> maxima(static_cast<size_t>(rows) * panels);
        std::vector<Selection> selections;
        constexpr float lowest = -std::numeric_limits<float>::infinity();
        for (int64_t row = 0; row < rows; ++row) {
          selections.push_back({lowest, 0, width, 0, lowest, best.data() + row * width, tokens.data() + row * width});
          if (row % 2 == 0) selections.back().maxima = maxima.data() + static_cast<size_t>(row) * panels;
        }
        Buffer<float> scratch;
        matrix.select(activations, allowed, selections, scratch);
        INFO(kernels->name << " outputs " << outputs << " width " << width);
        for (int64_t row = 0; row < rows; ++row) {
          const float* of_row = logits.data() + row * outputs;
          std::vector<int32_t> order;
          double sum = 0;
          const double most = *std::max_element(of_row, of_row + outputs);
          for (int64_t token = 0; token < outputs; ++token) {
            sum += std::exp(static_cast<double>(of_row[token]) - most);
            if (token >= allowed) order.push_back(static_cast<int32_t>(token));
          }
          std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return of_row[a] > of_row[b]; });
          const auto& selection = selections[row];
          REQUIRE(selection.count == std::min<int64_t>(width, outputs - allowed));
          for (int32_t i = 0; i < selection.count; ++i) {
            CHECK(selection.tokens[i] == order[i]);
            CHECK(selection.logits[i] == of_row[order[i]]);
          }
          CHECK(selection.maximum + std::log(selection.sum) == Approx(most + std::log(sum)).margin(1e-5));
          for (int64_t panel = 0; panel * kernels->columns < outputs && row % 2 == 0; ++panel) {
            const float* first = of_row + panel * kernels->columns;
            const float* last = std::min(first + kernels->columns, of_row + outputs);
            CHECK(maxima[static_cast<size_t>(row) * panels + static_cast<size_t>(panel)] ==
                  *std::max_element(first, last));
          }
        }
      }
    }
  }
}

TEST_CASE("what is not a number is not lost on the way") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const auto* kernels : tested_kernels()) {
    INFO(kernels->name);
    for (const float broken : {nan, infinity, -infinity}) {
      for (const int64_t place : {0, 5, 16, 36}) {
        auto x = random_values(37, 9);
        x[place] = broken;
        std::vector<uint8_t> bytes(37);
        CHECK_FALSE(std::isfinite(kernels->to_int8(x.data(), 37, bytes.data())));
        std::vector<uint16_t> halves(37);
        kernels->to_bf16(x.data(), 37, halves.data());
        CHECK((halves[place] & 0x7f80) == 0x7f80);
        CHECK(((halves[place] & 0x7f) != 0) == std::isnan(broken));
        if (broken == -infinity) continue;
        float best[2];
        int32_t tokens[2];
        Selection selection{-infinity, 0, 2, 0, -infinity, best, tokens};
        kernels->select(x.data(), 37, 0, 2, selection);
        CHECK(std::isnan(selection.maximum + std::log(selection.sum)));
      }
    }
  }
}

TEST_CASE("attention of some queries over scattered records, of dot products and additive, in float32 and in bf16") {
  const bool additive = GENERATE(false, true);
  std::mt19937 random(10);
  struct Heads {
    int64_t heads, d_k, d_v;
  };
  for (const auto* kernels : tested_kernels()) {
    for (const auto& shape : {Heads{8, 64, 64}, Heads{1, 5, 3}, Heads{3, 16, 40}, Heads{2, 33, 70}}) {
      const int64_t heads = shape.heads, d_k = shape.d_k, d_v = shape.d_v;
      for (const int64_t count : {1, 2, 17, 50}) {
        for (const bool bf16 : {false, true}) {
          const int64_t record = heads * (d_k + d_v), offset = 7, rows = 6;
          auto storage = random_values(3 * count * record + offset, 11);
          std::vector<uint16_t> halves(storage.size());
          if (bf16) {
            for (auto& value : storage) value = to_bf16(value);
            kernels->to_bf16(storage.data(), static_cast<int64_t>(storage.size()), halves.data());
          }
          std::vector<int64_t> places;
          std::vector<const void*> records;
          for (int64_t i = 0; i < count; ++i) {
            places.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(3 * count)) * record);
            records.push_back(bf16 ? static_cast<const void*>(halves.data() + places.back())
                                   : static_cast<const void*>(storage.data() + places.back()));
          }
          const int64_t query_stride = heads * d_k + 3, stride = heads * d_v + 5;
          const auto queries = random_values(rows * query_stride, 12, 2);
          std::vector<float> scores(static_cast<size_t>(AttentionInput::rows_at_once * heads * count));
          const float scale = 0.3f;
          const auto vectors = random_values(heads * d_k, 13);  // of additive scores
          const auto attend = [&](int64_t first, int64_t some) {
            std::vector<float> attended(static_cast<size_t>(some * stride), -1.0f);
            const AttentionInput input{queries.data() + first * query_stride,
                                       some,
                                       query_stride,
                                       records.data(),
                                       offset,
                                       count,
                                       heads,
                                       d_k,
                                       d_v,
                                       scale,
                                       additive ? vectors.data() : nullptr};
            (bf16 ? kernels->attend_bf16 : kernels->attend_float)(input, scores.data(), attended.data(), stride);
            return attended;
          };
          const auto attended = attend(0, rows);
          INFO(kernels->name << " additive " << additive << " heads " << heads << " d_k " << d_k << " d_v " << d_v
                             << " count " << count);
          double worst = 0;
          for (int64_t row = 0; row < rows; ++row) {
            for (int64_t h = 0; h < heads; ++h) {
              std::vector<double> weights;
              for (const int64_t place : places) {
                const float* keys = storage.data() + place + offset + h * d_k;
                double sum = 0;
                for (int64_t i = 0; i < d_k; ++i) {
                  const double query = double(queries[row * query_stride + h * d_k + i]), key = double(keys[i]);
                  sum += additive ? double(vectors[h * d_k + i]) * std::tanh(query + key)
                                  : query * key * static_cast<double>(scale);
                }
                weights.push_back(sum);
              }
              const double most = *std::max_element(weights.begin(), weights.end());
              double normaliser = 0;
              for (auto& weight : weights) normaliser += weight = std::exp(weight - most);
              for (int64_t i = 0; i < d_v; ++i) {
                double sum = 0;
                for (int64_t p = 0; p < count; ++p) {
                  sum += weights[p] / normaliser * double(storage[places[p] + offset + heads * d_k + h * d_v + i]);
                }
                worst = std::max(worst, std::abs(attended[row * stride + h * d_v + i] - sum));
              }
            }
            for (int64_t i = heads * d_v; i < stride; ++i) CHECK(attended[row * stride + i] == -1.0f);
          }
          CHECK(worst < 4e-6);
          // Bit for bit the same whichever rows come together.
          for (int64_t some = 1; some <= 5; ++some) {
            for (int64_t first = 0; first + some <= rows; ++first) {
              const auto alone = attend(first, some);
              CHECK(std::equal(alone.begin(), alone.end(), attended.begin() + first * stride));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("additive scores of large numbers, and of what is none") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  constexpr int64_t d_k = 19, count = 3;  // a head, whose last values are in a part of a vector
  for (const auto* kernels : tested_kernels()) {
    INFO(kernels->name);
    const std::vector<float> vectors(d_k, 0.05f), values = {1, 10, 100};
    const auto attended = [&](float query, float key) {
      // Keys whose scores are the greatest, the least and the one in question; the value of each follows it.
      std::vector<float> storage;
      for (const float of_key : {1e30f, -1e30f, key}) {
        storage.insert(storage.end(), d_k, of_key);
        storage.push_back(values[storage.size() / (d_k + 1)]);
      }
      std::vector<const void*> records;
      for (int64_t i = 0; i < count; ++i) records.push_back(storage.data() + i * (d_k + 1));
      const std::vector<float> queries(d_k, query);
      std::vector<float> scores(AttentionInput::rows_at_once * count);
      float found = 0;
      kernels->attend_float({queries.data(), 1, d_k, records.data(), 0, count, 1, d_k, 1, 1, vectors.data()},
                            scores.data(), &found, 1);
      return found;
    };
    const double most = std::exp(0.05 * d_k), least = 1 / most;
    const auto expected = [&](double third) {
      return Approx((most + 10 * least + 100 * third) / (most + least + third)).epsilon(1e-5);
    };
    CHECK(attended(0.5f, -0.5f) == expected(1));
    CHECK(attended(-3, infinity) == expected(most));
    CHECK(attended(3, -infinity) == expected(least));
    CHECK(std::isnan(attended(nan, 0)));
    CHECK(std::isnan(attended(0, nan)));
    CHECK(std::isnan(attended(infinity, -infinity)));
  }
}

TEST_CASE("activations are what double precision makes of them, element by element") {
  const auto gelu = [](double x) { return x * std::erfc(-x / std::sqrt(2.0)) / 2; };
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  // Every size of number, and those where the exponentials end; elsewhere whole and broken vectors of random ones.
  std::vector<float> sizes = {0, -0.0f, 1, -1, 14, -14, 87.5f, -87.5f, 1e30f, -1e30f, 3e38f, -3e38f};
  for (float x = 1e-30f; x < 100; x *= 1.03f) sizes.insert(sizes.end(), {x, -x});
  std::vector<std::vector<float>> inputs = {sizes};
  for (const int64_t count : {1, 3, 4, 7, 8, 15, 16, 17, 33, 64, 100}) inputs.push_back(random_values(count, 20, 4));
  // In units of the last place, but for what leaves the normal numbers on its way, which is 0.
  const auto worst = [](double found, double expected, double& most) {
    const double unit = std::abs(expected) * double(std::numeric_limits<float>::epsilon());
    const double error = std::abs(found - expected);
    if (error > 1e-35) most = std::max(most, error / unit);
  };
  for (const auto* kernels : tested_kernels()) {
    INFO(kernels->name);
    double gelu_worst = 0, swish_worst = 0, swiglu_worst = 0;
    for (const auto& x : inputs) {
      const auto count = static_cast<int64_t>(x.size());
      const auto others = random_values(count, 21);
      auto activated = x, swished = x, gated = others;
      for (auto* row : {&activated, &swished, &gated}) row->push_back(-5);  // the next row's
      kernels->gelu(activated.data(), count);
      kernels->swish(swished.data(), count);
      kernels->swiglu(x.data(), gated.data(), count);
      CHECK(activated.back() == -5);
      CHECK(swished.back() == -5);
      CHECK(gated.back() == -5);
      for (size_t i = 0; i < x.size(); ++i) {
        const double of_gate = silu(double(x[i])) * double(others[i]);
        worst(double(activated[i]), gelu(double(x[i])), gelu_worst);
        worst(double(swished[i]), silu(double(x[i])), swish_worst);
        if (std::abs(of_gate) < double(std::numeric_limits<float>::max())) {
          worst(double(gated[i]), of_gate, swiglu_worst);
        } else {
          CHECK(std::isinf(gated[i]));
        }
      }
    }
    CHECK(gelu_worst < 8);
    CHECK(swish_worst < 7);
    CHECK(swiglu_worst < 7);
  }
}

TEST_CASE("a recurrent unit's step is what double precision makes of it; what is not a number stays none") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto* kernels : tested_kernels()) {
    INFO(kernels->name);
    for (const int64_t count : {1, 3, 15, 16, 17, 33, 100}) {
      const auto size = static_cast<size_t>(count);
      auto projected = random_values(2 * count, 24, 4), before = random_values(count, 25);
      projected[0] = 200;  // keeps everything
      std::vector<float> state(size + 1, -5), output = state;
      const auto recur = [&] {
        kernels->recur(projected.data(), before.data(), count, state.data(), output.data());
        CHECK(state.back() == -5);  // the next row's
        CHECK(output.back() == -5);
      };
      recur();
      CHECK(state[0] == before[0]);
      for (size_t i = 0; i < size; ++i) {
        const double kept = 1 / (1 + std::exp(-double(projected[i])));
        const double expected = kept * double(before[i]) + (1 - kept) * double(projected[size + i]);
        CHECK(double(state[i]) == Approx(expected).epsilon(1e-6).margin(1e-6));
        CHECK(output[i] == std::max(0.0f, state[i]));
      }
      const auto sound = state;
      for (float* number : {&projected[size / 2], &projected[size + size / 2], &before[size / 2]}) {
        const float value = std::exchange(*number, nan);
        recur();
        for (size_t i = 0; i < size; ++i) CHECK((i == size / 2 ? std::isnan(output[i]) : state[i] == sound[i]));
        *number = value;
      }
    }
  }
}

TEST_CASE("probabilities are added as double precision adds them; what is not a number stays none") {
  for (const auto* kernels : tested_kernels()) {
    INFO(kernels->name);
    for (const int64_t count : {1, 4, 15, 16, 17, 33, 100}) {
      auto logits = random_values(count, 22, 10);
      const float shift = *std::max_element(logits.begin(), logits.end()) + 0.5f;
      logits.back() = -std::numeric_limits<float>::infinity();
      const std::vector<float> before = random_values(count, 23);
      auto sums = before;
      sums.push_back(-5);  // the next row's
      kernels->add_probabilities(logits.data(), count, shift, sums.data());
      CHECK(sums.back() == -5);
      for (size_t i = 0; i < logits.size(); ++i) {
        const double expected = double(before[i]) + std::exp(double(logits[i]) - double(shift));
        CHECK(double(sums[i]) == Approx(expected).margin(1e-6));
      }
      logits.front() = std::numeric_limits<float>::quiet_NaN();
      kernels->add_probabilities(logits.data(), count, shift, sums.data());
      CHECK(std::isnan(sums.front()));
    }
  }
}

TEST_CASE("the largest, exponentials and their sum, and the best values, of rows that hold what is no number") {
  constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto* kernels : tested_kernels()) {
    INFO(kernels->name);
    for (const int64_t count : {1, 4, 15, 16, 17, 33, 64, 100}) {
      INFO(count);
      auto x = random_values(count, 31, 10);
      for (float& value : x) value -= 40;  // what stands behind the row would be larger
      const float most = *std::max_element(x.begin(), x.end());
      CHECK(kernels->largest(x.data(), count) == most);

      std::vector<float> results(static_cast<size_t>(count) + 1, -5);
      const float sum = kernels->exponentials(x.data(), count, most, 0.7f, results.data());
      CHECK(results.back() == -5);
      double expected_sum = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double expected = std::exp((double(x[i]) - double(most)) * double(0.7f));
        CHECK(double(results[i]) == Approx(expected).epsilon(1e-5).margin(1e-37));
        expected_sum += expected;
      }
      CHECK(double(sum) == Approx(expected_sum).epsilon(1e-5));

      // Two goes, as an ensemble makes them; equal values in the order of their tokens.
      if (count > 1) x.back() = x.front();
      auto sorted = x;
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      const auto best_of = [&](const std::vector<float>& values, std::vector<float>& best,
                               std::vector<int32_t>& tokens) {
        best.assign(3, 0);
        tokens.assign(3, -1);
        Selection selection{-infinity, 0, 3, 0, -infinity, best.data(), tokens.data()};
        const int64_t first = count / 2;
        kernels->best(values.data(), first, 0, selection);
        kernels->best(values.data() + first, count - first, static_cast<int32_t>(first), selection);
        return selection;
      };
      std::vector<float> best;
      std::vector<int32_t> tokens;
      const auto selection = best_of(x, best, tokens);
      CHECK(selection.sum == Approx(std::accumulate(x.begin(), x.end(), 0.0)).epsilon(1e-5));
      REQUIRE(selection.count == std::min<int64_t>(3, count));
      for (int32_t i = 0; i < selection.count; ++i) {
        const auto at = static_cast<size_t>(i);
        CHECK(best[at] == sorted[at]);
        CHECK(x[static_cast<size_t>(tokens[at])] == best[at]);
        if (i > 0 && best[at] == best[at - 1]) CHECK(tokens[at] > tokens[at - 1]);
      }

      x.front() = nan;
      CHECK(std::isnan(best_of(x, best, tokens).sum));
      CHECK(kernels->largest(x.data(), count) == (count == 1 ? -infinity : *std::max_element(x.begin() + 1, x.end())));
      kernels->exponentials(x.data(), count, most, 1, results.data());
      CHECK(std::isnan(results.front()));
      x.front() = -infinity;
      kernels->exponentials(x.data(), count, most, 1, results.data());
      CHECK(results.front() == 0);
    }
  }
}

TEST_CASE("activations of what is not a number are none, and touch nothing beside them") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const auto* kernels : tested_kernels()) {
    INFO(kernels->name);
    const auto x = random_values(37, 22), others = random_values(37, 23);
    auto activated = x, gated = others;
    kernels->gelu(activated.data(), 37);
    kernels->swiglu(x.data(), gated.data(), 37);
    for (const size_t place : {0, 5, 16, 36}) {
      auto broken = x, of_broken_gate = others, of_broken = others;
      broken[place] = of_broken[place] = nan;
      kernels->swiglu(broken.data(), of_broken_gate.data(), 37);
      kernels->swiglu(x.data(), of_broken.data(), 37);
      kernels->gelu(broken.data(), 37);
      for (size_t i = 0; i < x.size(); ++i) {
        CHECK((i == place ? std::isnan(broken[i]) : broken[i] == activated[i]));
        for (const auto* row : {&of_broken_gate, &of_broken}) {
          CHECK((i == place ? std::isnan((*row)[i]) : (*row)[i] == gated[i]));
        }
      }
    }
    std::vector<float> ends = {infinity, -infinity}, gates = ends, ones = {1, 1};
    kernels->gelu(ends.data(), 2);
    CHECK(ends[0] == infinity);
    CHECK(ends[1] == 0);
    kernels->swiglu(gates.data(), ones.data(), 2);
    CHECK(ones[0] == infinity);
    CHECK(std::isnan(ones[1]));  // as LibTorch's
  }
}

TEST_CASE("normalisation of a residual sum") {
  for (const auto* kernels : tested_kernels()) {
    for (const int64_t count : {1, 7, 16, 100, 512}) {
      auto x = random_values(count, 13, 3);
      const auto y = random_values(count, 14), gain = random_values(count, 15), bias = random_values(count, 16);
      double mean = 0, variance = 0;
      for (int64_t i = 0; i < count; ++i) mean += (double(x[i]) + double(y[i])) / double(count);
      for (int64_t i = 0; i < count; ++i) variance += std::pow(double(x[i]) + double(y[i]) - mean, 2) / double(count);
      const auto given = x;
      kernels->add_and_normalise(x.data(), y.data(), count, gain.data(), bias.data(), 1e-5f, x.data());
      INFO(kernels->name << " count " << count);
      for (int64_t i = 0; i < count; ++i) {
        const double expected =
            (double(given[i]) + double(y[i]) - mean) / std::sqrt(variance + 1e-5) * double(gain[i]) + double(bias[i]);
        CHECK(std::abs(x[i] - expected) < 1e-5);
      }
    }
  }
}

}  // namespace transformer::test
