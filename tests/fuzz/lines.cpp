// A text file, plain or gzip, read beside another.

#include "transformer/text/lines.h"

#include "fuzz/fuzz.h"
#include "transformer/base/error.h"
#include "transformer/base/unicode.h"
#include "transformer/text/parallel_lines.h"

using namespace transformer;

namespace {

const fuzz::Target target("lines", [](std::string_view input) {
  const auto file = fuzz::write_scratch("given.txt", input);
  static const auto other = fuzz::write_scratch("other.txt", "one\ntwo\nthree\n");
  try {
    count_pairs(file, other);
  } catch (const Error&) {
  }
  for (const auto& line : read_lines(file)) {
    fuzz::require(find_broken_utf8(line) == std::string_view::npos, "lines are UTF-8");
    fuzz::require(line.find('\n') == std::string::npos, "a line is one line");
  }
});

}  // namespace
