// What a run leaves that its page is made of: metrics.jsonl, summary.json, config.yaml and translations.

#include "fuzz/fuzz.h"
#include "transformer/report/run_page.h"

using namespace transformer;

namespace {

const fuzz::Target target("run_log", [](std::string_view input) {
  const auto files = fuzz::files_of(input);
  const auto folder = fuzz::write_folder("run", files);
  RunReport report;
  report.runs.push_back(read_run_log(folder, "run"));
  validation_text(folder);
  const auto found = files.find("output");
  const std::string output(found == files.end() ? "" : found->second);
  choose_sentences(report, {{.line = 1, .source = output, .reference = "a b c", .outputs = {{{output, 1}}}}}, 1);
  fuzz::require(!run_html(report).empty(), "there is a page");
});

}  // namespace
