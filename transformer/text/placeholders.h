#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "transformer/text/sentences.h"

namespace transformer {

/// What stands in texts of programs for what they put there later, and addresses: nothing to be translated.
///
/// - {0} {} {name} {user.name} {$name} {price:.2f} {count, number} {{name}} ${name}
/// - %s %d %5.2f %ld %@ %1$s %(name)s %{name}
/// - http://..., https://..., ftp://..., www...., name@host.domain
///
/// Addresses may have letters of any writing that sets words apart. A mail address begins behind no such letter, and in
/// its domain none beyond Latin is behind one of ASCII, as particles of Korean are ("me@x.org로").
///
/// A percent sign is one: "100 % sure", "100%ige", "5% d'accord", "%%". So behind a digit %s is none, nor is it behind
/// a digit and a blank where a word goes on with it; %1$s and %(name)s always are. No letter is taken for printf's flag
/// " ". Braces around words, or around texts to choose from ({n, plural, ...}), are text, too.
///
/// The end of the placeholder that begins at `position`; npos where none does. `in_markup`: < ends all, and & what is
/// behind it where it stands for < > or a quotation mark. Time is bounded but for addresses, which are as long as they
/// are.
size_t placeholder_end(std::string_view text, size_t position, bool in_markup = false);

/// All of a text, from its beginning on.
std::vector<TextSpan> find_placeholders(std::string_view text);

}  // namespace transformer
