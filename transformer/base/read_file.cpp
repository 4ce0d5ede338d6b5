#include "transformer/base/read_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "transformer/base/error.h"

namespace transformer {

std::string read_file(const std::filesystem::path& file) {
  if (std::filesystem::is_directory(file)) throw Error(file.string(), "is a folder, not a file");
  std::ifstream in(file, std::ios::binary);
  if (!in) throw Error(file.string(), std::string("cannot be read: ") + std::strerror(errno));
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace transformer
