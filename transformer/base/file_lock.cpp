#include "transformer/base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "transformer/base/error.h"

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

FolderLock::FolderLock(const std::filesystem::path& folder, const std::string& other, const std::string& remedy)
    : lock_(folder / ".lock", FileLock::Wait::no) {
  if (!lock_.is_open()) {
    throw Failure(folder.string(), std::string("cannot be written to: ") + std::strerror(lock_.error_number()));
  }
  check_folder_lock(folder, lock_.error_number(), other, remedy);
}

void check_folder_lock(const std::filesystem::path& folder, int error_number, const std::string& other,
                       const std::string& remedy) {
  switch (error_number) {
    case 0:
    // A file system without locks, such as Lustre mounted without them, has no two processes told apart.
    case ENOSYS:
    case ENOLCK:
    case EOPNOTSUPP:
      return;
    case EWOULDBLOCK:
      throw Error(folder.string(), other + " is working in this folder", remedy);
    default:
      throw Failure(folder.string(), std::string("cannot be locked: ") + std::strerror(error_number));
  }
}

}  // namespace transformer
