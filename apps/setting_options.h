#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "apps/number_option.h"
#include "transformer/base/settings.h"

namespace transformer {

/// The settings of one section as options of a program: a setting `n_best` becomes `--n-best`, with the meaning and the
/// check of its declaration. Must outlive the parsing.
template <class S>
class SettingOptions {
 public:
  /// `shorter`: other names for options of these settings. `tells_defaults`: whether what is not given is as declared,
  /// which --help then tells. `without`: settings that no option is of.
  SettingOptions(CLI::App& app, const std::string& group, const std::map<std::string, std::string>& shorter = {},
                 bool tells_defaults = false, const std::set<std::string>& without = {}) {
    fields_ = fields_of(given_);
    Settings declared;
    declared.section("section", given_, "");
    const auto rules = declared.rules();
    texts_.resize(fields_.size());
    for (size_t i = 0; i < fields_.size(); ++i) {
      const auto& field = fields_[i];
      std::string flag = "--" + field.name;
      for (char& character : flag) {
        if (character == '_') character = '-';
      }
      if (const auto other = shorter.find(field.name); other != shorter.end()) flag += "," + other->second;
      CLI::Option* option = without.contains(field.name) ? nullptr : add(app, flag, i);
      options_.push_back(option);
      if (option) option->group(group);
      if (!option || !tells_defaults) continue;
      const auto& default_text = rules.at("section." + field.name).default_text;
      if (default_text != "\"\"") option->default_str(default_text);
    }
  }
  SettingOptions(const SettingOptions&) = delete;
  SettingOptions& operator=(const SettingOptions&) = delete;

  /// After parsing: whether the command line gave the setting.
  bool given(const std::string& name) const {
    for (size_t i = 0; i < fields_.size(); ++i) {
      if (fields_[i].name == name) return options_[i] && options_[i]->count() > 0;
    }
    return false;
  }

  /// After parsing: `settings` with what the command line gave in place of its own values.
  S over(S settings) const {
    const auto targets = fields_of(settings);
    for (size_t i = 0; i < fields_.size(); ++i) {
      if (!options_[i] || options_[i]->count() == 0) continue;
      std::visit(
          [&](const auto& target) {
            using Target = std::decay_t<decltype(target)>;
            if constexpr (std::is_same_v<Target, SettingField::Choice>) {
              for (size_t k = 0; k < target.names.size(); ++k) {
                if (target.names[k] == texts_[i]) target.set(k);
              }
            } else {
              *target = *std::get<Target>(fields_[i].target);
            }
          },
          targets[i].target);
    }
    return settings;
  }

 private:
  static std::vector<SettingField> fields_of(S& settings) {
    std::vector<SettingField> fields;
    Fields<S> described(settings, fields);
    S::describe(described);
    return fields;
  }

  /// The option of the field `index`; null: its kind has none.
  CLI::Option* add(CLI::App& app, const std::string& flag, size_t index) {
    const auto& field = fields_[index];
    if (const auto* choice = std::get_if<SettingField::Choice>(&field.target)) {
      return app.add_option(flag, texts_[index], field.meaning)->check(CLI::IsMember(choice->names));
    }
    if (const auto* integer = std::get_if<int64_t*>(&field.target)) return number(app, flag, **integer, field);
    if (const auto* real = std::get_if<double*>(&field.target)) return number(app, flag, **real, field);
    if (const auto* truth = std::get_if<bool*>(&field.target)) {
      return app.add_option(flag, **truth, field.meaning)->transform(spelled<bool>({}, ""));
    }
    if (const auto* text = std::get_if<std::string*>(&field.target)) {
      return app.add_option(flag, **text, field.meaning);
    }
    return nullptr;
  }

  template <class Number>
  static CLI::Option* number(CLI::App& app, const std::string& flag, Number& value, const SettingField& field) {
    return app.add_option(flag, value, field.meaning)->transform(spelled<Number>(field.range, field.range.text()));
  }

  S given_;
  std::vector<SettingField> fields_;   // bound to given_
  std::vector<std::string> texts_;     // of enumerations
  std::vector<CLI::Option*> options_;  // null: a setting, or a kind of them, that has no option
};

}  // namespace transformer
