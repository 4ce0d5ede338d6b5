#include "transformer/base/checksum.h"

#include "support.h"
#include "transformer/base/error.h"

using namespace transformer;
using transformer::test::read_file;
using transformer::test::TemporaryDirectory;
using transformer::test::write_file;

TEST_CASE("a checksum is XXH3's, whatever pieces its bytes come in") {
  Checksum whole, parts;
  CHECK(whole.text() == "99aa06d3014798d86001c324468d497f");  // published by xxHash for no bytes
  const std::string text(100000, 'x');
  whole.add(text);
  for (size_t i = 0; i < text.size(); i += 777) parts.add(std::string_view(text).substr(i, 777));
  CHECK(whole.text() == parts.text());
  TemporaryDirectory directory;
  write_file(directory / "file", text);
  CHECK(file_checksum(directory / "file") == whole.text());
}

TEST_CASE("any bit flipped or byte cut in a file or in the list of checksums is found") {
  TemporaryDirectory directory;
  write_file(directory / "a", "some weights");
  write_file(directory / "b", "");
  write_checksums(directory.path(), {"a", "b"});
  REQUIRE_NOTHROW(verify_checksums(directory.path()));
  REQUIRE_NOTHROW(verify_checksums(directory.path(), {"b"}));
  CHECK_THROWS_WITH(verify_checksums(directory.path(), {"c"}), Catch::Contains("does not list c"));
  for (const char* name : {"a", checksums_name}) {
    const auto file = directory / name;
    const std::string whole = read_file(file);
    for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      std::string flipped = whole;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
      write_file(file, flipped);
      INFO(name << ", bit " << bit);
      CHECK_THROWS_AS(verify_checksums(directory.path(), {"a", "b"}), Error);
    }
    for (size_t length = 0; length < whole.size(); ++length) {
      write_file(file, whole.substr(0, length));
      INFO(name << " cut to " << length);
      CHECK_THROWS_AS(verify_checksums(directory.path(), {"a", "b"}), Error);
    }
    write_file(file, whole);
  }
  std::filesystem::remove(directory / "b");
  CHECK_THROWS_WITH(verify_checksums(directory.path()), Catch::Contains("b: cannot be read"));
}
