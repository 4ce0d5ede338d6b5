#include "transformer/training/distributed/data_parallel.h"

#include <ATen/core/functional.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>

#include "transformer/base/checksum.h"
#include "transformer/base/error.h"
#include "transformer/model/named_parameters.h"
#include "transformer/training/distributed/clock.h"
#include "transformer/training/distributed/communicator_impl.h"
#include "transformer/training/distributed/message_of.h"

namespace transformer {

namespace {

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

// Sums buckets, and writes down when. Gradients leave unscaled: with a hook of ours, c10d does not divide them by the
// world size.
class SumBuckets : public c10d::CppCommHookInterface<c10::intrusive_ptr<c10d::ProcessGroup>> {
 public:
  struct Record {
    std::mutex mutex;
    Clock::time_point begun;
    std::vector<DistributedDataParallel::Statistics::Bucket> buckets;
    size_t bucket_count = 0;
    bool calling = false;  // c10d, which has not returned yet
    bool failed = false;   // a sum that was begun
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
      record_->calling = true;
      if (bucket.isLast()) record_->bucket_count = bucket.getIndex() + 1;
    }
    std::vector<at::Tensor> tensors{bucket.getBufferRef()};
    const auto future = state_->allreduce(tensors)->getFuture();
    {
      const std::lock_guard lock(record_->mutex);
      record_->calling = false;
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
    auto add = [&](const std::string& name, const at::Tensor& tensor) {
      description +=
          fmt::format("{} [{}] {}\n", name, fmt::join(tensor.sizes(), ", "), c10::toString(tensor.scalar_type()));
      state.push_back(tensor);
    };
    for (const auto& [name, parameter] : named_parameters(module)) {
      add(name, parameter);
      if (!parameter.requires_grad()) continue;
      names.push_back(name);
      parameters.push_back(parameter);
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
    settle_buckets();
  }

  /// c10d puts gradients into buckets in the order that the first step's came in. Which that is depends on the step,
  /// and what a ring adds up to depends on the place in the bucket: a run that goes on would add otherwise than the one
  /// that it was. So that there is one order from the start: the last parameters get their gradients first.
  void settle_buckets() {
    go_backward([&] {
      for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
        loss_of_nothing({*parameter}).backward();
      }
    });
    communicator.impl_->talk([&] { reducer->rebuild_buckets(); });
    for (auto& parameter : parameters) parameter.mutable_grad() = at::Tensor();
  }

  void go_backward(const std::function<void()>& pass) {
    {
      const std::lock_guard lock(record->mutex);
      record->begun = Clock::now();
      record->buckets.clear();
      record->bucket_count = 0;
      record->calling = record->failed = false;
    }
    reducer->prepare_for_backward({});
    try {
      pass();
    } catch (const std::exception& error) {
      const bool others = [&] {
        const std::lock_guard lock(record->mutex);
        return record->calling || record->failed;
      }();
      communicator.impl_->broken = true;
      if (others) communicator.impl_->monitor->explain(message_of(error));
      throw;
    }
  }

  void backward(const at::Tensor& loss) {
    go_backward([&] { (loss.defined() ? loss : loss_of_nothing(parameters)).backward(); });
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
  const auto difference = impl_->communicator.impl_->find_difference(checksums);
  if (!difference) return;
  throw Failure(difference->here.substr(0, difference->here.find(' ')),
                fmt::format("rank {} holds other values than rank 0", difference->rank));
}

const DistributedDataParallel::Statistics& DistributedDataParallel::statistics() const {
  return impl_->statistics;
}

}  // namespace transformer
