#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transformer/decoding/beam_search.h"
#include "transformer/decoding/output_constraint.h"
#include "transformer/decoding/packed_matrix.h"
#include "transformer/model/transformer.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

struct Translation {
  std::string text;
  double score = 0;  // log probability / length penalty
  double log_probability = 0;
  std::vector<int64_t> tokens;  // pieces of the target vocabulary that the model wrote, without begin and end
};

/// How decoding computes.
struct InferenceOptions {
  Precision precision = Precision::float32;
  int64_t threads = 1;  // workers, each with sentences of its own
};

/// Translates text with a model directory. Any number of threads may call `translate` of one translator at once, while
/// none calls `set`.
class Translator {
 public:
  /// Loads `directory`: model.safetensors, config.yaml, and vocabulary.model or source.model and target.model. Its own
  /// decoding settings are the defaults. Throws Error naming what is missing, damaged or does not fit together.
  ///
  /// On a CPU weights are packed and rounded as `inference` says, and the modules that training needs are not made. On
  /// other devices, and for settings that packed inference does not know, it translates with those modules and
  /// LibTorch's threads: in float32, bf16 or, on a GPU, fp16, everything but the log-probabilities. A precision that
  /// cannot be had throws Error: int8 with modules, fp16 on a CPU.
  explicit Translator(const std::filesystem::path& directory, torch::Device device = torch::kCPU,
                      const InferenceOptions& inference = {});
  /// Uses a model already in memory, through its modules, in the type of its weights. A model in training mode is put
  /// into evaluation mode while it translates, which only one thread may do. The vocabularies must have the sizes that
  /// the model was made for.
  Translator(Transformer model, Vocabularies vocabularies, const DecodingSettings& settings);
  /// The same, on packed copies of the weights as they are now where packed inference knows the model (the trainer's
  /// validation, quickly), else through its modules in the type of its weights: another precision throws Error there.
  Translator(Transformer model, Vocabularies vocabularies, const DecodingSettings& settings,
             const InferenceOptions& inference);
  ~Translator();
  Translator(Translator&&) noexcept;
  Translator& operator=(Translator&&) noexcept;

  const DecodingSettings& settings() const;
  const Vocabularies& vocabularies() const;
  /// Throws Error for settings out of range.
  void set(const DecodingSettings& settings);

  /// n-best translations of each line, best first; a line without text gives one empty translation of score 0.
  /// Throws Error naming the line, counted from `first_line`, that is too long for the model.
  ///
  /// With `constraint_of`, which is called with the index of each line that has text, outputs are what their
  /// constraints allow (none where it returns null), as far as they are not cut at the maximum length.
  using ConstraintOf = std::function<std::shared_ptr<const OutputConstraint>(size_t line)>;
  std::vector<std::vector<Translation>> translate(const std::vector<std::string>& lines, int64_t first_line = 1,
                                                  const ConstraintOf& constraint_of = {}) const;
  /// The two halves of `translate`, for who would rather do without a line that is too long than end there: the pieces
  /// of each line (none where it has no text), and the translations of lines of `longest_source` pieces at most.
  std::vector<std::vector<int64_t>> encode(const std::vector<std::string>& lines) const;
  std::vector<std::vector<Translation>> translate_encoded(const std::vector<std::vector<int64_t>>& sources,
                                                          const ConstraintOf& constraint_of = {}) const;
  /// Word pieces of the longest line that this model takes, and what is said of one that is longer.
  int64_t longest_source() const;
  std::string too_long(size_t pieces) const;
  /// translate_encoded without text, for tests.
  std::vector<std::vector<Hypothesis>> translate_ids(const std::vector<std::vector<int64_t>>& sources,
                                                     const ConstraintOf& constraint_of = {}) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// A step function over a Transformer: encodes `source` [B, S] (pieces, end, padding; on the model's device) once, then
/// decodes with cached keys and values. Padding and begin are never proposed, nor is what a sentence's constraint,
/// where there is one, does not allow; log-probabilities are the model's all the same. The model should be in
/// evaluation mode.
StepFunction transformer_step(Transformer model, const torch::Tensor& source,
                              std::vector<std::shared_ptr<const OutputConstraint>> constraints = {});

}  // namespace transformer
