#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace transformer {

/// Whether there is a file of this name, links followed. Throws as kind_behind (folder.h) where that cannot be found
/// out: what cannot be looked at may be there.
bool is_file(const std::filesystem::path& file);

/// The bytes of a file. Throws Error when it is missing, a folder, larger than `most_bytes`, or may not be read. The
/// bound is for files that others may have made: what is read whole is text of people or a small record.
std::string read_file(const std::filesystem::path& file, size_t most_bytes = size_t{64} << 20);

}  // namespace transformer
