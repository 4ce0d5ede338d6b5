// What a run leaves that the sweep reads: metrics.jsonl, summary.json and its log.

#include "transformer/sweep/results.h"

#include <nlohmann/json.hpp>

#include "fuzz/fuzz.h"
#include "transformer/report/sweep_report.h"

using namespace transformer;

namespace {

const fuzz::Target target("results", [](std::string_view input) {
  auto files = fuzz::files_of(input);
  files["config.yaml"] = "";
  const auto folder = fuzz::write_folder("run", files);

  Plan plan;
  plan.grid.title = "Title";
  plan.grid.base_row = "base";
  plan.grid.rows.resize(1);
  plan.grid.rows[0].name = "base";
  plan.grid.rows[0].seeds = {1};
  PlannedRun run;
  run.seed = 1;
  run.name = "base/seed-1";
  run.folder = folder;
  run.log = folder / "log";
  plan.runs = {run};
  const ReadConfiguration read{.plain = [](const std::filesystem::path&) { return RunConfiguration().values; },
                               .checked = [](const std::filesystem::path&, const auto&) { return RunConfiguration(); }};
  const std::vector<SweepRun> results{read_result(run, read)};
  read_progress(folder);
  const auto json = nlohmann::json::parse(results_json(plan, results));
  fuzz::require(json.at("rows").size() == 1, "results.json has the row");
  const auto report = make_report(plan, results);
  sweep_markdown(report);
  sweep_html(report);
});

}  // namespace
