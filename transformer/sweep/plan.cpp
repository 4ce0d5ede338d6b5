#include "transformer/sweep/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "transformer/base/described.h"
#include "transformer/base/error.h"
#include "transformer/base/number.h"
#include "transformer/base/spelling.h"

namespace transformer {

namespace {

// As with rows: more than anybody trains.
constexpr size_t most_runs = 10000;

std::string remedy(const std::string& name, const std::vector<std::string>& known) {
  return did_you_mean(nearest_word(name, known), fmt::format("there are: {}", fmt::join(known, ", ")));
}

// `read`, with the row named in what goes wrong.
RunConfiguration settle(const Grid& grid, const GridRow& row, const std::vector<std::vector<SettingOverride>>& layers,
                        const ReadConfiguration& read) {
  try {
    return read.checked(grid.base, layers);
  } catch (const Error& error) {
    if (!described_exception().mistake) throw;
    const std::string text = error.what();
    // Mistakes in a value come with its own line; contradictions between settings do not.
    if (text.starts_with(grid.file.string()) || text.starts_with("--")) throw;
    throw Error(row.where, fmt::format("the row '{}': {}", row.name, text));
  }
}

// Whether both set the same of the settings `values`, by its name or by one for several, which is no setting's:
// model.layers for model.encoder_layers.
bool names_the_same(const std::string& one, const std::string& other,
                    const std::map<std::string, std::string>& values) {
  const auto within = [&](const std::string& several, const std::string& single) {
    const size_t dot = several.find('.');
    return !values.contains(several) && single.starts_with(several.substr(0, dot + 1)) &&
           single.ends_with(fmt::format("_{}", several.substr(dot + 1)));
  };
  return one == other || within(one, other) || within(other, one);
}

// A row's settings, with what they came to, `values`, where `stronger` ones took the place of theirs.
std::vector<SettingOverride> in_force(const std::vector<SettingOverride>& own,
                                      const std::vector<SettingOverride>& stronger,
                                      const std::map<std::string, std::string>& values) {
  std::vector<SettingOverride> settings;
  std::set<std::string> known;
  const auto add = [&](const SettingOverride& setting) {
    if (known.insert(setting.name).second) settings.push_back(setting);
  };
  for (const auto& setting : own) {
    const bool replaced = std::any_of(stronger.begin(), stronger.end(), [&](const auto& other) {
      return names_the_same(setting.name, other.name, values);
    });
    if (!replaced) add(setting);
    for (const auto& [name, value] : values) {
      if (replaced && names_the_same(setting.name, name, values)) add({name, value, setting.where});
    }
  }
  return settings;
}

}  // namespace

int64_t PlannedRun::steps() const {
  const auto found = configuration.values.find("training.steps");
  return found == configuration.values.end() ? 0 : number_in<int64_t>(found->second).value_or(0);
}

bool PlannedRun::uses_gpu() const {
  const auto found = configuration.values.find("training.device");
  return found != configuration.values.end() && found->second.starts_with("cuda");
}

size_t Plan::find(const std::string& name) const {
  std::vector<std::string> known;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].name == name) return i;
    known.push_back(runs[i].name);
  }
  throw Error(grid.file.string(), fmt::format("there is no run '{}'", name), remedy(name, known));
}

std::vector<size_t> Plan::runs_of(const std::vector<std::string>& rows) const {
  std::set<std::string> chosen;
  std::vector<std::string> known;
  for (const auto& row : grid.rows) known.push_back(row.name);
  for (const auto& name : rows) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw Error(grid.file.string(), fmt::format("there is no row '{}'", name), remedy(name, known));
    }
    chosen.insert(name);
  }
  std::vector<size_t> indices;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (chosen.empty() || chosen.contains(grid.rows[runs[i].row].name)) indices.push_back(i);
  }
  return indices;
}

Plan make_plan(Grid grid, const PlanOptions& options, const ReadConfiguration& read) {
  Plan plan{std::move(grid), {}};
  auto& rows = plan.grid.rows;
  if (!options.output.empty()) plan.grid.output = options.output;
  for (const auto& setting : options.overrides) {
    if (setting.name == "training.seed") throw Error(setting.where, "give seeds with --seeds");
    if (setting.name == "training.output") throw Error(setting.where, "give the sweep's folder with --output");
  }
  if (!options.seeds.empty()) {
    auto seeds = options.seeds;
    std::sort(seeds.begin(), seeds.end());
    if (const auto twice = std::adjacent_find(seeds.begin(), seeds.end()); twice != seeds.end()) {
      throw Error("--seeds", fmt::format("the seed {} is given twice", *twice), "remove one of them");
    }
    for (auto& row : rows) row.seeds = options.seeds;
  }
  const auto base = read.plain(plan.grid.base);
  size_t most_seeds = 0, all = 0;
  for (const auto& row : rows) {
    most_seeds = std::max(most_seeds, row.seeds.size());
    all += row.seeds.size();
  }
  if (all > most_runs) {
    throw Error(plan.grid.file.string(), fmt::format("has {} runs, and a sweep has {} at most", all, most_runs),
                "leave rows or seeds out");
  }
  for (size_t k = 0; k < most_seeds; ++k) {
    for (size_t i = 0; i < rows.size(); ++i) {
      auto& row = rows[i];
      if (k >= row.seeds.size()) continue;
      PlannedRun run;
      run.row = i;
      run.seed = row.seeds[k];
      const auto seed_name = fmt::format("seed-{}", run.seed);
      run.name = fmt::format("{}/{}", row.name, seed_name);
      run.folder = plan.grid.output / row.name / seed_name;
      run.log = plan.grid.output / row.name / fmt::format("{}.log", seed_name);
      std::vector<std::vector<SettingOverride>> layers = {plan.grid.overrides, row.overrides, options.overrides};
      std::vector<SettingOverride> own = {{"training.seed", std::to_string(run.seed), row.where},
                                          {"training.output", run.folder.string(), "the run's folder"}};
      if (!options.device.empty()) own.push_back({"training.device", options.device, "--devices"});
      layers.push_back(own);
      run.configuration = settle(plan.grid, row, layers, read);
      if (run.configuration.values["data.cache"].empty()) {
        layers.push_back({{"data.cache", (plan.grid.output / sweep_corpus_name).string(), row.where}});
        run.configuration = settle(plan.grid, row, layers, read);
      }
      for (const auto& [name, value] : run.configuration.values) {
        const auto found = base.find(name);
        if (found == base.end() || found->second != value) {
          run.overrides.push_back(fmt::format("{}={}", name, value));
        }
      }
      if (k == 0 && !options.overrides.empty()) {
        row.changes = changes_of(in_force(row.overrides, options.overrides, run.configuration.values));
      }
      plan.runs.push_back(std::move(run));
    }
  }
  return plan;
}

}  // namespace transformer
