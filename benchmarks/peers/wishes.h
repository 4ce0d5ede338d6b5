#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "transformer/inference/beam_search.h"
#include "transformer/inference/decoding_request.h"
#include "transformer/inference/inference_model.h"
#include "transformer/inference/word_alignment.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

/// What outputs are asked for beyond the plain search: decode_worker's command `wish`. What it needs of the model
/// directory is read when it is first wished for, so that whoever wishes nothing does not carry it along.
class Wishes {
 public:
  Wishes(std::filesystem::path directory, std::shared_ptr<const InferenceModel> model);

  /// Takes the words of one command; what was wished before is forgotten. Sets the stream's failbit at a word that
  /// it does not know.
  void read(std::istringstream& words);

  /// Models that decode together.
  int64_t models() const { return models_; }
  /// How `plain` changes. Throws Error for settings that there are not.
  DecodingSettings changed(DecodingSettings plain) const;
  /// Puts what is wished of each output into its request. `plain_output` is asked for the output that a request's
  /// source, by its index, has in a plain search, if anything is to be taken from that; the first of them is `first` of
  /// all.
  void put_into(std::vector<DecodingRequest>& requests, size_t first,
                const std::function<const std::vector<int64_t>&(size_t index)>& plain_output);
  /// Whether anything is made of results after the search: alignments, or confidences.
  bool any_follow() const { return alignments_ || confidences_; }
  /// Makes it, of the best of each of `results` and of its source, which is `lines` as text; of `batch` of them at a
  /// time.
  void follow(std::span<const std::vector<int64_t>> sources, const std::vector<std::string>& lines,
              const std::vector<std::vector<Hypothesis>>& results, int64_t batch);
  /// Sources, each with its end, as text.
  std::vector<std::string> texts(std::span<const std::vector<int64_t>> sources);

  /// Those of the model.
  const Vocabularies& vocabularies();

 private:
  std::filesystem::path directory_;
  std::shared_ptr<const InferenceModel> model_;
  std::optional<Vocabularies> vocabularies_;
  std::unique_ptr<WordAligner> aligner_;

  std::vector<std::string> settings_;               // as --set takes them
  int64_t required_ = 0;                            // phrases of each output
  std::vector<std::vector<int64_t>> outputs_;       // of all sources, which they are taken from; none: the plain ones
  std::vector<std::pair<int64_t, double>> bias_;    // OutputControl::bias
  std::shared_ptr<const ForbiddenText> forbidden_;  // null: nothing
  int64_t models_ = 1;
  bool alignments_ = false, confidences_ = false;
};

}  // namespace transformer
