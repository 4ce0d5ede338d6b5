#pragma once

#include <c10/util/Exception.h>

#include <new>
#include <stdexcept>
#include <string>

#include "transformer/model/tensor_memory.h"

namespace transformer {

/// What `work` returns. What LibTorch throws from within becomes what those know who do without it: memory that ran
/// out, or the line that says what happened.
template <class Work>
auto with_plain_errors(const Work& work) {
  try {
    return work();
  } catch (const c10::Error& error) {
    if (is_out_of_memory(error)) throw std::bad_alloc();
    const std::string text = error.what_without_backtrace();
    throw std::runtime_error(text.substr(0, text.find('\n')));
  }
}

}  // namespace transformer
