#include "transformer/base/checksum.h"

#include <sys/stat.h>

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

TEST_CASE("a file that can be opened and not read says what to do") {
  TemporaryDirectory directory;
  std::filesystem::create_symlink("/proc/self/mem", directory / "file");
  CHECK_THROWS_AS(file_checksum(directory / "file"), Failure);
  CHECK_THROWS_WITH(file_checksum(directory / "file"),
                    Contains((directory / "file").string()) && Contains("look at its disk, and start again"));
}

TEST_CASE("any bit flipped or byte cut in a file or in the list of checksums is found") {
  TemporaryDirectory directory;
  write_file(directory / "a", "some weights");
  write_file(directory / "b", "");
  write_checksums(directory.path(), {"a", "b"});
  REQUIRE_NOTHROW(verify_checksums(directory.path()));
  REQUIRE_NOTHROW(verify_checksums(directory.path(), {"b"}));
  CHECK_THROWS_WITH(verify_checksums(directory.path(), {"c"}), Contains("does not list c"));
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
  CHECK_THROWS_WITH(verify_checksums(directory.path()), Contains("b: cannot be read"));
}

TEST_CASE("a list of checksums speaks of the files beside it alone, once each") {
  TemporaryDirectory directory;
  write_file(directory / "a", "some weights");
  const std::string sum = file_checksum(directory / "a");
  const auto refused = [&](const std::string& list, const std::string& why) {
    write_file(directory / checksums_name, list);
    INFO(why);
    for (const std::vector<std::string>& names : {std::vector<std::string>{}, {"a"}}) {
      CHECK_THROWS_WITH(verify_checksums(directory.path(), names),
                        Contains("is damaged: ") && Contains(why) && !Contains("\033"));
    }
  };
  const std::string good = sum + "  a\n";
  for (const std::string name : {"../../etc/passwd", "/etc/passwd", "..", ".", "b/../a", "\033[2J/a"}) {
    refused(good + sum + "  " + name + "\n", "is no file beside it");
  }
  refused(good + sum + "  a\n", "lists 'a' twice");
  refused(sum + "  a\r\n", "carriage returns");
  refused(good + std::string(2 << 20, 'x') + "\n", "a list of a few files' checksums");
  write_file(directory / checksums_name, good);
  REQUIRE_NOTHROW(verify_checksums(directory.path()));
  // Neither waits for a writer.
  std::filesystem::remove(directory / "a");
  REQUIRE(mkfifo((directory / "a").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(verify_checksums(directory.path()), Contains("a: is not a regular file"));
  std::filesystem::remove(directory / checksums_name);
  REQUIRE(mkfifo((directory / checksums_name).c_str(), 0600) == 0);
  CHECK_THROWS_WITH(verify_checksums(directory.path()), Contains("is damaged: "));
}
