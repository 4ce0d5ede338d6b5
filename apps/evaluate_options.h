#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "apps/number_option.h"
#include "transformer/base/counted.h"
#include "transformer/base/error.h"
#include "transformer/text/lines.h"

namespace transformer {

/// Options that several of `evaluate`'s commands have. Each sets `value`, which keeps what it held if the option isn't
/// given.

inline void add_precision_option(CLI::App& command, std::string& value) {
  command
      .add_option("--precision", value,
                  "What weights and activations are rounded to: float32 (as trained), bf16 or int8; if not given, as "
                  "the model is stored")
      ->check(CLI::IsMember({"float32", "bf16", "int8"}))
      ->option_text("{float32,bf16,int8}");
}

inline void add_threads_option(CLI::App& command, int& value) {
  command.add_option("--threads", value, "Processor threads; if not given, OMP_NUM_THREADS, or one for each core")
      ->type_name("N")
      ->transform(number_between(1, 1024));
}

/// The lines of `files`, which are to be as many as the `lines` of `name`. Throws Error where they are not, and where
/// there are none.
inline std::vector<std::vector<std::string>> read_references(const std::vector<std::string>& files, size_t lines,
                                                             const std::string& name) {
  std::vector<std::vector<std::string>> references;
  for (const auto& file : files) {
    references.push_back(read_lines(file));
    const auto found = references.back().size();
    if (found == lines) continue;
    throw Error(file, fmt::format("has {}, but {} has {}", counted(found, "line"), name, lines),
                "line by line, both should be the same sentences");
  }
  if (lines == 0) throw Error(name, "is empty; expected a line for each sentence");
  return references;
}

}  // namespace transformer
