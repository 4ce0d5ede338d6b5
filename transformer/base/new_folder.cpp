#include "transformer/base/new_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "transformer/base/error.h"
#include "transformer/base/folder.h"

namespace transformer {

namespace fs = std::filesystem;

NewFolder::NewFolder(const fs::path& path) : final_(path) {
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  // What a process of the same number left is not this one's to write into; in a container, all have the same.
  for (int number = 0; !error; ++number) {
    partial_ = beside("partial", number);
    if (::mkdir(partial_.c_str(), 0777) == 0) return;
    if (errno != EEXIST) error.assign(errno, std::generic_category());
  }
  throw Failure(path.string(), "cannot create the folder: " + error.message());
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
}

void NewFolder::commit() {
  std::error_code error, ignored;
  const bool replaces = something_at(final_);
  const auto replaced = replaces ? free_for_replaced() : fs::path();
  if (replaces) fs::rename(final_, replaced, error);
  if (!error) {
    fs::rename(partial_, final_, error);
    if (error && replaces) fs::rename(replaced, final_, ignored);
  }
  if (error) throw Failure(final_.string(), "cannot be given its name: " + error.message());
  if (replaces) fs::remove_all(replaced, ignored);
}

fs::path NewFolder::beside(const char* kind, int number) const {
  return final_.parent_path() / fmt::format(".{}.{}-{}-{}", final_.filename().string(), kind, ::getpid(), number);
}

/// Where a process was killed within commit(), this name may hold the only copy of somebody's folder: it stays.
fs::path NewFolder::free_for_replaced() const {
  int number = 0;
  while (something_at(beside("replaced", number))) ++number;
  return beside("replaced", number);
}

fs::path folder_path(const fs::path& given) {
  const auto normal = [](const fs::path& path) {
    const auto whole = path.lexically_normal();
    return whole.has_filename() ? whole : whole.parent_path();
  };
  const auto path = normal(given);
  // Beside these no other name can lie; of the rest messages speak as they were given.
  return path.empty() || path == "." || path.filename() == ".." ? normal(fs::absolute(path)) : path;
}

std::vector<std::string> folder_names(const std::vector<std::string>& given) {
  std::vector<std::string> names;
  for (const auto& folder : given) names.push_back(folder_path(folder).filename().string());
  auto sorted = names;
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end() ? names : given;
}

void check_replaceable(const fs::path& folder, bool force, const std::string& kind, const std::string& mark,
                       const std::set<std::string>& known) {
  std::error_code ignored;
  if (!something_at(folder)) return;
  if (!force) throw Error(folder.string(), "exists already", "name another folder, or replace it with --force");
  if (!fs::is_directory(folder, ignored) || !fs::is_regular_file(folder / mark, ignored)) {
    throw Error(folder.string(), fmt::format("is no {} ({} is missing), so it is not replaced", kind, mark),
                "name another folder");
  }
  for (const auto& entry : entries_of(folder)) {
    if (!known.contains(entry.filename().string()) || !fs::is_regular_file(entry, ignored)) {
      throw Error(entry.string(), fmt::format("does not belong to the {}, so the folder is not replaced", kind),
                  "move it away, or name another folder");
    }
  }
}

}  // namespace transformer
