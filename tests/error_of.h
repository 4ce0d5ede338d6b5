#pragma once

#include <string>

#include "transformer/base/error.h"

namespace transformer::test {

/// The message of the Error that `action` throws; empty where it throws none.
template <class Action>
[[nodiscard]] std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace transformer::test
