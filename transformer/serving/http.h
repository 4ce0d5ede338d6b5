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
  std::string method = {}, path = {};     // as it was sent, without what follows "?"
  std::string query = {};                 // what follows
  std::string content_type = {};          // lower case, without parameters
  std::string api_key = {};               // of the headers Authorization: Bearer or X-API-Key
  std::string client = {};                // its address
  std::string id = {};                    // for the log and the header X-Request-Id
  std::shared_ptr<const void> room = {};  // what is held as long as the body is
  std::string body = {};                  // whole, no longer than max_body_bytes

  /// Gives the body's memory back, once it is read.
  void forget_body() {
    std::string().swap(body);
    room = nullptr;
  }
};

/// An answer, or the head of one that comes in parts.
struct HttpResponse {
  int status = 200;                                               // of HTTP
  std::string content_type = "application/json";                  // of `body`, or of the parts
  std::string body = {};                                          // empty where parts follow
  std::vector<std::pair<std::string, std::string>> headers = {};  // besides the server's own; (name, value)
};

/// {"error": sentence}: the form of every error; more than 0 `retry_seconds` from now the same may succeed
/// (Retry-After).
HttpResponse error_response(int status, const std::string& sentence, int retry_seconds = 0);

/// What a request led to, for metrics and the log.
struct Served {
  std::string model = {};                        // empty: none
  int64_t lines = 0;                             // with text
  int64_t source_tokens = 0, output_tokens = 0;  // word pieces
  std::string texts = {};                        // as JSON, where the log may hold them
  int status = 0;                                // how parts ended, where not as their head said; 0: as it said
};

/// Where the answer to one request goes, from any thread: either `send`, or `begin`, any number of `write` and `end`.
/// What comes after an end, or after the client left, is dropped.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  /// The whole answer.
  virtual void send(HttpResponse response, Served served) = 0;
  /// The answer's head: parts follow.
  virtual void begin(HttpResponse head) = 0;
  /// A part, sent as soon as the client takes it, or never where the answer is given up before.
  virtual void write(std::string part) = 0;
  /// The last part has come.
  virtual void end(Served served) = 0;
};

/// A request that is being worked on.
class HttpTask {
 public:
  virtual ~HttpTask() = default;
  /// Nobody waits for its answer any more. Must return soon, and may be called at any time.
  virtual void cancel() = 0;
  /// What it has led to so far, for the record of one that was cancelled. Likewise.
  virtual Served served() = 0;
  /// The part that ends an answer in parts as `error` would end another; empty: parts of this answer have none such.
  virtual std::string last_part(const HttpResponse& error) = 0;
};

/// A request that was answered, or given up.
struct HttpRecord {
  std::string method = {}, path = {}, id = {}, client = {};  // as in HttpRequest
  int status = 0;                                            // 499: the client left
  double seconds = 0;    // from when it had come whole until its answer was handed over
  bool is_whole = true;  // false: it was refused, or given up, before it had come whole
  Served served = {};    // as the reply was told, or of one that was given up its task
};

/// What the server asks of whoever answers.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  /// What to answer without reading a request's body; a response of status 0: nothing, read on. HEAD is to be answered
  /// as GET; the server leaves the body out.
  virtual HttpResponse refusal(const std::string& method, const std::string& path) = 0;
  /// Answers now or later; must return soon. The task, which may be null, is kept until the answer is sent.
  virtual std::shared_ptr<HttpTask> handle(HttpRequest request, std::shared_ptr<HttpReply> reply) = 0;
  /// Told of every request once it is over.
  virtual void record(const HttpRecord& record) = 0;
};

}  // namespace transformer
