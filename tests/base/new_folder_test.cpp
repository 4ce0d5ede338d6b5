#include "transformer/base/new_folder.h"

#include <optional>
#include <string>

#include "error_of.h"
#include "support.h"
#include "transformer/base/folder.h"

using namespace transformer;
using namespace transformer::test;

namespace {

void write_folder(const std::filesystem::path& path, const std::string& text) {
  NewFolder folder(path);
  write_file(folder.path() / "file", text);
  folder.commit();
}

}  // namespace

TEST_CASE("a new folder appears whole or not at all, in place of an older one") {
  TemporaryDirectory directory;
  const auto path = directory / "deep/model";
  { NewFolder given_up(path); }
  CHECK(entries_of(directory / "deep").empty());
  write_folder(path, "first");
  CHECK(read_file(path / "file") == "first");
  { NewFolder given_up(path); }
  CHECK(read_file(path / "file") == "first");
  write_folder(path, "second");
  CHECK(read_file(path / "file") == "second");
  CHECK(entries_of(directory / "deep").size() == 1);
  write_file(directory / "file", "");
  CHECK_THROWS_AS(NewFolder(directory / "file/model"), Failure);
}

TEST_CASE("what a killed process of the same number left beside a new folder is in nobody's way, and stays") {
  TemporaryDirectory directory;
  const auto path = directory / "model";
  write_folder(path, "older");
  const NewFolder left(path);
  write_file(left.path() / "file", "half");
  auto replaced = left.path().filename().string();
  REQUIRE(replaced.find("partial") != std::string::npos);
  replaced.replace(replaced.find("partial"), std::string("partial").size(), "replaced");
  std::filesystem::create_directory(directory / replaced);
  write_file(directory / replaced / "file", "oldest");

  write_folder(path, "newer");
  CHECK(read_file(path / "file") == "newer");
  CHECK(read_file(left.path() / "file") == "half");
  CHECK(read_file(directory / replaced / "file") == "oldest");
  CHECK(entries_of(directory.path()).size() == 3);
}

TEST_CASE("a folder has a name, however it was given") {
  const auto here = std::filesystem::current_path();
  CHECK(folder_path("a/b/") == "a/b");
  CHECK(folder_path("./a") == "a");
  CHECK(folder_path(".") == here);
  CHECK(folder_path("./") == here);
  CHECK(folder_path("a/..") == here);
  CHECK(folder_path("..") == here.parent_path());
  using Names = std::vector<std::string>;
  CHECK(folder_names({".", "runs/one/", "..", "two"}) ==
        Names{here.filename().string(), "one", here.parent_path().filename().string(), "two"});
  CHECK(folder_names({"runs/one", "others/one/"}) == Names{"runs/one", "others/one/"});
}

TEST_CASE("nobody's files are lost by replacing a folder") {
  TemporaryDirectory directory;
  const auto path = directory / "model";
  const auto refused = [&](bool force, const std::string& kind) {
    return error_of([&] { check_replaceable(path, force, kind, "mark", {"mark", "file"}); });
  };
  CHECK(refused(false, "packed model").empty());
  write_folder(path, "text");
  CHECK(refused(false, "packed model") ==
        path.string() + ": exists already; name another folder, or replace it with --force");
  CHECK(refused(true, "packed model") ==
        path.string() + ": is no packed model (mark is missing), so it is not replaced; name another folder");
  write_file(path / "mark", "");
  CHECK(refused(true, "packed model").empty());
  write_file(path / "notes", "");
  for (const std::string kind : {"packed model", "exported model"}) {
    CHECK(refused(true, kind) == (path / "notes").string() + ": does not belong to the " + kind +
                                     ", so the folder is not replaced; move it away, or name another folder");
  }
}
