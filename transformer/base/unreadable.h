#pragma once

#include <filesystem>
#include <string>

#include "transformer/base/error.h"

namespace transformer {

/// A file that is there and could not be opened or read: it is somebody else's, descriptors or memory ran out, its disk
/// failed or is not mounted. What it holds may be whole. read_file, file_checksum and TensorReader throw it where the
/// difference counts; to others it is an Error.
class Unreadable : public Error {
 public:
  using Error::Error;
};

/// Throws what kept `file` from being opened or read, as errno has it: Unreadable, or Error where nothing is at its
/// path. `what` is what could not be done: "cannot be read".
[[noreturn]] void throw_unread(const std::filesystem::path& file, const std::string& what, int error_number);

}  // namespace transformer
