#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace transformer {

/// The layout of CTranslate2's model.bin that is written and read here.
inline constexpr uint32_t ctranslate2_binary_version = 6;
/// The revision of the names and meanings of a Transformer's variables (TransformerSpec).
inline constexpr uint32_t ctranslate2_specification_revision = 7;
/// What a Transformer's file says that it is.
inline constexpr const char* ctranslate2_specification = "TransformerSpec";
/// The file of weights in a model's folder.
inline constexpr const char* ctranslate2_weights_file = "model.bin";

/// The types of elements, as model.bin numbers them.
enum class Ctranslate2Type : uint8_t {
  float32,  // 0 in the file
  int8,     // 1, a scale for each row beside it
  int16,    // 2, one scale beside it
  int32,    // 3
  float16,  // 4
  bfloat16  // 5
};

/// A value of model.bin: where its elements lie, in row-major order, aligned for no type.
struct Ctranslate2Variable {
  Ctranslate2Type type = Ctranslate2Type::float32;  // of its elements
  std::vector<int64_t> shape;                       ///< empty for a single number
  std::string_view bytes;                           // as they lie in the file
};

/// What a model.bin holds: names of variables, aliases among them. They keep the file mapped.
struct Ctranslate2Variables {
  std::map<std::string, Ctranslate2Variable> values;  // by the names of the specification
  std::map<std::string, std::string> aliases;         ///< other names, and the variables that they stand for
  std::shared_ptr<const void> owner;                  // what keeps the bytes where they are

  /// The variable of a name or of an alias; null where there is none.
  const Ctranslate2Variable* find(const std::string& name) const;
};

/// Reads a model.bin of the version above, of a Transformer of the revision above. Nothing that it says is believed:
/// sizes are those of the shapes, names are distinct and aliases lead somewhere. Throws Error naming the file and what
/// is wrong.
Ctranslate2Variables read_ctranslate2(const std::filesystem::path& file);

/// The same of a file's bytes, which `owner` keeps; `name` names them.
Ctranslate2Variables read_ctranslate2(std::string_view bytes, std::shared_ptr<const void> owner,
                                      const std::string& name);

}  // namespace transformer
