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
  double lowest = -std::numeric_limits<double>::infinity();  // allowed itself, unless excluded
  double highest = std::numeric_limits<double>::infinity();  // likewise
  bool lowest_excluded = false;                              // only what is more than `lowest` is allowed
  bool highest_excluded = false;                             // only what is less than `highest` is allowed

  /// Whether `number` is allowed; what is not a number never is. A long double holds every integer of 64 bits.
  bool contains(long double number) const;
  /// For people: "at least 1", "more than 0", "from 0 to 1", "from 0 to less than 1"; empty where all is allowed.
  std::string text() const;
};

/// From `lowest` on, that included.
Range at_least(double lowest);
/// All above `lowest`.
Range more_than(double lowest);
/// Up to `highest`, that included.
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
  /// An enumeration, by its values' names.
  struct Choice {
    std::vector<std::string> names;   // as YAML and --set spell them
    std::function<size_t()> get;      // index into names; names.size() for a value without a name
    std::function<void(size_t)> set;  // index into names
  };
  /// Where the value goes, by its type.
  using Target = std::variant<int64_t*, uint64_t*, double*, bool*, std::string*, std::vector<std::string>*,
                              std::vector<double>*, Choice>;

  std::string name;                       // within its section: "d_model"
  std::string meaning;                    // for --help and configs/README.md
  Range range;                            // of a list of numbers: of each
  Target target;                          // null with `stands_for`
  std::string default_text;               // as in YAML
  std::vector<std::string> stands_for;    // not empty: another name that sets these settings and is never saved
  SettingKind kind = SettingKind::fixed;  // see changeable() and free()

  /// For people: "an integer", "one of: bpe, unigram".
  std::string type_text() const;
  /// "at least 1"; of a list "each at least 1".
  std::string range_text() const;
  /// Both: "an integer, at least 1".
  std::string expectation() const;

  /// Another value may be given to a run that has begun, and counts from there on.
  void changeable() { kind = SettingKind::changeable; }
  /// Another value may be given at any time, as nothing is computed from it.
  void free() { kind = SettingKind::free; }
};

/// What a run that has begun must know of a setting.
struct SettingRule {
  SettingKind kind = SettingKind::fixed;  // whether a run may go on with another value
  std::string default_text;               // as in YAML: its value in settings saved before it existed
};

/// What a Range may bound: numbers, and lists of them.
template <class T>
concept SettingNumber = std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t> || std::is_same_v<T, double> ||
    std::is_same_v<T, std::vector<double>>;
/// What needs no bounds: switches, texts, and lists of texts.
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
  /// Declares the members of `settings`, whose present values are the defaults, by adding to `fields`.
  Fields(S& settings, std::vector<SettingField>& fields) : settings_(settings), fields_(fields) {}

  /// A number, or a list of numbers, within `range`.
  template <SettingNumber T>
  SettingField& operator()(const std::string& name, T S::*member, const std::string& meaning, const Range& range = {}) {
    return fields_.emplace_back(SettingField{name, meaning, range, &(settings_.*member), {}, {}});
  }

  /// A switch, a text, or a list of texts.
  template <SettingPlain T>
  SettingField& operator()(const std::string& name, T S::*member, const std::string& meaning) {
    return fields_.emplace_back(SettingField{name, meaning, {}, &(settings_.*member), {}, {}});
  }

  /// An enumeration; `choices` are its values by name.
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
