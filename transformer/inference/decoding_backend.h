#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transformer/architecture/settings.h"
#include "transformer/inference/beam_search.h"
#include "transformer/inference/engine.h"
#include "transformer/inference/packed_in.h"
#include "transformer/inference/precision.h"

namespace transformer {

/// How decoding computes.
struct InferenceOptions {
  std::optional<Precision> precision = std::nullopt;  // none: as the weights are stored, float32 as they were trained
  int64_t threads = 1;                                // workers on a CPU, 1 or more, each with sentences of its own
  PackedIn packed_in = PackedIn::file;                // where weights that are stored packed lie
};

/// A model that finds outputs for sources of ids: packed weights on a CPU, or modules (room `decoding`).
class DecodingBackend {
 public:
  virtual ~DecodingBackend() = default;

  virtual const ModelSettings& settings() const = 0;  // resolved

  /// `beam_search` for each of `requests`, whose settings are validated: a sentence's result does not depend on the
  /// others. Any number of threads may call it at once. Throws as beam_search and DecodingRequest::check do.
  virtual std::vector<std::vector<Hypothesis>> decode(std::vector<DecodingRequest> requests) const = 0;
};

/// Throws Error for settings that modules, which decode on GPUs, cannot search by.
void check_for_modules(const DecodingSettings& settings);

/// Packed weights, decoded by an engine's workers; sentences of callers at the same time share batches.
class PackedBackend : public DecodingBackend {
 public:
  /// `engine` decodes with `model`, perhaps beside others of an ensemble.
  PackedBackend(std::shared_ptr<const InferenceModel> model, std::shared_ptr<Engine> engine);

  const ModelSettings& settings() const override;
  std::vector<std::vector<Hypothesis>> decode(std::vector<DecodingRequest> requests) const override;

 private:
  std::shared_ptr<const InferenceModel> model_;
  std::shared_ptr<Engine> engine_;
};

/// What transformer_modules.so exports, under a name that changes with what passes through it.
#define TRANSFORMER_OPEN_MODULE_BACKEND transformer_open_module_backend_9
/// That function: the caller owns what it returns.
using OpenModuleBackend = DecodingBackend*(const std::filesystem::path& directory, const std::string& device,
                                           const InferenceOptions& inference);
/// The text of a name.
#define TRANSFORMER_NAME_OF(symbol) #symbol
/// The text of what a macro stands for.
#define TRANSFORMER_NAME(symbol) TRANSFORMER_NAME_OF(symbol)
/// By which the function is looked up in the module.
inline constexpr const char* open_module_backend_name = TRANSFORMER_NAME(TRANSFORMER_OPEN_MODULE_BACKEND);
#undef TRANSFORMER_NAME
#undef TRANSFORMER_NAME_OF

/// The decoder of a model directory's modules on `device`, opened from the shared library transformer_modules.so, which
/// brings LibTorch along and lies beside the program or where the loader looks. Throws Error where it is not to be had,
/// for a device that is not there, and for what is wrong with the directory.
std::unique_ptr<DecodingBackend> open_module_backend(const std::filesystem::path& directory, const std::string& device,
                                                     const InferenceOptions& inference);

}  // namespace transformer
