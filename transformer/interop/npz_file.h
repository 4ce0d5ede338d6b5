#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transformer/architecture/weights.h"
#include "transformer/base/tensor_file.h"

namespace transformer {

/// An array of a .npz file.
struct NpzArray {
  ElementType type = ElementType::float32;  // as the .npy header's descr says
  std::vector<int64_t> shape;               // in elements; empty: a single number
  /// Its elements in row-major order, unpacked anew at every call. Throws Error where they are damaged.
  std::function<std::string()> bytes;
};

/// The arrays of a .npz file, as NumPy and Marian write them, by their names: a zip archive of .npy files, stored or
/// deflated. Nothing that the file says is believed: sizes must be those of the shapes, types plain numbers in the
/// machine's byte order, rows first. The file stays mapped as long as an array is there. Throws Error naming the file
/// and what is wrong.
std::map<std::string, NpzArray> npz_arrays(const std::filesystem::path& file);

/// The same of a file's bytes, which `owner` keeps; `name` names them.
std::map<std::string, NpzArray> npz_arrays(std::string_view bytes, std::shared_ptr<const void> owner,
                                           const std::string& name);

/// An array as a weight of a model. Reading some rows of a deflated one unpacks all of it.
StoredWeight stored_weight(const NpzArray& array);

}  // namespace transformer
