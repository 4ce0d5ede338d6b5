#include "transformer/model/fused/products.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "catch.h"
#include "emulated_amx_products.h"
#include "for_a_while.h"
#include "transformer/kernels/instruction_set.h"
#include "transformer/kernels/product_kernels.h"

using namespace transformer;
using torch::Tensor;

namespace {

using Chosen = test::ChosenKernels<product_kernels, choose_product_kernels>;

/// Those that run here, and those for AMX.
std::vector<const ProductKernels*> tested_kernels() {
  auto kernels = runnable_product_kernels();
#if defined(__x86_64__)
  if (std::count(kernels.begin(), kernels.end(), avx512_instructions.products)) {
    kernels.push_back(&emulated_amx_products);
  }
#endif
  return kernels;
}

std::vector<const ProductKernels*> all_ways() {
  auto kernels = tested_kernels();
  kernels.push_back(nullptr);
  return kernels;
}

Tensor exact(const Tensor& x) {
  return x.to(torch::kFloat64);
}

/// The largest error of an element, relative to what its sum's terms come to without their signs.
double error(const Tensor& actual, const Tensor& expected, const Tensor& size) {
  return ((exact(actual) - expected).abs() / size).max().item<double>();
}

struct Sizes {
  int64_t rows, depth, columns;
};

// One, odd, whole tiles, and beyond every block of rows (120, and 2,048 whose sums wait), depth (512 floats, 1,024
// bf16) and columns (2,048).
const Sizes all_sizes[] = {{1, 1, 1},     {5, 7, 3},      {1, 64, 1},      {33, 1, 20},     {64, 48, 32},
                           {12, 512, 32}, {13, 513, 33},  {121, 1025, 70}, {240, 2051, 96}, {7, 1030, 2081},
                           {17, 3, 4130}, {250, 130, 64}, {2100, 1030, 33}};

constexpr double float_error = 1e-6;
constexpr double bf16_error = 1.0 / 256;  // rounded once to eight bits

}  // namespace

TEST_CASE("products of every layout, size and type equal those of float64 on every instruction set") {
  torch::manual_seed(1);
  for (const auto* kernels : all_ways()) {
    const Chosen chosen(kernels);
    for (const auto& [m, k, n] : all_sizes) {
      for (const bool a_turned : {false, true}) {
        for (const bool b_turned : {false, true}) {
          for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
            INFO((kernels ? kernels->name : "LibTorch")
                 << ", " << m << " x " << k << " x " << n << ", turned " << a_turned << b_turned << ", " << type);
            // Parts of larger matrices, so that what lies around them is not what is multiplied.
            const auto factor = [&](int64_t rows, int64_t columns, bool turned) {
              if (turned) std::swap(rows, columns);
              const auto part = torch::randn({rows + 2, columns + 3}).to(type).narrow(0, 1, rows).narrow(1, 2, columns);
              return turned ? part.t() : part;
            };
            const auto a = factor(m, k, a_turned), b = factor(k, n, b_turned);
            const auto bias = torch::randn({n});
            const auto expected = exact(a).mm(exact(b)), size = exact(a).abs().mm(exact(b).abs());
            // LibTorch's bfloat16 is rounded on its way into float32, too.
            const bool rounded = type == torch::kBFloat16 && !(kernels && kernels->bf16_into_float);
            const double tolerance = type == torch::kBFloat16 ? bf16_error : float_error;
            const double tolerance_in_float = rounded ? bf16_error : float_error;

            const auto result = product(a, b);
            CHECK(result.scalar_type() == type);
            CHECK(error(result, expected, size) < tolerance);
            // .. and its bias is rounded, too.
            CHECK(error(product(a, b, bias), expected + exact(bias), size + 1 + exact(bias).abs()) <
                  (rounded ? 2 : 1) * tolerance);
            CHECK(product_in_float(a, b).scalar_type() == torch::kFloat32);
            CHECK(error(product_in_float(a, b), expected, size) < tolerance_in_float);

            const auto around = torch::ones({m + 2, n + 5});
            const auto into = around.narrow(0, 1, m).narrow(1, 2, n);
            product_into(into, a, b, /*accumulated=*/true);
            CHECK(error(into, expected + 1, size + 1) < tolerance_in_float);
            product_into(into, a, b);
            CHECK(error(into, expected, size) < tolerance_in_float);
            into.fill_(1);
            CHECK(around.eq(1).all().item<bool>());  // nothing was written around it
          }
        }
      }
    }
  }
}

TEST_CASE("biases and results may lie in memory in any way") {
  torch::manual_seed(4);
  for (const auto* kernels : all_ways()) {
    const Chosen chosen(kernels);
    for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
      INFO((kernels ? kernels->name : "LibTorch") << ", " << type);
      const auto a = torch::randn({33, 70}).to(type), b = torch::randn({70, 20}).to(type);
      const auto bias = torch::randn({20, 2}).select(1, 1);
      CHECK(product(a, b, bias).equal(product(a, b, bias.contiguous())));
      CHECK(product(a, b, bias[3].expand({20})).equal(product(a, b, bias[3].repeat({20}))));
      const auto expected = exact(a).mm(exact(b)), size = exact(a).abs().mm(exact(b).abs()) + 1;
      for (const auto into : {torch::kFloat32, torch::kBFloat16}) {
        const auto around = torch::ones({22, 68}, into);
        const auto result = around.narrow(0, 1, 20).slice(1, 1, 67, 2).t();  // columns side by side, two apart
        product_into(result, a, b, /*accumulated=*/true);
        CHECK(error(result, expected + 1, size) < 2 * bf16_error);
        product_into(result, a, b);
        CHECK(error(result, expected, size) < 2 * bf16_error);
        result.fill_(1);
        CHECK(around.eq(1).all().item<bool>());
      }
    }
  }
}

TEST_CASE("a product's memory has a bound, however many rows it has") {
  for (const auto* kernels : tested_kernels()) {
    for (const bool into_bf16 : {false, true}) {
      const auto floats_for = [&](int64_t rows, int64_t columns) {
        return kernels->scratch({rows, columns, 4096}, into_bf16);
      };
      CHECK(floats_for(1000000, 100000) == floats_for(2048, 2048));
      CHECK(floats_for(1000000, 100000) * sizeof(float) < (32 << 20));
    }
  }
}

TEST_CASE("a product is the same on any number of threads") {
  torch::manual_seed(2);
  for (const auto* kernels : tested_kernels()) {
    const Chosen chosen(kernels);
    for (const auto& [m, k, n] : {Sizes{301, 600, 130}, Sizes{130, 600, 301}, Sizes{2, 700, 4100}}) {
      for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
        if (type == torch::kFloat32 ? !kernels->in_float : !kernels->bf16_into_bf16) continue;
        INFO(kernels->name << ", " << m << " x " << k << " x " << n << ", " << type);
        const auto a = torch::randn({m, k}).to(type), b = torch::randn({n, k}).to(type).t(), bias = torch::randn({n});
        const auto product_by = [&](int count) {
          const test::Threads threads(count);
          return product(a, b, bias);
        };
        const auto once = product_by(1);
        for (const int count : {2, 3, 7}) CHECK(product_by(count).equal(once));
      }
    }
  }
}

TEST_CASE("products of nothing, and of what is not a number") {
  CHECK(product(torch::ones({0, 3}), torch::ones({3, 2})).sizes() == at::IntArrayRef({0, 2}));
  CHECK(product(torch::ones({2, 0}), torch::ones({0, 3})).eq(0).all().item<bool>());
  CHECK(product(torch::ones({2, 0}), torch::ones({0, 3}), torch::ones({3})).eq(1).all().item<bool>());
  for (const auto* kernels : all_ways()) {
    const Chosen chosen(kernels);
    for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
      const auto a = torch::ones({30, 40}, type), b = torch::ones({40, 50}, type);
      a[3][7] = NAN;
      b[5][45] = INFINITY;
      const auto result = product(a, b);
      INFO((kernels ? kernels->name : "LibTorch") << ", " << type);
      CHECK(result[3].isnan().all().item<bool>());
      // LibTorch's bfloat16 spreads it to the row's neighbour on processors with AMX.
      if (type == torch::kBFloat16 && !(kernels && kernels->bf16_into_float)) continue;
      CHECK(result.isnan().sum().item<int64_t>() == 50);
      CHECK(result.isinf().sum().item<int64_t>() == 29);
    }
  }
}

TEST_CASE("a product goes into results of any type, and onto what is there in bfloat16, too") {
  torch::manual_seed(3);
  const auto a = torch::randn({33, 70}).to(torch::kBFloat16), b = torch::randn({70, 20}).to(torch::kBFloat16);
  const auto expected = exact(a).mm(exact(b)), size = exact(a).abs().mm(exact(b).abs()) + 1;
  for (const auto* kernels : all_ways()) {
    const Chosen chosen(kernels);
    for (const auto type : {torch::kBFloat16, torch::kFloat16, torch::kFloat32, torch::kFloat64}) {
      INFO((kernels ? kernels->name : "LibTorch") << ", " << type);
      const auto result = torch::ones({33, 20}, type);
      product_into(result, a, b, /*accumulated=*/true);
      CHECK(error(result, expected + 1, size) < 2 * bf16_error);
      product_into(result, a, b);
      CHECK(error(result, expected, size) < 2 * bf16_error);
    }
  }
}

TEST_CASE("factors, biases and results of sizes that do not fit are refused") {
  for (const auto* kernels : all_ways()) {
    const Chosen chosen(kernels);
    for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
      INFO((kernels ? kernels->name : "LibTorch") << ", " << type);
      const auto a = torch::ones({4, 64}, type), b = torch::ones({64, 9}, type);
      CHECK_THROWS_AS(product(a, b.narrow(0, 0, 16)), c10::Error);
      CHECK_THROWS_AS(product(a.narrow(1, 0, 16), b), c10::Error);
      CHECK_THROWS_AS(product(a, b, torch::ones({8})), c10::Error);
      CHECK_THROWS_AS(product_in_float(a, b.narrow(0, 0, 16)), c10::Error);
      CHECK_THROWS_AS(product_into(torch::ones({4, 9}), a, b.narrow(0, 0, 16)), c10::Error);
      CHECK_THROWS_AS(product_into(torch::ones({4, 8}), a, b), c10::Error);
      CHECK_THROWS_AS(product_into(torch::ones({3, 9}), a, b), c10::Error);
      CHECK_NOTHROW(product_into(torch::ones({4, 9}), a, b));
    }
  }
}
