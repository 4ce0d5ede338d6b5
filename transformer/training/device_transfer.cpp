#include "transformer/training/device_transfer.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "transformer/model/tensors.h"

namespace transformer {

at::Tensor tensor_of(const IdMatrix& ids) {
  return id_tensor(ids.rows, ids.columns, ids.ids);
}

DeviceTransfer::DeviceTransfer(c10::Device device) : device_(device) {
  if (device_.is_cpu()) return;
  const c10::impl::VirtualGuardImpl devices(device_.type());
  // A stream belongs to a numbered GPU; "cuda" alone is the current one.
  if (!device_.has_index()) device_ = devices.getDevice();
  stream_ = devices.getStreamFromGlobalPool(device_);
}

DeviceBatch DeviceTransfer::begin(const Batch& batch) const {
  DeviceBatch sent;
  sent.target_tokens = batch.target_tokens;
  if (!stream_) {
    sent.source = tensor_of(batch.source);
    sent.target_input = tensor_of(batch.target_input);
    sent.target_output = tensor_of(batch.target_output);
    return sent;
  }
  const c10::StreamGuard guard(*stream_);
  const auto send = [&](const IdMatrix& ids) { return tensor_of(ids).pin_memory().to(device_, /*non_blocking=*/true); };
  sent.source = send(batch.source);
  sent.target_input = send(batch.target_input);
  sent.target_output = send(batch.target_output);
  sent.arrived.emplace(device_.type());
  sent.arrived->record(*stream_);
  return sent;
}

void DeviceTransfer::finish(DeviceBatch& batch) const {
  if (!batch.arrived) return;
  const auto current = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  batch.arrived->block(current);
  // The memory came from the transfer's stream; it may be given away only after the computation is done with it.
  for (const auto* tensor : {&batch.source, &batch.target_input, &batch.target_output}) tensor->record_stream(current);
}

}  // namespace transformer
