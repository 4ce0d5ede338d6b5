#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transformer/inference/beam_search.h"
#include "transformer/inference/decoding_backend.h"
#include "transformer/inference/engine.h"
#include "transformer/inference/ensemble.h"
#include "transformer/inference/output_constraint.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

class Shortlist;

/// A translation of a line, and what the model holds of it.
struct Translation {
  std::string text;             // as the vocabulary joins pieces
  double score = 0;             // log probability / length penalty, and what coverage costs
  double log_probability = 0;   // of the tokens and, where it finished, of the end, in nats
  std::vector<int64_t> tokens;  // pieces of the target vocabulary that the model wrote, without begin and end
  std::vector<double> token_log_probabilities = {};  // of each token and, where it finished, of the end
  bool finished = true;                              // false: cut at the maximum length
  std::vector<size_t> missing = {};                  // of LineWishes::required, those that it does not hold
  /// Of each token and, where it finished, of the end, how open the choice was (Translator::find_entropies); none where
  /// nobody asked.
  std::vector<double> token_entropies = {};
};

/// A text as a model reads it that is told `said` of it (Translator::said_by), which is empty for most.
std::string as_read(std::string_view said, std::string_view text);

/// What is asked of one line's translation.
struct LineWishes {
  std::string prefix = {};  // it begins with this; a word at its end may go on. Blank: with anything
  /// It holds these phrases, or says which are missing. Their last word is a whole one, as ForbiddenText has it.
  std::vector<std::string> required = {};
  std::shared_ptr<const ForbiddenText> forbidden = nullptr;  // it holds none of these: see Translator::forbid
  std::vector<std::pair<int64_t, double>> bias = {};         // OutputControl::bias
};

/// The same in pieces.
struct EncodedWishes {
  std::shared_ptr<const OutputConstraint> constraint = nullptr;  // what the output may be; null: anything
  int64_t prefix_tokens = 0;                                     // that the constraint takes, at most
  OutputControl control = {};                                    // what else is asked of the search
  std::vector<size_t> required_indices = {};  // of control.required in LineWishes::required: some have no pieces
};

/// Translates text with a model directory. Any number of threads may call `translate` of one translator at once, while
/// none calls `set`.
class Translator {
 public:
  /// Loads `directory`: model.safetensors, config.yaml, and vocabulary.model or source.model and target.model. Its own
  /// decoding settings are the defaults. Throws Error naming what is missing, damaged or does not fit together.
  ///
  /// On the device "cpu" weights are packed and rounded as `inference` says, and lie where it says, a draft's, too.
  /// Elsewhere ("cuda", "cuda:1") it decodes with the modules of the paper (open_module_backend), in float32, bf16 or
  /// fp16, everything but the log-probabilities. A precision that cannot be had throws Error: int8 on a GPU, fp16 on a
  /// CPU.
  explicit Translator(const std::filesystem::path& directory, const std::string& device = "cpu",
                      const InferenceOptions& inference = {});
  /// Several models of one vocabulary, on a CPU, decode together; decoding settings are the first one's, and what
  /// attention is looked at for. A text must have positions in each. `weights`: one a model, or none. Throws Error
  /// where they do not fit together.
  Translator(const std::vector<std::filesystem::path>& directories, std::vector<double> weights,
             Ensemble::Average average, const InferenceOptions& inference);
  /// A model that is open already, and vocabularies of the sizes that it was made for.
  Translator(std::shared_ptr<const DecodingBackend> backend, Vocabularies vocabularies,
             const DecodingSettings& settings);
  /// Packed weights that are open already, decoded by `threads` workers.
  Translator(std::shared_ptr<const InferenceModel> model, Vocabularies vocabularies, const DecodingSettings& settings,
             int64_t threads = 1);
  ~Translator();
  Translator(Translator&&) noexcept;
  Translator& operator=(Translator&&) noexcept;

  /// How it searches where nothing else is asked for.
  const DecodingSettings& settings() const;
  /// Of the model, the source's and the target's.
  const Vocabularies& vocabularies() const;
  const ModelSettings& model_settings() const;  // resolved
  /// Tokens that every output begins with because the model is told its language (DecodingRequest::told).
  int64_t languages_told() const;
  /// The packed weights, where decoding uses them, of an ensemble its first model's; else null.
  std::shared_ptr<const InferenceModel> packed() const;
  /// Throws Error for settings out of range, or that a draft has no place in or modules cannot search by.
  void set(const DecodingSettings& settings);
  /// Has outputs written in what this list says of their sources; null: in the whole vocabulary. Throws Error on a GPU,
  /// whose modules know nothing of it.
  void set_shortlist(std::shared_ptr<const Shortlist> shortlist);
  /// What becomes of searches that a draft has no place in.
  enum class OtherSearches { refused, decoded_without_it };
  /// Has the model in `directory`, a small one of the same vocabularies, guess what this one then checks several tokens
  /// at a time (Engine::Options::draft): faster, and to the last bit the same. For greedy search, or one sample a line;
  /// where other searches are refused, `set` and `with` throw Error from then on for settings with more hypotheses or a
  /// coverage penalty. Lines that have more hypotheses by what is required of them are decoded without it. Throws Error
  /// for such settings, on a GPU, with several models, for what is wrong with the directory and for another vocabulary.
  void set_draft(const std::filesystem::path& directory, OtherSearches others = OtherSearches::refused);
  /// This translator with other settings, for one of several threads: the model itself is shared, and on a CPU the
  /// workers with it, whose `batch_sentences` stays as it is. Throws as `set` does.
  Translator with(const DecodingSettings& settings) const;

  /// What the output of line `line`, counted from 0, may be; null: anything.
  using ConstraintOf = std::function<std::shared_ptr<const OutputConstraint>(size_t line)>;
  /// n-best translations of each line, best first; a line without text gives one empty translation of score 0.
  /// Throws Error naming the line, counted from `first_line`, that is too long for the model.
  ///
  /// With `constraint_of`, which is called with the index of each line that has text, outputs are what their
  /// constraints allow (none where it returns null), as far as they are not cut at the maximum length.
  std::vector<std::vector<Translation>> translate(const std::vector<std::string>& lines, int64_t first_line = 1,
                                                  const ConstraintOf& constraint_of = {}) const;
  /// The two halves of `translate`, for who would rather do without a line that is too long than end there: the pieces
  /// of each line (none where it has no text), and the translations of lines of `longest_source` pieces at most.
  std::vector<std::vector<int64_t>> encode(const std::vector<std::string>& lines) const;
  /// What a text says to the model at its beginning of how all of it is translated: a language's code
  /// (Vocabulary::code_of), or a tag that the model learned texts with (data.train_tags); empty: nothing.
  std::string_view said_by(std::string_view text) const;
  /// The second half of `translate`.
  std::vector<std::vector<Translation>> translate_encoded(const std::vector<std::vector<int64_t>>& sources,
                                                          const ConstraintOf& constraint_of = {}) const;
  /// Translations of lines of which something is wished: one of `wishes` for each of `sources`.
  std::vector<std::vector<Translation>> translate_encoded(const std::vector<std::vector<int64_t>>& sources,
                                                          std::span<const EncodedWishes> wishes) const;
  /// Throws Error for a prefix or a phrase that the vocabulary cannot spell, for a prefix longer than the output may
  /// be, and where wishes contradict each other or the settings.
  EncodedWishes encode_wishes(const LineWishes& wishes) const;
  /// Words and phrases for LineWishes::forbidden.
  std::shared_ptr<const ForbiddenText> forbid(const std::vector<std::string>& phrases) const;
  /// Word pieces of the longest line that this model takes.
  int64_t longest_source() const;
  /// What is wrong with a line of so many pieces, that it is longer than this; empty: nothing.
  std::string problem(size_t pieces) const;
  /// What is to be done about a `problem`.
  static constexpr const char* remedy = "split it into sentences";
  /// For who submits sentences to the workers himself, as a server does. Callbacks may own it, and the translator.
  /// `engine` is null where packed weights do not decode; a request is of a line's pieces (not empty) and validated
  /// settings; its hypotheses are translations.
  std::shared_ptr<Engine> engine() const;
  /// What `engine` is asked to decode a source with.
  DecodingRequest request(std::vector<int64_t> source, const DecodingSettings& settings) const;
  /// log p of each token of `targets`, and last of its end, as the whole output for the source of its index, where
  /// packed weights decode: token_log_probabilities, with the languages that `settings` name where the model knows
  /// many. Throws as that does, std::logic_error where modules decode, and Error for languages it has not, past the
  /// last learned position, and where several models decode together, of which each has its own.
  std::vector<std::vector<double>> score(std::span<const std::vector<int64_t>> sources,
                                         std::span<const std::vector<int64_t>> targets,
                                         const DecodingSettings& settings, int64_t threads = 1) const;
  /// Fills token_entropies of translations in, each of the source of its index, by one pass over what was written. Not
  /// of empty ones; of none where several models decode together, or modules do.
  void find_entropies(std::span<const std::vector<int64_t>> sources, std::span<Translation* const> translations) const;
  /// A hypothesis of its as text.
  Translation translation(Hypothesis hypothesis) const;
  /// translate_encoded without text.
  std::vector<std::vector<Hypothesis>> translate_ids(const std::vector<std::vector<int64_t>>& sources,
                                                     const ConstraintOf& constraint_of = {}) const;

 private:
  std::vector<std::vector<Translation>> translated(std::vector<std::vector<Hypothesis>>&& found) const;

  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace transformer
