// In the place of transformer_nccl.so on a machine without a GPU: a backend that says when it is let go of.
#include <fmt/format.h>

#include <cstdio>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace {

class StandIn : public c10d::Backend {
 public:
  using Backend::Backend;
  const std::string getBackendName() const override { return "stand-in"; }
  void shutdown() override { say("shut down"); }
  void abort() override { say("aborted"); }

 private:
  void say(const char* what) const {
    std::fputs(fmt::format("NCCL of rank {} is {}\n", getRank(), what).c_str(), stderr);
  }
};

}  // namespace

extern "C" c10d::Backend* transformer_open_nccl(c10d::Store*, int rank, int world_size, int64_t) {
  return c10::make_intrusive<StandIn>(rank, world_size).release();
}
