#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace transformer {

/// A file's bytes as memory, read from the disk when they are touched and dropped by the system when memory is short:
/// they take no memory of the process's own. Who writes into the file changes them, and who cuts it short ends the
/// process (SIGBUS) where it touches what is gone; the file may be deleted, or another renamed to its name.
class MappedFile {
 public:
  /// Throws Failure when the file cannot be opened or mapped.
  explicit MappedFile(const std::filesystem::path& file);
  /// Ends the mapping; what as() gave must not be used any more.
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// The file's size when it was mapped.
  size_t bytes() const { return bytes_; }
  /// The bytes as numbers; those that fill no whole number are left out.
  template <class T>
  std::span<const T> as() const {
    return {static_cast<const T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace transformer
