#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "transformer/base/file_lock.h"
#include "transformer/base/process.h"

namespace transformer {

/// A folder that appears whole or not at all: what is written goes to another name beside it, which is deleted unless
/// it is given its own in the end. What a killed process left of a folder of the same name is deleted as well, where
/// nobody holds it any more, and folders that were made for it to lie in go again with it if they hold nothing else.
/// Where the name is a symbolic link, it is the folder that this leads to.
class NewFolder {
 public:
  /// Throws as throw_refused (folder.h) where the folder cannot be made.
  explicit NewFolder(const std::filesystem::path& path);
  /// Without commit() all that was written is deleted.
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  /// Where to write.
  const std::filesystem::path& path() const { return partial_; }

  /// Gives the folder its name, durably. One that has it goes where this `replaces` it, which check_replaceable has
  /// looked at; else it throws Error where anything but an empty folder has it. Throws Failure where it cannot be named
  /// so.
  void commit(bool replaces = true);

 private:
  std::string hidden_name() const;
  std::filesystem::path beside(const char* kind, int number) const;
  std::filesystem::path free_for_replaced() const;

  std::filesystem::path final_, partial_;
  std::optional<FileLock> lock_;  // of partial_
  bool committed_ = false;
};

/// While this lives, SIGINT, SIGTERM and SIGHUP delete this process's unfinished folders before they end it. Make it
/// before threads start.
class DeletesUnfinishedFolders {
 public:
  DeletesUnfinishedFolders();
  ~DeletesUnfinishedFolders();
  DeletesUnfinishedFolders(const DeletesUnfinishedFolders&) = delete;
  DeletesUnfinishedFolders& operator=(const DeletesUnfinishedFolders&) = delete;

 private:
  BlockedSignals signals_;
  std::jthread watch_;
};

/// The path of a folder that ends with its name: as it was given, without a slash behind it; absolute where that is no
/// name (".", "a/..").
std::filesystem::path folder_path(const std::filesystem::path& given);

/// What readers call the folders: their own names, or the paths as given where these are not different.
std::vector<std::string> folder_names(const std::vector<std::string>& given);

/// Folders of which a program replaces those that it wrote itself.
struct OwnFolders {
  std::string kind;             // what one is, as messages have it: "packed model"
  std::set<std::string> known;  // names of the files that may lie there
  /// Whether a folder is one, by something in it that nothing else writes.
  std::function<bool(const std::filesystem::path& folder)> is_one;
};

/// Throws Error unless `folder` can be written without loss of anybody's: it is not `read`, which it is made of, and
/// nothing is there, or `force` allows to replace it and it is one of `own` with nothing but files of the names known.
void check_replaceable(const std::filesystem::path& folder, const std::filesystem::path& read, bool force,
                       const OwnFolders& own);

}  // namespace transformer
