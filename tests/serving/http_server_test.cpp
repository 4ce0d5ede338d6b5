#include "transformer/serving/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <regex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "catch.h"
#include "transformer/serving/settings.h"

using namespace transformer;

namespace {

/// More than sockets hold for a client that reads nothing.
const std::string large(size_t{32} << 20, 'a');

/// Says what it has done, and how it ends.
class Halfway : public HttpTask {
 public:
  void cancel() override { is_cancelled_ = true; }
  Served served() override { return {.model = "m", .lines = is_cancelled_ ? 7 : 0}; }
  std::string last_part(const HttpResponse& error) override { return "last: " + error.body + "\n"; }

 private:
  bool is_cancelled_ = false;
};

/// Fails at /fails. Answers with who asks and what they sent, at /who with their key and what it is, at /large with a
/// lot; at /parts it is the test that answers, at /halfway likewise, for a task.
class Echo : public HttpHandler {
 public:
  HttpResponse refusal(const std::string&, const std::string&) override { return {.status = 0}; }
  std::shared_ptr<HttpTask> handle(HttpRequest request, std::shared_ptr<HttpReply> reply) override {
    if (request.path == "/fails") throw std::runtime_error("of this request alone");
    if (request.path == "/parts" || request.path == "/halfway") {
      parts_.set_value(std::move(reply));
      if (request.path == "/halfway") return std::make_shared<Halfway>();
    } else if (request.path == "/large") {
      reply->send({.status = 200, .body = large}, {});
    } else if (request.path == "/who") {
      reply->send({.status = 200, .body = request.api_key + " sends " + request.content_type + "|>"}, {});
    } else {
      reply->send({.status = 200, .body = "<" + request.client + "|" + request.body + ">"}, {});
    }
    return nullptr;
  }
  void record(const HttpRecord& record) override {
    const std::lock_guard lock(mutex_);
    records_.push_back(record);
  }

  /// Of the one request for /parts, once it has come.
  std::shared_ptr<HttpReply> parts() { return parts_.get_future().get(); }
  /// Of the request that ended last.
  HttpRecord last() {
    const std::lock_guard lock(mutex_);
    return records_.at(records_.size() - 1);
  }

 private:
  std::promise<std::shared_ptr<HttpReply>> parts_;
  std::mutex mutex_;
  std::vector<HttpRecord> records_;
};

/// A server on a thread of its own.
class Running {
 public:
  explicit Running(ServingSettings settings = quick()) : server_(settings, echo_), thread_([this] { server_.run(); }) {}
  ~Running() { server_.stop(); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  static ServingSettings quick() {
    ServingSettings settings;
    settings.port = 0;
    settings.deadline_seconds = 2;
    return settings;
  }

  Echo& echo() { return echo_; }
  void drain() { server_.drain(); }
  /// Whether it comes to have so many connections.
  bool comes_to(size_t connections) const {
    for (int i = 0; i < 3000 && server_.connections() != connections; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return server_.connections() == connections;
  }
  uint16_t port() const {
    const auto address = server_.address();
    return static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  }

 private:
  Echo echo_;
  HttpServer server_;
  std::jthread thread_;
};

class Client {
 public:
  explicit Client(const Running& server) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    REQUIRE(socket_ >= 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server.port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(const std::string& bytes) const {
    REQUIRE(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  }
  /// Sends these bytes again and again, until an answer comes, the connection ends or half a minute has passed.
  void send_until_answered(const std::string& bytes) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    size_t sent = 0;
    while (std::chrono::steady_clock::now() < end) {
      pollfd ready{socket_, POLLIN | POLLOUT, 0};
      REQUIRE(::poll(&ready, 1, 30'000) == 1);
      if ((ready.revents & ~POLLOUT) != 0) return;
      const auto count = ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count > 0) sent = (sent + static_cast<size_t>(count)) % bytes.size();
    }
  }
  /// What comes next, with `end` at its end; less where the server sends no more.
  std::string receive_until(const std::string& end) {
    size_t at = received_.find(end);
    while (at == std::string::npos) {
      const size_t looked_at = received_.size() - std::min(received_.size(), end.size());
      if (!receive()) break;
      at = received_.find(end, looked_at);
    }
    const auto found = received_.substr(0, at == std::string::npos ? at : at + end.size());
    received_.erase(0, found.size());
    return found;
  }
  /// All that comes until the server sends no more.
  std::string receive_all() {
    while (receive()) continue;
    return std::exchange(received_, "");
  }

 private:
  bool receive() {
    pollfd waiting{socket_, POLLIN, 0};
    constexpr int patience = 30'000;  // milliseconds
    REQUIRE(::poll(&waiting, 1, patience) == 1);
    char part[4096];
    const auto bytes = ::recv(socket_, part, sizeof part, 0);
    if (bytes > 0) received_.append(part, static_cast<size_t>(bytes));
    return bytes > 0;
  }

  int socket_;
  std::string received_;  // and not asked for yet
};

std::string answer(const Running& server, const std::string& request) {
  Client client(server);
  client.send(request);
  return client.receive_all();
}

/// How many answers there are in `text`.
size_t answers(const std::string& text) {
  const std::string mark = "\r\nX-Request-Id: ";
  size_t count = 0;
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("where it is not clear how long a body is, nothing behind it is taken for a request") {
  const Running server;
  const std::string next = "GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
  const auto post = [](const std::string& version, const std::string& lines, const std::string& body) {
    return "POST /a HTTP/" + version + "\r\nHost: a\r\n" + lines + "\r\n\r\n" + body;
  };
  for (const std::string lines : {
           "Transfer-Encoding: gzip",
           "Transfer-Encoding: xchunked",
           "Transfer-Encoding: identity",
           "Transfer-Encoding:",
           "Transfer-Encoding: chunked, identity",
           "Transfer-Encoding: gzip, chunked",
           "Transfer-Encoding: chunked, chunked",
           "Transfer-Encoding: chunked;a=b",
           "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
           "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
           "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
           "Transfer-Encoding: chunked\r\nContent-Length: 5",
           "Content-Length: 5\r\nTransfer-Encoding: chunked",
           "Transfer-Encoding: gzip\r\nContent-Length: 5",
           "Content-Length: 5\r\nTransfer-Encoding: identity",
           "Content-Length: 5\r\nContent-Length: 0",
           "Content-Length: 5, 0",
       }) {
    INFO(lines);
    const auto found = answer(server, post("1.1", lines, "0\r\n\r\n" + next));
    CHECK_THAT(found, StartsWith("HTTP/1.1 400 ") && Contains("Connection: close") && Contains("\"error\""));
    CHECK(answers(found) == 1);
  }
  const auto old =
      answer(server, post("1.0", "Connection: keep-alive\r\nTransfer-Encoding: chunked", "0\r\n\r\n" + next));
  CHECK_THAT(old, StartsWith("HTTP/1.0 400 "));
  CHECK(answers(old) == 1);

  for (const std::string line : {"Transfer-Encoding: chunked", "transfer-encoding: \t Chunked\t "}) {
    INFO(line);
    const auto found = answer(server, post("1.1", line, "2\r\n{}\r\n0\r\n\r\n" + next));
    CHECK_THAT(found, StartsWith("HTTP/1.1 200 ") && Contains("<127.0.0.1|{}>") && EndsWith("<127.0.0.1|>"));
    CHECK(answers(found) == 2);
  }
}

TEST_CASE("a client behind a proxy is who the proxy says that it is, for one request") {
  const auto get = [](const std::string& lines) { return "GET /a HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n"; };
  const auto requests = get("X-Forwarded-For: 9.9.9.9\r\nX-Other: a\r\nX-Forwarded-For: 8.8.8.8, 1.2.3.4 \r\n") +
                        get("") + get("x-forwarded-for: 5.6.7.8\r\n") + get("X-Forwarded-For: 5.6.7.8,\r\n") +
                        get("X-Forwarded-For: 9.9.9.9, 2001:db8::1\r\n");
  auto settings = Running::quick();
  settings.trust_proxy = true;
  Running trusting(settings), alone;
  Client client(trusting);
  client.send(requests);
  for (const std::string expected : {"<1.2.3.4|>", "<127.0.0.1|>", "<5.6.7.8|>", "<127.0.0.1|>", "<2001:db8::1|>"}) {
    CHECK_THAT(client.receive_until("|>"), EndsWith(expected));
  }
  // Nor is what cannot be read the last one's.
  client.send("nonsense\r\n\r\n");
  CHECK_THAT(client.receive_all(), StartsWith("HTTP/1.1 400 "));
  CHECK(trusting.echo().last().client == "127.0.0.1");

  CHECK_THAT(answer(alone, get("X-Forwarded-For: 1.2.3.4\r\nConnection: close\r\n")), EndsWith("<127.0.0.1|>"));
}

TEST_CASE("an answer in parts ends when it has ended, also after its last part was written") {
  for (const std::string version : {"1.0", "1.1"}) {
    INFO(version);
    Running server;
    Client client(server);
    client.send("GET /parts HTTP/" + version + "\r\nHost: a\r\nConnection: close\r\n\r\n");
    const auto reply = server.echo().parts();
    reply->begin({.status = 200});
    reply->write("all of it");
    const auto found = client.receive_until("all of it");
    CHECK_THAT(found, StartsWith("HTTP/" + version + " 200 "));
    // What answers this has noticed that the part is written.
    CHECK_THAT(answer(server, "GET /a HTTP/1.0\r\n\r\n"), Contains("<127.0.0.1|>"));
    reply->end({});
    CHECK((found + client.receive_all()).ends_with(version == "1.0" ? "\r\n\r\nall of it" : "\r\n0\r\n\r\n"));
    CHECK(server.echo().last().path == "/parts");
    CHECK(server.echo().last().status == 200);
  }
}

TEST_CASE(
    "bodies that do not come whole take no more memory than they may all together, and small ones always come in") {
  auto settings = Running::quick();
  settings.max_body_bytes = settings.max_bodies_bytes = 300'000;
  const Running server(settings);
  const auto head = [](size_t bytes) {
    return "POST /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: " + std::to_string(bytes) + "\r\n\r\n";
  };
  const std::string body(200'000, 'b'), small(60'000, 's');
  // What is sent before others ask so often is read before they are all answered.
  const auto is_read = [&] {
    for (int i = 0; i < 20; ++i) REQUIRE_THAT(answer(server, head(1) + "a"), StartsWith("HTTP/1.1 200 "));
  };
  // Asks until the answer begins so: when the end of others is noticed is not known.
  const auto comes_to = [&](const std::string& status) {
    std::string found;
    for (int i = 0; i < 1000 && !found.starts_with("HTTP/1.1 " + status); ++i) {
      found = answer(server, head(body.size()) + body);
    }
    return found;
  };
  {
    Client unfinished(server);
    unfinished.send(head(250'000) + body);
    is_read();
    CHECK_THAT(comes_to("503"), Contains("as much as it has room for") && Contains("Retry-After: 1"));
    CHECK_THAT(answer(server, head(small.size()) + small), Contains("|" + small + ">"));
    unfinished.send(std::string(50'000, 'b'));  // it was there first
    CHECK_THAT(unfinished.receive_all(), StartsWith("HTTP/1.1 200 "));
  }
  CHECK_THAT(comes_to("200"), Contains("|" + body + ">"));
  {
    Client unfinished(server);
    unfinished.send(head(250'000) + body);
    is_read();
    CHECK_THAT(comes_to("503"), StartsWith("HTTP/1.1 503 "));
  }
  CHECK_THAT(comes_to("200"), StartsWith("HTTP/1.1 200 "));  // who left takes no room
}

TEST_CASE("who sends on and on has no longer than anybody else") {
  auto settings = Running::quick();
  const std::string head = "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  std::string chunks, longer;
  for (int i = 0; i < 1000; ++i) chunks += "1\r\n.\r\n";
  for (int i = 0; i < 16; ++i) longer += "1;" + std::string(4000, 'a') + "\r\n.\r\n";
  SECTION("a body never comes to its end") {
    settings.receive_seconds = 0.2;
    settings.max_body_bytes = int64_t{1} << 30;
    const Running server(settings);
    for (const auto& part : {chunks, longer}) {
      Client client(server);
      client.send(head);
      client.send_until_answered(part);
      CHECK_THAT(client.receive_until("}"), StartsWith("HTTP/1.1 408 ") && Contains("within 0.2 seconds"));
    }
  }
  SECTION("nor does what is no part of it") {
    settings.max_body_bytes = 1024;
    const Running server(settings);
    Client client(server);
    client.send(head);
    client.send_until_answered(longer);
    CHECK_THAT(client.receive_until("}"), StartsWith("HTTP/1.1 413 ") && Contains("more than 6 bytes"));
    // Small chunks alone are no reason.
    CHECK_THAT(answer(server, head + chunks + "0\r\n\r\nGET /b HTTP/1.0\r\n\r\n"),
               Contains("|" + std::string(1000, '.') + ">") && EndsWith("<127.0.0.1|>"));
  }
  SECTION("a header that stays unfinished") {
    settings.receive_seconds = 0.2;
    const Running server(settings);
    CHECK_THAT(answer(server, "GET /a HTTP/1.1\r\nHost"), StartsWith("HTTP/1.1 408 "));
  }
  SECTION("no request, but empty lines") {
    settings.idle_seconds = settings.receive_seconds = 0.2;
    const Running server(settings);
    Client client(server);
    client.send_until_answered("\r\n");
    CHECK(client.receive_all().empty());
  }
}

TEST_CASE("who asks and does not read has no longer than send_seconds") {
  auto settings = Running::quick();
  settings.send_seconds = 0.2;
  settings.deadline_seconds = 1000;
  Running server(settings);
  const Client client(server);
  REQUIRE(server.comes_to(1));
  SECTION("an answer") {
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
  }
  SECTION("a part of one") {
    client.send("GET /parts HTTP/1.1\r\nHost: a\r\n\r\n");
    const auto reply = server.echo().parts();
    reply->begin({.status = 200});
    reply->write(large);
    CHECK(server.comes_to(0));
    CHECK(server.echo().last().status == 499);  // as one that left
  }
  CHECK(server.comes_to(0));
}

TEST_CASE("what follows a body is none of the header") {
  const Running server;
  const std::string head =
      "POST /who HTTP/1.1\r\nHost: a\r\nX-API-Key: one\r\nContent-Type: Text/A; b=c\r\nTransfer-Encoding: chunked\r\n";
  const std::string trailers =
      "X-API-Key: two\r\nAuthorization: Bearer three\r\nContent-Type: text/evil\r\nConnection: close\r\n";
  const auto next = "GET /who HTTP/1.0\r\n\r\n";
  const auto found = answer(server, head + "\r\n3\r\nabc\r\n0\r\n" + trailers + "\r\n" + next);
  CHECK_THAT(found, Contains("one sends text/a|>") && EndsWith(" sends |>"));  // nor does it end the connection
  CHECK(found.find("two") == found.npos);
  CHECK(found.find("three") == found.npos);
}

TEST_CASE("no field is too long to be refused") {
  auto settings = Running::quick();
  settings.max_header_bytes = 1 << 20;
  const Running server(settings);
  const std::string post = "POST /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n";
  for (const size_t bytes : {65532, 65533, 65534, 65535, 65536, 70000, 200000}) {
    const std::string value(bytes, 'a');
    for (const auto& line : {"X-A: " + value, value + ": a", "X-A:" + std::string(bytes, ' ') + "a"}) {
      answer(server, "GET /a HTTP/1.0\r\n" + line + "\r\n\r\n");
      answer(server, post + "\r\n2\r\nab\r\n0\r\n" + line + "\r\n\r\n");
      answer(server, post + "\r\n2;" + value + "\r\nab\r\n0\r\n\r\n");
    }
    answer(server, "GET /" + value + " HTTP/1.0\r\n\r\n");
    answer(server, value + " / HTTP/1.0\r\n\r\n");
    REQUIRE_THAT(answer(server, "GET /a HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.0 200 "));
  }
  CHECK_THAT(answer(server, "GET /a HTTP/1.1\r\nHost: a\r\nX-A: " + std::string(70000, 'a') + "\r\n\r\n"),
             StartsWith("HTTP/1.1 431 ") && Contains("a field is longer"));
  CHECK_THAT(answer(server, post + "\r\n2\r\nab\r\n0\r\nX-A: " + std::string(70000, 'a') + "\r\n\r\n"),
             StartsWith("HTTP/1.1 413 "));
}

TEST_CASE("a request that fails ends no other") {
  const Running server;
  CHECK_THAT(answer(server, "GET /fails HTTP/1.1\r\nHost: a\r\n\r\n"), StartsWith("HTTP/1.1 500 "));
  CHECK_THAT(answer(server, "GET /a HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.0 200 "));
}

TEST_CASE("an answer says when it was made") {
  const Running server;
  const std::regex date("\r\nDate: [A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT\r\n");
  CHECK(std::regex_search(answer(server, "GET /a HTTP/1.0\r\n\r\n"), date));
}

TEST_CASE("parts that end otherwise than they began are recorded so") {
  Running server;
  Client client(server);
  client.send("GET /parts HTTP/1.0\r\n\r\n");
  const auto reply = server.echo().parts();
  reply->begin({.status = 200});
  reply->write("part\n");
  reply->end({.status = 500});
  CHECK_THAT(client.receive_all(), StartsWith("HTTP/1.0 200 ") && EndsWith("part\n"));
  CHECK(server.echo().last().status == 500);
  CHECK(server.echo().last().is_whole);
}

TEST_CASE("an answer in parts has its deadline, however many there are") {
  Running server;
  Client client(server);
  client.send("GET /parts HTTP/1.1\r\nHost: a\r\n\r\n");
  const auto reply = server.echo().parts();
  reply->begin({.status = 200});
  std::jthread writing([&](const std::stop_token& stop) {
    for (int i = 0; i < 100 && !stop.stop_requested(); ++i) {
      reply->write("part\n");
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    reply->end({});
  });
  const auto all = client.receive_all();
  CHECK(all.find("part\n") != all.npos);
  CHECK_FALSE(all.ends_with("\r\n0\r\n\r\n"));
  CHECK(server.echo().last().status == 503);
}

TEST_CASE("what is given up tells its client why, and its record what was done") {
  auto settings = Running::quick();
  settings.deadline_seconds = 0.3;
  settings.drain_seconds = 0.3;
  const std::string head = " /halfway HTTP/1.1\r\nHost: a\r\n\r\n", last = "\r\n0\r\n\r\n";
  SECTION("in parts, past its deadline") {
    Running server(settings);
    Client client(server);
    client.send("GET" + head);
    const auto reply = server.echo().parts();
    reply->begin({.status = 200});
    reply->write("part\n");
    const auto all = client.receive_all();
    CHECK_THAT(all, Contains("part\n") && Contains("last: {\"error\":\"this was not done within 0.3 seconds\"}\n") &&
                        EndsWith(last));
    CHECK(server.echo().last().status == 503);
    CHECK(server.echo().last().served.lines == 7);
  }
  SECTION("in parts, one of which is still being read, past its deadline") {
    Running server(settings);
    Client client(server);
    client.send("GET" + head);
    const auto reply = server.echo().parts();
    reply->begin({.status = 200});
    reply->write(large);
    reply->write("behind it\n");
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const auto all = client.receive_all();
    const auto end = all.substr(all.size() - std::min<size_t>(all.size(), 200));
    CHECK_THAT(end,
               Contains("a\r\n37\r\nlast: {\"error\":\"this was not done within 0.3 seconds\"}\n") && EndsWith(last));
    CHECK(server.echo().last().status == 503);
    CHECK(server.echo().last().served.lines == 7);
  }
  SECTION("in parts, one of which nobody reads, where the server ends") {
    settings.deadline_seconds = 60;
    Running server(settings);
    const Client client(server);
    client.send("GET" + head);
    const auto reply = server.echo().parts();
    reply->begin({.status = 200});
    reply->write(large);
    server.drain();
    CHECK(server.comes_to(0));
    CHECK(server.echo().last().status == 503);
    CHECK(server.echo().last().served.lines == 7);
  }
  SECTION("but not an answer that has ended, however late it is read") {
    settings.deadline_seconds = 2;
    Running server(settings);
    Client client(server);
    client.send("GET" + head);
    const auto reply = server.echo().parts();
    reply->begin({.status = 200});
    reply->write(large);
    reply->write("behind it\n");
    reply->end({});
    std::this_thread::sleep_for(std::chrono::seconds(3));
    CHECK(client.receive_until(last).ends_with("a\r\na\r\nbehind it\n" + last));
    client.send("GET /a HTTP/1.0\r\n\r\n");
    client.receive_all();
  }
  SECTION("in parts, where the server ends") {
    settings.deadline_seconds = 60;
    Running server(settings);
    Client client(server);
    client.send("GET" + head);
    server.echo().parts()->begin({.status = 200});
    client.receive_until("\r\n\r\n");
    server.drain();
    CHECK_THAT(client.receive_all(), Contains("last: {\"error\":\"the server ends\"}\n") && EndsWith(last));
    CHECK(server.echo().last().status == 503);
  }
  SECTION("in one piece") {
    Running server(settings);
    Client client(server);
    client.send("GET" + head);
    CHECK_THAT(client.receive_until("}"), StartsWith("HTTP/1.1 503 ") && EndsWith("0.3 seconds\"}"));
    CHECK(server.echo().last().served.model == "m");
    CHECK(server.echo().last().served.lines == 7);
  }
  SECTION("by a client that leaves") {
    settings.deadline_seconds = 60;
    Running server(settings);
    {
      Client client(server);
      client.send("GET" + head);
      server.echo().parts();
    }
    CHECK(server.comes_to(0));
    CHECK(server.echo().last().status == 499);
    CHECK(server.echo().last().served.lines == 7);
  }
}

TEST_CASE("empty lines before a request are none of it") {
  const Running server;
  const std::string first = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n", last = "GET /b HTTP/1.0\r\n\r\n";
  const auto found = answer(server, "\r\n" + first + "\r\n\r\n" + last);
  CHECK(answers(found) == 2);
  CHECK_THAT(found, StartsWith("HTTP/1.1 200 ") && EndsWith("<127.0.0.1|>"));
  // Also where the line comes in two, between requests.
  Client client(server);
  client.send(first);
  CHECK_THAT(client.receive_until("|>"), StartsWith("HTTP/1.1 200 "));
  client.send("\r");
  CHECK_THAT(answer(server, last), StartsWith("HTTP/1.0 200 "));  // by then it was read
  client.send("\n" + last);
  CHECK_THAT(client.receive_all(), StartsWith("HTTP/1.0 200 "));
}

TEST_CASE("a client of HTTP/1.0 is not told to go on") {
  const Running server;
  const auto post = [](const std::string& version) {
    return "POST /a HTTP/" + version +
           "\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n";
  };
  Client old(server), client(server);
  old.send(post("1.0"));
  client.send(post("1.1"));
  CHECK(client.receive_until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
  for (auto* one : {&old, &client}) {
    one->send("x");
    CHECK_THAT(one->receive_all(), Contains(" 200 OK\r\n") && !Contains("100 Continue") && EndsWith("|x>"));
  }
}

TEST_CASE("a method is recorded as it was sent") {
  Running server;
  CHECK_THAT(answer(server, "HEAD /a HTTP/1.0\r\n\r\n"), StartsWith("HTTP/1.0 200 ") && EndsWith("\r\n\r\n"));
  CHECK(server.echo().last().method == "HEAD");
}
