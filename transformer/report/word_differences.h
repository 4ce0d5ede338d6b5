#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace transformer {

/// A stretch of words that two texts share, or that one of them alone has.
struct WordStretch {
  /// Whose the words are.
  enum class In {
    both,   // of the two alike
    first,  // of the first alone
    second  // of the second alone
  };
  In in;              // which text it is of
  std::string words;  // with single spaces between them

  bool operator==(const WordStretch&) const = default;
};

/// How `second` differs from `first`, word by word: as few words as can be are in one alone, and what the first alone
/// has comes before what stands in its place. Words are what white space separates. Of texts so long that comparing
/// them took more than `most_cells` comparisons, all that lies between their common beginning and end differs.
std::vector<WordStretch> word_differences(std::string_view first, std::string_view second,
                                          size_t most_cells = size_t{1} << 20);

}  // namespace transformer
