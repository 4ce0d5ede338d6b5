#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace transformer {

// What passes between the HTTP server, which knows nothing of translation, and the service, which knows nothing of
// connections.

/// A request that has come whole.
struct HttpRequest {
  std::string method = {}, path = {};  // as it was sent, without what follows "?"
  std::string query = {};              // what follows
  std::string content_type = {};       // lower case, without parameters
  std::string api_key = {};            // of the headers Authorization: Bearer or X-API-Key
  std::string client = {};             // its address
  std::string id = {};                 // for the log and the header X-Request-Id
  std::string body = {};
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

/// {"error": sentence}: the form of every error.
HttpResponse error_response(int status, const std::string& sentence);

/// What a request led to, for metrics and the log.
struct Served {
  std::string model = {};  // empty: none
  int64_t lines = 0;       // with text
  int64_t source_tokens = 0, output_tokens = 0;
  std::string texts = {};  // as JSON, where the log may hold them
};

/// Where the answer to one request goes, from any thread: either `send`, or `begin`, any number of `write` and `end`.
/// What comes after an end, or after the client left, is dropped.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  virtual void send(HttpResponse response, Served served) = 0;
  virtual void begin(HttpResponse head) = 0;
  virtual void write(std::string part) = 0;
  virtual void end(Served served) = 0;
};

/// A request that is being worked on.
class HttpTask {
 public:
  virtual ~HttpTask() = default;
  /// Nobody waits for its answer any more. Must return soon, and may be called at any time.
  virtual void cancel() = 0;
};

/// A request that was answered, or given up.
struct HttpRecord {
  std::string method = {}, path = {}, id = {}, client = {};
  int status = 0;  // 499: the client left
  double seconds = 0;
  Served served = {};
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  /// What to answer without reading a request's body; a response of status 0: nothing, read on.
  virtual HttpResponse refusal(const std::string& method, const std::string& path) = 0;
  /// Answers now or later; must return soon. The task, which may be null, is kept until the answer is sent.
  virtual std::shared_ptr<HttpTask> handle(HttpRequest request, std::shared_ptr<HttpReply> reply) = 0;
  virtual void record(const HttpRecord& record) = 0;
};

}  // namespace transformer
