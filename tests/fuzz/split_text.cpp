// A text that is split into sentences, which are cut and joined again.

#include "transformer/text/split_text.h"

#include "fuzz/fuzz.h"
#include "transformer/base/unicode.h"

using namespace transformer;

namespace {

const fuzz::Target target("split_text", [](std::string_view input) {
  const std::string text(input);
  for (const auto language : {SentenceLanguage::any, SentenceLanguage::english, SentenceLanguage::german}) {
    SplitText split(text, language);
    for (const int64_t longest : {int64_t{1} << 40, int64_t{20}, int64_t{1}}) {
      split.cut_longer(longest, [](std::string_view part) { return static_cast<int64_t>(part.size()); });
      std::vector<std::string> segments;
      for (size_t i = 0; i < split.segments().size(); ++i) {
        segments.emplace_back(split.segment(i));
        fuzz::require(trim(segments.back()) == segments.back() && !segments.back().empty(), "segments are trimmed");
      }
      fuzz::require(split.join(segments).text == text, "what is joined is the text");
    }
  }
});

}  // namespace
