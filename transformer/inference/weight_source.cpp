#include "transformer/inference/weight_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "transformer/base/error.h"
#include "transformer/base/finite.h"
#include "transformer/base/unicode.h"

namespace transformer {

namespace {

constexpr const char* scales_suffix = ".scales";
constexpr const char* sums_suffix = ".sums";
constexpr const char* pairs_suffix = ".pairs";

ElementType element_type(Precision precision) {
  return precision == Precision::float32 ? ElementType::float32
         : precision == Precision::bf16  ? ElementType::bfloat16
                                         : ElementType::int8;
}

/// [panels, groups, columns], and how many elements of a column a group has where it is more than one.
std::vector<int64_t> stored_shape(Precision precision, int64_t outputs, int64_t depth) {
  constexpr int64_t columns = PackedMatrix::widest_panel;
  const int64_t per_group = 4 / weight_bytes(precision);
  std::vector<int64_t> shape = {PackedMatrix::padded(outputs) / columns, (depth + per_group - 1) / per_group, columns};
  if (per_group > 1) shape.push_back(per_group);
  return shape;
}

/// An attention's joint projection, or its bias, with the matrices of additive compatibility multiplied in: a head's
/// rows of queries and of keys become `matrices` [2, H, d_k, d_k] times them. Scores need them in no other form.
StoredWeight with_additive(const StoredWeight& input, std::vector<float> matrices, int64_t d_k) {
  auto folded = input;
  folded.rows = [input, matrices = std::move(matrices), d_k](int64_t first, int64_t count, float* numbers) {
    const int64_t width = input.shape.size() > 1 ? input.shape[1] : 1;
    const int64_t end = first + count, values = static_cast<int64_t>(matrices.size()) / d_k;  // the first row of values
    std::vector<float> stored(static_cast<size_t>(d_k * width));
    std::vector<double> sums(static_cast<size_t>(width));
    for (int64_t row = first; row < std::min(end, values);) {
      const int64_t head = row / d_k * d_k;
      input.rows(head, d_k, stored.data());
      for (; row < std::min(end, head + d_k); ++row) {
        std::fill(sums.begin(), sums.end(), 0.0);
        for (int64_t i = 0; i < d_k; ++i) {
          const auto factor = static_cast<double>(matrices[static_cast<size_t>(row * d_k + i)]);
          const float* from = stored.data() + i * width;
          for (int64_t k = 0; k < width; ++k) sums[static_cast<size_t>(k)] += factor * static_cast<double>(from[k]);
        }
        std::transform(sums.begin(), sums.end(), numbers + (row - first) * width,
                       [](double sum) { return static_cast<float>(sum); });
      }
    }
    const int64_t rest = std::max(first, values);
    if (rest < end) input.rows(rest, end - rest, numbers + (rest - first) * width);
  };
  return folded;
}

}  // namespace

// --- as they were trained ----------------------------------------------------------------------------------

TrainedWeights::TrainedWeights(const ModelSettings& settings, StoredWeights weights, Precision precision,
                               std::string origin, const Kernels& kernels)
    : weights_(std::move(weights)), precision_(precision), origin_(std::move(origin)), kernels_(kernels) {
  check_weights(weights_, weight_shapes(settings), origin_);
}

std::vector<float> TrainedWeights::all_of(const std::string& name) const {
  return read_weight(weights_.at(name), name, origin_);
}

PackedMatrix TrainedWeights::matrix(const MatrixOf& wanted, const float* bias) {
  const auto& weight = weights_.at(wanted.weight);
  const auto source = [&](int64_t row, int64_t some) {
    rows_.resize(static_cast<size_t>(some * wanted.depth));
    weight.rows(wanted.first + row, some, rows_.data());
    // int8 would make an ordinary number of one that is not finite.
    if (!all_finite(rows_)) refuse_not_finite(origin_, wanted.weight);
    return rows_.data();
  };
  return {kernels_, precision_, wanted.outputs, wanted.depth, source, bias, memory_};
}

std::vector<float> TrainedWeights::numbers(const std::string& name, const std::vector<int64_t>&) {
  return all_of(name);
}

Buffer<unsigned char> TrainedWeights::pairs(const PairsOf& wanted) {
  const int64_t element = attended_bytes(precision_), record_bytes = wanted.record_bytes(precision_);
  Buffer<unsigned char> records(wanted.pairs * record_bytes);
  // A head's keys, or values, of all pairs at a time, into each pair's record from element `place` on.
  const auto scatter = [&](const std::string& part, int64_t head, int64_t width, int64_t place) {
    rows_.resize(static_cast<size_t>(wanted.pairs * width));
    weights_.at(part).rows(head, 1, rows_.data());
    if (!all_finite(rows_)) refuse_not_finite(origin_, part);
    for (auto& number : rows_) number *= wanted.scale;
    for (int64_t pair = 0; pair < wanted.pairs; ++pair) {
      const float* from = rows_.data() + pair * width;
      unsigned char* to = records.data() + pair * record_bytes + place * element;
      if (precision_ == Precision::float32) {
        std::memcpy(to, from, static_cast<size_t>(width * element));
      } else {
        kernels_.to_bf16(from, width, reinterpret_cast<uint16_t*>(to));
      }
    }
  };
  for (int64_t head = 0; head < wanted.heads; ++head) {
    scatter(wanted.name + ".keys", head, wanted.d_k, head * wanted.d_k);
    scatter(wanted.name + ".values", head, wanted.d_v, wanted.heads * wanted.d_k + head * wanted.d_v);
  }
  return records;
}

void TrainedWeights::fold_additive(const std::string& attention, const std::vector<int64_t>& shape) {
  auto matrices = all_of(attention + ".additive_query");
  const auto of_keys = all_of(attention + ".additive_key");
  matrices.insert(matrices.end(), of_keys.begin(), of_keys.end());
  for (const char* part : {".input_weight", ".input_bias"}) {
    const auto found = weights_.find(attention + part);
    if (found != weights_.end()) found->second = with_additive(found->second, matrices, shape.back());
  }
}

// --- into a file ----------------------------------------------------------------------------------------------

PackedMatrix PackedWeightsWriter::matrix(const MatrixOf& wanted, const float* bias) {
  return matrices_.emplace(wanted.name, source_.matrix(wanted, bias)).first->second;
}

std::vector<float> PackedWeightsWriter::numbers(const std::string& name, const std::vector<int64_t>& shape) {
  return numbers_.emplace(name, Numbers{source_.numbers(name, shape), shape}).first->second.values;
}

Buffer<unsigned char> PackedWeightsWriter::pairs(const PairsOf& wanted) {
  auto records = source_.pairs(wanted);
  const int64_t element = attended_bytes(precision_);
  pairs_[wanted.name + pairs_suffix] = {{records.data(), records.data() + records.size()},
                                        {wanted.pairs, wanted.record_bytes(precision_) / element}};
  return records;
}

void PackedWeightsWriter::fold_additive(const std::string& attention, const std::vector<int64_t>& shape) {
  source_.fold_additive(attention, shape);
}

void PackedWeightsWriter::write(const std::filesystem::path& file, std::map<std::string, std::string> metadata) const {
  std::map<std::string, TensorSource> tensors;
  std::vector<unsigned char> panels;  // of the matrix that is being written
  for (const auto& [name, matrix] : matrices_) {
    const auto& each = matrix;
    tensors[name] = {element_type(precision_), stored_shape(precision_, matrix.outputs(), matrix.depth()), [&] {
                       panels = each.stored_panels();
                       return panels.data();
                     }};
    if (precision_ != Precision::int8) continue;
    tensors[name + scales_suffix] = {ElementType::float32, {matrix.outputs()}, [&] { return each.scales().data(); }};
    tensors[name + sums_suffix] = {ElementType::int32, {matrix.outputs()}, [&] { return each.sums().data(); }};
  }
  for (const auto& [name, numbers] : numbers_) {
    const auto& each = numbers;
    tensors[name] = {ElementType::float32, numbers.shape, [&] { return each.values.data(); }};
  }
  for (const auto& [name, pairs] : pairs_) {
    const auto& each = pairs;
    tensors[name] = {precision_ == Precision::float32 ? ElementType::float32 : ElementType::bfloat16, pairs.shape,
                     [&] { return each.bytes.data(); }};
  }
  metadata[packed_weights_key] = precision_name(precision_);
  write_tensor_file(file, tensors, metadata);
}

// --- from a file -------------------------------------------------------------------------------------------------

std::optional<Precision> PackedWeights::precision_of(const std::filesystem::path& file,
                                                     const std::map<std::string, std::string>& metadata) {
  const auto packed = metadata.find(packed_weights_key);
  if (packed == metadata.end()) return std::nullopt;
  const auto precision = precision_named(packed->second);
  if (!precision || *precision == Precision::fp16) {
    throw Error(
        file.string(),
        fmt::format("its weights are packed as {}, which this version does not know", in_quotes(packed->second)),
        "use the version that wrote it, or pack the model anew");
  }
  return precision;
}

PackedWeights::PackedWeights(const std::filesystem::path& file, Precision precision, const Kernels& kernels,
                             PackedIn packed_in)
    : file_(file), precision_(precision), kernels_(kernels), reader_(file) {
  if (packed_in == PackedIn::memory) return;
  mapping_ = std::make_shared<const MappedFile>(file);
  if (mapping_->bytes() != reader_.file_bytes()) {
    throw Failure("cannot read " + file.string(), "the file was replaced while it was read");
  }
}

const unsigned char* PackedWeights::tensor(const std::string& name, ElementType type, const std::vector<int64_t>& shape,
                                           bool stays) {
  const auto refuse = [&](const std::string& what) {
    throw Error(file_.string(), what, "the file belongs to a model of other settings");
  };
  const auto found = reader_.entries().find(name);
  if (found == reader_.entries().end()) refuse(fmt::format("the weights of '{}' are missing", name));
  const auto& entry = found->second;
  if (entry.type != type || entry.shape != shape) {
    refuse(fmt::format("'{}' holds {} [{}], a model of these settings that is packed as {} asks for {} [{}]", name,
                       element_name(entry.type), fmt::join(entry.shape, ", "), precision_name(precision_),
                       element_name(type), fmt::join(shape, ", ")));
  }
  used_.insert(name);
  if (!mapping_) {
    unsigned char* to = nullptr;
    if (stays) {
      to = memory_->take(entry.bytes());
    } else {
      read_.resize(static_cast<size_t>(entry.bytes()));
      to = read_.data();
    }
    reader_.read(name, to);
    return to;
  }
  return mapping_->as<unsigned char>().data() + reader_.data_begin() + entry.begin;
}

std::vector<float> PackedWeights::numbers(const std::string& name, const std::vector<int64_t>& shape) {
  const auto* from = tensor(name, ElementType::float32, shape);
  std::vector<float> values(static_cast<size_t>(reader_.entries().at(name).elements()));
  std::memcpy(values.data(), from, values.size() * sizeof(float));
  if (!all_finite(values)) refuse_not_finite(file_.string(), name);
  return values;
}

PackedMatrix PackedWeights::matrix(const MatrixOf& wanted, const float* bias) {
  PackedMatrix::Stored stored;
  std::vector<float> scales;
  std::vector<int32_t> sums(static_cast<size_t>(wanted.outputs));
  if (precision_ == Precision::int8) {
    scales = numbers(wanted.name + scales_suffix, {wanted.outputs});
    std::memcpy(sums.data(), tensor(wanted.name + sums_suffix, ElementType::int32, {wanted.outputs}),
                sums.size() * sizeof(int32_t));
    stored.scales = scales;
    stored.sums = sums;
  }
  // Kernels of narrower panels have them copied.
  const bool stays = kernels_.columns == PackedMatrix::widest_panel;
  const auto shape = stored_shape(precision_, wanted.outputs, wanted.depth);
  stored.panels = {tensor(wanted.name, element_type(precision_), shape, stays),
                   static_cast<size_t>(PackedMatrix::stored_panels_bytes(precision_, wanted.outputs, wanted.depth))};
  return {kernels_, precision_, wanted.outputs, wanted.depth, stored, bias, memory_};
}

Buffer<unsigned char> PackedWeights::pairs(const PairsOf& wanted) {
  const auto type = precision_ == Precision::float32 ? ElementType::float32 : ElementType::bfloat16;
  const int64_t bytes = wanted.record_bytes(precision_);
  const auto* from = tensor(wanted.name + pairs_suffix, type, {wanted.pairs, bytes / attended_bytes(precision_)});
  Buffer<unsigned char> records(wanted.pairs * bytes);
  std::memcpy(records.data(), from, static_cast<size_t>(wanted.pairs * bytes));
  return records;
}

void PackedWeights::check_all_used() const {
  for (const auto& [name, entry] : reader_.entries()) {
    if (!used_.contains(name)) {
      throw Error(file_.string(), fmt::format("{} is no part of this model", in_quotes(name)),
                  "the file belongs to a model of other settings");
    }
  }
}

}  // namespace transformer
