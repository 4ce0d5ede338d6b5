#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "apps/number_option.h"

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

}  // namespace transformer
