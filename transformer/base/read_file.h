#pragma once

#include <filesystem>
#include <string>

namespace transformer {

/// The bytes of a file. Throws Error when it is missing, a folder, or may not be read.
std::string read_file(const std::filesystem::path& file);

}  // namespace transformer
