#include "transformer/text/treebank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>
#include <utility>

#include "transformer/base/error.h"
#include "transformer/base/unicode.h"
#include "transformer/text/lines.h"

namespace transformer {

namespace {

constexpr std::string_view top_label = "TOP";
constexpr std::string_view any_word = "XX";
// Deeper nesting than in any sentence; bounds the recursion over a tree.
constexpr size_t deepest = 1000;

/// Of the format: blanks of one byte. Others stand inside words of many treebanks, as in 10 000.
bool separates(char character) {
  return static_cast<unsigned char>(character) < 0x80 && is_blank(static_cast<unsigned char>(character));
}

constexpr bool is_bracket(char character) {
  return character == '(' || character == ')';
}

/// The tokens of a line: brackets, and what stands between them and white space.
class Tokens {
 public:
  explicit Tokens(std::string_view line) : rest_(line) {}

  /// Empty at the end.
  std::string_view next() {
    while (!rest_.empty() && separates(rest_.front())) rest_.remove_prefix(1);
    size_t length = 0;
    if (!rest_.empty() && is_bracket(rest_.front())) {
      length = 1;
    } else {
      while (length < rest_.size() && !separates(rest_[length]) && !is_bracket(rest_[length])) ++length;
    }
    const auto token = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return token;
  }

 private:
  std::string_view rest_;
};

/// Builds trees from tokens, one at a time.
class TreeBuilder {
 public:
  explicit TreeBuilder(std::string name) : name_(std::move(name)) {}

  /// Appends to `trees` what becomes complete on this line, whose number is 0 where there is just one.
  void add(std::string_view line, int64_t number, std::deque<Tree>& trees) {
    number_ = number;
    Tokens tokens(line);
    for (auto token = tokens.next(); !token.empty(); token = tokens.next()) {
      if (token == "(") {
        open();
      } else if (token == ")") {
        close(trees);
      } else {
        name(token);
      }
    }
  }

  void finish() const {
    if (open_.empty()) return;
    throw Error(place(first_line_),
                fmt::format("the tree that begins here is not complete; expected {} more ')'", open_.size()),
                "a bracket is missing in it, or the end of the text");
  }

 private:
  enum class State { fresh, labelled, word, constituent };
  struct Node {
    Tree tree;
    State state = State::fresh;
  };

  void open() {
    if (open_.empty()) {
      first_line_ = number_;
    } else {
      Node& parent = open_.back();
      if (parent.state == State::fresh && open_.size() > 1) fail("expected a label after '(', found '('");
      if (parent.state == State::word) {
        fail(fmt::format("expected ')' after the word '{}', found '('", parent.tree.word));
      }
      if (open_.size() == deepest) fail(fmt::format("a tree is nested deeper than {} constituents", deepest));
      parent.state = State::constituent;
    }
    open_.emplace_back();
  }

  void name(std::string_view token) {
    if (open_.empty()) fail(fmt::format("expected '(' at the beginning of a tree, found '{}'", token));
    Node& node = open_.back();
    switch (node.state) {
      case State::fresh:
        if (open_.size() > 1 && is_top(token)) {
          fail(fmt::format("expected {} more ')' before the next tree, which begins here with '({}'", open_.size() - 1,
                           token));
        }
        node.tree.label = escaped_word(token);
        node.state = State::labelled;
        break;
      case State::labelled:
        node.tree.word = escaped_word(token);
        node.state = State::word;
        break;
      case State::word:
        fail(fmt::format("expected ')' after the word '{}', found '{}'", node.tree.word, token));
      case State::constituent:
        fail(fmt::format("expected '(' or ')' within the constituent {}, found '{}'", node.tree.label, token));
    }
  }

  void close(std::deque<Tree>& trees) {
    if (open_.empty()) fail("expected '(' at the beginning of a tree, found ')'");
    Node node = std::move(open_.back());
    const bool empty = node.state == State::fresh || node.state == State::labelled;
    // `()`, `(TOP)` and `(())`, as some parsers write where they found no tree.
    const bool no_tree =
        is_top(node.tree.label) &&
        (open_.size() == 1 || (open_.size() == 2 && open_[0].tree.label.empty() && open_[0].tree.children.empty()));
    if (empty && !no_tree) {
      fail(node.state == State::fresh
               ? std::string("expected a label after '(', found ')'")
               : fmt::format("expected a word or constituents after '({}', found ')'", node.tree.label));
    }
    open_.pop_back();
    if (open_.empty()) {
      trees.push_back(std::move(node.tree));
    } else if (!empty) {
      open_.back().tree.children.push_back(std::move(node.tree));
    }
  }

  std::string place(int64_t number) const { return number == 0 ? name_ : fmt::format("{}:{}", name_, number); }

  [[noreturn]] void fail(const std::string& what) const {
    std::string remedy;
    if (!open_.empty() && first_line_ != number_) remedy = fmt::format("the tree begins in line {}", first_line_);
    throw Error(place(number_), what, remedy);
  }

  std::string name_;
  std::vector<Node> open_;
  int64_t number_ = 0;      // of the line being read
  int64_t first_line_ = 0;  // of the tree being read
};

void collect_words(const Tree& tree, std::vector<std::string>& words) {
  if (tree.is_word()) words.push_back(tree.word);
  for (const auto& child : tree.children) collect_words(child, words);
}

void print(const Tree& tree, std::string& text) {
  // Trees that were read are escaped; those of others come back as well.
  text += '(';
  text += escaped_word(tree.label);
  if (tree.is_word()) {
    text += ' ';
    text += escaped_word(tree.word);
  }
  for (const auto& child : tree.children) {
    text += ' ';
    print(child, text);
  }
  text += ')';
}

void draw(const Tree& tree, const std::string& indent, std::string& text) {
  text += tree.is_word() ? tree.word : tree.label;
  text += '\n';
  for (size_t i = 0; i < tree.children.size(); ++i) {
    const bool last = i + 1 == tree.children.size();
    text += indent;
    text += last ? "└─ " : "├─ ";
    draw(tree.children[i], indent + (last ? "   " : "│  "), text);
  }
}

/// `label` without function tags and indices.
std::string basic_label(std::string_view label) {
  return std::string(label.starts_with('-') ? label : label.substr(0, label.find_first_of("-=|", 1)));
}

/// Adds a node to a parent's children: a topmost node's label stands for no constituent, wherever it is.
void take_in(Tree&& node, std::vector<Tree>& children) {
  if (node.is_word() || !is_top(node.label)) {
    children.push_back(std::move(node));
  } else {
    std::move(node.children.begin(), node.children.end(), std::back_inserter(children));
  }
}

std::optional<Tree> without_traces(const Tree& tree) {
  if (tree.is_word()) {
    if (tree.label == "-NONE-") return std::nullopt;
    return Tree{basic_label(tree.label), tree.word};
  }
  Tree result{basic_label(tree.label)};
  for (const auto& child : tree.children) {
    if (auto kept = without_traces(child)) take_in(std::move(*kept), result.children);
  }
  if (result.children.empty()) return std::nullopt;
  return result;
}

void append_token(std::string_view first, std::string_view second, std::string& text) {
  if (!text.empty()) text += ' ';
  text += first;
  text += second;
}

void linearize_node(const Tree& tree, const LinearizeOptions& options, std::string& text) {
  if (tree.is_word()) {
    append_token(options.copy_words ? std::string_view(tree.word) : any_word, "", text);
    return;
  }
  append_token("(", tree.label, text);
  for (const auto& child : tree.children) linearize_node(child, options, text);
  append_token(")", tree.label, text);
}

// Bounds the memory of an alignment to 128 MiB, far beyond what a translator puts out for its longest line.
constexpr size_t most_compared = size_t{1} << 25;
constexpr size_t no_word = static_cast<size_t>(-1);

/// Which word each of `slots` takes, from left to right; no_word: none.
std::vector<size_t> align(const std::vector<std::string_view>& slots, const std::vector<std::string>& words) {
  std::vector<size_t> taken(slots.size(), no_word);
  const auto fits = [&](size_t slot, size_t word) { return slots[slot] == any_word || slots[slot] == words[word]; };
  // What fits from the start needs no search: in well-formed output everything.
  size_t first = 0;
  while (first < slots.size() && first < words.size() && fits(first, first)) {
    taken[first] = first;
    ++first;
  }
  const size_t rows = slots.size() - first, columns = words.size() - first;
  if (rows == 0 || columns == 0) return taken;
  if (rows * columns > most_compared) {
    for (size_t i = first; i < std::min(slots.size(), words.size()); ++i) taken[i] = i;
    return taken;
  }
  // cost[i][j]: the edits between slots from i on and words from j on.
  std::vector<uint32_t> cost((rows + 1) * (columns + 1));
  const auto at = [&](size_t i, size_t j) -> uint32_t& { return cost[i * (columns + 1) + j]; };
  for (size_t i = rows + 1; i-- > 0;) {
    for (size_t j = columns + 1; j-- > 0;) {
      if (i == rows || j == columns) {
        at(i, j) = static_cast<uint32_t>(rows - i + columns - j);
      } else {
        const uint32_t together = at(i + 1, j + 1) + (fits(first + i, first + j) ? 0u : 1u);
        at(i, j) = static_cast<uint32_t>(std::min(together, 1u + std::min(at(i, j + 1), at(i + 1, j))));
      }
    }
  }
  for (size_t i = 0, j = 0; i < rows && j < columns;) {
    if (at(i, j) == at(i + 1, j + 1) + (fits(first + i, first + j) ? 0u : 1u)) {
      taken[first + i++] = first + j++;
    } else if (at(i, j) == at(i, j + 1) + 1u) {
      ++j;
    } else {
      ++i;
    }
  }
  return taken;
}

void remove_empty(Tree& tree, bool& found) {
  for (auto& child : tree.children) remove_empty(child, found);
  const auto count =
      std::erase_if(tree.children, [](const Tree& child) { return !child.is_word() && child.children.empty(); });
  if (count > 0) found = true;
}

}  // namespace

std::vector<std::string> words_of(const Tree& tree) {
  std::vector<std::string> words;
  collect_words(tree, words);
  return words;
}

std::string to_string(const Tree& tree) {
  std::string text;
  print(tree, text);
  return text;
}

std::string drawing(const Tree& tree) {
  std::string text;
  draw(is_top(tree.label) && tree.children.size() == 1 ? tree.children.front() : tree, "", text);
  return text;
}

bool is_top(std::string_view label) {
  return label.empty() || label == top_label || label == "ROOT" || label == "S1" || label == "VROOT";
}

Tree cleaned(const Tree& tree) {
  Tree top{std::string(top_label)};
  if (auto kept = without_traces(tree)) take_in(std::move(*kept), top.children);
  return top;
}

struct TreebankReader::Implementation {
  std::function<bool(std::string&)> next_line;
  TreeBuilder builder;
  std::deque<Tree> trees = {};  // read and not yet handed out
  int64_t line = 0;
};

TreebankReader::TreebankReader(const std::filesystem::path& file)
    : TreebankReader([reader = std::make_shared<LineReader>(file)](std::string& line) { return reader->next(line); },
                     file.string()) {}

TreebankReader::TreebankReader(std::function<bool(std::string&)> next_line, const std::string& name)
    : implementation_(new Implementation{std::move(next_line), TreeBuilder(name)}) {}

TreebankReader::~TreebankReader() = default;
TreebankReader::TreebankReader(TreebankReader&&) noexcept = default;

bool TreebankReader::next(Tree& tree) {
  auto& self = *implementation_;
  std::string line;
  while (self.trees.empty()) {
    if (!self.next_line(line)) {
      self.builder.finish();
      return false;
    }
    self.builder.add(line, ++self.line, self.trees);
  }
  tree = std::move(self.trees.front());
  self.trees.pop_front();
  return true;
}

std::vector<Tree> read_treebank(const std::filesystem::path& file) {
  TreebankReader reader(file);
  std::vector<Tree> trees;
  for (Tree tree; reader.next(tree);) trees.push_back(cleaned(tree));
  return trees;
}

Tree read_tree(std::string_view line, const std::string& where) {
  TreeBuilder builder(where);
  std::deque<Tree> trees;
  builder.add(line, 0, trees);
  builder.finish();
  if (trees.size() > 1) throw Error(where, fmt::format("expected one tree, found {}", trees.size()));
  return trees.empty() ? Tree{""} : std::move(trees.front());
}

std::string escaped_word(std::string_view word) {
  std::string result;
  for (size_t position = 0; position < word.size();) {
    const size_t here = position;
    const char32_t character = next_code_point(word, position);
    if (character == '(') {
      result += "-LRB-";
    } else if (character == ')') {
      result += "-RRB-";
    } else if (is_blank(character)) {
      result += '_';
    } else {
      result += word.substr(here, position - here);
    }
  }
  return result;
}

std::string linearize(const Tree& tree, const LinearizeOptions& options) {
  std::string text;
  for (const auto& child : tree.children) linearize_node(child, options, text);
  return text;
}

Delinearized delinearize(std::string_view tokens, const std::vector<std::string>& words) {
  enum class Kind { open, close, slot };
  struct Token {
    Kind kind;
    std::string label;
  };
  std::vector<Token> sequence;
  std::vector<std::string_view> slots;
  bool well_formed = true;
  std::vector<std::string_view> texts;
  for (const auto word : split_words(tokens)) {
    // A bracket begins a token even where the space before it is missing.
    for (size_t begin = 0, end; begin < word.size(); begin = end) {
      end = std::min(word.find_first_of("()", begin + 1), word.size());
      texts.push_back(word.substr(begin, end - begin));
    }
  }
  for (const auto text : texts) {
    if (is_bracket(text.front())) {
      auto label = basic_label(text.substr(1));
      if (label.size() + 1 != text.size()) well_formed = false;
      sequence.push_back({text.front() == '(' ? Kind::open : Kind::close, std::move(label)});
    } else {
      sequence.push_back({Kind::slot, {}});
      slots.push_back(text);
    }
  }

  const auto taken = align(slots, words);
  std::vector<size_t> order;  // of the words taken, and behind them how many there are
  for (size_t i = 0; i < slots.size(); ++i) {
    if (taken[i] != no_word) order.push_back(taken[i]);
    if (taken[i] == no_word || (slots[i] != any_word && slots[i] != words[taken[i]])) well_formed = false;
  }
  if (order.size() != words.size()) well_formed = false;

  std::vector<Tree> open;
  open.push_back({std::string(top_label)});
  size_t placed = 0;  // words so far
  const auto place_until = [&](size_t end, Tree& parent) {
    while (placed < end) parent.children.push_back({std::string(any_word), words[placed++]});
  };
  const auto close_one = [&] {
    Tree done = std::move(open.back());
    open.pop_back();
    open.back().children.push_back(std::move(done));
  };
  size_t slot = 0, next = 0;  // in taken, in order
  for (const auto& token : sequence) {
    if (token.kind == Kind::open) {
      if (is_top(token.label) || open.size() + 1 >= deepest) {
        well_formed = false;
      } else {
        open.push_back({token.label});
      }
    } else if (token.kind == Kind::close) {
      size_t depth = open.size() - 1;
      if (!token.label.empty()) {
        while (depth > 0 && open[depth].label != token.label) --depth;
      }
      if (token.label.empty() || depth + 1 != open.size() || depth == 0) well_formed = false;
      if (depth == 0) continue;
      while (open.size() > depth) close_one();
    } else if (taken[slot++] != no_word) {
      ++next;
      // Words that no token takes follow the one before them; what is left behind the last waits for the end.
      place_until(next < order.size() ? order[next] : order.back() + 1, open.back());
    }
  }
  if (open.size() > 1) well_formed = false;
  while (open.size() > 1) close_one();

  Tree top = std::move(open.front());
  bool empty = false;
  remove_empty(top, empty);
  if (empty) well_formed = false;
  if (placed < words.size()) {
    const bool constituent = !top.children.empty() && !top.children.back().is_word();
    place_until(words.size(), constituent ? top.children.back() : top);
  }
  return {std::move(top), well_formed};
}

}  // namespace transformer
