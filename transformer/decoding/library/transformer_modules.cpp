// The shared library that programs without LibTorch open where a GPU is asked for (inference/decoder.h).

#include <c10/util/Exception.h>

#include <new>
#include <stdexcept>
#include <string>

#include "transformer/decoding/module_decoder.h"
#include "transformer/model/device.h"
#include "transformer/model/tensor_memory.h"

namespace transformer {

namespace {

/// What LibTorch throws as what programs without it know: memory that ran out, or the line that says what happened.
template <class Work>
auto plainly(const Work& work) {
  try {
    return work();
  } catch (const c10::Error& error) {
    if (is_out_of_memory(error)) throw std::bad_alloc();
    const std::string text = error.what_without_backtrace();
    throw std::runtime_error(text.substr(0, text.find('\n')));
  }
}

class PlainDecoder : public Decoder {
 public:
  explicit PlainDecoder(std::unique_ptr<Decoder> decoder) : decoder_(std::move(decoder)) {}

  const ModelSettings& settings() const override { return decoder_->settings(); }
  std::vector<std::vector<Hypothesis>> decode(
      std::span<const std::vector<int64_t>> sources, std::span<const int64_t> max_lengths,
      const DecodingSettings& settings,
      std::span<const std::shared_ptr<const OutputConstraint>> constraints) const override {
    return plainly([&] { return decoder_->decode(sources, max_lengths, settings, constraints); });
  }

 private:
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace

}  // namespace transformer

extern "C" __attribute__((visibility("default"))) transformer::Decoder* transformer_open_module_decoder_1(
    const std::filesystem::path& directory, const std::string& device, const transformer::InferenceOptions& inference) {
  using namespace transformer;
  return plainly([&] {
    return std::make_unique<PlainDecoder>(load_module_decoder(directory, open_device(device), inference.precision))
        .release();
  });
}
