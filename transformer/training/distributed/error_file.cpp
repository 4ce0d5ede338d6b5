#include "transformer/training/distributed/error_file.h"

#include <cstdlib>
#include <ctime>
#include <exception>
#include <nlohmann/json.hpp>

#include "transformer/base/atomic_file.h"
#include "transformer/base/described.h"
#include "transformer/training/distributed/launch.h"

namespace transformer {

std::string error_file_text(const std::string& message, int64_t time) {
  using Json = nlohmann::ordered_json;
  // Without a stack the agent prints the message.
  Json json;
  json["message"]["message"] = message;
  json["message"]["extraInfo"]["timestamp"] = std::to_string(time);
  // Names of files may be no UTF-8.
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

void with_error_file(const std::function<void()>& body) {
  try {
    body();
  } catch (const OtherRankFailure&) {
    throw;
  } catch (...) {
    const char* file = std::getenv("TORCHELASTIC_ERROR_FILE");
    if (file && *file) {
      try {
        write_atomically(file, error_file_text(described_exception().text, std::time(nullptr)));
      } catch (const std::exception&) {
        // The exception in flight says more.
      }
    }
    throw;
  }
}

}  // namespace transformer
