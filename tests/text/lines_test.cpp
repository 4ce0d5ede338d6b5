#include "transformer/text/lines.h"

#include <sys/resource.h>

#include "text_support.h"
#include "transformer/base/described.h"

namespace transformer::test {

using Lines = std::vector<std::string>;

TEST_CASE("lines end with \\n or \\r\\n, the last one may end with the file") {
  const TemporaryDirectory folder;
  const auto lines_of = [&](const std::string& text) {
    write_file(folder / "plain", text);
    write_file(folder / "packed.gz", gzip(text));
    const auto lines = read_lines(folder / "plain");
    CHECK(read_lines(folder / "packed.gz") == lines);
    return lines;
  };
  CHECK(lines_of("") == Lines{});
  CHECK(lines_of("\n") == Lines{""});
  CHECK(lines_of("a") == Lines{"a"});
  CHECK(lines_of("a\n") == Lines{"a"});
  CHECK(lines_of("a\n\nb") == Lines{"a", "", "b"});
  CHECK(lines_of("a\r\nb\r\n\r\n") == Lines{"a", "b", ""});
  CHECK(lines_of("a\rb\r\r\n") == Lines{"a\rb\r"});
  const std::string mark = "\xEF\xBB\xBF";
  CHECK(lines_of(mark + "a\n" + mark + "b\n") == Lines{"a", mark + "b"});
  CHECK(lines_of(std::string("a\0b\n\0", 5)) == Lines{std::string("a\0b", 3), std::string(1, '\0')});
  // U+2028 and U+0085 end lines for some readers, which would shift one side of a parallel corpus.
  CHECK(lines_of("a\u2028b\u0085c\vd\fe\n") == Lines{"a\u2028b\u0085c\vd\fe"});
}

TEST_CASE("lines longer than any buffer, and lines that cross buffers, come whole") {
  const TemporaryDirectory folder;
  Lines expected = {std::string(1000000, 'x'), "", std::string(131071, 'y'), std::string(131072, 'z'), "end"};
  for (int i = 0; i < 40000; ++i) expected.push_back("line " + std::to_string(i));
  std::string text;
  for (const auto& line : expected) text += line + "\r\n";
  write_file(folder / "text", text);
  CHECK(read_lines(folder / "text") == expected);
}

TEST_CASE("a line longer than 1 MiB is refused, however it is stored") {
  const TemporaryDirectory folder;
  const std::string mark = "\xEF\xBB\xBF", longest(most_line_bytes, 'x');
  for (const char* end : {"", "\n", "\r\n"}) {
    write_file(folder / "longest", mark + longest + end);
    CHECK(read_lines(folder / "longest") == Lines{longest});
    write_file(folder / "longer", fmt::format("\n{}x{}", longest, end));
    CHECK_THAT(error_of([&] { read_lines(folder / "longer"); }), Contains("longer:2: the line is longer than 1 MiB"));
  }
  // 256 MiB in a quarter of one.
  write_file(folder / "bomb.gz", gzip(std::string(size_t{1} << 28, 'a')));
  REQUIRE(std::filesystem::file_size(folder / "bomb.gz") < size_t{1} << 19);
  LineReader reader(folder / "bomb.gz");
  std::string line;
  CHECK_THAT(error_of([&] { reader.next(line); }), Contains("bomb.gz:1: the line is longer than 1 MiB"));
  CHECK(line.capacity() <= 2 * most_line_bytes + (size_t{1} << 18));
}

TEST_CASE("a line that is not UTF-8 is told what it looks like") {
  using namespace std::string_literals;
  for (const auto& line : {"\xFF\xFEG\0o\0"s, "\xFE\xFF\0G\0o"s, "G\0r\0\xFC\0n\0"s}) {
    CHECK_THAT(not_utf8_remedy(line), Contains("iconv -f UTF-16 "));
  }
  CHECK_THAT(not_utf8_remedy("gr\xFCn"), Contains("iconv -f ISO-8859-1 "));
}

TEST_CASE("bytes that are no UTF-8 are named by file and line") {
  const TemporaryDirectory folder;
  for (const std::string broken :
       {"\xFF", "\x80", "\xC3", "a\xC3(", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xED\xA0\x80",
        "\xED\xBF\xBF", "\xE2\x82", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xF0\x9F\x98",
        "\xE2\x28\xA1", "\xE2\x82\x28"}) {
    const auto file = folder / "broken.txt";
    write_file(file, "fine\n\u00FC\u20AC\U0001F600\n" + broken + "\nfine\n");
    CHECK_THAT(error_of([&] { read_lines(file); }), Contains(file.string() + ":3:") && Contains("UTF-8"));
  }
}

TEST_CASE("files that cannot be read are named") {
  const TemporaryDirectory folder;
  CHECK_THAT(error_of([&] { read_lines(folder / "absent.txt"); }), Contains("absent.txt") && Contains("no such file"));
  CHECK_THAT(error_of([&] { read_lines(folder.path()); }), Contains(folder.path().string()) && Contains("folder"));
  std::string text;
  for (int i = 0; i < 5000; ++i) text += std::to_string(i * 7919) + "\n";
  const std::string packed = gzip(text);
  write_file(folder / "cut.gz", packed.substr(0, packed.size() / 2));
  CHECK_THAT(error_of([&] { read_lines(folder / "cut.gz"); }), Contains("cut.gz:") && Contains("too early"));
  std::string damaged = packed;
  damaged[damaged.size() - 6] ^= 1;  // in the checksum
  write_file(folder / "damaged.gz", damaged);
  CHECK_THAT(error_of([&] { read_lines(folder / "damaged.gz"); }), Contains("damaged.gz:") && Contains("damaged ("));
}

TEST_CASE("a file that cannot be opened since descriptors ran out is nobody's mistake") {
  const TemporaryDirectory folder;
  write_file(folder / "text", "a\n");
  const auto mistaken = [&] {
    try {
      read_lines(folder / "text");
    } catch (...) {
      return described_exception();
    }
    return Described{"nothing was thrown", true};
  };
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none = {0, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const auto described = mistaken();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(described.text == (folder / "text").string() + ": cannot be opened: Too many open files");
  CHECK_FALSE(described.mistake);
}

TEST_CASE("behind gzip data come others, or zeros, and nothing that would be lost") {
  const TemporaryDirectory folder;
  const std::string one = gzip("one\n"), two = gzip("two\n"), file = (folder / "text.gz").string();
  const auto lines_of = [&](const std::string& bytes) {
    write_file(file, bytes);
    return read_lines(file);
  };
  CHECK(lines_of(one + two) == Lines{"one", "two"});
  CHECK(lines_of(one + gzip("") + two) == Lines{"one", "two"});
  CHECK(lines_of(one + std::string(100000, '\0')) == Lines{"one"});
  for (const std::string& lost :
       {"two\n" + std::string(), std::string("\x1E") + two.substr(1), std::string(512, '\0') + two,
        std::string(512, '\0') + "two\n", std::string(70000, '\0') + "x"}) {
    CHECK_THAT(error_of([&] { lines_of(one + lost); }), Contains("text.gz:2: the gzip data are followed by bytes"));
  }
  CHECK_THAT(error_of([&] { lines_of(one + "\x1F"); }), Contains("text.gz:2: the gzip data end too early"));
  CHECK_THAT(error_of([&] { lines_of(one + "\x1Fother"); }), Contains("text.gz:2: the gzip data are damaged"));
  // What is before it is read.
  write_file(file, one + "two\n");
  LineReader reader(file);
  std::string line;
  REQUIRE(reader.next(line));
  CHECK(line == "one");
}

}  // namespace transformer::test
