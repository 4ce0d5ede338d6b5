// A model's output on the first line, taken for a tree over the words of the second.

#include <algorithm>

#include "fuzz/fuzz.h"
#include "transformer/base/unicode.h"
#include "transformer/text/treebank.h"

using namespace transformer;

namespace {

const fuzz::Target target("tree_tokens", [](std::string_view input) {
  if (find_broken_utf8(input) != std::string_view::npos) return;  // a decoder's output and a reader's line are UTF-8
  const size_t end = std::min(input.find('\n'), input.size());
  std::vector<std::string> words;
  for (auto rest = input.substr(end); !rest.empty();) {
    const size_t begin = rest.find_first_not_of(" \n");
    if (begin == std::string_view::npos) break;
    rest.remove_prefix(begin);
    const size_t length = std::min(rest.find_first_of(" \n"), rest.size());
    words.push_back(escaped_word(rest.substr(0, length)));
    rest.remove_prefix(length);
  }
  if (words.empty()) return;
  const auto result = delinearize(input.substr(0, end), words);
  fuzz::require(words_of(result.tree) == words, "the tree is over exactly the words");
  to_string(result.tree);
  drawing(result.tree);
});

}  // namespace
