#include "transformer/text/learn_vocabulary.h"

#include <fmt/format.h>
#include <sentencepiece_trainer.h>

#include <charconv>
#include <exception>
#include <unordered_map>

#include "transformer/base/error.h"
#include "transformer/base/unicode.h"
#include "transformer/text/lines.h"
#include "transformer/text/sentencepiece_model.h"

namespace transformer {

namespace {

// What SentencePiece takes for a sentence, in bytes; it passes over longer ones without a word.
constexpr size_t longest_sentence = 4192;
// What it has a use of its own for: it passes over sentences that hold it, likewise.
constexpr std::string_view own_sign = "\u2585";
// What gives a vocabulary's size.
constexpr const char* size_settings =
    "model.vocabulary_size, or where they are given model.source_vocabulary_size and model.target_vocabulary_size";

// SentencePiece draws its sentences from here, so that compressed files can be learned from and that no path gets
// into the model. Longer lines are given to it in parts.
class Sentences : public sentencepiece::SentenceIterator {
 public:
  Sentences(const std::vector<std::filesystem::path>& files, Normalization normalization,
            const std::function<void(std::optional<double> share)>& progressed)
      : files_(files), normalization_(normalization), progressed_(progressed) {
    Next();
  }

  bool done() const override { return done_; }
  const std::string& value() const override { return part_; }
  sentencepiece::util::Status status() const override {
    using sentencepiece::util::Status;
    return error_ ? Status(sentencepiece::util::StatusCode::kCancelled, "reading failed") : Status();
  }

  void Next() override {
    // Nothing may be thrown through SentencePiece, which is not written for it.
    try {
      for (;;) {
        if (given_ >= line_.size() && !next_line()) break;
        part_ = next_part();
        if (!part_.empty()) {
          any_ = true;
          if (progressed_ && ++lines_ % lines_between_reports == 0) progressed_(share());
          return;
        }
      }
      if (progressed_) progressed_(1);
    } catch (...) {
      error_ = std::current_exception();
    }
    done_ = true;
  }

  bool any() const { return any_; }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  static constexpr int64_t lines_between_reports = 1 << 14;

  bool next_line() {
    given_ = 0;
    for (line_.clear(); !reader_ || !reader_->next(line_); reader_.emplace(files_[file_++])) {
      reader_.reset();
      if (file_ == files_.size()) return false;
    }
    if (normalization_ == Normalization::nfc && !is_plainly_normal(line_)) line_ = normalized(line_);
    return true;
  }

  // Of what is left of the line: up to a blank if there is one, or else a whole number of characters.
  std::string next_part() {
    size_t end = line_.size();
    if (const size_t sign = line_.find(own_sign, given_); sign - given_ <= longest_sentence) {
      const auto before = trim(std::string_view(line_).substr(given_, sign - given_));
      given_ = sign + own_sign.size();
      return std::string(before);
    }
    if (end - given_ > longest_sentence) {
      const size_t blank = std::string_view(line_).substr(given_, longest_sentence + 1).rfind(' ');
      end = given_ + (blank == std::string_view::npos || blank == 0 ? longest_sentence : blank);
      while (continues_character(line_[end])) --end;
    }
    auto part = line_.substr(given_, end - given_);
    given_ = end + (end < line_.size() && line_[end] == ' ' ? 1 : 0);
    return part;
  }

  std::optional<double> share() const {
    const auto of_file = reader_->share();
    if (!of_file) return std::nullopt;
    return (static_cast<double>(file_ - 1) + *of_file) / static_cast<double>(files_.size());
  }

  const std::vector<std::filesystem::path>& files_;
  Normalization normalization_;
  const std::function<void(std::optional<double> share)>& progressed_;
  int64_t lines_ = 0;
  size_t file_ = 0;
  std::optional<LineReader> reader_;
  std::string line_, part_;
  size_t given_ = 0;  // bytes of the line, in parts
  bool done_ = false, any_ = false;
  std::exception_ptr error_;
};

// The number that follows `words` in a message of SentencePiece's.
std::optional<int64_t> number_after(std::string_view message, std::string_view words) {
  const size_t at = message.find(words);
  if (at == std::string_view::npos) return std::nullopt;
  message.remove_prefix(at + words.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(message.data(), message.data() + message.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

std::string join(const std::vector<std::filesystem::path>& files) {
  std::string names;
  for (const auto& file : files) names += (names.empty() ? "" : ", ") + file.string();
  return names;
}

/// SentencePiece takes a field that begins with a quote for a quoted one.
std::string as_csv(const std::vector<std::string>& symbols) {
  std::string fields;
  for (const auto& symbol : symbols) {
    if (!fields.empty()) fields += ',';
    if (!symbol.starts_with('"')) {
      fields += symbol;
      continue;
    }
    fields += '"';
    for (const char c : symbol) fields += c == '"' ? std::string("\"\"") : std::string(1, c);
    fields += '"';
  }
  return fields;
}

}  // namespace

void check_symbols(const std::string& what, const std::vector<std::string>& symbols,
                   const VocabularySettings& settings) {
  for (const auto& symbol : symbols) {
    const bool spells_byte = symbol.size() == 6 && symbol.starts_with("<0x") && symbol.ends_with('>');
    if (symbol == "<pad>" || symbol == "<s>" || symbol == "</s>" || symbol == "<unk>" ||
        (spells_byte && settings.byte_fallback)) {
      throw Error(what, in_quotes(symbol) + " is a piece that every vocabulary has", "take another word, such as <BT>");
    }
  }
}

std::string learn_vocabulary(const std::vector<std::filesystem::path>& files, int64_t size,
                             const VocabularySettings& settings, const std::vector<std::string>& symbols,
                             const std::function<void(std::optional<double> share)>& progressed) {
  if (files.empty()) throw Error("vocabulary", "no files to learn from", "name at least one text file");
  check_symbols("vocabulary", symbols, settings);
  Sentences sentences(files, settings.normalization, progressed);
  const std::unordered_map<std::string, std::string> options = {
      {"model_type", settings.algorithm == VocabularySettings::Algorithm::bpe ? "bpe" : "unigram"},
      {"vocab_size", std::to_string(size)},
      {"hard_vocab_limit", "true"},
      {"pad_id", std::to_string(Vocabulary::padding)},
      {"bos_id", std::to_string(Vocabulary::begin)},
      {"eos_id", std::to_string(Vocabulary::end)},
      {"unk_id", std::to_string(Vocabulary::unknown)},
      {"byte_fallback", settings.byte_fallback ? "true" : "false"},
      {"split_by_unicode_script", settings.split_scripts ? "true" : "false"},
      {"character_coverage", fmt::format("{}", settings.character_coverage)},
      {"input_sentence_size", std::to_string(settings.sample_sentences)},
      // Text must come back as it went in; NFKC, the default, rewrites ligatures, widths and spaces.
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      // The unigram model's sums depend on how many threads share them: a fixed number gives the same pieces
      // everywhere.
      {"num_threads", "4"},
      {"user_defined_symbols", as_csv(symbols)},
      {"minloglevel", "2"},
  };
  std::string serialized;
  const auto status = sentences.any() ? sentencepiece::SentencePieceTrainer::Train(options, &sentences, &serialized)
                                      : sentencepiece::util::Status();
  sentences.rethrow();
  if (!sentences.any()) throw Error(join(files), "no text to learn a vocabulary from: every line is empty");
  if (!status.ok()) {
    const std::string message = status.error_message();
    const std::string where = "vocabulary from " + join(files);
    if (const auto largest = number_after(message, "Please set it to a value <= ")) {
      throw Error(where, fmt::format("the text is too small for {} pieces: {} are the most it gives", size, *largest),
                  fmt::format("ask for at most {} ({}) or learn from more text", *largest, size_settings));
    }
    if (const auto least =
            number_after(message, fmt::format("Vocabulary size is smaller than required_chars. {} vs ", size))) {
      throw Error(
          where,
          fmt::format("a size of {} does not even hold the text's characters{} and the reserved pieces, {} in all",
                      size, settings.byte_fallback ? ", the 256 bytes" : "", *least),
          fmt::format("ask for at least {} ({}) or lower vocabulary.character_coverage", *least, size_settings));
    }
    throw Error(where, "SentencePiece could not learn from it (" + message + ")");
  }
  serialized += SentencePieceModel::normalization_field(settings.normalization);
  SentencePieceModel::read(serialized, "the vocabulary from " + join(files));  // what is written can be read
  return serialized;
}

}  // namespace transformer
