#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "transformer/serving/http.h"
#include "transformer/serving/settings.h"

namespace transformer {

/// An HTTP/1.1 server on one thread, which waits for nobody: a connection that is idle or slow costs its memory until
/// its time is over, a few kilobytes and what it has sent of a request, max_body_bytes at most. A request whose client
/// leaves is cancelled. Limits and times are `ServingSettings`.
class HttpServer {
 public:
  /// Listens from now on, so that connections wait for `run`. Raises the process's limit of open files
  /// (RLIMIT_NOFILE) as far as `max_connections` needs it and the system lets it. `handler` must outlive this. Throws
  /// Error for an address that is none, Failure for one that cannot be had.
  HttpServer(const ServingSettings& settings, HttpHandler& handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// "127.0.0.1:5000", with the port that it has.
  std::string address() const;
  /// Serves, until it was asked to end.
  void run();

  // From any thread:

  /// No connection is accepted any more but those that wait already; what was asked is answered, for as long as
  /// `drain_seconds` at most, and `run` returns.
  void drain();
  /// `run` returns soon, and nothing is answered any more.
  void stop();
  /// Those that are open now.
  size_t connections() const;
  /// `max_connections`, or fewer where the limit of open files is lower.
  size_t connections_at_most() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace transformer
