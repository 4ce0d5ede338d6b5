#include "transformer/base/file_lock.h"

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
