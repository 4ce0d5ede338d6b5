#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace transformer {

/// What a model translates from and to, as codes (ISO 639-1, or longer: pt-BR).
struct LanguagePair {
  std::string source, target;
  bool operator==(const LanguagePair&) const = default;
};

/// "en:de". Throws Error for what is no pair of codes; `where` begins its message.
LanguagePair parse_language_pair(const std::string& text, const std::string& where);

/// What the names of a model's training files end in (train.en.gz, train.de.gz), where they all end alike, in codes of
/// ISO 639-1, and in two.
std::optional<LanguagePair> languages_of_model(const std::filesystem::path& config_yaml);

/// "German" for de and de-AT; for an unknown one the code itself.
std::string language_name(std::string_view code);

}  // namespace transformer
