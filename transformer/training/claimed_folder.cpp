#include "transformer/training/claimed_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "transformer/base/error.h"
#include "transformer/base/folder.h"

namespace transformer {

// While a descriptor leads to it no other folder gets its number. O_PATH: it may be written to and not read.
ClaimedFolder::ClaimedFolder(const std::filesystem::path& path)
    : path_(path), descriptor_(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0) throw_refused(path_, "cannot be opened", {errno, std::generic_category()});
}

ClaimedFolder::~ClaimedFolder() {
  ::close(descriptor_);
}

void ClaimedFolder::check() const {
  struct stat claimed = {}, there = {};
  const bool known = ::fstat(descriptor_, &claimed) == 0 && ::stat(path_.c_str(), &there) == 0;
  if (known && claimed.st_dev == there.st_dev && claimed.st_ino == there.st_ino) return;
  if (!known && errno != ENOENT && errno != ENOTDIR) {
    throw Failure(path_.string(), std::string("cannot be looked at: ") + std::strerror(errno));
  }
  throw Failure(path_.string(), "is not the folder any more that the run began in",
                "move that one back, and the same command goes on from its last checkpoint");
}

}  // namespace transformer
