#include "transformer/training/distributed/communicator.h"

// The wheel's Gloo part is only declared where this is set.
#define USE_C10D_GLOO
#include <ATen/core/functional.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <torch/csrc/autograd/function.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>
#include <new>
#include <optional>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_set>

#include "transformer/base/checksum.h"
#include "transformer/base/error.h"

namespace transformer {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

double seconds_since(Clock::time_point time) {
  return std::chrono::duration<double>(Clock::now() - time).count();
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(std::max<int64_t>(1, static_cast<int64_t>(seconds * 1000)));
}

// What an exception says, without the pages of context that LibTorch appends.
std::string message_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error)) return "out of memory";
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

// --- What ranks know of each other --------------------------------------------------------------------------------

// What a rank says of itself; one value in the store, replaced by its monitor all the time.
struct State {
  enum class Phase : char { running = 'r', left = 'l', failed = 'f' };

  int64_t beat = 0;      // grows as long as the process lives
  int64_t entered = 0;   // operations of all ranks that it has begun, each bucket of gradients one of them
  int64_t sections = 0;  // rank 0: calls of on_rank_0 that have ended
  Phase phase = Phase::running;
  int origin = -1;     // failed: the rank at fault, which may be another; -1: unknown
  std::string reason;  // failed: a sentence that begins with whose fault it is

  std::vector<uint8_t> bytes() const {
    const auto text =
        fmt::format("{} {} {} {} {} {}", beat, entered, sections, static_cast<char>(phase), origin, reason);
    return {text.begin(), text.end()};
  }

  static State read(const std::vector<uint8_t>& bytes) {
    std::istringstream text(std::string(bytes.begin(), bytes.end()));
    State state;
    char phase = 'r';
    text >> state.beat >> state.entered >> state.sections >> phase >> state.origin;
    state.phase = static_cast<Phase>(phase);
    text.get();
    std::getline(text, state.reason, '\0');
    return state;
  }
};

std::string state_key(int rank) {
  return fmt::format("state/{}", rank);
}

StorePointer with_prefix(const StorePointer& store, const Launch& launch) {
  return c10::make_intrusive<c10d::PrefixStore>(fmt::format("transformer/{}", launch.run), store);
}

// Writes this rank's state into the store and reads the others', again and again, in a thread with a connection of its
// own. Only this thread waits for the store, which may be as dead as the process that holds it.
class Monitor : public std::enable_shared_from_this<Monitor> {
 public:
  Monitor(StorePointer store, const Launch& launch, double timeout, bool end_process)
      : store_(std::move(store)),
        launch_(launch),
        timeout_(timeout),
        interval_(std::clamp(timeout / 20, 0.1, 1.0)),
        // A busy machine may hold the thread up for a while.
        silence_(std::max(2.0, 5 * interval_)),
        end_process_(end_process),
        peers_(launch.world_size) {
    for (int rank = 0; rank < launch.world_size; ++rank) keys_.push_back(state_key(rank));
    for (auto& peer : peers_) peer.changed = Clock::now();
    contact_ = Clock::now();
  }

  void start() {
    thread_ = std::thread([self = shared_from_this()] { self->run(); });
  }

  /// Ends the thread, or leaves it behind where the store holds it for good.
  void stop() {
    {
      std::unique_lock lock(mutex_);
      stop_ = true;
      wake_.notify_all();
      heard_.wait_for(lock, milliseconds(silence_), [&] { return ended_; });
      if (!ended_) {
        thread_.detach();
        return;
      }
    }
    thread_.join();
  }

  void enter() {
    const std::lock_guard lock(mutex_);
    ++own_.entered;
  }

  void end_section() {
    say([](State& state) { ++state.sections; });
  }

  /// Tells the others why this rank ends; the first reason counts.
  void fail(int origin, const std::string& reason) {
    say([&](State& state) {
      if (state.phase != State::Phase::running) return;
      state.phase = State::Phase::failed;
      state.origin = origin;
      state.reason = reason;
    });
  }

  void leave() {
    say([](State& state) {
      if (state.phase == State::Phase::running) state.phase = State::Phase::left;
    });
  }

  /// Throws Failure if another rank has failed, or been silent for the whole time limit.
  void check() {
    std::unique_lock lock(mutex_);
    if (const auto fault = find_fault(timeout_)) give_up(lock, *fault);
  }

  /// Waits until rank 0 has ended `count` sections.
  void wait_for_section(int64_t count) {
    std::unique_lock lock(mutex_);
    ++waiting_;
    wake_.notify_all();
    for (;;) {
      if (peers_[0].state.sections >= count) break;
      auto fault = find_fault(timeout_);
      if (!fault && peers_[0].state.phase == State::Phase::left) fault = early_end(0);
      if (fault) {
        --waiting_;
        give_up(lock, *fault);
      }
      heard_.wait_for(lock, milliseconds(interval_));
    }
    --waiting_;
  }

  /// Finds out which rank is to blame for an operation that failed here, and throws a Failure that says so.
  [[noreturn]] void explain(const std::string& error) {
    std::unique_lock lock(mutex_);
    ++waiting_;
    wake_.notify_all();
    const auto begun = Clock::now();
    std::optional<Fault> fault;
    // Who died without a word is known by its silence.
    while (!(fault = find_fault(silence_)) && seconds_since(begun) < 1.5 * silence_) {
      heard_.wait_for(lock, milliseconds(interval_));
    }
    for (int rank = 0; rank < launch_.world_size && !fault; ++rank) {
      if (rank != launch_.rank && peers_[rank].state.phase == State::Phase::left) fault = early_end(rank);
    }
    if (!fault) {
      int last = launch_.rank;
      auto entered = [&](int rank) { return rank == launch_.rank ? own_.entered : peers_[rank].state.entered; };
      for (int rank = 0; rank < launch_.world_size; ++rank) {
        if (entered(rank) < entered(last)) last = rank;
      }
      fault = last == launch_.rank
                  ? Fault{-1, fmt::format("an operation with the other ranks failed ({})", error)}
                  : Fault{last, fmt::format("rank {} did not come to an operation of all ranks within {:g} s, although "
                                            "its process is alive",
                                            last, timeout_)};
    }
    --waiting_;
    give_up(lock, *fault);
  }

  /// For the process that holds the store: waits until all others have said that they go, or said nothing for long.
  void wait_for_others(double limit) {
    std::unique_lock lock(mutex_);
    ++waiting_;
    wake_.notify_all();
    const auto begun = Clock::now();
    auto gone = [&](int rank) {
      return rank == launch_.rank || peers_[rank].state.phase != State::Phase::running ||
             seconds_since(peers_[rank].changed) > silence_;
    };
    auto all_gone = [&] {
      for (int rank = 0; rank < launch_.world_size; ++rank) {
        if (!gone(rank)) return false;
      }
      return true;
    };
    while (!ended_ && !all_gone() && seconds_since(begun) < limit) heard_.wait_for(lock, milliseconds(interval_));
    --waiting_;
    lock.unlock();
    // What they said may still be on its way through their last exchange with the store.
    std::this_thread::sleep_for(milliseconds(0.1));
  }

  double silence() const { return silence_; }

 private:
  struct Peer {
    State state;
    Clock::time_point changed;
  };
  struct Fault {
    int origin;
    std::string reason;
  };

  // Changes the own state and waits, for a while, until it is in the store.
  template <class Change>
  void say(Change change) {
    std::unique_lock lock(mutex_);
    change(own_);
    const auto wanted = ++changes_;
    wake_.notify_all();
    // Not for a store that has stopped answering.
    const double patience = silence_ - seconds_since(contact_);
    heard_.wait_for(lock, milliseconds(patience), [&] { return ended_ || said_ >= wanted; });
  }

  static Fault early_end(int rank) { return {rank, fmt::format("rank {} ended before the others", rank)}; }

  // Who has failed, as far as is known; a rank that has come to its end has not. What a rank says of itself comes
  // before what others say of it.
  std::optional<Fault> find_fault(double silence) const {
    std::optional<Fault> fault;
    for (int rank = 0; rank < launch_.world_size; ++rank) {
      const auto& state = peers_[rank].state;
      if (rank == launch_.rank || state.phase != State::Phase::failed) continue;
      if (state.origin == rank) return Fault{rank, state.reason};
      // Itself cannot be the one that it is waiting for.
      if (!fault && state.origin != launch_.rank) fault = {state.origin, state.reason};
    }
    if (fault) return fault;
    const double without_store = seconds_since(contact_);
    if (ended_ || without_store > silence) {
      // Rank 0 ends last and says so; when its store goes without a word, it went the same way.
      if (!launch_.agent_store) {
        return Fault{0, fmt::format("rank 0, which holds the store, has given no sign of life for {:.0f} s",
                                    std::max(without_store, interval_))};
      }
      return Fault{-1, fmt::format("{}, which holds the store at {}:{}, cannot be reached any more",
                                   launcher_name(launch_.launcher), launch_.address, launch_.port)};
    }
    int quietest = -1;
    for (int rank = 0; rank < launch_.world_size; ++rank) {
      if (rank == launch_.rank || peers_[rank].state.phase == State::Phase::left) continue;
      if (seconds_since(peers_[rank].changed) <= silence) continue;
      if (quietest < 0 || peers_[rank].changed < peers_[quietest].changed) quietest = rank;
    }
    if (quietest < 0) return std::nullopt;
    return Fault{quietest, fmt::format("rank {} has given no sign of life for {:.0f} s", quietest,
                                       seconds_since(peers_[quietest].changed))};
  }

  [[noreturn]] void give_up(std::unique_lock<std::mutex>& lock, const Fault& fault) {
    lock.unlock();
    fail(fault.origin, fault.reason);
    throw Failure(fmt::format("rank {}", launch_.rank), fmt::format("stopped, because {}", fault.reason));
  }

  void run() {
    try {
      std::unique_lock lock(mutex_);
      while (!stop_) {
        ++own_.beat;
        const auto bytes = own_.bytes();
        const auto saying = changes_;
        lock.unlock();
        store_->set(state_key(launch_.rank), bytes);
        const auto values = store_->multiGet(keys_);
        lock.lock();
        said_ = saying;
        contact_ = Clock::now();
        for (int rank = 0; rank < launch_.world_size; ++rank) {
          auto state = State::read(values[rank]);
          if (state.beat == peers_[rank].state.beat && state.phase == peers_[rank].state.phase) continue;
          peers_[rank] = {std::move(state), contact_};
        }
        heard_.notify_all();
        end_process_if_stuck();
        const double pause = waiting_ > 0 ? std::min(interval_, 0.02) : interval_;
        wake_.wait_for(lock, milliseconds(pause), [&] { return stop_ || changes_ != said_; });
      }
    } catch (const std::exception&) {  // the store is gone; find_fault knows whose that is
    }
    std::unique_lock lock(mutex_);
    ended_ = true;
    heard_.notify_all();
    // Where the main thread may be stuck, this one goes on watching until it is told to stop.
    while (end_process_ && !stop_) {
      end_process_if_stuck();
      wake_.wait_for(lock, milliseconds(interval_));
    }
  }

  // On a GPU nothing wakes a main thread that waits for a sum which a dead rank will never complete.
  void end_process_if_stuck() {
    if (!end_process_ || own_.phase != State::Phase::running) return;
    const auto fault = find_fault(timeout_);
    if (!fault) {
      fault_found_.reset();
      return;
    }
    if (!fault_found_) fault_found_ = Clock::now();
    if (seconds_since(*fault_found_) < 2 * silence_) return;  // time for it to find out by itself
    std::fputs(fmt::format("rank {}: stopped, because {}\n", launch_.rank, fault->reason).c_str(), stderr);
    std::fflush(stderr);
    _exit(1);
  }

  const StorePointer store_;
  const Launch launch_;
  const double timeout_, interval_, silence_;
  const bool end_process_;
  std::vector<std::string> keys_;

  std::mutex mutex_;
  std::condition_variable wake_;   // for the thread: something to say
  std::condition_variable heard_;  // for the others: something was heard
  State own_;
  std::vector<Peer> peers_;
  Clock::time_point contact_;  // last time the store answered
  std::optional<Clock::time_point> fault_found_;
  uint64_t changes_ = 0, said_ = 0;
  int waiting_ = 0;
  bool stop_ = false, ended_ = false;
  std::thread thread_;
};

// --- Opening ------------------------------------------------------------------------------------------------------

StorePointer open_store(const Launch& launch, double timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(launch.port);
  options.isServer = launch.rank == 0 && !launch.agent_store;
  options.waitWorkers = false;
  options.timeout = milliseconds(timeout);
  const auto place = fmt::format("{}:{}", launch.address, launch.port);
  try {
    return c10::make_intrusive<c10d::TCPStore>(launch.address, options);
  } catch (const std::exception& error) {
    const auto reason = message_of(error);
    if (options.isServer) {
      throw Error("MASTER_PORT", fmt::format("rank 0 cannot open port {} ({})", launch.port, reason),
                  "choose a port that is free on its machine");
    }
    throw Failure(fmt::format("rank {}", launch.rank),
                  fmt::format("cannot reach {} at {} within {:g} s ({})",
                              launch.agent_store ? launcher_name(launch.launcher) : "rank 0", place, timeout, reason));
  }
}

// Comes to the store and waits for all others to do so.
void meet(const StorePointer& store, const Launch& launch, double timeout) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < launch.world_size; ++rank) keys.push_back(state_key(rank));
  store->set(state_key(launch.rank), State().bytes());
  try {
    store->wait(keys, milliseconds(timeout));
  } catch (const std::exception& error) {
    std::string missing;
    int count = 0;
    for (int rank = 0; rank < launch.world_size; ++rank) {
      if (store->check({state_key(rank)})) continue;
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
      ++count;
    }
    if (count == 0) throw Failure(fmt::format("rank {}", launch.rank), message_of(error));
    throw Failure(fmt::format("rank {}", launch.rank),
                  fmt::format("{} {} of {} did not come to {}:{} within {:g} s", count == 1 ? "rank" : "ranks", missing,
                              launch.world_size, launch.address, launch.port, timeout));
  }
}

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

std::shared_ptr<gloo::transport::Device> gloo_device(const Launch& launch) {
  using Gloo = c10d::ProcessGroupGloo;
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME")) return Gloo::createDeviceForInterface(interface);
  if (launch.on_one_machine()) return Gloo::createDeviceForHostname("127.0.0.1");
  // Resolving this machine's own name, as Gloo would, often gives a loopback address.
  auto address = address_towards(launch.address, launch.port);
  if (address.empty() || is_loopback(address)) address = outward_address();
  if (address.empty()) {
    throw Error("GLOO_SOCKET_IFNAME", "no network interface was found that other machines can reach",
                "set it to the interface's name");
  }
  return Gloo::createDeviceForHostname(address);
}

constexpr const char* nccl = "backend 'nccl'";
constexpr const char* nccl_module = "transformer_nccl.so";

// The NCCL module, which lies beside this code (or the program it is linked into), or in the lib folder next to it.
void* load_nccl_module() {
  std::vector<std::string> candidates;
  Dl_info own;
  std::error_code ignored;
  if (dladdr(reinterpret_cast<const void*>(&load_nccl_module), &own) && own.dli_fname) {
    auto file = fs::weakly_canonical(own.dli_fname, ignored);
    if (const auto program = fs::read_symlink("/proc/self/exe", ignored); !fs::exists(file, ignored)) file = program;
    candidates.push_back((file.parent_path() / nccl_module).string());
    candidates.push_back((file.parent_path().parent_path() / "lib" / nccl_module).string());
  }
  candidates.emplace_back(nccl_module);  // where the loader looks
  std::string there;                     // why the first one that is there cannot be loaded
  for (const auto& candidate : candidates) {
    if (void* module = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL)) return module;
    const char* text = dlerror();
    const std::string reason = text ? text : "for no stated reason";
    // The loader says this of a file that is not there, but also of one that the file needs.
    const bool missing = reason.starts_with(candidate + ": ") && reason.ends_with(std::strerror(ENOENT));
    if (!missing && there.empty()) there = reason;
  }
  if (there.empty()) {
    throw Error(nccl,
                fmt::format("there is no {} in {}", nccl_module, fs::path(candidates.front()).parent_path().string()),
                "build with CUDA's headers and a LibTorch for CUDA (scripts/setup brings both), or use the backend "
                "'gloo'");
  }
  throw Error(nccl, fmt::format("its module is there, but cannot be loaded ({})", there),
              "install the LibTorch for CUDA that it was built with, or build it again with the one that is installed");
}

c10::intrusive_ptr<c10d::Backend> open_nccl(const StorePointer& store, const Launch& launch, double timeout) {
  void* module = load_nccl_module();
  using Open = c10d::Backend*(c10d::Store*, int, int, int64_t);
  auto* open = reinterpret_cast<Open*>(dlsym(module, "transformer_open_nccl"));
  if (!open) throw Error(nccl, fmt::format("{} belongs to another version", nccl_module), "build it again");
  try {
    return c10::intrusive_ptr<c10d::Backend>::reclaim(
        open(store.get(), launch.rank, launch.world_size, milliseconds(timeout).count()));
  } catch (const std::exception& error) {
    throw Error(nccl, fmt::format("NCCL itself refuses ({})", message_of(error)),
                "it needs a GPU and a driver, as nvidia-smi shows them: where there is none, use the backend 'gloo'");
  }
}

// A node of the autograd graph that gives no gradient to any parameter: what a rank without a micro-batch goes backward
// through. c10d's hooks on the parameters run all the same, and take a missing gradient for zeros.
struct NoGradients : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    return torch::autograd::variable_list(num_outputs());
  }
};

at::Tensor loss_of_nothing(const std::vector<at::Tensor>& parameters) {
  auto node = std::make_shared<NoGradients>();
  node->set_next_edges(torch::autograd::collect_next_edges(parameters));
  auto loss = at::zeros({}, parameters.front().options().requires_grad(false));
  torch::autograd::create_gradient_edge(loss, std::move(node));
  return loss;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

struct Difference {
  int rank;
  std::string there, here;  // lines of `rank` and of rank 0; empty: none
};

std::optional<Difference> first_difference(const std::vector<std::string>& texts) {
  const auto expected = lines_of(texts.front());
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    const auto lines = lines_of(texts[rank]);
    for (size_t i = 0; i < std::max(lines.size(), expected.size()); ++i) {
      const auto there = i < lines.size() ? lines[i] : "", here = i < expected.size() ? expected[i] : "";
      if (there != here) return Difference{static_cast<int>(rank), there, here};
    }
  }
  return std::nullopt;
}

}  // namespace

// --- Communicator -------------------------------------------------------------------------------------------------

struct Communicator::Impl {
  Impl(const Launch& given, const Options& given_options)
      : launch(given), options(given_options), exceptions(std::uncaught_exceptions()) {
    if (!launch.distributed()) return;
    const double timeout = options.timeout_seconds;
    store = open_store(launch, timeout);
    const auto own_store = with_prefix(store, launch);
    meet(own_store, launch, timeout);
    monitor = std::make_shared<Monitor>(with_prefix(store->clone(), launch), launch, timeout,
                                        options.backend == Backend::nccl);
    monitor->start();
    try {
      open_group(c10::make_intrusive<c10d::PrefixStore>("group", own_store));
    } catch (const std::exception& error) {
      end(true, message_of(error));
      throw;
    }
  }

  void open_group(const StorePointer& group_store) {
    talk([&] {
      using c10d::ProcessGroup;
      auto gloo_options = c10d::ProcessGroupGloo::Options::create(milliseconds(options.timeout_seconds));
      gloo_options->devices.push_back(gloo_device(launch));
      const c10::intrusive_ptr<c10d::Backend> gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
          c10::make_intrusive<c10d::PrefixStore>("gloo", group_store), launch.rank, launch.world_size, gloo_options);
      group = c10::make_intrusive<ProcessGroup>(group_store, launch.rank, launch.world_size);
      group->setBackend(c10::kCPU, ProcessGroup::BackendType::GLOO, gloo);
      if (options.backend == Backend::nccl) {
        group->setBackend(
            c10::kCUDA, ProcessGroup::BackendType::NCCL,
            open_nccl(c10::make_intrusive<c10d::PrefixStore>("nccl", group_store), launch, options.timeout_seconds));
        group->setDefaultBackend(ProcessGroup::BackendType::NCCL);
      } else {
        group->setBackend(c10::kCUDA, ProcessGroup::BackendType::GLOO, gloo);
        group->setDefaultBackend(ProcessGroup::BackendType::GLOO);
      }
    });
  }

  // Runs an operation of all ranks. Whatever goes wrong in it has to do with another rank; the monitor knows which.
  template <class Operation>
  void talk(Operation operation) {
    monitor->enter();
    try {
      operation();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      broken = true;
      monitor->explain(message_of(error));
    }
  }

  void wait(const c10::intrusive_ptr<c10d::Work>& work) const {
    if (!work->wait()) throw std::runtime_error("the operation was aborted");
  }

  void sum(at::Tensor tensor) const {
    std::vector<at::Tensor> tensors{std::move(tensor)};
    wait(group->allreduce(tensors));
  }

  /// Every rank's `text`.
  std::vector<std::string> gather(const std::string& text) {
    const int64_t size = launch.world_size;
    auto lengths = at::zeros({size}, at::kLong);
    lengths[launch.rank] = static_cast<int64_t>(text.size());
    at::Tensor bytes;
    talk([&] {
      sum(lengths);
      bytes = at::zeros({size, std::max<int64_t>(1, lengths.max().item<int64_t>())}, at::kByte);
      std::copy(text.begin(), text.end(), bytes[launch.rank].data_ptr<uint8_t>());
      sum(bytes);
    });
    std::vector<std::string> texts;
    for (int64_t rank = 0; rank < size; ++rank) {
      const auto* data = reinterpret_cast<const char*>(bytes[rank].data_ptr<uint8_t>());
      texts.emplace_back(data, lengths[rank].item<int64_t>());
    }
    return texts;
  }

  void tell(const std::string& message) {
    if (monitor) monitor->fail(launch.rank, fmt::format("rank {} failed: {}", launch.rank, message));
  }

  void end(bool failed, const std::string& message) {
    if (!monitor) return;
    if (failed) {
      tell(message.empty() ? "an exception" : message);
    } else {
      monitor->leave();
    }
    if (launch.rank == 0 && !launch.agent_store) {
      monitor->wait_for_others(failed ? 2 * monitor->silence() : options.timeout_seconds);
    }
    monitor->stop();
    monitor.reset();
    // After a failure, Gloo's threads may wait for a dead rank until the time limit; this process is about to end.
    if (broken) {
      static_cast<void>(group.release());
      static_cast<void>(store.release());
    }
  }

  ~Impl() { end(broken || std::uncaught_exceptions() > exceptions, ""); }

  const Launch launch;
  const Options options;
  const int exceptions;  // in flight at the construction
  StorePointer store;
  std::shared_ptr<Monitor> monitor;  // none: a single process
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  int64_t sections = 0;
  bool broken = false;
};

Communicator::Communicator(const Launch& launch, const Options& options)
    : impl_(std::make_unique<Impl>(launch, options)) {}
Communicator::~Communicator() = default;

int Communicator::rank() const {
  return impl_->launch.rank;
}

int Communicator::world_size() const {
  return impl_->launch.world_size;
}

int Communicator::local_world_size() const {
  return impl_->launch.local_world_size;
}

void Communicator::barrier() {
  if (!impl_->monitor) return;
  all_reduce_sum(at::zeros({1}));
}

void Communicator::broadcast(const std::vector<at::Tensor>& tensors) {
  if (!impl_->monitor || tensors.empty()) return;
  constexpr size_t at_once = 64 << 20;  // bytes copied into one message
  std::vector<at::Tensor> plain;
  for (const auto& tensor : tensors) plain.push_back(tensor.detach());
  impl_->talk([&] { c10d::broadcast_coalesced(impl_->group, plain, at_once); });
}

void Communicator::all_reduce_sum(at::Tensor tensor) {
  if (!impl_->monitor) return;
  impl_->talk([&] {
    auto plain = tensor.detach();
    auto dense = plain.contiguous();
    impl_->sum(dense);
    if (!dense.is_same(plain)) plain.copy_(dense);
  });
}

bool Communicator::any(bool here) {
  auto count = at::full({1}, here ? 1 : 0, at::kLong);
  all_reduce_sum(count);
  return count.item<int64_t>() > 0;
}

void Communicator::check_same(const std::string& what, const std::string& text) {
  if (!impl_->monitor) return;
  const auto difference = first_difference(impl_->gather(text));
  if (!difference) return;
  auto quoted = [](const std::string& line) { return line.empty() ? "nothing" : fmt::format("'{}'", line); };
  throw Error(what, fmt::format("differs between processes: {} on rank 0, but {} on rank {}", quoted(difference->here),
                                quoted(difference->there), difference->rank));
}

void Communicator::on_rank_0(const std::function<void()>& work) {
  if (!impl_->monitor) return work();
  ++impl_->sections;
  if (rank() != 0) return impl_->monitor->wait_for_section(impl_->sections);
  guard(work);
  impl_->monitor->end_section();
}

void Communicator::guard(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    impl_->tell(message_of(error));
    throw;
  } catch (...) {
    impl_->tell("an unknown exception");
    throw;
  }
}

void Communicator::check() {
  if (impl_->monitor) impl_->monitor->check();
}

// --- DistributedDataParallel --------------------------------------------------------------------------------------

namespace {

// Sums buckets, and writes down when. Gradients leave unscaled: with a hook of ours, c10d does not divide them by the
// world size.
class SumBuckets : public c10d::CppCommHookInterface<c10::intrusive_ptr<c10d::ProcessGroup>> {
 public:
  struct Record {
    std::mutex mutex;
    Clock::time_point begun;
    std::vector<DistributedDataParallel::Statistics::Bucket> buckets;
    size_t bucket_count = 0;
    bool failed = false;
  };

  SumBuckets(const c10::intrusive_ptr<c10d::ProcessGroup>& group, std::shared_ptr<Monitor> monitor,
             std::shared_ptr<Record> record)
      : CppCommHookInterface(group), monitor_(std::move(monitor)), record_(std::move(record)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    monitor_->enter();
    size_t index;
    {
      const std::lock_guard lock(record_->mutex);
      index = record_->buckets.size();
      const auto now = seconds_since(record_->begun);
      record_->buckets.push_back({static_cast<int64_t>(bucket.getBuffer().nbytes()), now, now});
      record_->failed = true;  // until the call below has returned
      if (bucket.isLast()) record_->bucket_count = bucket.getIndex() + 1;
    }
    std::vector<at::Tensor> tensors{bucket.getBufferRef()};
    const auto future = state_->allreduce(tensors)->getFuture();
    {
      const std::lock_guard lock(record_->mutex);
      record_->failed = false;
    }
    // Not a callback beside the future: c10d could go on before that has run.
    return future->then(
        [record = record_, index](c10::ivalue::Future& ended) {
          {
            const std::lock_guard lock(record->mutex);
            if (index < record->buckets.size()) record->buckets[index].ended = seconds_since(record->begun);
            record->failed |= ended.hasError();
          }
          return ended.value();
        },
        future->elementType());
  }

 private:
  std::shared_ptr<Monitor> monitor_;
  std::shared_ptr<Record> record_;
};

}  // namespace

struct DistributedDataParallel::Impl {
  Impl(Communicator& given, const torch::nn::Module& module, const Options& options) : communicator(given) {
    std::string description;
    std::vector<at::Tensor> state;
    std::unordered_set<c10::TensorImpl*> seen;
    auto add = [&](const std::string& name, const at::Tensor& tensor) {
      if (!seen.insert(tensor.unsafeGetTensorImpl()).second) return false;
      description +=
          fmt::format("{} [{}] {}\n", name, fmt::join(tensor.sizes(), ", "), c10::toString(tensor.scalar_type()));
      state.push_back(tensor);
      return true;
    };
    for (const auto& item : module.named_parameters()) {
      if (!add(item.key(), item.value()) || !item.value().requires_grad()) continue;
      names.push_back(item.key());
      parameters.push_back(item.value());
    }
    for (const auto& item : module.named_buffers()) add(item.key(), item.value());
    if (parameters.empty()) throw std::invalid_argument("a module without parameters cannot be trained");
    communicator.check_same("model", description);
    communicator.broadcast(state);
    if (communicator.world_size() == 1) return;

    const auto mebibytes = [](double count) { return std::max<size_t>(1, static_cast<size_t>(count * (1 << 20))); };
    const auto first = mebibytes(options.first_bucket_mb), others = mebibytes(options.bucket_mb);
    auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(parameters, {first, others});
    // The last parameters get their gradients first.
    std::reverse(buckets.begin(), buckets.end());
    std::unordered_map<size_t, std::string> names_by_index;
    for (size_t i = 0; i < names.size(); ++i) names_by_index.emplace(i, names[i]);
    const auto& group = communicator.impl_->group;
    reducer = std::make_unique<c10d::Reducer>(
        parameters, std::move(buckets), group, std::vector<bool>(parameters.size(), false),
        static_cast<int64_t>(others), /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/true,
        std::move(names_by_index), static_cast<int64_t>(first), /*skip_all_reduce_unused_params=*/false,
        /*use_python_reducer=*/false, /*bucket_bytes_cap_list=*/std::vector<int64_t>{});
    reducer->register_comm_hook(std::make_unique<SumBuckets>(group, communicator.impl_->monitor, record));
  }

  void backward(const at::Tensor& loss) {
    const auto begin = [&] {
      const std::lock_guard lock(record->mutex);
      record->begun = Clock::now();
      record->buckets.clear();
      record->bucket_count = 0;
      record->failed = false;
    };
    // After the first step, buckets follow the order that gradients came in.
    communicator.impl_->talk([&] { reducer->rebuild_buckets(); });
    begin();
    reducer->prepare_for_backward({});
    try {
      (loss.defined() ? loss : loss_of_nothing(parameters)).backward();
    } catch (const std::exception& error) {
      const bool others = [&] {
        const std::lock_guard lock(record->mutex);
        return record->failed;
      }();
      communicator.impl_->broken = true;
      if (others) communicator.impl_->monitor->explain(message_of(error));
      throw;
    }
    const std::lock_guard lock(record->mutex);
    if (record->bucket_count == 0 || record->buckets.size() != record->bucket_count) {
      communicator.impl_->broken = true;
      for (size_t i = 0; i < parameters.size(); ++i) {
        if (!parameters[i].grad().defined()) throw Failure(names[i], "this parameter has no part in the loss");
      }
      throw Failure("model", "some parameter has no part in the loss");
    }
    statistics.buckets = record->buckets;
    statistics.computed = record->buckets.back().begun;
    statistics.summed = seconds_since(record->begun);
    statistics.collectives += static_cast<int64_t>(record->buckets.size());
    for (const auto& bucket : record->buckets) statistics.bytes += bucket.bytes;
    ++statistics.steps;
  }

  Communicator& communicator;
  std::vector<std::string> names;
  std::vector<at::Tensor> parameters;  // each once, however often it is used
  std::shared_ptr<SumBuckets::Record> record = std::make_shared<SumBuckets::Record>();
  std::unique_ptr<c10d::Reducer> reducer;  // none: a single process
  Statistics statistics;
};

DistributedDataParallel::DistributedDataParallel(Communicator& communicator, const torch::nn::Module& module,
                                                 const Options& options)
    : impl_(std::make_unique<Impl>(communicator, module, options)) {}
DistributedDataParallel::~DistributedDataParallel() = default;

void DistributedDataParallel::accumulate(const at::Tensor& loss) {
  loss.backward();
}

void DistributedDataParallel::backward(const at::Tensor& loss) {
  if (impl_->reducer) return impl_->backward(loss);
  const auto begun = Clock::now();
  if (loss.defined()) loss.backward();
  for (auto& parameter : impl_->parameters) {
    if (!parameter.grad().defined()) parameter.mutable_grad() = at::zeros_like(parameter.detach());
  }
  impl_->statistics.computed = impl_->statistics.summed = seconds_since(begun);
  ++impl_->statistics.steps;
}

void DistributedDataParallel::check_replicas() {
  if (!impl_->reducer) return;
  std::string checksums;
  for (size_t i = 0; i < impl_->names.size(); ++i) {
    const auto values = impl_->parameters[i].detach().cpu().contiguous();
    Checksum checksum;
    checksum.add(values.data_ptr(), values.nbytes());
    checksums += fmt::format("{} {}\n", impl_->names[i], checksum.text());
  }
  const auto difference = first_difference(impl_->communicator.impl_->gather(checksums));
  if (!difference) return;
  throw Failure(difference->here.substr(0, difference->here.find(' ')),
                fmt::format("rank {} holds other values than rank 0", difference->rank));
}

const DistributedDataParallel::Statistics& DistributedDataParallel::statistics() const {
  return impl_->statistics;
}

// --- StoreHost ----------------------------------------------------------------------------------------------------

struct StoreHost::Impl {
  StorePointer store;
};

StoreHost::StoreHost(const Launch& launch, int descriptor) : impl_(std::make_unique<Impl>()) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(launch.port);
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = descriptor;
  impl_->store = with_prefix(c10::make_intrusive<c10d::TCPStore>(launch.address, options), launch);
}
StoreHost::~StoreHost() = default;

void StoreHost::note_end(int rank, const std::string& how) {
  const auto key = state_key(rank);
  State state;
  if (impl_->store->check({key})) state = State::read(impl_->store->get(key));
  if (state.phase == State::Phase::failed) return;
  state.phase = State::Phase::failed;
  state.origin = rank;
  state.reason = fmt::format("rank {} {}", rank, how);
  impl_->store->set(key, state.bytes());
}

}  // namespace transformer
