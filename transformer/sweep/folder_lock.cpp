#include "transformer/sweep/folder_lock.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "transformer/base/error.h"

namespace transformer {

FolderLock::FolderLock(const std::filesystem::path& file, Wait wait)
    : descriptor_(open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) throw Failure(file.string(), std::string("cannot be written: ") + strerror(errno));
  while (flock(descriptor_, wait == Wait::yes ? LOCK_EX : LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    close(descriptor_);
    throw Error(file.parent_path().string(), "another sweep is working in this folder",
                "wait for it, stop it, or choose another --output");
  }
}

FolderLock::~FolderLock() {
  close(descriptor_);
}

}  // namespace transformer
