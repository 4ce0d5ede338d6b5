#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "transformer/base/error.h"

namespace transformer {

/// A file that is there, as far as can be seen, and could not be opened: it is somebody else's, descriptors or memory
/// ran out, its disk is not mounted. What it holds may be whole. read_file and Document::read (which throw it too where
/// reading fails), file_checksum and TensorReader throw it where the difference counts (read_kept); to others it is an
/// Error, and to programs what `is_mistake` says.
class Unreadable : public Error {
 public:
  /// `error_number` is what kept it from being read, as errno has it; the rest is as Error has it.
  Unreadable(int error_number, const std::string& where, const std::string& what, const std::string& remedy = "")
      : Error(where, what, remedy), error_number_(error_number) {}

  /// Whether it is whoever named the file who can mend that: it is not theirs to read, or none that can be opened. A
  /// disk that fails, or descriptors or memory that ran out, is a failure, and another day the same command may work.
  bool is_mistake() const;

 private:
  int error_number_;
};

/// Throws what kept `file` from being opened or read, as errno has it: Unreadable, or Error where nothing is at its
/// path. `what` is what could not be done: "cannot be read".
[[noreturn]] void throw_unread(const std::filesystem::path& file, const std::string& what, int error_number);

/// Calls `read`, which reads what is there to go on from, and throws Error where that is missing, damaged or of others.
/// What cannot be read at the moment (Unreadable) is none of these: throws Failure then, lest it be made again.
void read_kept(const std::function<void()>& read);

}  // namespace transformer
