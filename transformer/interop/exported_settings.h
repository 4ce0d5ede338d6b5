#pragma once

#include <optional>
#include <string>

#include "transformer/architecture/settings.h"

namespace transformer {

/// A setting that a model has changed and no exporter knows. Those that are known are converted, whatever their value,
/// or checked by each exporter, or have no effect outside training; what is added later is refused until it is, too.
std::optional<std::string> setting_not_exported(const ModelSettings& settings);

}  // namespace transformer
