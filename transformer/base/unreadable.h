#pragma once

#include <filesystem>
#include <string>

#include "transformer/base/error.h"

namespace transformer {

/// A file that is there, as far as can be seen, and could not be opened: it is somebody else's, descriptors or memory
/// ran out, its disk is not mounted. What it holds may be whole. read_file (which throws it too where reading fails),
/// file_checksum and TensorReader throw it where the difference counts; to others it is an Error.
class Unreadable : public Error {
 public:
  using Error::Error;
};

/// Throws what kept `file` from being opened or read, as errno has it: Unreadable, or Error where nothing is at its
/// path. `what` is what could not be done: "cannot be read".
[[noreturn]] void throw_unread(const std::filesystem::path& file, const std::string& what, int error_number);

}  // namespace transformer
