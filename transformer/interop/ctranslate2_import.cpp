#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "transformer/architecture/settings.h"
#include "transformer/architecture/sinusoids.h"
#include "transformer/architecture/weights.h"
#include "transformer/base/checked.h"
#include "transformer/base/error.h"
#include "transformer/base/new_folder.h"
#include "transformer/base/read_file.h"
#include "transformer/base/unicode.h"
#include "transformer/interop/ctranslate2.h"
#include "transformer/interop/ctranslate2_file.h"
#include "transformer/interop/foreign_weights.h"
#include "transformer/interop/imported_model.h"
#include "transformer/interop/json_value.h"
#include "transformer/interop/marian.h"
#include "transformer/interop/renumbering.h"
#include "transformer/interop/text_of_model.h"
#include "transformer/text/sentencepiece_model.h"

namespace transformer {
namespace {

namespace fs = std::filesystem;

using Type = Ctranslate2Type;

/// An element of a type, whatever lies before it.
template <class Number>
Number element(const Ctranslate2Variable& variable, int64_t i) {
  Number number;
  std::memcpy(&number, variable.bytes.data() + static_cast<size_t>(i) * sizeof number, sizeof number);
  return number;
}

/// `count` elements from `first` on, as float32: integers are what they are.
void to_numbers(const Ctranslate2Variable& variable, int64_t first, int64_t count, float* to) {
  const auto as = [&](ElementType type) {
    const auto size = static_cast<size_t>(element_size(type));
    const auto bytes = variable.bytes.substr(static_cast<size_t>(first) * size, static_cast<size_t>(count) * size);
    const std::vector<char> aligned(bytes.begin(), bytes.end());
    to_float(type, aligned.data(), count, to);
  };
  switch (variable.type) {
    case Type::float32:
      return as(ElementType::float32);
    case Type::float16:
      return as(ElementType::float16);
    case Type::bfloat16:
      return as(ElementType::bfloat16);
    case Type::int8:
      for (int64_t i = 0; i < count; ++i) to[i] = element<int8_t>(variable, first + i);
      return;
    case Type::int16:
      for (int64_t i = 0; i < count; ++i) to[i] = element<int16_t>(variable, first + i);
      return;
    case Type::int32:
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(element<int32_t>(variable, first + i));
      return;
  }
}

bool is_float(const Ctranslate2Variable& variable) {
  return variable.type == Type::float32 || variable.type == Type::float16 || variable.type == Type::bfloat16;
}

int64_t elements_of(const Ctranslate2Variable& variable) {
  return checked_product(variable.shape).value();
}

/// What a model.bin says, as settings (single numbers) and weights.
class Specification {
 public:
  explicit Specification(const fs::path& file)
      : file_(file.string()), variables_(read_ctranslate2(file)), weights_(stored(), file_, "a Transformer's model") {}

  ForeignWeights& weights() { return weights_; }
  const std::string& file() const { return file_; }
  bool same(const std::string& a, const std::string& b) const { return variables_.find(a) == variables_.find(b); }

  [[noreturn]] void refuse(const std::string& name, const std::string& what) const {
    weights_.refuse(fmt::format("'{}' {}", name, what));
  }

  /// A single number; nothing where there is none of this name.
  std::optional<double> setting(const std::string& name) {
    const auto* variable = variables_.find(name);
    if (!variable) return std::nullopt;
    if (!variable->shape.empty()) refuse(name, "is no single number");
    used_.insert(name);
    float value = 0;
    to_numbers(*variable, 0, 1, &value);
    if (!std::isfinite(value)) refuse(name, "is not finite");
    return value;
  }
  double setting(const std::string& name, double otherwise) { return setting(name).value_or(otherwise); }
  bool flag(const std::string& name) { return setting(name, 0) != 0; }
  /// A single number that counts something; 0 where there is none.
  int64_t count(const std::string& name) {
    constexpr double most = 1e9;  // an int64_t does not hold every number
    const double value = setting(name, 0);
    if (!(value >= 0 && value <= most) || value != std::floor(value)) {
      refuse(name, fmt::format("is {}, and no count", value));
    }
    return static_cast<int64_t>(value);
  }
  /// Whether a single number is there that is no integer by its type.
  bool is_number(const std::string& name) const {
    const auto* variable = variables_.find(name);
    return variable && is_float(*variable);
  }

  /// Throws Error naming the first variable that nobody asked for.
  void check_all_used() const {
    for (const auto& [name, variable] : variables_.values) {
      if (!variable.shape.empty() || used_.contains(name)) continue;
      float value = 0;
      to_numbers(variable, 0, 1, &value);
      refuse(name, fmt::format("is {}, which means nothing here", value));
    }
    weights_.check_all_used();
  }

 private:
  /// Weights, integers with their scales as what they stand for. The scales count as used.
  StoredWeights stored() {
    StoredWeights weights;
    std::set<std::string> scales;
    for (const auto& [name, variable] : variables_.values) {
      if (variable.shape.empty()) continue;
      const auto scale = variables_.values.find(name + "_scale");
      const bool is_scaled = !is_float(variable) && scale != variables_.values.end();
      if (is_scaled) scales.insert(scale->first), used_.insert(scale->first);
      weights[name] = is_scaled ? scaled(name, variable, scale->second) : plain(variable);
    }
    // The same weights, so that many names of one cost no more.
    for (const auto& [alias, name] : variables_.aliases) {
      const auto found = weights.find(name);
      if (found == weights.end()) continue;  // a single number
      weights[alias] = StoredWeight(found->second);
      if (scales.contains(name + "_scale")) scales.insert(alias + "_scale");
    }
    for (const auto& name : scales) weights.erase(name);
    return weights;
  }

  StoredWeight plain(const Ctranslate2Variable& variable) const {
    static const std::map<Type, ElementType> types = {
        {Type::float32, ElementType::float32},   {Type::float16, ElementType::float16},
        {Type::bfloat16, ElementType::bfloat16}, {Type::int8, ElementType::int8},
        {Type::int16, ElementType::int16},       {Type::int32, ElementType::int32}};
    return {types.at(variable.type), variable.shape, rows_of(variable, [](int64_t, float number) { return number; })};
  }

  /// Of integers, which a scale each row, or one for all, has made of what they stand for.
  StoredWeight scaled(const std::string& name, const Ctranslate2Variable& variable,
                      const Ctranslate2Variable& scale) const {
    const bool by_row = !scale.shape.empty();
    if (!is_float(scale) || (by_row && elements_of(scale) != variable.shape[0])) {
      throw Error(file_, fmt::format("{} has not the scales of its rows", in_quotes(name)), "the file is damaged");
    }
    const auto scales = std::make_shared<std::vector<float>>(static_cast<size_t>(by_row ? variable.shape[0] : 1));
    to_numbers(scale, 0, static_cast<int64_t>(scales->size()), scales->data());
    return {ElementType::float32, variable.shape, rows_of(variable, [scales, by_row](int64_t row, float number) {
              return number / (*scales)[by_row ? static_cast<size_t>(row) : 0];
            })};
  }

  template <class Change>
  static std::function<void(int64_t, int64_t, float*)> rows_of(const Ctranslate2Variable& variable, Change change) {
    const int64_t width = checked_product(std::vector(variable.shape.begin() + 1, variable.shape.end())).value();
    return [variable, width, change = std::move(change)](int64_t first, int64_t count, float* to) {
      to_numbers(variable, first * width, count * width, to);
      for (int64_t i = 0; i < count * width; ++i) to[i] = change(first + i / width, to[i]);
    };
  }

  std::string file_;
  Ctranslate2Variables variables_;
  std::set<std::string> used_;
  ForeignWeights weights_;
};

/// What config.json says of the text.
struct Tokens {
  std::string begin = "<s>", end = "</s>", unknown = "<unk>";
  std::optional<std::string> start;
  bool adds_end = false;
  double epsilon = 1e-5;
};

Tokens read_tokens(const fs::path& file) {
  constexpr size_t most_bytes = size_t{1} << 20;
  Tokens tokens;
  const auto json = JsonValue::read(file, most_bytes);
  const auto refuse = [&](const std::string& key, const std::string& what) {
    throw Error(file.string(), fmt::format("'{}' {}", key, what), "such a model cannot be imported");
  };
  if (json.kind() != JsonValue::Kind::object) throw Error(file.string(), "is no object of settings");
  const auto value = [&](const char* key, JsonValue::Kind kind, const char* expected) {
    const auto* found = json.find(key);
    if (found && found->kind() != kind) refuse(key, fmt::format("should be {}, found {}", expected, found->found()));
    return found;
  };
  const auto text = [&](const char* key) { return value(key, JsonValue::Kind::text, "a text"); };
  const auto flag = [&](const char* key) {
    const auto* found = value(key, JsonValue::Kind::boolean, "true or false");
    return found && found->boolean();
  };
  for (const auto& [key, token] :
       {std::pair{"bos_token", &tokens.begin}, {"eos_token", &tokens.end}, {"unk_token", &tokens.unknown}}) {
    if (const auto* found = text(key)) *token = found->text();
  }
  if (const auto* found = text("decoder_start_token")) tokens.start = found->text();
  if (flag("add_source_bos")) refuse("add_source_bos", "is true: sources begin with nothing here");
  if (flag("multi_query_attention")) refuse("multi_query_attention", "is true: heads have keys of their own here");
  tokens.adds_end = flag("add_source_eos");
  if (const auto* found = value("layer_norm_epsilon", JsonValue::Kind::number, "a number"))
    tokens.epsilon = found->number();
  return tokens;
}

/// The pieces of one side; of both where they share a file.
std::pair<std::vector<std::string>, fs::path> read_pieces(const fs::path& folder, const char* side) {
  for (const auto& name : {fmt::format("{}_vocabulary", side), std::string("shared_vocabulary")}) {
    std::vector<std::string> pieces;
    if (const auto file = folder / (name + ".json"); is_file(file)) {
      const auto json = JsonValue::read(file, size_t{256} << 20, SentencePieceModel::most_pieces + 1);
      const auto is_text = [](const JsonValue& element) { return element.kind() == JsonValue::Kind::text; };
      if (json.kind() != JsonValue::Kind::list ||
          !std::all_of(json.elements().begin(), json.elements().end(), is_text)) {
        throw Error(file.string(), "is no list of pieces");
      }
      for (const auto& element : json.elements()) pieces.push_back(element.text());
      return {std::move(pieces), file};
    }
    // As earlier versions wrote it.
    if (const auto file = folder / (name + ".txt"); is_file(file)) {
      const auto text = read_file(file, SentencePieceModel::most_bytes);
      for (std::string_view rest = text; !rest.empty();) {
        const auto line = rest.substr(0, rest.find('\n'));
        if (pieces.size() == SentencePieceModel::most_pieces) {
          throw Error(file.string(), fmt::format("has more than {} pieces", SentencePieceModel::most_pieces));
        }
        pieces.emplace_back(line);
        rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      }
      return {std::move(pieces), file};
    }
  }
  throw Error(folder.string(), fmt::format("has no {}_vocabulary.json and no shared_vocabulary.json", side),
              "name a folder of a model that CTranslate2 loads");
}

/// The target's numbering, or the source's, whose begin nothing reads.
Renumbering read_numbering(const std::vector<std::string>& pieces, const fs::path& file, const Tokens& tokens,
                           bool starts_from_zeros, bool is_source) {
  const auto where = file.string();
  const auto has = [&](const std::string& piece) {
    return std::find(pieces.begin(), pieces.end(), piece) != pieces.end();
  };
  ReservedPieces reserved{.end = id_of_piece(pieces, tokens.end, where),
                          .unknown = id_of_piece(pieces, tokens.unknown, where)};
  const auto is_free = [&](const std::string& piece) {
    return has(piece) && piece != tokens.end && piece != tokens.unknown;
  };
  if (!starts_from_zeros) {
    const auto start = is_source ? tokens.begin : tokens.start.value();
    if (!is_source || has(start)) reserved.start = id_of_piece(pieces, start, where);
    reserved.start_is_begin = start == tokens.begin && is_free(start);
  }
  for (const char* name : {"<pad>", "<blank>"}) {
    if (!reserved.padding && is_free(name) && !(reserved.start_is_begin && name == tokens.begin)) {
      reserved.padding = id_of_piece(pieces, name, where);
    }
  }
  return renumbered(pieces, reserved, where);
}

constexpr int64_t widest = 65536;  // as model.d_model can be

/// Makes our weights of theirs, one after the other.
class Ctranslate2Import {
 public:
  Ctranslate2Import(Specification& specification, const Tokens& tokens)
      : spec_(specification), weights_(specification.weights()) {
    read_settings();
    s_.layer_norm_epsilon = tokens.epsilon;
    read_positions();
  }

  /// The model's, whose vocabularies are theirs, and open to changes.
  ModelSettings& settings() { return s_; }
  bool starts_from_zeros() const { return starts_from_zeros_; }

  /// Each weight of the model, by our names; they are made as long as this object and the numberings are there.
  std::map<std::string, std::function<std::vector<float>()>> run(const Renumbering& source, const Renumbering& target,
                                                                 int64_t sources, int64_t targets) {
    embeddings(source, target, sources, targets);
    if (s_.embedding_normalization) {
      norm("source_embeddings", "encoder/layernorm_embedding");
      norm("target_embeddings", "decoder/layernorm_embedding");
    }
    for (int64_t i = 0; i < s_.encoder_layers; ++i) {
      const auto ours = fmt::format("encoder.layers.{}.", i), theirs = fmt::format("encoder/layer_{}/", i);
      attention(ours + "self_attention", {theirs + "self_attention/linear_0"}, theirs + "self_attention/linear_1");
      norm(ours + "after_self_attention", theirs + "self_attention/layer_norm");
      feed_forward(ours, theirs + "ffn/");
    }
    for (int64_t i = 0; i < s_.decoder_layers; ++i) {
      const auto ours = fmt::format("decoder.layers.{}.", i), theirs = fmt::format("decoder/layer_{}/", i);
      attention(ours + "self_attention", {theirs + "self_attention/linear_0"}, theirs + "self_attention/linear_1");
      norm(ours + "after_self_attention", theirs + "self_attention/layer_norm");
      attention(ours + "memory_attention", {theirs + "attention/linear_0", theirs + "attention/linear_1"},
                theirs + "attention/linear_2");
      norm(ours + "after_memory_attention", theirs + "attention/layer_norm");
      feed_forward(ours, theirs + "ffn/");
    }
    if (s_.normalization == ModelSettings::Normalization::pre) {
      for (const std::string stack : {"encoder", "decoder"}) norm(stack, stack + "/layer_norm");
    }
    return std::move(made_);
  }

 private:
  using Numbers = std::vector<float>;

  int64_t both(const std::string& name) {
    const auto encoder = spec_.setting("encoder/" + name), decoder = spec_.setting("decoder/" + name);
    if (!encoder || encoder != decoder) spec_.refuse("decoder/" + name, "is not what the encoder's is");
    return spec_.count("encoder/" + name);
  }

  std::vector<int64_t> matrix_shape(const std::string& name) const {
    auto shape = weights_.shape(name);
    if (shape.size() != 2) spec_.refuse(name, shape.empty() ? "is missing" : "is no matrix");
    return shape;
  }

  void read_settings() {
    const auto target = matrix_shape("decoder/embeddings/weight"), source = matrix_shape("encoder/embeddings_0/weight");
    s_.d_model = target[1];
    // What is computed from it before the sizes are judged together must not be too much.
    if (s_.d_model < 1 || s_.d_model > widest) {
      spec_.refuse("decoder/embeddings/weight",
                   fmt::format("is {} wide, from 1 to {} is possible", s_.d_model, widest));
    }
    s_.source_vocabulary_size = source[0];
    s_.target_vocabulary_size = s_.vocabulary_size = target[0];
    const auto layers = [&](const char* stack) {
      int64_t count = 0;
      while (weights_.has(fmt::format("{}/layer_{}/self_attention/linear_0/weight", stack, count))) ++count;
      return count;
    };
    s_.encoder_layers = layers("encoder");
    s_.decoder_layers = layers("decoder");
    s_.heads = both("num_heads");
    s_.d_ff = matrix_shape("encoder/layer_0/ffn/linear_0/weight")[0];
    s_.normalization = both("pre_norm") != 0 ? ModelSettings::Normalization::pre : ModelSettings::Normalization::post;
    read_activation();
    read_embedding_scales();
    read_attentions();
    s_.projection_bias = weights_.has("encoder/layer_0/self_attention/linear_0/bias");
    s_.output_bias = weights_.has("decoder/projection/bias");
    s_.embedding_normalization = weights_.has("encoder/layernorm_embedding/gamma");

    starts_from_zeros_ = spec_.flag("decoder/start_from_zero_embedding");
    for (const char* name : {"decoder/alibi", "encoder/multi_query_attention", "decoder/multi_query_attention"}) {
      if (spec_.flag(name)) spec_.refuse(name, "is set, which is not computed here");
    }
    // They say nothing where there is no other embedding, no slope, and nobody asks for alignments.
    for (const char* name : {"encoder/embeddings_merge", "decoder/alibi_use_positive_positions", "decoder/scale_alibi",
                             "decoder/alignment_layer", "decoder/alignment_heads"}) {
      spec_.setting(name);
    }

    using Shared = ModelSettings::SharedEmbeddings;
    const std::string output = "decoder/projection/weight", embedding = "decoder/embeddings/weight";
    if (!weights_.has(output)) spec_.refuse(output, "is missing");
    const bool is_tied = spec_.same(output, embedding);
    s_.shared_embeddings = !is_tied                                               ? Shared::none
                           : spec_.same("encoder/embeddings_0/weight", embedding) ? Shared::all
                                                                                  : Shared::target;
  }

  void read_activation() {
    using Activation = ModelSettings::Activation;
    static const std::map<int64_t, Activation> known = {
        {0, Activation::relu}, {2, Activation::swish}, {3, Activation::gelu}};
    const int64_t activation = both("activation");
    const bool has_gate = weights_.has("encoder/layer_0/ffn/linear_0_noact/weight");
    const auto found = known.find(activation);
    if (found == known.end() || (has_gate && found->second != Activation::swish)) {
      spec_.refuse(
          "encoder/activation",
          fmt::format("is {}{}; ReLU (0), swish (2) and GELU by the error function (3) are known, and gates of "
                      "swish alone",
                      activation, has_gate ? " with a gate" : ""));
    }
    s_.activation = has_gate ? Activation::swiglu : found->second;
  }

  void read_embedding_scales() {
    const double root = std::sqrt(static_cast<double>(s_.d_model));
    std::vector<bool> scaled;
    for (const std::string stack : {"encoder", "decoder"}) {
      const auto name = stack + "/scale_embeddings";
      const double scale = spec_.setting(name, 1);  // a flag, or the number itself
      const bool is_flag = scale == 0 || scale == 1;
      const bool is_number = spec_.is_number(name);
      if (is_number ? scale != 1 && std::abs(scale - root) > 1e-3 * root : !is_flag) {
        spec_.refuse(name, fmt::format("is {}; the square root of the width is what embeddings are scaled by", scale));
      }
      scaled.push_back(is_number ? scale != 1 : scale == 1);
    }
    if (scaled[0] != scaled[1]) spec_.refuse("decoder/scale_embeddings", "is not what the encoder's is");
    s_.scaled_embeddings = scaled[0];
  }

  /// The width of heads, and what dot products are scaled by: of all attentions alike.
  void read_attentions() {
    std::optional<std::pair<int64_t, double>> first;
    const auto read = [&](const std::string& attention) {
      const int64_t width = spec_.count(attention + "head_dim");
      const double scale = spec_.setting(attention + "queries_scale", 0);
      if (scale != 0 && scale != 1) {
        spec_.refuse(attention + "queries_scale", fmt::format("is {}; 1, or none for 1 / sqrt(d_k), is known", scale));
      }
      if (!first) first = {width, scale};
      if (first != std::pair(width, scale))
        spec_.refuse(attention + "head_dim", "and queries_scale are not those of all");
    };
    for (int64_t i = 0; i < s_.encoder_layers; ++i) read(fmt::format("encoder/layer_{}/self_attention/", i));
    for (int64_t i = 0; i < s_.decoder_layers; ++i) {
      read(fmt::format("decoder/layer_{}/self_attention/", i));
      read(fmt::format("decoder/layer_{}/attention/", i));
    }
    if (!first) return;
    s_.d_k = s_.d_v = first->first;
    if (first->second == 1) s_.compatibility = ModelSettings::Compatibility::dot_product;
  }

  /// Sinusoids as ours are, or sines before cosines, which a permutation of the width makes ours, or learned positions.
  void read_positions() {
    width_.resize(static_cast<size_t>(s_.d_model));
    std::iota(width_.begin(), width_.end(), 0);
    const std::string encoder = table("encoder"), decoder = table("decoder");
    const auto shape = matrix_shape(encoder);
    if (matrix_shape(decoder) != shape) spec_.refuse(decoder, "has not the shape of the encoder's");
    for (const auto& width : {width_, marian_width(s_.d_model)}) {
      if (!has_sinusoids(encoder, width) || !has_sinusoids(decoder, width)) continue;
      width_ = width;
      return;
    }
    s_.positions = ModelSettings::Positions::learned;
    s_.max_positions = shape[0];
    for (const auto& [ours, theirs] : {std::pair{"source", encoder}, {"target", decoder}}) {
      set(fmt::format("{}_positions.weight", ours), [=, this, theirs = theirs] {
        return weights_.read(theirs, {s_.max_positions, s_.d_model});
      });
    }
  }

  static std::string table(const std::string& stack) { return stack + "/position_encodings/encodings"; }

  bool has_sinusoids(const std::string& name, const std::vector<int64_t>& width) {
    const int64_t rows = weights_.shape(name)[0];
    const auto found = permuted_columns(weights_.read(name, {rows, s_.d_model}), rows, width);
    const auto sines = sinusoids(0, rows, s_.d_model);
    // Stored in half precision they are a little off.
    return std::equal(found.begin(), found.end(), sines.begin(), sines.end(),
                      [](float stored, double exact) { return std::abs(static_cast<double>(stored) - exact) < 2e-3; });
  }

  void set(const std::string& ours, std::function<Numbers()> make) { made_.emplace(ours, std::move(make)); }

  Numbers on_columns(const Numbers& numbers, int64_t rows) const { return permuted_columns(numbers, rows, width_); }
  Numbers on_rows(const Numbers& numbers, int64_t width) const { return permuted_rows(numbers, width, width_); }

  void embeddings(const Renumbering& source, const Renumbering& target, int64_t sources, int64_t targets) {
    using Shared = ModelSettings::SharedEmbeddings;
    const auto pieces = [this](const std::string& ours, const Renumbering& numbering, const std::string& theirs,
                               int64_t count) {
      set(ours, [=, this, &numbering] {
        return on_columns(numbering.rows(weights_.read(theirs, {count, s_.d_model}), s_.d_model), numbering.size());
      });
    };
    const std::string of_source = "encoder/embeddings_0/weight", of_target = "decoder/embeddings/weight",
                      output = "decoder/projection/weight";
    if (s_.shared_embeddings == Shared::all) {
      pieces("embedding.weight", target, of_target, targets);
      weights_.ignore(of_source);
    } else {
      pieces("source_embedding.weight", source, of_source, sources);
      pieces("target_embedding.weight", target, of_target, targets);
    }
    if (s_.shared_embeddings == Shared::none) {
      pieces("projection.weight", target, output, targets);
    } else {
      weights_.ignore(output);
    }
    if (!s_.output_bias) return;
    set("output_bias", [=, this, &target] {
      const std::string name = "decoder/projection/bias";
      return target.biases(weights_.has(name) ? weights_.read(name, {targets}) : Numbers());
    });
  }

  /// `inputs` names the layers that make queries, keys and values, in this order.
  void attention(const std::string& ours, const std::vector<std::string>& inputs, const std::string& output) {
    const int64_t d = s_.d_model, heads = s_.heads * s_.d_k;
    const auto joint = [=, this](const char* part, int64_t width) {
      Numbers all;
      for (const auto& name : inputs) {
        const int64_t rows = inputs.size() == 1 ? 3 * heads : name == inputs.front() ? heads : 2 * heads;
        const auto one = weights_.read(name + part, {rows, width});
        all.insert(all.end(), one.begin(), one.end());
      }
      return all;
    };
    set(ours + ".input_weight", [=, this] { return on_columns(joint("/weight", d), 3 * heads); });
    if (s_.projection_bias) set(ours + ".input_bias", [=] { return joint("/bias", 1); });
    to_width(ours + ".output", output, heads, s_.projection_bias);
  }

  void feed_forward(const std::string& layer, const std::string& theirs) {
    const int64_t d = s_.d_model, inner = s_.d_ff;
    const auto from_width = [=, this](const std::string& ours, const std::string& name) {
      set(ours + ".weight", [=, this] { return on_columns(weights_.read(name + "/weight", {inner, d}), inner); });
      set(ours + ".bias", [=, this] { return weights_.read(name + "/bias", {inner}); });
    };
    if (s_.activation == ModelSettings::Activation::swiglu) {
      from_width(layer + "feed_forward.gate", theirs + "linear_0");  // theirs has the activation, ours the gate's name
      from_width(layer + "feed_forward.inner", theirs + "linear_0_noact");
    } else {
      from_width(layer + "feed_forward.inner", theirs + "linear_0");
    }
    to_width(layer + "feed_forward.outer", theirs + "linear_1", inner, /*bias=*/true);
    norm(layer + "after_feed_forward", theirs + "layer_norm");
  }

  /// A linear layer back to the model's width.
  void to_width(const std::string& ours, const std::string& theirs, int64_t inputs, bool bias) {
    const int64_t d = s_.d_model;
    set(ours + ".weight", [=, this] { return on_rows(weights_.read(theirs + "/weight", {d, inputs}), inputs); });
    if (bias) set(ours + ".bias", [=, this] { return on_rows(weights_.read(theirs + "/bias", {d}), 1); });
  }

  void norm(const std::string& ours, const std::string& theirs) {
    for (const auto& [part, name] : {std::pair{".norm.weight", "/gamma"}, {".norm.bias", "/beta"}}) {
      set(ours + part, [=, this, name = name] { return on_rows(weights_.read(theirs + name, {s_.d_model}), 1); });
    }
  }

  Specification& spec_;
  ForeignWeights& weights_;
  ModelSettings s_;
  bool starts_from_zeros_ = false;
  std::vector<int64_t> width_;
  std::map<std::string, std::function<Numbers()>> made_;
};

}  // namespace

void import_ctranslate2(const fs::path& folder, const fs::path& given_output,
                        const std::vector<fs::path>& sentencepiece) {
  const auto output = folder_path(given_output);
  check_nothing_at(output);
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    throw Error(folder.string(), "is not a folder", "name one that holds model.bin");
  for (const char* name : {ctranslate2_weights_file, "config.json"}) {
    if (!is_file(folder / name)) {
      throw Error(folder.string(), fmt::format("has no {}", name), "name a folder of a model that CTranslate2 loads");
    }
  }
  const auto tokens = read_tokens(folder / "config.json");
  Specification specification(folder / ctranslate2_weights_file);
  Ctranslate2Import conversion(specification, tokens);
  auto& settings = conversion.settings();
  const auto [source_pieces, source_file] = read_pieces(folder, "source");
  const auto [target_pieces, target_file] = read_pieces(folder, "target");
  const auto config = [&](const std::string& key, const std::string& what) {
    throw Error((folder / "config.json").string(), fmt::format("'{}' {}", key, what),
                "such a model cannot be imported");
  };
  if (!conversion.starts_from_zeros()) {
    if (!tokens.start) config("decoder_start_token", "is not given: a text says there what language it is to become");
    // Marian's models end their sources with a piece that whoever makes the pieces adds; of others nobody knows.
    if (!tokens.adds_end) config("add_source_eos", "is not true: sources end with their end here");
  }
  for (const auto& [pieces, file, size] : {std::tuple{&source_pieces, &source_file, settings.source_vocabulary_size},
                                           {&target_pieces, &target_file, settings.target_vocabulary_size}}) {
    if (static_cast<int64_t>(pieces->size()) != size) {
      throw Error(file->string(), fmt::format("has {} pieces, and the embedding {} rows", pieces->size(), size));
    }
  }
  using Shared = ModelSettings::SharedEmbeddings;
  const bool is_one = source_pieces == target_pieces;
  if (!is_one && settings.shared_embeddings == Shared::all) settings.shared_embeddings = Shared::target;
  const auto target =
      read_numbering(target_pieces, target_file, tokens, conversion.starts_from_zeros(), /*is_source=*/false);
  const auto source = is_one ? target
                             : read_numbering(source_pieces, source_file, tokens, conversion.starts_from_zeros(),
                                              /*is_source=*/true);
  settings.source_vocabulary_size = source.size();
  settings.target_vocabulary_size = settings.vocabulary_size = target.size();
  settings.output_bias = settings.output_bias || target.needs_biases();
  try {
    settings = settings.resolved();
  } catch (const Error& error) {
    specification.weights().refuse(fmt::format("its sizes make no model: {}", error.what()));
  }

  ImportedModel imported;
  // Its usual max_decoding_length, which is a number alone: a target may take many more pieces than its source.
  imported.decoding = "\ndecoding:\n  max_extra_length: 256\n";
  imported.vocabularies = vocabulary_files(folder, sentencepiece, source, target);
  imported.metadata = {{"origin", "CTranslate2"}};
  imported.weights = conversion.run(source, target, static_cast<int64_t>(source_pieces.size()),
                                    static_cast<int64_t>(target_pieces.size()));
  imported.settings = settings;
  imported.finished = [&] { specification.check_all_used(); };
  write_imported_model(imported, output);
}

}  // namespace transformer
