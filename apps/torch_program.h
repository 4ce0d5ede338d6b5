#pragma once

#include "apps/program.h"
#include "transformer/model/plain_errors.h"

namespace transformer {

/// `run_program` for programs that compute with LibTorch, with_plain_errors.
template <class Body>
int run_torch_program(int argc, char** argv, Body body) {
  return run_program(argc, argv,
                     [&](CLI::App& app, auto parse) { return with_plain_errors([&] { return body(app, parse); }); });
}

}  // namespace transformer
