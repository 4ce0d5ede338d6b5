#include "transformer/base/unreadable.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <string>
#include <vector>

#include "support.h"
#include "transformer/base/checksum.h"
#include "transformer/base/described.h"
#include "transformer/base/document.h"
#include "transformer/base/read_file.h"
#include "transformer/base/tensor_file.h"

namespace fs = std::filesystem;

namespace transformer::test {

namespace {

// Whether it throws Unreadable; other errors are none.
template <class Read>
bool unreadable(const Read& read) {
  try {
    read();
  } catch (const Unreadable&) {
    return true;
  } catch (const Error&) {
    return false;
  }
  FAIL("nothing was thrown");
  return false;
}

// Whether what it throws is called a mistake of whoever started the program.
template <class Read>
bool mistaken(const Read& read) {
  try {
    read();
  } catch (...) {
    return described_exception().mistake;
  }
  FAIL("nothing was thrown");
  return false;
}

// While it is not 0, fstat() fails with it.
std::atomic<int> failure_of_fstat = 0;

}  // namespace

}  // namespace transformer::test

// Stands in the C library's place.
extern "C" int fstat(int descriptor, struct stat* status) noexcept {
  const int error_number = transformer::test::failure_of_fstat;
  if (error_number == 0) return ::fstatat(descriptor, "", status, AT_EMPTY_PATH);
  errno = error_number;
  return -1;
}

namespace transformer::test {

TEST_CASE("a file that is there and cannot be read is told from one that is not there") {
  const TemporaryDirectory folder;
  const auto file = folder / "file";
  const auto all_say = [&](bool expected) {
    CHECK(unreadable([&] { transformer::read_file(file); }) == expected);
    CHECK(unreadable([&] { file_checksum(file); }) == expected);
    CHECK(unreadable([&] { TensorReader reader(file); }) == expected);
  };
  all_say(false);
  for (const char* target : {"file", "/not/mounted"}) {  // a circle, and a disk that is not there
    fs::create_symlink(target, file);
    all_say(true);
    fs::remove(file);
  }
  fs::create_directory(file);
  all_say(false);
  fs::remove(file);
  write_file(file, "text");
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none = {0, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const bool read = unreadable([&] { transformer::read_file(file); });
  const bool checked = unreadable([&] { file_checksum(file); });
  const bool opened = unreadable([&] { TensorReader reader(file); });
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK((read && checked && opened));
  // What can be opened and not read.
  fs::remove(file);
  fs::create_symlink("/proc/self/mem", file);
  CHECK(unreadable([&] { transformer::read_file(file); }));
}

TEST_CASE("who names a file that cannot be read is wrong, unless the machine lacks something or its disk fails") {
  const TemporaryDirectory folder;
  const auto file = folder / "file", circle = folder / "circle", failing = folder / "failing";
  write_file(file, "text: 1");
  fs::create_symlink("circle", circle);
  fs::create_symlink("/proc/self/mem", failing);  // nothing is at its first address
  const std::vector<std::function<void(const fs::path&)>> readers = {
      [](const fs::path& path) { transformer::read_file(path); }, [](const fs::path& path) { file_checksum(path); },
      [](const fs::path& path) { Document::read(path); }, [](const fs::path& path) { TensorReader reader(path); }};
  for (const auto& read : readers) {
    INFO(&read - readers.data());
    CHECK(mistaken([&] { read(circle); }));
    CHECK(mistaken([&] { read(folder / "absent"); }));
    rlimit before = {};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const rlimit none = {0, before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
    const bool wrong = mistaken([&] { read(file); });
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK_FALSE(wrong);
  }
  CHECK_FALSE(mistaken([&] { transformer::read_file(failing); }));
  CHECK_FALSE(mistaken([&] { Document::read(failing); }));
  CHECK(mistaken([] { throw Unreadable(EACCES, "file", "cannot be read"); }));
  for (const int damage : {EBADMSG, EUCLEAN, ESTALE, ENOMEM, ECONNABORTED}) {
    CHECK_FALSE(mistaken([&] { throw Unreadable(damage, "file", "cannot be read"); }));
  }
}

TEST_CASE("an open file that cannot be looked at is not of another kind") {
  const TemporaryDirectory folder;
  write_file(folder / "file", "text");
  failure_of_fstat = EIO;
  const bool opened = unreadable([&] { TensorReader reader(folder / "file"); });
  failure_of_fstat = 0;
  CHECK(opened);
}

TEST_CASE("what is kept and cannot be read is a failure, and what is missing or damaged an error") {
  const TemporaryDirectory folder;
  fs::create_symlink("circle", folder / "circle");
  CHECK_THROWS_AS(read_kept([&] { transformer::read_file(folder / "circle"); }), Failure);
  CHECK_THROWS_WITH(read_kept([&] { transformer::read_file(folder / "circle"); }),
                    Contains("circle: cannot be read: ") && EndsWith("; start again when it can be read"));
  CHECK_THROWS_AS(read_kept([&] { transformer::read_file(folder / "absent"); }), Error);
  CHECK_THROWS_AS(read_kept([&] { throw Error("file", "is damaged"); }), Error);
  CHECK_NOTHROW(read_kept([] {}));
}

TEST_CASE("what cannot be looked at is an error of its reader's, for the reason that it could not be opened") {
  const TemporaryDirectory folder;
  fs::create_symlink("circle", folder / "circle");
  for (const auto& file : {folder / "circle" / "file", folder / std::string(300, 'x')}) {
    CHECK(unreadable([&] { transformer::read_file(file); }));
    CHECK_THROWS_WITH(transformer::read_file(file), Contains(file.string() + ": cannot be read: "));
    CHECK_THROWS_WITH(TensorReader(file), Contains(file.string() + ": cannot be opened: "));
  }
  if (geteuid() != 0) return;  // others' folders are wanted
  constexpr uid_t nobody = 65534;
  REQUIRE(seteuid(nobody) == 0);
  std::string said;
  try {
    transformer::read_file(folder / "file");
  } catch (const Unreadable& error) {
    said = error.what();
  } catch (const std::exception&) {
  }
  REQUIRE(seteuid(0) == 0);
  CHECK(said == (folder / "file").string() + ": cannot be read: Permission denied");
}

}  // namespace transformer::test
