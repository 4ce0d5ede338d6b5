// metrics.jsonl of a run that goes on: cut to the checkpoint's length, and appended to.

#include "transformer/training/metrics.h"

#include <charconv>

#include "fuzz/fuzz.h"
#include "transformer/base/read_file.h"

using namespace transformer;

namespace {

const fuzz::Target target("metrics", [](std::string_view input) {
  const auto files = fuzz::files_of(input);
  const auto run = fuzz::write_folder("run", files);
  int64_t bytes = 0;
  const auto text = files.begin()->second;
  std::from_chars(text.data(), text.data() + text.size(), bytes);
  Metrics metrics(run, bytes, 3);
  metrics.record("train", 3, {{"loss", 1.5}, {"tokens", int64_t{7}}, {"text", std::string(input.substr(0, 8))}});
  fuzz::require(read_file(run / metrics_name).size() == static_cast<size_t>(metrics.bytes()),
                "the file is as long as it is said to be");
});

}  // namespace
