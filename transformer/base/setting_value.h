#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transformer/base/setting_field.h"

namespace transformer {

/// A setting's value as a source spells it, before its type is known.
struct SettingValue {
  /// What the source holds in the value's place.
  enum class Kind {
    nothing,     // no value
    scalar,      // one text
    list,        // texts
    mixed_list,  // of more than texts
    mapping,
    too_long                       // a list of more bytes than a settings file may have
  } kind = Kind::nothing;          // which decides how many texts there are
  std::vector<std::string> texts;  // of a scalar one

  /// For messages that say what was found instead: "'wide'", "a list", "nothing".
  std::string found() const;
  /// The whole number that it spells.
  std::optional<int64_t> integer() const;
};

/// Writes `value` into the member that `field` is bound to. Throws Error for one of another type or out of range,
/// saying what the field takes. `name` is what the source called it.
void assign(const SettingField& field, const std::string& name, const SettingValue& value, const std::string& where);

/// The value of the member that `field` is bound to, as YAML; assign() reads it back exactly.
std::string as_yaml(const SettingField& field);

/// A text as a YAML scalar that every reader takes for a text. Throws Error for what is not UTF-8.
std::string as_yaml(const std::string& text);

}  // namespace transformer
