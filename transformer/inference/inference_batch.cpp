#include "transformer/inference/inference_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>
#include <variant>

#include "transformer/base/error.h"
#include "transformer/inference/sampling.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

namespace {

// Tokens encoded at once: enough for the products' full speed, few enough for their rows to stay in the cache.
constexpr int64_t encoded_tokens = 256;
// Rows whose logits, over the whole vocabulary, are in memory at once.
constexpr size_t scored_rows = 64;
// Keys and values of about so many tokens of a layer are allocated at once: a page, which holds the hypotheses of a few
// positions.
constexpr int64_t page_tokens = 64;
// That sentences which are gone may leave to those that come, however little is in use.
constexpr int64_t always_kept_bytes = int64_t{8} << 20;

int64_t positions_of_page(int64_t beam) {
  return std::max<int64_t>(1, page_tokens / beam);
}
/// Of a page.
int64_t tokens_of_page(int64_t beam) {
  return positions_of_page(beam) * beam;
}

using Bytes = unsigned char;

/// Keys and values, float32 or bf16, or states of recurrent units, float32.
struct Sentence {
  int64_t beam = 1;
  int64_t length = 0;                                                // positions decoded
  Buffer<Bytes> memory;                                              // [layers, S, record]; kept while none is here
  std::vector<const void*> memory_records;                           // of the first layer
  std::vector<Buffer<Bytes>> pages;                                  // [layers, positions of a page, beam, record] each
  size_t pages_left = 0;                                             // the first ones, read no more: others have them
  std::vector<std::vector<void*>> histories;                         // of every hypothesis: the first layer's records
  std::shared_ptr<const OutputConstraint> constraint;                // in the beginning; null: none
  std::vector<std::shared_ptr<const OutputConstraint>> constraints;  // of every hypothesis, where there is one
  std::vector<int32_t> candidates;                                   // of a shortlist; empty: all
};

/// What the queries of an attention are compared with, and how.
struct Heads {
  int64_t count, d_k, d_v;
  float scale;            // of dot products
  const float* additive;  // v [H, d_k]; null: dot products
};

/// Neighbouring positions.
struct Span {
  int64_t first, count;
  bool operator==(const Span&) const = default;
};

std::span<const void* const> within(std::span<const void* const> records, const Span& span) {
  return records.subspan(static_cast<size_t>(span.first), static_cast<size_t>(span.count));
}

float scale_of(int64_t d_k) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(d_k)));
}

}  // namespace

struct InferenceBatch::Implementation {
  const InferenceModel& model;
  const ModelSettings& settings;
  const Kernels& kernels;
  int64_t d_model, key_width, value_width;
  bool recurrent;          // the decoder's layers, in self-attention's place
  int64_t record;          // elements: a position's keys, then its values, of a layer; or a layer's state
  bool over_parameters;    // attention, in a network's place
  bool rounded;            // records are bf16
  bool normalised_before;  // the sub-layers
  int64_t record_bytes;
  float scale;  // of dot products

  std::vector<Sentence> sentences;
  std::vector<int64_t> free_places;
  std::map<int64_t, std::vector<Buffer<Bytes>>> free_pages;  // by their size
  int64_t cache_bytes = 0;                                   // of all sentences' memories and pages
  int64_t kept_bytes = 0;                                    // of free places' memories and free pages

  std::vector<float> nothing;  // zeros [d_model]
  Activations activations;
  Buffer<float> x, y, normalised, wide, gates, attended, scores, logits;
  Buffer<Bytes> read_records;  // [rows, record], of targets that are known
  std::vector<const void*> records;
  std::vector<Selection> selections;
  std::function<void(const WatchedAttention&)> watcher;
  std::vector<std::vector<float>> row_attention;  // of the rows of a step that it is wanted of; empty: of none
  Failures* failures = nullptr;                   // of the step that is being taken; null: they are thrown
  std::vector<float> told;                        // weights with those of the positions outside the window, [H, keys]
  GatheredMatrix listed;                          // the projection, to what sentences with a shortlist need of it
  int64_t unlisted_sentences = 0;                 // those without
  std::vector<float> candidate_logits, whole_row, maxima;
  std::vector<float> best_logits, left;
  std::vector<int32_t> best_tokens;
  std::vector<std::pair<float, int64_t>> likely;  // of a row, where more are wanted than are selected

  explicit Implementation(const InferenceModel& given)
      : model(given),
        settings(given.settings()),
        kernels(given.kernels()),
        d_model(settings.d_model),
        key_width(settings.heads * settings.d_k),
        value_width(settings.heads * settings.d_v),
        recurrent(settings.decoder_self_attention == ModelSettings::DecoderSelfAttention::ssru),
        record(record_elements(settings, given.precision())),
        over_parameters(settings.feed_forward == ModelSettings::FeedForward::attention_over_parameters),
        rounded(given.precision() != Precision::float32),
        normalised_before(settings.normalization == ModelSettings::Normalization::pre),
        record_bytes(record * attended_bytes(given.precision())),
        scale(settings.compatibility == ModelSettings::Compatibility::dot_product ? 1 : scale_of(settings.d_k)),
        nothing(static_cast<size_t>(d_model)),
        activations(given.kernels(), given.precision()),
        listed(given.projection()) {}

  // Rows a power of 2 apart would compete for the same places of the cache.
  static int64_t stride(int64_t columns) { return PackedMatrix::padded(columns) + 16; }
  int64_t model_stride() const { return stride(d_model); }
  int64_t wide_stride() const {
    const int64_t inner = over_parameters ? settings.parameter_heads * settings.parameter_d_k : settings.d_ff;
    return stride(std::max({inner, 2 * key_width + value_width, recurrent ? 2 * d_model : 0}));
  }
  int64_t attended_stride() const {
    return stride(std::max(value_width, over_parameters ? settings.parameter_heads * settings.parameter_d_v : 0));
  }

  /// As many as a record has, so that keys and values fit, and a recurrent unit's state, which is never rounded.
  static int64_t record_elements(const ModelSettings& s, Precision precision) {
    const int64_t keys_and_values = s.heads * (s.d_k + s.d_v);
    if (s.decoder_self_attention == ModelSettings::DecoderSelfAttention::attention) return keys_and_values;
    const int64_t of_float = 4 / attended_bytes(precision);
    return std::max((keys_and_values + of_float - 1) / of_float, s.d_model) * of_float;
  }

  void reserve(int64_t rows) {
    x.reserve(rows * model_stride());
    y.reserve(rows * model_stride());
    if (normalised_before) normalised.reserve(rows * model_stride());
    wide.reserve(rows * wide_stride());
    attended.reserve(rows * attended_stride());
  }

  /// to = LayerNorm(from + added), a row; may be `from`.
  void normalise_row(const float* from, const float* added, const InferenceModel::Norm& norm, float* to) const {
    kernels.add_and_normalise(from, added, d_model, norm.gain.data(), norm.bias.data(),
                              static_cast<float>(settings.layer_norm_epsilon), to);
  }

  /// to = LayerNorm(x), rows as far apart as x's; may be x.
  void normalise(int64_t rows, const InferenceModel::Norm& norm, float* to) const {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t first = row * model_stride();
      normalise_row(x.data() + first, nothing.data(), norm, to + first);
    }
  }

  /// The residual connection: x = LayerNorm(x + y), or x + y.
  void add(int64_t rows, const InferenceModel::Norm& norm) {
    for (int64_t row = 0; row < rows; ++row) {
      float* to = x.data() + row * model_stride();
      const float* added = y.data() + row * model_stride();
      if (normalised_before) {
        std::transform(to, to + d_model, added, to, std::plus<>());
      } else {
        normalise_row(to, added, norm, to);
      }
    }
  }

  /// What a sub-layer is given, and lies as x does: x, or LayerNorm(x).
  const float* sublayer_input(int64_t rows, const InferenceModel::Norm& norm) {
    if (!normalised_before) return x.data();
    normalise(rows, norm, normalised.data());
    return normalised.data();
  }

  /// What a stack of layers puts out: x as it is, or normalised once more.
  void finish_stack(int64_t rows, const InferenceModel::Norm& norm) {
    if (normalised_before) normalise(rows, norm, x.data());
  }

  /// wide = what the sub-layer is given, times W^T
  void project(int64_t rows, const InferenceModel::Norm& norm, const PackedMatrix& matrix, bool relu = false) {
    activations.set(sublayer_input(rows, norm), rows, d_model, model_stride());
    matrix.multiply(activations, wide.data(), wide_stride(), relu);
  }

  /// Adds attended W^T to x.
  void finish_attention(int64_t rows, const PackedMatrix& output, const InferenceModel::Norm& norm) {
    activations.set(attended.data(), rows, output.depth(), attended_stride());
    output.multiply(activations, y.data(), model_stride());
    add(rows, norm);
  }

  /// The same of the decoder's self-attention, or of what is in its place, which has its result in y.
  void finish_self_attention(int64_t rows, const InferenceModel::DecoderLayer& layer) {
    if (recurrent) {
      add(rows, layer.after_self_attention);
    } else {
      finish_attention(rows, layer.self_output, layer.after_self_attention);
    }
  }

  void feed_forward(int64_t rows, const InferenceModel::FeedForward& layer, const InferenceModel::Norm& norm) {
    if (const auto* attention = std::get_if<InferenceModel::ParameterAttention>(&layer)) {
      project(rows, norm, attention->query);
      const Heads heads{settings.parameter_heads, settings.parameter_d_k, settings.parameter_d_v,
                        scale_of(settings.parameter_d_k), nullptr};
      attend(heads, rounded, 0, rows, attention->records, 0);
      finish_attention(rows, attention->output, norm);
      return;
    }
    const auto& network = std::get<InferenceModel::Network>(layer);
    using Activation = ModelSettings::Activation;
    project(rows, norm, network.inner, settings.activation == Activation::relu);
    if (settings.activation == Activation::gelu) {
      for (int64_t row = 0; row < rows; ++row) kernels.gelu(wide.data() + row * wide_stride(), settings.d_ff);
    } else if (settings.activation == Activation::swish) {
      for (int64_t row = 0; row < rows; ++row) kernels.swish(wide.data() + row * wide_stride(), settings.d_ff);
    } else if (settings.activation == Activation::swiglu) {
      gates.reserve(rows * wide_stride());
      network.gate.multiply(activations, gates.data(), wide_stride());
      for (int64_t row = 0; row < rows; ++row) {
        kernels.swiglu(gates.data() + row * wide_stride(), wide.data() + row * wide_stride(), settings.d_ff);
      }
    }
    activations.set(wide.data(), rows, settings.d_ff, wide_stride());
    network.outer.multiply(activations, y.data(), model_stride());
    add(rows, norm);
  }

  /// The model's own heads; `additive`: of an attention, none where compatibility is a dot product.
  Heads heads_of(const std::vector<float>& additive) const {
    return {settings.heads, settings.d_k, settings.d_v, scale, additive.empty() ? nullptr : additive.data()};
  }

  /// attended = attention of the queries in `count` rows of wide, from `row` on, over the same records.
  void attend(const Heads& heads, bool of_bf16, int64_t row, int64_t count, std::span<const void* const> positions,
              int64_t offset) {
    const auto length = static_cast<int64_t>(positions.size());
    scores.reserve(AttentionInput::rows_at_once * heads.count * length);
    const AttentionInput input{wide.data() + row * wide_stride(),
                               count,
                               wide_stride(),
                               positions.data(),
                               offset,
                               length,
                               heads.count,
                               heads.d_k,
                               heads.d_v,
                               heads.scale,
                               heads.additive};
    (of_bf16 ? kernels.attend_bf16 : kernels.attend_float)(
        input, scores.data(), attended.data() + row * attended_stride(), attended_stride());
  }

  /// Asks the memory for the keys of the first positions of a row that comes next, `offset` elements after their
  /// records: from there on the kernels do.
  void ask_for_keys(std::span<const void* const> positions, int64_t offset) const {
    constexpr size_t first_positions = 4;
    const int64_t element = attended_bytes(model.precision());
    for (const void* position : positions.first(std::min(positions.size(), first_positions))) {
      const auto* keys = static_cast<const Bytes*>(position) + offset * element;
      for (int64_t i = 0; i < key_width * element; i += 64) __builtin_prefetch(keys + i);
    }
  }

  /// What the query at `position` of `count` sees of them in self-attention: those that exist already, in the decoder.
  Span seen(int64_t position, int64_t count) const {
    if (settings.attention_window == 0) return {0, count};
    const int64_t reach = settings.attention_window / 2, first = std::max<int64_t>(0, position - reach);
    return {first, position + std::min(reach, count - 1 - position) + 1 - first};
  }

  /// Tells of the last attention, of a single query over `span` of `keys` positions.
  void tell(AttentionKind kind, size_t layer, int64_t place, int64_t query, int64_t keys, const Span& span) {
    const float* weights = scores.data();
    if (span.count < keys) {
      told.assign(static_cast<size_t>(settings.heads * keys), 0);
      for (int64_t head = 0; head < settings.heads; ++head) {
        std::copy_n(weights + head * span.count, span.count, told.data() + head * keys + span.first);
      }
      weights = told.data();
    }
    watcher(
        {kind, static_cast<int64_t>(layer), place, query, keys, {weights, static_cast<size_t>(settings.heads * keys)}});
  }

  /// Of the last attention, of a single query over so many positions, the mean over the heads.
  std::vector<float> mean_of_heads(int64_t positions) const {
    std::vector<float> mean(static_cast<size_t>(positions));
    const float* weights = scores.data();
    for (int64_t head = 0; head < settings.heads; ++head, weights += positions) {
      std::transform(mean.begin(), mean.end(), weights, mean.begin(), std::plus<>());
    }
    for (float& weight : mean) weight /= static_cast<float>(settings.heads);
    return mean;
  }

  /// Stores a record's keys and values, rounded where they are.
  void store(const float* keys_and_values, void* to) const {
    const int64_t width = key_width + value_width;
    if (rounded) {
      kernels.to_bf16(keys_and_values, width, static_cast<uint16_t*>(to));
    } else {
      std::memcpy(to, keys_and_values, static_cast<size_t>(width) * sizeof(float));
    }
  }

  /// What a recurrent unit makes of a row of wide, added to x by `add`: the state of the row before, null where it is
  /// the first, becomes `state`.
  void recur(int64_t row, const void* before, void* state) {
    kernels.recur(wide.data() + row * wide_stride(), before ? static_cast<const float*>(before) : nothing.data(),
                  d_model, static_cast<float*>(state), y.data() + row * model_stride());
  }

  int64_t take_place() {
    if (free_places.empty()) {
      sentences.emplace_back();
      return static_cast<int64_t>(sentences.size()) - 1;
    }
    const int64_t place = free_places.back();
    free_places.pop_back();
    return place;
  }

  /// Encodes sentences one after the other in the rows of one matrix, and fills in their memory.
  void encode(std::span<const Source> sources, std::span<const int64_t> places) {
    int64_t rows = 0;
    for (const auto& source : sources) rows += static_cast<int64_t>(source.pieces.size());
    reserve(rows);
    int64_t row = 0;
    for (const auto& source : sources) {
      int64_t position = 0;
      for (const int64_t token : source.pieces)
        model.embed_source(token, position++, x.data() + row++ * model_stride());
    }
    for (size_t index = 0; index < model.encoder().size(); ++index) {
      const auto& layer = model.encoder()[index];
      project(rows, layer.after_attention, layer.query_key_value);
      row = 0;
      for (size_t i = 0; i < sources.size(); ++i) {
        const auto count = static_cast<int64_t>(sources[i].pieces.size());
        records.clear();
        for (int64_t k = 0; k < count; ++k) records.push_back(wide.data() + (row + k) * wide_stride());
        // A row's result does not depend on which others are attended to with it.
        for (int64_t k = 0, end = 0; k < count; k = end) {
          const auto span = seen(k, count);
          do {
            ++end;
          } while (!watcher && end < count && seen(end, count) == span);
          attend(heads_of(layer.additive), false, row + k, end - k, within(records, span), key_width);
          if (watcher) tell(AttentionKind::encoder, index, places[i], k, count, span);
        }
        row += count;
      }
      finish_attention(rows, layer.attention_output, layer.after_attention);
      feed_forward(rows, layer.feed_forward, layer.after_feed_forward);
    }
    finish_stack(rows, model.encoder_norm());

    for (size_t i = 0; i < sources.size(); ++i) {
      auto& sentence = sentences[places[i]];
      const auto count = static_cast<int64_t>(sources[i].pieces.size());
      kept_bytes -= sentence.memory.size();
      sentence.memory.reserve(static_cast<int64_t>(model.decoder().size()) * count * record_bytes);
      cache_bytes += sentence.memory.size();
      sentence.memory_records.clear();
      for (int64_t k = 0; k < count; ++k) sentence.memory_records.push_back(sentence.memory.data() + k * record_bytes);
    }
    activations.set(x.data(), rows, d_model, model_stride());
    for (size_t layer = 0; layer < model.decoder().size(); ++layer) {
      model.decoder()[layer].key_value.multiply(activations, wide.data(), wide_stride());
      row = 0;
      for (size_t i = 0; i < sources.size(); ++i) {
        const auto count = static_cast<int64_t>(sources[i].pieces.size());
        Bytes* to = sentences[places[i]].memory.data() + static_cast<int64_t>(layer) * count * record_bytes;
        for (int64_t k = 0; k < count; ++k, ++row, to += record_bytes) store(wide.data() + row * wide_stride(), to);
      }
    }
  }

  int64_t page_bytes(int64_t beam) const {
    return static_cast<int64_t>(model.decoder().size()) * tokens_of_page(beam) * record_bytes;
  }

  /// What sentences that are gone leave to those to come is little, beside what is in use: frees the rest. Pages of
  /// `page_size` go last, the size that was used last and most often is the next to be needed.
  void keep_little(int64_t page_size) {
    const auto too_much = [&] { return kept_bytes > std::max(always_kept_bytes, cache_bytes / 4); };
    if (!too_much()) return;
    std::erase_if(free_pages, [&](const auto& free) {
      if (free.first == page_size) return false;
      kept_bytes -= free.first * std::ssize(free.second);
      return true;
    });
    // The place that was left last is taken first.
    for (auto place = free_places.begin(); place != free_places.end() && too_much(); ++place) {
      auto& memory = sentences[static_cast<size_t>(*place)].memory;
      kept_bytes -= memory.size();
      memory = {};
    }
    for (auto& pages = free_pages[page_size]; !pages.empty() && too_much(); pages.pop_back()) kept_bytes -= page_size;
  }

  /// For the next sentence that needs one of its size.
  void keep_page(Buffer<Bytes> page) {
    const int64_t bytes = page.size();
    free_pages[bytes].push_back(std::move(page));
    cache_bytes -= bytes;
    kept_bytes += bytes;
    keep_little(bytes);
  }

  /// The first position that is read in taking a sentence of so many positions one further.
  int64_t first_read(int64_t length) const {
    return recurrent ? std::max<int64_t>(0, length - 1) : seen(length, length + 1).first;
  }

  /// Gives back the pages whose positions nothing will read any more, whatever is taken back.
  void leave_pages(Sentence& sentence) {
    const int64_t least =
        sentence.beam == 1 ? std::max<int64_t>(0, sentence.length - most_taken_back) : sentence.length;
    const int64_t first = first_read(least);
    const int64_t positions = positions_of_page(sentence.beam);
    for (auto& page = sentence.pages_left; (static_cast<int64_t>(page) + 1) * positions <= first; ++page) {
      keep_page(std::move(sentence.pages[page]));
    }
  }

  /// Where hypothesis `slot` of a sentence keeps its keys and values, or its state, of `position`, one being decoded,
  /// in the first layer.
  void* new_record(Sentence& sentence, int64_t slot, int64_t position) {
    const int64_t positions = positions_of_page(sentence.beam);
    const auto page = static_cast<size_t>(position / positions);
    if (page == sentence.pages.size()) {
      leave_pages(sentence);
      const int64_t bytes = page_bytes(sentence.beam);
      if (auto& free = free_pages[bytes]; free.empty()) {
        sentence.pages.emplace_back(bytes);
      } else {
        sentence.pages.push_back(std::move(free.back()));
        free.pop_back();
        kept_bytes -= bytes;
      }
      cache_bytes += bytes;
    }
    return sentence.pages[page].data() + (position % positions * sentence.beam + slot) * record_bytes;
  }

  /// What `ask` finds out from the constraint of the sentence at `place`; `otherwise` where that has failed.
  template <class Ask, class Answer>
  Answer asked(int64_t place, const Ask& ask, Answer otherwise) {
    if (!failures) return ask();
    if (failures->contains(place)) return otherwise;
    try {
      return ask();
    } catch (...) {
      failures->emplace(place, std::current_exception());
      return otherwise;
    }
  }
  bool is_free(const OutputConstraint& constraint, const Row& row) {
    return asked(
        row.place, [&] { return constraint.free(); }, true);
  }

  /// Gives every hypothesis its history, which ends with a record for each of its rows.
  void follow(std::span<const Row> rows) {
    std::vector<std::vector<void*>> next;
    std::vector<std::shared_ptr<const OutputConstraint>> constraints;
    for (size_t first = 0; first < rows.size();) {
      auto& sentence = sentences[rows[first].place];
      next.clear();
      constraints.clear();
      size_t end = first;
      while (end < rows.size() && rows[end].place == rows[first].place) ++end;
      for (size_t row = first; row < end; ++row) {
        if (rows[row].follows) {
          if (sentence.beam != 1 || next.empty() || (sentence.constraint && !is_free(*constraints.back(), rows[row]))) {
            throw std::logic_error("InferenceBatch: guesses are read of one hypothesis, which may be anything");
          }
          const auto ahead = static_cast<int64_t>(row - first);
          next.back().push_back(new_record(sentence, 0, sentence.length + ahead));
          continue;
        }
        if (static_cast<int64_t>(next.size()) == sentence.beam) {
          throw std::logic_error("InferenceBatch: more hypotheses than the sentence's beam");
        }
        auto& history = next.emplace_back();
        if (sentence.length > 0) {
          // The last that follows a parent takes its history over.
          auto& parent = sentence.histories.at(static_cast<size_t>(rows[row].parent));
          const auto others = rows.subspan(row + 1, end - row - 1);
          const bool followed = std::any_of(others.begin(), others.end(),
                                            [&](const Row& other) { return other.parent == rows[row].parent; });
          if (followed) {
            history.reserve(parent.size() + 1);
            history = parent;
          } else {
            history = std::move(parent);
          }
        }
        history.push_back(new_record(sentence, static_cast<int64_t>(next.size()) - 1, sentence.length));
        if (sentence.constraint) {
          if (sentence.length > 0) {
            const auto& parent = sentence.constraints.at(rows[row].parent);
            constraints.push_back(asked(
                rows[row].place, [&] { return state_after(parent, rows[row].token); }, parent));
          } else {
            constraints.push_back(sentence.constraint);
          }
        }
      }
      std::swap(sentence.histories, next);
      std::swap(sentence.constraints, constraints);
      first = end;
    }
  }

  /// Takes rows one token further: `activations` are what the projection to the vocabulary is given. Returns the
  /// constraint of each row, null where anything may come.
  std::vector<const OutputConstraint*> advance(std::span<const Row> given) {
    const auto rows = static_cast<int64_t>(given.size());
    reserve(rows);
    follow(given);
    row_attention.clear();
    if (std::any_of(given.begin(), given.end(), [](const Row& row) { return row.attention; })) {
      row_attention.resize(given.size());
    }
    std::vector<std::span<void* const>> histories(given.size());
    std::vector<const OutputConstraint*> constraints(given.size());
    for (size_t row = 0, slot = 0, ahead = 0; row < given.size(); ++row) {
      const bool first = row == 0 || given[row].place != given[row - 1].place;
      slot = first ? 0 : slot + (given[row].follows ? 0 : 1);
      ahead = given[row].follows ? ahead + 1 : 0;
      auto& sentence = sentences[given[row].place];
      const auto position = sentence.length + static_cast<int64_t>(ahead);
      histories[row] = std::span(sentence.histories[slot]).first(static_cast<size_t>(position) + 1);
      if (sentence.constraint && !is_free(*sentence.constraints[slot], given[row])) {
        constraints[row] = sentence.constraints[slot].get();
      }
      model.embed_target(given[row].token, position, x.data() + static_cast<int64_t>(row) * model_stride());
    }

    for (size_t index = 0; index < model.decoder().size(); ++index) {
      const auto& layer = model.decoder()[index];
      project(rows, layer.after_self_attention, recurrent ? layer.recurrence : layer.query_key_value);
      const auto page_offset = [&](int64_t row) {
        return static_cast<int64_t>(index) * tokens_of_page(sentences[given[row].place].beam) * record;
      };
      const auto record_of = [&](int64_t row, void* of_first_layer) {
        return static_cast<Bytes*>(of_first_layer) + page_offset(row) / record * record_bytes;
      };
      const auto seen_history = [&](int64_t row) {
        const auto keys = std::ssize(histories[row]);
        return within(histories[row], seen(keys - 1, keys));
      };
      for (int64_t row = 0; row < rows; ++row) {
        const auto& history = histories[row];
        if (recurrent) {
          recur(row, history.size() > 1 ? record_of(row, history[history.size() - 2]) : nullptr,
                record_of(row, history.back()));
          continue;
        }
        if (row + 1 < rows) ask_for_keys(seen_history(row + 1), page_offset(row + 1));
        store(wide.data() + row * wide_stride() + key_width, record_of(row, history.back()));
        attend(heads_of(layer.self_additive), rounded, row, 1, seen_history(row), page_offset(row));
      }
      finish_self_attention(rows, layer);

      project(rows, layer.after_memory_attention, layer.query);
      const auto memory_offset = [&](const std::vector<const void*>& memory) {
        return static_cast<int64_t>(index) * std::ssize(memory) * record;
      };
      // Hypotheses of a sentence share its memory, and so do its positions.
      for (int64_t row = 0, end = 0; row < rows; row = end) {
        const int64_t place = given[row].place;
        // Of a single row, the weights are left behind.
        const bool wanted = given[row].attention && index + 1 == model.decoder().size();
        do {
          ++end;
        } while (!wanted && end < rows && given[end].place == place);
        const auto& memory = sentences[place].memory_records;
        if (end < rows) {
          const auto& next = sentences[given[end].place].memory_records;
          ask_for_keys(next, memory_offset(next));
        }
        attend(heads_of(layer.memory_additive), rounded, row, end - row, memory, memory_offset(memory));
        if (wanted) row_attention[static_cast<size_t>(row)] = mean_of_heads(std::ssize(memory));
      }
      finish_attention(rows, layer.memory_output, layer.after_memory_attention);
      feed_forward(rows, layer.feed_forward, layer.after_feed_forward);
    }
    finish_stack(rows, model.decoder_norm());
    for (size_t row = 0; row < given.size(); ++row) {
      const bool further = row == 0 || given[row].place != given[row - 1].place || given[row].follows;
      if (further) ++sentences[given[row].place].length;
    }
    activations.set(x.data(), rows, d_model, model_stride());
    return constraints;
  }

  /// Takes the decoder over known targets, one after the other in the rows of one matrix: their states are in x.
  void read(std::span<const Target> targets) {
    int64_t rows = 0;
    for (const auto& target : targets) rows += static_cast<int64_t>(target.read.size());
    reserve(rows);
    int64_t row = 0;
    for (const auto& target : targets) {
      int64_t position = 0;
      for (const int64_t token : target.read) model.embed_target(token, position++, x.data() + row++ * model_stride());
    }
    read_records.reserve(rows * record_bytes);
    for (size_t index = 0; index < model.decoder().size(); ++index) {
      const auto& layer = model.decoder()[index];
      project(rows, layer.after_self_attention, recurrent ? layer.recurrence : layer.query_key_value);
      records.clear();
      for (row = 0; row < rows; ++row) {
        records.push_back(read_records.data() + row * record_bytes);
        if (!recurrent) store(wide.data() + row * wide_stride() + key_width, read_records.data() + row * record_bytes);
      }
      row = 0;
      for (const auto& target : targets) {
        const auto of_target = std::span<const void* const>(records).subspan(static_cast<size_t>(row));
        const auto count = static_cast<int64_t>(target.read.size());
        for (int64_t query = 0; query < count; ++query, ++row) {
          if (recurrent) {
            recur(row, query > 0 ? read_records.data() + (row - 1) * record_bytes : nullptr,
                  read_records.data() + row * record_bytes);
            continue;
          }
          const auto span = seen(query, query + 1);
          attend(heads_of(layer.self_additive), rounded, row, 1, within(of_target, span), 0);
          if (watcher) tell(AttentionKind::decoder, index, target.place, query, query + 1, span);
        }
      }
      finish_self_attention(rows, layer);

      project(rows, layer.after_memory_attention, layer.query);
      row = 0;
      for (const auto& target : targets) {
        const auto& memory = sentences.at(target.place).memory_records;
        const auto keys = static_cast<int64_t>(memory.size()), count = static_cast<int64_t>(target.read.size());
        const int64_t at_once = watcher ? 1 : count;
        for (int64_t query = 0; query < count; query += at_once, row += at_once) {
          attend(heads_of(layer.memory_additive), rounded, row, at_once, memory,
                 static_cast<int64_t>(index) * keys * record);
          if (watcher) tell(AttentionKind::cross, index, target.place, query, keys, {0, keys});
        }
      }
      finish_attention(rows, layer.memory_output, layer.after_memory_attention);
      feed_forward(rows, layer.feed_forward, layer.after_feed_forward);
    }
    finish_stack(rows, model.decoder_norm());
  }

  /// H = -Σ p log p of softmax(`row`), whose maximum and sum of exp(logit - maximum) `selection` has.
  static double entropy_of(std::span<const float> row, const Selection& selection) {
    double sum = 0;  // of exp(logit - maximum) (logit - maximum)
    for (const float logit : row) {
      const float below = logit - selection.maximum;
      const float weight = std::exp(below);
      if (weight > 0) sum += static_cast<double>(weight * below);
    }
    // Rounding may leave less than nothing of it; what is not a number stays so.
    const double entropy = std::log(selection.sum) - sum / selection.sum;
    return entropy < 0 ? 0 : entropy;
  }

  void score(std::span<const Target> targets, std::span<std::vector<double>> results,
             std::span<std::vector<double>> entropies) {
    read(targets);
    // Of every row, which target is told of it and of which token; none: no_target.
    constexpr size_t no_target = std::numeric_limits<size_t>::max();
    std::vector<std::pair<size_t, int64_t>> wanted;
    for (size_t i = 0; i < targets.size(); ++i) {
      if (targets[i].next.empty()) wanted.insert(wanted.end(), targets[i].read.size(), {no_target, 0});
      for (const int64_t token : targets[i].next) wanted.emplace_back(i, token);
    }
    if (std::all_of(wanted.begin(), wanted.end(), [](const auto& each) { return each.first == no_target; })) return;
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const auto columns = PackedMatrix::padded(model.projection().outputs());
    for (size_t first = 0; first < wanted.size(); first += scored_rows) {
      const size_t rows = std::min(scored_rows, wanted.size() - first);
      activations.set(x.data() + static_cast<int64_t>(first) * model_stride(), static_cast<int64_t>(rows), d_model,
                      model_stride());
      selections.assign(rows, {-infinity, 0, 0, 0, infinity, nullptr, nullptr});
      model.projection().select(activations, 0, selections, logits, /*kept=*/true);
      for (size_t row = 0; row < rows; ++row) {
        const auto& [of, token] = wanted[first + row];
        if (of == no_target) continue;
        const float* of_row = logits.data() + static_cast<int64_t>(row) * columns;
        const auto& selection = selections[row];
        results[of].push_back(static_cast<double>(of_row[token]) -
                              (static_cast<double>(selection.maximum) + std::log(selection.sum)));
        if (entropies.empty()) continue;
        const auto outputs = static_cast<size_t>(model.projection().outputs());
        entropies[of].push_back(entropy_of({of_row, outputs}, selection));
      }
    }
  }

  std::vector<int64_t> allowed_at(int64_t place, const OutputConstraint& constraint, int64_t size) {
    return asked(
        place, [&] { return allowed_tokens(constraint, size); }, std::vector<int64_t>{Vocabulary::end});
  }
  bool is_told(int64_t place, const OutputConstraint& constraint) {
    return asked(
        place, [&] { return constraint.told(); }, false);
  }

  /// Rules out what never comes, and what the constraint of the row, where there is one, does not allow.
  void rule_out(std::span<float> values, const OutputConstraint* constraint, int64_t place = 0) {
    if (constraint) {
      const auto tokens = allowed_at(place, *constraint, std::ssize(values));
      left.clear();
      for (const int64_t token : tokens) left.push_back(values[static_cast<size_t>(token)]);
      std::fill(values.begin(), values.end(), impossible_logit);
      for (size_t i = 0; i < tokens.size(); ++i) values[static_cast<size_t>(tokens[i])] = left[i];
    } else {
      std::fill_n(values.begin(), Vocabulary::first_written, impossible_logit);
    }
  }

  /// Where the logit of `token` is in a row of logits.
  int64_t column_of(int32_t token, bool shortened) const { return shortened ? listed.slot(token) : token; }
  int64_t columns_of(bool shortened) const {
    return PackedMatrix::padded(shortened ? listed.size() : model.projection().outputs());
  }

  /// For `width` logits of a row; where they are more than are selected, for the softmax alone.
  Selection nothing_selected(int64_t row, int64_t width) {
    const float threshold = width > widest_selection ? -impossible_logit : impossible_logit;
    return {impossible_logit,
            0,
            static_cast<int32_t>(width),
            0,
            threshold,
            best_logits.data() + row * width,
            best_tokens.data() + row * width};
  }

  /// Selects among `candidates`, which their places stand for.
  void select_candidates(std::span<const int32_t> candidates, int64_t row, bool shortened) {
    const float* from = logits.data() + row * columns_of(shortened);
    candidate_logits.clear();
    for (const int32_t token : candidates) candidate_logits.push_back(from[column_of(token, shortened)]);
    auto& selection = selections[row];
    selection = nothing_selected(row, selection.width);
    kernels.select(candidate_logits.data(), std::ssize(candidates), 0, 0, selection);
  }

  /// The logits of the whole vocabulary, of which `candidates` alone are possible. Valid until the next call.
  std::span<float> whole_of(std::span<const int32_t> candidates, int64_t row, bool shortened) {
    const float* from = logits.data() + row * columns_of(shortened);
    whole_row.assign(static_cast<size_t>(model.projection().outputs()), impossible_logit);
    for (const int32_t token : candidates) whole_row[static_cast<size_t>(token)] = from[column_of(token, shortened)];
    return whole_row;
  }

  Continuations best(std::span<const Row> given, int64_t width, std::span<const OutputConstraint* const> constraints,
                     const WholeRow& tell_row) {
    const auto rows = static_cast<int64_t>(given.size());
    constexpr int64_t allowed = Vocabulary::first_written;
    const int64_t returned = std::clamp<int64_t>(model.projection().outputs() - allowed, 0, width);
    const auto size = static_cast<size_t>(rows * returned);
    best_logits.resize(size);
    best_tokens.resize(size);
    selections.clear();
    const bool many = returned > widest_selection;
    for (int64_t row = 0; row < rows; ++row) selections.push_back(nothing_selected(row, returned));
    const bool shortened = unlisted_sentences == 0;
    const auto panels = static_cast<size_t>((model.projection().outputs() + kernels.columns - 1) / kernels.columns);
    maxima.resize(static_cast<size_t>(rows) * panels);
    for (size_t row = 0; row < given.size(); ++row) {
      if (!given[row].whole || !sentences[given[row].place].candidates.empty()) continue;
      selections[row].maxima = maxima.data() + row * panels;
    }
    const bool kept =
        many ||
        std::any_of(constraints.begin(), constraints.end(), [](const auto* constraint) { return constraint; }) ||
        std::any_of(given.begin(), given.end(),
                    [&](const Row& row) { return row.whole || !sentences[row.place].candidates.empty(); });
    if (shortened) {
      const int64_t columns = PackedMatrix::padded(listed.size());
      logits.reserve(rows * columns);
      listed.matrix().multiply(activations, logits.data(), columns);
    } else {
      model.projection().select(activations, allowed, selections, logits, kept);
    }
    for (int64_t row = 0; row < rows; ++row) {
      const auto& candidates = sentences[given[row].place].candidates;
      if (!candidates.empty()) select_candidates(candidates, row, shortened);
    }

    Continuations continuations{returned, {}, {}};
    continuations.tokens.reserve(size);
    continuations.log_probabilities.reserve(size);
    for (int64_t row = 0; row < rows; ++row) {
      const auto& selection = selections[row];
      const double normaliser = static_cast<double>(selection.maximum) + std::log(selection.sum);
      const auto& candidates = sentences[given[row].place].candidates;
      const auto values = [&] {
        const int64_t outputs = model.projection().outputs();
        if (!candidates.empty()) return whole_of(candidates, row, shortened);
        return std::span(logits.data() + row * PackedMatrix::padded(outputs), static_cast<size_t>(outputs));
      };
      if (given[row].whole) {
        const auto all = values();
        const int64_t place = given[row].place;
        const auto* constraint = constraints[row];
        rule_out(all, constraint, place);
        // A shortlist may lack what is told.
        float* const token = constraint && is_told(place, *constraint)
                                 ? &all[static_cast<size_t>(allowed_at(place, *constraint, std::ssize(all)).front())]
                                 : nullptr;
        if (token && !std::isfinite(*token)) *token = 0;
        RowScores passed{all, token ? static_cast<double>(*token) : normaliser};
        if (!constraints[row] && candidates.empty()) {
          const std::span of_row = std::span(maxima).subspan(static_cast<size_t>(row) * panels, panels);
          passed.maxima = of_row;
          passed.block = static_cast<size_t>(kernels.columns);
          of_row[0] =
              kernels.largest(all.data(), std::min(kernels.columns, std::ssize(all)));  // without what never comes
          if (!many) passed.best = {selection.tokens, static_cast<size_t>(selection.count)};
        }
        tell_row(static_cast<size_t>(row), passed);
        continuations.tokens.resize(continuations.tokens.size() + static_cast<size_t>(returned));
        continuations.log_probabilities.resize(continuations.tokens.size());
        continue;
      }
      if (const auto* constraint = constraints[row]) {
        const auto all = values();
        std::vector<Continuations::Candidate> left_over;
        for (const int64_t token : allowed_at(given[row].place, *constraint, model.projection().outputs())) {
          const double logit = static_cast<double>(all[static_cast<size_t>(token)]);
          left_over.push_back({is_told(given[row].place, *constraint) ? 0 : logit - normaliser, token});
        }
        continuations.add_row(std::move(left_over));
        continue;
      }
      const auto take = [&](int64_t token, float logit) {
        continuations.tokens.push_back(token);
        continuations.log_probabilities.push_back(static_cast<double>(logit) - normaliser);
      };
      if (many) {
        const auto all = values();
        rule_out(all, nullptr);
        best_of(all, returned, likely);
        for (const auto& [logit, token] : likely) take(token, logit);
      } else {
        for (int64_t i = 0; i < selection.count; ++i) {
          const int32_t token = selection.tokens[i];
          take(candidates.empty() ? token : candidates[static_cast<size_t>(token)], selection.logits[i]);
        }
      }
      // Logits that are not numbers are never taken up; the sum shows them.
      for (int64_t i = many ? std::ssize(likely) : selection.count; i < returned; ++i) take(allowed, impossible_logit);
    }
    return continuations;
  }
};

InferenceBatch::InferenceBatch(const InferenceModel& model)
    : implementation_(std::make_unique<Implementation>(model)) {}
InferenceBatch::~InferenceBatch() = default;
InferenceBatch::InferenceBatch(InferenceBatch&&) noexcept = default;
InferenceBatch& InferenceBatch::operator=(InferenceBatch&&) noexcept = default;

std::vector<int64_t> InferenceBatch::add(std::span<const Source> sources) {
  auto& self = *implementation_;
  for (const auto& source : sources) {
    if (source.beam < 1) throw std::invalid_argument("InferenceBatch::add: a sentence without a hypothesis");
    const auto& candidates = source.candidates;
    if (candidates.empty()) continue;
    if (std::adjacent_find(candidates.begin(), candidates.end(), std::greater_equal<>()) != candidates.end()) {
      throw std::invalid_argument("InferenceBatch::add: candidates are ascending, each once");
    }
    for (const int64_t token : {candidates.front(), candidates.back()}) {
      if (Vocabulary::is_written(token, self.model.projection().outputs())) continue;
      throw std::out_of_range(fmt::format("token {} is to be a candidate; expected {} to {}", token,
                                          Vocabulary::first_written, self.model.projection().outputs() - 1));
    }
  }
  std::vector<int64_t> places;
  for (const auto& source : sources) {
    places.push_back(self.take_place());
    auto& sentence = self.sentences[static_cast<size_t>(places.back())];
    sentence.beam = source.beam;
    sentence.constraint = source.constraint;
    sentence.candidates = source.candidates;
    if (sentence.candidates.empty()) {
      ++self.unlisted_sentences;
    } else {
      self.listed.need(sentence.candidates);
    }
  }
  for (size_t first = 0; first < sources.size();) {
    size_t end = first;
    int64_t tokens = 0;
    do {
      tokens += static_cast<int64_t>(sources[end++].pieces.size());
    } while (end < sources.size() && tokens + static_cast<int64_t>(sources[end].pieces.size()) <= encoded_tokens);
    self.encode(sources.subspan(first, end - first), std::span(places).subspan(first, end - first));
    first = end;
  }
  return places;
}

void InferenceBatch::remove(int64_t place) {
  auto& self = *implementation_;
  auto& sentence = self.sentences.at(place);
  for (size_t page = sentence.pages_left; page < sentence.pages.size(); ++page) {
    self.keep_page(std::move(sentence.pages[page]));
  }
  sentence.pages.clear();
  sentence.pages_left = 0;
  sentence.histories.clear();
  sentence.memory_records.clear();
  sentence.constraint = nullptr;
  sentence.constraints.clear();
  if (sentence.candidates.empty()) {
    --self.unlisted_sentences;
  } else {
    self.listed.release(sentence.candidates);
    sentence.candidates.clear();
  }
  sentence.length = 0;
  self.free_places.push_back(place);
  self.cache_bytes -= sentence.memory.size();
  self.kept_bytes += sentence.memory.size();
  self.keep_little(self.page_bytes(sentence.beam));
}

void InferenceBatch::clear() {
  auto& self = *implementation_;
  self.sentences.clear();
  self.unlisted_sentences = 0;
  self.listed.clear();
  self.free_places.clear();
  self.free_pages.clear();
  self.cache_bytes = self.kept_bytes = 0;
}

int64_t InferenceBatch::cache_bytes() const {
  return implementation_->cache_bytes;
}

int64_t InferenceBatch::kept_bytes() const {
  return implementation_->kept_bytes;
}

void InferenceBatch::release() {
  auto& self = *implementation_;
  self.free_pages.clear();
  for (const int64_t place : self.free_places) self.sentences[static_cast<size_t>(place)].memory = {};
  self.kept_bytes = 0;
}

Continuations InferenceBatch::step(std::span<const Row> rows, int64_t width, const WholeRow& told, Failures* failures) {
  if (width < 1) throw std::invalid_argument("InferenceBatch::step: no continuations are asked for");
  struct OfThisStep {
    Failures*& kept;
    ~OfThisStep() { kept = nullptr; }
  } const of_this_step{implementation_->failures};
  implementation_->failures = failures;
  const auto constraints = implementation_->advance(rows);
  auto continuations = implementation_->best(rows, width, constraints, told);
  continuations.attention = std::move(implementation_->row_attention);
  return continuations;
}

void InferenceBatch::take_back(int64_t place, int64_t positions) {
  auto& sentence = implementation_->sentences.at(place);
  const auto first_there = static_cast<int64_t>(sentence.pages_left) * positions_of_page(sentence.beam);
  if (sentence.beam != 1 || positions < 0 || positions > most_taken_back || positions >= sentence.length ||
      implementation_->first_read(sentence.length - positions) < first_there) {
    throw std::logic_error("InferenceBatch::take_back: positions that are not there to be taken back");
  }
  sentence.length -= positions;
  sentence.histories.front().resize(static_cast<size_t>(sentence.length));
}

bool InferenceBatch::free(int64_t place) const {
  const auto& sentence = implementation_->sentences.at(place);
  if (!sentence.constraint) return true;
  return sentence.length == 0 ? sentence.constraint->free() : sentence.constraints.front()->free();
}

std::vector<std::vector<double>> InferenceBatch::score(std::span<const Target> targets,
                                                       std::vector<std::vector<double>>* entropies) {
  auto& self = *implementation_;
  for (const auto& target : targets) {
    if (target.read.empty() || !(target.next.empty() || target.next.size() == target.read.size())) {
      throw std::invalid_argument("InferenceBatch::score: a next token for every one that is read, or none at all");
    }
    for (const int64_t token : target.next) {
      if (token < 0 || token >= self.model.projection().outputs()) {
        throw std::out_of_range("InferenceBatch::score: a token that is none of the vocabulary's");
      }
    }
  }
  std::vector<std::vector<double>> scores(targets.size());
  if (entropies) entropies->assign(targets.size(), {});
  for (size_t first = 0; first < targets.size();) {
    size_t end = first;
    size_t tokens = 0;
    do {
      tokens += targets[end++].read.size();
    } while (end < targets.size() && tokens + targets[end].read.size() <= static_cast<size_t>(encoded_tokens));
    self.score(targets.subspan(first, end - first), std::span(scores).subspan(first, end - first),
               entropies ? std::span(*entropies).subspan(first, end - first) : std::span<std::vector<double>>());
    first = end;
  }
  // Nothing is ruled out here: every logarithm is a number, as long as the logits are.
  const auto are_numbers = [](const std::vector<double>& values) {
    return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
  };
  if (!std::all_of(scores.begin(), scores.end(), are_numbers) ||
      (entropies && !std::all_of(entropies->begin(), entropies->end(), are_numbers))) {
    throw Failure("scoring", "the model gave a probability that is no finite number",
                  "its weights are damaged, or its training diverged");
  }
  return scores;
}

void InferenceBatch::watch(std::function<void(const WatchedAttention&)> watcher) {
  implementation_->watcher = std::move(watcher);
}

int64_t InferenceBatch::expected_bytes(const InferenceModel& model, int64_t pieces, int64_t beam) {
  const auto& s = model.settings();
  const int64_t token = s.decoder_layers * Implementation::record_elements(s, model.precision()) *
                        attended_bytes(model.precision());
  int64_t positions = pieces;
  if (s.decoder_self_attention == ModelSettings::DecoderSelfAttention::ssru) {
    // Those that may be taken back, and the one before, in pages that are not all theirs.
    positions = std::min(positions, (beam == 1 ? most_taken_back : 0) + 2 * positions_of_page(beam));
  }
  const int64_t pages = (positions + positions_of_page(beam) - 1) / positions_of_page(beam);
  return token * (pieces + pages * tokens_of_page(beam));
}

}  // namespace transformer
