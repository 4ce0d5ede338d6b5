#include "transformer/base/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "transformer/base/atomic_file.h"
#include "transformer/base/checksum.h"
#include "transformer/base/error.h"

namespace transformer {

namespace fs = std::filesystem;

namespace {

/// Whether `path` was looked at, where `result` is what stat() or lstat() gave; not where nothing is there.
bool looked_at(const fs::path& path, int result) {
  if (result == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG) return false;
  throw_refused(path, "cannot be looked at", {errno, std::generic_category()});
}

}  // namespace

bool is_no_path(const std::error_code& error) {
  return error == std::errc::filename_too_long || error == std::errc::not_a_directory ||
         error == std::errc::too_many_symbolic_link_levels;
}

void throw_refused(const fs::path& path, const std::string& what, const std::error_code& error) {
  if (is_no_path(error)) throw Error(path.string(), what + ": " + error.message());
  throw Failure(path.string(), what + ": " + error.message());
}

bool something_at(const fs::path& path) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  throw_refused(path, "cannot be looked at", {errno, std::generic_category()});
}

fs::file_type kind_behind(const fs::path& path) {
  struct stat status = {};
  if (!looked_at(path, ::stat(path.c_str(), &status))) return fs::file_type::not_found;
  if (S_ISREG(status.st_mode)) return fs::file_type::regular;
  return S_ISDIR(status.st_mode) ? fs::file_type::directory : fs::file_type::unknown;
}

bool is_link(const fs::path& path) {
  struct stat status = {};
  return looked_at(path, ::lstat(path.c_str(), &status)) && S_ISLNK(status.st_mode);
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  if (!something_at(folder)) return entries;
  std::error_code error;
  const auto status = fs::status(folder, error);
  if (status.type() == fs::file_type::not_found) {
    throw Error(folder.string(), "is a link that leads nowhere", "mount the disk that it leads to, or remove it");
  }
  if (error) throw_refused(folder, "cannot be looked at", error);
  if (!fs::is_directory(status)) throw Error(folder.string(), "is not a folder", "move it away");
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    entries.push_back(entry->path());
  }
  if (error) throw_refused(folder, "cannot be read", error);
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

std::string name_beside(const fs::path& path, size_t more) {
  constexpr size_t longest_name = 255;
  auto name = path.filename().string();
  return name.size() + more > longest_name ? checksum_of(name) : name;
}

bool is_within(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  const auto inner = fs::weakly_canonical(fs::absolute(path), error);
  if (error) throw_refused(path, "cannot be looked at", error);
  const auto outer = fs::weakly_canonical(fs::absolute(folder), error);
  if (error) throw_refused(folder, "cannot be looked at", error);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

}  // namespace transformer
