#include "transformer/base/file_lock.h"

#include <cerrno>
#include <cstring>
#include <optional>

#include "error_of.h"
#include "support.h"

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

TEST_CASE("somebody works in a folder only where its lock is held, and nobody is kept out where there are no locks") {
  const auto check = [](int error_number) {
    return [=] { check_folder_lock("runs/a", error_number, "another run", "wait for it"); };
  };
  CHECK(error_of(check(EWOULDBLOCK)) == "runs/a: another run is working in this folder; wait for it");
  for (const int none : {0, ENOSYS, ENOLCK, EOPNOTSUPP, ENOTSUP}) CHECK_NOTHROW(check(none)());
  for (const int other : {EIO, EBADF, ENOMEM, ESTALE}) {
    CHECK_THROWS_AS(check(other)(), Failure);
    CHECK_THROWS_WITH(check(other)(), std::string("runs/a: cannot be locked: ") + std::strerror(other));
  }
}
