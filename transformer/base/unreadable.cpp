#include "transformer/base/unreadable.h"

#include <fmt/format.h>

#include <cstring>

#include "transformer/base/folder.h"

namespace transformer {

void throw_unread(const std::filesystem::path& file, const std::string& what, int error_number) {
  const auto text = fmt::format("{}: {}", what, std::strerror(error_number));
  if (!something_at(file)) throw Error(file.string(), text);
  throw Unreadable(file.string(), text);
}

}  // namespace transformer
