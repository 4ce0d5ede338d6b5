#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transformer/base/setting_field.h"
#include "transformer/base/setting_value.h"

namespace transformer {

/// A setting that neither a settings file nor a command line gives, but a file of another kind.
struct SettingOverride {
  std::string name;   // "section.setting"
  std::string value;  // as --set takes it
  std::string where;  // for messages: "grid.yaml:7"
};

/// "section.setting=value" of a command line. Throws Error where it is not that.
SettingOverride parse_override(const std::string& text);

/// Whether "section.setting" says where a run computes and writes, and not what: a run that has finished with another
/// value has finished.
bool says_where(const std::string& setting);
/// Whether "section.setting" decides how a text is translated: one of `decoding`, but for those that change no output.
bool decides_translations(const std::string& setting);

/// What to do with a section of a file that this program did not declare. Unknown settings inside declared sections
/// are errors either way.
enum class UnknownSections {
  rejected,  // an Error, with the nearest name
  ignored    // passed over with all that is in them
};

/// Named sections of settings, each bound to a struct that must outlive this object. The structs' values when they are
/// bound are the defaults; every later source writes into the structs and overrides what came before:
///
///     ModelSettings model;
///     Settings settings;
///     settings.section("model", model, "The model (§3)");
///     settings.load("configs/base.yaml");
///     settings.set({"model.d_model=256"});
///
/// Every Error names the file and line (or the --set), the setting, what was expected and what was found. After an
/// Error the structs may hold part of the failed source.
class Settings {
 public:
  /// Declares section `name`, of which reference and help say `title`. `settings` may have been set before.
  template <class S>
  void section(const std::string& name, S& settings, const std::string& title) {
    std::vector<SettingField> fields;
    Fields<S> described(settings, fields);
    S::describe(described);
    add(name, title, std::move(fields));
  }

  /// Reads a YAML file: a mapping of sections to mappings of settings. `extends: FILE` (relative to this file) reads
  /// FILE first, so that a file need only hold what differs.
  /// Throws Error for a file that is missing, no text, no YAML, empty, or written by a newer version (`format`);
  /// for unknown and repeated names, for values of the wrong type or out of range, and for files that extend each
  /// other in a circle.
  void load(const std::filesystem::path& file, UnknownSections unknown = UnknownSections::rejected);

  /// Overrides single settings: "section.setting=value". A list is "a,b" or "[a, b]". Of two for the same setting the
  /// later wins. Throws Error.
  void set(const std::vector<std::string>& overrides);

  /// The same for overrides that come from elsewhere. Of one call, settings' own names win over names that set several.
  void override_with(const std::vector<SettingOverride>& overrides);

  /// Every setting by its full name, "section.setting", with its value as set() takes it: set() with all of them gives
  /// these settings again.
  std::map<std::string, std::string> values() const;

  /// Every setting's kind and default, by its full name.
  std::map<std::string, SettingRule> rules() const;

  /// The complete settings, to be saved: load() reads them back exactly.
  std::string yaml() const;

  /// All settings as Markdown, a table a section.
  std::string reference() const;

  /// All settings as plain text for --help.
  std::string help() const;

  /// Whether a file or a --set gave "section.setting" a value, be it the default. Throws std::invalid_argument for a
  /// name that was not declared.
  bool explicitly_set(const std::string& setting) const;

 private:
  struct Section {
    std::string name, title;
    std::vector<SettingField> fields;
    const SettingField* find(const std::string& field) const;
  };
  // One setting that a source gives.
  struct Assignment {
    const Section* section;
    const SettingField* field;
    SettingValue value;
    std::string where;

    std::string name() const { return section->name + "." + field->name; }
  };
  struct Loader;

  void add(const std::string& name, const std::string& title, std::vector<SettingField> fields);
  const Section* find(const std::string& section) const;
  std::string nearest(const std::string& section, const std::string& setting) const;
  [[noreturn]] void unknown_section(const std::string& where, const std::string& name) const;
  [[noreturn]] void unknown_setting(const std::string& where, const Section& section, const std::string& name) const;
  void apply(const std::vector<Assignment>& assignments);

  std::vector<Section> sections_;
  std::set<std::string> explicitly_set_;
};

}  // namespace transformer
