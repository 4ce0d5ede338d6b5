#include "transformer/base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "transformer/base/error.h"

namespace transformer {

namespace {

bool has_no_locks(int error_number, bool is_folder) {
  if (is_folder && error_number == EBADF) return true;  // NFS locks what is open for writing, which no folder is
  return error_number == ENOSYS || error_number == ENOLCK || error_number == EOPNOTSUPP;
}

}  // namespace

FileLock::FileLock(const std::filesystem::path& file, Wait wait)
    : descriptor_(::open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666)) {
  const bool is_folder = !is_open() && errno == EISDIR;
  if (is_folder) descriptor_ = ::open(file.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int status = descriptor_;
  if (is_open()) {
    const int operation = wait == Wait::yes ? LOCK_EX : LOCK_EX | LOCK_NB;
    while ((status = ::flock(descriptor_, operation)) != 0 && errno == EINTR) continue;
  }
  keeps_others_out_ = status >= 0;
  if (status < 0 && !(is_open() && has_no_locks(errno, is_folder))) error_number_ = errno;
}

FileLock::~FileLock() {
  if (is_open()) ::close(descriptor_);
}

FolderLock::FolderLock(const std::filesystem::path& folder, const std::string& other, const std::string& remedy)
    : lock_(folder / ".lock", FileLock::Wait::no) {
  if (!lock_.is_open()) {
    throw Failure(folder.string(), std::string("cannot be written to: ") + std::strerror(lock_.error_number()));
  }
  if (lock_.error_number() == EWOULDBLOCK) throw Error(folder.string(), other + " is working in this folder", remedy);
  if (lock_.error_number() != 0) {
    throw Failure(folder.string(), std::string("cannot be locked: ") + std::strerror(lock_.error_number()));
  }
}

}  // namespace transformer
