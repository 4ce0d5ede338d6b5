#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace transformer {

/// What a model translates from and to, as codes (ISO 639-1, or longer: pt-BR).
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
  ServedLanguages(std::vector<std::string> codes, LanguagePair usual)
      : codes_(std::move(codes)), usual_(std::move(usual)) {}

  /// Whether the model knows many, which are its `codes`.
  bool many() const { return !codes_.empty(); }
  /// In the order that they were given in; none of a model of one pair.
  const std::vector<std::string>& codes() const { return codes_; }
  /// What is translated where a request names no languages; empty parts have to be named.
  const LanguagePair& usual() const { return usual_; }
  /// Whether it is one of the `codes`.
  bool knows(const std::string& code) const;
  /// Those that a request means which names these; an empty one stands for the usual. None where the model does not
  /// translate so.
  std::optional<LanguagePair> find(const std::string& source, const std::string& target) const;
  /// "en to de", or "each of 3 languages to each other: ar, de, en".
  std::string text() const;
  bool operator==(const ServedLanguages&) const = default;

 private:
  std::vector<std::string> codes_ = {};
  LanguagePair usual_;
};

/// "en:de". Throws Error for what is no pair of codes; `where` begins its message.
LanguagePair parse_language_pair(const std::string& text, const std::string& where);

/// What the names of a model's training files end in (train.en.gz, train.de.gz), where they all end alike, in codes of
/// ISO 639-1, and in two.
std::optional<LanguagePair> languages_of_model(const std::filesystem::path& config_yaml);

/// "German" for de and de-AT; for an unknown one the code itself.
std::string language_name(std::string_view code);

}  // namespace transformer
