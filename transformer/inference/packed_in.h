#pragma once

namespace transformer {

/// Where the weights of a file of packed ones lie once they are loaded.
enum class PackedIn {
  file,    // mapped: processes share them; who writes into the file harms whoever has it mapped, who renames does not
  memory,  // a copy in large pages: whatever becomes of the file
};

}  // namespace transformer
