// Lists the translations of word pieces, in which `translate --shortlist` then writes its outputs.

#include "transformer/inference/shortlist.h"

#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "apps/line_input.h"
#include "apps/number_option.h"
#include "apps/program.h"
#include "transformer/architecture/model_directory.h"
#include "transformer/base/atomic_file.h"
#include "transformer/base/checksum.h"
#include "transformer/base/counted.h"
#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/model_files.h"
#include "transformer/text/corpus.h"
#include "transformer/text/lexicon.h"

int main(int argc, char** argv) {
  using namespace transformer;
  return run_program(argc, argv, [](CLI::App& app, auto parse) {
    app.description(
        "Lists what word pieces are translated by, as parallel text says (IBM's Model 1), for translate --shortlist: a "
        "projection to a few hundred pieces of the vocabulary instead of all.");
    std::filesystem::path model, output;
    std::vector<std::string> sources, targets;
    Lexicon::Options learning;
    Shortlist::Options options;
    app.add_option("--model", model, "Model directory, whose vocabularies count")->required()->type_name("DIR");
    app.add_option("--source", sources, "Text, plain or .gz; repeat for several")
        ->required()
        ->type_name("FILE")
        ->allow_extra_args(false);
    app.add_option(
           "--target", targets,
           "Its translation, line by line: the model's training text, or other; pairs longer than 100 pieces are "
           "left out")
        ->required()
        ->type_name("FILE")
        ->allow_extra_args(false);
    app.add_option("--output", output, "File to write")->required()->type_name("FILE");
    app.add_option("--frequent", options.frequent, "Most frequent pieces, which are always on the list")
        ->type_name("N")
        ->transform(number_between(int64_t{0}, int64_t{1000000}))
        ->capture_default_str();
    app.add_option("--translations", options.translations, "Of each piece, at most")
        ->type_name("N")
        ->transform(number_between(int64_t{1}, int64_t{1000000}))
        ->capture_default_str();
    app.add_option("--least", options.least, "Probability of a translation, below which it is left out")
        ->type_name("NUMBER")
        ->transform(number_between(0.0, 1.0))
        ->capture_default_str();
    app.add_option("--most-pairs", learning.most_pairs,
                   "Sentence pairs that are looked at, evenly over the text, which is in memory as word pieces")
        ->type_name("N")
        ->transform(number_between(int64_t{1}, int64_t{1} << 40))
        ->capture_default_str();
    parse();

    std::vector<std::filesystem::path> inputs(sources.begin(), sources.end());
    inputs.insert(inputs.end(), targets.begin(), targets.end());
    inputs.push_back(model);
    if (is_standard(output.string())) throw Error("--output", "a list is written to a file", "name one");
    check_output_file("--output", output, inputs);
    const auto settings = read_model_settings(model);
    if (something_at(model / checksums_name)) {
      verify_checksums(model, vocabulary_names_of(!something_at(model / source_vocabulary_name)));
    }
    const auto vocabularies =
        Vocabularies::load(model, settings.source_vocabulary_size, settings.target_vocabulary_size);
    const auto corpus = Corpus::read(sources, targets, *vocabularies.source, *vocabularies.target, {});
    if (corpus.size() == 0 && corpus.report().too_long == 0) {
      throw Error(sources.front(), "holds no sentence that can be used", "give parallel text");
    }
    const auto lexicon = Lexicon::learn(corpus, vocabularies.source->size(), vocabularies.target->size(), learning);
    // What the corpus itself leaves out is as long.
    const int64_t too_long = lexicon.too_long() + corpus.report().too_long;
    const auto left_out =
        fmt::format("{} with a side longer than {} pieces", counted(too_long, "pair"), learning.most_pieces);
    if (lexicon.pairs() == 0) {
      throw Error(sources.front(), fmt::format("leaves nothing to learn from, of {}", left_out),
                  "give text with a sentence a line");
    }
    if (too_long > 0) std::cerr << fmt::format("shortlist: warning: {} left out\n", left_out);
    const Shortlist list(lexicon, vocabularies, options);
    list.write(output);
    std::cout << fmt::format("{}: {:.1f} translations a piece, of {}\n", output.string(), list.mean_translations(),
                             vocabularies.target->size());
  });
}
