#include "transformer/training/device_transfer.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace transformer {

DeviceTransfer::DeviceTransfer(c10::Device device) : device_(device) {
  if (!device_.is_cuda()) return;
  const c10::impl::VirtualGuardImpl devices(device_.type());
  // A stream belongs to a numbered GPU; "cuda" alone is the current one.
  if (!device_.has_index()) device_ = devices.getDevice();
  stream_ = devices.getStreamFromGlobalPool(device_);
}

DeviceBatch DeviceTransfer::begin(const MicroBatch& batch) const {
  DeviceBatch sent;
  sent.items = batch.items;
  sent.source_tokens = batch.source_tokens;
  sent.target_tokens = batch.target_tokens;
  if (!stream_) {
    for (const auto& tensor : batch.tensors) sent.tensors.push_back(tensor.to(device_));
    return sent;
  }
  const c10::StreamGuard guard(*stream_);
  for (const auto& tensor : batch.tensors) {
    sent.tensors.push_back(tensor.pin_memory().to(device_, /*non_blocking=*/true));
  }
  sent.arrived.emplace(device_.type());
  sent.arrived->record(*stream_);
  return sent;
}

void DeviceTransfer::finish(DeviceBatch& batch) const {
  if (!batch.arrived) return;
  const auto current = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  batch.arrived->block(current);
  // The memory came from the transfer's stream; it may be given away only after the computation is done with it.
  for (const auto& tensor : batch.tensors) tensor.record_stream(current);
}

}  // namespace transformer
