// make_pages FOLDER: the pages that browser tests open, and in attention.json what the first of them shows.

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "report/attention_view.h"
#include "transformer/report/attention_page.h"
#include "transformer/report/attention_report.h"
#include "transformer/report/run_page.h"
#include "transformer/report/sweep_report.h"

using namespace transformer;

namespace {

using Strings = std::vector<std::string>;

// Most weights are small, as a model's are.
AttentionView view_of(AttentionView::Kind kind, Strings queries, Strings keys, std::vector<int64_t> layers,
                      std::vector<int64_t> heads) {
  return test::view_of(kind, std::move(queries), std::move(keys), std::move(layers), std::move(heads),
                       [](auto number) { return std::pow(static_cast<double>(number + 1) / 1000, 6); });
}

AttentionReport attention() {
  const Strings source = {"The", "dog", "barks", "at", "</script><b>", "Donaudampfschifffahrtsgesellschaftskapitän",
                          "</s>"};
  const Strings target = {"<s>", "القطة", "日本語", "👩‍👩‍👧", "Ende"};
  AttentionReport report;
  report.model = "models/<en> & \"de\"";
  report.source = "The dog barks at </script><b> Donaudampfschifffahrtsgesellschaftskapitän";
  report.target = "القطة 日本語 👩‍👩‍👧 Ende";
  report.words = true;
  report.views = {view_of(AttentionView::Kind::encoder, source, source, {1, 2, 3, 4, 5, 6}, {1, 2, 3, 9}),
                  view_of(AttentionView::Kind::decoder, target, target, {5}, {1, 2}),
                  view_of(AttentionView::Kind::cross, target, source, {1, 2, 3, 4, 5, 6}, {4})};
  // (S (NP The dog) (VP barks (PP at x y)))
  report.tree = Tree{"TOP",
                     "",
                     {{"S",
                       "",
                       {{"NP", "", {{"XX", "The"}, {"XX", "dog"}}},
                        {"VP", "", {{"XX", "barks"}, {"<PP>", "", {{"XX", "at"}, {"XX", "x"}, {"XX", "y"}}}}}}}}};
  report.tree_word = {0, 1, 2, 3, 4, 5, -1};
  return report;
}

SweepRun finished(uint64_t seed, double perplexity, double bleu, double seconds) {
  SweepRun run;
  run.seed = seed;
  run.state = SweepRun::State::finished;
  run.perplexity = perplexity;
  run.bleu = bleu;
  run.bleu_signature = "signature";
  run.parameters = 65'000'000;
  run.seconds = seconds;
  run.flops = 3.3e18;
  run.curve = {{100, 0, 2 * perplexity, bleu / 2}, {200, 0, perplexity, bleu}};
  return run;
}

SweepReport sweep() {
  SweepReport report;
  report.title = "A <sweep> & its rows";
  report.description = "What it is about.";
  report.base_row = "base";
  report.base_config = "model:\n  heads: 8\n";
  report.rows = {{"base", "", "", PublishedFigures{4.92, 25.8, 65}, {finished(1, 5, 25, 90), finished(2, 5.2, 26, 95)}},
                 {"A-h10", "A", "heads 10", PublishedFigures{5.3, 24.9, 65}, {finished(1, 110, 9.5, 7000)}},
                 {"A-h9", "A", "heads 9", {}, {finished(1, 20.5, 100, 60)}},
                 {"B-waits", "B", "d_k 16", PublishedFigures{5.1, 25, 58}, {}}};
  return report;
}

RunReport runs(double reload_seconds) {
  RunReport report;
  report.reload_seconds = reload_seconds;
  for (const char* name : {"first <run>", "second"}) {
    RunLog run;
    run.name = name;
    run.finished = report.runs.empty();
    for (int64_t step = 10; step <= 1000; step += 10) {
      const double far = static_cast<double>(step) * (run.finished ? 1 : 2);
      RunPoint point;
      point.step = step;
      point.seconds = 3 * far;
      point.loss = 5 - far / 1000;
      point.perplexity = 100 - far / 50;
      point.rate = 1e-3;
      point.target_tokens = 1000 * far;
      point.speed = 500;
      run.training.push_back(point);
      point.bleu = far / 100;
      if (step % 100 == 0) run.validation.push_back(point);
    }
    report.runs.push_back(run);
  }
  std::vector<ComparedSentence> sentences;
  for (int64_t line = 1; line <= 9; ++line) {
    const auto score = static_cast<double>(10 * line);
    sentences.push_back({.line = line,
                         .source = "The <dog> barks",
                         .reference = "Der Hund </script> bellt",
                         .outputs = {{{"Die Katze </script> bellt", score}}, {{"القطة", score}}}});
  }
  choose_sentences(report, sentences, 4);
  return report;
}

void write(const std::filesystem::path& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text;
  if (!out.flush()) throw std::runtime_error("cannot write " + file.string());
}

}  // namespace

int main(int, char** arguments) {
  const std::filesystem::path folder = arguments[1];
  const AttentionReport report = attention();
  write(folder / "attention.html", attention_html(report));
  write(folder / "attention.json", attention_json(report));
  write(folder / "picked.html", attention_html(report, {.picked = 2}));
  AttentionReport small;
  small.views = {view_of(AttentionView::Kind::decoder, {"a", "b"}, {"a", "b"}, {3}, {7})};
  write(folder / "small.html", attention_html(small));
  AttentionReport sentence;
  Strings words;
  for (int word = 0; word < 50; ++word) words.push_back("word-" + std::to_string(word));
  sentence.views = {view_of(AttentionView::Kind::encoder, words, words, {1}, {1, 2})};
  write(folder / "long.html", attention_html(sentence));
  write(folder / "sweep.html", sweep_html(sweep()));
  write(folder / "runs.html", run_html(runs(0)));
  write(folder / "followed.html", run_html(runs(0.2)));
}
