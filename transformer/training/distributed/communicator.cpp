#include "transformer/training/distributed/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

#include "transformer/base/error.h"
#include "transformer/base/process.h"
#include "transformer/training/distributed/communicator_impl.h"
#include "transformer/training/distributed/gloo.h"
#include "transformer/training/distributed/nccl.h"

namespace transformer {

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

void wait(const c10::intrusive_ptr<c10d::Work>& work) {
  if (!work->wait()) throw std::runtime_error("the operation was aborted");
}

}  // namespace

Communicator::Impl::Impl(const Launch& given, const Options& given_options)
    : launch(given), options(given_options), exceptions(std::uncaught_exceptions()) {
  if (!launch.distributed()) return;
  ignore_broken_pipes();  // Gloo writes to sockets whose other end may have died
  const double timeout = options.timeout_seconds;
  store = open_store(launch, timeout);
  const auto own_store = meet(store, launch, timeout);
  monitor =
      std::make_shared<Monitor>(own_store->clone(), launch, timeout,
                                options.backend == Backend::nccl ? Monitor::end_process() : Monitor::EndProcess());
  monitor->start();
  try {
    open_group(c10::make_intrusive<c10d::PrefixStore>("group", own_store));
  } catch (const std::exception& error) {
    end(true, message_of(error));
    throw;
  }
}

Communicator::Impl::~Impl() {
  end(broken || std::uncaught_exceptions() > exceptions, "");
}

void Communicator::Impl::open_group(const StorePointer& group_store) {
  talk([&] {
    using c10d::ProcessGroup;
    const double timeout = options.timeout_seconds;
    const auto gloo = open_gloo(c10::make_intrusive<c10d::PrefixStore>("gloo", group_store), launch, timeout);
    group = c10::make_intrusive<ProcessGroup>(group_store, launch.rank, launch.world_size);
    group->setBackend(c10::kCPU, ProcessGroup::BackendType::GLOO, gloo);
    if (options.backend == Backend::nccl) {
      group->setBackend(c10::kCUDA, ProcessGroup::BackendType::NCCL,
                        open_nccl(c10::make_intrusive<c10d::PrefixStore>("nccl", group_store), launch, timeout));
      group->setDefaultBackend(ProcessGroup::BackendType::NCCL);
    } else {
      group->setBackend(c10::kCUDA, ProcessGroup::BackendType::GLOO, gloo);
      group->setDefaultBackend(ProcessGroup::BackendType::GLOO);
    }
  });
}

void Communicator::Impl::sum(at::Tensor tensor) const {
  std::vector<at::Tensor> tensors{std::move(tensor)};
  wait(group->allreduce(tensors));
}

std::vector<std::string> Communicator::Impl::gather(const std::string& text) {
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

std::optional<Communicator::Impl::Difference> Communicator::Impl::find_difference(const std::string& text) {
  const auto texts = gather(text);
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

void Communicator::Impl::tell(const std::string& message) {
  if (monitor) monitor->fail(launch.rank, fmt::format("rank {} failed: {}", launch.rank, message));
}

void Communicator::Impl::close_nccl(bool failed) {
  if (!group || options.backend != Backend::nccl) return;
  // Where NCCL waits for a rank that is gone, nobody else would end it.
  std::promise<void> closed;
  std::optional<std::jthread> limit;
  try {
    limit.emplace([&, done = closed.get_future()] {
      if (done.wait_for(std::chrono::duration<double>(options.timeout_seconds)) == std::future_status::ready) return;
      Monitor::end_process()(
          fmt::format("rank {}: NCCL does not end within {} s", launch.rank, options.timeout_seconds));
    });
  } catch (const std::system_error&) {  // no thread can be started: nobody watches
  }
  // A destructor may come here, and the process ends in any case.
  try {
    const auto nccl = group->getBackend(c10::kCUDA);
    if (failed) {
      nccl->abort();
    } else {
      nccl->shutdown();
    }
  } catch (const std::exception&) {
  }
  closed.set_value();
}

void Communicator::Impl::end(bool failed, const std::string& message) {
  if (!monitor) return;
  if (failed) {
    tell(message.empty() ? "an exception" : message);
  } else {
    monitor->leave();
  }
  close_nccl(failed);
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

void Communicator::all_gather(at::Tensor all, const at::Tensor& own) {
  if (!impl_->monitor) {
    all.copy_(own);
    return;
  }
  impl_->talk([&] {
    auto from = own;
    wait(impl_->group->_allgather_base(all, from));
  });
}

std::vector<std::string> Communicator::gather(const std::string& text) {
  if (!impl_->monitor) return {text};
  return impl_->gather(text);
}

bool Communicator::any(bool here) {
  auto count = at::full({1}, here ? 1 : 0, at::kLong);
  all_reduce_sum(count);
  return count.item<int64_t>() > 0;
}

void Communicator::check_same(const std::string& what, const std::string& text) {
  if (!impl_->monitor) return;
  const auto difference = impl_->find_difference(text);
  if (!difference) return;
  auto quoted = [](const std::string& line) { return line.empty() ? "nothing" : fmt::format("'{}'", line); };
  throw Error(what, fmt::format("differs between processes: {} on rank 0, but {} on rank {}", quoted(difference->here),
                                quoted(difference->there), difference->rank));
}

void Communicator::check_shared(const std::string& place, const std::string& what, const std::string& seen) {
  const auto all = gather(seen);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all.front()) continue;
    throw Error(place, fmt::format("rank {} does not see {}{}", rank, what, all[rank].empty() ? "" : ", but another"),
                "the run's folder must be one that all machines see");
  }
}

void Communicator::check_distinct(const std::string& what, const std::string& text) {
  if (!impl_->monitor) return;
  const auto texts = impl_->gather(text);
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    const auto end = texts.begin() + static_cast<std::ptrdiff_t>(rank);
    const auto first = std::find(texts.begin(), end, texts[rank]);
    if (first == end || first->empty()) continue;
    throw Error(what, fmt::format("ranks {} and {} have the same: {}", first - texts.begin(), rank, *first));
  }
}

void Communicator::on_rank_0(const std::function<void()>& work) {
  if (!impl_->monitor) return work();
  ++impl_->sections;
  if (rank() != 0) return impl_->monitor->wait_for_section(impl_->sections);
  impl_->monitor->begin_section();
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

}  // namespace transformer
