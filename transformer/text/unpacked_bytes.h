#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace transformer {

/// The bytes of a text file or a pipe, plain or unpacked from gzip, which their beginning tells.
///
/// Several files of gzip may follow each other, as programs leave them that append; behind the last one there may be
/// zeros, as a tape's blocks are filled up. Anything else there is an error: it would be text that is lost.
class UnpackedBytes {
 public:
  /// Throws Error where the file is missing, a folder, or may not be read.
  explicit UnpackedBytes(const std::filesystem::path& file);
  /// Of a descriptor that stays open, by the name that messages call it. Throws Error for a folder.
  UnpackedBytes(int descriptor, std::string name);
  ~UnpackedBytes();
  UnpackedBytes(UnpackedBytes&&) noexcept;
  UnpackedBytes& operator=(UnpackedBytes&&) noexcept;

  /// Appends what comes next, waiting for it; false at the end, behind which is nothing to ask for. What comes may be
  /// no byte yet.
  /// Throws Error for gzip data that are damaged, end too early or are followed by what is none, naming `line` of the
  /// text, counted from 1; Failure where reading fails.
  bool append_to(std::string& bytes, int64_t line);
  /// Whether something, or the end, can be had without waiting for whoever writes it.
  bool readable() const;

  /// For messages.
  const std::string& name() const;
  /// The same of a line, counted from 1, as in "in.txt:7".
  std::string where(int64_t line) const;
  /// How much was read, from 0 to 1, where the size is known: a regular file's.
  std::optional<double> share() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace transformer
