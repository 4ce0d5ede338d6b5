// In the place of transformer_nccl.so on a machine without a GPU: Gloo, for the tensors of the devices that
// stand_in_cuda.cpp stands for, and it says when it is let go of. As with NCCL, a call returns before its work is done.
#define USE_C10D_GLOO
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <cstdio>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "seen_by_host.h"

namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor contiguous(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_cuda() && tensor.is_contiguous(), "NCCL takes a GPU's contiguous tensors");
  return seen_by_host(tensor);
}

class Sum : public c10d::Work {
 public:
  Sum(c10::intrusive_ptr<c10d::Work> work, Tensors results)
      : future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                         std::vector<c10::Device>{results.front().device()})) {
    std::thread([future = future_, work = std::move(work), results = std::move(results)] {
      try {
        work->wait();
        future->markCompleted(results);
      } catch (...) {
        future->setError(std::current_exception());
      }
    }).detach();
  }
  bool isCompleted() override { return future_->completed(); }
  bool isSuccess() const override { return future_->completed() && !future_->hasError(); }
  bool wait(std::chrono::milliseconds) override {
    future_->waitAndThrow();
    return true;
  }
  void synchronize() override { future_->waitAndThrow(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class StandIn : public c10d::Backend {
 public:
  StandIn(c10d::Store* store, int rank, int world_size, int64_t milliseconds) : Backend(rank, world_size) {
    auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::milliseconds(milliseconds));
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    // Where its threads wait for a rank that is gone, the end of the process is not theirs to wait for.
    gloo_ = new c10d::ProcessGroupGloo(c10::intrusive_ptr<c10d::Store>::reclaim_copy(store), rank, world_size, options);
  }
  const std::string getBackendName() const override { return "stand-in"; }
  c10::intrusive_ptr<c10d::Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    Tensors hosts{contiguous(tensors.at(0))};
    return begun(gloo_->allreduce(hosts, options), tensors);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    Tensors hosts{contiguous(tensors.at(0))};
    return begun(gloo_->broadcast(hosts, options), tensors);
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& all, at::Tensor& own,
                                                 const c10d::AllgatherOptions& options) override {
    auto host = contiguous(all), from = contiguous(own);
    return begun(gloo_->_allgather_base(host, from, options), {all});
  }
  void shutdown() override { say("shut down"); }
  void abort() override { say("aborted"); }

 private:
  c10::intrusive_ptr<c10d::Work> begun(c10::intrusive_ptr<c10d::Work> work, Tensors results) const {
    return c10::make_intrusive<Sum>(std::move(work), std::move(results));
  }
  void say(const char* what) const {
    std::fputs(fmt::format("NCCL of rank {} is {}\n", getRank(), what).c_str(), stderr);
  }

  c10d::ProcessGroupGloo* gloo_;
};

}  // namespace

extern "C" c10d::Backend* transformer_open_nccl(c10d::Store* store, int rank, int world_size, int64_t milliseconds) {
  return c10::make_intrusive<StandIn>(store, rank, world_size, milliseconds).release();
}
