#include "transformer/interop/ctranslate2.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "transformer/architecture/model_directory.h"
#include "transformer/architecture/sinusoids.h"
#include "transformer/architecture/weights.h"
#include "transformer/base/atomic_file.h"
#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/model_files.h"
#include "transformer/base/new_folder.h"
#include "transformer/base/read_file.h"
#include "transformer/interop/ctranslate2_file.h"
#include "transformer/interop/exported_folder.h"
#include "transformer/interop/json_value.h"
#include "transformer/text/sentencepiece_model.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

namespace {

namespace fs = std::filesystem;

/// A value of model.bin, in row-major order.
struct Variable {
  using Type = Ctranslate2Type;
  Type type = Type::float32;
  std::vector<int64_t> shape;
  std::vector<unsigned char> bytes;
};

template <class Number>
Variable variable(Variable::Type type, std::vector<int64_t> shape, const Number* numbers, size_t count) {
  Variable result{type, std::move(shape), std::vector<unsigned char>(count * sizeof(Number))};
  std::memcpy(result.bytes.data(), numbers, result.bytes.size());
  return result;
}

/// What model.bin holds. A name may stand for another variable instead of having a value: shared matrices are stored
/// once.
struct Variables {
  std::map<std::string, Variable> values;
  std::map<std::string, std::string> aliases;
};

/// Takes a model's weights out by our names and puts them in by CTranslate2's.
class Ctranslate2Export {
 public:
  /// The weights are those of the settings; `origin` is their file.
  Ctranslate2Export(const ModelSettings& settings, StoredWeights weights, std::string origin)
      : settings_(settings), weights_(std::move(weights)), origin_(std::move(origin)) {}

  Variables run() {
    embeddings();
    positions();
    for (const char* stack : {"encoder", "decoder"}) {
      const std::string name = stack;
      // What a specification says of itself besides weights; all else has the default meant for a plain Transformer.
      set(name + "/num_heads", scalar<int16_t>(settings_.heads));
      set(name + "/pre_norm", flag(settings_.normalization == ModelSettings::Normalization::pre));
      set(name + "/activation", scalar<int8_t>(activation()));
      set(name + "/scale_embeddings", flag(settings_.scaled_embeddings));  // by sqrt(D)
      if (settings_.normalization == ModelSettings::Normalization::pre) norm(name + ".norm", name + "/layer_norm");
      if (settings_.embedding_normalization) {
        norm((name == "encoder" ? "source_embeddings.norm" : "target_embeddings.norm"), name + "/layernorm_embedding");
      }
    }
    set("encoder/embeddings_merge", scalar<int8_t>(0));
    set("encoder/multi_query_attention", flag(false));
    set("decoder/alignment_layer", scalar<int16_t>(-1));
    set("decoder/alignment_heads", scalar<int16_t>(1));
    for (const char* other : {"alibi", "alibi_use_positive_positions", "scale_alibi", "start_from_zero_embedding"}) {
      set(fmt::format("decoder/{}", other), flag(false));
    }
    for (int64_t i = 0; i < settings_.encoder_layers; ++i) {
      const auto ours = fmt::format("encoder.layers.{}.", i), theirs = fmt::format("encoder/layer_{}/", i);
      self_attention(ours, theirs);
      feed_forward(ours, theirs);
    }
    for (int64_t i = 0; i < settings_.decoder_layers; ++i) {
      const auto ours = fmt::format("decoder.layers.{}.", i), theirs = fmt::format("decoder/layer_{}/", i);
      self_attention(ours, theirs);
      memory_attention(ours, theirs);
      feed_forward(ours, theirs);
    }
    if (!weights_.empty()) {
      throw std::logic_error(
          fmt::format("the CTranslate2 exporter knows nothing of the weights '{}'", weights_.begin()->first));
    }
    return std::move(variables_);
  }

 private:
  struct Weight {
    std::vector<int64_t> shape;
    std::vector<float> numbers;
  };

  template <class Number>
  static Variable scalar(int64_t value) {
    const auto number = static_cast<Number>(value);
    constexpr auto type = sizeof(Number) == 1   ? Variable::Type::int8
                          : sizeof(Number) == 2 ? Variable::Type::int16
                                                : Variable::Type::int32;
    return variable(type, {}, &number, 1);
  }
  static Variable flag(bool value) { return scalar<int8_t>(value ? 1 : 0); }

  void set(const std::string& name, Variable value) { variables_.values.emplace(name, std::move(value)); }
  void set(const std::string& name, const std::vector<int64_t>& shape, const float* numbers) {
    size_t count = 1;
    for (const int64_t size : shape) count *= static_cast<size_t>(size);
    set(name, variable(Variable::Type::float32, shape, numbers, count));
  }
  void set(const std::string& name, const Weight& weight) { set(name, weight.shape, weight.numbers.data()); }

  Weight take(const std::string& name) {
    auto node = weights_.extract(name);
    if (node.empty()) throw std::logic_error(fmt::format("the model has no weights '{}'", name));
    return {node.mapped().shape, read_weight(node.mapped(), name, origin_)};
  }

  /// The number of the activation in CTranslate2's list of them.
  int64_t activation() const {
    switch (settings_.activation) {
      case ModelSettings::Activation::relu:
        return 0;
      case ModelSettings::Activation::gelu:
        return 3;  // by the error function
      case ModelSettings::Activation::swiglu:
      case ModelSettings::Activation::swish:
        return 2;  // silu; that it gates is told from the presence of a third matrix
    }
    throw std::logic_error("unknown activation");
  }

  void embeddings() {
    using Shared = ModelSettings::SharedEmbeddings;
    const bool all = settings_.shared_embeddings == Shared::all;
    set("decoder/embeddings/weight", take(all ? "embedding.weight" : "target_embedding.weight"));
    if (all) {
      variables_.aliases["encoder/embeddings_0/weight"] = "decoder/embeddings/weight";
    } else {
      set("encoder/embeddings_0/weight", take("source_embedding.weight"));
    }
    if (settings_.shared_embeddings == Shared::none) {
      set("decoder/projection/weight", take("projection.weight"));
    } else {
      variables_.aliases["decoder/projection/weight"] = "decoder/embeddings/weight";
    }
    if (settings_.output_bias) set("decoder/projection/bias", take("output_bias"));
  }

  void positions() {
    const std::string encoder = "encoder/position_encodings/encodings",
                      decoder = "decoder/position_encodings/encodings";
    if (settings_.positions == ModelSettings::Positions::learned) {
      set(encoder, take("source_positions.weight"));
      set(decoder, take("target_positions.weight"));
    } else {
      const auto encodings = sinusoids(0, ctranslate2_positions, settings_.d_model);
      set(decoder, Weight{{ctranslate2_positions, settings_.d_model}, {encodings.begin(), encodings.end()}});
      variables_.aliases[encoder] = decoder;
    }
  }

  void norm(const std::string& ours, const std::string& theirs) {
    set(theirs + "/gamma", take(ours + ".weight"));
    set(theirs + "/beta", take(ours + ".bias"));
  }

  void linear(const std::string& ours, const std::string& theirs, bool bias) {
    set(theirs + "/weight", take(ours + ".weight"));
    if (bias) set(theirs + "/bias", take(ours + ".bias"));
  }

  /// What the heads of an attention sub-layer are like, where it is not the usual.
  void heads(const std::string& theirs) {
    if (settings_.d_k * settings_.heads != settings_.d_model) {
      set(theirs + "head_dim", scalar<int32_t>(settings_.d_k));
    }
    if (settings_.compatibility == ModelSettings::Compatibility::dot_product) {
      set(theirs + "queries_scale", Weight{{}, {1.0f}});
    }
  }

  void self_attention(const std::string& layer, const std::string& to) {
    const auto ours = layer + "self_attention.", theirs = to + "self_attention/";
    heads(theirs);
    set(theirs + "linear_0/weight", take(ours + "input_weight"));  // queries, keys, values, as there
    if (settings_.projection_bias) set(theirs + "linear_0/bias", take(ours + "input_bias"));
    linear(ours + "output", theirs + "linear_1", settings_.projection_bias);
    norm(layer + "after_self_attention.norm", theirs + "layer_norm");
  }

  void memory_attention(const std::string& layer, const std::string& to) {
    const auto ours = layer + "memory_attention.", theirs = to + "attention/";
    const int64_t queries = settings_.heads * settings_.d_k;
    const auto split = [&](const std::string& name, const std::string& as) {
      const auto joint = take(ours + name);
      auto first = joint.shape, second = joint.shape;
      first[0] = queries;
      second[0] -= queries;
      const int64_t width = joint.shape.size() > 1 ? joint.shape[1] : 1;
      set(theirs + "linear_0/" + as, first, joint.numbers.data());
      set(theirs + "linear_1/" + as, second, joint.numbers.data() + queries * width);
    };
    heads(theirs);
    split("input_weight", "weight");
    if (settings_.projection_bias) split("input_bias", "bias");
    linear(ours + "output", theirs + "linear_2", settings_.projection_bias);
    norm(layer + "after_memory_attention.norm", theirs + "layer_norm");
  }

  void feed_forward(const std::string& layer, const std::string& to) {
    const auto ours = layer + "feed_forward.", theirs = to + "ffn/";
    if (settings_.activation == ModelSettings::Activation::swiglu) {
      linear(ours + "gate", theirs + "linear_0", true);  // theirs has the activation, ours the gate's name
      linear(ours + "inner", theirs + "linear_0_noact", true);
    } else {
      linear(ours + "inner", theirs + "linear_0", true);
    }
    linear(ours + "outer", theirs + "linear_1", true);
    norm(layer + "after_feed_forward.norm", theirs + "layer_norm");
  }

  const ModelSettings& settings_;
  StoredWeights weights_;
  std::string origin_;
  Variables variables_;
};

/// Numbers go in the machine's byte order, as CTranslate2 writes and reads them.
class Writer {
 public:
  explicit Writer(const fs::path& file) : file_(file) {}

  template <class Number>
  void number(size_t value) {
    if (value > std::numeric_limits<Number>::max()) {
      throw std::out_of_range(fmt::format("{} is too large for model.bin", value));
    }
    const auto stored = static_cast<Number>(value);
    file_.write(&stored, sizeof stored);
  }
  void text(const std::string& text) {
    number<uint16_t>(text.size() + 1);
    file_.write(text.c_str(), text.size() + 1);
  }
  void variable(const Variable& variable) {
    number<uint8_t>(variable.shape.size());
    for (const int64_t size : variable.shape) number<uint32_t>(static_cast<size_t>(size));
    number<uint8_t>(static_cast<size_t>(variable.type));
    number<uint32_t>(variable.bytes.size());
    file_.write(variable.bytes.data(), variable.bytes.size());
  }
  void commit() { file_.commit(); }

 private:
  AtomicFile file_;
};

void write_variables(const fs::path& file, const Variables& variables) {
  for (const auto& [name, variable] : variables.values) {
    if (variable.bytes.size() <= std::numeric_limits<uint32_t>::max()) continue;
    throw Error(name,
                fmt::format("has {} bytes, and CTranslate2's format ends at 4 GiB a matrix", variable.bytes.size()));
  }
  Writer writer(file);
  writer.number<uint32_t>(ctranslate2_binary_version);
  writer.text(ctranslate2_specification);
  writer.number<uint32_t>(ctranslate2_specification_revision);
  writer.number<uint32_t>(variables.values.size());
  for (const auto& [name, variable] : variables.values) {
    writer.text(name);
    writer.variable(variable);
  }
  writer.number<uint32_t>(variables.aliases.size());
  for (const auto& [name, original] : variables.aliases) {
    writer.text(name);
    writer.text(original);
  }
  writer.commit();
}

void write_vocabulary(const fs::path& file, const Vocabulary& vocabulary) {
  auto pieces = nlohmann::json::array();
  for (int64_t id = 0; id < vocabulary.size(); ++id) pieces.push_back(vocabulary.piece(id));
  write_atomically(file, pieces.dump(2, ' ', /*ensure_ascii=*/true) + "\n");
}

void write_all(const fs::path& directory, const fs::path& model, const ModelSettings& settings,
               const Vocabularies& vocabularies) {
  const auto file = model / weights_name;
  auto weights = stored_weights(file);
  check_weights(weights, weight_shapes(settings), file.string());
  write_variables(directory / ctranslate2_weights_file,
                  Ctranslate2Export(settings, std::move(weights), file.string()).run());
  const auto& target = *vocabularies.target;
  for (const int64_t id : {Vocabulary::begin, Vocabulary::end, Vocabulary::unknown}) {
    if (vocabularies.source->piece(id) == target.piece(id)) continue;
    throw Error("vocabulary",
                fmt::format("source and target spell piece {} differently ('{}' and '{}'); CTranslate2 has one name",
                            id, vocabularies.source->piece(id), target.piece(id)));
  }
  const nlohmann::json config = {{"add_source_bos", false},
                                 {"add_source_eos", !vocabularies.source->languages().behind_end},
                                 {"bos_token", target.piece(Vocabulary::begin)},
                                 {"decoder_start_token", target.piece(Vocabulary::begin)},
                                 {"eos_token", target.piece(Vocabulary::end)},
                                 {exported_by_key, exported_by},
                                 {"layer_norm_epsilon", settings.layer_norm_epsilon},
                                 {"multi_query_attention", false},
                                 {"unk_token", target.piece(Vocabulary::unknown)}};
  write_atomically(directory / "config.json", config.dump(2) + "\n");
  if (vocabularies.source == vocabularies.target) {
    write_vocabulary(directory / "shared_vocabulary.json", target);
  } else {
    write_vocabulary(directory / "source_vocabulary.json", *vocabularies.source);
    write_vocabulary(directory / "target_vocabulary.json", target);
  }
  for (const char* name : vocabulary_names) {
    if (something_at(model / name)) {
      write_atomically(directory / name, read_file(model / name, SentencePieceModel::most_bytes));
    }
  }
}

/// Whether config.json says so, of whose other keys CTranslate2 takes no notice.
bool is_exported(const fs::path& folder) {
  try {
    const auto config = JsonValue::read(folder / "config.json", size_t{1} << 20);
    const auto* writer = config.find(exported_by_key);
    return writer && writer->text() == exported_by;
  } catch (const Error&) {
    return false;
  }
}

const OwnFolders& exported_models() {
  static const OwnFolders folders = {
      .kind = "exported model",
      .known = {ctranslate2_weights_file, "config.json", "shared_vocabulary.json", "source_vocabulary.json",
                "target_vocabulary.json", vocabulary_name, source_vocabulary_name, target_vocabulary_name},
      .is_one = is_exported};
  return folders;
}

}  // namespace

void check_ctranslate2(const ModelSettings& given) {
  const auto settings = given.resolved();
  const auto refuse = [](const std::string& name, const std::string& what) {
    throw Error("model." + name, what, "decode it here");
  };
  if (settings.compatibility == ModelSettings::Compatibility::additive) {
    refuse("compatibility", "CTranslate2 has no additive attention");
  }
  if (settings.attention_window != 0) {
    refuse("attention_window", "CTranslate2 has no restricted self-attention with positions on both sides");
  }
  if (settings.decoder_self_attention != ModelSettings::DecoderSelfAttention::attention) {
    refuse("decoder_self_attention", "CTranslate2 has no recurrent units");
  }
  if (settings.feed_forward == ModelSettings::FeedForward::attention_over_parameters) {
    refuse("feed_forward", "CTranslate2 has no attention over parameters");
  }
  if (settings.d_k != settings.d_v) {
    refuse("d_v", fmt::format("CTranslate2 has no values ({}) of another width than the keys ({})", settings.d_v,
                              settings.d_k));
  }
  if (settings.heads > std::numeric_limits<int16_t>::max()) refuse("heads", "too many for CTranslate2's format");
}

void export_ctranslate2(const fs::path& model_directory, const fs::path& given_output, bool force) {
  const auto output = folder_path(given_output);
  const auto check = [&] { check_replaceable(output, model_directory, force, exported_models()); };
  check();
  const auto settings = read_model_settings(model_directory);
  check_ctranslate2(settings);
  verify_model_directory(model_directory);
  const auto vocabularies =
      Vocabularies::load(model_directory, settings.source_vocabulary_size, settings.target_vocabulary_size);
  NewFolder directory(output);
  write_all(directory.path(), model_directory, settings, vocabularies);
  check();  // something may have come to lie there meanwhile
  directory.commit(/*replaces=*/force);
}

}  // namespace transformer
