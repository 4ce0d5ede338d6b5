#include "transformer/base/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "transformer/base/document.h"
#include "transformer/base/error.h"
#include "transformer/base/spelling.h"
#include "transformer/base/unicode.h"

namespace transformer {

bool says_where(const std::string& setting) {
  static const std::set<std::string> names = {"training.output", "training.device", "training.threads", "data.cache"};
  return names.contains(setting);
}

bool decides_translations(const std::string& setting) {
  return setting.starts_with("decoding.") && setting != "decoding.batch_sentences" && setting != "decoding.proposals";
}

const SettingField* Settings::Section::find(const std::string& field) const {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const auto& other) { return other.name == field; });
  return found == fields.end() ? nullptr : &*found;
}

const Settings::Section* Settings::find(const std::string& section) const {
  const auto found =
      std::find_if(sections_.begin(), sections_.end(), [&](const auto& other) { return other.name == section; });
  return found == sections_.end() ? nullptr : &*found;
}

void Settings::add(const std::string& name, const std::string& title, std::vector<SettingField> fields) {
  const auto require = [&](bool holds, const std::string& what) {
    if (!holds) throw std::logic_error("settings section " + name + ": " + what);
  };
  require(!find(name) && name != "extends" && name != "format", "the name is taken");
  Section section{name, title, std::move(fields)};
  for (auto& field : section.fields) {
    require(section.find(field.name) == &field, field.name + " is declared twice");
    if (field.stands_for.empty()) field.default_text = as_yaml(field);
    for (const auto& other : field.stands_for) {
      const SettingField* target = section.find(other);
      require(target && target->stands_for.empty(), field.name + " sets the undeclared " + other);
    }
  }
  sections_.push_back(std::move(section));
}

/// The declared "section.setting" that looks most like the one given, or nothing.
std::string Settings::nearest(const std::string& section_name, const std::string& setting) const {
  if (section_name.size() > longest_word || setting.size() > longest_word) return "";
  std::string best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  for (const auto& section : sections_) {
    const size_t section_distance = edit_distance(section_name, section.name);
    for (const auto& field : section.fields) {
      const size_t distance = edit_distance(setting, field.name);
      if (distance > largest_slip(setting)) continue;
      // The right name in a wrong section is a likelier slip than a wrong name.
      const size_t total = 2 * distance + (section_distance == 0 ? 0 : section_distance <= 2 ? 1 : 2);
      if (total < best_distance) {
        best = section.name + "." + field.name;
        best_distance = total;
      }
    }
  }
  return best;
}

void Settings::unknown_section(const std::string& where, const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& section : sections_) names.push_back(section.name);
  std::string near = nearest_word(name, names);
  if (near.empty()) near = nearest("", name);
  throw Error(where, "unknown section " + in_quotes(name),
              did_you_mean(near, fmt::format("the sections are: {}", fmt::join(names, ", "))));
}

void Settings::unknown_setting(const std::string& where, const Section& section, const std::string& name) const {
  const std::string near = nearest(section.name, name);
  std::vector<std::string> names;
  for (const auto& field : section.fields) names.push_back(field.name);
  throw Error(where, "unknown setting " + in_quotes(section.name + "." + name),
              did_you_mean(near, fmt::format("the settings of '{}' are: {}", section.name, fmt::join(names, ", "))));
}

void Settings::apply(const std::vector<Assignment>& assignments) {
  // Names that set several settings come first, so that in one source the settings' own names win.
  for (const auto& assignment : assignments) {
    for (const auto& name : assignment.field->stands_for) {
      assign(*assignment.section->find(name), assignment.name(), assignment.value, assignment.where);
      explicitly_set_.insert(assignment.section->name + "." + name);
      explicitly_set_.insert(assignment.name());
    }
  }
  for (const auto& assignment : assignments) {
    if (!assignment.field->stands_for.empty()) continue;
    assign(*assignment.field, assignment.name(), assignment.value, assignment.where);
    explicitly_set_.insert(assignment.name());
  }
}

SettingOverride parse_override(const std::string& text) {
  const std::string where = "--set " + printable(text);
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error(where, "section.setting=value was expected");
  }
  return {text.substr(0, equals), text.substr(equals + 1), where};
}

void Settings::set(const std::vector<std::string>& overrides) {
  std::vector<SettingOverride> parsed;
  for (const auto& text : overrides) parsed.push_back(parse_override(text));
  override_with(parsed);
}

void Settings::override_with(const std::vector<SettingOverride>& overrides) {
  std::vector<Assignment> assignments;
  for (const auto& [full_name, value, where] : overrides) {
    const size_t dot = full_name.find('.');
    if (find_broken_utf8(full_name) != std::string::npos || find_broken_utf8(value) != std::string::npos) {
      throw Error(where, "the text is not UTF-8");
    }
    if (dot == std::string::npos) {
      const std::string near = nearest("", full_name);
      throw Error(where, in_quotes(full_name) + " names no section",
                  near.empty() ? "write section.setting" : did_you_mean(near));
    }
    const std::string section_name = full_name.substr(0, dot), name = full_name.substr(dot + 1);
    const Section* section = find(section_name);
    if (!section) {
      const std::string near = nearest(section_name, name);
      if (near.empty()) unknown_section(where, section_name);
      throw Error(where, "unknown section " + in_quotes(section_name), did_you_mean(near));
    }
    const SettingField* field = section->find(name);
    if (!field) unknown_setting(where, *section, name);

    const bool is_list = std::holds_alternative<std::vector<std::string>*>(field->target) ||
                         std::holds_alternative<std::vector<double>*>(field->target);
    const bool is_text = std::holds_alternative<std::string*>(field->target);
    SettingValue parsed{SettingValue::Kind::scalar, {value}};
    if (is_list && value.starts_with('[')) {
      parsed = Document::parse(value, where).setting_value();
    } else if (is_list) {
      parsed = {SettingValue::Kind::list, {}};
      for (size_t begin = 0; !value.empty() && begin <= value.size();) {
        const size_t end = std::min(value.find(',', begin), value.size());
        parsed.texts.push_back(value.substr(begin, end - begin));
        begin = end + 1;
      }
    } else if (value.empty() && !is_text) {
      parsed = {SettingValue::Kind::nothing, {}};
    }
    assignments.push_back({section, field, std::move(parsed), where});
  }
  apply(assignments);
}

std::map<std::string, std::string> Settings::values() const {
  std::map<std::string, std::string> values;
  for (const auto& section : sections_) {
    for (const auto& field : section.fields) {
      if (!field.stands_for.empty()) continue;
      const auto* text = std::get_if<std::string*>(&field.target);
      const auto* choice = std::get_if<SettingField::Choice>(&field.target);
      values[fmt::format("{}.{}", section.name, field.name)] = text     ? **text
                                                               : choice ? choice->names.at(choice->get())
                                                                        : as_yaml(field);
    }
  }
  return values;
}

std::map<std::string, SettingRule> Settings::rules() const {
  std::map<std::string, SettingRule> rules;
  for (const auto& section : sections_) {
    for (const auto& field : section.fields) {
      if (field.stands_for.empty()) rules[section.name + "." + field.name] = {field.kind, field.default_text};
    }
  }
  return rules;
}

bool Settings::explicitly_set(const std::string& setting) const {
  const size_t dot = setting.find('.');
  const Section* section = dot == std::string::npos ? nullptr : find(setting.substr(0, dot));
  if (!section || !section->find(setting.substr(dot + 1))) {
    throw std::invalid_argument("no setting was declared as '" + setting + "'");
  }
  return explicitly_set_.contains(setting);
}

}  // namespace transformer
