#include "transformer/interop/marian_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <utility>

#include "transformer/architecture/settings.h"
#include "transformer/base/document.h"
#include "transformer/base/error.h"
#include "transformer/base/new_folder.h"
#include "transformer/base/number.h"
#include "transformer/base/read_file.h"
#include "transformer/base/setting_value.h"
#include "transformer/base/unicode.h"
#include "transformer/interop/foreign_weights.h"
#include "transformer/interop/imported_model.h"
#include "transformer/interop/marian.h"
#include "transformer/interop/npz_file.h"
#include "transformer/interop/renumbering.h"
#include "transformer/interop/text_of_model.h"
#include "transformer/text/sentencepiece_model.h"

namespace transformer {
namespace {

namespace fs = std::filesystem;

/// Options of Marian's, as its YAML has them: a text or a list of texts each.
class Options {
 public:
  Options(const Document& document, std::string where) : where_(std::move(where)) {
    for (auto& entry : document.entries("Marian's options")) values_.emplace(entry.key, std::move(entry.value));
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& what) const {
    throw Error(where_, fmt::format("'{}' {}", key, what), "such a model cannot be imported");
  }

  /// A text; of an option that there is not, `otherwise`, or an Error where it is needed.
  std::string text(const std::string& key, const std::optional<std::string>& otherwise = {}) const {
    const auto found = values_.find(key);
    if (found == values_.end()) {
      if (!otherwise) refuse(key, "is missing");
      return *otherwise;
    }
    const auto kind = found->second.kind();
    // YAML has nothing where Marian has an empty text.
    if (kind != Document::Kind::scalar && kind != Document::Kind::nothing) refuse(key, "is no text");
    return found->second.text();
  }
  int64_t whole(const std::string& key, std::optional<int64_t> otherwise = {}) const {
    return number<int64_t>(key, otherwise, "a whole number");
  }
  double number(const std::string& key, std::optional<double> otherwise = {}) const {
    return number<double>(key, otherwise, "a number");
  }
  bool flag(const std::string& key) const {
    const auto value = text(key, "false");
    if (value != "true" && value != "false")
      refuse(key, fmt::format("is {}, neither true nor false", in_quotes(value)));
    return value == "true";
  }
  /// Whether an option is more than false, an empty text or an empty list.
  bool says_something(const std::string& key) const {
    const auto found = values_.find(key);
    if (found == values_.end() || found->second.kind() == Document::Kind::nothing) return false;
    if (found->second.kind() == Document::Kind::list) return !found->second.elements().empty();
    const auto value = text(key);
    return !value.empty() && value != "false";
  }
  /// The texts of a list; none where there is no such option.
  std::vector<std::string> list(const std::string& key) const {
    const auto found = values_.find(key);
    if (found == values_.end() || found->second.kind() == Document::Kind::nothing) return {};
    auto value = found->second.setting_value();  // which bounds how often aliases repeat a text
    if (value.kind != SettingValue::Kind::list) refuse(key, fmt::format("is {}, no list of texts", value.found()));
    return std::move(value.texts);
  }

 private:
  template <class Number>
  Number number(const std::string& key, std::optional<Number> otherwise, const char* expected) const {
    if (otherwise && !values_.contains(key)) return *otherwise;
    const auto value = text(key);
    const auto result = number_in<Number>(value);
    if (!result) refuse(key, fmt::format("should be {}, found {}", expected, in_quotes(value)));
    return *result;
  }

  std::string where_;
  std::map<std::string, Document> values_;
};

/// A model's files, by what was named and what lies beside it.
struct Files {
  fs::path folder, model;
  std::vector<fs::path> vocabularies;  // of the source and of the target
  std::string decoding;                // section of config.yaml
};

/// How Marian would search by its decoder.yml, or by its own defaults where options are missing.
std::string decoding_section(const Options& options) {
  constexpr int64_t widest = 1000;
  const int64_t beam = options.whole("beam-size", 12);
  if (beam < 1 || beam > widest) {
    options.refuse("beam-size", fmt::format("is {}, up to {} are possible", beam, widest));
  }
  for (const char* key : {"allow-special", "force-decode"}) {
    if (options.flag(key)) options.refuse(key, "is true, which is not how output is searched for here");
  }
  if (options.says_something("output-sampling")) options.refuse("output-sampling", "is there: output is searched for");
  if (const double penalty = options.number("word-penalty", 0); penalty != 0) {
    options.refuse("word-penalty", fmt::format("is {}; 0 is imported", penalty));
  }
  constexpr double usual_factor = 3, most_extra = 1e6;
  const double factor = options.number("max-length-factor", usual_factor);
  if (!(factor >= usual_factor)) {
    options.refuse("max-length-factor", fmt::format("is {}; {} and more are imported", factor, usual_factor));
  }
  const double alpha = options.number("normalize", 0);
  if (!(alpha >= 0 && alpha <= 10)) options.refuse("normalize", "is not between 0 and 10");
  // Marian's bound on an output is a factor of its source's length; here, as much as it is of a source of 500 pieces.
  return fmt::format(
      "\ndecoding:\n  beam: {}\n  alpha: {}\n  length_penalty: power\n  stop: exact\n  write_unknown: {}\n"
      "  max_extra_length: {:.0f}\n",
      beam, alpha, options.flag("allow-unk"), std::min(500 * (factor - 1), most_extra));
}

Files find_files(const fs::path& given, const TextFiles& text) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(given, ignored);
  if (!is_folder && !is_file(given)) throw Error(given.string(), "is neither a folder nor a file");
  Files files;
  files.folder = is_folder ? given : given.parent_path();
  files.vocabularies = text.vocabularies;
  auto decoder = files.folder / "decoder.yml";
  if (!is_folder && is_file(given.string() + ".decoder.yml")) decoder = given.string() + ".decoder.yml";
  if (!is_file(decoder)) {
    if (is_folder) {
      throw Error(given.string(), "has no decoder.yml that names a model", "name the model's .npz file itself");
    }
    if (files.vocabularies.empty()) {
      throw Error(given.string(), "has no decoder.yml beside it that names vocabularies",
                  "name them with --vocabularies");
    }
    files.model = given;
    files.decoding = decoding_section(Options(Document::parse("{}", decoder.string()), decoder.string()));
    return files;
  }
  const Options options(Document::read(decoder), decoder.string());
  const auto beside = [&](const std::string& name) { return files.folder / name; };  // where name is absolute, itself
  if (is_folder) {
    const auto models = options.list("models");
    if (models.size() != 1) {
      throw Error(decoder.string(), fmt::format("names {} models in 'models'", models.size()),
                  "name the .npz file of one of them");
    }
    files.model = beside(models.front());
  } else {
    files.model = given;
  }
  if (files.vocabularies.empty()) {
    for (const auto& name : options.list("vocabs")) files.vocabularies.push_back(beside(name));
    if (files.vocabularies.empty()) options.refuse("vocabs", "names no vocabularies");
  }
  files.decoding = decoding_section(options);
  return files;
}

/// The model's, whose vocabularies have as many pieces as Marian's.
ModelSettings read_settings(const Options& options) {
  const auto must_be = [&](const char* key, const std::string& found, const std::string& expected) {
    if (found != expected)
      options.refuse(key, fmt::format("is {}; {} is imported", in_quotes(found), in_quotes(expected)));
  };
  must_be("type", options.text("type"), "transformer");
  const auto autoregression = options.text("transformer-decoder-autoreg", "self-attention");
  if (autoregression == "rnn") {
    must_be("dec-cell", options.text("dec-cell"), "ssru");
    if (options.flag("layer-normalization"))
      options.refuse("layer-normalization", "is true, which is not computed here");
  } else if (autoregression != "self-attention") {
    options.refuse("transformer-decoder-autoreg",
                   fmt::format("is {}; self-attention and rnn are imported", in_quotes(autoregression)));
  }
  for (const char* key :
       {"transformer-no-projection", "transformer-train-position-embeddings", "transformer-train-positions",
        "transformer-rnn-projection", "transformer-pool", "right-left", "ulr"}) {
    if (options.flag(key)) options.refuse(key, "is true, which is not computed here");
  }
  for (const char* key : {"lemma-dim-emb", "lemma-dependency"}) {
    const auto value = options.text(key, "");
    if (!value.empty() && value != "0") options.refuse(key, "is there: pieces with factors are not known here");
  }
  if (!options.list("transformer-tied-layers").empty()) {
    options.refuse("transformer-tied-layers", "makes layers share their weights");
  }
  for (const auto& kind : options.list("input-types")) must_be("input-types", kind, "sequence");

  ModelSettings s;
  s.d_model = options.whole("dim-emb");
  if (s.d_model % 2 != 0) options.refuse("dim-emb", fmt::format("is {}, an odd number", s.d_model));
  s.encoder_layers = options.whole("enc-depth");
  s.decoder_layers = options.whole("dec-depth");
  s.heads = options.whole("transformer-heads");
  if (s.heads < 1 || s.d_model % s.heads != 0) {
    options.refuse("transformer-heads", fmt::format("({}) does not divide 'dim-emb' ({})", s.heads, s.d_model));
  }
  s.d_ff = options.whole("transformer-dim-ffn");
  for (const auto& [key, expected] :
       std::initializer_list<std::pair<const char*, int64_t>>{{"transformer-decoder-dim-ffn", s.d_ff},
                                                              {"transformer-ffn-depth", 2},
                                                              {"transformer-decoder-ffn-depth", 2}}) {
    // 0: as the encoder has it.
    if (const int64_t value = options.whole(key, expected); value != expected && value != 0) {
      options.refuse(key, fmt::format("is {}; {} is imported", value, expected));
    }
  }
  const auto activation = options.text("transformer-ffn-activation");
  if (activation != "swish" && activation != "relu") {
    options.refuse(
        "transformer-ffn-activation",
        fmt::format("is {}; swish and relu are known, and gelu there is only nearly one", in_quotes(activation)));
  }
  if (autoregression == "rnn") s.decoder_self_attention = ModelSettings::DecoderSelfAttention::ssru;
  s.activation = activation == "swish" ? ModelSettings::Activation::swish : ModelSettings::Activation::relu;

  const auto before = options.text("transformer-preprocess"), after = options.text("transformer-postprocess"),
             top = options.text("transformer-postprocess-top", "");
  const bool is_pre = before == "n";
  must_be("transformer-preprocess", before, is_pre ? "n" : "");
  must_be("transformer-postprocess", after, is_pre ? "da" : "dan");
  must_be("transformer-postprocess-top", top, is_pre ? "n" : "");
  s.normalization = is_pre ? ModelSettings::Normalization::pre : ModelSettings::Normalization::post;
  if (const auto of_embeddings = options.text("transformer-postprocess-emb", "d");
      of_embeddings != "d" && !of_embeddings.empty()) {
    must_be("transformer-postprocess-emb", of_embeddings, "d");
  }
  s.dropout = options.number("transformer-dropout", 0);
  s.attention_dropout = options.number("transformer-dropout-attention", 0);
  s.relu_dropout = options.number("transformer-dropout-ffn", 0);
  s.projection_bias = s.output_bias = true;
  s.layer_norm_epsilon = 1e-5;

  const auto sizes = options.list("dim-vocabs");
  if (sizes.size() != 2) options.refuse("dim-vocabs", "is not a size for the source and one for the target");
  for (const auto& [size, ours] :
       {std::pair{&sizes[0], &s.source_vocabulary_size}, {&sizes[1], &s.target_vocabulary_size}}) {
    *ours = number_in<int64_t>(*size).value_or(0);
    if (*ours < 4 || *ours > static_cast<int64_t>(SentencePieceModel::most_pieces)) {
      options.refuse("dim-vocabs", fmt::format("has the size {}, from 4 to {} is possible", in_quotes(*size),
                                               SentencePieceModel::most_pieces));
    }
  }
  s.vocabulary_size = s.target_vocabulary_size;
  return s;
}

/// Pieces that Marian's vocabularies have not: padding and the begin.
constexpr int64_t added = 2;
/// How the names of the projection to the vocabulary begin.
const std::string logits = "decoder_ff_logit_out";

/// Makes our weights of Marian's, one after the other. Matrices lie there as [inputs, outputs].
class MarianImport {
 public:
  MarianImport(const ModelSettings& settings, const Renumbering& source, const Renumbering& target,
               ForeignWeights& weights)
      : s_(settings), source_(source), target_(target), weights_(weights), width_(marian_width(s_.d_model)) {}

  /// Each weight of the model, by our names; they are made as long as this object is there.
  std::map<std::string, std::function<std::vector<float>()>> run() {
    embeddings();
    for (int64_t i = 0; i < s_.encoder_layers; ++i) {
      const auto ours = fmt::format("encoder.layers.{}.", i), theirs = fmt::format("encoder_l{}_", i + 1);
      attention(ours + "self_attention", ours + "after_self_attention", theirs + "self");
      feed_forward(ours, theirs + "ffn");
    }
    for (int64_t i = 0; i < s_.decoder_layers; ++i) {
      const auto ours = fmt::format("decoder.layers.{}.", i), theirs = fmt::format("decoder_l{}_", i + 1);
      if (s_.decoder_self_attention == ModelSettings::DecoderSelfAttention::ssru) {
        recurrence(ours, theirs + "rnn");
      } else {
        attention(ours + "self_attention", ours + "after_self_attention", theirs + "self");
      }
      attention(ours + "memory_attention", ours + "after_memory_attention", theirs + "context");
      feed_forward(ours, theirs + "ffn");
    }
    if (s_.normalization == ModelSettings::Normalization::pre) {
      norm("encoder", "encoder_top");
      norm("decoder", "decoder_top");
    }
    return std::move(made_);
  }

 private:
  using Numbers = std::vector<float>;

  void set(const std::string& ours, std::function<Numbers()> make) { made_.emplace(ours, std::move(make)); }

  static Numbers transposed(const Numbers& numbers, int64_t rows, int64_t columns) {
    Numbers result(numbers.size());
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        result[static_cast<size_t>(column * rows + row)] = numbers[static_cast<size_t>(row * columns + column)];
      }
    }
    return result;
  }

  /// A linear layer's matrix as [outputs, inputs].
  Numbers matrix(const std::string& name, int64_t inputs, int64_t outputs) {
    return transposed(weights_.read(name, {inputs, outputs}), inputs, outputs);
  }
  Numbers on_columns(const Numbers& numbers, int64_t rows) const { return permuted_columns(numbers, rows, width_); }
  Numbers on_rows(const Numbers& numbers, int64_t width) const { return permuted_rows(numbers, width, width_); }

  void pieces(const std::string& ours, const Renumbering& numbering, std::function<Numbers()> read) {
    set(ours, [=, this, &numbering, read = std::move(read)] {
      return on_columns(numbering.rows(read(), s_.d_model), numbering.size());
    });
  }

  void embeddings() {
    using Shared = ModelSettings::SharedEmbeddings;
    const int64_t d = s_.d_model, sources = source_.size() - added, targets = target_.size() - added;
    const auto read = [this, d](const std::string& name, int64_t count) {
      return [=, this] { return weights_.read(name, {count, d}); };
    };
    const std::string shared = "Wemb";
    const bool is_shared = weights_.has(shared);
    const auto source = is_shared ? shared : "encoder_Wemb", target = is_shared ? shared : "decoder_Wemb";
    if (s_.shared_embeddings == Shared::all) {
      pieces("embedding.weight", target_, read(shared, targets));
    } else {
      pieces("source_embedding.weight", source_, read(source, sources));
      pieces("target_embedding.weight", target_, read(target, targets));
    }
    if (s_.shared_embeddings == Shared::none) {
      // Newer versions have it the other way round, by another name.
      const bool is_newer = weights_.has(logits + "_Wt");
      pieces("projection.weight", target_, [=, this] {
        return is_newer ? weights_.read(logits + "_Wt", {targets, d}) : matrix(logits + "_W", d, targets);
      });
    }
    set("output_bias", [=, this] {
      const auto name = logits + "_b";
      return target_.biases(weights_.has(name) ? weights_.read(name, {targets}) : Numbers());
    });
  }

  void attention(const std::string& ours, const std::string& after, const std::string& theirs) {
    const int64_t d = s_.d_model;
    const auto joint = [](const std::function<Numbers(const std::string&)>& read) {
      Numbers all;
      for (const char* projection : {"q", "k", "v"}) {
        const auto one = read(projection);
        all.insert(all.end(), one.begin(), one.end());
      }
      return all;
    };
    set(ours + ".input_weight", [=, this] {
      return on_columns(joint([&](const std::string& of) { return matrix(theirs + "_W" + of, d, d); }), 3 * d);
    });
    set(ours + ".input_bias",
        [=, this] { return joint([&](const std::string& of) { return weights_.read(theirs + "_b" + of, {d}); }); });
    to_width(ours + ".output", theirs, "o", d);
    norm(after, theirs + "_Wo");
  }

  /// A recurrent unit's numbers each belong to one of the model's width, as what it puts out does.
  void recurrence(const std::string& layer, const std::string& theirs) {
    const int64_t d = s_.d_model;
    set(layer + "recurrence.input_weight", [=, this] {
      auto both = on_rows(matrix(theirs + "_Wf", d, d), d);
      const auto taken = on_rows(matrix(theirs + "_W", d, d), d);
      both.insert(both.end(), taken.begin(), taken.end());
      return on_columns(both, 2 * d);
    });
    set(layer + "recurrence.forget_bias", [=, this] { return on_rows(weights_.read(theirs + "_bf", {d}), 1); });
    const bool before = s_.normalization == ModelSettings::Normalization::pre;
    norm(layer + "after_self_attention", before ? theirs : theirs + "_ffn");
  }

  void feed_forward(const std::string& layer, const std::string& theirs) {
    const int64_t d = s_.d_model, inner = s_.d_ff;
    set(layer + "feed_forward.inner.weight", [=, this] { return on_columns(matrix(theirs + "_W1", d, inner), inner); });
    set(layer + "feed_forward.inner.bias", [=, this] { return weights_.read(theirs + "_b1", {inner}); });
    to_width(layer + "feed_forward.outer", theirs, "2", inner);
    norm(layer + "after_feed_forward", theirs + "_ffn");
  }

  /// A linear layer back to the model's width.
  void to_width(const std::string& ours, const std::string& theirs, const std::string& which, int64_t inputs) {
    const int64_t d = s_.d_model;
    set(ours + ".weight", [=, this] { return on_rows(matrix(theirs + "_W" + which, inputs, d), inputs); });
    set(ours + ".bias", [=, this] { return on_rows(weights_.read(theirs + "_b" + which, {d}), 1); });
  }

  void norm(const std::string& ours, const std::string& theirs) {
    for (const auto& [part, name] : {std::pair{".norm.weight", "_ln_scale"}, {".norm.bias", "_ln_bias"}}) {
      // Where it comes before a sub-layer its name says so, but for the one after all layers.
      const auto plain = theirs + name, before = plain + "_pre";
      set(ours + part,
          [=, this] { return on_rows(weights_.read(weights_.has(before) ? before : plain, {s_.d_model}), 1); });
    }
  }

  const ModelSettings& s_;
  const Renumbering &source_, &target_;
  ForeignWeights& weights_;
  std::vector<int64_t> width_;
  std::map<std::string, std::function<Numbers()>> made_;
};

/// The options that a model's file holds, as text in an array of bytes.
Options read_options(const std::map<std::string, NpzArray>& arrays, const fs::path& file) {
  const std::string name = "special:model.yml";
  constexpr int64_t most_bytes = int64_t{1} << 20;
  const auto found = arrays.find(name);
  if (found == arrays.end()) {
    throw Error(file.string(), fmt::format("has no '{}'", name), "expected a model as Marian saves it");
  }
  const auto& array = found->second;
  if (element_size(array.type) != 1 || array.shape.size() != 1 || array.shape[0] > most_bytes) {
    throw Error(file.string(), fmt::format("'{}' is no text", name), "expected a model as Marian saves it");
  }
  auto text = array.bytes();
  while (text.ends_with('\0')) text.pop_back();
  const auto where = fmt::format("{}: {}", file.string(), name);
  if (find_broken_utf8(text) != std::string::npos || text.find('\0') != std::string::npos) {
    throw Error(where, "is no text", "the file is damaged");
  }
  return {Document::parse(text, where), where};
}

std::vector<std::string> read_vocabulary(const fs::path& file) {
  if (file.extension() != ".spm") return marian_vocabulary(file);
  const auto bytes = read_file(file, SentencePieceModel::most_bytes);
  std::vector<std::string> pieces;
  for (const auto& piece : SentencePieceModel::read(bytes, file.string()).pieces) pieces.emplace_back(piece.text);
  return pieces;
}

Renumbering read_numbering(const fs::path& file, int64_t size, const Options& options) {
  const auto pieces = read_vocabulary(file);
  if (static_cast<int64_t>(pieces.size()) != size) {
    options.refuse("dim-vocabs", fmt::format("has {}, and {} has {} pieces", size, file.string(), pieces.size()));
  }
  const auto where = file.string();
  return renumbered(pieces, {.end = id_of_piece(pieces, "</s>", where), .unknown = id_of_piece(pieces, "<unk>", where)},
                    where);
}

}  // namespace

void import_marian(const fs::path& model, const fs::path& given_output, const TextFiles& text) {
  const auto output = folder_path(given_output);
  check_nothing_at(output);
  const auto files = find_files(model, text);
  const auto arrays = npz_arrays(files.model);
  const auto options = read_options(arrays, files.model);

  ImportedModel imported;
  auto& settings = imported.settings = read_settings(options);
  const auto &source_file = files.vocabularies.front(), &target_file = files.vocabularies.back();
  const auto source = read_numbering(source_file, settings.source_vocabulary_size, options),
             target = read_numbering(target_file, settings.target_vocabulary_size, options);
  StoredWeights stored;
  for (const auto& [name, array] : arrays) {
    if (!name.starts_with("special:")) stored.emplace(name, stored_weight(array));
  }
  ForeignWeights weights(std::move(stored), files.model.string(), "Marian's transformer");
  using Shared = ModelSettings::SharedEmbeddings;
  const bool has_own_output = weights.has(logits + "_W") || weights.has(logits + "_Wt");
  settings.shared_embeddings = has_own_output ? Shared::none : weights.has("Wemb") ? Shared::all : Shared::target;
  if (settings.shared_embeddings == Shared::all && source.pieces != target.pieces) {
    options.refuse("tied-embeddings-all", "shares one matrix, and the vocabularies differ");
  }
  settings.source_vocabulary_size = source.size();
  settings.target_vocabulary_size = settings.vocabulary_size = target.size();
  try {
    settings = settings.resolved();
  } catch (const Error& error) {
    options.refuse("dim-emb", fmt::format("and the other sizes make no model: {}", error.what()));
  }

  auto sentencepiece = text.sentencepiece;
  if (sentencepiece.empty() && source_file.extension() == ".spm" && target_file.extension() == ".spm") {
    sentencepiece = {source_file, target_file};
  }
  imported.vocabularies = vocabulary_files(files.folder, sentencepiece, source, target);
  imported.decoding = files.decoding;
  imported.metadata = {{"origin", "Marian"}};
  MarianImport conversion(settings, source, target, weights);
  imported.weights = conversion.run();
  imported.finished = [&] { weights.check_all_used(); };
  write_imported_model(imported, output);
}

}  // namespace transformer
