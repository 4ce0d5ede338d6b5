// Markup, and placeholders, that are taken apart and put round a translation: the input's last line, whose words stand
// for those of the rest in another order.

#include "transformer/text/markup.h"

#include <algorithm>

#include "fuzz/fuzz.h"
#include "transformer/base/unicode.h"
#include "transformer/text/placeholders.h"

using namespace transformer;

namespace {

std::string without_blanks(std::string_view text) {
  std::string result;
  for (const auto word : split_words(text)) result += word;
  return result;
}

void carry_over(std::string_view marked, const std::string& translation, const CarriedOver& carried) {
  const auto source = parse_markup(marked, carried);
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
  std::string plain;
  position = 0;
  const auto written = [&](size_t end) {
    const auto part = translation.substr(position, end - position);
    return carried.tags ? escaped_text(part) : part;
  };
  for (const auto& [tag, place] : placed) {
    plain += written(place) + source.tags[tag].markup;
    position = place;
  }
  plain += written(translation.size());
  const auto result = with_tags(source, translation, placed);
  const bool placeholders =
      std::any_of(source.tags.begin(), source.tags.end(), [](const auto& tag) { return tag.placeholder; });
  fuzz::require(carried.placeholders || carried.tags || !placeholders, "placeholders are carried over or text");
  fuzz::require(placeholders ? without_blanks(result) == without_blanks(plain) : result == plain,
                "nothing is changed but for blanks beside placeholders");
}

/// The same text as the lines of a page, in which tags go over lines.
void read_page(std::string_view page) {
  OpenMarkup open;
  for (size_t begin = 0; begin <= page.size();) {
    const size_t end = std::min(page.find('\n', begin), page.size());
    const auto line = page.substr(begin, end - begin);
    const auto marked = parse_markup(line, {}, open);
    size_t bytes = 0, position = 0;
    for (const auto& tag : marked.tags) {
      fuzz::require(tag.position >= position && tag.position <= marked.text.size(), "tags are in order");
      position = tag.position;
      // What belongs to a placeholder is escaped.
      if (!tag.placeholder) bytes += tag.markup.size();
    }
    fuzz::require(bytes <= line.size(), "tags are the line's own");
    if (open.kind != OpenMarkup::Kind::none && !line.empty()) {
      fuzz::require(line.ends_with(marked.tags.back().markup), "what is open goes on to the line's end");
    }
    begin = end + 1;
  }
}

const fuzz::Target target("markup", [](std::string_view input) {
  const size_t line = input.rfind('\n');
  const std::string translation(line == std::string_view::npos ? "" : trim(input.substr(line + 1)));
  for (const bool tags : {true, false}) {
    for (const bool placeholders : {true, false}) {
      carry_over(input.substr(0, line), translation, {.tags = tags, .placeholders = placeholders});
    }
  }
  read_page(input);
  fuzz::require(parse_markup(escaped_text(translation)).text == translation, "escaped text is the text");
  size_t end = 0;
  for (const auto& span : find_placeholders(input)) {
    fuzz::require(span.begin >= end && span.end > span.begin && span.end <= input.size(), "placeholders are in order");
    end = span.end;
  }
});

}  // namespace
