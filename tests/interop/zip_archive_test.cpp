#include "transformer/interop/zip_archive.h"

#include <fmt/format.h>
#include <zlib.h>

#include <string>

#include "catch.h"
#include "error_of.h"
#include "interop/archive.h"

using namespace transformer;
using namespace transformer::test;

namespace {

const Refusal refuse{"a.zip", "expected an archive"};

std::string zip_refusal(const std::string& archive) {
  return error_of([&] { zip_entries(archive, refuse); });
}

}  // namespace

TEST_CASE("a zip archive's sizes and places are checked before they are used") {
  const auto archive = [](ArchivedFile entry) {
    entry.name = "data";
    entry.content = "N.";
    return zip_of({entry});
  };
  CHECK(zip_refusal(archive({})).empty());
  CHECK_THAT(zip_refusal(archive({.offset = 5000})), Contains("beyond its end"));
  CHECK_THAT(zip_refusal(archive({.offset = 3})), Contains("damaged"));
  CHECK_THAT(zip_refusal(archive({.size = 5000, .packed = 5000})), Contains("too early"));
  CHECK_THAT(zip_refusal(archive({.packed = 1})), Contains("cannot have the size"));
  CHECK_THAT(zip_refusal(archive({.method = 9})), Contains("otherwise than by deflate"));
  CHECK_THAT(zip_refusal(archive({.flags = 1})), Contains("encrypted"));
  CHECK_THAT(zip_refusal(zip_of({{.name = "a"}}, {.count = 2})), Contains("damaged"));
  CHECK_THAT(zip_refusal(zip_of({{.name = "a"}}, {.directory = 0xfffffff0})), Contains("beyond its end"));
  CHECK_THAT(zip_refusal(zip_of({{.name = "a"}, {.name = "a"}})), Contains("twice"));
  CHECK(zip_entries(zip_of({{.name = "a"}}, {.count = 0}), refuse).empty());
  CHECK_THAT(zip_refusal(""), Contains("no end"));

  // Two bytes deflated may be 2 * 1032 + 1031 and no more, by what deflate can do.
  CHECK(zip_refusal(archive({.size = 3095, .packed = 2, .method = 8})).empty());
  CHECK_THAT(zip_refusal(archive({.size = 3096, .packed = 2, .method = 8})), Contains("cannot have the size"));
}

TEST_CASE("a zip archive's end lies before a comment of any length") {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{65535}}) {
    const auto archive = zip_of({{.name = "a", .content = "text"}}, {.comment = std::string(bytes, '#')});
    CHECK(zip_entries(archive, refuse).at("a").packed == "text");
  }
  CHECK_THAT(zip_refusal(zip_of({{.name = "a"}}, {.comment = std::string(65536, '#')})), Contains("no end"));
}

TEST_CASE("what lies beside a zip archive's files is passed over, and zip64's sizes are read from there") {
  using namespace std::string_literals;
  const auto nothing = "\x09\x99\x00\x00"s;  // a kind, and no bytes
  const auto sizes = "\x01\x00\x08\x00\x04\x00\x00\x00\x00\x00\x00\x00"s;
  const auto found = [](const std::string& extra, uint64_t size) {
    const auto archive = zip_of({{.name = "a", .content = "text", .size = size, .extra = extra}});
    return zip_entries(archive, refuse).at("a").size;
  };
  CHECK(found("", 4) == 4);
  CHECK(found(nothing, 4) == 4);
  CHECK(found(nothing + "\x01"s, 4) == 4);
  CHECK(found(sizes, 0xffffffff) == 4);
  CHECK(found(nothing + sizes, 0xffffffff) == 4);
  // It ends with the field, whose bytes are no more than are left.
  CHECK_THAT(zip_refusal(zip_of({{.name = "a", .extra = "\x09\x99\x01\x00"s}})), Contains("too early"));
  CHECK_THAT(zip_refusal(zip_of({{.name = "a", .size = 0xffffffff, .extra = "\x01\x00\x00\x00"s}})),
             Contains("too early"));
}

TEST_CASE("files are unpacked as far as they are asked for, and their checksums compared") {
  const std::string text(100000, 'x');
  const auto archive = zip_of({deflated_file("a", text), {.name = "b", .content = "text"}});
  const auto entries = zip_entries(archive, refuse);
  CHECK(unzipped(entries.at("a"), "a", refuse) == text);
  CHECK(unzipped_begin(entries.at("a"), "a", 10, refuse) == text.substr(0, 10));
  CHECK(unzipped(entries.at("b"), "b", refuse) == "text");
  CHECK(unzipped_begin(entries.at("b"), "b", 2, refuse) == "te");

  auto damaged = archive;
  damaged[damaged.find("text")] = 'T';
  CHECK_THAT(error_of([&] { unzipped(zip_entries(damaged, refuse).at("b"), "b", refuse); }), Contains("checksum"));
  auto longer = deflated_file("a", text);
  longer.size = text.size() + 1;
  const auto promised = zip_of({longer});
  CHECK_THAT(error_of([&] { unzipped(zip_entries(promised, refuse).at("a"), "a", refuse); }), Contains("is damaged"));
}
