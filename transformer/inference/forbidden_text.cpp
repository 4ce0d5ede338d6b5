#include "transformer/inference/forbidden_text.h"

#include <algorithm>
#include <array>
#include <compare>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "transformer/base/unicode.h"
#include "transformer/text/text_end.h"

namespace transformer {

namespace {

struct Phrase {
  std::string text;
  bool word_begins = false, word_ends = false;
};

/// Phrases that the text has begun, and how much of them.
struct Progress {
  TextEnd end;
  std::vector<std::pair<uint32_t, uint32_t>> begun;
  auto operator<=>(const Progress&) const = default;
};

/// Where a text leads, until it holds a phrase.
struct Step {
  Progress progress;
  const Phrase* complete = nullptr;  // the phrase that it holds, however it goes on; null: none yet
};

}  // namespace

struct ForbiddenText::Implementation {
  std::vector<Phrase> phrases;
  std::array<std::vector<uint32_t>, 256> by_first_byte;

  mutable std::mutex mutex;  // of what follows
  mutable std::map<Progress, int64_t> ids;
  mutable std::vector<const Progress*> progresses;  // by id: the map's keys
  mutable std::deque<std::optional<State>> states;

  Step after(const Progress& from, std::string_view text) const {
    Progress now = from, next;
    for (const char character : text) {
      // A sign, if it is broken off.
      if (now.end.broken_by(character)) {
        if (const auto* phrase = complete_at_end(now)) return {{}, phrase};
      }
      next.begun.clear();
      next.end = now.end;
      const bool whole = next.end.append(character);
      for (const auto& [phrase, matched] : now.begun) {
        const auto& wanted = phrases[phrase].text;
        if (matched == wanted.size()) {  // unless its last word goes on
          if (!whole) next.begun.emplace_back(phrase, matched);
          if (whole && !next.end.in_word()) return {{}, &phrases[phrase]};
        } else if (wanted[matched] == character) {
          next.begun.emplace_back(phrase, matched + 1);
        }
      }
      for (const uint32_t phrase : by_first_byte[static_cast<unsigned char>(character)]) {
        if (!phrases[phrase].word_begins || !now.end.in_word()) next.begun.emplace_back(phrase, 1);
      }
      for (const auto& [phrase, matched] : next.begun) {
        if (matched == phrases[phrase].text.size() && !phrases[phrase].word_ends) return {{}, &phrases[phrase]};
      }
      std::sort(next.begun.begin(), next.begun.end());
      std::swap(now, next);
    }
    return {std::move(now)};
  }

  /// The phrase that the text holds if it ends here; null: none.
  const Phrase* complete_at_end(const Progress& progress) const {
    for (const auto& [phrase, matched] : progress.begun) {
      if (matched == phrases[phrase].text.size()) return &phrases[phrase];
    }
    return nullptr;
  }

  bool may_end(const Progress& progress) const { return !complete_at_end(progress); }

  /// With the mutex held.
  int64_t id_of(const Progress& progress) const {
    const auto [place, fresh] = ids.try_emplace(progress, static_cast<int64_t>(ids.size()));
    if (fresh) {
      progresses.push_back(&place->first);
      states.emplace_back();
    }
    return place->second;
  }
};

ForbiddenText::ForbiddenText(const Vocabulary& vocabulary, std::shared_ptr<const PieceTexts> pieces,
                             const std::vector<std::string>& phrases)
    : pieces_(std::move(pieces)), implementation_(std::make_unique<Implementation>()) {
  auto& self = *implementation_;
  for (const auto& given : phrases) {
    if (trim(given).empty()) continue;
    const auto ids = vocabulary.encode(trim(given));
    if (std::find(ids.begin(), ids.end(), Vocabulary::unknown) != ids.end()) continue;
    Phrase phrase{std::string(trim(pieces_->of(ids)))};
    if (phrase.text.empty()) continue;
    phrase.word_begins = TextEnd().continued_by(phrase.text);
    TextEnd end;
    end.append(phrase.text);
    phrase.word_ends = end.in_word();
    self.by_first_byte[static_cast<unsigned char>(phrase.text.front())].push_back(
        static_cast<uint32_t>(self.phrases.size()));
    self.phrases.push_back(std::move(phrase));
  }
  self.id_of({});
}

ForbiddenText::~ForbiddenText() = default;

const ForbiddenText::State& ForbiddenText::at(int64_t id) const {
  const auto& self = *implementation_;
  const std::lock_guard lock(self.mutex);
  auto& state = self.states.at(static_cast<size_t>(id));
  if (!state) {
    const auto& progress = *self.progresses[static_cast<size_t>(id)];
    state.emplace();
    state->may_end = self.may_end(progress);
    for (int64_t token = 0; token < pieces_->size(); ++token) {
      const auto [next, complete] = self.after(progress, pieces_->of(token));
      const bool never_last = !complete && !self.may_end(next);
      // Where the character that the token begins most likely is a sign, the phrase most likely stays.
      if (complete || (never_last && next.end.in_character() && !next.end.likely_in_word())) {
        state->forbidden.push_back(token);
      } else if (never_last) {
        state->never_last.push_back(token);
      }
    }
  }
  return *state;
}

int64_t ForbiddenText::after(int64_t id, int64_t token) const {
  const auto& self = *implementation_;
  const std::lock_guard lock(self.mutex);
  const auto next = self.after(*self.progresses.at(static_cast<size_t>(id)), pieces_->of(token));
  return self.id_of(next.complete ? Progress() : next.progress);
}

std::string ForbiddenText::found_in(std::string_view text, Extent extent) const {
  const auto& self = *implementation_;
  const auto end = self.after({}, text);
  const auto* phrase = end.complete;
  if (!phrase && extent == Extent::whole) phrase = self.complete_at_end(end.progress);
  return phrase ? phrase->text : "";
}

bool ForbiddenText::allows(const std::vector<int64_t>& tokens) const {
  return found_in(pieces_->of(tokens), Extent::whole).empty();
}

}  // namespace transformer
