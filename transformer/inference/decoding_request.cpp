#include "transformer/inference/decoding_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "transformer/base/error.h"
#include "transformer/base/unicode.h"
#include "transformer/inference/shortlist.h"

namespace transformer {

int64_t DecodingRequest::more_for_phrases() const {
  int64_t tokens = 0;
  for (const auto& phrase : control.required) tokens += std::ssize(phrase);
  return std::min(tokens, most_for_phrases);
}

std::vector<int32_t> DecodingRequest::candidates() const {
  if (!shortlist) return {};
  std::vector<int64_t> asked_for;
  if (constraint) {
    auto tokens = constraint->asked_for();
    if (!tokens) return {};
    asked_for = std::move(*tokens);
  }
  const auto ask_for = [&](const auto& phrase) { asked_for.insert(asked_for.end(), phrase.begin(), phrase.end()); };
  for (const auto& phrase : control.required) ask_for(phrase);
  for (const auto& spelling : control.other_spellings) ask_for(spelling.tokens);
  for (const auto& [token, addition] : control.bias) {
    if (addition > 0) asked_for.push_back(token);
  }
  auto tokens = shortlist->candidates(source);
  if (asked_for.empty()) return tokens;
  for (const int64_t token : asked_for) {
    if (!Vocabulary::is_written(token, shortlist->target_size())) {
      throw std::out_of_range(fmt::format("an output constraint asks for token {}, which no output holds", token));
    }
    tokens.push_back(static_cast<int32_t>(token));
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

void DecodingRequest::check(int64_t size) const {
  const auto check_token = [&](int64_t token, const char* where) {
    if (Vocabulary::is_written(token, size)) return;
    throw Error(where, fmt::format("token {} is none that an output of this vocabulary holds", token));
  };
  if (settings.hypotheses() < 1) {
    throw Error("decoding", fmt::format("asks for {} hypotheses", settings.hypotheses()), "give 1 or more");
  }
  if (max_length < 0 || told < 0) {
    throw Error("max_length", fmt::format("is {}, with {} tokens told", max_length, told), "give 0 or more");
  }
  if (control.pieces && control.pieces->size() != size) {
    throw Error("required", fmt::format("is made for a vocabulary of {} pieces, and this one has {}",
                                        control.pieces->size(), size));
  }
  if (control.forbidden && control.forbidden->pieces().size() != size) {
    throw Error("forbidden", fmt::format("is made for a vocabulary of {} pieces, and this one has {}",
                                         control.forbidden->pieces().size(), size));
  }
  const auto check_phrase = [&](const std::vector<int64_t>& phrase) {
    if (phrase.empty()) throw Error("required", "a phrase is empty", "leave it out");
    for (const int64_t token : phrase) {
      check_token(token, "required");
      if (token == end) throw Error("required", "a phrase holds the end", "leave it out");
    }
  };
  for (const auto& phrase : control.required) {
    check_phrase(phrase);
    if (!control.forbidden) continue;
    const auto found = control.forbidden->found_in(phrase);
    if (found.empty()) continue;
    const auto text = control.forbidden->pieces().of(phrase);
    throw Error("required", fmt::format("{} holds {}, which is forbidden", in_quotes(trim(text)), in_quotes(found)),
                "decide for one");
  }
  for (const auto& [phrase, tokens] : control.other_spellings) {
    check_phrase(tokens);
    if (phrase >= control.required.size() || tokens.size() > control.required[phrase].size()) {
      throw Error("required", "another spelling is longer than its phrase, or of none that is there", "leave it out");
    }
  }
  for (const auto& [token, addition] : control.bias) {
    check_token(token, "bias");
    if (!(std::abs(addition) <= 100)) {
      throw Error("bias", fmt::format("of token {} is {}; expected -100 to 100", token, addition));
    }
  }
  if (shortlist) {
    if (shortlist->target_size() != size) {
      throw Error("shortlist", fmt::format("is made for a vocabulary of {} pieces, and this one has {}",
                                           shortlist->target_size(), size));
    }
    for (const int64_t piece : source) {
      if (piece >= 0 && piece < shortlist->source_size()) continue;
      throw Error("shortlist", fmt::format("is made for {} pieces of sources, and this one holds piece {}",
                                           shortlist->source_size(), piece));
    }
    const auto asked_for = constraint ? constraint->asked_for() : std::nullopt;
    for (const int64_t token : asked_for.value_or(std::vector<int64_t>())) check_token(token, "constraint");
  }
  if (control.required.empty()) return;
  if (settings.search == DecodingSettings::Search::sampling) {
    throw Error("decoding.search", "required phrases are for beam search, and it is sampling", "set search to beam");
  }
  if (settings.beam_groups > 1) {
    throw Error("decoding.beam_groups", "required phrases share the beam out themselves", "set beam_groups to 1");
  }
}

}  // namespace transformer
