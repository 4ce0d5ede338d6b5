#include "peers/wishes.h"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <random>

#include "transformer/base/error.h"
#include "transformer/base/settings.h"
#include "transformer/inference/confidence.h"
#include "transformer/inference/forbidden_text.h"
#include "transformer/inference/translator.h"
#include "transformer/text/piece_texts.h"

namespace transformer {

namespace {

/// Two words in a row, or one where there are no two, from the middle of each of `parts` equal parts of an output.
std::vector<std::vector<int64_t>> phrases_of(const std::vector<int64_t>& output, const Vocabulary& vocabulary,
                                             size_t parts) {
  std::vector<size_t> words;  // where each begins; last, the end
  for (size_t i = 0; i < output.size(); ++i) {
    if (i == 0 || vocabulary.piece(output[i]).starts_with("\u2581")) words.push_back(i);
  }
  const size_t count = words.size();
  words.push_back(output.size());
  std::vector<std::vector<int64_t>> phrases;
  for (size_t part = 0; part < parts; ++part) {
    const size_t first = part * count / parts, end = (part + 1) * count / parts;
    const size_t taken = std::min<size_t>(2, end - first);
    const size_t from = first + (end - first - taken) / 2;
    std::vector<int64_t> phrase(output.begin() + static_cast<std::ptrdiff_t>(words[from]),
                                output.begin() + static_cast<std::ptrdiff_t>(words[from + taken]));
    const bool spelled =
        std::all_of(phrase.begin(), phrase.end(), [](int64_t token) { return token > Vocabulary::unknown; });
    if (!phrase.empty() && spelled) phrases.push_back(std::move(phrase));
  }
  return phrases;
}

/// `count` pieces drawn from all, each preferred a little.
std::vector<std::pair<int64_t, double>> some_bias(int64_t vocabulary, int64_t count) {
  constexpr double addition = 1;
  std::vector<int64_t> tokens(static_cast<size_t>(vocabulary - Vocabulary::unknown - 1));
  std::iota(tokens.begin(), tokens.end(), Vocabulary::unknown + 1);
  std::shuffle(tokens.begin(), tokens.end(), std::mt19937(1));
  std::vector<std::pair<int64_t, double>> bias;
  for (size_t i = 0; i < std::min(tokens.size(), static_cast<size_t>(count)); ++i) {
    bias.emplace_back(tokens[i], addition);
  }
  return bias;
}

std::vector<std::string> lines_of(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw Error(file, "cannot be opened");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

Wishes::Wishes(std::filesystem::path directory, std::shared_ptr<const InferenceModel> model)
    : directory_(std::move(directory)), model_(std::move(model)) {}

const Vocabularies& Wishes::vocabularies() {
  if (!vocabularies_) {
    const auto& settings = model_->settings();
    vocabularies_ = Vocabularies::load(directory_, settings.source_vocabulary_size, settings.target_vocabulary_size);
  }
  return *vocabularies_;
}

void Wishes::read(std::istringstream& words) {
  settings_.clear();
  required_ = 0;
  outputs_.clear();
  bias_.clear();
  forbidden_.reset();
  models_ = 1;
  alignments_ = confidences_ = false;
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    const auto name = word.substr(0, equals), value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (name.starts_with("decoding.")) {
      settings_.push_back(word);
    } else if (name == "required") {
      required_ = std::stoll(value);
    } else if (name == "of") {
      for (const auto& line : lines_of(value)) outputs_.push_back(vocabularies().target->encode(line));
    } else if (name == "bias") {
      bias_ = some_bias(model_->settings().target_vocabulary_size, std::stoll(value));
    } else if (name == "forbidden") {
      const auto& target = *vocabularies().target;
      forbidden_ = std::make_shared<ForbiddenText>(target, std::make_shared<PieceTexts>(target), lines_of(value));
    } else if (name == "models") {
      models_ = std::stoll(value);
    } else if (word == "alignments") {
      alignments_ = true;
      if (!aligner_) aligner_ = std::make_unique<WordAligner>(model_, vocabularies(), AlignmentSettings{});
    } else if (word == "confidences") {
      confidences_ = true;
    } else {
      words.setstate(std::ios::failbit);
      return;
    }
  }
  words.clear();  // the end of the words is no failure
}

DecodingSettings Wishes::changed(DecodingSettings plain) const {
  Settings all;
  all.section("decoding", plain, "");
  all.set(settings_);
  return plain.validated();
}

void Wishes::put_into(std::vector<DecodingRequest>& requests, size_t first,
                      const std::function<const std::vector<int64_t>&(size_t index)>& plain_output) {
  for (size_t i = 0; i < requests.size(); ++i) {
    auto& control = requests[i].control;
    control.bias = bias_;
    control.forbidden = forbidden_;
    if (required_ > 0) {
      const auto& output = outputs_.empty() ? plain_output(i) : outputs_.at(first + i);
      control.required = phrases_of(output, *vocabularies().target, static_cast<size_t>(required_));
    }
  }
}

std::vector<std::string> Wishes::texts(std::span<const std::vector<int64_t>> sources) {
  std::vector<std::string> lines;
  for (auto source : sources) {
    source.pop_back();
    lines.push_back(vocabularies().source->decode(source));
  }
  return lines;
}

void Wishes::follow(std::span<const std::vector<int64_t>> sources, const std::vector<std::string>& lines,
                    const std::vector<std::vector<Hypothesis>>& results, int64_t batch) {
  const auto& target = *vocabularies().target;
  for (size_t first = 0; first < results.size(); first += static_cast<size_t>(batch)) {
    const size_t end = std::min(results.size(), first + static_cast<size_t>(batch));
    std::vector<Translation> translations;
    for (size_t i = first; i < end; ++i) {
      const auto& best = results[i].front();
      translations.push_back({.text = target.decode(best.tokens),
                              .tokens = best.tokens,
                              .token_log_probabilities = best.token_log_probabilities});
    }
    if (confidences_) {
      for (const auto& translation : translations) word_confidences(translation, target);
    }
    if (!alignments_) continue;
    std::vector<std::string> given;
    std::vector<size_t> pieces;
    std::vector<const Translation*> found;
    for (size_t i = first; i < end; ++i) {
      given.push_back(lines[i]);
      pieces.push_back(sources[i].size() - 1);
      found.push_back(&translations[i - first]);
    }
    aligner_->align_what_fits(given, pieces, found);
  }
}

}  // namespace transformer
