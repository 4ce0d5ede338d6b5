#include "transformer/base/folder.h"

#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>

#include "catch.h"
#include "error_of.h"
#include "support.h"
#include "transformer/base/error.h"

using namespace transformer;
using transformer::test::error_of;
using transformer::test::TemporaryDirectory;
using transformer::test::write_file;

TEST_CASE("what cannot be looked at is not what is missing") {
  TemporaryDirectory directory;
  write_file(directory / "file", "");
  std::filesystem::create_symlink("nowhere", directory / "dangling");
  std::filesystem::create_symlink("loop", directory / "loop");
  CHECK(something_at(directory / "file"));
  CHECK(something_at(directory / "dangling"));
  CHECK(something_at(directory / "loop"));
  CHECK_FALSE(something_at(directory / "none"));
  CHECK_FALSE(something_at(directory / "none/none"));
  CHECK_FALSE(something_at(directory / "file/none"));
  CHECK_THROWS_AS(something_at(directory / "loop/none"), Error);
  CHECK_THROWS_AS(something_at(directory / std::string(300, 'n')), Error);

  CHECK(entries_of(directory / "none").empty());
  CHECK(entries_of(directory.path()).size() == 3);
  CHECK(entries_of(directory.path()).front().filename() == "dangling");
  CHECK_THAT(error_of([&] { entries_of(directory / "dangling"); }), Contains("leads nowhere"));
  CHECK_THAT(error_of([&] { entries_of(directory / "file"); }), Contains("not a folder"));
  CHECK_THROWS_AS(entries_of(directory / "loop"), Error);
}

TEST_CASE("a path that there cannot be is a mistake, and what a file system refuses is none") {
  for (const auto code : {ENAMETOOLONG, ENOTDIR, ELOOP}) CHECK(is_no_path({code, std::generic_category()}));
  for (const auto code : {0, ENOENT, EACCES, EIO, ENOSPC, ESTALE, EROFS}) {
    CHECK_FALSE(is_no_path({code, std::generic_category()}));
  }
  CHECK_THROWS_AS(throw_refused("a", "cannot be read", {ELOOP, std::generic_category()}), Error);
  CHECK_THROWS_AS(throw_refused("a", "cannot be read", {EIO, std::generic_category()}), Failure);
}

TEST_CASE("what lies in a folder is found through links") {
  TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "run/checkpoints");
  std::filesystem::create_symlink("run", directory / "link");
  CHECK(is_within(directory / "run/checkpoints/step", directory / "run"));
  CHECK(is_within(directory / "link/checkpoints", directory / "run/checkpoints"));
  CHECK(is_within(directory / "run/../run", directory / "link"));
  CHECK_FALSE(is_within(directory / "running", directory / "run"));
  CHECK_FALSE(is_within(directory.path(), directory / "run"));
}

TEST_CASE("a folder is made durable where that can be done") {
  TemporaryDirectory directory;
  CHECK_NOTHROW(sync_folder(directory.path()));
  CHECK_NOTHROW(sync_folder(directory / "none"));
  CHECK_NOTHROW(sync_folder("/proc"));  // says EINVAL
}
