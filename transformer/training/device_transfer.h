#pragma once

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>
#include <vector>

#include "transformer/training/batch_source.h"

namespace transformer {

/// A micro-batch on the device that computes it.
struct DeviceBatch {
  std::vector<at::Tensor> tensors;  // as in MicroBatch
  int64_t items = 0;                // as there, and so are the next two: known without asking the device
  int64_t source_tokens = 0;        // ends counted
  int64_t target_tokens = 0;        // ends counted

 private:
  friend class DeviceTransfer;
  std::optional<c10::Event> arrived;
};

/// Brings micro-batches to a device. To a GPU they go from page-locked memory over a stream of their own: while an
/// earlier step still computes, and without the host waiting.
class DeviceTransfer {
 public:
  /// To `device`, with a stream for it where that is a GPU.
  explicit DeviceTransfer(c10::Device device);

  /// Starts the transfer of a batch that is made.
  DeviceBatch begin(const MicroBatch& batch) const;
  /// To be called before `batch` is used: what the device is given from now on comes after its arrival.
  void finish(DeviceBatch& batch) const;

 private:
  c10::Device device_;
  std::optional<c10::Stream> stream_;  // a GPU's
};

}  // namespace transformer
