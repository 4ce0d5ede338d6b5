#include "transformer/base/new_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include "transformer/base/error.h"
#include "transformer/base/folder.h"

namespace transformer {

namespace fs = std::filesystem;

NewFolder::NewFolder(const fs::path& path) : final_(path), partial_(beside("partial")), replaced_(beside("replaced")) {
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  // What a process of the same number left is not this one's to write into.
  if (!error && !fs::create_directory(partial_, error) && !error) error = std::make_error_code(std::errc::file_exists);
  if (error) throw Failure(path.string(), "cannot create the folder: " + error.message());
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
}

void NewFolder::commit() {
  std::error_code error, ignored;
  const bool replaces = something_at(final_);
  if (replaces) fs::rename(final_, replaced_, error);
  if (!error) {
    fs::rename(partial_, final_, error);
    if (error && replaces) fs::rename(replaced_, final_, ignored);
  }
  if (error) throw Failure(final_.string(), "cannot be given its name: " + error.message());
  if (replaces) fs::remove_all(replaced_, ignored);
}

fs::path NewFolder::beside(const char* kind) const {
  return final_.parent_path() / fmt::format(".{}.{}-{}", final_.filename().string(), kind, getpid());
}

fs::path folder_path(const fs::path& given) {
  auto path = given.lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  // Beside these no other name can lie; of the rest messages speak as they were given.
  return path.empty() || path == "." || path.filename() == ".." ? fs::absolute(path).lexically_normal() : path;
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
      throw Error(entry.string(), fmt::format("is no part of an {}, so the folder is not replaced", kind),
                  "move it away, or name another folder");
    }
  }
}

}  // namespace transformer
