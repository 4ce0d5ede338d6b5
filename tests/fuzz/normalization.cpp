// A text, normalised: once is enough, and what counts words may count either's.

#include "transformer/text/normalization.h"

#include "fuzz/fuzz.h"
#include "transformer/base/unicode.h"

using namespace transformer;

namespace {

const fuzz::Target target("normalization", [](std::string_view input) {
  const auto normal = normalized(input);
  fuzz::require(find_broken_utf8(normal) == std::string_view::npos, "normal text is UTF-8");
  fuzz::require(normalized(normal) == normal, "normal text stays as it is");
  if (is_plainly_normal(input)) fuzz::require(normal == input, "plainly normal text is normal");
  const auto words = split_words(input), normal_words = split_words(normal);
  fuzz::require(words.size() == normal_words.size(), "as many words as before");
  for (size_t i = 0; i < words.size(); ++i) {
    fuzz::require(normalized(words[i]) == normal_words[i], "each word is normalised by itself");
  }
});

}  // namespace
