#include "transformer/report/run_page.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <set>

#include "report_support.h"
#include "transformer/base/error.h"

using namespace transformer;
using test::parsed;

namespace {

/// A folder that says it is a run's, with these lines of metrics.
struct Run {
  test::TemporaryDirectory folder;
  explicit Run(const std::string& metrics) { test::write_file(folder / "metrics.jsonl", metrics); }
  RunLog read() const { return read_run_log(folder.path(), "run"); }
};

RunReport report_of(std::vector<RunLog> runs) {
  RunReport report;
  report.runs = std::move(runs);
  return report;
}

RunLog named(const std::string& name) {
  RunLog run;
  run.name = name;
  return run;
}

const std::string header = "{\"kind\":\"header\",\"format\":1}\n";

}  // namespace

TEST_CASE("a run's figures are what its metrics say") {
  const Run run(header +
                R"({"kind":"train","step":10,"epoch":0,"loss":5.5,"perplexity":200.0,"gradient_norm":1.5,)"
                R"("largest_gradient_norm":3.0,"rate":1e-3,"source_tokens":1,"target_tokens":1000,)"
                R"("tokens_per_second":500.0,"memory":2000000000,"seconds":3600.0})"
                "\n"
                R"({"kind":"validation","step":10,"loss":5.0,"perplexity":150.0,"bleu":1.5,"bleu_signature":"BLEU|x"})"
                "\n"
                R"({"kind":"final","step":12,"loss":4.0,"perplexity":50.0,"bleu":2.5})"
                "\n");
  const auto log = run.read();
  REQUIRE(log.training.size() == 1);
  const auto& point = log.training[0];
  CHECK(point.step == 10);
  CHECK(point.loss == 5.5);
  CHECK(point.gradient_norm == 1.5);
  CHECK(point.largest_norm == 3);
  CHECK(point.memory == 2e9);
  CHECK(log.validation.at(0).bleu == 1.5);
  CHECK(log.final_model->perplexity == 50);
  CHECK(log.bleu_signatures == std::vector<std::string>{"BLEU|x"});
  CHECK_FALSE(log.finished);

  const auto page = parsed("html", run_html(report_of({log})));
  const auto& table = page["tables"][0];
  CHECK(table[0] == std::vector<std::string>{"run", "state", "step", "target tokens", "time", "loss", "PPL", "best PPL",
                                             "BLEU", "best BLEU", "tokens/s", "memory"});
  CHECK(table[1] == std::vector<std::string>{"run", "not finished", "12", "1,000", "60 min", "5.50", "50.00", "50.00",
                                             "2.50", "2.50", "500", "2.0 GB"});

  // What a column has no value of in any run is left out; what one run has stays for all.
  auto other = log;
  other.name = "other";
  other.parameters = 1234;
  other.final_model->bleu.reset();
  for (auto& validated : other.validation) validated.bleu.reset();
  const auto heads = [](const std::vector<RunLog>& logs) {
    return parsed("html", run_html(report_of(logs)))["tables"][0][0].get<std::vector<std::string>>();
  };
  const auto alone = heads({other}), both = heads({log, other});
  const auto has = [](const auto& all, const char* head) {
    return std::find(all.begin(), all.end(), head) != all.end();
  };
  CHECK((has(alone, "parameters") && !has(alone, "BLEU") && !has(alone, "best BLEU") && has(alone, "PPL")));
  CHECK((has(both, "parameters") && has(both, "BLEU") && has(both, "best BLEU")));
}

TEST_CASE("a run is finished by its summary, and its steps are its configuration's") {
  const Run run(header);
  CHECK(parsed("html", run_html(report_of({run.read()})))["tables"][0][1][1] == "not finished");
  test::write_file(run.folder / "config.yaml", "training: {steps: 5000}\nmodel: {d_model: 4}\n");
  CHECK(parsed("html", run_html(report_of({run.read()})))["tables"][0][1][1] == "not finished, of 5,000 steps");
  test::write_file(run.folder / "summary.json", "{\"parameters\": 12");  // is still being written
  CHECK_FALSE(run.read().finished);
  test::write_file(run.folder / "summary.json", "{\"parameters\": 1234}");
  CHECK(run.read().finished);
  CHECK(run.read().parameters == 1234);
}

TEST_CASE("the last line of a run that goes on may be there by half") {
  const std::string line = R"({"kind":"train","step":10,"loss":5.5})"
                           "\n";
  for (size_t cut = 0; cut < line.size(); ++cut) {
    CHECK(Run(header + line + line.substr(0, cut)).read().training.size() == 1);
  }
  CHECK(Run(header + line + line).read().training.size() == 2);
}

TEST_CASE("metrics that are none harm nobody") {
  const std::string good = R"({"kind":"train","step":10,"loss":5.5})"
                           "\n";
  std::string all = header;
  for (const std::string bad :
       {"", "null", "[]", "{", "\"", "{\"kind\":7}", "{\"kind\":\"train\",\"step\":-1}",
        "{\"kind\":\"train\",\"step\":1e300,\"loss\":1e400}", "{\"kind\":\"train\",\"step\":1e300,\"loss\":-1e300}",
        "{\"kind\":\"train\",\"loss\":NaN}", "{\"kind\":\"train\",\"loss\":null,\"perplexity\":\"</script>\"}",
        "\xff\xfe", "{\"kind\":\"validation\",\"bleu\":\"x\",\"bleu_signature\":\"</title><script>alert(1)</script>\"}",
        "{\"kind\":\"final\",\"bleu\":1e308,\"perplexity\":0,\"seconds\":-5}"}) {
    INFO(bad);
    const Run run(header + good + bad + "\n" + good);
    const auto log = run.read();
    CHECK(log.training.size() >= 2);
    for (const auto& point : log.training) CHECK((!point.loss || !std::isinf(*point.loss)));
    all += bad + "\n";
  }
  parsed("html", run_html(report_of({Run(all).read()})));
  const Run deep(header + std::string(1 << 19, '[') + "\n" + std::string(3 << 20, 'x') + "\n" + good);
  CHECK(deep.read().training.size() == 1);
}

TEST_CASE("damaged lines are counted, and a file of nothing else is refused") {
  const std::string good = R"({"kind":"train","step":10,"loss":5.5})"
                           "\n";
  const Run run(header + good + "\n" + good.substr(0, 20) + "\n" + good + std::string(8, '\0') + "\n" +
                std::string(3 << 20, 'x') + "\nnull\n" + good.substr(0, 20));
  const auto log = run.read();
  CHECK(log.training.size() == 2);
  CHECK(log.damaged_lines == 4);
  CHECK(log.first_damaged == 4);
  const auto remark =
      (run.folder / "metrics.jsonl").string() + ": 4 lines are damaged and left out; the first is line 4";
  CHECK(remarks_on({log}) == std::vector<std::string>{remark});
  CHECK(remarks_on({Run(header + good + good.substr(0, 20)).read()}).empty());

  CHECK_THROWS_WITH(Run("\nstep 10, loss 5\nx\n").read(), Contains("metrics.jsonl:2: is no record of a run"));
  for (const std::string begun : {"", "\n", "{\"kind\":\"hea"}) CHECK(Run(begun).read().damaged_lines == 0);
}

TEST_CASE("perplexities per piece of different vocabularies are remarked on") {
  const auto with = [](const std::string& name, const char* file, const std::string& vocabulary) {
    const Run run(header);
    if (*file) test::write_file(run.folder / file, vocabulary);
    return read_run_log(run.folder.path(), name);
  };
  const auto a = with("a", "vocabulary.model", "x"), b = with("b", "target.model", "x");
  const auto c = with("c", "vocabulary.model", "y"), d = with("d", "", "");
  CHECK(remarks_on({a, b, d}).empty());
  CHECK(remarks_on({a, c, b, d}) ==
        std::vector<std::string>{
            "Perplexities and losses are per word piece, of different vocabularies, and do not compare: a, b; c"});
}

TEST_CASE("validations of different texts are remarked on, whatever their files are called") {
  const test::TemporaryDirectory texts;
  const auto text = [&](const std::string& name, const std::string& lines) {
    test::write_file(texts / name, lines);
    return (texts / name).string();
  };
  const auto with = [&](const std::string& name, const std::string& source, const std::string& target) {
    const Run run(header);
    test::write_file(run.folder / "config.yaml",
                     fmt::format("data: {{validation_source: [{}], validation_target: [{}]}}\n", source, target));
    return read_run_log(run.folder.path(), name);
  };
  const auto english = text("en", "a\nb\n"), german = text("de", "c\nd\n");
  std::filesystem::create_symlink("en", texts / "link");
  const auto a = with("a", english, german), b = with("b", (texts / "." / "link").string(), german),
             c = with("c", english, text("other", "c\ne\n")), d = with("d", english, (texts / "nowhere").string()),
             e = with("e", text("dos", "a\r\nb\r\n"), german);
  CHECK(remarks_on({a, b, d, e}).empty());
  CHECK(remarks_on({a, c, b, d}) ==
        std::vector<std::string>{"Validations are of different texts, and do not compare: a, b; c"});
}

TEST_CASE("several kinds of BLEU are told apart, and the best is of the last one's kind") {
  const auto validation = [](int64_t step, double bleu, const std::string& signature) {
    return fmt::format(R"({{"kind":"validation","step":{},"bleu":{},"bleu_signature":"{}"}})", step, bleu, signature) +
           "\n";
  };
  auto changed = Run(header + validation(1, 2, "new") + validation(2, 30, "old") + validation(3, 4, "new") +
                     validation(4, 3, "new"))
                     .read();
  changed.name = "changed";
  CHECK(changed.bleu_signatures == std::vector<std::string>{"new", "old"});
  auto other = Run(header + validation(1, 9, "new")).read();
  other.name = "other";
  CHECK(remarks_on({other}).empty());
  CHECK(remarks_on({changed, other}) ==
        std::vector<std::string>{
            "BLEU is of several kinds, which do not compare with each other: new: changed, other; old: changed"});
  const auto html = run_html(report_of({changed, other}));
  CHECK_THAT(html, Contains("new; old</p>"));
  const auto table = parsed("html", html)["tables"][0];
  CHECK(table[0].dump() == R"(["run","state","step","BLEU","best BLEU"])");
  CHECK(table[1].dump() == R"(["changed","not finished","4","3.00","4.00"])");
}

TEST_CASE("the median of an even number of speeds is the mean of the middle two") {
  const auto speed = [](const std::vector<double>& values) {
    RunLog log = named("run");
    for (const double value : values) {
      log.training.emplace_back().step = 1;
      log.training.back().speed = value;
    }
    return parsed("html", run_html(report_of({log})))["tables"][0][1].back().get<std::string>();
  };
  CHECK(speed({100, 40, 10, 20}) == "30");
  CHECK(speed({40, 100, 10}) == "40");
  CHECK(speed({7}) == "7");
}

TEST_CASE("what is not finite is said in the table, and a gap in the curves") {
  const auto train = [](int64_t step, const std::string& loss) {
    return fmt::format(R"({{"kind":"train","step":{0},"loss":{1},"gradient_norm":{1},"tokens_per_second":{1},)"
                       R"("seconds":null,"target_tokens":null,"memory":1e9}})"
                       "\n",
                       step, loss);
  };
  const auto validation = [](int64_t step, const std::string& value) {
    return fmt::format("{{\"kind\":\"validation\",\"step\":{0},\"perplexity\":{1},\"bleu\":{1}}}\n", step, value);
  };
  std::string metrics = header;
  for (const int64_t step : {1, 2, 3}) metrics += train(step, std::to_string(step)) + validation(step, "7");
  auto log = Run(metrics + train(4, "null") + validation(4, "null")).read();
  REQUIRE(log.training.size() == 4);
  CHECK(std::isnan(log.training[3].loss.value()));
  CHECK_FALSE(log.training[3].perplexity);
  CHECK((!log.training[3].seconds && !log.training[3].target_tokens));
  const auto html = run_html(report_of({log}));
  const auto table = parsed("html", html)["tables"][0];
  CHECK(table[0] == std::vector<std::string>{"run", "state", "step", "loss", "PPL", "best PPL", "BLEU", "best BLEU",
                                             "tokens/s", "memory"});
  CHECK(table[1] == std::vector<std::string>{"run", "not finished", "4", "not finite", "not finite", "7.00",
                                             "not finite", "7.00", "2", "1.0 GB"});
  CHECK_THAT(html, Contains("<td class=\"number failed\">not finite</td>"));

  // Loss, norm and speed: a line that ends, or two of them; memory's and those of validations are whole.
  const auto lines = [](const RunLog& run) {
    int64_t count = 0;
    const auto page = parsed("html", run_html(report_of({run})));
    for (const auto& picture : page["pictures"]) count += picture["names"].value("polyline", 0);
    return count;
  };
  CHECK(lines(log) == 6);
  CHECK(lines(Run(metrics + train(4, "null") + train(5, "5") + train(6, "6")).read()) == 9);
  // Of what never was finite there is no picture.
  CHECK(parsed("html", run_html(report_of({Run(header + train(1, "null")).read()})))["pictures"].size() == 1);
}

TEST_CASE("gaps of a curve stay where it is thinned") {
  RunLog log = named("long");
  const auto is_gap = [](int64_t step) { return step == 3337 || step % 2500 < 10 || (step > 7000 && step < 8000); };
  for (int64_t step = 1; step <= 10000; ++step) {
    RunPoint point;
    point.step = step;
    point.loss = is_gap(step) ? std::nan("") : step % 7 == 0 ? 2.0 : 1.0;
    log.training.push_back(point);
  }
  const auto picture = parsed("html", run_html(report_of({log})))["pictures"][0];
  CHECK(picture["names"]["polyline"] == 5);  // parted at 2500, 3337, 5000 and 7001 to 7999
  CHECK(picture["names"].count("circle") == 0);
}

TEST_CASE("a run with one report is seen") {
  const Run run(header + R"({"kind":"train","step":100,"loss":5.5,"rate":1e-3,"seconds":3})" + "\n");
  const auto page = parsed("html", run_html(report_of({run.read()})));
  CHECK(page["pictures"].size() == 4);
  for (const auto& picture : page["pictures"]) CHECK(picture["names"].value("circle", 0) == 1);
}

TEST_CASE("the curves of many runs differ, and the legend has their looks") {
  std::vector<RunLog> logs;
  for (int64_t i = 0; i < 20; ++i) {
    auto log = named(fmt::format("run {}", i));
    for (const int64_t step : {1, 2}) {
      RunPoint point;
      point.step = step;
      point.loss = point.rate = 1;
      log.training.push_back(point);
    }
    logs.push_back(log);
  }
  // Of the loss, whose curves are dashed, and of the rate: curves in the runs' order, then the legend in the same.
  const auto html = run_html(report_of(logs));
  const std::regex curve("<(polyline|line)[^>]* class=\"curve (s\\d)\"( stroke-dasharray=\"[^\"]*\")?");
  for (size_t begin = html.find("<figure>"), end = 0; begin != std::string::npos; begin = html.find("<figure>", end)) {
    end = html.find("</figure>", begin);
    const std::string figure = html.substr(begin, end - begin);
    std::map<std::string, std::vector<std::string>> looks;
    for (std::sregex_iterator found(figure.begin(), figure.end(), curve), none; found != none; ++found) {
      looks[(*found)[1]].push_back((*found)[2].str() + (*found)[3].str());
    }
    CHECK(std::set(looks["polyline"].begin(), looks["polyline"].end()).size() == 20);
    CHECK(looks["line"] == looks["polyline"]);
  }
}

TEST_CASE("a step is told whole where the mouse is over it") {
  RunLog log = named("run");
  for (const int64_t step : {100'249, 100'250}) {
    RunPoint point;
    point.step = step;
    point.seconds = 7200;
    point.perplexity = 5;
    log.validation.push_back(point);
  }
  const auto page = parsed("html", run_html(report_of({log})));
  CHECK(page["pictures"][0]["titles"].dump().find("run\\nstep 100,250\\nPerplexity 5") != std::string::npos);
  CHECK(page["pictures"][1]["titles"].dump().find("run\\nhours of training 2\\nPerplexity 5") != std::string::npos);
}

TEST_CASE("what is no run's folder is refused, and a later version's") {
  const test::TemporaryDirectory folder;
  CHECK_THROWS_WITH(read_run_log(folder.path(), "run"), Contains("metrics.jsonl is missing"));
  CHECK_THROWS_WITH(Run("{\"kind\":\"header\",\"format\":2}\n").read(), Contains("later version"));
}

TEST_CASE("what is no file among a run's is not waited for") {
  const auto make_pipe = [](const std::filesystem::path& file) {
    std::filesystem::remove(file);
    REQUIRE(mkfifo(file.c_str(), 0600) == 0);
  };
  const Run run(header);
  for (const char* name : {"summary.json", "config.yaml", "vocabulary.model"}) make_pipe(run.folder / name);
  std::filesystem::create_directory(run.folder / "validation");
  make_pipe(run.folder / "validation" / "step-00000001.txt");
  CHECK_FALSE(run.read().finished);
  CHECK(newest_validation(run.folder.path()).empty());
  std::filesystem::remove(run.folder / "config.yaml");
  make_pipe(run.folder / "text");
  test::write_file(run.folder / "config.yaml",
                   fmt::format("data: {{validation_target: [{}]}}\n", (run.folder / "text").string()));
  CHECK(run.read().validated_on.empty());
  std::filesystem::remove(run.folder / "summary.json");
  std::filesystem::create_directory(run.folder / "summary.json");
  CHECK_FALSE(run.read().finished);
  make_pipe(run.folder / "metrics.jsonl");
  CHECK_THROWS_WITH(run.read(), Contains("metrics.jsonl: is not a regular file"));
}

TEST_CASE("what cannot be read of a run is not what is missing") {
  const Run run(header);
  for (const char* name : {"summary.json", "config.yaml"}) {
    std::filesystem::create_symlink("/proc/self/mem", run.folder / name);  // opened, and not read
    CHECK_THROWS_AS(run.read(), Failure);
    CHECK_THROWS_WITH(run.read(), Contains(name) && Contains("cannot be read"));
    std::filesystem::remove(run.folder / name);
    std::filesystem::create_symlink(name, run.folder / name);
    CHECK_THROWS_WITH(run.read(), Contains(name) && Contains("cannot be looked at"));
    std::filesystem::remove(run.folder / name);
  }
  CHECK_FALSE(run.read().finished);
}

TEST_CASE("of a very long run the curves keep their peaks, and reading it keeps its end") {
  std::string text = header;
  const int64_t steps = 2 * static_cast<int64_t>(most_run_points) + 5;
  for (int64_t step = 1; step <= steps; ++step) {
    // Peaks of reports that are dropped: of one that was kept at first, and of one that never was.
    const char* largest = step == 8 ? "5000" : step % 4 == 0 ? "null" : "2";
    text += fmt::format(R"({{"kind":"train","step":{},"gradient_norm":{},"largest_gradient_norm":{},"memory":{}}})",
                        step, step == 5 ? 1000 : 1, largest, step == 66'000 ? 9e9 : 1e9);
    text += '\n';
  }
  const auto log = Run(text).read();
  CHECK(log.training.size() <= most_run_points);
  CHECK(log.training.front().step == 1);
  CHECK(log.training.back().step == steps);
  CHECK(std::is_sorted(log.training.begin(), log.training.end(),
                       [](const auto& a, const auto& b) { return a.step < b.step; }));
  CHECK(parsed("html", run_html(report_of({log})))["tables"][0][1].back() == "9.0 GB");
  const auto peak = std::find_if(log.training.begin(), log.training.end(),
                                 [](const auto& point) { return point.largest_norm == 5000; });
  REQUIRE(peak != log.training.end());
  CHECK(peak->step <= 8);
  CHECK(std::count_if(log.training.begin(), log.training.end(),
                      [](const auto& point) { return point.memory == 9e9; }) == 1);
  CHECK(run_html(report_of({log})).size() < 200'000);

  RunLog spiked;
  spiked.name = "spiked";
  for (int64_t step = 1; step <= 10000; ++step) {
    RunPoint point;
    point.step = step;
    point.gradient_norm = step == 7777 ? 3000.0 : 1.0;
    spiked.training.push_back(point);
  }
  // Its axis reaches the one peak.
  CHECK_THAT(run_html(report_of({spiked})), Contains(">2000<") || Contains(">1000<"));
}

TEST_CASE("however many reports and validations there are, the newest is kept, and the best") {
  const auto many = static_cast<int64_t>(most_run_points), last = 2 * many + 7;
  std::string all = header;
  for (int64_t step = 1; step <= last; ++step) {
    const int perplexity = step == many + 10 ? 2 : step == many + 11 ? 9 : 5;
    const int bleu = step == many - 2 ? 30 : step == many - 3 ? 1 : 20;
    all += fmt::format("{{\"kind\":\"train\",\"step\":{},\"memory\":{}}}\n", step, step);
    all +=
        fmt::format("{{\"kind\":\"validation\",\"step\":{},\"perplexity\":{},\"bleu\":{}}}\n", step, perplexity, bleu);
    if (step != many && step != many + 1 && step != 2 * many && step != last) continue;
    INFO(step);
    const auto log = Run(all).read();
    CHECK(log.training.size() <= most_run_points);
    CHECK(log.training.back().step == step);
    CHECK(log.training.back().memory == static_cast<double>(step));
    CHECK(log.validation.size() <= most_run_points);
    CHECK(log.validation.size() > most_run_points / 2);
    CHECK(log.validation.back().step == step);
    CHECK(std::is_sorted(log.validation.begin(), log.validation.end(),
                         [](const auto& one, const auto& other) { return one.step < other.step; }));
    std::set<double> perplexities, bleus;
    for (const auto& point : log.validation) {
      perplexities.insert(point.perplexity.value());
      bleus.insert(point.bleu.value());
    }
    CHECK(bleus == std::set<double>{1, 20, 30});
    CHECK(perplexities == (step > many + 11 ? std::set<double>{2, 5, 9} : std::set<double>{5}));
  }
}

TEST_CASE("several runs share pictures and a table, whatever they are called") {
  const Run one(header + R"({"kind":"train","step":10,"loss":5.5,"seconds":3})" + "\n");
  auto first = one.read(), second = one.read();
  first.name = "<b>&\"</b>";
  second.name = "other";
  const auto page = parsed("html", run_html(report_of({first, second})));
  CHECK(page["tables"][0][1][0] == "<b>&\"</b>");
  CHECK(page["tables"][0][2][0] == "other");
  CHECK(page["pictures"].size() == 2);  // the loss, over steps and over time
}

TEST_CASE("the best and the worst translations, with what differs from the reference") {
  RunReport report = report_of({named("a"), named("b")});
  std::vector<ComparedSentence> sentences;
  const double scores[][2] = {{50, 60}, {0, 10}, {100, 100}, {20, 20}};
  for (int64_t i = 0; i < 4; ++i) {
    sentences.push_back({.line = i + 1,
                         .source = "source",
                         .reference = "the <i> dog barks",
                         .outputs = {{{"the cat barks", scores[i][0]}}, {{"the <i> dog barks", scores[i][1]}}}});
  }
  sentences.push_back({.line = 5, .source = "", .reference = "", .outputs = {{}, {}}});
  choose_sentences(report, sentences, 2);
  const auto lines = [](const auto& chosen) {
    std::vector<int64_t> found;
    for (const auto& sentence : chosen) found.push_back(sentence.line);
    return found;
  };
  CHECK(lines(report.worst) == std::vector<int64_t>{2, 4});
  CHECK(lines(report.best) == std::vector<int64_t>{3, 1});
  const auto html = run_html(report);
  parsed("html", html);
  CHECK_THAT(html, Contains("<b>0.0</b>the <del>&lt;i&gt; dog</del> <ins>cat</ins> barks") &&
                       Contains("<b>10.0</b>the &lt;i&gt; dog barks"));
}

TEST_CASE("what is as its reference is no mistake, and a blank line no translation") {
  const auto sentence = [](int64_t line, const std::string& reference, const std::string& one, const std::string& other,
                           double score) {
    return ComparedSentence{
        .line = line, .source = "", .reference = reference, .outputs = {{{one, score}}, {{other, score}}}};
  };
  const auto lines = [](const auto& chosen) {
    std::vector<int64_t> found;
    for (const auto& one : chosen) found.push_back(one.line);
    return found;
  };
  auto report = report_of({named("a"), named("b")});
  choose_sentences(report,
                   {sentence(1, " ", "", "\t", 0), sentence(2, "a b", "a  b ", "a b", 100), sentence(3, "", "a", "", 0),
                    sentence(4, "a b", "a b", "a", 60)},
                   8);
  CHECK(lines(report.worst) == std::vector<int64_t>{3, 4});
  CHECK(lines(report.best) == std::vector<int64_t>{2, 4, 3});
  auto right = report_of({named("a"), named("b")});
  choose_sentences(right, {sentence(1, "", "", "", 0), sentence(2, "a b", "a b", "a b", 100)}, 8);
  CHECK(right.worst.empty());
  CHECK(lines(right.best) == std::vector<int64_t>{2});
  const auto html = run_html(right);
  parsed("html", html);
  CHECK_THAT(html, Contains("data-show=\"worst\">All translations are as their references.") &&
                       Contains("<ol class=\"sentences\" data-show=\"best\""));
}

TEST_CASE("a page follows a run that goes on, and lets a finished one be") {
  auto report = report_of({named("a")});
  CHECK_THAT(run_html(report), Contains("data-reload=\"0\""));
  report.reload_seconds = 5;
  CHECK_THAT(run_html(report), Contains("data-reload=\"5\""));
}

TEST_CASE("the newest validation is a finished run's final one, else that of the greatest step") {
  const Run run(header);
  CHECK(newest_validation(run.folder.path()).empty());
  std::filesystem::create_directory(run.folder / "validation");
  for (const char* name : {"step-00000100.txt", "step-00002000.txt", "notes.txt"}) {
    test::write_file(run.folder / "validation" / name, "x\n");
  }
  CHECK(newest_validation(run.folder.path()).filename() == "step-00002000.txt");
  test::write_file(run.folder / "validation" / "final.txt", "x\n");
  CHECK(newest_validation(run.folder.path()).filename() == "step-00002000.txt");  // it has gone on since
  for (const char* name : {"step-99999999.txt", "step-100000000.txt", "step-x.txt"}) {
    test::write_file(run.folder / "validation" / name, "x\n");
  }
  CHECK(newest_validation(run.folder.path()).filename() == "step-100000000.txt");
  test::write_file(run.folder / "summary.json", "{}");
  CHECK(newest_validation(run.folder.path()).filename() == "final.txt");
  test::write_file(run.folder / "config.yaml", "data: {validation_source: [a, b.gz], validation_target: []}\n");
  CHECK(validation_text(run.folder.path()).source == std::vector<std::string>{"a", "b.gz"});
  CHECK(validation_text(run.folder.path()).target.empty());
  test::write_file(run.folder / "config.yaml", "data: [}\n");
  CHECK(validation_text(run.folder.path()).source.empty());
}
