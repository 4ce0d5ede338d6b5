#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace transformer {

/// A file that appears whole or not at all. It is written under a temporary name in the same folder; commit() makes it
/// durable and gives it its name, replacing an older file of that name. Without commit() the temporary file goes and an
/// older file stays as it was, whatever interrupts the writing.
///
/// A symbolic link is followed: the file that it points to is replaced, and the link stays. What is no plain file (a
/// device, a pipe), and a file that is open already (/dev/stdout), is written to, never replaced.
///
/// All members throw Failure naming the file and the reason: "cannot write runs/model.safetensors: No space left on
/// device".
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& file);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }

  /// Nothing may be written after this.
  void commit();

 private:
  void flush();
  void write_through(const char* data, size_t bytes);
  [[noreturn]] void fail(int error_number) const;

  std::filesystem::path file_, target_, temporary_;
  std::string buffer_;
  int descriptor_ = -1;
};

/// Throws Error where `output`, which `flag` names, is one of the files `inputs`: replacing it would lose what it held.
void check_output_file(const std::string& flag, const std::filesystem::path& output,
                       const std::vector<std::filesystem::path>& inputs);

/// Replaces the content of `file` with `text`, whole or not at all.
void write_atomically(const std::filesystem::path& file, std::string_view text);

}  // namespace transformer
