#include <map>
#include <nlohmann/json.hpp>

#include "support.h"
#include "transformer/base/error.h"
#include "transformer/base/unicode.h"
#include "transformer/evaluation/bleu.h"
#include "transformer/evaluation/bootstrap.h"
#include "transformer/evaluation/chrf.h"
#include "transformer/evaluation/lowercase.h"
#include "transformer/text/random.h"

using namespace transformer;
using nlohmann::json;
using Lines = std::vector<std::string>;

namespace {

/// What sacreBLEU and Python make of a set of odd sentences; computed once a run.
const json& reference(const char* section) {
  static std::map<std::string, json> sections;
  if (!sections.count(section)) {
    test::TemporaryDirectory directory;
    test::run_reference("evaluation_metrics.py", std::string(section) + " '" + (directory / "out.json").string() + "'");
    sections[section] = json::parse(test::read_file(directory / "out.json"));
  }
  return sections.at(section);
}

BleuOptions options_of(const json& expected) {
  using Smoothing = BleuOptions::Smoothing;
  BleuOptions options{.lowercase = expected.at("lowercase"), .effective_order = expected.at("effective")};
  if (expected.at("tokenize") == "none") options.tokenizer = BleuOptions::Tokenizer::none;
  const std::string smooth = expected.at("smooth");
  options.smoothing = smooth == "exp"     ? Smoothing::exponential
                      : smooth == "floor" ? Smoothing::floor
                      : smooth == "add-k" ? Smoothing::add_k
                                          : Smoothing::none;
  if (!expected.at("value").is_null()) options.smoothing_value = expected.at("value").get<double>();
  return options;
}

void check_bleu(const Bleu& bleu, const json& expected) {
  CHECK(bleu.score == Approx(expected.at("score").get<double>()).margin(1e-9).epsilon(0));
  CHECK(bleu.brevity_penalty == Approx(expected.at("bp").get<double>()).margin(1e-12).epsilon(0));
  CHECK(bleu.hypothesis_length == expected.at("hyp_len").get<int64_t>());
  CHECK(bleu.reference_length == expected.at("ref_len").get<int64_t>());
  for (int64_t n = 0; n < Bleu::orders; ++n) {
    CHECK(bleu.precisions[n] == Approx(expected.at("precisions")[n].get<double>()).margin(1e-9).epsilon(0));
  }
}

}  // namespace

TEST_CASE("white space and lower case are Python's") {
  for (const auto& pair : reference("characters").at("lowercase")) {
    INFO(pair.dump());
    CHECK(lowercase(pair[0].get<std::string>()) == pair[1].get<std::string>());
  }
  const auto& beside_sigma = reference("characters").at("beside_sigma");
  std::string wrong;
  for (size_t i = 0; i < beside_sigma[0].size(); ++i) {
    const auto text = beside_sigma[0][i].get<std::string>();
    if (lowercase(text) != beside_sigma[1][i].get<std::string>()) wrong += text + '\n';
  }
  CHECK(beside_sigma[0].size() > 100'000);
  CHECK(wrong == "");
  for (const auto& pair : reference("characters").at("spaces")) {
    const std::string text = pair[0];
    Lines words;
    for (const auto word : split_words(text)) words.emplace_back(word);
    INFO(pair.dump());
    CHECK(words == pair[1].get<Lines>());
  }
}

TEST_CASE("tokenization is mteval-13a's") {
  for (const auto& pair : reference("tokenized")) {
    INFO(pair.dump());
    CHECK(tokenize_13a(pair[0].get<std::string>()) == pair[1].get<std::string>());
  }
}

TEST_CASE("compounds split as Perl's s///g splits them") {
  CHECK(split_compounds("a-b-c") == "a ##AT##-##AT## b-c");
  CHECK(split_compounds("ab-cd-ef") == "ab ##AT##-##AT## cd ##AT##-##AT## ef");
  for (const auto& pair : reference("compounds")) {
    INFO(pair.dump());
    CHECK(split_compounds(pair[0].get<std::string>()) == pair[1].get<std::string>());
  }
}

TEST_CASE("BLEU equals sacreBLEU's") {
  REQUIRE(reference("cases").size() > 300);
  for (const auto& example : reference("cases")) {
    const auto hypotheses = example.at("hypotheses").get<Lines>();
    const auto references = example.at("references").get<std::vector<Lines>>();
    INFO(json({{"hypotheses", hypotheses}, {"references", references}}).dump());
    for (const auto& expected : example.at("bleu")) {
      INFO(expected.dump());
      const BleuOptions options = options_of(expected);
      const Bleu bleu = corpus_bleu(hypotheses, references, options);
      check_bleu(bleu, expected);
      CHECK(bleu_signature(options, static_cast<int64_t>(references.size())) ==
            expected.at("signature").get<std::string>() + "version:transformer-0.1.0");
      const std::string tokenized = options.tokenizer == BleuOptions::Tokenizer::none ? "tokenized " : "";
      CHECK(to_string(bleu, options) == tokenized + expected.at("text").get<std::string>());
      if (options.effective_order && hypotheses.size() == 1) {
        Lines of_sentence;
        for (const auto& lines : references) of_sentence.push_back(lines[0]);
        CHECK(sentence_bleu(hypotheses[0], of_sentence).score == bleu.score);
      }
    }
  }
}

TEST_CASE("what is blank at a line's end is no part of it, before mteval-13a joins hyphenated lines") {
  for (const char* end : {"\n", " ", "\t\n"}) {
    CHECK(sentence_bleu(std::string("one two three four-") + end, {"one two three four-"}).score == Approx(100));
  }
}

TEST_CASE("compound-split BLEU equals unsmoothed BLEU of text in ATAT format, and says what it is") {
  int64_t different_from_plain = 0;
  for (const auto& example : reference("cases")) {
    const auto hypotheses = example.at("hypotheses").get<Lines>();
    const auto references = example.at("references").get<std::vector<Lines>>();
    INFO(json({{"hypotheses", hypotheses}, {"references", references}}).dump());
    BleuOptions options{.smoothing = BleuOptions::Smoothing::none, .compound_split = true};
    check_bleu(corpus_bleu(hypotheses, references, options), example.at("compounds").at("13a"));
    CHECK(bleu_signature(options, 1) ==
          "nrefs:1|case:mixed|eff:no|tok:13a+compound-split|smooth:none|version:transformer-0.1.0");
    options.tokenizer = BleuOptions::Tokenizer::none;
    const Bleu split = corpus_bleu(hypotheses, references, options);
    check_bleu(split, example.at("compounds").at("none"));
    CHECK_THAT(to_string(split, options), StartsWith("compound-split BLEU = "));
    options.compound_split = false;
    different_from_plain += corpus_bleu(hypotheses, references, options).score != split.score;
  }
  CHECK(different_from_plain > 10);
}

TEST_CASE("chrF and chrF++ equal sacreBLEU's") {
  for (const auto& example : reference("cases")) {
    const auto hypotheses = example.at("hypotheses").get<Lines>();
    const auto references = example.at("references").get<std::vector<Lines>>();
    INFO(json({{"hypotheses", hypotheses}, {"references", references}}).dump());
    for (const auto& expected : example.at("chrf")) {
      const ChrfOptions options{.word_order = expected.at("word_order"), .lowercase = expected.at("lowercase")};
      INFO(expected.dump());
      CHECK(corpus_chrf(hypotheses, references, options) ==
            Approx(expected.at("score").get<double>()).margin(1e-9).epsilon(0));
      CHECK(chrf_name(options) == expected.at("name").get<std::string>());
      CHECK(chrf_signature(options, static_cast<int64_t>(references.size())) ==
            expected.at("signature").get<std::string>() + "version:transformer-0.1.0");
    }
  }
}

TEST_CASE("paired bootstrap resampling gives sacreBLEU's means and intervals") {
  for (const auto& example : reference("significance")) {
    const auto baseline = example.at("baseline").get<Lines>(), system = example.at("system").get<Lines>();
    const std::vector<Lines> references{example.at("reference").get<Lines>()};
    for (const std::string metric : {"bleu", "chrf"}) {
      const ChrfOptions chrf{.word_order = 2};
      const auto compare = [&](const BootstrapOptions& options) {
        return metric == "bleu"
                   ? paired_bootstrap(
                         bleu_statistics(baseline, references), bleu_statistics(system, references),
                         [](auto sum) { return bleu_from_statistics(sum).score; }, options)
                   : paired_bootstrap(
                         chrf_statistics(baseline, references, chrf), chrf_statistics(system, references, chrf),
                         [&](auto sum) { return chrf_from_statistics(sum, chrf); }, options);
      };
      const json& expected = example.at("metrics").at(metric);
      INFO(metric << expected.dump());
      const auto near = [](double value, double margin) { return Approx(value).margin(margin).epsilon(0); };

      SECTION("on the same draws exactly: " + metric + expected.at("p").dump()) {
        const Comparison result = compare({.samples = 200, .seed = 7});
        const Estimate estimates[] = {result.baseline, result.system};
        for (int i = 0; i < 2; ++i) {
          CHECK(estimates[i].score == near(expected.at("scores")[i], 1e-9));
          CHECK(estimates[i].mean == near(expected.at("means")[i], 1e-9));
          CHECK(estimates[i].half_width() == near(expected.at("half_widths")[i], 1e-9));
        }
        CHECK(result.p_value == near(expected.at("p"), 1e-12));
        CHECK(result.difference.mean == near(expected.at("difference")[0], 1e-9));
        CHECK(result.difference.lower == near(expected.at("difference")[1], 1e-9));
        CHECK(result.difference.upper == near(expected.at("difference")[2], 1e-9));
      }
      SECTION("on its own draws within their spread: " + metric + expected.at("p").dump()) {
        const json& tested = expected.at("paired_test");
        const Comparison result = compare({});
        const Estimate estimates[] = {result.baseline, result.system};
        for (int i = 0; i < 2; ++i) {
          const double half_width = tested.at("half_widths")[i];
          // A mean of 1000 draws strays by half_width / 1.96 / sqrt(1000); five of those, for each of two means.
          CHECK(estimates[i].mean == near(tested.at("means")[i], 0.12 * half_width));
          CHECK(estimates[i].half_width() == near(half_width, 0.15 * half_width));
        }
      }
    }
  }
}

TEST_CASE("paired bootstrap resampling is repeatable and finds no difference between equal outputs") {
  const Lines output{"a b c d e", "f g h i j", "k l m n o"};
  const std::vector<Lines> references{{"a b c d e x", "f g h i y", "k l m n o"}};
  const auto statistics = bleu_statistics(output, references);
  const auto other = bleu_statistics({"a b c d", "f g h i", "l m n o"}, references);
  const auto score = [](auto sum) { return bleu_from_statistics(sum).score; };
  const Comparison same = paired_bootstrap(statistics, statistics, score);
  CHECK(same.p_value == 1);
  CHECK(same.difference.upper == 0);
  const Comparison first = paired_bootstrap(statistics, other, score, {.seed = 3});
  CHECK(paired_bootstrap(statistics, other, score, {.seed = 3}).system.mean == first.system.mean);
  CHECK(paired_bootstrap(statistics, other, score, {.seed = 4}).system.mean != first.system.mean);
  CHECK_THROWS_AS(paired_bootstrap(statistics, bleu_statistics({"a"}, {{"a"}}), score), Error);
  CHECK_THROWS_AS(paired_bootstrap(statistics, other, score, {.samples = 0}), Error);
}

TEST_CASE("outputs that are equally good are told apart as rarely as p says") {
  const int64_t sentences = 100;
  Random random(5);
  const auto noise = [&] {
    Statistics statistics{.width = 1, .values = {}};
    // About normal: of twelve numbers below a thousand.
    for (int64_t i = 0; i < sentences; ++i) {
      int64_t sum = 0;
      for (int k = 0; k < 12; ++k) sum += static_cast<int64_t>(random.below(1000));
      statistics.values.push_back(sum);
    }
    return statistics;
  };
  const auto score = [](auto sum) { return static_cast<double>(sum[0]); };
  const int tests = 1000;
  int below = 0, far_below = 0;
  for (int test = 0; test < tests; ++test) {
    const auto baseline = noise(), system = noise();
    const double p =
        paired_bootstrap(baseline, system, score, {.samples = 199, .seed = static_cast<uint64_t>(test)}).p_value;
    below += p <= 0.05;
    far_below += p <= 0.5;
  }
  // 50 and 500, and five times what chance makes of them.
  CAPTURE(below, far_below);
  CHECK((below > 15 && below < 85));
  CHECK((far_below > 420 && far_below < 580));
}

TEST_CASE("one sentence tells nothing of chance, whatever it scores") {
  const std::vector<Lines> references{{"the dog barks at the cat"}};
  const auto one = bleu_statistics({"the dog barks at the cat"}, references);
  const auto other = bleu_statistics({"a dog barks at the cat"}, references);
  const auto score = [](auto sum) { return bleu_from_statistics(sum).score; };
  const Comparison result = paired_bootstrap(other, one, score);
  CHECK(result.difference.score > 0);
  CHECK(result.p_value == 1);
}

TEST_CASE("unequal numbers of sentences are refused") {
  CHECK_THROWS_WITH(corpus_bleu({"a", "b"}, {{"a"}}),
                    "2 hypotheses but 1 reference sentences; give one line of each for every sentence");
  CHECK_THROWS_WITH(corpus_chrf({"a"}, {{"a"}, {"b", "c"}}), Contains("2 reference sentences"));
  CHECK_THROWS_AS(corpus_bleu({}, {{}}), Error);
  CHECK_THROWS_AS(corpus_bleu({"a"}, {}), Error);
}
