#include "transformer/base/checked.h"

#include <cstdint>
#include <vector>

#include "catch.h"

using transformer::checked_product;

TEST_CASE("a product of sizes is exact or none") {
  CHECK(checked_product({}) == 1);
  CHECK(checked_product({3, 5, 7}) == 105);
  CHECK(checked_product({INT64_MAX}) == INT64_MAX);
  CHECK(checked_product({int64_t{1} << 31, int64_t{1} << 31}) == int64_t{1} << 62);
  CHECK_FALSE(checked_product({int64_t{1} << 32, int64_t{1} << 31}));
  CHECK_FALSE(checked_product({4611686018427387905, 4}));  // 4 in 64 bits
  CHECK_FALSE(checked_product({2, -3}));
  CHECK_FALSE(checked_product({-2, -3}));
  CHECK(checked_product({0, 5}) == 0);
  CHECK(checked_product({5, 0, 3}) == 0);
  CHECK_FALSE(checked_product({0, INT64_MAX, 2}));  // strides of an empty tensor exist, too
  CHECK_FALSE(checked_product({INT64_MAX, 2, 0}));
  CHECK(checked_product(std::vector<int64_t>{2, 3}) == 6);
  // Against 128 bits, around where 64 end.
  for (int64_t a = 3037000490; a < 3037000510; ++a) {
    for (int64_t b = 3037000490; b < 3037000510; ++b) {
      const __int128 wide = static_cast<__int128>(a) * b;
      const auto product = checked_product({a, b});
      CHECK(product.has_value() == (wide <= INT64_MAX));
      if (product) CHECK(*product == static_cast<int64_t>(wide));
    }
  }
}
