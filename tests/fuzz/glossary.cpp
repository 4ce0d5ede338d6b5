// A glossary: what it finds, in texts of its own terms.

#include "transformer/text/glossary.h"

#include <algorithm>

#include "fuzz/fuzz.h"
#include "transformer/base/unicode.h"
#include "transformer/text/normalization.h"

using namespace transformer;

namespace {

const fuzz::Target target("glossary", [](std::string_view input) {
  const auto glossary = Glossary::read(fuzz::write_scratch("terms.tsv", input));
  const auto& terms = glossary.terms();
  fuzz::require(!terms.empty(), "a glossary has terms");
  std::string all;
  for (const auto& [source, translation] : terms) {
    fuzz::require(!source.empty() && !translation.empty(), "terms and translations are not blank");
    fuzz::require(find_broken_utf8(source) == std::string::npos && find_broken_utf8(translation) == std::string::npos,
                  "terms are UTF-8");
    const auto found = glossary.targets(source);
    fuzz::require(!found.empty(), "a term is found where it stands alone");
    all += source + " , ";
  }
  const auto normal = normalized(all);
  size_t end = 0;
  for (const auto& match : glossary.find(normal)) {
    fuzz::require(match.begin >= end && match.end > match.begin && match.end <= normal.size(), "matches are in order");
    fuzz::require(match.term < terms.size(), "matches are of terms");
    end = match.end;
  }
});

}  // namespace
