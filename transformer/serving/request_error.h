#pragma once

#include <stdexcept>
#include <string>

namespace transformer {

/// Why a request is not done: the status and the sentence of its answer. `retry_seconds`, where not 0, says when to
/// come back.
class RequestError : public std::runtime_error {
 public:
  /// `status` is HTTP's; `sentence` becomes the answer's "error".
  RequestError(int status, const std::string& sentence, int retry_seconds = 0)
      : std::runtime_error(sentence), status_(status), retry_seconds_(retry_seconds) {}
  /// Of HTTP.
  int status() const { return status_; }
  /// For the header Retry-After; 0: none.
  int retry_seconds() const { return retry_seconds_; }

 private:
  int status_, retry_seconds_;
};

}  // namespace transformer
