#include "transformer/base/file_lock.h"

#include <cerrno>
#include <cstring>
#include <optional>

#include "error_of.h"
#include "support.h"
#include "without_locks.h"

using namespace transformer;
using namespace transformer::test;

TEST_CASE("one at a time works in a folder, and others are told so") {
  TemporaryDirectory folder;
  std::optional<FolderLock> first(std::in_place, folder.path(), "another run", "wait for it");
  const auto refused = [&] { return error_of([&] { FolderLock(folder.path(), "another sweep", "wait for it"); }); };
  CHECK(refused() == folder.path().string() + ": another sweep is working in this folder; wait for it");
  CHECK(refused() == folder.path().string() + ": another sweep is working in this folder; wait for it");
  first.reset();
  CHECK(refused().empty());
}

TEST_CASE("a folder that cannot be written to is named, and nobody is said to be working there") {
  TemporaryDirectory folder;
  for (const auto& place : {folder / "none", std::filesystem::path("/proc/self")}) {
    CHECK_THROWS_AS(FolderLock(place, "another run", "wait for it"), Failure);
    CHECK_THROWS_WITH(FolderLock(place, "another run", "wait for it"),
                      Contains(place.string() + ": cannot be written to"));
  }
}

TEST_CASE("where there are no locks nobody is kept out, and other errors are told") {
  TemporaryDirectory folder;
  const auto lock = [&] { FolderLock(folder.path(), "another run", "wait for it"); };
  const FileLock held(folder / ".lock", FileLock::Wait::no);
  CHECK(held.keeps_others_out());
  CHECK(error_of(lock) == folder.path().string() + ": another run is working in this folder; wait for it");
  for (const int none : {ENOSYS, ENOLCK, EOPNOTSUPP, ENOTSUP}) {
    const WithoutLocks without(none);
    CHECK_NOTHROW(lock());
    for (const auto wait : {FileLock::Wait::no, FileLock::Wait::yes}) {
      const FileLock second(folder / ".lock", wait);
      CHECK(second.error_number() == 0);
      CHECK(!second.keeps_others_out());
    }
  }
  for (const int other : {EIO, EBADF, ENOMEM, ESTALE}) {
    const WithoutLocks without(other);
    CHECK_THROWS_AS(lock(), Failure);
    CHECK_THROWS_WITH(lock(), folder.path().string() + ": cannot be locked: " + std::strerror(other));
    CHECK(!FileLock(folder / ".lock", FileLock::Wait::no).keeps_others_out());
  }
}

TEST_CASE("a folder is held like a file, where folders can be") {
  TemporaryDirectory folder;
  {
    const FileLock held(folder.path(), FileLock::Wait::no);
    CHECK(held.keeps_others_out());
    const FileLock second(folder.path(), FileLock::Wait::no);
    CHECK(second.error_number() == EWOULDBLOCK);
    CHECK_NOTHROW(FolderLock(folder.path(), "another run", "wait for it"));  // another file
  }
  const FileLock again(folder.path(), FileLock::Wait::no);
  CHECK(again.keeps_others_out());
  const WithoutLocks without(EBADF);  // NFS
  const FileLock unlocked(folder.path(), FileLock::Wait::no);
  CHECK(unlocked.error_number() == 0);
  CHECK(!unlocked.keeps_others_out());
}
