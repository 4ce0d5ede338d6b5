#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "transformer/sweep/grid.h"

namespace transformer {

/// The settings of a run, complete and free of contradictions.
struct RunConfiguration {
  std::map<std::string, std::string> values;  // Settings::values()
  double work = 0;                            // floating-point operations of the whole run, roughly
  std::vector<std::string> inputs = {};       // the files it reads: texts, vocabularies, weights to begin with
};

/// What the sweep knows of training. Both throw Error.
struct ReadConfiguration {
  /// The settings of a file as they stand there, with defaults for the rest.
  std::function<std::map<std::string, std::string>(const std::filesystem::path& file)> plain;
  /// Those, overridden with each of `layers` in turn, settled and checked.
  std::function<RunConfiguration(const std::filesystem::path& file,
                                 const std::vector<std::vector<SettingOverride>>& layers)>
      checked;
};

/// One training: a row with a seed.
struct PlannedRun {
  size_t row = 0;                      // index into the grid's
  uint64_t seed = 0;                   // training.seed
  std::string name;                    // "A-h1/seed-2"
  std::filesystem::path folder, log;   // output/A-h1/seed-2, output/A-h1/seed-2.log
  std::vector<std::string> overrides;  // what train is given as --set, besides the base configuration
  RunConfiguration configuration;      // the base with the overrides

  /// training.steps of the configuration.
  int64_t steps() const;
  /// Whether training.device of the configuration is a GPU.
  bool uses_gpu() const;
};

/// A grid whose runs are settled.
struct Plan {
  Grid grid;                     // as it was read, with the options' output, and `changes` as --set leaves them
  std::vector<PlannedRun> runs;  // every row's first seed first, then the second ones

  /// Index of the run with this name. Throws Error (naming the nearest) where there is none.
  size_t find(const std::string& name) const;
  /// Indices of the runs of these rows; of all where no name is given. Throws Error as find.
  std::vector<size_t> runs_of(const std::vector<std::string>& rows) const;
};

/// What a command line changes of a grid.
struct PlanOptions {
  std::filesystem::path output;            // empty: the grid's
  std::vector<uint64_t> seeds;             // empty: the rows'
  std::vector<SettingOverride> overrides;  // for all rows, stronger than theirs
  std::string device;                      // training.device of all runs; empty: as configured
};

/// Settles every run of a grid, so that all mistakes in its rows are found before anything runs. Tokenised text is kept
/// once for all in output/corpus, unless data.cache says where. Throws Error, naming file, line and row, and for more
/// runs than 10,000.
Plan make_plan(Grid grid, const PlanOptions& options, const ReadConfiguration& read);

}  // namespace transformer
