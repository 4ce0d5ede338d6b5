#include "transformer/base/read_file.h"

#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>

#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/unreadable.h"

namespace transformer {

bool is_file(const std::filesystem::path& file) {
  return kind_behind(file) == std::filesystem::file_type::regular;
}

std::string read_file(const std::filesystem::path& file, size_t most_bytes) {
  std::error_code ignored;  // what cannot be looked at cannot be read either
  if (std::filesystem::is_directory(file, ignored)) throw Error(file.string(), "is a folder, not a file");
  std::ifstream in(file, std::ios::binary);
  if (!in) throw_unread(file, "cannot be read", errno);
  std::string bytes;
  for (size_t size = 0; size <= most_bytes;) {
    constexpr size_t chunk = size_t{1} << 16;
    bytes.resize(size + chunk);
    in.read(bytes.data() + size, chunk);
    size += static_cast<size_t>(in.gcount());
    if (in.bad()) throw_unread(file, "cannot be read", errno);
    if (in.gcount() == 0 || in.eof()) {
      bytes.resize(size);
      if (size > most_bytes) break;
      return bytes;
    }
  }
  throw Error(file.string(), "is larger than the " + std::to_string(most_bytes) + " bytes that such a file may have");
}

}  // namespace transformer
