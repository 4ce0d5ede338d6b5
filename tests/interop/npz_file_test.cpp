#include "transformer/interop/npz_file.h"

#include <fmt/format.h>

#include <cstring>
#include <string>

#include "catch.h"
#include "error_of.h"
#include "interop/archive.h"

using namespace transformer;
using namespace transformer::test;

namespace {

constexpr const char* plain = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }\n";

/// A .npz file of one array of 24 bytes, whose header is given.
std::string file_of(const std::string& header, char version = 1) {
  float numbers[6] = {0, 1, 2, 3, 4, 5};
  std::string bytes(sizeof numbers, '\0');
  std::memcpy(bytes.data(), numbers, sizeof numbers);
  return zip_of({{.name = "w.npy",
                  .content = fmt::format("\x93NUMPY{}{}{}{}{}", version, '\0',
                                         as_bytes(header.size(), version == 1 ? 2 : 4), header, bytes)}});
}

std::string npz_refusal(const std::string& bytes) {
  return error_of([&] { npz_arrays(bytes, nullptr, "model.npz"); });
}

}  // namespace

TEST_CASE("an array's header has a type, an order and a shape, once each") {
  CHECK(npz_refusal(file_of(plain)).empty());
  CHECK(npz_refusal(file_of(plain, 2)).empty());
  CHECK(npz_refusal(file_of("{'shape': (6,), 'fortran_order': False, 'descr': '<i4'}\n")).empty());
  CHECK(npz_refusal(file_of("{'shape': (6), 'fortran_order': False, 'descr': '<i4'}  \n")).empty());
  for (const char* header :
       {"{'fortran_order': False, 'shape': (3, 2)}\n", "{'descr': '<f4', 'shape': (3, 2)}\n",
        "{'descr': '<f4', 'fortran_order': False}\n", "{}\n", "", "{'descr': '<f4', 'descr': '<f4'}\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)}", "{'descr': '<f4', 'order': 1}\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)} x\n", "{'descr"}) {
    INFO(header);
    CHECK_THAT(npz_refusal(file_of(header)), Contains("'w'") && Contains("header that is none"));
  }
  CHECK_THAT(npz_refusal(file_of("{'descr': '>f4', 'fortran_order': False, 'shape': (3, 2)}\n")), Contains("'>f4'"));
  CHECK_THAT(npz_refusal(file_of("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2)}\n")),
             Contains("row by row"));
  for (const char* shape : {"(3, 3)", "(3, 1)", "()", "(4611686018427387904, 4)", "(0, 6)"}) {
    INFO(shape);
    CHECK_THAT(npz_refusal(file_of(fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': {}}}\n", shape))),
               Contains("not the numbers"));
  }
  for (const char* shape : {"(-3, -2)", "(x)", "(1, 1, 1, 1, 1, 1, 1, 3, 2)"}) {
    INFO(shape);
    CHECK_THAT(npz_refusal(file_of(fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': {}}}\n", shape))),
               Contains("shape that is none"));
  }
  CHECK_THAT(npz_refusal(file_of(plain, 4)), Contains("version"));
  CHECK_THAT(npz_refusal(file_of(plain, 0)), Contains("version"));
  CHECK_THAT(npz_refusal(zip_of({{.name = "w.npy", .content = "text"}})), Contains("no array"));
}

TEST_CASE("rows of an array are read from where they begin") {
  const auto file = file_of(plain);
  const auto weight = stored_weight(npz_arrays(file, nullptr, "model.npz").at("w"));
  CHECK(weight.shape == std::vector<int64_t>{3, 2});
  float rows[4] = {};
  weight.rows(1, 2, rows);
  CHECK(std::vector<float>(rows, rows + 4) == std::vector<float>{2, 3, 4, 5});
  weight.rows(2, 1, rows);
  CHECK(std::vector<float>(rows, rows + 2) == std::vector<float>{4, 5});
}
