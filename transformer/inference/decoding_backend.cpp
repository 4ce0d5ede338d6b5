#include "transformer/inference/decoding_backend.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "transformer/base/error.h"
#include "transformer/inference/continuous_search.h"
#include "transformer/inference/inference_model.h"

namespace transformer {

void check_for_modules(const DecodingSettings& settings) {
  if (settings.coverage_penalty == 0) return;
  throw Error("decoding.coverage_penalty", "is for decoding on a CPU: on a GPU attention is not kept",
              "use the device 'cpu', or set coverage_penalty to 0");
}

PackedBackend::PackedBackend(std::shared_ptr<const InferenceModel> model, std::shared_ptr<Engine> engine)
    : model_(std::move(model)), engine_(std::move(engine)) {}

const ModelSettings& PackedBackend::settings() const {
  return model_->settings();
}

std::vector<std::vector<Hypothesis>> PackedBackend::decode(std::vector<DecodingRequest> requests) const {
  return decode_all(*engine_, std::move(requests));
}

std::unique_ptr<DecodingBackend> open_module_backend(const std::filesystem::path& directory, const std::string& device,
                                                     const InferenceOptions& inference) {
  constexpr const char* library = "transformer_modules.so";
  std::error_code unknown;
  const auto beside = std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path() / library;
  // Never closed: threads and exit handlers of LibTorch's stay behind.
  void* opened = dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL);
  const bool is_beside = std::filesystem::exists(beside, unknown);
  std::string reason = opened ? "" : dlerror();
  if (!opened && !is_beside) {
    opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!opened) reason = dlerror();
  }
  const auto open = opened ? reinterpret_cast<OpenModuleBackend*>(dlsym(opened, open_module_backend_name)) : nullptr;
  if (!open) {
    throw Error(fmt::format("device '{}'", device),
                fmt::format("{}, which brings LibTorch along, cannot be opened ({})", library,
                            opened ? "it is of another version" : reason),
                "install the programs with LibTorch, or use the device 'cpu'");
  }
  return std::unique_ptr<DecodingBackend>(open(directory, device, inference));
}

}  // namespace transformer
