#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "transformer/base/settings.h"
#include "transformer/report/sweep_report.h"

namespace transformer {

// What a sweep keeps in its folder besides its rows'.

/// Which files there are its own.
inline constexpr const char* sweep_record_name = "sweep.json";
inline constexpr std::array sweep_report_names = {"results.json", "report.md", "report.html"};  ///< what is reported
/// The script of a job array, and what Slurm answered to it.
inline constexpr std::array job_array_names = {"sweep.sbatch", "sweep.sbatch.answer"};
/// The folder of tokenised text.
inline constexpr const char* sweep_corpus_name = "corpus";

/// A variation of a grid's base: what differs from it, trained once for each seed.
struct GridRow {
  std::string name;                        // a folder's name, too
  std::string group;                       // Table 3's letter; may be empty
  std::vector<SettingOverride> overrides;  // in the file's order
  std::string changes;                     // the same for people: "heads 1, d_k 512"
  std::vector<uint64_t> seeds;             // at least one
  std::optional<PublishedFigures> paper;   // absent: the paper has no such row
  std::string where;                       // "grid.yaml:7"
};

/// An ablation study: a base configuration and rows that are deltas of it (Table 3). As a file:
///
///     title: ..            what the report is called; otherwise the file's name
///     description: ..
///     base: ../base.yaml   the configuration that rows differ from; relative to this file
///     output: runs/table3  the sweep's folder; otherwise runs/ and the file's name
///     seeds: [1, 2, 3]     of every row; otherwise [1]
///     base_row: base       the row that others are compared with; otherwise the first that changes nothing
///     set: {training: {steps: 1000}}  differs from `base` in every row
///     rows:
///       - name: A-h1
///         group: A
///         model: {heads: 1, d_k: 512, d_v: 512}  likewise every other section of settings
///         seeds: [1]
///         paper: {perplexity: 5.29, bleu: 24.9, parameters: 65}  as published, parameters in millions
///     products:            every combination of the values in lists, the first list's changing slowest
///       - name: h{model.heads}-d{model.d_model}
///         model: {heads: [1, 2], d_model: [64, 128]}
struct Grid {
  std::filesystem::path file, base, output;  // the grid itself; a settings file; a folder
  std::string title, description, base_row;  // as above; the description may be empty
  std::vector<SettingOverride> overrides;    // `set`
  std::vector<GridRow> rows;                 // products multiplied out
};

/// Reads a grid. `sections` are the names of the sections that settings may stand in; settings themselves are not
/// looked at. Throws Error naming file, line and key for whatever is not as above, for names that two rows share or
/// that cannot be a folder's, and for settings that belong to the sweep: training.seed and training.output.
Grid read_grid(const std::filesystem::path& file, const std::vector<std::string>& sections);

/// A row's settings for people: "heads 1, d_k 512".
std::string changes_of(const std::vector<SettingOverride>& overrides);

}  // namespace transformer
