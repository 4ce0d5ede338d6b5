#include "transformer/inference/forbidden_text.h"

#include <algorithm>
#include <compare>
#include <iterator>
#include <map>
#include <mutex>
#include <numeric>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "transformer/base/unicode.h"
#include "transformer/text/text_end.h"

namespace transformer {

namespace {

struct Phrase {
  std::string text;
  bool word_begins = false, may_go_on = false;  // ends in what the next character may go on with
};

/// Phrases that begin alike, a node of their trie: those from `first` up to `last`, as far as `length` bytes.
struct Node {
  uint32_t first = 0, last = 0, length = 0;
  auto operator<=>(const Node&) const = default;
};

/// What phrases a text has begun.
struct Progress {
  TextEnd end;
  std::vector<Node> begun;  // ascending
  auto operator<=>(const Progress&) const = default;
};

/// Pieces as a trie: by text, and how many bytes each has in common with the one before.
struct PieceOrder {
  std::vector<int64_t> pieces;
  std::vector<size_t> common;

  explicit PieceOrder(const PieceTexts& texts)
      : pieces(static_cast<size_t>(texts.size())), common(static_cast<size_t>(texts.size())) {
    std::iota(pieces.begin(), pieces.end(), int64_t{0});
    std::stable_sort(pieces.begin(), pieces.end(), [&](int64_t a, int64_t b) { return texts.of(a) < texts.of(b); });
    for (size_t i = 1; i < pieces.size(); ++i) {
      const auto &before = texts.of(pieces[i - 1]), &text = texts.of(pieces[i]);
      const auto length = static_cast<std::ptrdiff_t>(std::min(before.size(), text.size()));
      common[i] = static_cast<size_t>(
          std::distance(text.begin(), std::mismatch(text.begin(), text.begin() + length, before.begin()).first));
    }
  }
};

}  // namespace

struct ForbiddenText::Implementation {
  std::vector<Phrase> phrases;  // each once, by text, those that a word begins behind the others
  Node of_words, others;        // the roots of both
  PieceOrder order;

  static constexpr size_t most_kept = size_t{1} << 23;  // tokens: 64 MiB

  mutable std::mutex mutex;  // of what follows
  mutable std::map<Progress, int64_t> ids;
  mutable std::vector<const Progress*> progresses;  // by id: the map's keys
  mutable std::unordered_map<int64_t, std::shared_ptr<const State>> states;
  mutable size_t kept = 0;  // tokens of `states`

  Implementation(std::vector<Phrase> of, const PieceTexts& texts) : phrases(std::move(of)), order(texts) {
    const auto key = [](const Phrase& phrase) { return std::tie(phrase.word_begins, phrase.text); };
    std::sort(phrases.begin(), phrases.end(), [&](const Phrase& a, const Phrase& b) { return key(a) < key(b); });
    phrases.erase(
        std::unique(phrases.begin(), phrases.end(), [&](const Phrase& a, const Phrase& b) { return key(a) == key(b); }),
        phrases.end());
    const auto bound =
        std::partition_point(phrases.begin(), phrases.end(), [](const Phrase& phrase) { return !phrase.word_begins; });
    others.last = of_words.first = static_cast<uint32_t>(std::distance(phrases.begin(), bound));
    of_words.last = static_cast<uint32_t>(phrases.size());
    (void)id_of({});
  }

  /// The phrase that `node` is all of; null: none.
  const Phrase* whole(const Node& node) const {
    return node.first < node.last && phrases[node.first].text.size() == node.length ? &phrases[node.first] : nullptr;
  }

  /// The phrases of `node` that go on with `character`.
  Node child(const Node& node, char character) const {
    const auto byte = static_cast<unsigned char>(character);
    const auto of = [&](const Phrase& phrase) { return static_cast<unsigned char>(phrase.text[node.length]); };
    const auto first = phrases.begin() + node.first + (whole(node) ? 1 : 0), last = phrases.begin() + node.last;
    const auto from = std::partition_point(first, last, [&](const Phrase& phrase) { return of(phrase) < byte; });
    const auto to = std::partition_point(from, last, [&](const Phrase& phrase) { return of(phrase) == byte; });
    return {static_cast<uint32_t>(from - phrases.begin()), static_cast<uint32_t>(to - phrases.begin()),
            node.length + 1};
  }

  /// Which phrases begin with the next character.
  enum class Beginning { any, none };

  /// Takes `now` to `next` by a character. The phrase that the text then holds, however it goes on; null: none yet.
  const Phrase* step(const Progress& now, char character, Beginning fresh, Progress& next) const {
    // A sign, if it is broken off.
    if (now.end.broken_by(character)) {
      if (const auto* phrase = complete_at_end(now)) return phrase;
    }
    next.begun.clear();
    next.end = now.end;
    const auto behind = next.end.append(character);
    const auto go_on = [&](const Node& node) {
      const auto longer = child(node, character);
      if (longer.first < longer.last) next.begun.push_back(longer);
    };
    for (const auto& node : now.begun) {
      if (const auto* phrase = whole(node)) {  // unless its last word goes on
        // It waits alone: behind a joiner no longer phrase goes on from here.
        if (behind == TextEnd::Next::unknown) next.begun.push_back({node.first, node.first + 1, node.length});
        if (behind == TextEnd::Next::apart) return phrase;
      }
      go_on(node);
    }
    if (fresh == Beginning::any) {
      go_on(others);
      if (!now.end.in_word()) go_on(of_words);
    }
    for (const auto& node : next.begun) {
      const auto* phrase = whole(node);
      if (phrase && !phrase->may_go_on) return phrase;
    }
    std::sort(next.begun.begin(), next.begun.end());
    return nullptr;
  }

  /// The same by a whole text.
  const Phrase* step(Progress& now, std::string_view text) const {
    Progress next;
    for (const char character : text) {
      if (const auto* phrase = step(now, character, Beginning::any, next)) return phrase;
      std::swap(now, next);
    }
    return nullptr;
  }

  /// The phrase that the text holds if it ends here; null: none.
  const Phrase* complete_at_end(const Progress& progress) const {
    for (const auto& node : progress.begun) {
      if (const auto* phrase = whole(node)) return phrase;
    }
    return nullptr;
  }

  /// What may not come after `from`, of the phrases begun there and the fresh ones behind it.
  State state(const Progress& from, Beginning fresh, const PieceTexts& texts) const {
    State state;
    state.may_end = !complete_at_end(from);
    std::vector<Progress> path = {from};  // by bytes of the piece
    for (size_t i = 0; i < order.pieces.size();) {
      const auto& text = texts.of(order.pieces[i]);
      const Phrase* complete = nullptr;
      size_t length = order.common[i];  // of what is settled
      const auto going_on = [&] { return fresh == Beginning::any || !path[length].begun.empty(); };
      while (!complete && length < text.size() && going_on()) {
        if (path.size() < length + 2) path.resize(length + 2);
        complete = step(path[length], text[length], fresh, path[length + 1]);
        ++length;
      }
      if (complete || !going_on()) {  // whatever comes behind
        do {
          if (complete) state.forbidden.push_back(order.pieces[i]);
        } while (++i < order.pieces.size() && order.common[i] >= length);
        continue;
      }
      if (complete_at_end(path[length])) {
        // Where the character that the token begins most likely is a sign, the phrase most likely stays.
        const auto& end = path[length].end;
        const bool stays = end.in_character() && !end.likely_to_go_on();
        (stays ? state.forbidden : state.never_last).push_back(order.pieces[i]);
      }
      ++i;
    }
    std::sort(state.forbidden.begin(), state.forbidden.end());
    std::sort(state.never_last.begin(), state.never_last.end());
    return state;
  }

  /// The states' numbers and what is kept of them.
  int64_t id_of(const Progress& progress) const {
    const std::lock_guard lock(mutex);
    const auto [place, fresh] = ids.try_emplace(progress, static_cast<int64_t>(ids.size()));
    if (fresh) progresses.push_back(&place->first);
    return place->second;
  }

  const Progress& progress_of(int64_t id) const {
    const std::lock_guard lock(mutex);
    return *progresses.at(static_cast<size_t>(id));
  }

  std::shared_ptr<const State> kept_of(int64_t id) const {
    const std::lock_guard lock(mutex);
    const auto place = states.find(id);
    return place == states.end() ? nullptr : place->second;
  }

  void keep(int64_t id, const std::shared_ptr<const State>& state) const {
    const auto tokens = state->forbidden.size() + state->never_last.size() + 1;
    const std::lock_guard lock(mutex);
    if (kept + tokens > most_kept) {
      states.clear();
      kept = 0;
    }
    if (states.emplace(id, state).second) kept += tokens;
  }
};

ForbiddenText::ForbiddenText(const Vocabulary& vocabulary, std::shared_ptr<const PieceTexts> pieces,
                             const std::vector<std::string>& phrases)
    : pieces_(std::move(pieces)) {
  std::vector<Phrase> spelled;
  for (const auto& given : phrases) {
    if (trim(given).empty()) continue;
    const auto ids = vocabulary.encode(trim(given));
    if (std::find(ids.begin(), ids.end(), Vocabulary::unknown) != ids.end()) continue;
    Phrase phrase{std::string(trim(pieces_->of(ids)))};
    if (phrase.text.empty()) continue;
    phrase.word_begins = TextEnd(WordKind::word).continued_by(phrase.text);
    TextEnd end;
    end.append(phrase.text);
    phrase.may_go_on = end.may_go_on();
    spelled.push_back(std::move(phrase));
  }
  implementation_ = std::make_unique<Implementation>(std::move(spelled), *pieces_);
}

ForbiddenText::~ForbiddenText() = default;

std::shared_ptr<const ForbiddenText::State> ForbiddenText::at(int64_t id) const {
  const auto& self = *implementation_;
  if (auto kept = self.kept_of(id)) return kept;
  const auto& progress = self.progress_of(id);
  using Beginning = Implementation::Beginning;
  State state;
  if (progress.begun.empty()) {
    state = self.state(progress, Beginning::any, *pieces_);
  } else {
    // What phrases do that begin behind here is the same in all states of this end.
    const auto behind = at(self.id_of({progress.end, {}}));
    const auto begun = self.state(progress, Beginning::none, *pieces_);
    const auto unite = [](const auto& a, const auto& b, auto& both) {
      std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
    };
    std::vector<int64_t> never_last;
    unite(behind->forbidden, begun.forbidden, state.forbidden);
    unite(behind->never_last, begun.never_last, never_last);
    std::set_difference(never_last.begin(), never_last.end(), state.forbidden.begin(), state.forbidden.end(),
                        std::back_inserter(state.never_last));
    state.may_end = begun.may_end;
  }
  const auto found = std::make_shared<const State>(std::move(state));
  self.keep(id, found);
  return found;
}

int64_t ForbiddenText::after(int64_t id, int64_t token) const {
  const auto& self = *implementation_;
  auto progress = self.progress_of(id);
  return self.id_of(self.step(progress, pieces_->of(token)) ? Progress() : progress);
}

std::string ForbiddenText::found_in(std::string_view text, Extent extent) const {
  const auto& self = *implementation_;
  Progress progress;
  const auto* phrase = self.step(progress, text);
  if (!phrase && extent == Extent::whole) phrase = self.complete_at_end(progress);
  return phrase ? phrase->text : "";
}

std::string ForbiddenText::found_in(const std::vector<int64_t>& tokens) const {
  return found_in(pieces_->of(tokens), Extent::whole);
}

}  // namespace transformer
