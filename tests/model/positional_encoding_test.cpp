#include "transformer/model/positional_encoding.h"

#include <torch/types.h>

#include <cmath>

#include "model/reference.h"
#include "transformer/base/error.h"

using namespace transformer;
using namespace transformer::test;
using Positions = ModelSettings::Positions;

namespace {

double expected(int64_t position, int64_t dimension, int64_t d_model) {
  const double exponent = static_cast<double>(dimension / 2 * 2) / static_cast<double>(d_model);
  const double angle = static_cast<double>(position) / std::pow(10000.0, exponent);
  return dimension % 2 == 0 ? std::sin(angle) : std::cos(angle);
}

}  // namespace

TEST_CASE("sinusoids follow the formula, for odd widths and far positions too") {
  for (const int64_t d_model : {1, 2, 7, 64, 513}) {
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 40}, {600, 3}, {5000, 2}}) {
      const auto table = sinusoid_table(first, count, d_model);
      REQUIRE(table.scalar_type() == torch::kFloat64);
      REQUIRE(table.sizes() == at::IntArrayRef({count, d_model}));
      double largest = 0;
      for (int64_t p = 0; p < count; ++p) {
        for (int64_t d = 0; d < d_model; ++d) {
          largest = std::max(largest, std::abs(table[p][d].item<double>() - expected(first + p, d, d_model)));
        }
      }
      INFO("d_model " << d_model << ", first " << first);
      CHECK(largest < 1e-11);
    }
  }
}

TEST_CASE("the sinusoidal encoding gives any stretch of positions, in the type asked for") {
  const int64_t D = 10;
  PositionalEncoding encoding(Positions::sinusoidal, D, 4);  // max_positions is the learned table's limit alone
  CHECK(encoding->parameters().empty());
  for (const auto type : {torch::kFloat64, torch::kFloat32, torch::kBFloat16}) {
    const auto like = torch::zeros({1}, type);
    for (const auto& [first, count] :
         {std::pair<int64_t, int64_t>{0, 1}, {0, 512}, {511, 1}, {510, 4}, {512, 1}, {600, 1}, {0, 5000}, {5000, 7}}) {
      INFO("first " << first << ", count " << count);
      CHECK(difference(encoding->forward(first, count, like), sinusoid_table(first, count, D).to(type)) == 0);
    }
  }
}

TEST_CASE("learned positions are a table that ends") {
  torch::manual_seed(1);
  const int64_t D = 64, longest = 300;
  PositionalEncoding encoding(Positions::learned, D, longest);
  const auto parameters = encoding->named_parameters();
  REQUIRE(parameters.size() == 1);
  const auto& weight = parameters["weight"];
  REQUIRE(weight.sizes() == at::IntArrayRef({longest, D}));
  CHECK(weight.std().item<double>() == Approx(1 / std::sqrt(static_cast<double>(D))).epsilon(0.03));

  const auto like = torch::zeros({1});
  const auto rows = encoding->forward(7, 4, like);
  CHECK(difference(rows, weight.narrow(0, 7, 4)) == 0);
  rows.sum().backward();
  CHECK(weight.grad().sum().item<double>() == 4 * D);
  CHECK(weight.grad().narrow(0, 7, 4).eq(1).all().item<bool>());

  CHECK_NOTHROW(encoding->forward(0, longest, like));
  const auto message = message_of<Error>([&] { encoding->forward(0, longest + 1, like); });
  CHECK_THAT(message, Contains("model.max_positions") && Contains("301 tokens") && Contains("300 positions"));
  CHECK_THROWS_AS(encoding->forward(longest, 1, like), Error);
}

TEST_CASE("a module that was in bfloat16 for a while has its sinusoids back as they were") {
  PositionalEncoding encoding(Positions::sinusoidal, 10, 4);
  for (const auto type : {torch::kFloat32, torch::kBFloat16, torch::kFloat32}) {
    encoding->to(type);
    const auto like = torch::zeros({1}, type);
    CHECK(torch::equal(encoding->forward(0, 512, like), sinusoid_table(0, 512, 10).to(type)));
  }
}
