#include "transformer/serving/http_server.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/read_size.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <deque>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "transformer/base/ascii.h"
#include "transformer/base/error.h"
#include "transformer/base/unicode.h"
#include "transformer/serving/body_room.h"

namespace transformer {

namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = net::ip::tcp;
using Code = boost::system::error_code;

constexpr size_t read_at_once = 4096;
constexpr size_t most_read_ahead = 4 * read_at_once;  // of the next request, while this one's answer is made
constexpr size_t most_lingering_bytes = size_t{64} << 20;
constexpr double lingering_seconds = 5;
constexpr double cancelling_again_seconds = 0.1;
constexpr int64_t most_bytes_of_one = 6;      // that a byte of a body takes: one in a chunk of its own
constexpr double drained_idle_seconds = 0.5;  // for a request that was on its way when the end began
constexpr int64_t most_refused = 200;         // connections beyond the limit that are told so at a time
constexpr int64_t other_files = 64;           // that the process has open: the log, models that are being loaded

std::chrono::steady_clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

std::string text_of(beast::string_view view) {
  return {view.data(), view.size()};
}

/// Whether a field's name or value is longer than Beast can count, in versions that have errors for it.
template <class Error = http::error>
bool is_field_too_long(const Code& error) {
  if constexpr (requires { Error::header_field_value_too_large; }) {
    return error == Error::header_field_name_too_large || error == Error::header_field_value_too_large;
  }
  return false;
}

/// What a client calls its request, where it can do no harm in a log.
bool usable_id(beast::string_view id) {
  return !id.empty() && id.size() <= 64 && std::all_of(id.begin(), id.end(), [](char c) {
    return is_ascii_alphanumeric(c) || c == '-' || c == '_' || c == '.';
  });
}

/// What is asked for, where a client names its host, too, as it would a proxy (RFC 9112, 3.2.2).
beast::string_view without_host(beast::string_view target) {
  for (const beast::string_view scheme : {"http://", "https://"}) {
    if (target.size() < scheme.size() || !beast::iequals(target.substr(0, scheme.size()), scheme)) continue;
    const size_t path = target.find_first_of("/?", scheme.size());
    return path == beast::string_view::npos || target[path] == '?' ? "/" : target.substr(path);
  }
  return target;
}

/// "Mon, 12 Jun 2017 17:57:34 GMT" (RFC 9110, 5.6.7), in English wherever it is.
std::string date_text() {
  static constexpr const char* days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                           "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", days[utc.tm_wday], utc.tm_mday, months[utc.tm_mon],
                     utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

std::string media_type(beast::string_view header) {
  auto type = std::string(trim(text_of(header.substr(0, header.find(';')))));
  for (char& c : type) c = ascii_lower(c);
  return type;
}

/// How many files this process may have open at once, having asked the system for so many: what processes start with is
/// often 1,024, and idle clients alone could take all of them.
int64_t open_files(int64_t wanted) {
  const auto enough = static_cast<rlim_t>(wanted);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= enough) return wanted;
  const rlimit raised{std::min(enough, limit.rlim_max), limit.rlim_max};
  if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  return static_cast<int64_t>(limit.rlim_cur);
}

}  // namespace

HttpResponse error_response(int status, const std::string& sentence, int retry_seconds) {
  // As JSON has it; the rest of a message is text for people.
  std::string escaped;
  for (const char c : sentence) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  HttpResponse response{.status = status, .body = fmt::format("{{\"error\":\"{}\"}}", escaped)};
  if (retry_seconds > 0) response.headers.emplace_back("Retry-After", std::to_string(retry_seconds));
  return response;
}

struct HttpServer::Implementation {
  class Session;
  class Reply;

  Implementation(const ServingSettings& wanted, HttpHandler& given);
  void accept();
  void accepted(tcp::socket socket);
  void accept_waiting();
  void drain();
  void close_all();
  std::string new_id() { return fmt::format("{:08x}-{:x}", id_prefix, ++ids); }

  const ServingSettings settings;
  HttpHandler& handler;
  std::shared_ptr<net::io_context> io = std::make_shared<net::io_context>(1);
  tcp::acceptor acceptor{*io};
  net::steady_timer accept_again{*io}, drain_end{*io};
  std::unordered_set<std::shared_ptr<Session>> sessions;
  std::shared_ptr<BodyRoom> bodies = std::make_shared<BodyRoom>();
  std::atomic<size_t> connections = 0;
  size_t connections_at_most = 0, refused_at_most = 0;
  bool is_accepting = false;  // a connection may come yet, even where the acceptor is closed
  bool draining = false;
  uint32_t id_prefix = std::random_device()();
  uint64_t ids = 0;
};

/// A connection. All of it happens on the thread of `run`.
class HttpServer::Implementation::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Implementation& server, tcp::socket socket, std::string peer)
      : server_(server),
        socket_(std::move(socket)),
        timer_(*server.io),
        deadline_(*server.io),
        buffer_(static_cast<size_t>(server.settings.max_header_bytes) + 65536),
        peer_(std::move(peer)) {}

  void start() { next_request(); }

  /// For one connection too many.
  void refuse() {
    begin_exchange();
    answer_and_close(error_response(503, "too many connections are open", 1));
  }

  /// The server is to end: what waits for a request has had its time.
  void drain() {
    if (state_ == State::waiting) expire_after(drained_idle_seconds, &Session::close_idle);
  }

  /// Its time to end is over.
  void give_up() {
    if (state_ != State::working) return close();
    if (!is_writing_) return give_up_working(error_response(503, "the server ends", 1));
    // Nor is there time for it to read a last part.
    drop_task();
    record(503);
    close();
  }

  void close() {
    if (state_ == State::closed) return;
    state_ = State::closed;
    drop_task();
    never_expire();
    deadline_.cancel();
    Code ignored;
    socket_.shutdown(tcp::socket::shutdown_both, ignored);
    socket_.close(ignored);
    server_.sessions.erase(shared_from_this());
    server_.connections = server_.sessions.size();
  }

  // Of replies, by the number of the exchange that they belong to:

  void answer(uint64_t exchange, HttpResponse response, Served served) {
    if (exchange != exchange_ || state_ != State::working || streams_) return;
    served_ = std::move(served);
    stop_watching();
    send(std::move(response));
  }

  void begin(uint64_t exchange, const HttpResponse& head) {
    if (exchange != exchange_ || state_ != State::working || streams_) return;
    streams_ = true;
    status_ = head.status;
    if (!in_chunks()) keep_alive_ = false;
    http::response<http::empty_body> response;
    fill(response, head);
    if (in_chunks()) response.chunked(true);
    std::ostringstream text;
    text << response.base();
    parts_.push_back(text.str());
    write_parts();
  }

  void write(uint64_t exchange, const std::string& part) {
    if (exchange != exchange_ || state_ != State::working || !streams_ || ended_ || part.empty()) return;
    parts_.push_back(in_chunks() ? fmt::format("{:x}\r\n{}\r\n", part.size(), part) : part);
    write_parts();
  }

  void end(uint64_t exchange, Served served) {
    if (exchange != exchange_ || state_ != State::working || !streams_ || ended_) return;
    served_ = std::move(served);
    ended_ = true;
    deadline_.cancel();
    if (in_chunks()) parts_.emplace_back("0\r\n\r\n");
    if (is_writing_ || !parts_.empty()) {
      write_parts();
    } else {
      finish_parts();
    }
  }

 private:
  enum class State { waiting, receiving, working, sending, closing, closed };

  /// How an answer that comes in parts is sent; to older clients, until the connection's end.
  bool in_chunks() const { return version_ >= 11; }

  void expire_after(double seconds, void (Session::*then)()) {
    const uint64_t number = ++timeouts_;
    timer_.expires_after(duration_of(seconds));
    timer_.async_wait([self = shared_from_this(), number, then](Code error) {
      if (!error && number == self->timeouts_) ((*self).*then)();
    });
  }
  void never_expire() {
    ++timeouts_;
    timer_.cancel();
  }

  /// Whatever else has a time of its own meanwhile, as the parts have that are written.
  void expect_end() {
    deadline_.expires_after(duration_of(server_.settings.deadline_seconds));
    deadline_.async_wait([self = shared_from_this(), exchange = exchange_](Code error) {
      if (error || exchange != self->exchange_ || self->state_ != State::working || self->ended_) return;
      self->past_deadline();
    });
  }

  void begin_exchange() {
    ++exchange_;
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(server_.settings.max_header_bytes));
    parser_->body_limit(static_cast<uint64_t>(server_.settings.max_body_bytes));
    keep_alive_ = false;
    is_whole_ = timed_out_ = streams_ = ended_ = is_head_ = false;
    method_.clear();
    path_.clear();
    client_ = peer_;
    id_ = server_.new_id();
    served_ = {};
    version_ = 11;
    received_bytes_ = 0;
    room_ = std::make_shared<BodyShare>(server_.bodies);
    began_ = std::chrono::steady_clock::now();
  }

  void next_request() {
    begin_exchange();
    state_ = State::waiting;
    expire_after(server_.draining ? drained_idle_seconds : server_.settings.idle_seconds, &Session::close_idle);
    wait_for_request();
  }

  void wait_for_request() {
    if (request_begins()) return receive();
    socket_.async_read_some(buffer_.prepare(read_at_once), [self = shared_from_this()](Code error, size_t bytes) {
      if (error || self->state_ != State::waiting) return self->close();
      self->buffer_.commit(bytes);
      self->wait_for_request();
    });
  }

  /// Whether there is anything but empty lines, which some clients send behind a body: these are skipped (RFC 9112,
  /// 2.2).
  bool request_begins() {
    const std::string_view text(static_cast<const char*>(buffer_.data().data()), buffer_.size());
    size_t skipped = 0;
    while (text.substr(skipped, 2) == "\r\n") skipped += 2;
    const auto rest = text.substr(skipped);
    const bool begins = !rest.empty() && rest != "\r";
    buffer_.consume(skipped);
    return begins;
  }

  /// Nothing was asked for long.
  void close_idle() {
    char byte = 0;
    if (::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0) return close();
    // At the last moment it was, or else this was an empty line.
    expire_after(server_.settings.receive_seconds, &Session::close);
  }

  void receive() {
    state_ = State::receiving;
    began_ = std::chrono::steady_clock::now();
    expire_after(server_.settings.receive_seconds, &Session::too_slow);
    receive_header();
  }

  void receive_header() {
    receive_some(
        [](Session& self) { self.parser_->is_header_done() ? self.header_received() : self.receive_header(); });
  }

  void receive_body() {
    parser_->eager(true);
    receive_some([](Session& self) { self.parser_->is_done() ? self.received() : self.receive_body(); });
  }

  /// Parses what is there and calls `then` where that told anything, or else reads on. A read at a time, as there is
  /// nothing to cancel while bytes are always there.
  template <class Then>
  void receive_some(Then then) {
    if (buffer_.size() > 0) {
      Code error;
      size_t used = 0;
      try {
        used = parser_->put(buffer_.data(), error);
      } catch (const std::length_error&) {  // as Beast has it before it has errors for them
        return field_too_long();
      }
      buffer_.consume(used);
      received_bytes_ += used;
      if (parser_->is_header_done()) room_->add(used);
      if (is_field_too_long(error)) return field_too_long();
      if (error && error != http::error::need_more) return cannot_receive(error);
      if (received_bytes_ > most_received()) return too_much_around_body();
      if (!error && is_one_too_many()) return come_back();
      if (!error) return then(*this);
    }
    const size_t room = beast::read_size(buffer_, 16 * read_at_once);
    if (room == 0) return cannot_receive(http::error::buffer_overflow);
    socket_.async_read_some(buffer_.prepare(room), [self = shared_from_this(), then](Code error, size_t bytes) {
      if (error || self->timed_out_ || self->state_ != State::receiving) return self->cannot_receive(error);
      self->buffer_.commit(bytes);
      self->receive_some(then);
    });
  }

  /// Bytes of a request: what chunks are made of counts, too.
  uint64_t most_received() const {
    const int64_t body = most_bytes_of_one * server_.settings.max_body_bytes;
    return static_cast<uint64_t>(server_.settings.max_header_bytes + body);
  }

  /// Whether this body is more than the server has room for. What is small always comes in.
  bool is_one_too_many() const {
    constexpr size_t always = 64 << 10;
    const auto most = std::max(server_.settings.max_bodies_bytes, server_.settings.max_body_bytes);
    return room_->bytes() > always && server_.bodies->bytes() > static_cast<size_t>(most);
  }

  void come_back() {
    std::string().swap(parser_->get().body());
    room_ = nullptr;
    answer_and_close(error_response(503, "the server receives as much as it has room for", 1));
  }

  void too_much_around_body() {
    answer_and_close(
        error_response(413, fmt::format("the body's chunks take more than {} bytes for each of the {} that it may have",
                                        most_bytes_of_one, server_.settings.max_body_bytes)));
  }

  void field_too_long() {
    if (state_ != State::receiving) return close();
    answer_and_close(error_response(parser_->is_header_done() ? 413 : 431, "a field is longer than 65,000 bytes"));
  }

  void too_slow() {
    timed_out_ = true;
    Code ignored;
    socket_.cancel(ignored);
    expire_after(cancelling_again_seconds, &Session::too_slow);  // what was at its end was not cancelled
  }

  /// All that is asked of the header, before a body comes: behind that one there may be more fields, which are no part
  /// of the header (RFC 9110, 6.5.1), and the parser puts them among it.
  void take_header() {
    const auto& message = parser_->get();
    wants_keep_alive_ = message.keep_alive();
    content_type_ = media_type(message[http::field::content_type]);
    const auto authorization = message[http::field::authorization];
    if (authorization.size() > 7 && beast::iequals(authorization.substr(0, 7), "Bearer ")) {
      api_key_ = std::string(trim(text_of(authorization.substr(7))));
    } else {
      api_key_ = text_of(message["X-API-Key"]);
    }
    version_ = message.version();
    method_ = text_of(message.method_string());
    const auto target = without_host(message.target());
    path_ = text_of(target.substr(0, target.find('?')));
    if (usable_id(message["X-Request-Id"])) id_ = text_of(message["X-Request-Id"]);
    if (server_.settings.trust_proxy) {
      auto address = forwarded_address();
      if (!address.empty() && address.size() <= 64) client_ = std::move(address);
    }
    is_head_ = method_ == "HEAD";
  }

  /// Who the nearest proxy says that the client is, in what it added last; what stands before that, the client may have
  /// made up. Empty: it says nothing.
  std::string forwarded_address() const {
    const auto [begin, end] = parser_->get().equal_range("X-Forwarded-For");
    if (begin == end) return {};
    const auto line = text_of(std::prev(end)->value());
    return std::string(trim(std::string_view(line).substr(line.rfind(',') + 1)));
  }

  void header_received() {
    take_header();
    if (!knows_end()) {
      return answer_and_close(
          error_response(400, "a body has one Content-Length, or in HTTP/1.1 one Transfer-Encoding: chunked"));
    }
    auto refusal = bad_header();
    if (refusal.status == 0) {
      try {
        refusal = server_.handler.refusal(method_, path_);
      } catch (...) {  // of one request, which is no reason to end all
        refusal = error_response(500, "the server failed at this request");
      }
    }
    if (refusal.status != 0) {
      keep_alive_ = parser_->is_done() && wants_keep_alive_;
      is_whole_ = parser_->is_done();
      return send(std::move(refusal));
    }
    if (parser_->is_done()) return received();
    // A client of HTTP/1.0 knows no such answer (RFC 9110, 10.1.1).
    if (version_ < 11 || !beast::iequals(parser_->get()[http::field::expect], "100-continue")) return receive_body();
    static constexpr std::string_view go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    net::async_write(socket_, net::buffer(go_on), [self = shared_from_this()](Code error, size_t) {
      error ? self->cannot_receive(error) : self->receive_body();
    });
  }

  /// RFC 9112, 6.1 and 6.3: whether a proxy and this server must agree on where the request ends, or else the one could
  /// take for a part of it what the other takes for the next. Two lengths that differ are the parser's to refuse.
  bool knows_end() const {
    const auto& message = parser_->get();
    const auto codings = message.count(http::field::transfer_encoding);
    if (codings == 0) return true;
    return codings == 1 && version_ >= 11 && message.count(http::field::content_length) == 0 &&
           beast::iequals(message[http::field::transfer_encoding], "chunked");
  }

  /// Status 0 where there is nothing to say against it.
  HttpResponse bad_header() const {
    const auto& message = parser_->get();
    // RFC 9112, 3.2: what a proxy and this server might understand differently.
    const auto hosts = message.count(http::field::host);
    if (hosts > 1 || (hosts == 0 && version_ >= 11)) {
      return error_response(400, fmt::format("a request of HTTP/1.1 names its host once, not {} times", hosts));
    }
    const auto encoding = message[http::field::content_encoding];
    if (!encoding.empty() && !beast::iequals(encoding, "identity")) {
      return error_response(415, fmt::format("a body that is encoded as {} is not read here: send it as it is",
                                             printable(text_of(encoding))));
    }
    return {.status = 0};
  }

  void cannot_receive(const Code& error) {
    if (state_ != State::receiving) return close();
    if (timed_out_) {
      return answer_and_close(error_response(
          408, fmt::format("the request did not come whole within {} seconds", server_.settings.receive_seconds)));
    }
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      if (parser_->is_header_done()) {
        return answer_and_close(
            error_response(413, "what is sent with the body is too long: chunks' extensions, or fields"));
      }
      return answer_and_close(
          error_response(431, fmt::format("the headers are longer than {} bytes", server_.settings.max_header_bytes)));
    }
    if (error == http::error::body_limit) {
      take_header();
      return answer_and_close(
          error_response(413, fmt::format("the body is longer than {} bytes", server_.settings.max_body_bytes)));
    }
    if (error.category() == make_error_code(http::error::bad_method).category()) {
      return answer_and_close(error_response(400, "this is no HTTP request: " + error.message()));
    }
    close();
  }

  void received() {
    never_expire();
    state_ = State::working;
    is_whole_ = true;
    began_ = std::chrono::steady_clock::now();
    auto message = parser_->release();
    keep_alive_ = wants_keep_alive_;
    HttpRequest request{.method = method_,
                        .path = path_,
                        .content_type = content_type_,
                        .api_key = api_key_,
                        .client = client_,
                        .id = id_};
    const auto target = message.target();
    if (const size_t mark = target.find('?'); mark != beast::string_view::npos) {
      request.query = text_of(target.substr(mark + 1));
    }
    request.body = std::move(message.body());
    request.room = std::move(room_);
    expect_end();
    const uint64_t exchange = exchange_;
    std::shared_ptr<HttpTask> task;
    try {
      task = server_.handler.handle(std::move(request), reply());
    } catch (...) {  // of one request, which is no reason to end all
      if (exchange == exchange_ && state_ == State::working) {
        answer_and_close(error_response(500, "the server failed at this request"));
      }
      return;
    }
    if (exchange != exchange_ || state_ != State::working) return;
    task_ = std::move(task);
    watch();
  }

  std::shared_ptr<HttpReply> reply();

  /// Notices that the client left while its answer is made. One that only closed its own direction has left, too.
  void watch() {
    is_watching_ = true;
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this(), exchange = exchange_](Code error) {
      if (exchange != self->exchange_ || self->state_ != State::working) return;
      self->is_watching_ = false;
      if (error) return;
      char byte = 0;
      const auto bytes = ::recv(self->socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      if (bytes > 0 && !self->read_ahead()) return;  // that it leaves shows when all of this is read
      const bool nothing = bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
      bytes > 0 || nothing ? self->watch() : self->left();
    });
  }

  /// Takes what is there of the next request, so that an end behind it shows. False: that is much already.
  bool read_ahead() {
    if (buffer_.size() >= most_read_ahead) return false;
    const auto room = buffer_.prepare(read_at_once);
    const auto bytes = ::recv(socket_.native_handle(), room.data(), room.size(), MSG_DONTWAIT);
    if (bytes > 0) buffer_.commit(static_cast<size_t>(bytes));
    return true;
  }

  void stop_watching() {
    if (!std::exchange(is_watching_, false)) return;
    Code ignored;
    socket_.cancel(ignored);  // nothing else is under way
  }

  void left() {
    drop_task();
    // Who was given up before is not one who left.
    record(served_.status != 0 ? served_.status : 499);
    close();
  }

  void past_deadline() {
    // Without Retry-After: the same once more would take as long.
    give_up_working(
        error_response(503, fmt::format("this was not done within {} seconds", server_.settings.deadline_seconds)));
  }

  void give_up_working(HttpResponse response) {
    const auto task = task_;
    drop_task();
    if (streams_) {
      // What was sent already cannot be taken back: a last part says why, or else that no end follows. It comes next,
      // behind the part that is being written, however many wait.
      const auto last = task ? task->last_part(response) : "";
      if (last.empty()) {
        record(response.status);
        return close();
      }
      parts_.clear();
      keep_alive_ = false;
      served_.status = response.status;
      write(exchange_, last);
      return end(exchange_, served_);
    }
    stop_watching();
    send(std::move(response));
  }

  void drop_task() {
    const auto task = std::exchange(task_, nullptr);
    if (!task) return;
    task->cancel();
    served_ = task->served();
  }

  template <class Body>
  void fill(http::response<Body>& response, const HttpResponse& given) {
    if (server_.draining) keep_alive_ = false;
    response.version(version_ >= 11 ? 11 : 10);
    response.result(static_cast<unsigned>(given.status));
    response.keep_alive(keep_alive_);
    response.set(http::field::date, date_text());
    response.set("X-Request-Id", id_);
    response.set("X-Content-Type-Options", "nosniff");
    if (!server_.settings.allow_origin.empty()) {
      response.set(http::field::access_control_allow_origin, server_.settings.allow_origin);
    }
    if (!given.content_type.empty()) response.set(http::field::content_type, given.content_type);
    for (const auto& [name, value] : given.headers) response.set(name, value);
  }

  void answer_and_close(HttpResponse response) {
    keep_alive_ = false;
    send(std::move(response));
  }

  void send(HttpResponse given) {
    task_ = nullptr;
    deadline_.cancel();
    state_ = State::sending;
    status_ = given.status;
    const auto response = std::make_shared<http::response<http::string_body>>();
    fill(*response, given);
    const bool has_body = given.status != 204;
    if (has_body) response->content_length(given.body.size());
    if (!is_head_ && has_body) response->body() = std::move(given.body);
    record(given.status);
    expire_after(server_.settings.send_seconds, &Session::close);
    http::async_write(socket_, *response, [self = shared_from_this(), response](Code error, size_t) {
      error ? self->close() : self->sent();
    });
  }

  void write_parts() {
    if (is_writing_ || parts_.empty()) return;
    is_writing_ = true;
    const auto part = std::make_shared<std::string>(std::move(parts_.front()));
    parts_.pop_front();
    expire_after(server_.settings.send_seconds, &Session::left);
    net::async_write(socket_, net::buffer(*part),
                     [self = shared_from_this(), part, exchange = exchange_](Code error, size_t) {
                       if (exchange != self->exchange_) return;
                       self->is_writing_ = false;
                       if (self->state_ != State::working) return;
                       if (error) return self->left();
                       if (!self->parts_.empty()) return self->write_parts();
                       if (!self->ended_) return self->never_expire();
                       self->finish_parts();
                     });
  }

  /// The last part has come, and all are written.
  void finish_parts() {
    task_ = nullptr;
    stop_watching();
    record(served_.status != 0 ? served_.status : status_);
    sent();
  }

  void sent() {
    if (keep_alive_) return next_request();  // the client was told so, even where the end began meanwhile
    if (is_whole_ && buffer_.size() == 0) return close();
    linger();
  }

  /// Reads on for a while: closing with bytes unread would take the answer away from a client that still sends.
  void linger() {
    state_ = State::closing;
    Code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    buffer_.clear();
    expire_after(lingering_seconds, &Session::close);
    discard(0);
  }

  void discard(size_t so_far) {
    socket_.async_read_some(buffer_.prepare(16 * read_at_once),
                            [self = shared_from_this(), so_far](Code error, size_t bytes) {
                              if (error || so_far + bytes > most_lingering_bytes) return self->close();
                              self->discard(so_far + bytes);
                            });
  }

  void record(int status) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    server_.handler.record({.method = method_,
                            .path = path_,
                            .id = id_,
                            .client = client_,
                            .status = status,
                            .seconds = seconds,
                            .is_whole = is_whole_,
                            .served = std::move(served_)});
    served_ = {};
  }

  Implementation& server_;
  tcp::socket socket_;
  net::steady_timer timer_, deadline_;  // of what it is at, and of the whole answer
  beast::flat_buffer buffer_;
  std::shared_ptr<BodyShare> room_;  // of the body that is received
  std::optional<http::request_parser<http::string_body>> parser_;
  const std::string peer_;  // the address that it came from
  State state_ = State::waiting;
  uint64_t timeouts_ = 0;  // the last is the one that counts

  // Of the request that is under way:
  uint64_t exchange_ = 0;
  std::shared_ptr<HttpTask> task_;
  std::chrono::steady_clock::time_point began_;
  std::string client_, method_, path_, id_, content_type_, api_key_;
  Served served_;
  unsigned version_ = 11;
  uint64_t received_bytes_ = 0;
  int status_ = 0;
  bool keep_alive_ = false, wants_keep_alive_ = false, is_head_ = false, is_whole_ = false, timed_out_ = false,
       is_watching_ = false;
  bool streams_ = false, is_writing_ = false, ended_ = false;
  std::deque<std::string> parts_;  // of an answer that comes in parts, until they are written
};

/// Takes answers to the server's thread. It may outlive the server.
class HttpServer::Implementation::Reply : public HttpReply {
 public:
  Reply(std::shared_ptr<net::io_context> io, const std::shared_ptr<Session>& session, uint64_t exchange)
      : io_(std::move(io)), session_(session), exchange_(exchange) {}

  void send(HttpResponse response, Served served) override {
    tell([response = std::move(response), served = std::move(served)](Session& session, uint64_t exchange) mutable {
      session.answer(exchange, std::move(response), std::move(served));
    });
  }
  void begin(HttpResponse head) override {
    tell([head = std::move(head)](Session& session, uint64_t exchange) { session.begin(exchange, head); });
  }
  void write(std::string part) override {
    tell([part = std::move(part)](Session& session, uint64_t exchange) { session.write(exchange, part); });
  }
  void end(Served served) override {
    tell([served = std::move(served)](Session& session, uint64_t exchange) mutable {
      session.end(exchange, std::move(served));
    });
  }

 private:
  template <class Then>
  void tell(Then then) {
    net::dispatch(*io_, [session = session_, exchange = exchange_, then = std::move(then)]() mutable {
      if (const auto still_there = session.lock()) then(*still_there, exchange);
    });
  }

  std::shared_ptr<net::io_context> io_;
  std::weak_ptr<Session> session_;
  uint64_t exchange_;
};

std::shared_ptr<HttpReply> HttpServer::Implementation::Session::reply() {
  return std::make_shared<Reply>(server_.io, shared_from_this(), exchange_);
}

HttpServer::Implementation::Implementation(const ServingSettings& wanted, HttpHandler& given)
    : settings(wanted), handler(given) {
  const int64_t wanted_files = settings.max_connections + most_refused + other_files;
  const int64_t files = open_files(wanted_files);
  const int64_t refused = files < wanted_files ? std::min(most_refused, files / 8) : most_refused;
  refused_at_most = static_cast<size_t>(refused);
  connections_at_most =
      static_cast<size_t>(std::clamp<int64_t>(files - refused - other_files, 1, settings.max_connections));

  Code error;
  const auto address = net::ip::make_address(settings.host == "localhost" ? "127.0.0.1" : settings.host, error);
  if (error) throw Error("serving.host", in_quotes(settings.host) + " is no address", "write, for instance, 127.0.0.1");
  const tcp::endpoint endpoint(address, static_cast<uint16_t>(settings.port));
  const auto check = [&](const char* what) {
    if (error) {
      throw Failure(fmt::format("{}:{}", settings.host, settings.port),
                    fmt::format("cannot {}: {}", what, error.message()), "choose another --port or --host");
    }
  };
  acceptor.open(endpoint.protocol(), error);
  check("make a socket");
  acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  acceptor.bind(endpoint, error);
  check("listen there");
  acceptor.listen(net::socket_base::max_listen_connections, error);
  check("listen there");
}

void HttpServer::Implementation::accept() {
  is_accepting = true;
  acceptor.async_accept([this](Code error, tcp::socket socket) {
    is_accepting = false;
    // One that was accepted just before the end began is heard, too.
    if (!error) accepted(std::move(socket));
    if (!acceptor.is_open()) return;
    if (!error) return accept();
    // Descriptors or memory have run out, which passes.
    accept_again.expires_after(std::chrono::milliseconds(100));
    accept_again.async_wait([this](Code cancelled) {
      if (!cancelled && acceptor.is_open()) accept();
    });
  });
}

void HttpServer::Implementation::accepted(tcp::socket socket) {
  Code error;
  const auto peer = socket.remote_endpoint(error);
  if (error) return;  // it left already
  socket.set_option(tcp::no_delay(true), error);
  if (sessions.size() >= connections_at_most + refused_at_most) return;
  const auto session = std::make_shared<Session>(*this, std::move(socket), peer.address().to_string());
  sessions.insert(session);
  connections = sessions.size();
  sessions.size() > connections_at_most ? session->refuse() : session->start();
}

/// Those that are in the kernel's queue: their clients take them for accepted.
void HttpServer::Implementation::accept_waiting() {
  Code error;
  acceptor.non_blocking(true, error);
  while (!error) {
    tcp::socket socket(*io);
    acceptor.accept(socket, error);
    if (!error) accepted(std::move(socket));
  }
}

void HttpServer::Implementation::drain() {
  if (std::exchange(draining, true)) return;
  accept_waiting();
  Code ignored;
  acceptor.close(ignored);
  accept_again.cancel();
  const auto open = sessions;  // which closing changes
  for (const auto& session : open) session->drain();
  drain_end.expires_after(duration_of(settings.drain_seconds));
  drain_end.async_wait([this](Code cancelled) {
    if (!cancelled) close_all();
  });
}

void HttpServer::Implementation::close_all() {
  const auto open = sessions;
  for (const auto& session : open) session->give_up();
}

HttpServer::HttpServer(const ServingSettings& settings, HttpHandler& handler)
    : implementation_(std::make_unique<Implementation>(settings, handler)) {}

HttpServer::~HttpServer() {
  auto& self = *implementation_;
  // What waits in it holds sessions, which hold tasks.
  const auto open = std::move(self.sessions);
  self.sessions.clear();
  for (const auto& session : open) session->close();
  self.io->stop();
}

std::string HttpServer::address() const {
  Code error;
  const auto endpoint = implementation_->acceptor.local_endpoint(error);
  const bool is_v6 = endpoint.address().is_v6();
  return fmt::format("{}{}{}:{}", is_v6 ? "[" : "", endpoint.address().to_string(), is_v6 ? "]" : "", endpoint.port());
}

void HttpServer::run() {
  auto& self = *implementation_;
  self.accept();
  while (self.acceptor.is_open() || self.is_accepting || !self.sessions.empty()) {
    if (self.io->run_one() == 0) break;
  }
}

void HttpServer::drain() {
  net::post(*implementation_->io, [this] { implementation_->drain(); });
}

void HttpServer::stop() {
  implementation_->io->stop();
}

size_t HttpServer::connections() const {
  return implementation_->connections;
}

size_t HttpServer::connections_at_most() const {
  return implementation_->connections_at_most;
}

}  // namespace transformer
