#pragma once

#include <filesystem>

namespace transformer {

/// The folder that a run has begun in. Somebody may move it, or take its disk away, while the run works: at its path is
/// nothing then, or a folder that is not the run's, and what was written there would be in the way of both.
class ClaimedFolder {
 public:
  /// Keeps hold of the folder that is at `path` now. Throws as throw_refused where there is none that can be opened.
  explicit ClaimedFolder(const std::filesystem::path& path);
  ~ClaimedFolder();
  ClaimedFolder(const ClaimedFolder&) = delete;
  ClaimedFolder& operator=(const ClaimedFolder&) = delete;

  /// Throws Failure where its path does not lead to it any more.
  void check() const;

 private:
  std::filesystem::path path_;
  int descriptor_;
};

}  // namespace transformer
