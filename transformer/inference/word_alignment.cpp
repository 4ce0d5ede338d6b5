#include "transformer/inference/word_alignment.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <stdexcept>

#include "transformer/architecture/longest_text.h"
#include "transformer/base/error.h"
#include "transformer/base/unicode.h"
#include "transformer/inference/inference_model.h"
#include "transformer/inference/translator.h"
#include "transformer/text/lines.h"

namespace transformer {

namespace {

// Attention weights of one pass: a few sentences of usual length, and not so many that memory is felt.
constexpr double batch_weights = 3e7;
// Of one pair alone: 2 GB in float32.
constexpr double most_weights = 5e8;
constexpr size_t batch_pairs = 64;

struct AlignedPair {
  std::vector<int64_t> source, target;
  // Of each piece; empty where the blanks between pieces are those between words.
  std::vector<int64_t> source_words, target_words;
};

std::vector<int64_t> words_where_blanks_change(const Vocabulary& vocabulary, std::string_view text) {
  return vocabulary.has_charsmap() ? vocabulary.words_of_pieces(text) : std::vector<int64_t>();
}

/// Of a line, its tokens joined to words, and which of its words these are.
struct LineTokens {
  JoinedTokens joined;
  std::vector<int64_t> places;
};

LineTokens tokens_of_line(const Vocabulary& vocabulary, const std::vector<int64_t>& pieces,
                          const std::vector<int64_t>& words_of_pieces, const std::vector<std::string_view>& words) {
  LineTokens line;
  if (words_of_pieces.empty()) {
    line.joined = joined_tokens(vocabulary, written_tokens(pieces));
    line.places = places_in_line(line.joined, words.size());
    return line;
  }
  for (size_t i = 0; i <= words_of_pieces.size(); ++i) {
    const bool end = i == words_of_pieces.size();
    const int64_t place = end ? -1 : words_of_pieces[i];
    if (line.places.empty() || end || place != line.places.back()) {
      line.places.push_back(place);
      line.joined.words.emplace_back(place < 0 ? std::string_view() : words[static_cast<size_t>(place)]);
    }
    line.joined.word_of.push_back(std::ssize(line.places) - 1);
  }
  return line;
}

double weights_of_pass(const ModelSettings& settings, size_t source, size_t target) {
  const auto queries = static_cast<double>(target + 1), keys = static_cast<double>(source + 1);
  return static_cast<double>(settings.heads * settings.decoder_layers) * queries * (queries + keys);
}

/// Without the first query and the first key.
AttentionWeights without_first(const AttentionWeights& weights) {
  AttentionWeights rest{weights.layers, weights.heads, weights.queries - 1, weights.keys - 1, {}};
  for (int64_t head = 0; head < weights.layers * weights.heads; ++head) {
    for (int64_t query = 1; query < weights.queries; ++query) {
      const auto row = weights.row(0, head, query).subspan(1);
      rest.values.insert(rest.values.end(), row.begin(), row.end());
    }
  }
  return rest;
}

}  // namespace

void AlignmentSettings::describe(Fields<AlignmentSettings>& field) {
  field("alignment_layer", &AlignmentSettings::alignment_layer,
        "layer of the decoder, from 1, whose attention over the source aligns words; 0: the last", between(0, 1000));
  field("alignment_head", &AlignmentSettings::alignment_head, "head of the layer, from 1; 0: the mean of all",
        between(0, 4096));
  field("alignment_at", &AlignmentSettings::alignment_at,
        "whose attention is a word's: of the position that writes it, or of the next one, which reads it",
        {{"writing", At::writing}, {"reading", At::reading}});
}

std::string to_pharaoh(const std::vector<AlignmentLink>& links) {
  std::string text;
  for (const auto& link : links) {
    fmt::format_to(std::back_inserter(text), "{}{}-{}", text.empty() ? "" : " ", link.source, link.target);
  }
  return text;
}

std::vector<std::string_view> alignment_words(std::string_view text) {
  return split_words(text);
}

std::vector<int64_t> places_in_line(const JoinedTokens& joined, size_t line_words) {
  std::vector<int64_t> places;
  int64_t next = 0;
  for (size_t i = 0; i < joined.words.size(); ++i) {
    const bool exists = i + 1 < joined.words.size() && next < static_cast<int64_t>(line_words);
    places.push_back(exists ? next : -1);
    next += std::max<int64_t>(1, static_cast<int64_t>(alignment_words(joined.words[i]).size()));
  }
  return places;
}

WordAligner::WordAligner(std::shared_ptr<const InferenceModel> model, Vocabularies vocabularies,
                         const AlignmentSettings& settings, const DecodingSettings& search)
    : model_(std::move(model)), vocabularies_(std::move(vocabularies)), settings_(settings) {
  const auto& s = model_->settings();
  const auto check = [](const char* name, int64_t value, int64_t count, const char* what) {
    if (value < 0 || value > count) {
      throw Error(name, fmt::format("there is no {} {}; this model's decoder has {}", what, value, count),
                  fmt::format("give 1 to {}, or leave it out", count));
    }
  };
  check("alignment_layer", settings.alignment_layer, s.decoder_layers, "layer");
  check("alignment_head", settings.alignment_head, s.heads, "head");
  const auto& languages = vocabularies_.target->languages();
  // Behind the end there is no place for one in a forced pass.
  if (languages.empty() || languages.behind_end || search.source_language.empty() || search.target_language.empty()) {
    return;
  }
  told_ = {languages.piece(search.source_language, "decoding.source_language"),
           languages.piece(search.target_language, "decoding.target_language")};
}

AttentionWeights WordAligner::chosen(const AttentionWeights& layer) const {
  AttentionWeights result{1, 1, layer.queries, layer.keys,
                          std::vector<float>(static_cast<size_t>(layer.queries * layer.keys))};
  const int64_t first = settings_.alignment_head > 0 ? settings_.alignment_head - 1 : 0;
  const int64_t end = settings_.alignment_head > 0 ? settings_.alignment_head : layer.heads;
  for (int64_t query = 0; query < layer.queries; ++query) {
    // A position reads what the one before it wrote; the begin token, which the first reads, takes the end's place.
    const bool reading = settings_.alignment_at == AlignmentSettings::At::reading;
    const auto to = result.row(0, 0, reading ? (query + layer.queries - 1) % layer.queries : query);
    for (int64_t head = first; head < end; ++head) {
      const auto weights = layer.row(0, head, query);
      std::transform(weights.begin(), weights.end(), to.begin(), to.begin(), std::plus<>());
    }
  }
  return result;
}

std::string WordAligner::problem(size_t source_pieces, size_t target_pieces) const {
  const auto& model = model_->settings();
  const auto longest = static_cast<int64_t>(std::max(source_pieces, target_pieces)) + (told_ ? 1 : 0);
  if (longest <= most_tokens(model) && weights_of_pass(model, source_pieces, target_pieces) <= most_weights) return "";
  return fmt::format("has {} word pieces and its translation {}, too many to align", source_pieces, target_pieces);
}

std::vector<std::optional<std::vector<AlignmentLink>>> WordAligner::align_what_fits(
    const std::vector<std::string>& sources, const std::vector<size_t>& pieces,
    const std::vector<const Translation*>& translations, const std::vector<std::string>& said) const {
  if (sources.size() != translations.size() || pieces.size() != sources.size()) {
    throw std::invalid_argument("WordAligner: as many translations, and counts of pieces, as sources");
  }
  std::vector<std::string> from, to, told;
  std::vector<std::vector<int64_t>> tokens;
  std::vector<std::optional<std::vector<AlignmentLink>>> links(sources.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!problem(pieces[i], translations[i]->tokens.size()).empty()) continue;
    links[i].emplace();
    from.push_back(sources[i]);
    told.push_back(said.empty() ? "" : said.at(i));
    to.push_back(translations[i]->text);
    tokens.push_back(translations[i]->tokens);
  }
  auto found = align(from, to, 1, tokens, told);
  auto next = found.begin();
  for (auto& link : links) {
    if (link) *link = std::move(*next++);
  }
  return links;
}

std::vector<std::vector<AlignmentLink>> WordAligner::align(const std::vector<std::string>& sources,
                                                           const std::vector<std::string>& targets, int64_t first_line,
                                                           const std::vector<std::vector<int64_t>>& target_tokens,
                                                           const std::vector<std::string>& said) const {
  std::vector<std::vector<AlignmentLink>> links(sources.size());
  visit_pairs(sources, targets, first_line, target_tokens, said,
              [&](size_t pair, const AttentionWeights& weights, const auto& source_places, const auto& target_places) {
                for (size_t word = 0; word < target_places.size(); ++word) {
                  const auto row = weights.row(0, 0, static_cast<int64_t>(word));
                  const int64_t source =
                      source_places[static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin())];
                  if (source >= 0 && target_places[word] >= 0) links[pair].push_back({source, target_places[word]});
                }
              });
  return links;
}

std::vector<WordAttention> WordAligner::attention(const std::vector<std::string>& sources,
                                                  const std::vector<std::string>& targets,
                                                  const std::vector<std::vector<int64_t>>& target_tokens,
                                                  const std::vector<std::string>& said) const {
  std::vector<WordAttention> results(sources.size());
  const auto heads = settings_.alignment_head > 0 ? 1 : static_cast<float>(model_->settings().heads);
  visit_pairs(sources, targets, 1, target_tokens, said,
              [&](size_t pair, const AttentionWeights& weights, const auto& source_places, const auto& target_places) {
                auto& result = results[pair];
                result.source_words = alignment_words(sources[pair]).size();
                result.target_words = alignment_words(targets[pair]).size();
                result.weights.resize(result.source_words * result.target_words);
                for (size_t word = 0; word < target_places.size(); ++word) {
                  const auto row = weights.row(0, 0, static_cast<int64_t>(word));
                  for (size_t i = 0; i < row.size(); ++i) {
                    if (target_places[word] < 0 || source_places[i] < 0) continue;
                    const auto place = static_cast<size_t>(target_places[word]) * result.source_words;
                    result.weights[place + static_cast<size_t>(source_places[i])] += row[i] / heads;
                  }
                }
              });
  return results;
}

void WordAligner::visit_pairs(const std::vector<std::string>& sources, const std::vector<std::string>& targets,
                              int64_t first_line, const std::vector<std::vector<int64_t>>& target_tokens,
                              const std::vector<std::string>& said, const Visit& visit) const {
  const bool split = !target_tokens.empty();
  if (sources.size() != targets.size() || (split && target_tokens.size() != targets.size()) ||
      (!said.empty() && said.size() != sources.size())) {
    throw std::invalid_argument("WordAligner: as many targets, and what else is given of each pair, as sources");
  }
  const auto said_of = [&](size_t pair) { return said.empty() ? std::string_view() : std::string_view(said[pair]); };
  std::vector<AlignedPair> pairs(sources.size());
  std::vector<size_t> places;  // of pairs with text on both sides, in order of length: little padding is computed
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto source = trim(sources[i]), target = trim(targets[i]);
    if (source.empty() || target.empty()) continue;
    const auto read = as_read(said_of(i), source);
    pairs[i].source = vocabularies_.source->encode(read);
    pairs[i].source_words = words_where_blanks_change(*vocabularies_.source, read);
    pairs[i].target = split ? target_tokens[i] : vocabularies_.target->encode(target);
    if (!split) pairs[i].target_words = words_where_blanks_change(*vocabularies_.target, target);
    if (const auto wrong = problem(pairs[i].source.size(), pairs[i].target.size()); !wrong.empty()) {
      throw Error(fmt::format("line {}", first_line + static_cast<int64_t>(i)), wrong, "split it into sentences");
    }
    places.push_back(i);
  }
  std::stable_sort(places.begin(), places.end(),
                   [&](size_t a, size_t b) { return pairs[a].target.size() < pairs[b].target.size(); });

  for (size_t first = 0; first < places.size();) {
    std::vector<std::vector<int64_t>> from, to;
    size_t longest_source = 0, longest_target = 0;
    size_t end = first;
    for (; end < places.size() && from.size() < batch_pairs; ++end) {
      const auto& pair = pairs[places[end]];
      longest_source = std::max(longest_source, pair.source.size());
      longest_target = std::max(longest_target, pair.target.size());
      const double weights = weights_of_pass(model_->settings(), longest_source, longest_target);
      if (!from.empty() && weights * static_cast<double>(from.size() + 1) > batch_weights) break;
      from.push_back(pair.source);
      to.push_back(pair.target);
      if (!told_) continue;
      from.back().insert(from.back().begin(), told_->first);
      to.back().insert(to.back().begin(), told_->second);
    }
    const auto layers = model_->settings().decoder_layers;
    auto maps =
        cross_attention(*model_, from, to, settings_.alignment_layer > 0 ? settings_.alignment_layer - 1 : layers - 1);
    for (size_t i = first; i < end; ++i) {
      if (told_) maps[i - first] = without_first(maps[i - first]);
      const auto& pair = pairs[places[i]];
      const auto text = as_read(said_of(places[i]), sources[places[i]]);
      auto read = tokens_of_line(*vocabularies_.source, pair.source, pair.source_words, alignment_words(text));
      const auto written =
          tokens_of_line(*vocabularies_.target, pair.target, pair.target_words, alignment_words(targets[places[i]]));
      const auto weights = joined_weights(chosen(maps[i - first]), written.joined, read.joined);
      // What is said beside it comes before the source's words, and is none of them.
      const auto words_said = static_cast<int64_t>(alignment_words(said_of(places[i])).size());
      for (auto& place : read.places) place = std::max<int64_t>(-1, place - words_said);
      visit(places[i], weights, read.places, written.places);
    }
    first = end;
  }
}

}  // namespace transformer
