#include "transformer/serving/languages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "transformer/base/document.h"
#include "transformer/base/error.h"
#include "transformer/base/setting_value.h"
#include "transformer/base/unicode.h"

namespace transformer {

namespace {

// ISO 639-1.
constexpr auto names = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"af", "Afrikaans"},  {"am", "Amharic"},    {"ar", "Arabic"},    {"az", "Azerbaijani"},   {"be", "Belarusian"},
    {"bg", "Bulgarian"},  {"bn", "Bengali"},    {"br", "Breton"},    {"bs", "Bosnian"},       {"ca", "Catalan"},
    {"cs", "Czech"},      {"cy", "Welsh"},      {"da", "Danish"},    {"de", "German"},        {"el", "Greek"},
    {"en", "English"},    {"eo", "Esperanto"},  {"es", "Spanish"},   {"et", "Estonian"},      {"eu", "Basque"},
    {"fa", "Persian"},    {"fi", "Finnish"},    {"fr", "French"},    {"fy", "Frisian"},       {"ga", "Irish"},
    {"gd", "Gaelic"},     {"gl", "Galician"},   {"gu", "Gujarati"},  {"ha", "Hausa"},         {"he", "Hebrew"},
    {"hi", "Hindi"},      {"hr", "Croatian"},   {"hu", "Hungarian"}, {"hy", "Armenian"},      {"id", "Indonesian"},
    {"ig", "Igbo"},       {"is", "Icelandic"},  {"it", "Italian"},   {"ja", "Japanese"},      {"jv", "Javanese"},
    {"ka", "Georgian"},   {"kk", "Kazakh"},     {"km", "Khmer"},     {"kn", "Kannada"},       {"ko", "Korean"},
    {"ku", "Kurdish"},    {"ky", "Kyrgyz"},     {"la", "Latin"},     {"lb", "Luxembourgish"}, {"lo", "Lao"},
    {"lt", "Lithuanian"}, {"lv", "Latvian"},    {"mg", "Malagasy"},  {"mi", "Maori"},         {"mk", "Macedonian"},
    {"ml", "Malayalam"},  {"mn", "Mongolian"},  {"mr", "Marathi"},   {"ms", "Malay"},         {"mt", "Maltese"},
    {"my", "Burmese"},    {"nb", "Bokmål"},     {"ne", "Nepali"},    {"nl", "Dutch"},         {"nn", "Nynorsk"},
    {"no", "Norwegian"},  {"oc", "Occitan"},    {"or", "Odia"},      {"pa", "Punjabi"},       {"pl", "Polish"},
    {"ps", "Pashto"},     {"pt", "Portuguese"}, {"ro", "Romanian"},  {"ru", "Russian"},       {"rw", "Kinyarwanda"},
    {"sd", "Sindhi"},     {"si", "Sinhala"},    {"sk", "Slovak"},    {"sl", "Slovenian"},     {"so", "Somali"},
    {"sq", "Albanian"},   {"sr", "Serbian"},    {"sv", "Swedish"},   {"sw", "Swahili"},       {"ta", "Tamil"},
    {"te", "Telugu"},     {"tg", "Tajik"},      {"th", "Thai"},      {"tk", "Turkmen"},       {"tl", "Tagalog"},
    {"tr", "Turkish"},    {"tt", "Tatar"},      {"ug", "Uyghur"},    {"uk", "Ukrainian"},     {"ur", "Urdu"},
    {"uz", "Uzbek"},      {"vi", "Vietnamese"}, {"xh", "Xhosa"},     {"yi", "Yiddish"},       {"yo", "Yoruba"},
    {"zh", "Chinese"},    {"zu", "Zulu"},
});

const std::pair<std::string_view, std::string_view>* find_language(std::string_view code) {
  const auto* found = std::find_if(names.begin(), names.end(), [&](const auto& entry) { return entry.first == code; });
  return found == names.end() ? nullptr : found;
}

bool is_code(std::string_view text) {
  return text.size() >= 2 && text.size() <= 35 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
         });
}

/// What the names of all files end in, before .gz; nothing where they differ.
std::string common_ending(const std::vector<std::string>& files) {
  std::string common;
  for (const auto& file : files) {
    std::filesystem::path path(file);
    if (path.extension() == ".gz") path = path.stem();
    auto ending = path.extension().string();
    if (!ending.empty()) ending.erase(0, 1);
    if (ending.empty() || (!common.empty() && ending != common)) return "";
    common = ending;
  }
  return common;
}

}  // namespace

bool ServedLanguages::knows(const std::string& code) const {
  return std::find(codes_.begin(), codes_.end(), code) != codes_.end();
}

std::optional<LanguagePair> ServedLanguages::find(const std::string& source, const std::string& target) const {
  LanguagePair pair{source.empty() ? usual_.source : source, target.empty() ? usual_.target : target};
  const bool fits = many() ? knows(pair.source) && knows(pair.target) && pair.source != pair.target : pair == usual_;
  return fits ? std::optional(std::move(pair)) : std::nullopt;
}

std::string ServedLanguages::text() const {
  if (!many()) return fmt::format("{} to {}", usual_.source, usual_.target);
  constexpr size_t most_named = 8;
  const auto named = std::min(most_named, codes_.size());
  return fmt::format("each of {} languages to each other: {}{}", codes_.size(),
                     fmt::join(codes_.begin(), codes_.begin() + static_cast<std::ptrdiff_t>(named), ", "),
                     named < codes_.size() ? ", … (GET /languages)" : "");
}

LanguagePair parse_language_pair(const std::string& text, const std::string& where) {
  const size_t colon = std::min(text.find(':'), text.size());
  LanguagePair pair{text.substr(0, colon), colon < text.size() ? text.substr(colon + 1) : ""};
  if (!is_code(pair.source) || !is_code(pair.target) || pair.source == pair.target) {
    throw Error(where, in_quotes(text) + " is no pair of languages", "write two codes, such as en:de");
  }
  return pair;
}

std::optional<LanguagePair> languages_of_model(const std::filesystem::path& config_yaml) {
  LanguagePair pair;
  for (const auto& section : Document::read(config_yaml).keys()) {
    if (section.key != "data") continue;
    for (const auto& setting : section.value.keys()) {
      if (setting.key == "train_source") pair.source = common_ending(setting.value.setting_value().texts);
      if (setting.key == "train_target") pair.target = common_ending(setting.value.setting_value().texts);
    }
  }
  if (!find_language(pair.source) || !find_language(pair.target) || pair.source == pair.target) return std::nullopt;
  return pair;
}

std::string language_name(std::string_view code) {
  const auto* known = find_language(code.substr(0, code.find('-')));
  return std::string(known ? known->second : code);
}

}  // namespace transformer
