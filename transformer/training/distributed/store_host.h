#pragma once

#include <memory>
#include <string>

#include "transformer/training/distributed/launch.h"
#include "transformer/training/distributed/rank_state.h"

namespace transformer {

/// The store that the processes of run_processes meet at, held by their parent.
class StoreHost {
 public:
  /// Takes over `descriptor`, a listening socket at launch.port.
  StoreHost(const Launch& launch, int descriptor);
  ~StoreHost();
  StoreHost(const StoreHost&) = delete;
  StoreHost& operator=(const StoreHost&) = delete;

  /// What `rank` has said of itself last.
  RankState state(int rank) const;
  /// Tells the others how `rank` ended ("was ended by signal 9 (Killed)"), unless it said so itself.
  void note_end(int rank, const std::string& how);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace transformer
