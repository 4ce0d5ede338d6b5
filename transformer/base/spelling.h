#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace transformer {

// Which name somebody meant who wrote another.

/// Longer words are no names, and comparing them would take long.
inline constexpr size_t longest_word = 64;

/// Letters to change, insert, leave out or swap with their neighbour to get from one word to the other.
size_t edit_distance(const std::string& from, const std::string& to);

/// How far from a name `word` may be; names further away are other words, not what it is a slip of.
size_t largest_slip(const std::string& word);

/// Shorter ones are the beginning of too many words.
inline constexpr size_t shortest_beginning = 3;

/// The word of `known` that `word` is most likely a slip of, or else the only one that begins with it; nothing where
/// there is neither.
std::string nearest_word(const std::string& word, const std::vector<std::string>& known);

/// For messages: "did you mean 'heads'?" for a name that is near, `otherwise` where none is.
std::string did_you_mean(const std::string& near, const std::string& otherwise = "");

}  // namespace transformer
