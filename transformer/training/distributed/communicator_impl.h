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
  /// Where a text is another than rank 0's.
  struct Difference {
    int rank;                 // the first whose text is another
    std::string there, here;  // lines of `rank` and of rank 0; empty: none
  };

  /// All ranks. See Communicator's.
  Impl(const Launch& launch, const Options& options);
  /// As end(): with a failure where an operation broke, or an exception passes through.
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

  /// All ranks. Opens Gloo, and NCCL where that is the backend, over a store.
  void open_group(const StorePointer& group_store);
  /// All ranks. Adds `tensor` up over the ranks, in place.
  void sum(at::Tensor tensor) const;
  /// All ranks. The first line of `text` that another rank does not have as rank 0 has it.
  std::optional<Difference> find_difference(const std::string& text);
  /// Tells the others that this rank failed, and why.
  void tell(const std::string& message);
  /// Says good-bye, or that this rank `failed`, and closes what is open; the process that holds the store waits for the
  /// others.
  void end(bool failed, const std::string& message);
  /// Lets go of NCCL's communicators: in good order, or of operations that will never end, too.
  void close_nccl(bool failed);

  const Launch launch;                           // this process's place
  const Options options;                         // as they were given
  const int exceptions;                          // in flight at the construction
  StorePointer store;                            // that the processes meet at; null: a single process
  std::shared_ptr<Monitor> monitor;              // none: a single process
  c10::intrusive_ptr<c10d::ProcessGroup> group;  // c10d's operations; null: a single process
  int64_t sections = 0;                          // calls of on_rank_0 so far
  bool broken = false;                           // an operation failed: no other can be trusted

  /// All ranks. Every rank's `text`.
  std::vector<std::string> gather(const std::string& text);
};

}  // namespace transformer
