#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transformer/text/sentences.h"

namespace transformer {

/// Terms, and what each is to be called in the translation.
///
/// A term is found where it stands as whole words, in the text's normal form (text/normalization.h); in writing that
/// does not set words apart, anywhere, but in Thai, Lao, Khmer and Burmese not before a mark of its last letter. One
/// without a capital is found however it is capitalised, letter by letter (ß as ẞ, not as SS), one with any as it is
/// written alone, and before the other where both would do. Of terms that begin at one place the longest counts, and
/// none within another.
class Glossary {
 public:
  /// What is found, and what its translation is to hold.
  struct Term {
    std::string source, target;  // in their normal form
  };
  /// Bytes of a term and of its translation, at most.
  static constexpr size_t longest = 1000;

  /// Throws Error naming the term that is blank, too long, or there already.
  explicit Glossary(std::vector<Term> terms);
  /// A term, a tab and its translation a line; blank lines are passed over. Throws Error naming file and line.
  static Glossary read(const std::filesystem::path& file);
  ~Glossary();
  Glossary(Glossary&&) noexcept;
  Glossary& operator=(Glossary&&) noexcept;

  /// In the order that they were given in.
  const std::vector<Term>& terms() const;

  /// A term in a text, as a span of its bytes.
  struct Match : TextSpan {
    size_t term = 0;  // index into terms()
  };
  /// Where terms stand in `normal`, a text in its normal form.
  std::vector<Match> find(std::string_view normal) const;
  /// What the translation of `text` shall hold, each once, in the order in which terms stand in it.
  std::vector<std::string> targets(std::string_view text) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace transformer
