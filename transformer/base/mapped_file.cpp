#include "transformer/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "transformer/base/error.h"

namespace transformer {

MappedFile::MappedFile(const std::filesystem::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status = {};
  int error_number = 0;
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0) {
    error_number = errno;
  } else if (!S_ISREG(status.st_mode)) {
    error_number = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
  } else if (status.st_size > 0) {  // nothing can be mapped of an empty file
    bytes_ = static_cast<size_t>(status.st_size);
    data_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, descriptor, 0);
    if (data_ == MAP_FAILED) error_number = errno;
  }
  if (descriptor >= 0) ::close(descriptor);
  if (error_number) throw Failure("cannot read " + file.string(), std::strerror(error_number));
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(data_, bytes_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

}  // namespace transformer
