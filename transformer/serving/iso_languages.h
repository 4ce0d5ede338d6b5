#pragma once

#include <span>
#include <string_view>

namespace transformer {

/// A language by the codes that the world has for it.
struct IsoLanguage {
  /// Its codes, with blanks between them, the one that clients say first: that of ISO 639-1, where it has one, and
  /// those of ISO 639-3, the macrolanguage's before that of its one member which models mean by it (fas, pes: Persian).
  /// The other members are languages of their own.
  std::string_view codes;
  /// In English, as Unicode's CLDR has it.
  std::string_view name;
  /// Of ISO 15924, for a language that models know in several: the one meant where none is said (CLDR's likely
  /// subtags). Else empty.
  std::string_view script;

  /// The first of its codes.
  std::string_view code() const { return codes.substr(0, codes.find(' ')); }
};

/// The languages of NLLB-200, M2M100 and mBART-50, and a few more.
std::span<const IsoLanguage> iso_languages();

/// The one that has this code, in lower case; null where none has.
const IsoLanguage* find_iso_language(std::string_view code);

/// "traditional" for Hant, "Cyrillic" for Cyrl; for a script that is not known its code.
std::string_view script_name(std::string_view script);

}  // namespace transformer
