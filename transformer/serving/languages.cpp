#include "transformer/serving/languages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "transformer/base/ascii.h"
#include "transformer/base/document.h"
#include "transformer/base/error.h"
#include "transformer/base/setting_value.h"
#include "transformer/base/unicode.h"
#include "transformer/serving/iso_languages.h"

namespace transformer {

namespace {

/// A code as it is made up, in any of the world's ways: zh-Hant, zho_Hant, pt_BR.
struct CodeParts {
  const IsoLanguage* language = nullptr;  // null: not known
  std::string rest = {};                  // a script or a region, "Hant" or "BR"; empty where none is said

  /// The script, where one is said or the language has a usual one; else what is said besides.
  std::string_view kind() const { return rest.empty() && language ? language->script : rest; }
};

CodeParts parts_of(std::string_view code) {
  const size_t end = std::min(code.find_first_of("-_"), code.size());
  std::string language(code.substr(0, end)), rest(code.substr(std::min(end + 1, code.size())));
  for (auto& c : language) c = ascii_lower(c);
  // zh-Hant, pt-BR
  for (size_t i = 0; i < rest.size(); ++i)
    rest[i] = rest.size() == 4 && i > 0 ? ascii_lower(rest[i]) : ascii_upper(rest[i]);
  return {find_iso_language(language), std::move(rest)};
}

/// The languages in `own` that `wanted` is.
std::vector<std::string> alike(const CodeParts& wanted, std::span<const std::string> own) {
  std::vector<std::string> all, usual;
  for (const auto& code : own) {
    const auto parts = parts_of(code);
    if (parts.language != wanted.language) continue;
    if (!wanted.rest.empty() && parts.kind() != wanted.rest) continue;
    all.push_back(code);
    if (parts.rest.empty() || parts.rest == wanted.language->script) usual.push_back(code);
  }
  return all.size() > 1 && usual.size() == 1 ? usual : all;
}

/// How `own`, one of a model's languages, is listed: ServedLanguages::tag.
std::string tag_among(const std::string& own, std::span<const std::string> codes) {
  const auto parts = parts_of(own);
  if (own.find('_') == std::string::npos || !parts.language) return own;
  const std::string bare(parts.language->code()), whole = bare + "-" + parts.rest;
  // The bare code is for who wants the usual script.
  const bool is_other_script =
      !parts.language->script.empty() && parts.rest.size() == 4 && parts.rest != parts.language->script;
  for (const auto& tag : {is_other_script ? whole : bare, whole}) {
    if (mean_language(tag, codes) == std::vector{own}) return tag;
  }
  return own;
}

bool is_code(std::string_view text) {
  return text.size() >= 2 && text.size() <= 35 &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_ascii_alphanumeric(c) || c == '-' || c == '_'; });
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

ServedLanguages::ServedLanguages(std::vector<std::string> codes, LanguagePair usual)
    : codes_(std::move(codes)), usual_(std::move(usual)) {
  for (const auto& code : codes_) tags_.push_back(tag_among(code, codes_));
}

std::vector<std::string> mean_language(const std::string& code, std::span<const std::string> own) {
  if (std::find(own.begin(), own.end(), code) != own.end()) return {code};
  const auto wanted = parts_of(code);
  if (!wanted.language) return {};
  auto meant = alike(wanted, own);
  if (!meant.empty()) return meant;
  // Norwegian is Bokmål to most models, whichever of its two codes they have.
  for (const auto& [one, other] : {std::pair("no", "nb"), std::pair("nb", "no")}) {
    if (wanted.language->code() == one) return alike({find_iso_language(other), wanted.rest}, own);
  }
  return {};
}

std::optional<LanguagePair> ServedLanguages::find(const std::string& source, const std::string& target) const {
  const auto meant = [](const std::string& code, const std::string& usual, std::span<const std::string> own) {
    const auto found = mean_language(code.empty() ? usual : code, own);
    return found.size() == 1 ? found.front() : std::string();
  };
  LanguagePair pair{meant(source, usual_.source, sources()), meant(target, usual_.target, targets())};
  const bool fits = !pair.source.empty() && !pair.target.empty() && pair.source != pair.target;
  return fits ? std::optional(std::move(pair)) : std::nullopt;
}

bool ServedLanguages::lacks_source(const std::string& target) const {
  return many() && !find("", target) && mean_language(target.empty() ? usual_.target : target, targets()).size() == 1;
}

std::string ServedLanguages::ambiguity(const std::string& source, const std::string& target) const {
  for (const auto& [code, own] : {std::pair(source, sources()), std::pair(target, targets())}) {
    auto meant = mean_language(code, own);
    if (meant.size() < 2) continue;
    for (auto& one : meant) one = tag(one);
    return fmt::format("{} is each of {}", in_quotes(code), fmt::join(meant, ", "));
  }
  return "";
}

std::string ServedLanguages::tag(const std::string& own) const {
  const auto found = std::find(codes_.begin(), codes_.end(), own);
  return found == codes_.end() ? tag_among(own, std::span(&own, 1))
                               : tags_[static_cast<size_t>(found - codes_.begin())];
}

std::string ServedLanguages::text() const {
  if (!many()) return fmt::format("{} to {}", tag(usual_.source), tag(usual_.target));
  constexpr size_t most_named = 8;
  std::vector<std::string> named;
  for (size_t i = 0; i < std::min(most_named, codes_.size()); ++i) named.push_back(tags_[i]);
  return fmt::format("each of {} languages to each other: {}{}", codes_.size(), fmt::join(named, ", "),
                     named.size() < codes_.size() ? ", … (GET /languages)" : "");
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
  const auto is_known = [](const std::string& code) { return code.size() == 2 && find_iso_language(code); };
  if (!is_known(pair.source) || !is_known(pair.target) || pair.source == pair.target) return std::nullopt;
  return pair;
}

std::string language_name(std::string_view code) {
  const auto parts = parts_of(code);
  if (!parts.language) return std::string(code);
  return fmt::format("{}{}", parts.language->name,
                     parts.rest.empty() ? "" : fmt::format(" ({})", script_name(parts.rest)));
}

}  // namespace transformer
