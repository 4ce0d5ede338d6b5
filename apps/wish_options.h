#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/unfinished_output.h"
#include "transformer/inference/translator.h"
#include "transformer/text/glossary.h"

namespace transformer {

/// What is asked of translations beyond how they are searched for: --prefix, --require, --forbid, --bias, --glossary.
/// Must outlive the parsing.
class WishOptions {
 public:
  explicit WishOptions(CLI::App& app);

  /// After parsing: the first option of lines that was given (all but --glossary); empty where none was.
  std::string given() const;
  /// Whether any option was.
  bool any() const { return !given().empty() || !glossary_file_.empty(); }
  /// The files that are read.
  std::vector<std::string> inputs() const;
  /// Reads the files, whole. Throws Error for what cannot be read or understood, and for what no line can have:
  /// required phrases in a search that takes none, and terms whose translations are forbidden.
  void load(const Translator& translator);
  /// What is wished of line `number` of the input, counted from 1, which is `source`. Throws Error where a file has no
  /// such line.
  LineWishes of(int64_t number, std::string_view source) const;
  /// Null where there is none.
  const Glossary* glossary() const { return terms_ ? &*terms_ : nullptr; }
  /// Everything of it that decides what is written, by name.
  void identify(std::map<std::string, std::string>& work) const;

  /// At the end, on standard error: how many lines lack a required phrase, and which files have more lines than the
  /// input, which has `lines`; 0: not known. Nothing where there is nothing to say.
  void report(std::string_view program, const UnfinishedOutput::ToldLines& lacking, int64_t lines) const;

 private:
  struct Option {
    const char* flag;
    std::string file = {};
    std::vector<std::string> lines = {};
  };
  void read(Option& option) const;
  static const std::string& line_of(const Option& option, int64_t number);

  Option prefix_{"--prefix"}, required_{"--require"}, forbidden_{"--forbid"}, bias_{"--bias"};
  std::string glossary_file_;
  std::optional<Glossary> terms_;
  std::shared_ptr<const ForbiddenText> forbidden_text_;
  std::vector<std::pair<int64_t, double>> biases_;
};

}  // namespace transformer
