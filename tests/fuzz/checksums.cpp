// A list of checksums and the files a and b that it may name.

#include <array>

#include "fuzz/fuzz.h"
#include "transformer/base/checksum.h"
#include "transformer/base/error.h"

using namespace transformer;

namespace {

const fuzz::Target target("checksums", [](std::string_view input) {
  auto files = fuzz::files_of(input);
  const auto list = files[""];
  files.erase("");
  files[checksums_name] = list;
  const auto folder = fuzz::write_folder("checksums", files);
  for (const auto& names : {std::vector<std::string>{}, {"a"}, {"a", "b"}}) {
    try {
      verify_checksums(folder, names);
      for (const auto& name : names) {
        fuzz::require(list.find(file_checksum(folder / name)) != std::string_view::npos,
                      "what is verified has its checksum in the list");
      }
    } catch (const Error&) {
    }
  }
});

}  // namespace
