#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace transformer {

/// A folder that appears whole or not at all: what is written goes to another name beside it, which is deleted unless
/// it is given its own in the end.
class NewFolder {
 public:
  /// Throws Failure where the folder cannot be made.
  explicit NewFolder(const std::filesystem::path& path);
  /// Without commit() all that was written is deleted.
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  /// Where to write.
  const std::filesystem::path& path() const { return partial_; }

  /// Gives the folder its name; one that has it goes, which check_replaceable has looked at. Throws Failure.
  void commit();

 private:
  std::filesystem::path beside(const char* kind, int number) const;
  std::filesystem::path free_for_replaced() const;

  std::filesystem::path final_, partial_;
};

/// The path of a folder that ends with its name: as it was given, without a slash behind it; absolute where that is no
/// name (".", "a/..").
std::filesystem::path folder_path(const std::filesystem::path& given);

/// What readers call the folders: their own names, or the paths as given where these are not different.
std::vector<std::string> folder_names(const std::vector<std::string>& given);

/// Throws Error unless `folder` can be written without loss of anybody's: nothing is there, or `force` allows to
/// replace it and it is one of its `kind` ("exported model"), with a file `mark` and nothing but files of the names
/// `known`.
void check_replaceable(const std::filesystem::path& folder, bool force, const std::string& kind,
                       const std::string& mark, const std::set<std::string>& known);

}  // namespace transformer
