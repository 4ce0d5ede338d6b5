#include "transformer/inference/tree_constraint.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "transformer/base/ascii.h"

namespace transformer {

namespace {

using Ids = std::vector<int64_t>;

constexpr std::string_view space = "▁";  // how pieces spell one
constexpr int64_t most_open_without_word = 6, most_alike_in_a_row = 3;
constexpr size_t longest_label = 16;

bool is_label_part(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_ascii_upper);
}

}  // namespace

/// What the pieces of a vocabulary are to a tree.
struct TreeConstraints::Pieces {
  struct Piece {
    int64_t id;
    std::string text;  // without the space
  };
  std::shared_ptr<const Vocabulary> vocabulary;
  std::vector<Piece> opening, closing, label_parts;
  bool labels_grow = false;  // a label in parts can be closed in the same ones
  Ids placeholder;           // XX

  explicit Pieces(std::shared_ptr<const Vocabulary> given) : vocabulary(std::move(given)) {
    placeholder = vocabulary->encode("XX");
    for (int64_t id = Vocabulary::unknown + 1; id < vocabulary->size(); ++id) {
      const std::string_view piece = vocabulary->piece(id);
      if (!piece.starts_with(space)) {
        if (is_label_part(piece)) label_parts.push_back({id, std::string(piece)});
        continue;
      }
      const auto text = piece.substr(space.size());
      if (text.starts_with('(')) opening.push_back({id, std::string(text)});
      if (text.starts_with(')')) closing.push_back({id, std::string(text)});
    }
    const auto bare = [](const Piece& piece) { return piece.text.size() == 1; };
    labels_grow =
        std::all_of(opening.begin(), opening.end(), bare) && std::any_of(closing.begin(), closing.end(), bare);
    std::erase_if(opening, [&](const Piece& piece) {
      return piece.text.size() > 1 ? closing_of(piece.text.substr(1)).empty() : !labels_grow;
    });
  }

  /// The pieces that a closing bracket of the label can begin with.
  Ids closing_of(const std::string& label) const {
    const auto bracket = ")" + label;
    Ids ids;
    for (const auto& piece : closing) {
      if (bracket.starts_with(piece.text) && in_parts(std::string_view(bracket).substr(piece.text.size())))
        ids.push_back(piece.id);
    }
    return ids;
  }

  bool in_parts(std::string_view text) const {
    return text.empty() || std::any_of(label_parts.begin(), label_parts.end(), [&](const Piece& part) {
             return text.starts_with(part.text) && in_parts(text.substr(part.text.size()));
           });
  }
};

class TreeConstraints::State : public OutputConstraint {
 public:
  State(std::shared_ptr<const Pieces> pieces, const std::vector<std::string>& words) : pieces_(std::move(pieces)) {
    auto encoded = std::make_shared<std::vector<Ids>>();
    for (const auto& word : words) {
      auto ids = pieces_->vocabulary->encode(word);
      if (!ids.empty()) encoded->push_back(std::move(ids));  // what normalisation takes away cannot be written
    }
    words_ = std::move(encoded);
  }

  Ids allowed() const override {
    Ids tokens;
    switch (inside_) {
      case Inside::word:
        return {current()[written_]};
      case Inside::closing:
        for (const auto& part : pieces_->label_parts) {
          if (rest_.starts_with(part.text) && pieces_->in_parts(rest_.substr(part.text.size())))
            tokens.push_back(part.id);
        }
        return tokens;
      case Inside::label:
        if (pieces_->labels_grow) {
          for (const auto& part : pieces_->label_parts) {
            if (open_.back().label.size() + part.text.size() <= longest_label) tokens.push_back(part.id);
          }
        }
        if (open_.back().label.empty()) return tokens;
        break;
      case Inside::nothing:
        break;
    }
    if (next_ < words_->size()) {
      if (placeholders_ != Placeholders::yes) tokens.push_back((*words_)[next_].front());
      if (placeholders_ != Placeholders::no) tokens.push_back(pieces_->placeholder.front());
      if (opened_ < most_open_without_word) {
        for (const auto& piece : pieces_->opening) {
          if (!alike(piece.text.substr(1))) tokens.push_back(piece.id);
        }
      }
    }
    if (may_close()) {
      const auto closing = pieces_->closing_of(open_.back().label);
      tokens.insert(tokens.end(), closing.begin(), closing.end());
    }
    if (next_ == words_->size() && open_.empty()) tokens.push_back(Vocabulary::end);
    // A word may begin as a bracket does, or as XX.
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    return tokens;
  }

  std::optional<Ids> asked_for() const override {
    Ids tokens = pieces_->placeholder;
    for (const auto& word : *words_) tokens.insert(tokens.end(), word.begin(), word.end());
    for (const auto* pieces : {&pieces_->opening, &pieces_->closing, &pieces_->label_parts}) {
      for (const auto& piece : *pieces) tokens.push_back(piece.id);
    }
    tokens.push_back(Vocabulary::end);
    return tokens;
  }

  std::shared_ptr<const OutputConstraint> after(int64_t token) const override {
    auto state = std::make_shared<State>(*this);
    state->take(token);
    return state;
  }

 private:
  enum class Inside { nothing, word, label, closing };
  enum class Placeholders { unknown, no, yes };
  struct Open {
    std::string label;
    bool filled = false;  // holds a word or a constituent
  };

  const Ids& current() const { return placeholders_ == Placeholders::yes ? pieces_->placeholder : (*words_)[next_]; }

  /// Whether as many constituents as may have opened with this label, one in the other, since the last word.
  bool alike(const std::string& label) const {
    if (label.empty() || opened_ < most_alike_in_a_row) return false;
    return std::all_of(open_.end() - most_alike_in_a_row, open_.end(),
                       [&](const Open& open) { return open.label == label && !open.filled; });
  }

  bool may_close() const {
    if (open_.empty() || !open_.back().filled) return false;
    return open_.size() > 1 || next_ == words_->size();
  }

  void take(int64_t token) {
    if (inside_ == Inside::word) {
      write_piece();
      return;
    }
    const std::string_view piece = pieces_->vocabulary->piece(token);
    if (inside_ == Inside::closing) {
      rest_.erase(0, piece.size());
      if (rest_.empty()) close();
      return;
    }
    if (inside_ == Inside::label && !piece.starts_with(space)) {
      open_.back().label += piece;
      return;
    }
    inside_ = Inside::nothing;
    const bool words_left = next_ < words_->size();
    if (words_left && placeholders_ != Placeholders::yes && token == (*words_)[next_].front()) {
      placeholders_ = Placeholders::no;
      write_piece();
    } else if (words_left && placeholders_ != Placeholders::no && token == pieces_->placeholder.front()) {
      placeholders_ = Placeholders::yes;
      write_piece();
    } else if (token != Vocabulary::end) {
      const auto text = piece.substr(space.size());
      if (text.front() == '(') {
        inside_ = Inside::label;
        open_.push_back({std::string(text.substr(1))});
        ++opened_;
      } else {
        rest_ = open_.back().label.substr(text.size() - 1);
        inside_ = Inside::closing;
        if (rest_.empty()) close();
      }
    }
  }

  void write_piece() {
    inside_ = Inside::word;
    if (++written_ < current().size()) return;
    inside_ = Inside::nothing;
    written_ = 0;
    opened_ = 0;
    ++next_;
    if (!open_.empty()) open_.back().filled = true;
  }

  void close() {
    inside_ = Inside::nothing;
    open_.pop_back();
    if (!open_.empty()) open_.back().filled = true;
  }

  std::shared_ptr<const Pieces> pieces_;
  std::shared_ptr<const std::vector<Ids>> words_;
  size_t next_ = 0;     // the word that is written, or comes next
  size_t written_ = 0;  // of its pieces
  Inside inside_ = Inside::nothing;
  Placeholders placeholders_ = Placeholders::unknown;
  std::vector<Open> open_;
  int64_t opened_ = 0;  // constituents since the last word
  std::string rest_;    // of the label of a closing bracket
};

TreeConstraints::TreeConstraints(std::shared_ptr<const Vocabulary> vocabulary)
    : pieces_(std::make_shared<Pieces>(std::move(vocabulary))) {}

bool TreeConstraints::has_labels() const {
  return std::any_of(pieces_->opening.begin(), pieces_->opening.end(),
                     [](const auto& piece) { return piece.text.size() > 1; });
}

bool TreeConstraints::can_write_trees() const {
  return std::any_of(pieces_->opening.begin(), pieces_->opening.end(), [&](const auto& piece) {
    // Labels are closed as they were opened; what a label in parts may be depends on the parts.
    return piece.text.size() > 1 || !pieces_->label_parts.empty();
  });
}

std::shared_ptr<const OutputConstraint> TreeConstraints::over(const std::vector<std::string>& words) const {
  return std::make_shared<State>(pieces_, words);
}

}  // namespace transformer
