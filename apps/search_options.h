#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <set>
#include <string>

#include "apps/setting_options.h"
#include "transformer/base/error.h"
#include "transformer/inference/decoding_settings.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

/// How a program searches for output: options in place of what a model's config.yaml says. Must outlive the parsing.
class SearchOptions {
 public:
  /// `models`: whose config.yaml it is, for --help. `without`: settings that the program decides itself.
  SearchOptions(CLI::App& app, const std::string& models, const std::set<std::string>& without = {})
      : options_(app, fmt::format("Search (what is not given is as in {} config.yaml)", models),
                 {{"source_language", "--from"}, {"target_language", "--to"}}, /*tells_defaults=*/false, without) {}

  // After parsing:

  bool given(const std::string& setting) const { return options_.given(setting); }

  /// `stored` with what the command line gave. Where this is another --search, what is stored for the one that it
  /// replaces alone counts no more. Throws Error for what was given and has no effect, and for languages that are none
  /// of the model's `vocabularies`.
  DecodingSettings over(const DecodingSettings& stored, const Vocabularies& vocabularies) const {
    const auto search = stored.with([&](DecodingSettings& settings) { settings = options_.over(settings); });
    for (const char* of_beams : {"beam", "stop"}) {
      if (!given(of_beams) || search.search != DecodingSettings::Search::sampling) continue;
      throw Error(fmt::format("--{}", of_beams), "is for beam search, and the search is sampling",
                  "leave it out (--n-best gives the number of samples), or give --search beam");
    }
    if (given("diversity") && search.beam_groups == 1) {
      throw Error("--diversity", "is between the groups of a beam, and there is one",
                  "give --beam-groups 2 or more with it, or leave it out");
    }
    const auto check_language = [](const Vocabulary& vocabulary, const std::string& of_model, const std::string& told,
                                   const char* option) {
      if (told != of_model) vocabulary.languages().piece(told, option);
    };
    check_language(*vocabularies.source, stored.source_language, search.source_language, "--from");
    check_language(*vocabularies.target, stored.target_language, search.target_language, "--to");
    return search;
  }

 private:
  SettingOptions<DecodingSettings> options_;
};

}  // namespace transformer
