// Markup that is taken apart and put round a translation: the input's last line, whose words stand for those of the
// rest in another order.

#include "transformer/text/markup.h"

#include <algorithm>

#include "fuzz/fuzz.h"
#include "transformer/base/unicode.h"

using namespace transformer;

namespace {

const fuzz::Target target("markup", [](std::string_view input) {
  const size_t line = input.rfind('\n');
  const std::string translation(line == std::string_view::npos ? "" : trim(input.substr(line + 1)));
  const auto source = parse_markup(input.substr(0, line));
  const std::string_view text = source.text, inner = trim(text);
  const auto begin = inner.empty() ? 0 : static_cast<size_t>(inner.data() - text.data());
  AlignedSegment segment{{begin, begin + inner.size()}, {0, translation.size()}, {}};
  const auto words = split_words(inner).size(), targets = split_words(translation).size();
  for (size_t word = 0; word < targets; ++word) segment.links.emplace_back(word * 7 % (words + 1), word);
  const auto placed = place_tags(source, translation, std::span(&segment, 1));

  std::vector<size_t> seen, open;
  size_t position = 0;
  for (const auto& [tag, place] : placed) {
    fuzz::require(place >= position && place <= translation.size(), "tags are in order");
    position = place;
    seen.push_back(tag);
    const auto partner = source.tags[tag].partner;
    if (partner < 0) continue;
    if (static_cast<size_t>(partner) > tag) {
      open.push_back(tag);
    } else {
      fuzz::require(!open.empty() && open.back() == static_cast<size_t>(partner), "elements nest");
      open.pop_back();
    }
  }
  std::sort(seen.begin(), seen.end());
  fuzz::require(seen.size() == source.tags.size() && std::adjacent_find(seen.begin(), seen.end()) == seen.end(),
                "every tag comes back once");
  with_tags(source, translation, placed);
  fuzz::require(parse_markup(escaped_text(translation)).text == translation, "escaped text is the text");
});

}  // namespace
