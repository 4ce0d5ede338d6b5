#include "transformer/base/unreadable.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace transformer {

bool Unreadable::is_mistake() const {
  switch (error_number_) {
    case 0:  // not told
    case EACCES:
    case EPERM:
    case ENOENT:  // a link that leads nowhere
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENXIO:  // a socket
    case EINVAL:
      return true;
    default:
      return false;
  }
}

void throw_unread(const std::filesystem::path& file, const std::string& what, int error_number) {
  const auto text = fmt::format("{}: {}", what, std::strerror(error_number));
  // What cannot be looked at either may be there.
  struct stat status = {};
  const bool missing = ::lstat(file.c_str(), &status) != 0 && (errno == ENOENT || errno == ENOTDIR);
  if (missing) throw Error(file.string(), text);
  throw Unreadable(error_number, file.string(), text);
}

void read_kept(const std::function<void()>& read) {
  try {
    read();
  } catch (const Unreadable& unreadable) {
    throw Failure("", unreadable.what(), "start again when it can be read");
  }
}

}  // namespace transformer
