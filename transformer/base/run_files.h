#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "transformer/base/checksum.h"
#include "transformer/base/model_files.h"
#include "transformer/base/number.h"

namespace transformer {

// What a run calls the files that it leaves in its folder, beside the model that it ends with (model_files.h).

/// Its figures, a line of JSON each report.
inline constexpr const char* metrics_name = "metrics.jsonl";
/// The version of their format, which their first line says.
inline constexpr int metrics_format = 1;
/// The same for TensorBoard, which reads every file of a folder whose name contains "tfevents".
inline constexpr const char* events_name = "events.out.tfevents.0.transformer";
/// What a profiled run leaves: a Chrome trace.
inline constexpr const char* trace_name = "trace.json";
/// What a finished run leaves: times, counts, the final model's scores.
inline constexpr const char* summary_name = "summary.json";

/// The folder of its checkpoints.
inline constexpr const char* checkpoints_name = "checkpoints";
/// The folder of what its validations were translated to.
inline constexpr const char* validations_name = "validation";
/// The folder of its tokenised text.
inline constexpr const char* corpus_name = "corpus";
/// What names of a step begin with: "step-00000100".
inline constexpr const char* step_prefix = "step-";
/// What stands before it where a checkpoint was written for an interruption.
inline constexpr const char* interruption_prefix = "interrupted-";
/// The step that such a name is of, nothing following its digits; none where it is no such name.
inline std::optional<int64_t> step_of(std::string_view name) {
  const std::string_view prefix = step_prefix;
  const bool begins = name.starts_with(prefix) && name.size() > prefix.size() && name[prefix.size()] != '-';
  return begins ? number_in<int64_t>(name.substr(prefix.size())) : std::nullopt;
}

/// Every file of a run's but vocabularies, which are its own, or the user's for it.
inline constexpr std::array run_file_names = {config_name, weights_name, checksums_name, metrics_name,
                                              events_name, trace_name,   summary_name};

}  // namespace transformer
