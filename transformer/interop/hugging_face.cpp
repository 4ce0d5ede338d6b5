#include "transformer/interop/hugging_face.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "transformer/architecture/settings.h"
#include "transformer/architecture/sinusoids.h"
#include "transformer/architecture/weights.h"
#include "transformer/base/error.h"
#include "transformer/base/model_files.h"
#include "transformer/base/new_folder.h"
#include "transformer/base/read_file.h"
#include "transformer/base/unicode.h"
#include "transformer/base/unreadable.h"
#include "transformer/interop/foreign_weights.h"
#include "transformer/interop/hugging_face_configuration.h"
#include "transformer/interop/hugging_face_languages.h"
#include "transformer/interop/imported_model.h"
#include "transformer/interop/json_value.h"
#include "transformer/interop/marian.h"
#include "transformer/interop/renumbering.h"
#include "transformer/interop/torch_file.h"
#include "transformer/text/sentencepiece_model.h"
#include "transformer/text/vocabulary.h"

namespace transformer {
namespace {

namespace fs = std::filesystem;

constexpr int64_t most_positions = 1048576;

/// MarianMT, M2M100 with NLLB, and mBART.
enum class Architecture { marian, m2m_100, mbart };

const char* name_of(Architecture architecture) {
  return architecture == Architecture::marian ? "MarianMT" : architecture == Architecture::m2m_100 ? "M2M100" : "mBART";
}

Architecture architecture_of(const Configuration& config) {
  const auto kind = config.text("model_type", "");
  if (kind == "marian") return Architecture::marian;
  if (kind == "m2m_100") return Architecture::m2m_100;
  if (kind == "mbart") return Architecture::mbart;
  config.refuse("model_type", fmt::format("is {}; MarianMT ('marian'), M2M100 with NLLB ('m2m_100') and mBART-50 "
                                          "('mbart') are what is imported",
                                          in_quotes(kind)));
}

/// What of config.json is no setting of ours.
struct ModelConfiguration {
  Architecture architecture = Architecture::marian;
  ModelSettings settings;  // whose vocabularies have one piece more
  int64_t source_pieces = 0, target_pieces = 0;
  int64_t padding = 0, start = 0, end = 0;
  /// Whether `start` is a piece that is read there and never put out, as our begin is. Else the begin is one more
  /// piece.
  bool start_is_begin = false;
  std::optional<int64_t> forced;  // what every output begins with, unless something else is asked for
};

/// Sinusoids of other wavelengths than the paper's, and positions counted from another one, are kept as a table.
void read_positions(const Configuration& config, ModelConfiguration& read) {
  auto& s = read.settings;
  s.positions = ModelSettings::Positions::learned;
  s.max_positions = config.whole("max_position_embeddings", 1024);
  if (s.max_positions < 1 || s.max_positions > most_positions) {
    config.refuse("max_position_embeddings",
                  fmt::format("is {}, from 1 to {} is possible", s.max_positions, most_positions));
  }
  if (read.start == read.padding) config.refuse("decoder_start_token_id", "is padding, which has no position");
  if (s.d_model < 4 && read.architecture == Architecture::m2m_100) {
    config.refuse("d_model", fmt::format("is {}, and there is no wavelength for it", s.d_model));
  }
}

ModelConfiguration read_configuration(const Configuration& config) {
  ModelConfiguration read;
  read.architecture = architecture_of(config);
  const bool marian = read.architecture == Architecture::marian;
  // What MarianMT's predecessors had, and it has not; others compute as they do whatever these say.
  for (const auto& [key, usual] :
       std::initializer_list<std::pair<const char*, bool>>{{"normalize_before", false},
                                                           {"normalize_embedding", false},
                                                           {"add_final_layer_norm", false},
                                                           {"add_bias_logits", false},
                                                           {"static_position_embeddings", true},
                                                           {"is_encoder_decoder", true}}) {
    if ((marian || std::string_view(key) == "is_encoder_decoder") && config.flag(key, usual) != usual) {
      config.refuse(key, fmt::format("is {}, which {} does not compute", !usual, name_of(read.architecture)));
    }
  }
  if (marian && config.whole("extra_pos_embeddings", 0) != 0) config.refuse("extra_pos_embeddings", "is not 0");
  if (config.find("quantization_config")) config.refuse("quantization_config", "is there: weights must be as trained");

  auto& s = read.settings;
  s.d_model = config.whole("d_model");
  s.encoder_layers = config.whole("encoder_layers");
  s.decoder_layers = config.whole("decoder_layers");
  const auto both = [&](const char* encoder, const char* decoder) {
    const int64_t size = config.whole(encoder);
    if (config.whole(decoder) != size) {
      config.refuse(decoder, fmt::format("is {}, and '{}' is {}: both have to be the same", config.whole(decoder),
                                         encoder, size));
    }
    return size;
  };
  s.heads = both("encoder_attention_heads", "decoder_attention_heads");
  s.d_ff = both("encoder_ffn_dim", "decoder_ffn_dim");
  if (s.heads > 0 && s.d_model % s.heads != 0) {
    config.refuse("encoder_attention_heads", fmt::format("({}) does not divide 'd_model' ({})", s.heads, s.d_model));
  }
  s.dropout = config.number("dropout", 0.1);
  s.attention_dropout = config.number("attention_dropout", 0);
  s.relu_dropout = config.number("activation_dropout", 0);
  using Activation = ModelSettings::Activation;
  static const std::map<std::string, Activation> activations = {{"relu", Activation::relu},
                                                                {"gelu", Activation::gelu},
                                                                {"swish", Activation::swish},
                                                                {"silu", Activation::swish}};
  const auto activation = activations.find(
      config.text("activation_function", read.architecture == Architecture::m2m_100 ? "relu" : "gelu"));
  if (activation == activations.end()) {
    config.refuse("activation_function", fmt::format("is {}; relu, gelu, swish and silu are known",
                                                     config.find("activation_function")->found()));
  }
  s.activation = activation->second;
  s.scaled_embeddings = config.flag("scale_embedding", read.architecture == Architecture::m2m_100);
  if (!marian) s.normalization = ModelSettings::Normalization::pre;
  s.embedding_normalization = read.architecture == Architecture::mbart;
  s.projection_bias = s.output_bias = true;
  s.layer_norm_epsilon = 1e-5;

  read.source_pieces = config.whole("vocab_size");
  const bool one_vocabulary = !marian || config.flag("share_encoder_decoder_embeddings", true);
  read.target_pieces = one_vocabulary ? read.source_pieces : config.whole("decoder_vocab_size", read.source_pieces);
  using Shared = ModelSettings::SharedEmbeddings;
  const bool tied = config.flag("tie_word_embeddings", true);
  s.shared_embeddings = !tied ? Shared::none : one_vocabulary ? Shared::all : Shared::target;
  for (const auto& [key, pieces, ours] : {std::tuple{"vocab_size", read.source_pieces, &s.source_vocabulary_size},
                                          {"decoder_vocab_size", read.target_pieces, &s.target_vocabulary_size}}) {
    if (pieces < 4 || pieces > static_cast<int64_t>(SentencePieceModel::most_pieces)) {
      config.refuse(key, fmt::format("is {}, from 4 to {} is possible", pieces, SentencePieceModel::most_pieces));
    }
    *ours = pieces + 1;
  }
  s.vocabulary_size = s.target_vocabulary_size;
  const auto id = [&](const char* key) {
    const int64_t found = config.whole(key);
    if (found < 0 || found >= read.target_pieces)
      config.refuse(key, fmt::format("({}) is no id of the vocabulary", found));
    return found;
  };
  read.padding = id("pad_token_id");
  read.end = id("eos_token_id");
  read.start = config.find("decoder_start_token_id") ? id("decoder_start_token_id") : marian ? read.padding : read.end;
  if (read.padding == read.end) config.refuse("pad_token_id", "is the end's id as well");
  if (!marian) read_positions(config, read);
  try {
    read.settings = s.resolved();
  } catch (const Error& error) {
    config.refuse("d_model", fmt::format("and the other sizes make no model: {}", error.what()));
  }
  return read;
}

/// The pieces of vocab.json by their ids.
std::vector<std::string> read_pieces(const fs::path& file, int64_t count, const char* key) {
  const auto json = JsonValue::read(file, size_t{256} << 20, SentencePieceModel::most_pieces + 1);
  const auto refuse = [&](const std::string& what) { throw Error(file.string(), what, "it should map pieces to ids"); };
  if (json.kind() != JsonValue::Kind::object) refuse("is no object");
  if (static_cast<int64_t>(json.entries().size()) != count) {
    refuse(fmt::format("has {} pieces, and config.json's '{}' is {}", json.entries().size(), key, count));
  }
  std::vector<std::string> pieces(static_cast<size_t>(count));
  for (const auto& [piece, id] : json.entries()) {
    const auto place = id.whole();
    if (!place || *place < 0 || *place >= count)
      refuse(fmt::format("gives {} the id {}", in_quotes(piece), id.found()));
    auto& to = pieces[static_cast<size_t>(*place)];
    if (!to.empty()) refuse(fmt::format("gives {} and {} the same id", in_quotes(to), in_quotes(piece)));
    if (piece.empty()) refuse("has an empty piece");
    to = piece;
  }
  return pieces;
}

/// What the tokenizer's files say of the text.
struct SpecialTokens {
  std::string padding = "<pad>", end = "</s>", unknown = "<unk>";
  bool two_vocabularies = false;
  std::string languages;  // "en to de", where they are said
};

SpecialTokens read_tokens_of(const fs::path& folder) {
  SpecialTokens tokens;
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    if (!is_file(folder / name)) continue;
    const Configuration config(folder / name);
    tokens.padding = config.text("pad_token", tokens.padding);
    tokens.end = config.text("eos_token", tokens.end);
    tokens.unknown = config.text("unk_token", tokens.unknown);
    tokens.two_vocabularies = config.flag("separate_vocabs", tokens.two_vocabularies);
    const auto from = config.text("source_lang", ""), to = config.text("target_lang", "");
    if (!from.empty() && !to.empty()) tokens.languages = fmt::format("{} to {}", from, to);
  }
  const auto known = [&](const std::string& token) {
    return token == tokens.padding || token == tokens.end || token == tokens.unknown;
  };
  // These are named by habit, and are words of no text.
  const auto harmless = [&](const std::string& token) { return known(token) || token == "<s>" || token == "<mask>"; };
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    if (!is_file(folder / name)) continue;
    const Configuration config(folder / name);
    for (const auto& [key, token] : config.tokens()) {
      if (!harmless(token)) config.refuse_token(key, token);
    }
    for (const char* key : listed_tokens) {
      const auto* others = config.find(key);
      if (others && !(others->elements().empty() && others->entries().empty())) {
        config.refuse(key, "names tokens that a text would be split at");
      }
    }
    if (const auto* added = config.find("added_tokens_decoder")) {
      for (const auto& [id, token] : added->entries()) {
        const auto* content = token.find("content");
        if (!content)
          config.refuse("added_tokens_decoder", fmt::format("has an entry {} without a token", in_quotes(id)));
        if (!harmless(content->text())) config.refuse_token("added_tokens_decoder", content->text());
      }
    }
    if (const auto* options = config.find("sp_model_kwargs"); options && !options->entries().empty()) {
      config.refuse("sp_model_kwargs", "gives SentencePiece options");
    }
  }
  if (is_file(folder / "added_tokens.json")) {
    const Configuration added(folder / "added_tokens.json");
    for (const auto& [token, id] : added.entries()) {
      if (known(token)) added.refuse(printable(token), "is added to the vocabulary");
      if (!harmless(token)) added.refuse(printable(token), "is added, and a text would be split at it");
    }
  }
  return tokens;
}

/// Their pieces, which `file` names, by our ids. The begin is their piece `start`, or one more with that piece's
/// weights.
Renumbering renumber(const std::vector<std::string>& theirs, int64_t start, bool start_is_begin,
                     const SpecialTokens& tokens, const fs::path& file) {
  const auto id_of = [&](const std::string& token) { return id_of_piece(theirs, token, file.string()); };
  return renumbered(theirs,
                    {.end = id_of(tokens.end),
                     .unknown = id_of(tokens.unknown),
                     .padding = id_of(tokens.padding),
                     .start = start,
                     .start_is_begin = start_is_begin},
                    file.string());
}

/// A model's vocabularies, as they are written.
struct ImportedText {
  Renumbering source, target;
  std::map<std::string, std::string> files;  // by their names, what they hold
  std::string languages;                     // for people; empty where nothing says
};

ImportedText marian_text(const fs::path& folder, const Configuration& config, const ModelConfiguration& read) {
  const auto needed = [&](const char* name) {
    if (!is_file(folder / name))
      throw Error(folder.string(), fmt::format("has no {}", name), "a MarianMT model needs it");
    return folder / name;
  };
  tokenizer_of(folder, {"MarianTokenizer"});
  const auto tokens = read_tokens_of(folder);
  const auto source_file = needed("vocab.json");
  const auto target_file = tokens.two_vocabularies ? needed("target_vocab.json") : source_file;
  const bool two = tokens.two_vocabularies;
  if (!two && read.source_pieces != read.target_pieces) {
    config.refuse("decoder_vocab_size", "is not 'vocab_size', and there is one vocabulary");
  }
  if (two && read.settings.shared_embeddings == ModelSettings::SharedEmbeddings::all) {
    config.refuse("share_encoder_decoder_embeddings", "is true, and there are two vocabularies");
  }
  ImportedText text;
  text.target = renumber(read_pieces(target_file, read.target_pieces, two ? "decoder_vocab_size" : "vocab_size"),
                         read.start, read.start_is_begin, tokens, target_file);
  // A source never begins.
  text.source = !two ? text.target
                     : renumber(read_pieces(source_file, read.source_pieces, "vocab_size"), 0,
                                /*start_is_begin=*/false, tokens, source_file);
  for (const auto& [theirs, ours, numbering] : {std::tuple{"source.spm", source_vocabulary_name, &text.source},
                                                {"target.spm", target_vocabulary_name, &text.target}}) {
    const auto file = needed(theirs);
    text.files[ours] = Vocabulary::with_table(transformer::read_file(file, SentencePieceModel::most_bytes),
                                              numbering->pieces, file.string());
  }
  text.languages = tokens.languages;
  return text;
}

/// The one vocabulary of a model of many languages. Adds to the section `decoding` which of them it begins with, where
/// files say so.
ImportedText multilingual_text(const fs::path& folder, const Configuration& config, const ModelConfiguration& read,
                               std::string& decoding) {
  const bool is_mbart = read.architecture == Architecture::mbart;
  const auto tokenizer = is_mbart ? tokenizer_of(folder, {"MBart50Tokenizer"})
                                  : tokenizer_of(folder, {"M2M100Tokenizer", "NllbTokenizer"});
  const auto list = is_mbart                       ? LanguageList::mbart_50
                    : tokenizer == "NllbTokenizer" ? LanguageList::folder
                                                   : LanguageList::m2m_100;
  auto theirs = read_multilingual_text(folder, list, read.target_pieces);
  const auto is_named = [&](int64_t id) {
    const auto& piece = theirs.pieces[static_cast<size_t>(id)];
    return std::find(theirs.languages.begin(), theirs.languages.end(), piece) != theirs.languages.end();
  };
  if (is_named(read.start)) config.refuse("decoder_start_token_id", "is a language, with which decoding would start");
  ImportedText text;
  text.target = renumber(theirs.pieces, read.start, /*start_is_begin=*/false, {}, theirs.file);
  text.source = text.target;
  text.files[vocabulary_name] = Vocabulary::with_languages(
      transformer::read_file(theirs.file, SentencePieceModel::most_bytes), text.target.pieces, theirs.languages,
      theirs.controls, theirs.behind_end, theirs.file.string());
  text.languages = fmt::format("{} languages", theirs.languages.size());
  if (read.forced) {
    if (*read.forced < 0 || *read.forced >= read.target_pieces || !is_named(*read.forced)) {
      config.refuse("forced_bos_token_id", fmt::format("({}) is no language", *read.forced));
    }
    theirs.target_language = theirs.pieces[static_cast<size_t>(*read.forced)];
  }
  for (const auto& [name, piece] :
       {std::pair{"source_language", theirs.source_language}, {"target_language", theirs.target_language}}) {
    if (!piece.empty()) decoding += fmt::format("  {}: \"{}\"\n", name, Vocabulary::language_code(piece));
  }
  return text;
}

/// Adds the weights of a file.
void take(StoredWeights& weights, const fs::path& file, bool is_torch) {
  for (auto& [name, weight] : is_torch ? torch_weights(file) : stored_weights(file)) {
    if (!weights.emplace(name, std::move(weight)).second) {
      throw Error(file.string(), fmt::format("has the weights {}, which another file has as well", in_quotes(name)));
    }
  }
}

void take_shards(StoredWeights& weights, const fs::path& folder, const fs::path& index, bool is_torch) {
  const Configuration config(index);
  const auto* map = config.find("weight_map");
  if (!map) config.refuse("weight_map", "is missing");
  std::set<std::string> files;
  for (const auto& [name, file] : map->entries()) {
    const auto& shard = file.text();
    // A shard lies beside its index.
    if (shard.empty() || shard.find('/') != std::string::npos || !is_file(folder / shard)) {
      config.refuse("weight_map", fmt::format("names {}, which is no file of the folder", file.found()));
    }
    files.insert(shard);
  }
  for (const auto& file : files) take(weights, folder / file, is_torch);
}

/// Weights by the names of `transformers`, from one file or from shards.
ForeignWeights read_weights(const fs::path& folder, Architecture architecture) {
  StoredWeights weights;
  for (const auto& [whole, is_torch] : {std::pair{"model.safetensors", false}, {"pytorch_model.bin", true}}) {
    if (const auto file = folder / whole; is_file(file)) {
      take(weights, file, is_torch);
      return {std::move(weights), file.string(), name_of(architecture)};
    }
    if (const auto index = folder / fmt::format("{}.index.json", whole); is_file(index)) {
      take_shards(weights, folder, index, is_torch);
      return {std::move(weights), index.string(), name_of(architecture)};
    }
  }
  throw Error(folder.string(), "has neither model.safetensors nor pytorch_model.bin",
              "name a folder that holds a model as transformers saves it");
}

/// Makes our weights of theirs, one after the other.
class HuggingFaceImport {
 public:
  HuggingFaceImport(const ModelConfiguration& config, const Renumbering& source, const Renumbering& target,
                    ForeignWeights& weights)
      : config_(config),
        s_(config.settings),
        source_(source),
        target_(target),
        weights_(weights),
        width_(marian_width(s_.d_model)) {
    // Where positions are a table, any order will do.
    if (config_.architecture != Architecture::marian) std::iota(width_.begin(), width_.end(), 0);
  }

  /// Whether theirs have tables of positions that are no sinusoids: those were learned.
  bool has_learned_positions() {
    bool learned = false;
    for (const char* stack : {"encoder", "decoder"}) {
      const auto name = fmt::format("model.{}.embed_positions.weight", stack);
      const int64_t rows = position_rows(name);
      if (rows == 0) continue;
      const auto table = on_columns(weights_.read(name, {rows, s_.d_model}), rows);
      const auto sines = sinusoids(0, rows, s_.d_model);
      // Stored in half precision they are a little off.
      learned = learned || !std::equal(table.begin(), table.end(), sines.begin(), [](float stored, double exact) {
                  return std::abs(static_cast<double>(stored) - exact) < 2e-3;
                });
    }
    return learned;
  }

  /// How many positions a table has; 0 where there is none.
  int64_t position_rows(const std::string& name) const {
    const auto shape = weights_.shape(name);
    return shape.empty() ? 0 : shape[0];
  }

  /// Each weight of a model of the settings, by our names.
  std::map<std::string, std::function<std::vector<float>()>> run() {
    embeddings();
    for (const auto& [ours, stack] : {std::pair{"source", "encoder"}, {"target", "decoder"}}) {
      positions(fmt::format("{}_positions.weight", ours), fmt::format("model.{}.embed_positions.weight", stack));
    }
    if (s_.embedding_normalization) {
      norm("source_embeddings", "model.encoder.layernorm_embedding");
      norm("target_embeddings", "model.decoder.layernorm_embedding");
    }
    if (s_.normalization == ModelSettings::Normalization::pre) {
      for (const std::string stack : {"encoder", "decoder"}) norm(stack, "model." + stack + ".layer_norm");
    }
    convert_marian_layers(
        s_,
        {.attention = [this](const std::string& ours, const std::string& theirs) { attention(ours, theirs); },
         .norm = [this](const std::string& ours, const std::string& theirs) { norm(ours, theirs); },
         .feed_forward = [this](const std::string& ours, const std::string& theirs) { feed_forward(ours, theirs); }});
    return std::move(made_);
  }

 private:
  using Numbers = std::vector<float>;

  void set(const std::string& ours, std::function<Numbers()> make) { made_.emplace(ours, std::move(make)); }

  Numbers on_columns(const Numbers& numbers, int64_t rows) const { return permuted_columns(numbers, rows, width_); }
  Numbers on_rows(const Numbers& numbers, int64_t width) const { return permuted_rows(numbers, width, width_); }

  /// A table of positions, where the model has one.
  void positions(const std::string& ours, const std::string& theirs) {
    if (s_.positions != ModelSettings::Positions::learned) return;
    const int64_t count = s_.max_positions, d = s_.d_model;
    switch (config_.architecture) {
      case Architecture::marian:
        set(ours, [=, this] { return on_columns(weights_.read(theirs, {count, d}), count); });
        break;
      case Architecture::m2m_100:
        weights_.ignore(theirs + "s");  // computed, and kept by old ones all the same
        set(ours, [=, this] { return m2m_100_positions(config_.padding + 1, count, d); });
        break;
      case Architecture::mbart:
        set(ours, [=, this] {
          constexpr int64_t unused = 2;  // rows that no position has
          const auto table = weights_.read(theirs, {count + unused, d});
          return Numbers(table.begin() + unused * d, table.end());
        });
        break;
    }
  }

  /// The rows of an embedding, or of the projection, by our ids.
  void pieces(const std::string& ours, const std::vector<std::string>& theirs, const Renumbering& numbering,
              int64_t count) {
    set(ours, [=, this, &numbering] {
      return on_columns(numbering.rows(read_one_of(theirs, {count, s_.d_model}), s_.d_model), numbering.size());
    });
  }

  /// The first of `names` that there is; the others, where there are any, must hold the same numbers.
  Numbers read_one_of(const std::vector<std::string>& names, const std::vector<int64_t>& shape) const {
    std::string first;
    Numbers numbers;
    for (const auto& name : names) {
      if (!weights_.has(name)) continue;
      if (first.empty()) {
        first = name;
        numbers = weights_.read(name, shape);
      } else if (weights_.read(name, shape) != numbers) {
        weights_.refuse(fmt::format("'{}' and '{}' should be one matrix and differ", first, name));
      }
    }
    return first.empty() ? weights_.read(names.front(), shape) : numbers;  // the former says that it is missing
  }

  void embeddings() {
    using Shared = ModelSettings::SharedEmbeddings;
    const std::string shared = "model.shared.weight", encoder = "model.encoder.embed_tokens.weight",
                      decoder = "model.decoder.embed_tokens.weight", head = "lm_head.weight";
    if (s_.shared_embeddings == Shared::all) {
      pieces("embedding.weight", {shared, encoder, decoder, head}, source_, config_.source_pieces);
    } else {
      // Where the projection is a matrix of its own, so may the others be, or both are the shared one.
      const bool tied = s_.shared_embeddings == Shared::target;
      const auto of = [&](const std::string& stack) { return !tied && !weights_.has(stack) ? shared : stack; };
      pieces("source_embedding.weight", {of(encoder)}, source_, config_.source_pieces);
      pieces("target_embedding.weight", tied ? std::vector{decoder, head} : std::vector{of(decoder)}, target_,
             config_.target_pieces);
      if (!tied) {
        pieces("projection.weight", {head}, target_, config_.target_pieces);
        weights_.ignore(shared);
      }
    }
    set("output_bias", [this] {
      const std::string name = "final_logits_bias";
      const int64_t count = config_.target_pieces;
      return target_.biases(weights_.has(name) ? weights_.read(name, {1, count}) : Numbers());
    });
  }

  void attention(const std::string& ours, const std::string& theirs) {
    const int64_t d = s_.d_model;
    const auto joint = [=, this](const char* part, const std::vector<int64_t>& shape) {
      Numbers all;
      for (const char* projection : {"q", "k", "v"}) {
        const auto one = weights_.read(fmt::format("{}.{}_proj.{}", theirs, projection, part), shape);
        all.insert(all.end(), one.begin(), one.end());
      }
      return all;
    };
    set(ours + ".input_weight", [=, this] { return on_columns(joint("weight", {d, d}), 3 * d); });
    set(ours + ".input_bias", [=] { return joint("bias", {d}); });
    output(ours + ".output", theirs + ".out_proj", d);
  }

  /// A linear layer back to the model's width.
  void output(const std::string& ours, const std::string& theirs, int64_t inputs) {
    const int64_t d = s_.d_model;
    set(ours + ".weight", [=, this] { return on_rows(weights_.read(theirs + ".weight", {d, inputs}), inputs); });
    set(ours + ".bias", [=, this] { return on_rows(weights_.read(theirs + ".bias", {d}), 1); });
  }

  void norm(const std::string& ours, const std::string& theirs) {
    for (const char* part : {".weight", ".bias"}) {
      set(ours + ".norm" + part, [=, this] { return on_rows(weights_.read(theirs + part, {s_.d_model}), 1); });
    }
  }

  void feed_forward(const std::string& ours, const std::string& theirs) {
    const int64_t d = s_.d_model, inner = s_.d_ff;
    set(ours + "feed_forward.inner.weight", [=, this] {
      return on_columns(weights_.read(theirs + "fc1.weight", {inner, d}), inner);
    });
    set(ours + "feed_forward.inner.bias", [=, this] { return weights_.read(theirs + "fc1.bias", {inner}); });
    output(ours + "feed_forward.outer", theirs + "fc2", inner);
    norm(ours + "after_feed_forward", theirs + "final_layer_norm");
  }

  const ModelConfiguration& config_;
  const ModelSettings& s_;
  const Renumbering &source_, &target_;
  ForeignWeights& weights_;
  std::vector<int64_t> width_;
  std::map<std::string, std::function<Numbers()>> made_;
};

/// Throws Error for what changes the output of `transformers` and has no setting here. What is for sampling alone does
/// nothing without it. renormalize_logits alone shares out what padding, which is never written, would have had; what
/// else is ruled out would be shared out, too.
void refuse_other_searches(const Configuration& generation, const ModelConfiguration& read) {
  for (const char* key : {"do_sample", "token_healing"}) {
    if (generation.flag(key, false)) generation.refuse(key, "is true, which is not how output is searched for here");
  }
  for (const auto& [key, usual] : std::initializer_list<std::pair<const char*, double>>{
           {"min_length", 0}, {"min_new_tokens", 0}, {"no_repeat_ngram_size", 0}, {"repetition_penalty", 1}}) {
    if (generation.flag("renormalize_logits", false) && generation.number(key, usual) != usual) {
      generation.refuse("renormalize_logits",
                        fmt::format("is true beside '{}', which is not how output is searched for here", key));
    }
  }
  for (const auto& [key, usual] :
       std::initializer_list<std::pair<const char*, double>>{{"num_beam_groups", 1},
                                                             {"num_return_sequences", 1},
                                                             {"encoder_repetition_penalty", 1},
                                                             {"encoder_no_repeat_ngram_size", 0},
                                                             {"guidance_scale", 1},
                                                             {"penalty_alpha", 0}}) {
    const double found = generation.number(key, usual);
    if (found != usual) generation.refuse(key, fmt::format("is {}; {} is imported", found, usual));
  }
  for (const char* key : {"suppress_tokens", "begin_suppress_tokens", "forced_decoder_ids", "force_words_ids",
                          "constraints", "sequence_bias", "exponential_decay_length_penalty", "stop_strings",
                          "max_time", "watermarking_config", "dola_layers"}) {
    const auto* found = generation.find(key);
    if (!found) continue;
    const bool is_empty = found->kind() == JsonValue::Kind::list     ? found->elements().empty()
                          : found->kind() == JsonValue::Kind::object ? found->entries().empty()
                                                                     : false;
    if (!is_empty) generation.refuse(key, "is there, which is not how output is searched for here");
  }
  for (const auto& [key, of_model] : {std::pair{"decoder_start_token_id", read.start},
                                      {"eos_token_id", read.end},
                                      {"forced_eos_token_id", read.end}}) {
    const auto* found = generation.find(key);
    const bool is_list = found && found->kind() == JsonValue::Kind::list;
    if (is_list && found->elements().size() == 1) found = &found->elements().front();
    if (found && found->whole() != of_model) {
      generation.refuse(key, fmt::format("is {}, and the model's is {}", found->found(), of_model));
    }
  }
}

/// The settings of `decoding` for what output may hold and how long it may be, a line each. `is_of_model`: `generation`
/// is config.json, in which old versions wrote what they took for a limit where nobody had said one.
std::string limits_of_output(const Configuration& generation, bool is_of_model, const ModelConfiguration& read,
                             int64_t beam) {
  constexpr int64_t most = 1000000;
  std::string lines;
  // They count what the decoder starts with, and the language.
  const bool marian = read.architecture == Architecture::marian;
  const int64_t begins = marian ? 1 : 2;

  const bool news = generation.find("max_new_tokens") != nullptr;
  const char* key = news ? "max_new_tokens" : "max_length";
  constexpr int64_t taken = 20, of_marian = 512;  // where nothing is said; what Marian's models say
  const int64_t longest = generation.whole(key, taken);
  const bool is_said = generation.find(key) && !(is_of_model && longest == taken);
  const int64_t positions = marian ? of_marian : read.settings.max_positions;
  int64_t most_pieces = 0;
  if (news || (is_said && longest < positions)) {
    const int64_t ends = generation.find("forced_eos_token_id") ? 1 : 0;  // within the limit
    if (longest < 1 || longest > most) {
      generation.refuse(key, fmt::format("is {}, from 1 to {} is possible", longest, most));
    }
    most_pieces = longest + (news ? 1 : 0) - begins - ends;
    if (most_pieces < 1) generation.refuse(key, fmt::format("is {}, which leaves no room for output", longest));
    lines += fmt::format("  max_length: {}\n", most_pieces);
  }

  // A number alone bounds output there, however short its source is.
  lines +=
      fmt::format("  max_extra_length: {}\n", most_pieces > 0 ? most_pieces : std::clamp<int64_t>(positions, 1, most));

  const bool new_least = generation.find("min_new_tokens") != nullptr;
  const char* least_key = new_least ? "min_new_tokens" : "min_length";
  const int64_t least = generation.whole(least_key, 0);
  if (least < 0 || least > most) {
    generation.refuse(least_key, fmt::format("is {}, up to {} is possible", least, most));
  }
  if (const int64_t pieces = least + (new_least ? 1 : 0) - begins; pieces > 0) {
    if (most_pieces > 0 && pieces > most_pieces)
      generation.refuse(least_key, fmt::format("is more than '{}' leaves", key));
    lines += fmt::format("  min_length: {}\n", pieces);
  }

  // These count the start as if it had been put out, which matters where it is the end as well.
  const bool start_is_end = read.start == read.end;
  const double penalty = generation.number("repetition_penalty", 1);
  if (penalty != 1) {
    if (!(penalty > 1 && penalty <= 100)) {
      generation.refuse("repetition_penalty", fmt::format("is {}, from 1 to 100 is possible", penalty));
    }
    if (start_is_end) generation.refuse("repetition_penalty", "holds for the end, too, with which decoding starts");
    if (beam == 1)
      generation.refuse("repetition_penalty", "changes logits without 'num_beams', and probabilities here");
    lines += fmt::format("  repetition_penalty: {}\n", penalty);
  }
  const int64_t ngram = generation.whole("no_repeat_ngram_size", 0);
  if (ngram != 0) {
    if (ngram < 0 || ngram > 1000) {
      generation.refuse("no_repeat_ngram_size", fmt::format("is {}, up to 1000 is possible", ngram));
    }
    if (start_is_end && ngram == 1)
      generation.refuse("no_repeat_ngram_size", "bans the end, with which decoding starts");
    lines += fmt::format("  no_repeat_ngram: {}\n", ngram);
  }
  return lines;
}

/// Section `decoding` of the model's config.yaml: how `transformers` would search. Notes what it never puts out.
std::string decoding_section(const fs::path& folder, const Configuration& config, ModelConfiguration& read) {
  const auto file = folder / "generation_config.json";
  const bool is_of_model = !is_file(file);
  const Configuration generation = is_of_model ? config : Configuration(file);
  constexpr int64_t widest = 1000;
  const int64_t beam = generation.whole("num_beams", 1);
  if (beam < 1 || beam > widest)
    generation.refuse("num_beams", fmt::format("is {}, up to {} are possible", beam, widest));
  const double penalty = generation.number("length_penalty", 1);
  if (!(std::abs(penalty) <= 10)) generation.refuse("length_penalty", "is beyond 10");
  if (const auto* banned = generation.find("bad_words_ids")) {
    for (const auto& word : banned->elements()) {
      const auto id = word.elements().size() == 1 ? word.elements()[0].whole() : std::nullopt;
      if (id == read.start && read.start != read.padding) {
        read.start_is_begin = true;
      } else if (id != read.padding) {
        generation.refuse("bad_words_ids", "bans other words than padding and the start");
      }
    }
  }
  const auto* early = generation.find("early_stopping");
  const bool stops_early = early && early->kind() == JsonValue::Kind::boolean && early->boolean();
  // Also what a model begins with, which is what this knows of it.
  for (const auto* said : {&generation, &config}) {
    if (!said->find("forced_bos_token_id")) continue;
    read.forced = said->whole("forced_bos_token_id");
    if (read.architecture == Architecture::marian) said->refuse("forced_bos_token_id", "is there");
    break;
  }
  refuse_other_searches(generation, read);
  return fmt::format("\ndecoding:\n  beam: {}\n  alpha: {}\n  length_penalty: power\n  stop: {}\n", beam, penalty,
                     stops_early ? "beam_finished" : "exact") +
         limits_of_output(generation, is_of_model, read, beam);
}

/// What the front matter of a README.md says of `key`; empty where it says nothing.
std::string said_in_readme(const fs::path& folder, std::string_view key) {
  constexpr size_t most_bytes = size_t{4} << 20, most_value = 200;
  if (!is_file(folder / "README.md")) return {};
  std::string text;
  try {
    read_kept([&] { text = read_file(folder / "README.md", most_bytes); });
  } catch (const Error&) {
    return {};  // nothing that the model needs
  }
  std::erase(text, '\r');  // at the end of lines
  std::string_view rest = text;
  if (!rest.starts_with("---\n")) return {};
  rest = rest.substr(0, rest.find("\n---", 3));
  const auto begin = rest.find(fmt::format("\n{}:", key));
  if (begin == std::string_view::npos) return {};
  const auto line = rest.substr(begin + 1, rest.find('\n', begin + 1) - begin - 1);
  return printable(trim(line.substr(key.size() + 1)), most_value);
}

}  // namespace

void import_hugging_face(const fs::path& folder, const fs::path& given_output) {
  const auto output = folder_path(given_output);
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    throw Error(folder.string(), "is not a folder", "name one that holds config.json");
  check_nothing_at(output);
  if (!is_file(folder / "config.json")) throw Error(folder.string(), "has no config.json", "a model needs it");
  const Configuration config(folder / "config.json");
  auto read = read_configuration(config);
  auto decoding = decoding_section(folder, config, read);
  const auto text = read.architecture == Architecture::marian ? marian_text(folder, config, read)
                                                              : multilingual_text(folder, config, read, decoding);
  const auto &source = text.source, &target = text.target;
  if (target.theirs[Vocabulary::end] != read.end)
    config.refuse("eos_token_id", "is not the id of the piece that ends text");
  if (target.theirs[Vocabulary::padding] != read.padding)
    config.refuse("pad_token_id", "is not the id of the padding piece");
  read.settings.source_vocabulary_size = source.size();
  read.settings.target_vocabulary_size = read.settings.vocabulary_size = target.size();

  auto weights = read_weights(folder, read.architecture);
  HuggingFaceImport conversion(read, source, target, weights);
  if (read.architecture == Architecture::marian && conversion.has_learned_positions()) {
    read.settings.positions = ModelSettings::Positions::learned;
    read.settings.max_positions = conversion.position_rows("model.encoder.embed_positions.weight");
  }

  ImportedModel imported;
  imported.settings = read.settings;
  imported.weights = conversion.run();
  imported.vocabularies = text.files;
  imported.decoding = decoding;
  imported.metadata["origin"] = fmt::format("Hugging Face, {}", name_of(read.architecture));
  if (const auto name = config.text("_name_or_path", ""); !name.empty()) {
    imported.metadata["origin_name"] = printable(name, 200);
  }
  if (!text.languages.empty()) imported.metadata["languages"] = printable(text.languages, 200);
  if (const auto licence = said_in_readme(folder, "license"); !licence.empty()) imported.metadata["licence"] = licence;
  imported.finished = [&] { weights.check_all_used(); };
  write_imported_model(imported, output);
}

}  // namespace transformer
