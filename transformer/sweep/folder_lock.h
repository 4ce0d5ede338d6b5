#pragma once

#include <filesystem>

namespace transformer {

/// Held by one process at a time; the system frees it when that ends, however it ends.
class FolderLock {
 public:
  enum class Wait { no, yes };

  /// Takes the lock `file`, made where it is missing. Throws Error where another process holds it and this one does not
  /// wait, Failure when it cannot be written.
  FolderLock(const std::filesystem::path& file, Wait wait);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace transformer
