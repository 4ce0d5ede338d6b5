#include "transformer/text/vocabulary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "transformer/base/atomic_file.h"
#include "transformer/base/checksum.h"
#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/model_files.h"
#include "transformer/base/read_file.h"
#include "transformer/base/replaced.h"
#include "transformer/base/spelling.h"
#include "transformer/base/unicode.h"
#include "transformer/text/characters.h"
#include "transformer/text/learn_vocabulary.h"
#include "transformer/text/sentencepiece_model.h"

namespace transformer {

static_assert(Vocabulary::padding < Vocabulary::first_written && Vocabulary::begin < Vocabulary::first_written);

namespace {

// SentencePiece writes a space as this character and so cannot tell the two apart: text that holds it would come back
// with a space instead.
constexpr std::string_view space_symbol = "\u2581";
// Stands in for it while SentencePiece works. A noncharacter, which Unicode reserves for uses inside programs and
// which therefore is in no text.
constexpr std::string_view stand_in = "\U0010FFFE";

void check_id(int64_t id, int64_t size) {
  if (id < 0 || id >= size) throw std::out_of_range(fmt::format("piece id {} is not in a vocabulary of {}", id, size));
}

/// How far a language's code is from one that somebody wrote: a code that begins alike is near, whatever follows.
size_t difference(const std::string& written, const std::string& code) {
  if (written.size() > longest_word) return code.size();
  const bool begins = code.starts_with(written.substr(0, std::min<size_t>(written.size(), 3)));
  return 2 * edit_distance(written, code) + (begins ? 0 : longest_word);
}

// What is between them says, at the beginning of a text, which language it is to become.
constexpr std::string_view code_begin = ">>", code_end = "<<";

bool is_code(std::string_view piece) {
  return piece.size() > code_begin.size() + code_end.size() && piece.starts_with(code_begin) &&
         piece.ends_with(code_end);
}

std::string with_fields(std::string_view model, const std::string& fields, const std::string& file) {
  if (!SentencePieceModel::read(model, file).table.empty()) throw Error(file, "has a table of pieces already");
  auto serialized = std::string(model) + fields;
  SentencePieceModel::read(serialized, file);
  return serialized;
}

}  // namespace

void VocabularySettings::describe(Fields<VocabularySettings>& field) {
  using S = VocabularySettings;
  field("algorithm", &S::algorithm,
        "how pieces are learned: byte-pair encoding as in the paper, or a unigram model (§5.1)",
        {{"bpe", Algorithm::bpe}, {"unigram", Algorithm::unigram}});
  field("joint", &S::joint, "one vocabulary shared by both languages (§5.1)");
  field("character_coverage", &S::character_coverage,
        "share of the text's characters that become symbols of their own; the rest is spelled in bytes",
        between(0.98, 1.0));  // SentencePiece takes no less
  field("sample_sentences", &S::sample_sentences, "sentences to learn from, drawn at random from all",
        between(101, 1e9));  // SentencePiece draws no fewer
  field("byte_fallback", &S::byte_fallback, "spell characters without a symbol in bytes, so that no text is unknown");
  field("normalization", &S::normalization,
        "of all text, before it becomes pieces: nfc: composed accents, one space for every kind and run of blanks, no "
        "control characters; none: the text as it is",
        {{"nfc", Normalization::nfc}, {"none", Normalization::none}});
  field(
      "split_scripts", &S::split_scripts,
      "no piece mixes letters with punctuation, or two scripts; false: brackets and labels of trees become one piece");
}

void Vocabulary::train(const std::vector<std::filesystem::path>& files, int64_t size,
                       const VocabularySettings& settings, const std::filesystem::path& model) {
  const auto folder = folder_of(model);
  if (std::error_code refused; !std::filesystem::is_directory(folder, refused)) {
    throw Error(model.string(), "cannot be written: there is no such folder", "create " + folder.string());
  }
  write_atomically(model, learn_vocabulary(files, size, settings, {}, {}));
}

struct Vocabulary::Implementation {
  sentencepiece::SentencePieceProcessor processor;
  std::vector<std::string> pieces;
  std::string checksum;
  Normalization normalization = Normalization::none;
  bool has_charsmap = false;
  // By their texts, where ids are a table's.
  std::unordered_map<std::string, int64_t> table;
  bool has_table = false;
  bool has_codes = false;  // ">>fra<<" and the like are among them, and begin a text
  Languages languages;
  std::vector<bool> controls;  // of each id of a table
  // How the space symbol's stand-in is spelled in bytes, and how the symbol itself is; empty without byte fallback.
  std::vector<int> stand_in_bytes, space_symbol_bytes;

  std::vector<int> spell(std::string_view character) const {
    std::vector<int> ids;
    for (const char byte : character) {
      const int id = processor.PieceToId(fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte)));
      if (!processor.IsByte(id)) return {};
      ids.push_back(id);
    }
    return ids;
  }

  /// The pieces, as texts or as ids, that `split` (text, found -> status) finds in `text`.
  template <class Split, class Pieces>
  static void run(const Split& split, std::string_view text, Pieces& found) {
    const auto status = split(text, &found);
    if (!status.ok()) {
      throw Failure("vocabulary",
                    fmt::format("SentencePiece cannot split a text into pieces ({})", status.error_message()));
    }
  }

  int64_t id_in_table(const std::string& piece) const {
    const auto found = table.find(piece);
    return found == table.end() ? unknown : found->second;
  }

  size_t code_length(std::string_view text) const {
    if (!has_codes || !text.starts_with(code_begin)) return 0;
    const size_t end = text.find(code_end);
    return end == std::string_view::npos ? 0 : end + code_end.size();
  }

  template <class Split>
  std::vector<int64_t> ids_in_table(std::string_view text, const Split& split) const {
    std::vector<int64_t> ids;
    if (const size_t code = code_length(text); code > 0) {
      ids.push_back(id_in_table(std::string(text.substr(0, code))));
      text.remove_prefix(code);
    }
    std::vector<std::string> texts;
    run(split, text, texts);
    for (const auto& piece : texts) ids.push_back(id_in_table(piece));
    return ids;
  }

  /// As the pieces are found in it; `normal` keeps what is not `text` itself.
  std::string_view as_normal(std::string_view text, std::string& normal) const {
    if (normalization == Normalization::nfc && !is_plainly_normal(text)) text = normal = normalized(text);
    return text;
  }

  bool needs_stand_in(std::string_view text) const {
    return !has_table && !stand_in_bytes.empty() && text.find(space_symbol) != std::string_view::npos;
  }

  /// Calls `symbol` for every stand-in that `ids` spell, with where it begins there, and `piece` for every other one.
  template <class Piece, class Symbol>
  void visit(const std::vector<int>& ids, const Piece& piece, const Symbol& symbol) const {
    const auto& from = stand_in_bytes;
    for (auto at = ids.cbegin(); at != ids.cend();) {
      const auto index = static_cast<size_t>(at - ids.cbegin());
      if (ids.cend() - at >= static_cast<std::ptrdiff_t>(from.size()) && std::equal(from.begin(), from.end(), at)) {
        symbol(index);
        at += static_cast<std::ptrdiff_t>(from.size());
      } else {
        piece(index);
        ++at;
      }
    }
  }

  /// Whether normalisation leaves nothing of `text`.
  bool becomes_nothing(std::string_view text) const {
    for (size_t position = 0; position < text.size();) {
      if (is_letter_or_digit(next_code_point(text, position))) return false;
    }
    std::vector<int> found;
    run([&](std::string_view input, auto* ids) { return processor.Encode(input, ids); }, text, found);
    return found.empty();
  }

  /// `words_of_pieces` of what SentencePiece made of `text`.
  std::vector<int64_t> words_of(const sentencepiece::ImmutableSentencePieceText& split, std::string_view text) const {
    const auto words = split_words(text);
    const auto begin_of = [&](size_t word) { return static_cast<size_t>(words[word].data() - text.data()); };
    std::vector<int64_t> result;
    size_t begun = 0;  // words that begin before the piece ends
    for (const auto& piece : split.pieces()) {
      while (begun < words.size() && begin_of(begun) < piece.end()) ++begun;
      size_t word = begun;
      if (begun > 0) {
        const size_t reached = std::max<size_t>(begin_of(begun - 1), piece.begin());
        const size_t word_end = begin_of(begun - 1) + words[begun - 1].size();
        // Of the pieces that one character becomes, all but the last end where it begins; the space before one reaches
        // over what becomes nothing.
        const bool within = reached < word_end &&
                            (piece.end() < word_end || !becomes_nothing(text.substr(reached, word_end - reached)));
        if (within) --word;
      }
      result.push_back(word < words.size() ? static_cast<int64_t>(word) : -1);
    }
    return result;
  }

  /// Of the pieces that `split` finds, which takes them as ids or as texts.
  template <class Split>
  std::vector<int64_t> ids(std::string_view text, const Split& split) const {
    std::string normal;
    text = as_normal(text, normal);
    if (has_table) return ids_in_table(text, split);
    std::vector<int> ids;
    if (!needs_stand_in(text)) {
      run(split, text, ids);
      return {ids.begin(), ids.end()};
    }
    run(split, replaced(text, space_symbol, stand_in), ids);
    std::vector<int64_t> result;
    visit(
        ids, [&](size_t i) { result.push_back(ids[i]); },
        [&](size_t) { result.insert(result.end(), space_symbol_bytes.begin(), space_symbol_bytes.end()); });
    return result;
  }
};

Vocabulary::Vocabulary(const std::filesystem::path& model) : implementation_(std::make_unique<Implementation>()) {
  auto& processor = implementation_->processor;
  const std::string remedy = "expected a SentencePiece model as train writes it";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(model, ignored)) {
    throw Error(model.string(), std::filesystem::exists(model, ignored) ? "is not a file" : "no such file", remedy);
  }
  const std::string serialized = read_file(model, SentencePieceModel::most_bytes);
  if (serialized.empty()) throw Error(model.string(), "is empty", remedy);
  const auto read = SentencePieceModel::read(serialized, model.string());
  implementation_->normalization = read.normalization;
  implementation_->has_charsmap = read.has_charsmap;
  const auto status = processor.LoadFromSerializedProto(serialized);
  if (!status.ok()) {
    throw Error(model.string(), fmt::format("is no SentencePiece model or is damaged ({})", status.error_message()),
                remedy);
  }
  const auto reserved = [&](const char* name, int found, int64_t expected) {
    if (found == expected) return;
    throw Error(model.string(),
                fmt::format("reserves id {} for {}; expected padding 0, begin 1, end 2, unknown 3", found, name),
                "learn the vocabulary anew with train");
  };
  if (read.table.empty()) {
    reserved("padding", processor.pad_id(), padding);
    reserved("the beginning", processor.bos_id(), begin);
    reserved("the end", processor.eos_id(), end);
    reserved("unknown pieces", processor.unk_id(), unknown);
    implementation_->pieces.reserve(static_cast<size_t>(processor.GetPieceSize()));
    for (int id = 0; id < processor.GetPieceSize(); ++id) implementation_->pieces.push_back(processor.IdToPiece(id));
  }
  auto& languages = implementation_->languages;
  languages.behind_end = read.language_place == SentencePieceModel::LanguagePlace::behind_end;
  implementation_->has_table = !read.table.empty();
  const std::unordered_set<std::string_view> named(read.languages.begin(), read.languages.end()),
      controls(read.controls.begin(), read.controls.end());
  for (const auto piece : read.table) {
    const auto id = static_cast<int64_t>(implementation_->pieces.size());
    const bool is_language = named.contains(piece);
    if (is_language && !languages.pieces.emplace(language_code(piece), id).second) {
      throw Error(model.string(), fmt::format("has the language {} twice", in_quotes(language_code(piece))), remedy);
    }
    // A text's own "<pad>" is no padding.
    implementation_->has_codes |= is_code(piece);
    implementation_->controls.push_back(id <= unknown || is_language || controls.contains(piece));
    if (!implementation_->controls.back()) implementation_->table.emplace(piece, id);
    implementation_->pieces.emplace_back(piece);
  }
  implementation_->has_codes &= languages.empty();
  Checksum checksum;
  checksum.add(serialized);
  implementation_->checksum = checksum.text();
  implementation_->stand_in_bytes = implementation_->spell(stand_in);
  implementation_->space_symbol_bytes = implementation_->spell(space_symbol);
}

std::string Vocabulary::with_table(std::string_view model, const std::vector<std::string>& table,
                                   const std::string& file) {
  return with_fields(model, SentencePieceModel::table_fields(table), file);
}

std::string Vocabulary::with_languages(std::string_view model, const std::vector<std::string>& table,
                                       const std::vector<std::string>& languages,
                                       const std::vector<std::string>& controls, bool behind_end,
                                       const std::string& file) {
  using Place = SentencePieceModel::LanguagePlace;
  return with_fields(
      model,
      SentencePieceModel::table_fields(table, languages, controls, behind_end ? Place::behind_end : Place::before_text),
      file);
}

Vocabulary::~Vocabulary() = default;
Vocabulary::Vocabulary(Vocabulary&&) noexcept = default;
Vocabulary& Vocabulary::operator=(Vocabulary&&) noexcept = default;

int64_t Vocabulary::size() const {
  return static_cast<int64_t>(implementation_->pieces.size());
}

const std::string& Vocabulary::checksum() const {
  return implementation_->checksum;
}

Normalization Vocabulary::normalization() const {
  return implementation_->normalization;
}

bool Vocabulary::has_charsmap() const {
  return implementation_->has_charsmap;
}

bool Vocabulary::has_table() const {
  return implementation_->has_table;
}

std::string Vocabulary::language_code(std::string_view piece) {
  constexpr std::string_view around = "__";
  if (piece.size() > 2 * around.size() && piece.starts_with(around) && piece.ends_with(around)) {
    piece = piece.substr(around.size(), piece.size() - 2 * around.size());
  }
  return std::string(piece);
}

const Vocabulary::Languages& Vocabulary::languages() const {
  return implementation_->languages;
}

std::string_view Vocabulary::code_of(std::string_view text) const {
  return text.substr(0, implementation_->code_length(text));
}

bool Vocabulary::is_control(int64_t id) const {
  check_id(id, size());
  return id <= unknown || (has_table() && implementation_->controls[static_cast<size_t>(id)]);
}

int64_t Vocabulary::Languages::piece(const std::string& code, const std::string& setting) const {
  if (const auto found = pieces.find(code); found != pieces.end()) return found->second;
  if (empty()) {
    throw Error(setting, fmt::format("is {}, and this model cannot be told a language", in_quotes(code)),
                "leave it out; it translates what it was trained for");
  }
  std::vector<std::string> codes;
  for (const auto& [known, id] : pieces) codes.push_back(known);
  constexpr size_t most_named = 8;
  if (code.empty()) {
    throw Error(setting, fmt::format("has to be said: this model knows {} languages", codes.size()),
                fmt::format("give one of {}{}",
                            fmt::join(codes.begin(), codes.begin() + std::min(most_named, codes.size()), ", "),
                            codes.size() > most_named ? ", …" : ""));
  }
  std::stable_sort(codes.begin(), codes.end(),
                   [&](const auto& a, const auto& b) { return difference(code, a) < difference(code, b); });
  codes.resize(std::min<size_t>(codes.size(), 3));
  throw Error(setting, fmt::format("is {}, which is none of this model's {} languages", in_quotes(code), pieces.size()),
              fmt::format("the nearest are {}", fmt::join(codes, ", ")));
}

std::vector<int64_t> Vocabulary::Languages::source(std::vector<int64_t> text, int64_t language) const {
  if (!behind_end) text.insert(text.begin(), language);
  text.push_back(end);
  if (behind_end) text.push_back(language);
  return text;
}

std::vector<int64_t> Vocabulary::encode(std::string_view text) const {
  const auto& processor = implementation_->processor;
  return implementation_->ids(text,
                              [&](std::string_view input, auto* found) { return processor.Encode(input, found); });
}

std::vector<int64_t> Vocabulary::encode_line(std::string_view line) const {
  const auto text = trim(line);
  return text.empty() ? std::vector<int64_t>{} : encode(text);
}

std::vector<int64_t> Vocabulary::words_of_pieces(std::string_view text) const {
  const auto& self = *implementation_;
  std::string normal;
  text = self.as_normal(text, normal);
  const size_t all = split_words(text).size();
  std::vector<int64_t> result;
  if (const size_t code = self.code_length(text); code > 0) {
    result.push_back(0);
    text.remove_prefix(code);
  }
  const bool stands_in = self.needs_stand_in(text);
  const auto given = stands_in ? replaced(text, space_symbol, stand_in) : std::string(text);
  sentencepiece::ImmutableSentencePieceText split;
  Implementation::run(
      [&](std::string_view input, auto* found) { return self.processor.Encode(input, found->mutable_proto()); }, given,
      split);
  auto words = self.words_of(split, given);
  const auto before = static_cast<int64_t>(all - split_words(given).size());
  for (auto& word : words) {
    if (word >= 0) word += before;
  }
  if (!stands_in) {
    result.insert(result.end(), words.begin(), words.end());
    return result;
  }
  std::vector<int> ids;
  for (const auto& piece : split.pieces()) ids.push_back(static_cast<int>(piece.id()));
  self.visit(
      ids, [&](size_t i) { result.push_back(words[i]); },
      [&](size_t i) { result.insert(result.end(), self.space_symbol_bytes.size(), words[i]); });
  return result;
}

std::vector<int64_t> Vocabulary::sample(std::string_view text, double alpha) const {
  const auto& processor = implementation_->processor;
  return implementation_->ids(text, [&](std::string_view input, auto* found) {
    return processor.SampleEncode(input, /*nbest_size=*/-1, static_cast<float>(alpha), found);
  });
}

std::string Vocabulary::decode(const std::vector<int64_t>& ids) const {
  const bool tabled = has_table();
  std::vector<int> kept;
  std::vector<std::string> texts;
  for (const int64_t id : ids) {
    check_id(id, size());
    if (!tabled && id != padding && id != begin && id != end) {
      kept.push_back(static_cast<int>(id));
    } else if (tabled && !is_control(id)) {
      texts.push_back(piece(id));
    }
  }
  std::string text;
  const auto& processor = implementation_->processor;
  const auto status = tabled ? processor.Decode(texts, &text) : processor.Decode(kept, &text);
  if (!status.ok()) {
    throw Failure("vocabulary", fmt::format("SentencePiece cannot join pieces to a text ({})", status.error_message()));
  }
  if (!tabled) return text;
  // Pieces of the table that the model has not come as they are.
  text = replaced(text, space_symbol, " ");
  return std::string(trim(text));
}

std::vector<std::string> Vocabulary::pieces(std::string_view text) const {
  std::vector<std::string> result;
  for (const int64_t id : encode(text)) result.push_back(piece(id));
  return result;
}

const std::string& Vocabulary::piece(int64_t id) const {
  check_id(id, size());
  return implementation_->pieces[static_cast<size_t>(id)];
}

Vocabularies Vocabularies::load(const std::filesystem::path& directory, int64_t source_size, int64_t target_size) {
  const auto open = [&](const char* name, int64_t size) {
    const auto file = directory / name;
    if (!something_at(file)) {
      throw Error(directory.string(), fmt::format("is not a model directory: {} is missing", name),
                  "it needs vocabulary.model, or source.model and target.model, as train writes them");
    }
    auto vocabulary = std::make_shared<const Vocabulary>(file);
    if (vocabulary->size() != size) {
      throw Error(file.string(),
                  fmt::format("holds {} word pieces, but the model was made for {}", vocabulary->size(), size),
                  "a model translates with the vocabulary it was trained with; to train another one on this "
                  "vocabulary, set model.vocabulary_size to its size");
    }
    return vocabulary;
  };
  if (!something_at(directory / vocabulary_name)) {
    return {open(source_vocabulary_name, source_size), open(target_vocabulary_name, target_size)};
  }
  const auto joint = open(vocabulary_name, source_size);
  if (target_size != source_size) open(vocabulary_name, target_size);  // says what does not fit
  return {joint, joint};
}

}  // namespace transformer
