#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transformer/architecture/model_directory.h"
#include "transformer/architecture/weights.h"
#include "transformer/base/atomic_file.h"
#include "transformer/base/error.h"
#include "transformer/base/finite.h"
#include "transformer/base/folder.h"
#include "transformer/base/model_files.h"
#include "transformer/base/new_folder.h"
#include "transformer/base/read_file.h"
#include "transformer/base/tensor_file.h"
#include "transformer/interop/exported_folder.h"
#include "transformer/interop/hugging_face.h"
#include "transformer/interop/marian.h"
#include "transformer/text/sentencepiece_model.h"
#include "transformer/text/vocabulary.h"

namespace transformer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Numbers = std::vector<float>;

constexpr int64_t positions = 1024;  // for which MarianMT computes sinusoids when it is loaded

/// Their weights, each made of ours when it is its turn.
class HuggingFaceExport {
 public:
  HuggingFaceExport(const ModelSettings& settings, StoredWeights weights, std::string origin)
      : s_(settings),
        weights_(std::move(weights)),
        origin_(std::move(origin)),
        width_(inverse(marian_width(settings.d_model))) {}

  std::map<std::string, TensorSource> run() {
    using Shared = ModelSettings::SharedEmbeddings;
    const int64_t source = s_.source_vocabulary_size, target = s_.target_vocabulary_size, d = s_.d_model;
    const auto pieces = [&](const std::string& theirs, const std::string& ours, int64_t count) {
      set(theirs, {count, d}, [=, this] { return on_columns(take(ours), count); });
    };
    if (s_.shared_embeddings == Shared::all) {
      pieces("model.shared.weight", "embedding.weight", target);
    } else {
      pieces("model.encoder.embed_tokens.weight", "source_embedding.weight", source);
      pieces("model.decoder.embed_tokens.weight", "target_embedding.weight", target);
      if (s_.shared_embeddings == Shared::none) pieces("lm_head.weight", "projection.weight", target);
    }
    set("final_logits_bias", {1, target},
        [=, this] { return s_.output_bias ? take("output_bias") : Numbers(static_cast<size_t>(target)); });
    convert_marian_layers(
        s_,
        {.attention = [this](const std::string& ours, const std::string& theirs) { attention(ours, theirs); },
         .norm = [this](const std::string& ours, const std::string& theirs) { norm(ours, theirs); },
         .feed_forward = [this](const std::string& ours, const std::string& theirs) { feed_forward(ours, theirs); }});
    return std::move(made_);
  }

 private:
  void set(const std::string& theirs, std::vector<int64_t> shape, const std::function<Numbers()>& make) {
    made_[theirs] = {ElementType::float32, std::move(shape), [this, make] {
                       numbers_ = make();
                       return static_cast<const void*>(numbers_.data());
                     }};
  }
  Numbers take(const std::string& ours) const { return read_weight(weights_.at(ours), ours, origin_); }
  Numbers on_columns(const Numbers& numbers, int64_t rows) const { return permuted_columns(numbers, rows, width_); }
  Numbers on_rows(const Numbers& numbers, int64_t width) const { return permuted_rows(numbers, width, width_); }

  void attention(const std::string& ours, const std::string& theirs) {
    const int64_t d = s_.d_model;
    const auto part = [=, this](const std::string& name, int64_t which, int64_t width) {
      Numbers rows(static_cast<size_t>(d * width));
      weights_.at(ours + name).rows(which * d, d, rows.data());
      if (!all_finite(rows)) refuse_not_finite(origin_, ours + name);
      return rows;
    };
    int64_t which = 0;
    for (const char* projection : {"q", "k", "v"}) {
      const auto name = fmt::format("{}.{}_proj", theirs, projection);
      set(name + ".weight", {d, d}, [=, this] { return on_columns(part(".input_weight", which, d), d); });
      set(name + ".bias", {d},
          [=, this] { return s_.projection_bias ? part(".input_bias", which, 1) : Numbers(static_cast<size_t>(d)); });
      ++which;
    }
    output(ours + ".output", theirs + ".out_proj", d, s_.projection_bias);
  }

  /// A linear layer back to the model's width.
  void output(const std::string& ours, const std::string& theirs, int64_t inputs, bool bias) {
    const int64_t d = s_.d_model;
    set(theirs + ".weight", {d, inputs}, [=, this] { return on_rows(take(ours + ".weight"), inputs); });
    set(theirs + ".bias", {d},
        [=, this] { return bias ? on_rows(take(ours + ".bias"), 1) : Numbers(static_cast<size_t>(d)); });
  }

  void norm(const std::string& ours, const std::string& theirs) {
    for (const char* part : {".weight", ".bias"}) {
      set(theirs + part, {s_.d_model}, [=, this] { return on_rows(take(ours + ".norm" + part), 1); });
    }
  }

  void feed_forward(const std::string& ours, const std::string& theirs) {
    const int64_t d = s_.d_model, inner = s_.d_ff;
    const auto from = ours + "feed_forward.inner";
    set(theirs + "fc1.weight", {inner, d}, [=, this] { return on_columns(take(from + ".weight"), inner); });
    set(theirs + "fc1.bias", {inner}, [=, this] { return take(from + ".bias"); });
    output(ours + "feed_forward.outer", theirs + "fc2", inner, true);
    norm(ours + "after_feed_forward", theirs + "final_layer_norm");
  }

  const ModelSettings& s_;
  StoredWeights weights_;
  std::string origin_;
  std::vector<int64_t> width_;
  Numbers numbers_;  // of the tensor that is being written
  std::map<std::string, TensorSource> made_;
};

const char* activation_name(ModelSettings::Activation activation) {
  using Activation = ModelSettings::Activation;
  return activation == Activation::gelu ? "gelu" : activation == Activation::swish ? "swish" : "relu";
}

Json model_configuration(const ModelSettings& s) {
  using Shared = ModelSettings::SharedEmbeddings;
  return {{"architectures", {"MarianMTModel"}},
          {"model_type", "marian"},
          {"activation_dropout", s.relu_dropout},
          {"activation_function", activation_name(s.activation)},
          {"attention_dropout", s.attention_dropout},
          {"bos_token_id", nullptr},
          {"d_model", s.d_model},
          {"decoder_attention_heads", s.heads},
          {"decoder_ffn_dim", s.d_ff},
          {"decoder_layers", s.decoder_layers},
          {"decoder_start_token_id", Vocabulary::begin},
          {"decoder_vocab_size", s.target_vocabulary_size},
          {"dropout", s.dropout},
          {"encoder_attention_heads", s.heads},
          {"encoder_ffn_dim", s.d_ff},
          {"encoder_layers", s.encoder_layers},
          {"eos_token_id", Vocabulary::end},
          {"forced_eos_token_id", Vocabulary::end},
          {"is_encoder_decoder", true},
          {"max_position_embeddings", positions},
          {"num_hidden_layers", s.encoder_layers},
          {"pad_token_id", Vocabulary::padding},
          {"scale_embedding", s.scaled_embeddings},
          {"share_encoder_decoder_embeddings", s.shared_embeddings == Shared::all},
          {"static_position_embeddings", true},
          {"tie_word_embeddings", s.shared_embeddings != Shared::none},
          {"torch_dtype", "float32"},
          {"vocab_size", s.source_vocabulary_size}};
}

std::vector<std::string> pieces_of(const Vocabulary& vocabulary) {
  std::vector<std::string> pieces;
  for (int64_t id = 0; id < vocabulary.size(); ++id) pieces.push_back(vocabulary.piece(id));
  return pieces;
}

std::string text_of(const Json& json) {
  return json.dump(2, ' ', /*ensure_ascii=*/false) + "\n";
}

void write_json(const fs::path& file, const Json& json) {
  write_atomically(file, text_of(json));
}

/// What generation_config.json says of every model.
Json generation_configuration() {
  return {{"bad_words_ids", {{Vocabulary::padding}, {Vocabulary::begin}}},
          {"bos_token_id", nullptr},
          {"decoder_start_token_id", Vocabulary::begin},
          {"eos_token_id", Vocabulary::end},
          {"forced_eos_token_id", Vocabulary::end},
          {"max_length", 512},
          {"pad_token_id", Vocabulary::padding}};
}

/// What tokenizer_config.json says of a model whose reserved pieces these are.
Json tokenizer_configuration(const std::string& padding, const std::string& end, const std::string& unknown,
                             bool two_vocabularies) {
  return {{"tokenizer_class", "MarianTokenizer"},
          {"clean_up_tokenization_spaces", false},
          {"eos_token", end},
          {"model_max_length", positions},
          {"pad_token", padding},
          {"separate_vocabs", two_vocabularies},
          {"unk_token", unknown}};
}

void write_text(const fs::path& directory, const fs::path& model, const Vocabularies& vocabularies) {
  const bool joint = something_at(model / vocabulary_name);
  for (const auto& [theirs, ours] :
       {std::pair{"source.spm", source_vocabulary_name}, {"target.spm", target_vocabulary_name}}) {
    const auto file = model / (joint ? vocabulary_name : ours);
    write_atomically(directory / theirs, SentencePieceModel::without_own_fields(
                                             read_file(file, SentencePieceModel::most_bytes), file.string()));
  }
  const auto source = pieces_of(*vocabularies.source), target = pieces_of(*vocabularies.target);
  const auto write_pieces = [&](const char* name, const std::vector<std::string>& pieces) {
    auto ids = Json::object();
    for (size_t id = 0; id < pieces.size(); ++id) ids[pieces[id]] = id;
    write_json(directory / name, ids);
  };
  write_pieces("vocab.json", source);
  if (source != target) write_pieces("target_vocab.json", target);
  for (const int64_t id : {Vocabulary::padding, Vocabulary::end, Vocabulary::unknown}) {
    const auto &here = source[static_cast<size_t>(id)], &there = target[static_cast<size_t>(id)];
    if (here == there) continue;
    throw Error("vocabulary",
                fmt::format("source and target spell piece {} differently ('{}' and '{}'); MarianTokenizer has "
                            "one name",
                            id, here, there));
  }
  write_json(directory / "tokenizer_config.json",
             tokenizer_configuration(source[Vocabulary::padding], source[Vocabulary::end], source[Vocabulary::unknown],
                                     source != target));
}

}  // namespace

void check_hugging_face(const ModelSettings& given) {
  const auto s = given.resolved();
  const auto refuse = [](const std::string& name, const std::string& what) {
    throw Error("model." + name, what, "decode it here, or see whether export --to ctranslate2 takes it");
  };
  if (s.compatibility != ModelSettings::Compatibility::scaled_dot_product) {
    refuse("compatibility", "MarianMT has attention by scaled dot products alone");
  }
  if (s.attention_window != 0) refuse("attention_window", "MarianMT has no restricted self-attention");
  if (s.decoder_self_attention != ModelSettings::DecoderSelfAttention::attention) {
    refuse("decoder_self_attention", "MarianMT has no recurrent units");
  }
  if (s.feed_forward != ModelSettings::FeedForward::network) {
    refuse("feed_forward", "MarianMT has no attention over parameters");
  }
  if (s.activation == ModelSettings::Activation::swiglu) refuse("activation", "MarianMT has no SwiGLU");
  if (s.normalization != ModelSettings::Normalization::post) {
    refuse("normalization", "MarianMT has no normalisation before the sub-layers");
  }
  if (s.embedding_normalization) refuse("embedding_normalization", "MarianMT does not normalise embeddings");
  if (s.positions != ModelSettings::Positions::sinusoidal) refuse("positions", "MarianMT learns no positions");
  for (const auto& [name, width] : {std::pair{"d_k", s.d_k}, {"d_v", s.d_v}}) {
    if (width * s.heads != s.d_model) {
      refuse(name, fmt::format("is {}; MarianMT's is d_model / heads ({} / {})", width, s.d_model, s.heads));
    }
  }
  if (s.layer_norm_epsilon != ModelSettings{}.layer_norm_epsilon) {
    refuse("layer_norm_epsilon", fmt::format("is {}; MarianMT's is 1e-5", s.layer_norm_epsilon));
  }
}

namespace {

std::string readme_of(const std::string& licence) {
  return fmt::format("---\nlicense: {}\n---\n", licence);
}

/// Whether a README.md is what readme_of makes, and nothing else.
bool is_own_readme(const std::string& text) {
  constexpr std::string_view begin = "---\nlicense: ", end = "\n---\n";
  return text.starts_with(begin) && text.ends_with(end) && std::count(text.begin(), text.end(), '\n') == 3;
}

bool is_own_generation(const std::string& text) {
  return text == text_of(generation_configuration());
}

/// Whether a tokenizer_config.json is what tokenizer_configuration makes of some model's pieces.
bool is_own_tokenizer(const std::string& text) {
  const auto found = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!found.is_object()) return false;
  const auto piece = [&](const char* key) {
    const auto at = found.find(key);
    return at != found.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  const auto two = found.find("separate_vocabs");
  return text == text_of(tokenizer_configuration(piece("pad_token"), piece("eos_token"), piece("unk_token"),
                                                 two != found.end() && *two == true));
}

/// Whether a file is as an export writes it, which `is_own` says of its text.
bool is_own_file(const fs::path& file, bool (*is_own)(const std::string&)) {
  constexpr size_t most_bytes = 16384;
  std::error_code error;
  if (!is_file(file) || fs::file_size(file, error) > most_bytes || error) return false;
  return is_own(read_file(file, most_bytes));
}

}  // namespace

void export_hugging_face(const fs::path& model, const fs::path& given_output, bool force) {
  const auto output = folder_path(given_output);
  static const OwnFolders exported = {
      .kind = "exported model",
      .known = {"README.md", "config.json", "generation_config.json", "model.safetensors", "source.spm", "target.spm",
                "target_vocab.json", "tokenizer_config.json", "vocab.json"},
      // transformers writes the same files.
      .is_one = [](const fs::path& folder) {
        return metadata_of(folder / "model.safetensors", exported_by_key) == exported_by;
      }};
  const auto check = [&] {
    check_replaceable(output, model, force, exported);
    // People write these as well: what a model can do, how it is to search, what is done to its text.
    for (const auto& [name, is_own] : {std::pair{"README.md", &is_own_readme},
                                       {"generation_config.json", &is_own_generation},
                                       {"tokenizer_config.json", &is_own_tokenizer}}) {
      const auto file = output / name;
      if (!something_at(file) || is_own_file(file, is_own)) continue;
      throw Error(file.string(), "does not belong to the exported model, so the folder is not replaced",
                  "move it away, or name another folder");
    }
  };
  check();
  const auto settings = read_model_settings(model);
  check_hugging_face(settings);
  verify_model_directory(model);
  const auto vocabularies = Vocabularies::load(model, settings.source_vocabulary_size, settings.target_vocabulary_size);
  for (const auto* vocabulary : {vocabularies.source.get(), vocabularies.target.get()}) {
    if (vocabulary->languages().empty()) continue;
    throw Error(model.string(), "is told languages by its vocabulary, and MarianTokenizer tells a model none",
                "export it to CTranslate2");
  }
  const auto file = model / weights_name;
  auto weights = stored_weights(file);
  check_weights(weights, weight_shapes(settings), file.string());

  NewFolder folder(output);
  const auto& directory = folder.path();
  write_text(directory, model, vocabularies);
  write_json(directory / "config.json", model_configuration(settings));
  write_json(directory / "generation_config.json", generation_configuration());
  const auto known = provenance(model);
  if (const auto licence = known.find("licence"); licence != known.end()) {
    write_atomically(directory / "README.md", readme_of(licence->second));
  }
  HuggingFaceExport conversion(settings, std::move(weights), file.string());
  write_tensor_file(directory / "model.safetensors", conversion.run(),
                    {{"format", "pt"}, {exported_by_key, exported_by}});
  check();  // something may have come to lie there meanwhile
  folder.commit(/*replaces=*/force);
}

}  // namespace transformer
