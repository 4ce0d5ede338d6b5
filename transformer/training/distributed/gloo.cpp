#include "transformer/training/distributed/gloo.h"

// The wheel's Gloo part is only declared where this is set.
#define USE_C10D_GLOO
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "transformer/base/error.h"
#include "transformer/training/distributed/clock.h"
#include "transformer/training/distributed/message_of.h"

namespace transformer {

namespace {

constexpr const char* interface_variable = "GLOO_SOCKET_IFNAME";

std::string address_text(const sockaddr* address) {
  char text[NI_MAXHOST] = "";
  const socklen_t length = address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

// The address that this machine has towards `host`; "" where there is no way.
std::string address_towards(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;  // connecting one sends nothing
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return "";
  std::string result;
  for (const addrinfo* entry = found; entry && result.empty(); entry = entry->ai_next) {
    const int descriptor = socket(entry->ai_family, entry->ai_socktype, entry->ai_protocol);
    if (descriptor < 0) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    auto* generic = reinterpret_cast<sockaddr*>(&own);
    if (connect(descriptor, entry->ai_addr, entry->ai_addrlen) == 0 && getsockname(descriptor, generic, &length) == 0) {
      result = address_text(generic);
    }
    close(descriptor);
  }
  freeaddrinfo(found);
  return result;
}

// The first address of this machine that others can reach; "" for none.
std::string outward_address() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string result;
  for (const ifaddrs* entry = all; entry && result.empty(); entry = entry->ifa_next) {
    const bool up = entry->ifa_flags & IFF_UP && entry->ifa_flags & IFF_RUNNING && !(entry->ifa_flags & IFF_LOOPBACK);
    if (up && entry->ifa_addr && entry->ifa_addr->sa_family == AF_INET) result = address_text(entry->ifa_addr);
  }
  freeifaddrs(all);
  return result;
}

std::vector<std::string> interface_names() {
  std::vector<std::string> names;
  auto* const all = if_nameindex();
  for (const auto* entry = all; entry && entry->if_index != 0; ++entry) names.emplace_back(entry->if_name);
  if (all) if_freenameindex(all);
  return names;
}

// The interface that the user wants, as LibTorch reads it: the first of a list. Empty: none.
std::string wanted_interface() {
  const char* given = std::getenv(interface_variable);
  const std::string list = given ? given : "";
  return list.substr(0, list.find(','));
}

std::shared_ptr<gloo::transport::Device> device_of_interface(const std::string& interface) {
  try {
    return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
  } catch (const std::exception& error) {
    const auto names = interface_names();
    if (std::find(names.begin(), names.end(), interface) != names.end()) {
      throw Error(interface_variable,
                  fmt::format("is '{}', an interface that Gloo cannot use ({})", interface, message_of(error)));
    }
    throw Error(interface_variable, fmt::format("is '{}', and this machine has no such interface (it has {})",
                                                interface, fmt::join(names, ", ")));
  }
}

std::shared_ptr<gloo::transport::Device> gloo_device(const Launch& launch) {
  using Gloo = c10d::ProcessGroupGloo;
  if (const auto interface = wanted_interface(); !interface.empty()) return device_of_interface(interface);
  if (launch.on_one_machine()) return Gloo::createDeviceForHostname(loopback);
  // Resolving this machine's own name, as Gloo would, often gives a loopback address.
  auto address = address_towards(launch.address, launch.port);
  if (address.empty() || is_loopback(address)) address = outward_address();
  if (address.empty()) {
    throw Error(interface_variable, "no network interface was found that other machines can reach",
                "set it to the interface's name");
  }
  return Gloo::createDeviceForHostname(address);
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> open_gloo(const StorePointer& store, const Launch& launch, double timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(milliseconds(timeout));
  options->devices.push_back(gloo_device(launch));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, launch.rank, launch.world_size, options);
}

}  // namespace transformer
