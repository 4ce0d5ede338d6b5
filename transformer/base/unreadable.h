#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "transformer/base/error.h"

namespace transformer {

/// A file that is there, as far as can be seen, and could not be opened: it is somebody else's, descriptors or memory
/// ran out, its disk is not mounted. What it holds may be whole. read_file and Document::read (which throw it too where
/// reading fails), file_checksum and TensorReader throw it where the difference counts (read_kept); to others it is an
/// Error.
class Unreadable : public Error {
 public:
  using Error::Error;
};

/// Throws what kept `file` from being opened or read, as errno has it: Unreadable, or Error where nothing is at its
/// path. `what` is what could not be done: "cannot be read".
[[noreturn]] void throw_unread(const std::filesystem::path& file, const std::string& what, int error_number);

/// Calls `read`, which reads what is there to go on from, and throws Error where that is missing, damaged or of others.
/// What cannot be read at the moment (Unreadable) is none of these: throws Failure then, lest it be made again.
void read_kept(const std::function<void()>& read);

}  // namespace transformer
