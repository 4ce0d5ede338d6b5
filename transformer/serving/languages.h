#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace transformer {

/// What a model translates from and to, as it calls them: en, pt-BR, eng_Latn, en_XX.
struct LanguagePair {
  std::string source, target;  // empty where it is not said
  bool operator==(const LanguagePair&) const = default;
};

/// What a model translates: from one language into one, or from each of many into each other one.
class ServedLanguages {
 public:
  /// From one language into one.
  explicit ServedLanguages(LanguagePair pair) : usual_(std::move(pair)) {}
  /// `usual`: what it translates where nothing is said; empty: it has to be.
  ServedLanguages(std::vector<std::string> codes, LanguagePair usual);

  /// Whether the model knows many, which are its `codes`.
  bool many() const { return !codes_.empty(); }
  /// In the order that they were given in; none of a model of one pair.
  const std::vector<std::string>& codes() const { return codes_; }
  /// What is translated where a request names no languages; empty parts have to be named.
  const LanguagePair& usual() const { return usual_; }
  /// Those that a request means which names these (mean_language), as the model calls them; an empty one stands for the
  /// usual. None where the model does not translate so, or might be meant to translate in several ways.
  std::optional<LanguagePair> find(const std::string& source, const std::string& target) const;
  /// Whether a request for this target that names no source would be translated if it named one: the model knows many,
  /// among them the target (empty: the usual one), and has no usual source, or the target is that.
  bool lacks_source(const std::string& target) const;
  /// Why a request names none where it might mean several: "'pt' is each of pt-BR, pt-PT". Else empty.
  std::string ambiguity(const std::string& source, const std::string& target) const;
  /// What `own`, which the model calls it, is listed as for clients: short, and a request for it means this one. en for
  /// eng_Latn and en_XX, zh for zho_Hans and zh-Hant for zho_Hant; what has no underscore is listed as it is.
  std::string tag(const std::string& own) const;
  /// Of each of the `codes`.
  const std::vector<std::string>& tags() const { return tags_; }
  /// "en to de", or "each of 3 languages to each other: ar, de, en".
  std::string text() const;
  bool operator==(const ServedLanguages&) const = default;

 private:
  std::span<const std::string> sources() const { return many() ? std::span(codes_) : std::span(&usual_.source, 1); }
  std::span<const std::string> targets() const { return many() ? std::span(codes_) : std::span(&usual_.target, 1); }
  std::vector<std::string> codes_ = {}, tags_ = {};
  LanguagePair usual_;
};

/// Which of `own`, the languages that a model knows by these names, a request means by `code`: the one called so; else
/// those of the same language by ISO 639 (en and eng are eng_Latn, en_XX and en), in the same script or region where
/// one is named (zh-Hant, pt_BR), and among several the one in the script that the language is usually written in (zh
/// is zho_Hans), or of which no more is said. no and nb are each other where a model has but one of them. Several
/// where none of this decides, and none where the model has no such language.
std::vector<std::string> mean_language(const std::string& code, std::span<const std::string> own);

/// "en:de". Throws Error for what is no pair of codes; `where` begins its message.
LanguagePair parse_language_pair(const std::string& text, const std::string& where);

/// What the names of a model's training files end in (train.en.gz, train.de.gz), where they all end alike, in codes of
/// ISO 639-1, and in two.
std::optional<LanguagePair> languages_of_model(const std::filesystem::path& config_yaml);

/// "German" for de, "Chinese (traditional)" for zh-Hant, "Portuguese (BR)" for pt-BR; for an
/// unknown one the code itself.
std::string language_name(std::string_view code);

}  // namespace transformer
