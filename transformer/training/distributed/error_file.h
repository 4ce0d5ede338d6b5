#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace transformer {

/// Runs `body`. What it throws is thrown on, and told to the agent that started this process: in the file that torchrun
/// names in TORCHELASTIC_ERROR_FILE, as JSON, from which it prints the earliest cause when a run ends. A failure that
/// is another rank's (OtherRankFailure) is left for that one to tell. A file that cannot be written is no further
/// failure.
void with_error_file(const std::function<void()>& body);

/// The JSON of such a file: what happened, and when (seconds since 1970).
std::string error_file_text(const std::string& message, int64_t time);

}  // namespace transformer
