#include "apps/wish_options.h"

#include <fmt/format.h>

#include <iostream>
#include <set>

#include "apps/line_input.h"
#include "apps/messages.h"
#include "transformer/base/checksum.h"
#include "transformer/base/counted.h"
#include "transformer/base/error.h"
#include "transformer/base/unicode.h"
#include "transformer/inference/piece_biases.h"

namespace transformer {

namespace {

std::vector<std::string> phrases_of(std::string_view line) {
  std::vector<std::string> phrases;
  while (true) {
    const size_t tab = line.find('\t');
    const auto phrase = trim(line.substr(0, tab));
    if (!phrase.empty()) phrases.emplace_back(phrase);
    if (tab == std::string_view::npos) return phrases;
    line.remove_prefix(tab + 1);
  }
}

}  // namespace

WishOptions::WishOptions(CLI::App& app) {
  const auto add = [&](Option& option, const char* meaning) {
    app.add_option(option.flag, option.file, meaning)->option_text("FILE")->group("Wishes");
  };
  add(prefix_,
      "A line for every line of input: what its translation begins with, where it is not blank. A word at the end of "
      "it may go on, unless a blank follows");
  add(required_,
      "A line for every line of input: phrases that its translation holds, between tabs, their last word a whole one. "
      "The beam is wider by their word pieces, 64 at most. Which lines lack some all the same is told at the end, and "
      "what they lack by --output-format jsonl, as missing_phrases");
  add(forbidden_, "A word or phrase a line that no translation holds, however it is spelled in word pieces");
  app.add_option(
         "--glossary", glossary_file_,
         "A term, a tab and its translation a line: where a line of input has the term as a word or words, its "
         "translation holds the other, as with --require. Terms without a capital are found in any case, the longest "
         "counts")
      ->option_text("FILE")
      ->group("Wishes");
  add(bias_, "A word piece of the vocabulary, a tab and a number a line: what is added to its logits");
}

std::string WishOptions::given() const {
  for (const auto* option : {&prefix_, &required_, &forbidden_, &bias_}) {
    if (!option->file.empty()) return option->flag;
  }
  return "";
}

void WishOptions::read(Option& option) const {
  if (option.file.empty()) return;
  if (is_standard(option.file)) throw Error(option.flag, "is read from a file alone", "name one");
  LineInput input(option.file);
  InputLine line;
  while (input.next(line)) {
    if (!line.usable()) throw input.error(std::ssize(option.lines) + 1, line);
    option.lines.push_back(std::move(line.text));
  }
}

std::vector<std::string> WishOptions::inputs() const {
  std::vector<std::string> all;
  for (const auto& file : {prefix_.file, required_.file, forbidden_.file, bias_.file, glossary_file_}) {
    if (!file.empty()) all.push_back(file);
  }
  return all;
}

void WishOptions::load(const Translator& translator) {
  for (auto* option : {&prefix_, &required_, &forbidden_, &bias_}) read(*option);
  // Not line by line, where it would be every one's mistake.
  if (!required_.file.empty()) {
    DecodingRequest request{.source = {Vocabulary::end}, .settings = translator.settings()};
    request.control.required = {{Vocabulary::unknown + 1}};
    request.check(translator.vocabularies().target->size());
  }
  if (!forbidden_.file.empty()) forbidden_text_ = translator.forbid(forbidden_.lines);
  if (!glossary_file_.empty()) {
    if (is_standard(glossary_file_)) throw Error("--glossary", "is read from a file alone", "name one");
    terms_ = Glossary::read(glossary_file_);
    for (const auto& term : terms_->terms()) {
      translator.encode_wishes({.required = {term.target}});
      if (!forbidden_text_) continue;
      const auto found = forbidden_text_->found_in(translator.vocabularies().target->encode(term.target));
      if (found.empty()) continue;
      throw Error("--glossary",
                  fmt::format("has {} for {}, which holds {} of --forbid", in_quotes(term.target),
                              in_quotes(term.source), in_quotes(found)),
                  "decide for one");
    }
  }
  biases_ = piece_biases(bias_.lines, bias_.file, *translator.vocabularies().target);
}

const std::string& WishOptions::line_of(const Option& option, int64_t number) {
  static const std::string none;
  if (option.file.empty()) return none;
  if (number > std::ssize(option.lines)) {
    throw Error(option.file,
                fmt::format("has {}, and none for line {} of the input", counted(option.lines.size(), "line"), number),
                "give a line for every line, blank where nothing is wished");
  }
  return option.lines[static_cast<size_t>(number - 1)];
}

LineWishes WishOptions::of(int64_t number, std::string_view source) const {
  auto required = phrases_of(line_of(required_, number));
  if (terms_) {
    const std::set<std::string> named(required.begin(), required.end());
    for (auto& target : terms_->targets(source)) {
      if (!named.contains(target)) required.push_back(std::move(target));
    }
  }
  return {.prefix = line_of(prefix_, number),
          .required = std::move(required),
          .forbidden = forbidden_text_,
          .bias = biases_};
}

void WishOptions::identify(std::map<std::string, std::string>& work) const {
  Checksum checksum;
  for (const auto* option : {&prefix_, &required_, &forbidden_, &bias_}) {
    if (option->file.empty()) continue;
    checksum.add(option->flag);
    for (const auto& line : option->lines) {
      checksum.add(line);
      checksum.add("\n");
    }
  }
  if (terms_) {
    checksum.add("--glossary");
    for (const auto& [source, target] : terms_->terms()) checksum.add(fmt::format("{}\t{}\n", source, target));
  }
  if (any()) work["file of wishes"] = checksum.text();
}

void WishOptions::report(std::string_view program, const UnfinishedOutput::ToldLines& lacking, int64_t lines) const {
  for (const auto* option : {&prefix_, &required_}) {
    const auto count = std::ssize(option->lines);
    if (lines == 0 || count <= lines) continue;
    std::cerr << one_line(fmt::format("{}: warning: {} has {}, and the input {}", program, option->file,
                                      counted(count, "line"), lines))
              << std::endl;
  }
  if (lacking.count == 0) return;
  auto text = fmt::format("{}: warning: {} phrases that were required: ", program,
                          lacking.count == 1 ? "1 line lacks" : fmt::format("{} lines lack", lacking.count));
  bool any = false;
  for (const auto& [number, phrase] : lacking.first) {
    text += fmt::format("{}line {} {}", any ? ", " : "", number, in_quotes(phrase));
    any = true;
  }
  if (lacking.count > std::ssize(lacking.first)) text += ", ...";
  std::cerr << text << std::endl;
}

}  // namespace transformer
