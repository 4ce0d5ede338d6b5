#include "transformer/inference/attention_maps.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string_view>

#include "transformer/base/error.h"
#include "transformer/base/finite.h"
#include "transformer/base/unicode.h"
#include "transformer/inference/inference_batch.h"
#include "transformer/inference/inference_model.h"

namespace transformer {

namespace {

constexpr std::string_view space_symbol = "\xE2\x96\x81";  // ▁

int hexadecimal(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

/// The bytes that a piece stands for, the space symbol as a space.
std::string surface(const std::string& piece) {
  if (piece.size() == 6 && piece.starts_with("<0x") && piece.back() == '>' && hexadecimal(piece[3]) >= 0 &&
      hexadecimal(piece[4]) >= 0) {
    return std::string(1, static_cast<char>(hexadecimal(piece[3]) * 16 + hexadecimal(piece[4])));
  }
  std::string bytes;
  for (size_t i = 0; i < piece.size();) {
    const bool space = std::string_view(piece).substr(i).starts_with(space_symbol);
    bytes += space ? ' ' : piece[i];
    i += space ? space_symbol.size() : 1;
  }
  return bytes;
}

/// Where blanks stand among the bytes of each of `texts`, which together are one text: a blank of several bytes may be
/// spelled in several pieces.
std::vector<std::vector<bool>> blanks_of(const std::vector<std::string>& texts) {
  std::string all;
  for (const auto& text : texts) all += text;
  std::vector<bool> blank;
  for (size_t position = 0; position < all.size();) {
    const bool found = is_blank(next_code_point(all, position));
    blank.resize(position, found);
  }
  std::vector<std::vector<bool>> result;
  auto begin = blank.cbegin();
  for (const auto& text : texts) {
    const auto end = begin + static_cast<std::ptrdiff_t>(text.size());
    result.emplace_back(begin, end);
    begin = end;
  }
  return result;
}

AttentionWeights zeros(int64_t layers, int64_t heads, size_t queries, size_t keys) {
  AttentionWeights weights{layers, heads, static_cast<int64_t>(queries), static_cast<int64_t>(keys), {}};
  weights.values.resize(static_cast<size_t>(layers * heads) * queries * keys);
  return weights;
}

/// Takes over what is told of one attention as a layer of `weights`. Throws Failure for what is no number.
void put(const WatchedAttention& told, int64_t layer, AttentionWeights& weights) {
  if (!all_finite(told.weights)) {
    throw Failure("attention", "the model gave a weight that is no finite number",
                  "its weights are damaged, or its training diverged");
  }
  for (int64_t head = 0; head < weights.heads; ++head) {
    const auto given = told.weights.subspan(static_cast<size_t>(head * told.keys), static_cast<size_t>(told.keys));
    std::copy(given.begin(), given.end(), weights.row(layer, head, told.query).begin());
  }
}

/// One pass over sources, and targets as they are read, a sentence a row.
void pass(const InferenceModel& model, const std::vector<std::vector<int64_t>>& sources,
          const std::vector<std::vector<int64_t>>& targets,
          const std::function<void(size_t pair, const WatchedAttention&)>& told) {
  InferenceBatch batch(model);  // new, so that a pair's place is its index
  batch.watch([&](const WatchedAttention& attention) { told(static_cast<size_t>(attention.place), attention); });
  std::vector<InferenceBatch::Source> given;
  for (const auto& source : sources) given.push_back({.pieces = source});
  const auto places = batch.add(given);
  std::vector<InferenceBatch::Target> read;
  for (size_t i = 0; i < targets.size(); ++i) read.push_back({places[i], targets[i], {}});
  batch.score(read);
}

}  // namespace

std::span<float> AttentionWeights::row(int64_t layer, int64_t head, int64_t query) {
  return std::span(values).subspan(static_cast<size_t>(((layer * heads + head) * queries + query) * keys),
                                   static_cast<size_t>(keys));
}

std::span<const float> AttentionWeights::row(int64_t layer, int64_t head, int64_t query) const {
  return std::span(values).subspan(static_cast<size_t>(((layer * heads + head) * queries + query) * keys),
                                   static_cast<size_t>(keys));
}

AttentionMaps attention_maps(const InferenceModel& model, const std::vector<int64_t>& source,
                             const std::vector<int64_t>& target) {
  const auto& s = model.settings();
  const bool recurrent = s.decoder_self_attention == ModelSettings::DecoderSelfAttention::ssru;
  const auto from = written_tokens(source), read = read_tokens(target);
  AttentionMaps maps{zeros(s.encoder_layers, s.heads, from.size(), from.size()),
                     zeros(recurrent ? 0 : s.decoder_layers, s.heads, read.size(), read.size()),
                     zeros(s.decoder_layers, s.heads, read.size(), from.size())};
  pass(model, {from}, {read}, [&](size_t, const WatchedAttention& told) {
    put(told, told.layer,
        told.kind == AttentionKind::encoder   ? maps.encoder
        : told.kind == AttentionKind::decoder ? maps.decoder
                                              : maps.cross);
  });
  return maps;
}

std::vector<AttentionWeights> cross_attention(const InferenceModel& model,
                                              const std::vector<std::vector<int64_t>>& sources,
                                              const std::vector<std::vector<int64_t>>& targets, int64_t layer) {
  if (sources.size() != targets.size()) {
    throw std::invalid_argument(fmt::format("{} sources and {} targets", sources.size(), targets.size()));
  }
  if (layer < 0 || layer >= std::ssize(model.decoder())) {
    throw std::invalid_argument(fmt::format("decoder layer {} of {}, counted from 0", layer, model.decoder().size()));
  }
  std::vector<AttentionWeights> maps;
  std::vector<std::vector<int64_t>> from, read;
  for (size_t i = 0; i < sources.size(); ++i) {
    from.push_back(written_tokens(sources[i]));
    read.push_back(read_tokens(targets[i]));
    maps.push_back(zeros(1, model.settings().heads, read[i].size(), from[i].size()));
  }
  pass(model, from, read, [&](size_t pair, const WatchedAttention& told) {
    if (told.kind == AttentionKind::cross && told.layer == layer) put(told, 0, maps[pair]);
  });
  return maps;
}

std::vector<int64_t> written_tokens(std::vector<int64_t> pieces) {
  pieces.push_back(Vocabulary::end);
  return pieces;
}

std::vector<int64_t> read_tokens(std::vector<int64_t> pieces) {
  pieces.insert(pieces.begin(), Vocabulary::begin);
  return pieces;
}

JoinedTokens joined_tokens(const Vocabulary& vocabulary, const std::vector<int64_t>& tokens) {
  const auto is_special = [&](int64_t token) { return token != Vocabulary::unknown && vocabulary.is_control(token); };
  std::vector<std::string> texts;
  for (const int64_t token : tokens) {
    // No blank reaches over a token that is no text: a line end stands there.
    texts.push_back(is_special(token) ? "\n" : token == Vocabulary::unknown ? "⁇" : surface(vocabulary.piece(token)));
  }
  const auto blanks = blanks_of(texts);
  struct Word {
    std::vector<int64_t> pieces;
    bool special = false;
    bool blank = true;       // nothing else is in it
    bool ends_blank = true;  // its last byte
  };
  std::vector<Word> words;
  // White space behind which no piece comes belongs to the word before it.
  const auto end_of_text = [&] {
    if (words.size() < 2 || words.back().special || !words.back().blank || words[words.size() - 2].special) return;
    const auto blank = std::move(words.back());
    words.pop_back();
    words.back().pieces.insert(words.back().pieces.end(), blank.pieces.begin(), blank.pieces.end());
  };
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool special = is_special(tokens[i]);
    const auto& blank = blanks[i];
    if (special) end_of_text();
    if (words.empty() || special || words.back().special ||
        (!words.back().blank && (words.back().ends_blank || blank.front()))) {
      words.emplace_back();
    }
    auto& word = words.back();
    word.blank = word.blank && std::find(blank.begin(), blank.end(), false) == blank.end();
    word.ends_blank = blank.back();
    word.special = special;
    word.pieces.push_back(tokens[i]);
  }
  end_of_text();
  JoinedTokens joined;
  for (const auto& word : words) {
    joined.word_of.insert(joined.word_of.end(), word.pieces.size(), static_cast<int64_t>(joined.words.size()));
    joined.words.push_back(word.special ? vocabulary.piece(word.pieces.front())
                                        : std::string(trim(vocabulary.decode(word.pieces))));
  }
  return joined;
}

AttentionWeights joined_weights(const AttentionWeights& weights, const JoinedTokens& queries,
                                const JoinedTokens& keys) {
  auto joined = zeros(weights.layers, weights.heads, queries.words.size(), keys.words.size());
  std::vector<int64_t> tokens(queries.words.size());  // of every word
  for (const int64_t word : queries.word_of) ++tokens[static_cast<size_t>(word)];
  for (int64_t layer = 0; layer < weights.layers; ++layer) {
    for (int64_t head = 0; head < weights.heads; ++head) {
      for (int64_t query = 0; query < weights.queries; ++query) {
        const auto word = queries.word_of[static_cast<size_t>(query)];
        const auto given = weights.row(layer, head, query);
        const auto sums = joined.row(layer, head, word);
        for (size_t key = 0; key < given.size(); ++key) sums[static_cast<size_t>(keys.word_of[key])] += given[key];
      }
      for (size_t word = 0; word < tokens.size(); ++word) {
        for (auto& sum : joined.row(layer, head, static_cast<int64_t>(word))) sum /= static_cast<float>(tokens[word]);
      }
    }
  }
  return joined;
}

}  // namespace transformer
