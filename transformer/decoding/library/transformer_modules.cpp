// The shared library that programs without LibTorch open where a GPU is asked for (inference/decoding_backend.h).

#include <memory>
#include <string>
#include <utility>

#include "transformer/decoding/module_backend.h"
#include "transformer/model/device.h"
#include "transformer/model/plain_errors.h"

namespace transformer {

namespace {

class PlainBackend : public DecodingBackend {
 public:
  explicit PlainBackend(std::unique_ptr<DecodingBackend> backend) : backend_(std::move(backend)) {}

  const ModelSettings& settings() const override { return backend_->settings(); }
  std::vector<std::vector<Hypothesis>> decode(std::vector<DecodingRequest> requests) const override {
    return with_plain_errors([&] { return backend_->decode(std::move(requests)); });
  }

 private:
  std::unique_ptr<DecodingBackend> backend_;
};

}  // namespace

}  // namespace transformer

extern "C" __attribute__((visibility("default"))) transformer::DecodingBackend* TRANSFORMER_OPEN_MODULE_BACKEND(
    const std::filesystem::path& directory, const std::string& device, const transformer::InferenceOptions& inference) {
  using namespace transformer;
  return with_plain_errors([&] {
    return std::make_unique<PlainBackend>(
               load_module_backend(directory, open_device(device),
                                   inference.precision.value_or(transformer::Precision::float32)))
        .release();
  });
}
