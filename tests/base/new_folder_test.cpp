#include "transformer/base/new_folder.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

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

/// Waits until `reached`, for so long that nothing but a mistake makes it longer.
template <class Reached>
bool in_time(const Reached& reached) {
  using namespace std::chrono_literals;
  for (int tries = 0; tries < 2000; ++tries) {
    if (reached()) return true;
    std::this_thread::sleep_for(5ms);
  }
  return false;
}

}  // namespace

TEST_CASE("a new folder appears whole or not at all, in place of an older one") {
  TemporaryDirectory directory;
  const auto path = directory / "deep/model";
  { NewFolder given_up(directory / "very/deep/model"); }
  CHECK_FALSE(something_at(directory / "very"));
  {
    NewFolder given_up(directory / "very/deep/model");
    write_file(directory / "very/mine", "");
  }
  CHECK(entries_of(directory / "very").size() == 1);
  std::filesystem::remove_all(directory / "very");
  write_folder(path, "first");
  CHECK(read_file(path / "file") == "first");
  { NewFolder given_up(path); }
  CHECK(read_file(path / "file") == "first");
  write_folder(path, "second");
  CHECK(read_file(path / "file") == "second");
  CHECK(entries_of(directory / "deep").size() == 1);
  write_file(directory / "file", "");
  CHECK_THROWS_AS(NewFolder(directory / "file/model"), Error);
}

TEST_CASE("a new folder that has its name is nobody else's concern, however long its writer lives") {
  TemporaryDirectory directory;
  const auto path = directory / "model";
  const auto written = [&] { return read_file(path / "file"); };
  const auto write_and_commit = [](NewFolder& folder, const char* text) {
    write_file(folder.path() / "file", text);
    folder.commit();
  };
  SECTION("two in one scope") {
    NewFolder first(path);
    write_and_commit(first, "first");
    NewFolder second(path);
    write_and_commit(second, "second");
    CHECK(written() == "second");
  }
  SECTION("the first goes while the second is written") {
    auto first = std::make_unique<NewFolder>(path);
    write_and_commit(*first, "first");
    NewFolder second(path);
    first.reset();
    write_and_commit(second, "second");
    CHECK(written() == "second");
  }
  SECTION("threads that take turns at one name") {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&] {
        for (int round = 0; round < 50; ++round) write_folder(path, "whole");
      });
    }
    for (auto& thread : threads) thread.join();
    CHECK(written() == "whole");
  }
  CHECK(entries_of(directory.path()).size() == 1);
}

TEST_CASE("a new folder may be a name alone") {
  TemporaryDirectory directory;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(directory.path());
  const auto refused = error_of([] {
    write_folder("model", "first");
    write_folder("./model", "second");
    write_folder("../" + std::filesystem::current_path().filename().string() + "/other/../deep/model", "third");
  });
  std::filesystem::current_path(before);
  CHECK(refused == "");
  CHECK(read_file(directory / "model/file") == "second");
  CHECK(read_file(directory / "deep/model/file") == "third");
}

TEST_CASE("a new folder may have the longest of names") {
  TemporaryDirectory directory;
  const auto path = directory / std::string(255, 'n');
  write_folder(path, "first");
  write_folder(path, "second");
  CHECK(read_file(path / "file") == "second");
  CHECK(entries_of(directory.path()).size() == 1);
}

TEST_CASE("a new folder that is to replace none replaces none, whoever made one meanwhile") {
  TemporaryDirectory directory;
  const auto path = directory / "model";
  NewFolder folder(path);
  write_file(folder.path() / "file", "ours");
  std::filesystem::create_directory(path);
  write_file(path / "file", "theirs");
  CHECK_THROWS_AS(folder.commit(/*replaces=*/false), Error);
  CHECK(read_file(path / "file") == "theirs");
  std::filesystem::remove_all(path);
  write_file(path, "theirs");
  CHECK_THROWS_AS(folder.commit(/*replaces=*/false), Error);
  CHECK(read_file(path) == "theirs");
  std::filesystem::remove(path);
  folder.commit(/*replaces=*/false);
  CHECK(read_file(path / "file") == "ours");
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

TEST_CASE("in a container, where all processes have the same number, what killed ones left goes") {
  TemporaryDirectory directory;
  const auto path = directory / "model";
  const auto left = directory / fmt::format(".model.partial-{}-7", ::getpid());
  std::filesystem::create_directory(left);
  write_file(left / "file", "half");
  const NewFolder mine(path);
  CHECK_FALSE(something_at(left));
  std::filesystem::create_directory(left);
  const FileLock held(left, FileLock::Wait::no);
  REQUIRE(held.keeps_others_out());
  write_folder(path, "whole");
  CHECK(something_at(left));
  CHECK(something_at(mine.path()));
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

TEST_CASE("a folder that a killed process left goes once nobody holds it") {
  TemporaryDirectory directory;
  const auto path = directory / "model";
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const NewFolder left(path);
    // Its own process outlives it, and has hold of the folder as well.
    const pid_t holder = ::fork();
    if (holder == 0) {
      ::alarm(60);
      ::pause();
    }
    ::_exit(::write(ends[1], &holder, sizeof holder) == sizeof holder ? 0 : 1);
  }
  pid_t holder = 0;
  REQUIRE(::read(ends[0], &holder, sizeof holder) == sizeof holder);
  ::close(ends[0]);
  ::close(ends[1]);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  const auto left = directory / fmt::format(".model.partial-{}-0", child);
  REQUIRE(something_at(left));
  write_file(left / "file", "half");
  for (const char* name : {".model.partial-mine", ".model.partial-999999999-0x", ".other.partial-999999999-0"}) {
    std::filesystem::create_directory(directory / name);
  }

  { NewFolder another(path); }
  CHECK(something_at(left));
  ::kill(holder, SIGKILL);
  // It is no child of this process: nothing else tells when it has ended.
  CHECK(in_time([&] {
    NewFolder another(path);
    return !something_at(left);
  }));
  CHECK(entries_of(directory.path()).size() == 3);
}

TEST_CASE("signals end a process that writes a folder, and the folder goes") {
  TemporaryDirectory directory;
  const auto path = directory / "deep/model";
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::signal(signal, SIG_DFL);
      const DeletesUnfinishedFolders deletes;
      const NewFolder folder(path);
      for (int file = 0;; ++file) write_file(folder.path() / std::to_string(file % 100), "text");
    }
    const auto partial = directory / fmt::format("deep/.model.partial-{}-0/10", child);
    CHECK(in_time([&] { return something_at(partial); }));
    ::kill(child, signal);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == signal);
    CHECK_FALSE(something_at(directory / "deep"));
  }
}

TEST_CASE("nobody's files are lost by replacing a folder") {
  TemporaryDirectory directory;
  const auto path = directory / "model";
  const auto refused = [&](bool force, const std::filesystem::path& read = "/") {
    return error_of([&] {
      check_replaceable(path, read, force, {"packed model", {"mark", "file"}, [](const auto& folder) {
                                              return something_at(folder / "mark") &&
                                                     read_file(folder / "mark") == "ours";
                                            }});
    });
  };
  CHECK(refused(false).empty());
  write_folder(path, "text");
  CHECK(refused(false) == path.string() + ": exists already; name another folder, or replace it with --force");
  const auto not_ours = path.string() +
                        ": is no packed model that this program has written, so it is not replaced; name another "
                        "folder, or delete it by hand where nobody needs it";
  CHECK(refused(true) == not_ours);
  write_file(path / "mark", "theirs");
  CHECK(refused(true) == not_ours);
  write_file(path / "mark", "ours");
  CHECK(refused(true).empty());
  std::filesystem::create_symlink("model", directory / "link");
  for (const auto& read : {path, directory / "model/../model/", directory / "link"}) {
    CHECK(refused(true, read) ==
          path.string() + ": is the folder that is read, so it is not replaced; name another folder");
  }
  write_file(path / "notes", "");
  CHECK(refused(true) == (path / "notes").string() +
                             ": does not belong to the packed model, so the folder is not replaced; move it away, or "
                             "name another folder");
}
