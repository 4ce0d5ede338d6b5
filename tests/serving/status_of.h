#pragma once

#include <functional>

#include "catch.h"
#include "transformer/serving/request_error.h"

namespace transformer::test {

/// The status that a request is refused with by the RequestError that `action` throws; 0 where it throws none.
inline int status_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const RequestError& error) {
    CHECK((error.status() == 429) == (error.retry_seconds() > 0));
    return error.status();
  }
  return 0;
}

}  // namespace transformer::test
