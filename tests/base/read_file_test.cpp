#include "transformer/base/read_file.h"

#include "error_of.h"
#include "support.h"

namespace transformer::test {

TEST_CASE("a file is read whole, or refused by its size") {
  const TemporaryDirectory folder;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{65535}, size_t{65536}, size_t{65537}, size_t{200000}}) {
    std::string bytes(size, 'x');
    if (size > 2) bytes[size / 2] = '\0';
    write_file(folder / "file", bytes);
    CHECK(transformer::read_file(folder / "file") == bytes);
    CHECK(transformer::read_file(folder / "file", size) == bytes);
    if (size == 0) continue;
    CHECK_THAT(error_of([&] { transformer::read_file(folder / "file", size - 1); }),
               Contains("file: is larger than") && Contains(std::to_string(size - 1)));
  }
}

TEST_CASE("a file without an end is refused") {
  CHECK_THAT(error_of([&] { transformer::read_file("/dev/zero", 1000000); }), Contains("/dev/zero: is larger than"));
}

TEST_CASE("what is no file is named") {
  const TemporaryDirectory folder;
  CHECK_THAT(error_of([&] { transformer::read_file(folder.path()); }), Contains("is a folder"));
  CHECK_THAT(error_of([&] { transformer::read_file(folder / "absent"); }), Contains("absent: cannot be read: No such"));
}

TEST_CASE("a file that cannot be looked at is not one that is not there") {
  const TemporaryDirectory folder;
  write_file(folder / "file", "");
  std::filesystem::create_symlink("file", folder / "link");
  std::filesystem::create_symlink("nowhere", folder / "dangling");
  std::filesystem::create_symlink("circle", folder / "circle");
  CHECK(is_file(folder / "file"));
  CHECK(is_file(folder / "link"));
  for (const auto& none : {std::string("dangling"), std::string("absent"), std::string("file/absent"), std::string("."),
                           std::string(300, 'n')}) {
    CHECK_FALSE(is_file(folder / none));
  }
  for (const char* unknown : {"circle", "circle/file"}) {
    CHECK_THAT(error_of([&] { is_file(folder / unknown); }), Contains("circle") && Contains(": cannot be looked at: "));
  }
}

}  // namespace transformer::test
