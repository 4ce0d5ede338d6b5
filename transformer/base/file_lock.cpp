#include "transformer/base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

namespace transformer {

FileLock::FileLock(const std::filesystem::path& file, Wait wait)
    : descriptor_(::open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666)) {
  int status = descriptor_;
  if (is_open()) {
    const int operation = wait == Wait::yes ? LOCK_EX : LOCK_EX | LOCK_NB;
    while ((status = ::flock(descriptor_, operation)) != 0 && errno == EINTR) continue;
  }
  error_number_ = status < 0 ? errno : 0;
}

FileLock::~FileLock() {
  if (is_open()) ::close(descriptor_);
}

}  // namespace transformer
