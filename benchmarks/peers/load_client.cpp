// Clients for scripts/bench serve that take next to nothing of a processor that they share with the server they ask:
// load_client PORT CLIENTS REQUESTS ANSWERS. REQUESTS holds whole HTTP requests, each behind a line with its number of
// bytes. Every one is asked once, in order, on CLIENTS connections that stay open, each of which waits for its answer
// before it asks again. Prints the seconds that it took; ANSWERS gets, for each as it came, a line "NUMBER STATUS
// SECONDS BYTES" and the body.

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "transformer/base/number.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void check(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

struct Client {
  int socket = -1;
  size_t request = 0;
  Clock::time_point asked;
  std::string received;
};

int connected(uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  check(socket >= 0 && ::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "cannot connect");
  const int yes = 1;
  check(::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) == 0, "TCP_NODELAY");
  return socket;
}

void send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    check(sent > 0, "cannot send");
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

/// The value of `name` in the head of an answer.
size_t number_after(std::string_view head, std::string_view name) {
  const size_t at = head.find(name);
  check(at != std::string_view::npos, "an answer without its length");
  return std::stoul(std::string(head.substr(at + name.size(), 20)));
}

void run(uint16_t port, size_t clients, const std::string& requests_file, const std::string& answers_file) {
  std::vector<std::string> requests;
  std::ifstream in(requests_file, std::ios::binary);
  for (std::string length; std::getline(in, length);) {
    check(static_cast<bool>(in.read(requests.emplace_back(std::stoul(length), '\0').data(), std::stol(length))),
          "requests that end early");
  }
  std::string answers;
  std::vector<Client> asking(clients);
  std::vector<pollfd> polled(clients);
  for (size_t i = 0; i < clients; ++i) polled[i] = {asking[i].socket = connected(port), POLLIN, 0};
  size_t next = 0, open = 0;
  const auto ask = [&](size_t i) {
    auto& client = asking[i];
    if (next == requests.size()) {
      polled[i].fd = -1;
      return false;
    }
    client.request = next++;
    client.asked = Clock::now();
    send_all(client.socket, requests[client.request]);
    return true;
  };
  const auto start = Clock::now();
  for (size_t i = 0; i < clients; ++i) open += ask(i) ? 1 : 0;
  while (open > 0) {
    check(::poll(polled.data(), polled.size(), 60'000) > 0, "no answer within a minute");
    for (size_t i = 0; i < clients; ++i) {
      if (!polled[i].revents) continue;
      auto& client = asking[i];
      char buffer[65536];
      const auto count = ::recv(client.socket, buffer, sizeof buffer, 0);
      check(count > 0, "a connection ended without its answer");
      client.received.append(buffer, static_cast<size_t>(count));
      const size_t blank = client.received.find("\r\n\r\n");
      if (blank == std::string::npos) continue;
      const std::string_view head = std::string_view(client.received).substr(0, blank);
      const size_t length = number_after(head, "Content-Length: ");
      if (client.received.size() < blank + 4 + length) continue;
      answers += fmt::format("{} {} {} {}\n", client.request, head.substr(9, 3), seconds_since(client.asked), length);
      answers.append(client.received, blank + 4, length);
      client.received.clear();
      open -= ask(i) ? 0 : 1;
    }
  }
  const double seconds = seconds_since(start);
  for (const auto& client : asking) ::close(client.socket);
  std::ofstream out(answers_file, std::ios::binary);
  check(static_cast<bool>(out.write(answers.data(), static_cast<std::streamsize>(answers.size())).flush()),
        "answers cannot be written");
  fmt::print("{}\n", seconds);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto number = [&](int i) { return argc == 5 ? transformer::number_in<uint16_t>(argv[i]).value_or(0) : 0; };
    const int port = number(1), clients = number(2);
    check(port > 0 && clients > 0, "wants PORT CLIENTS REQUESTS ANSWERS");
    run(static_cast<uint16_t>(port), static_cast<size_t>(clients), argv[3], argv[4]);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "load_client: {}\n", error.what());
    return 2;
  }
}
