#pragma once

#include <ATen/ATen.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "transformer/base/error.h"
#include "transformer/training/distributed/communicator.h"
#include "transformer/training/distributed/message_of.h"
#include "transformer/training/distributed/monitor.h"
#include "transformer/training/distributed/rendezvous.h"

namespace transformer {

/// What a communicator does its work with, for those who do it here, too (DistributedDataParallel).
struct Communicator::Impl {
  struct Difference {
    int rank;
    std::string there, here;  // lines of `rank` and of rank 0; empty: none
  };

  Impl(const Launch& launch, const Options& options);
  ~Impl();

  /// Runs an operation of all ranks. Whatever goes wrong in it has to do with another rank; the monitor knows which.
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

  void open_group(const StorePointer& group_store);
  void sum(at::Tensor tensor) const;
  /// All ranks. The first line of `text` that another rank does not have as rank 0 has it.
  std::optional<Difference> find_difference(const std::string& text);
  void tell(const std::string& message);
  void end(bool failed, const std::string& message);
  /// Lets go of NCCL's communicators: in good order, or of operations that will never end, too.
  void close_nccl(bool failed);

  const Launch launch;
  const Options options;
  const int exceptions;  // in flight at the construction
  StorePointer store;
  std::shared_ptr<Monitor> monitor;  // none: a single process
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  int64_t sections = 0;
  bool broken = false;

  /// All ranks. Every rank's `text`.
  std::vector<std::string> gather(const std::string& text);
};

}  // namespace transformer
