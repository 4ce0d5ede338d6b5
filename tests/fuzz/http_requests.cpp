// Bytes that a client sends to the HTTP server, and then no more.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "fuzz/fuzz.h"
#include "transformer/base/unicode.h"
#include "transformer/serving/http_server.h"
#include "transformer/serving/settings.h"

using namespace transformer;

namespace {

constexpr size_t most_header_bytes = 1024, most_body_bytes = 1024;

/// Answers with what it understood, at once or, at /parts, in parts.
class Echo : public HttpHandler {
 public:
  HttpResponse refusal(const std::string& method, const std::string& path) override {
    fuzz::require(!method.empty(), "there is a method");
    if (method == "GET" || method == "HEAD" || method == "POST") return {.status = path == "/none" ? 404 : 0};
    return error_response(405, printable(method, 20));
  }
  std::shared_ptr<HttpTask> handle(HttpRequest request, std::shared_ptr<HttpReply> reply) override {
    fuzz::require(request.body.size() <= most_body_bytes, "no longer body is taken than may be");
    fuzz::require(request.path.size() + request.query.size() <= most_header_bytes, "nor are longer headers");
    fuzz::require(request.path.find('?') == std::string::npos, "a path ends before what is asked");
    fuzz::require(!request.id.empty() && request.id.size() <= 64 && printable(request.id) == request.id,
                  "what a request is called fits into a log");
    if (request.path == "/parts") {
      reply->begin({.status = 200, .content_type = "text/plain"});
      reply->write("a");
      reply->write(request.body);
      reply->end({});
    } else {
      reply->send({.status = 200, .content_type = "text/plain", .body = request.body}, {});
    }
    return nullptr;
  }
  void record(const HttpRecord& record) override {
    fuzz::require(record.status >= 200 && record.status < 600 && record.seconds >= 0, "what is recorded can be");
  }
};

ServingSettings settings() {
  ServingSettings settings;
  settings.port = 0;
  settings.max_header_bytes = most_header_bytes;
  settings.max_body_bytes = most_body_bytes;
  return settings;
}

/// On a thread of its own, until the process ends.
class Running {
 public:
  Running() : server_(settings(), echo_), thread_([this] { server_.run(); }) {
    const auto address = server_.address();
    port_ = static_cast<uint16_t>(std::atoi(address.substr(address.rfind(':') + 1).c_str()));
  }
  ~Running() { server_.stop(); }

  /// What comes back for these bytes, until the server closes the connection.
  std::string answer(std::string_view bytes) const {
    const int client = connected();
    while (!bytes.empty()) {
      const auto sent = ::send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) break;  // it has closed it already
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    ::shutdown(client, SHUT_WR);
    std::string found;
    char part[4096];
    while (true) {
      pollfd waiting{client, POLLIN, 0};
      constexpr int patience = 60'000;  // milliseconds
      int ready = 0;
      while ((ready = ::poll(&waiting, 1, patience)) < 0 && errno == EINTR) continue;  // libFuzzer's clock ticks
      fuzz::require(ready == 1, "a client that sends no more is let go");
      const auto received = ::recv(client, part, sizeof part, 0);
      if (received <= 0) break;
      found.append(part, static_cast<size_t>(received));
    }
    ::close(client);
    return found;
  }

 private:
  int connected() const {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    while (true) {
      const int client = ::socket(AF_INET, SOCK_STREAM, 0);
      fuzz::require(client >= 0, "there is a socket");
      // Closed at once: of the system's ports thousands a second are needed.
      const linger none{.l_onoff = 1, .l_linger = 0};
      ::setsockopt(client, SOL_SOCKET, SO_LINGER, &none, sizeof none);
      if (::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return client;
      const int error = errno;
      ::close(client);
      fuzz::require(error == EINTR || error == EADDRNOTAVAIL, "the server takes connections");
      ::usleep(10'000);  // libFuzzer's clock has ticked, or all ports are in use
    }
  }

  Echo echo_;
  HttpServer server_;
  uint16_t port_ = 0;
  std::jthread thread_;
};

const fuzz::Target target("http_requests", [](std::string_view input) {
  static const Running server;
  const auto answer = server.answer(input.substr(0, size_t{1} << 16));
  if (!answer.empty()) {
    fuzz::require(answer.starts_with("HTTP/1.1 ") || answer.starts_with("HTTP/1.0 "), "an answer is one of HTTP");
    const int status = std::atoi(answer.substr(9, 3).c_str());
    constexpr int known[] = {100, 200, 400, 404, 405, 408, 413, 415, 431};
    fuzz::require(std::find(std::begin(known), std::end(known), status) != std::end(known), "its status is known");
  }
  const auto after = server.answer("GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  fuzz::require(after.starts_with("HTTP/1.1 200 "), "the next client is served");
});

}  // namespace
