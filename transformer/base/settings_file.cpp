#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "transformer/base/document.h"
#include "transformer/base/error.h"
#include "transformer/base/settings.h"
#include "transformer/base/unicode.h"

namespace transformer {

namespace {

constexpr int64_t format_version = 1;

}  // namespace

/// Reads a file and, first, those that it extends.
struct Settings::Loader {
  Settings& settings;
  UnknownSections unknown;
  std::vector<std::filesystem::path> open = {};  // the file being read, after those that extend it

  void load(const std::filesystem::path& file, const std::string& where, const std::string& subject) {
    const auto document = Document::read(file, where, subject, "sections of settings");
    if (document.kind() != Document::Kind::mapping) {
      throw Error(document.where(), "sections of settings were expected, found " + document.setting_value().found(),
                  "write, for instance, 'model: {d_model: 512}'");
    }
    const auto entries = document.keys();
    std::error_code none;  // a pipe's descriptor is no path that leads anywhere
    const auto canonical = std::filesystem::weakly_canonical(file, none);
    open.push_back(none ? file : canonical);
    for (const auto& entry : entries) {
      if (entry.key == "format") check_format(entry);
    }
    for (const auto& entry : entries) {
      if (entry.key == "extends") load_base(file, entry);
    }
    std::vector<Assignment> assignments;
    for (const auto& entry : entries) {
      if (entry.key != "format" && entry.key != "extends") collect(entry, assignments);
    }
    settings.apply(assignments);
    open.pop_back();
  }

  static void check_format(const Document::Entry& entry) {
    const SettingValue value = entry.value.setting_value();
    const auto version = value.integer();
    if (!version || *version < 1) {
      throw Error(entry.where, "format takes a version number, found " + value.found());
    }
    if (*version > format_version) {
      throw Error(entry.where,
                  fmt::format("the file has format {}, written by a newer version of this program; this one reads "
                              "format {}",
                              *version, format_version),
                  "update the program");
    }
  }

  void load_base(const std::filesystem::path& file, const Document::Entry& entry) {
    const std::string given = entry.value.text();
    if (given.empty()) {
      throw Error(entry.where,
                  "extends takes the path of a settings file, found " + entry.value.setting_value().found());
    }
    const auto base = (file.parent_path() / given).lexically_normal();
    std::error_code refused;  // what cannot be a path is told of where it is read
    const auto canonical = std::filesystem::weakly_canonical(base, refused);
    if (std::find(open.begin(), open.end(), canonical) != open.end()) {
      std::string circle;
      for (const auto& path : open) circle += path.filename().string() + " -> ";
      throw Error(entry.where, "the files extend each other in a circle: " + circle + base.filename().string(),
                  "remove one 'extends'");
    }
    load(base, entry.where, "extends " + base.string() + ": ");
  }

  void collect(const Document::Entry& entry, std::vector<Assignment>& assignments) const {
    const bool is_mapping = entry.value.kind() == Document::Kind::mapping;
    const Section* section = settings.find(entry.key);
    if (!section) {
      if (unknown == UnknownSections::ignored && is_mapping) return;
      settings.unknown_section(entry.where, entry.key);
    }
    if (!is_mapping) {
      throw Error(entry.where,
                  fmt::format("{} is a section of settings, found {}", in_quotes(entry.key),
                              entry.value.setting_value().found()),
                  section->fields.empty() ? ""
                                          : fmt::format("write, for instance, '{}: {{{}: {}}}'", section->name,
                                                        section->fields[0].name, section->fields[0].default_text));
    }
    for (const auto& setting : entry.value.keys(entry.key + ".")) {
      const SettingField* field = section->find(setting.key);
      if (!field) settings.unknown_setting(setting.where, *section, setting.key);
      assignments.push_back({section, field, setting.value.setting_value(), setting.where});
    }
  }
};

void Settings::load(const std::filesystem::path& file, UnknownSections unknown) {
  Loader{*this, unknown}.load(file, file.string(), "");
}

std::string Settings::yaml() const {
  std::string text = fmt::format("format: {}\n", format_version);
  for (const auto& section : sections_) {
    std::string fields;
    for (const auto& field : section.fields) {
      if (field.stands_for.empty()) fields += fmt::format("  {}: {}\n", field.name, as_yaml(field));
    }
    text += "\n" + section.name + (fields.empty() ? ": {}\n" : ":\n" + fields);
  }
  return text;
}

}  // namespace transformer
