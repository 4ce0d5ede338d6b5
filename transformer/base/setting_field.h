#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace transformer {

/// Which numbers a setting may take.
struct Range {
  double lowest = -std::numeric_limits<double>::infinity();
  double highest = std::numeric_limits<double>::infinity();
  bool lowest_excluded = false;
  bool highest_excluded = false;

  bool contains(double number) const;
  /// For people: "at least 1", "more than 0", "from 0 to 1", "from 0 to less than 1"; empty where all is allowed.
  std::string text() const;
};

Range at_least(double lowest);
Range more_than(double lowest);
Range at_most(double highest);
Range between(double lowest, double highest);    // both included
Range half_open(double lowest, double highest);  // the highest excluded
Range fraction();                                // [0, 1): a probability of dropping that leaves something

/// What another value means for a training run that has begun.
enum class SettingKind {
  fixed,       // another run: architecture, vocabulary, text, seed
  changeable,  // may change at a step, if the user says so; the run's history records it
  free         // nothing that training computes depends on it (but for rounding)
};

/// One setting of a section: what the declaration said, and the member it is bound to.
struct SettingField {
  struct Choice {  // an enumeration
    std::vector<std::string> names;
    std::function<size_t()> get;      // index into names; names.size() for a value without a name
    std::function<void(size_t)> set;  // index into names
  };
  using Target = std::variant<int64_t*, uint64_t*, double*, bool*, std::string*, std::vector<std::string>*,
                              std::vector<double>*, Choice>;

  std::string name;
  std::string meaning;
  Range range;  // of a list of numbers: of each
  Target target;
  std::string default_text;             // as in YAML
  std::vector<std::string> stands_for;  // not empty: another name that sets these settings and is never saved
  SettingKind kind = SettingKind::fixed;

  /// For people: "an integer", "one of: bpe, unigram".
  std::string type_text() const;
  /// "at least 1"; of a list "each at least 1".
  std::string range_text() const;
  /// Both: "an integer, at least 1".
  std::string expectation() const;

  void changeable() { kind = SettingKind::changeable; }
  void free() { kind = SettingKind::free; }
};

/// What a run that has begun must know of a setting.
struct SettingRule {
  SettingKind kind = SettingKind::fixed;
  std::string default_text;  // as in YAML: its value in settings saved before it existed
};

template <class T>
concept SettingNumber = std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t> || std::is_same_v<T, double> ||
    std::is_same_v<T, std::vector<double>>;
template <class T>
concept SettingPlain =
    std::is_same_v<T, bool> || std::is_same_v<T, std::string> || std::is_same_v<T, std::vector<std::string>>;

/// Given to `S::describe`, which calls it once for every setting:
///
///     void ModelSettings::describe(Fields<ModelSettings>& field) {
///       field("d_model", &ModelSettings::d_model, "width of every layer's output (§3.1)", at_least(1));
///       field("positions", &ModelSettings::positions, "positional encoding (§3.5)",
///             {{"sinusoidal", Positions::sinusoidal}, {"learned", Positions::learned}});
///       field.pair("layers", {"encoder_layers", "decoder_layers"}, "sets both");
///       field("dropout", &ModelSettings::dropout, "P_drop (§5.4)", fraction()).changeable();
///     }
///
/// A setting is fixed for a run that has begun unless its declaration says `.changeable()` or `.free()` (SettingKind).
///
/// Members are int64_t, uint64_t, double, bool, std::string, std::vector of std::string or double, or an enumeration.
template <class S>
class Fields {
 public:
  Fields(S& settings, std::vector<SettingField>& fields) : settings_(settings), fields_(fields) {}

  template <SettingNumber T>
  SettingField& operator()(const std::string& name, T S::*member, const std::string& meaning, const Range& range = {}) {
    return fields_.emplace_back(SettingField{name, meaning, range, &(settings_.*member), {}, {}});
  }

  template <SettingPlain T>
  SettingField& operator()(const std::string& name, T S::*member, const std::string& meaning) {
    return fields_.emplace_back(SettingField{name, meaning, {}, &(settings_.*member), {}, {}});
  }

  template <class E>
  requires std::is_enum_v<E> SettingField& operator()(
      const std::string& name, E S::*member, const std::string& meaning,
      std::initializer_list<std::pair<const char*, std::type_identity_t<E>>> choices) {
    SettingField::Choice choice;
    std::vector<E> values;
    for (const auto& [value_name, value] : choices) {
      choice.names.emplace_back(value_name);
      values.push_back(value);
    }
    E* target = &(settings_.*member);
    choice.get = [=] {
      size_t index = 0;
      while (index < values.size() && values[index] != *target) ++index;
      return index;
    };
    choice.set = [=](size_t index) { *target = values.at(index); };
    return fields_.emplace_back(SettingField{name, meaning, {}, std::move(choice), {}, {}});
  }

  /// `name` sets every one of `names` in this section (declared before or after). Within one file, or among all --set
  /// of a command line, `names` themselves win over it. Saved settings do not contain it.
  void pair(const std::string& name, const std::vector<std::string>& names, const std::string& meaning) {
    fields_.push_back({name, meaning, {}, static_cast<bool*>(nullptr), {}, names});
  }

 private:
  S& settings_;
  std::vector<SettingField>& fields_;
};

}  // namespace transformer
