#include "transformer/base/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "transformer/base/atomic_file.h"
#include "transformer/base/error.h"

namespace transformer {

namespace fs = std::filesystem;

bool something_at(const fs::path& path) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  throw Failure(path.string(), std::string("cannot be looked at: ") + std::strerror(errno));
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  if (!something_at(folder)) return entries;
  std::error_code error;
  const auto status = fs::status(folder, error);
  if (status.type() == fs::file_type::not_found) {
    throw Error(folder.string(), "is a link that leads nowhere", "mount the disk that it leads to, or remove it");
  }
  if (error) throw Failure(folder.string(), "cannot be looked at: " + error.message());
  if (!fs::is_directory(status)) throw Error(folder.string(), "is not a folder", "move it away");
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    entries.push_back(entry->path());
  }
  if (error) throw Failure(folder.string(), "cannot be read: " + error.message());
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::vector<fs::path> strange_entries(const fs::path& folder, const std::set<std::string>& known) {
  auto entries = entries_of(folder);
  std::erase_if(entries, [&](const fs::path& entry) {
    const auto name = entry.filename().string();
    std::error_code ignored;
    const bool holds_something = fs::is_directory(fs::symlink_status(entry, ignored)) && !fs::is_empty(entry, ignored);
    return (known.contains(name) || name.starts_with(temporary_prefix)) && !holds_something;
  });
  return entries;
}

bool remove_known(const fs::path& folder, const std::set<std::string>& known) {
  const auto kept = strange_entries(folder, known);
  std::error_code error;
  for (const auto& entry : entries_of(folder)) {
    if (!error && !std::binary_search(kept.begin(), kept.end(), entry)) fs::remove(entry, error);
  }
  if (!error && kept.empty()) fs::remove(folder, error);
  if (error) throw Failure(folder.string(), "cannot be removed: " + error.message());
  return kept.empty();
}

void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  const int status = ::fsync(descriptor), error_number = errno;
  ::close(descriptor);
  if (status == 0 || error_number == EINVAL || error_number == ENOTSUP) return;
  throw Failure("cannot write " + folder.string(), std::strerror(error_number));
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

bool is_within(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  const auto inner = fs::weakly_canonical(fs::absolute(path), error);
  if (error) throw Failure(path.string(), "cannot be looked at: " + error.message());
  const auto outer = fs::weakly_canonical(fs::absolute(folder), error);
  if (error) throw Failure(folder.string(), "cannot be looked at: " + error.message());
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

}  // namespace transformer
