#pragma once

#include <c10/util/Exception.h>

#include <new>
#include <stdexcept>
#include <string>

#include "apps/program.h"
#include "transformer/model/tensor_memory.h"

namespace transformer {

/// `run_program` for programs that compute with LibTorch, whose exceptions become what every program knows: memory that
/// ran out, or the line that says what happened.
template <class Body>
int run_torch_program(int argc, char** argv, Body body) {
  return run_program(argc, argv, [&](CLI::App& app, auto parse) {
    try {
      return body(app, parse);
    } catch (const c10::Error& error) {
      if (is_out_of_memory(error)) throw std::bad_alloc();
      const std::string text = error.what_without_backtrace();
      throw std::runtime_error(text.substr(0, text.find('\n')));
    }
  });
}

}  // namespace transformer
