#include "transformer/training/distributed/sharded_adam.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "transformer/base/error.h"

namespace transformer {

using at::Tensor;

namespace {

// A multiple of what any processor's vectors hold.
constexpr int64_t alignment = 64;

constexpr const char* moments[] = {"first_moment.", "second_moment."};
constexpr const char* step_prefix = "step.";

std::vector<Tensor> flattened(const NamedParameters& parameters) {
  std::vector<Tensor> flat;
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.is_contiguous() || parameter.scalar_type() != parameters.front().second.scalar_type()) {
      throw Error("training.shard_optimizer",
                  fmt::format("the parameter '{}' is not contiguous, or of another type than the first", name),
                  "leave the setting off for this model");
    }
    flat.push_back(parameter.detach().view({-1}));
  }
  if (flat.empty()) throw Error("training.shard_optimizer", "there is no parameter to train");
  return flat;
}

std::vector<int64_t> begins_of(const std::vector<Tensor>& flat) {
  std::vector<int64_t> begins{0};
  for (const auto& tensor : flat) begins.push_back(begins.back() + tensor.numel());
  return begins;
}

// Equal shares of the numbers, but for what alignment takes.
std::vector<int64_t> bounds_of(const std::vector<int64_t>& begins, int ranks) {
  std::vector<int64_t> bounds;
  const int64_t count = begins.back();
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const int64_t share = count / ranks * rank + count % ranks * rank / ranks;
    const auto begin = *(std::upper_bound(begins.begin(), begins.end(), share) - 1);
    bounds.push_back(begin + (share - begin) / alignment * alignment);
  }
  bounds.push_back(count);
  return bounds;
}

}  // namespace

ShardedAdam::ShardedAdam(Communicator& communicator, NamedParameters given, const Adam::Options& options,
                         double piece_mb)
    : Optimizer(std::move(given)),
      communicator_(communicator),
      piece_bytes_(static_cast<int64_t>(piece_mb * (1 << 20))),
      flat_(flattened(parameters())),
      begins_(begins_of(flat_)),
      bounds_(bounds_of(begins_, communicator.world_size())),
      parts_(parts_of(bounds_[communicator.rank()], bounds_[communicator.rank() + 1])),
      adam_(
          [this] {
            NamedParameters own;
            for (const auto& part : parts_) own.emplace_back(parameters()[part.parameter].first, part.values);
            return own;
          }(),
          options) {}

std::vector<ShardedAdam::Part> ShardedAdam::parts_of(int64_t begin, int64_t end) const {
  std::vector<Part> parts;
  auto index = static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), begin) - begins_.begin()) - 1;
  for (; index < flat_.size() && begins_[index] < end; ++index) {
    const int64_t first = std::max(begin, begins_[index]), last = std::min(end, begins_[index + 1]);
    if (first == last) continue;
    const int64_t offset = first - begins_[index];
    parts.push_back({index, offset, flat_[index].narrow(0, offset, last - first)});
  }
  return parts;
}

void ShardedAdam::gather(const std::function<Tensor(const Part& part)>& give, const Visit& take) const {
  const int64_t ranks = communicator_.world_size(), rank = communicator_.rank();
  int64_t longest = 1;
  for (int64_t other = 0; other < ranks; ++other) longest = std::max(longest, bounds_[other + 1] - bounds_[other]);
  const auto options = flat_.front().options();
  const int64_t piece =
      std::clamp<int64_t>(piece_bytes_ / (ranks * static_cast<int64_t>(flat_.front().element_size())), 1, longest);
  const auto own = at::zeros({piece}, options), all = at::empty({ranks * piece}, options);
  const auto parts_within = [&](int64_t other, int64_t first) {
    return parts_of(std::min(bounds_[other] + first, bounds_[other + 1]),
                    std::min(bounds_[other] + first + piece, bounds_[other + 1]));
  };
  for (int64_t first = 0; first < longest; first += piece) {
    int64_t at = 0;
    for (const auto& part : parts_within(rank, first)) {
      own.narrow(0, at, part.values.numel()).copy_(give(part));
      at += part.values.numel();
    }
    communicator_.all_gather(all, own);
    for (int64_t other = 0; other < ranks; ++other) {
      at = other * piece;
      for (const auto& part : parts_within(other, first)) {
        take(part.parameter, part.offset, all.narrow(0, at, part.values.numel()));
        at += part.values.numel();
      }
    }
  }
}

void ShardedAdam::step(double rate, const Tensor& norm) {
  const at::NoGradGuard no_grad;
  for (auto& part : parts_) {
    const auto& gradient = parameters()[part.parameter].second.grad();
    if (gradient.defined()) {
      part.values.mutable_grad() = gradient.reshape({-1}).narrow(0, part.offset, part.values.numel());
    }
  }
  adam_.step(rate, norm);
  for (auto& part : parts_) part.values.mutable_grad().reset();
  if (communicator_.world_size() == 1) return;
  gather([](const Part& part) { return part.values; },
         [&](size_t parameter, int64_t offset, const Tensor& values) {
           flat_[parameter].narrow(0, offset, values.numel()).copy_(values);
         });
}

TensorMap ShardedAdam::state() const {
  return adam_.state();
}

TensorMap ShardedAdam::gather_state() {
  const at::NoGradGuard no_grad;
  const bool keeps = communicator_.rank() == 0;
  const auto own = adam_.state();
  TensorMap whole;
  for (const char* moment : moments) {
    std::vector<Tensor> gathered;
    for (size_t i = 0; keeps && i < flat_.size(); ++i) {
      const auto& [name, parameter] = parameters()[i];
      gathered.push_back(at::zeros({parameter.numel()}, parameter.options().device(at::kCPU).requires_grad(false)));
      whole.emplace(moment + name, gathered.back().view(parameter.sizes()));
    }
    gather(
        [&](const Part& part) {
          const auto mine = std::find_if(parts_.begin(), parts_.end(),
                                         [&](const Part& one) { return one.parameter == part.parameter; });
          return own.at(moment + parameters()[part.parameter].first)
              .narrow(0, part.offset - mine->offset, part.values.numel());
        },
        [&](size_t parameter, int64_t offset, const Tensor& values) {
          if (keeps) gathered[parameter].narrow(0, offset, values.numel()).copy_(values);
        });
  }
  // A parameter's count is the same on all ranks that have a part of it; the one that has its first number tells.
  const auto steps = at::zeros({static_cast<int64_t>(flat_.size())}, at::kFloat);
  for (const auto& part : parts_) {
    if (part.offset > 0) continue;
    steps[static_cast<int64_t>(part.parameter)].copy_(own.at(step_prefix + parameters()[part.parameter].first));
  }
  communicator_.all_reduce_sum(steps);
  for (size_t i = 0; keeps && i < flat_.size(); ++i) {
    whole.emplace(step_prefix + parameters()[i].first, steps[static_cast<int64_t>(i)].clone());
  }
  return whole;
}

void ShardedAdam::load(const TensorMap& state, const std::string& where) {
  // All parameters' state, or nothing of a damaged one is taken.
  std::set<std::string> known;
  for (const auto& [name, parameter] : parameters()) {
    for (const char* prefix : {moments[0], moments[1], step_prefix}) known.insert(prefix + name);
  }
  check_known(state, known, where);
  TensorMap own;
  for (size_t i = 0; i < flat_.size(); ++i) {
    const auto& [name, parameter] = parameters()[i];
    const auto part = std::find_if(parts_.begin(), parts_.end(), [&](const Part& one) { return one.parameter == i; });
    for (const char* prefix : {moments[0], moments[1], step_prefix}) {
      const auto found = state.find(prefix + name);
      const bool number = prefix == step_prefix;
      if (found == state.end() || found->second.sizes() != (number ? at::IntArrayRef() : parameter.sizes())) {
        throw Error(where, fmt::format("the optimizer's '{}{}' is missing or of another shape", prefix, name),
                    "the checkpoint belongs to a model of other settings");
      }
      if (part == parts_.end()) continue;
      own.emplace(found->first,
                  number ? found->second : found->second.reshape({-1}).narrow(0, part->offset, part->values.numel()));
    }
  }
  adam_.load(own, where);
}

}  // namespace transformer
