#pragma once

#include <string>
#include <vector>

#include "transformer/base/setting_field.h"

namespace transformer {

/// Throws Error naming the first number of `fields` that its declaration does not allow, as "section.setting".
void check_ranges(const std::string& section, const std::vector<SettingField>& fields);

/// The same of `settings` that no file or command line gave, and that therefore nobody has checked.
template <class S>
void check_ranges(const std::string& section, S settings) {
  std::vector<SettingField> fields;
  Fields<S> described(settings, fields);
  S::describe(described);
  check_ranges(section, fields);
}

}  // namespace transformer
