#pragma once

namespace transformer {

/// What an exporter says in a folder that it wrote, and no other program does, so that it replaces its own alone.
inline constexpr const char* exported_by_key = "exported_by";
inline constexpr const char* exported_by = "transformer/export";  ///< its value

}  // namespace transformer
