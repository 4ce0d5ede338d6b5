#pragma once

#include <filesystem>
#include <string>

namespace transformer {

/// A file that one process at a time holds, made where it is missing, or a folder. The system lets go of it when the
/// process ends, however it ends.
class FileLock {
 public:
  /// Whether to wait for another process that holds the file.
  enum class Wait {
    no,  // give up at once
    yes  // until that process lets go of it, however long that takes
  };

  /// Opens `file` and takes hold of it. Throws nothing: what follows says how it went.
  FileLock(const std::filesystem::path& file, Wait wait);
  /// Lets go of the file, which stays where it is.
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  /// Whether the file could be opened for writing, or the folder; where it could not, it is not held.
  bool is_open() const { return descriptor_ >= 0; }
  /// Why not, as errno says; 0: whoever asked may go on. EWOULDBLOCK: another process holds it, and this one did not
  /// wait.
  int error_number() const { return error_number_; }
  /// Whether other processes are kept out. They are not, although error_number() is 0, where the file system has no
  /// locks, as Lustre mounted without them.
  bool keeps_others_out() const { return keeps_others_out_; }

 private:
  int descriptor_ = -1, error_number_ = 0;
  bool keeps_others_out_ = false;
};

/// A folder in which one process at a time works: the file `.lock` in it is held.
class FolderLock {
 public:
  /// Throws Error saying that `other` ("another run") is working in the folder, with `remedy`, and Failure where the
  /// folder cannot be written to or locked.
  FolderLock(const std::filesystem::path& folder, const std::string& other, const std::string& remedy);

 private:
  FileLock lock_;
};

}  // namespace transformer
