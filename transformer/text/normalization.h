#pragma once

#include <string>
#include <string_view>

namespace transformer {

/// What becomes of a text before it is split into word pieces.
enum class Normalization {
  none,  // the text as it is
  nfc,   // `normalized`
};

/// One spelling for texts that look alike: Unicode's canonical composition (NFC: an e and an acute accent are é), one
/// space for every run of blanks (base/unicode.h) between words, none at the ends, and no control characters; a word of
/// nothing else becomes U+FFFD, and so do bytes that are no UTF-8. Normal text stays as it is, and the words of the
/// result are those of the text, each normalised by itself: who counts words may count either's.
std::string normalized(std::string_view text);

/// Whether one glance shows `text` to be normal: true for most lines of languages in Latin script, never true for text
/// that `normalized` would change.
bool is_plainly_normal(std::string_view text);

}  // namespace transformer
