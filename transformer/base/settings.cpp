#include "transformer/base/settings.h"

#include <fmt/format.h>
#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "transformer/base/document.h"
#include "transformer/base/error.h"
#include "transformer/base/unicode.h"

namespace transformer {

namespace {

constexpr int64_t format_version = 1;
// A settings file is a few kilobytes; whoever names a model or a corpus by mistake should not wait for it to be read.
constexpr size_t largest_file = size_t{4} << 20;

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;  // C++20 implies it, and clang 14 wants it said

/// Shortest text that reads back as the same number. The point and the exponent's sign are there for readers of
/// YAML 1.1 too, which take `1e-09` for a text.
std::string number_text(double number) {
  char digits[32];
  std::string text(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
  const size_t exponent = text.find('e');
  const std::string mantissa = text.substr(0, exponent);
  if (mantissa.find('.') != std::string::npos) return text;
  return mantissa + ".0" + (exponent == std::string::npos ? "" : text.substr(exponent));
}

/// Bounds in messages: 1, 0.5, without the point that number_text adds.
std::string bound_text(double number) {
  return fmt::format("{}", number);
}

/// Code points of UTF-8 text, or nothing where it is not well-formed.
std::optional<std::vector<char32_t>> code_points(std::string_view text) {
  if (find_broken_utf8(text) != std::string_view::npos) return std::nullopt;
  std::vector<char32_t> points;
  for (size_t position = 0; position < text.size();) points.push_back(next_code_point(text, position));
  return points;
}

/// A text as a YAML scalar that every reader takes for a text.
std::string text_as_yaml(const std::string& text) {
  static const std::set<std::string> special = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto is_plain = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '/' || c == '.' || c == '-'; };
  const auto starts_plain = [](unsigned char c) { return std::isalpha(c) || c == '_' || c == '/'; };
  if (!text.empty() && starts_plain(text[0]) && std::all_of(text.begin(), text.end(), is_plain) &&
      !special.contains(lower)) {
    return text;
  }
  const auto points = code_points(text);
  if (!points) throw Error("", "the setting " + in_quotes(text) + " is not UTF-8", "settings hold UTF-8 text only");
  std::string result = "\"";
  size_t at = 0;
  for (char32_t point : *points) {
    const size_t length = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    if (point == U'"' || point == U'\\') {
      result += '\\';
      result += static_cast<char>(point);
    } else if (point < 0x20 || (point >= 0x7f && point < 0xa0)) {
      result += fmt::format("\\x{:02x}", static_cast<uint32_t>(point));
    } else if (point == 0x2028 || point == 0x2029 || point == 0xfeff || point == 0xfffe || point == 0xffff) {
      result += fmt::format("\\u{:04x}", static_cast<uint32_t>(point));
    } else {
      result += text.substr(at, length);
    }
    at += length;
  }
  return result + "\"";
}

std::string as_yaml(const SettingField& field) {
  return std::visit(Overloaded{[](const int64_t* value) { return std::to_string(*value); },
                               [](const uint64_t* value) { return std::to_string(*value); },
                               [](const double* value) { return number_text(*value); },
                               [](const bool* value) { return std::string(*value ? "true" : "false"); },
                               [](const std::string* value) { return text_as_yaml(*value); },
                               [](const std::vector<std::string>* value) {
                                 std::string list;
                                 for (const auto& text : *value)
                                   list += (list.empty() ? "" : ", ") + text_as_yaml(text);
                                 return "[" + list + "]";
                               },
                               [](const std::vector<double>* value) {
                                 std::string list;
                                 for (const double number : *value)
                                   list += (list.empty() ? "" : ", ") + number_text(number);
                                 return "[" + list + "]";
                               },
                               [&](const SettingField::Choice& choice) {
                                 const size_t index = choice.get();
                                 if (index >= choice.names.size()) {
                                   throw std::logic_error("setting " + field.name + " has a value without a name");
                                 }
                                 return text_as_yaml(choice.names[index]);
                               }},
                    field.target);
}

std::string joined(const std::vector<std::string>& texts, const std::string& separator = ", ") {
  return fmt::format("{}", fmt::join(texts, separator));
}

/// What a setting takes: "an integer", "one of: bpe, unigram".
std::string kind_text(const SettingField& field) {
  return std::visit(
      Overloaded{[](const int64_t*) { return std::string("an integer"); },
                 [&](const uint64_t*) {
                   return std::string(std::isinf(field.range.lowest) ? "an integer of at least 0" : "an integer");
                 },
                 [](const double*) { return std::string("a number"); },
                 [](const bool*) { return std::string("true or false"); },
                 [](const std::string*) { return std::string("a text"); },
                 [](const std::vector<std::string>*) { return std::string("a list of texts"); },
                 [](const std::vector<double>*) { return std::string("a list of numbers"); },
                 [](const SettingField::Choice& choice) { return "one of: " + joined(choice.names); }},
      field.target);
}

/// "at least 1"; of a list "each at least 1".
std::string range_text(const SettingField& field) {
  const std::string range = field.range.text();
  return !range.empty() && std::holds_alternative<std::vector<double>*>(field.target) ? "each " + range : range;
}

const char* name_of(SettingKind kind) {
  switch (kind) {
    case SettingKind::fixed:
      return "fixed";
    case SettingKind::changeable:
      return "changeable";
    case SettingKind::free:
      break;
  }
  return "free";
}

/// What a setting takes with its range: "an integer, at least 1".
std::string expectation(const SettingField& field) {
  const std::string range = range_text(field);
  return kind_text(field) + (range.empty() ? "" : ", " + range);
}

/// Letters to change, insert, leave out or swap with their neighbour to get from one word to the other.
size_t edit_distance(const std::string& from, const std::string& to) {
  std::vector<std::vector<size_t>> cost(from.size() + 1, std::vector<size_t>(to.size() + 1));
  for (size_t i = 0; i <= from.size(); ++i) {
    for (size_t j = 0; j <= to.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const size_t change = from[i - 1] == to[j - 1] ? 0 : 1;
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[from.size()][to.size()];
}

/// Names further away than this are other words, not slips.
size_t tolerance(const std::string& name) {
  return std::max<size_t>(1, std::min<size_t>(3, name.size() / 3));
}

std::string nearest_of(const std::string& name, const std::vector<std::string>& candidates) {
  if (name.size() > 64) return "";
  std::string best;
  size_t best_distance = tolerance(name) + 1;
  for (const auto& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(const std::string& name) {
  return name.empty() ? "" : "did you mean '" + name + "'?";
}

/// A setting's value as a source spells it, before its type is known.
struct Value {
  enum class Kind { nothing, scalar, list, mapping, too_long } kind = Kind::nothing;
  std::vector<std::string> texts;

  std::string found() const {
    switch (kind) {
      case Kind::nothing:
        return "nothing";
      case Kind::scalar:
        return in_quotes(texts[0]);
      case Kind::list:
        return "a list";
      case Kind::mapping:
        return "a mapping";
      case Kind::too_long:
        return "a list that aliases make longer than a file may be";
    }
    return "";
  }
};

Value value_of(const YAML::Node& node) {
  if (node.IsScalar()) return {Value::Kind::scalar, {node.Scalar()}};
  if (node.IsMap()) return {Value::Kind::mapping, {}};
  if (!node.IsSequence()) return {Value::Kind::nothing, {}};
  Value value{Value::Kind::list, {}};
  size_t bytes = 0;
  for (const auto& element : node) {
    // No setting is a list of anything but texts.
    if (!element.IsScalar()) return {Value::Kind::mapping, {}};
    // A file of megabytes can name one of its texts a million times.
    if ((bytes += element.Scalar().size()) > largest_file) return {Value::Kind::too_long, {}};
    value.texts.push_back(element.Scalar());
  }
  return value;
}

std::optional<double> parse_double(const std::string& text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [last, status] = std::from_chars(text.data(), end, number);
  if (status != std::errc() || last != end || !std::isfinite(number)) return std::nullopt;
  return number;
}

enum class Parsed { yes, malformed, too_large };

template <class Integer>
Parsed parse_integer(const std::string& text, Integer& number) {
  const char* end = text.data() + text.size();
  const auto [last, status] = std::from_chars(text.data(), end, number);
  if (last == end && status == std::errc::result_out_of_range) return Parsed::too_large;
  if (last == end && status == std::errc()) return Parsed::yes;
  // 1e5, 2.5e3: exact as long as a double holds every integer.
  if (text.find_first_of("eE") == std::string::npos) return Parsed::malformed;
  const auto real = parse_double(text);
  if (!real || std::trunc(*real) != *real) return Parsed::malformed;
  if (std::abs(*real) > 9007199254740992.0) return Parsed::too_large;
  if (std::is_unsigned_v<Integer> && *real < 0) return Parsed::malformed;
  number = static_cast<Integer>(*real);
  return Parsed::yes;
}

/// Writes `value` into the member that `field` is bound to. `name` is what the source called it.
void assign(const SettingField& field, const std::string& name, const Value& value, const std::string& where) {
  const auto wrong_type = [&](const std::string& remedy = "") {
    throw Error(where, fmt::format("{} takes {}, found {}", name, expectation(field), value.found()), remedy);
  };
  const auto out_of_range = [&](const std::string& text) {
    throw Error(where, fmt::format("{} is out of range: {}", name, printable(text)), "it takes " + expectation(field));
  };
  const bool scalar = value.kind == Value::Kind::scalar;
  std::visit(Overloaded{[&](auto* number) {  // int64_t, uint64_t
                          std::remove_pointer_t<decltype(number)> parsed = 0;
                          if (!scalar) wrong_type();
                          const Parsed outcome = parse_integer(value.texts[0], parsed);
                          if (outcome == Parsed::malformed) wrong_type();
                          if (outcome == Parsed::too_large) {
                            using Limits = std::numeric_limits<decltype(parsed)>;
                            throw Error(where, fmt::format("{} is out of range: {}", name, in_quotes(value.texts[0])),
                                        std::isinf(field.range.highest)
                                            ? fmt::format("it takes {}, at most {}", expectation(field), Limits::max())
                                            : "it takes " + expectation(field));
                          }
                          if (!field.range.contains(static_cast<double>(parsed))) out_of_range(value.texts[0]);
                          *number = parsed;
                        },
                        [&](double* number) {
                          const auto parsed = scalar ? parse_double(value.texts[0]) : std::nullopt;
                          if (!parsed) wrong_type();
                          if (!field.range.contains(*parsed)) out_of_range(value.texts[0]);
                          *number = *parsed;
                        },
                        [&](bool* flag) {
                          static const std::map<std::string, bool> words = {{"true", true},   {"True", true},
                                                                            {"TRUE", true},   {"false", false},
                                                                            {"False", false}, {"FALSE", false}};
                          const auto word = scalar ? words.find(value.texts[0]) : words.end();
                          if (word == words.end()) wrong_type();
                          *flag = word->second;
                        },
                        [&](std::string* text) {
                          if (!scalar) wrong_type();
                          *text = value.texts[0];
                        },
                        [&](std::vector<std::string>* texts) {
                          if (!scalar && value.kind != Value::Kind::list) wrong_type();
                          *texts = value.texts;
                        },
                        [&](std::vector<double>* numbers) {
                          if (!scalar && value.kind != Value::Kind::list) wrong_type();
                          std::vector<double> parsed;
                          for (const auto& text : value.texts) {
                            const auto number = parse_double(text);
                            if (!number) {
                              throw Error(where, fmt::format("{} takes {}, found {} in it", name, expectation(field),
                                                             in_quotes(text)));
                            }
                            if (!field.range.contains(*number)) out_of_range(text);
                            parsed.push_back(*number);
                          }
                          *numbers = parsed;
                        },
                        [&](const SettingField::Choice& choice) {
                          if (!scalar) wrong_type();
                          const auto found = std::find(choice.names.begin(), choice.names.end(), value.texts[0]);
                          if (found == choice.names.end())
                            wrong_type(did_you_mean(nearest_of(value.texts[0], choice.names)));
                          choice.set(static_cast<size_t>(found - choice.names.begin()));
                        }},
             field.target);
}

std::string read_text(const std::filesystem::path& file, const std::string& where, const std::string& subject) {
  const auto fail = [&](const std::string& what, const std::string& remedy) {
    throw Error(where, subject + what, remedy);
  };
  std::error_code problem;
  const auto status = std::filesystem::status(file, problem);
  if (status.type() == std::filesystem::file_type::not_found) fail("there is no such file", "check the path");
  if (std::filesystem::is_directory(status)) fail("this is a folder", "name a settings file (YAML)");
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) fail(std::string("it cannot be opened: ") + std::strerror(errno), "check the path and its permissions");
  std::string text;
  char block[1 << 14];
  while (stream.read(block, sizeof block), stream.gcount() > 0) {
    text.append(block, static_cast<size_t>(stream.gcount()));
    if (text.size() > largest_file ||
        text.find('\0', text.size() - static_cast<size_t>(stream.gcount())) != text.npos) {
      fail("this is no settings file: it is binary or very large", "name a settings file (YAML)");
    }
  }
  if (stream.bad()) fail("it cannot be read", "check the file and its disk");
  const auto points = code_points(text);
  const auto is_control = [](char32_t c) { return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f; };
  if (!points || std::any_of(points->begin(), points->end(), is_control)) {
    fail("this is no settings file: it is not UTF-8 text", "name a settings file (YAML)");
  }
  return text;
}

std::string at_line(const std::filesystem::path& file, const YAML::Mark& mark) {
  return mark.is_null() ? file.string() : fmt::format("{}:{}", file.string(), mark.line + 1);
}

/// The YAML library's words in ours; what it says of rarer mistakes stays as it is.
std::string yaml_mistake(const std::string& message) {
  static const std::map<std::string, std::string> known = {
      {"illegal map value", "a colon where no name can stand before it (put a text that has colons in quotes)"},
      {"end of map flow not found", "a '{' without its '}'"},
      {"end of sequence flow not found", "a '[' without its ']'"},
      {"illegal flow end", "a ']' or '}' that nothing opened"},
      {"end of map not found", "this line's indentation is not that of the lines before it"},
      {"end of sequence not found", "this line's indentation is not that of the lines before it"},
      {"illegal EOF in scalar", "a quoted text without its closing quote"},
      {"illegal document indicator in scalar", "a quoted text without its closing quote"}};
  const auto found = known.find(message);
  return found == known.end() ? message : found->second;
}

/// Where the first line up to `last`, counted from 0, is indented with a tab: line and column, from 1.
std::optional<std::pair<size_t, size_t>> find_tab(std::string_view text, int last) {
  for (size_t line = 1, begin = 0; begin < text.size() && line <= static_cast<size_t>(last) + 1; ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const size_t word = text.find_first_not_of(" \t\r", begin), tab = text.find('\t', begin);
    if (tab < word && word < end && text[word] != '#') return std::pair(line, tab - begin + 1);
    begin = end + 1;
  }
  return std::nullopt;
}

/// Runs a YAML parser over `text` and turns what it throws into one line.
template <class Parse>
auto parsed_yaml(const std::string& file, const std::string& text, Parse parse) {
  try {
    return parse();
  } catch (const YAML::Exception& error) {
    if (error.mark.is_null()) throw Error(file, "this is not valid YAML: " + yaml_mistake(error.msg));
    if (const auto tab = find_tab(text, error.mark.line)) {
      throw Error(fmt::format("{}:{}:{}", file, tab->first, tab->second), "YAML does not allow tabs for indentation",
                  "indent with spaces");
    }
    const std::string where = fmt::format("{}:{}", file, error.mark.line + 1);
    if (dynamic_cast<const YAML::DeepRecursion*>(&error)) {
      throw Error(where, "lists and mappings are nested hundreds deep", "name a settings file (YAML)");
    }
    throw Error(where, "this is not valid YAML: " + yaml_mistake(error.msg),
                fmt::format("look at column {}", error.mark.column + 1));
  }
}

/// Keys and values of a mapping in the file's order, each key a plain name that occurs once.
struct Entry {
  std::string key, where;
  YAML::Node value;
};
std::vector<Entry> entries_of(const YAML::Node& mapping, const std::filesystem::path& file, const std::string& prefix) {
  std::vector<Entry> entries;
  std::map<std::string, std::string> first_seen;
  for (const auto& element : mapping) {
    const YAML::Node &key = element.first, &value = element.second;
    const std::string where = at_line(file, key.Mark());
    if (!key.IsScalar()) throw Error(where, "a name was expected before the colon, found " + value_of(key).found());
    const auto [first, is_new] = first_seen.emplace(key.Scalar(), where);
    if (!is_new) {
      throw Error(where, in_quotes(prefix + key.Scalar()) + " is given twice (first at " + first->second + ")",
                  "remove one of them");
    }
    entries.push_back({key.Scalar(), where, value});
  }
  return entries;
}

/// The one document in a YAML file that holds something. `where` and `subject` are for messages about a file that
/// cannot be read; an empty one must hold `content`.
YAML::Node read_yaml(const std::filesystem::path& file, const std::string& where, const std::string& subject,
                     const std::string& content) {
  const std::string text = read_text(file, where, subject);
  const auto documents = parsed_yaml(file.string(), text, [&] { return YAML::LoadAll(text); });
  if (documents.empty() || documents[0].IsNull()) {
    throw Error(file.string(), "the file is empty", "it must hold " + content);
  }
  if (documents.size() > 1) {
    throw Error(at_line(file, documents[1].Mark()), "a second YAML document begins here", "keep one in a file");
  }
  return documents[0];
}

}  // namespace

bool Range::contains(double number) const {
  return (lowest_excluded ? number > lowest : number >= lowest) &&
         (highest_excluded ? number < highest : number <= highest);
}

std::string Range::text() const {
  const std::string low = bound_text(lowest), high = bound_text(highest);
  if (std::isinf(lowest) && std::isinf(highest)) return "";
  if (std::isinf(highest)) return (lowest_excluded ? "more than " : "at least ") + low;
  if (std::isinf(lowest)) return (highest_excluded ? "less than " : "at most ") + high;
  return (lowest_excluded ? "more than " : "from ") + low + (lowest_excluded ? " and " : " to ") +
         (highest_excluded  ? "less than "
          : lowest_excluded ? "at most "
                            : "") +
         high;
}

Range at_least(double lowest) {
  return {.lowest = lowest};
}
Range more_than(double lowest) {
  return {.lowest = lowest, .lowest_excluded = true};
}
Range at_most(double highest) {
  return {.highest = highest};
}
Range between(double lowest, double highest) {
  return {.lowest = lowest, .highest = highest};
}
Range half_open(double lowest, double highest) {
  return {.lowest = lowest, .highest = highest, .highest_excluded = true};
}
Range fraction() {
  return half_open(0, 1);
}

/// One setting that a source gives.
struct Settings::Assignment {
  const Section* section;
  const SettingField* field;
  Value value;
  std::string where;

  std::string name() const { return section->name + "." + field->name; }
};

/// Reads a file and, first, those that it extends.
struct Settings::Loader {
  Settings& settings;
  UnknownSections unknown;
  std::vector<std::filesystem::path> open = {};  // the file being read, after those that extend it

  void load(const std::filesystem::path& file, const std::string& where, const std::string& subject) {
    const auto document = read_yaml(file, where, subject, "sections of settings");
    if (!document.IsMap()) {
      throw Error(at_line(file, document.Mark()),
                  "sections of settings were expected, found " + value_of(document).found(),
                  "write, for instance, 'model: {d_model: 512}'");
    }
    const auto entries = entries_of(document, file, "");
    open.push_back(std::filesystem::weakly_canonical(file));
    for (const auto& entry : entries) {
      if (entry.key == "format") check_format(entry);
    }
    for (const auto& entry : entries) {
      if (entry.key == "extends") load_base(file, entry);
    }
    std::vector<Assignment> assignments;
    for (const auto& entry : entries) {
      if (entry.key != "format" && entry.key != "extends") collect(file, entry, assignments);
    }
    settings.apply(assignments);
    open.pop_back();
  }

  static void check_format(const Entry& entry) {
    const Value value = value_of(entry.value);
    int64_t version = 0;
    if (value.kind != Value::Kind::scalar || parse_integer(value.texts[0], version) != Parsed::yes || version < 1) {
      throw Error(entry.where, "format takes a version number, found " + value.found());
    }
    if (version > format_version) {
      throw Error(entry.where,
                  fmt::format("the file has format {}, written by a newer version of this program; this one reads "
                              "format {}",
                              version, format_version),
                  "update the program");
    }
  }

  void load_base(const std::filesystem::path& file, const Entry& entry) {
    const Value value = value_of(entry.value);
    if (value.kind != Value::Kind::scalar || value.texts[0].empty()) {
      throw Error(entry.where, "extends takes the path of a settings file, found " + value.found());
    }
    const auto base = (file.parent_path() / value.texts[0]).lexically_normal();
    const auto canonical = std::filesystem::weakly_canonical(base);
    if (std::find(open.begin(), open.end(), canonical) != open.end()) {
      std::string circle;
      for (const auto& path : open) circle += path.filename().string() + " -> ";
      throw Error(entry.where, "the files extend each other in a circle: " + circle + base.filename().string(),
                  "remove one 'extends'");
    }
    load(base, entry.where, "extends " + base.string() + ": ");
  }

  void collect(const std::filesystem::path& file, const Entry& entry, std::vector<Assignment>& assignments) const {
    const Section* section = settings.find(entry.key);
    if (!section) {
      if (unknown == UnknownSections::ignored && entry.value.IsMap()) return;
      settings.unknown_section(entry.where, entry.key);
    }
    if (!entry.value.IsMap()) {
      throw Error(
          entry.where,
          fmt::format("{} is a section of settings, found {}", in_quotes(entry.key), value_of(entry.value).found()),
          section->fields.empty() ? ""
                                  : fmt::format("write, for instance, '{}: {{{}: {}}}'", section->name,
                                                section->fields[0].name, section->fields[0].default_text));
    }
    for (const auto& setting : entries_of(entry.value, file, entry.key + ".")) {
      const SettingField* field = section->find(setting.key);
      if (!field) settings.unknown_setting(setting.where, *section, setting.key);
      assignments.push_back({section, field, value_of(setting.value), setting.where});
    }
  }
};

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
  if (section_name.size() > 64 || setting.size() > 64) return "";
  std::string best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  for (const auto& section : sections_) {
    const size_t section_distance = edit_distance(section_name, section.name);
    for (const auto& field : section.fields) {
      const size_t distance = edit_distance(setting, field.name);
      if (distance > tolerance(setting)) continue;
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
  std::string near = nearest_of(name, names);
  if (near.empty()) near = nearest("", name);
  throw Error(where, "unknown section " + in_quotes(name),
              near.empty() ? "the sections are: " + joined(names) : did_you_mean(near));
}

void Settings::unknown_setting(const std::string& where, const Section& section, const std::string& name) const {
  const std::string near = nearest(section.name, name);
  std::vector<std::string> names;
  for (const auto& field : section.fields) names.push_back(field.name);
  throw Error(
      where, "unknown setting " + in_quotes(section.name + "." + name),
      near.empty() ? fmt::format("the settings of '{}' are: {}", section.name, joined(names)) : did_you_mean(near));
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

void Settings::load(const std::filesystem::path& file, UnknownSections unknown) {
  Loader{*this, unknown}.load(file, file.string(), "");
}

SettingOverride parse_override(const std::string& text) {
  const std::string where = "--set " + printable(text);
  const size_t equals = text.find('=');
  if (equals == std::string::npos || text.substr(0, equals).find('.') == std::string::npos) {
    throw Error(where, "section.setting=value was expected", "write, for instance, --set model.d_model=512");
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
    if (dot == std::string::npos)
      throw Error(where, in_quotes(full_name) + " names no section", "write section.setting");
    if (!code_points(full_name) || !code_points(value)) throw Error(where, "the text is not UTF-8");
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
    Value parsed{Value::Kind::scalar, {value}};
    if (is_list && value.starts_with('[')) {
      parsed = parsed_yaml(where, value, [&text = value] { return value_of(YAML::Load(text)); });
    } else if (is_list) {
      parsed = {Value::Kind::list, {}};
      for (size_t begin = 0; !value.empty() && begin <= value.size();) {
        const size_t end = std::min(value.find(',', begin), value.size());
        parsed.texts.push_back(value.substr(begin, end - begin));
        begin = end + 1;
      }
    } else if (value.empty() && !is_text) {
      parsed = {Value::Kind::nothing, {}};
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

std::string Settings::reference() const {
  const auto cell = [](const std::string& text) {
    std::string escaped;
    for (char character : text) {
      if (character == '|') escaped += '\\';
      escaped += character;
    }
    return escaped;
  };
  const auto code = [&](const std::string& text) { return text.empty() ? "" : fmt::format("`{}`", cell(text)); };
  std::string text;
  for (const auto& section : sections_) {
    text += (text.empty() ? "" : "\n") + fmt::format("## `{}`", section.name) +
            (section.title.empty() ? "" : ": " + section.title) +
            "\n\n| Setting | Type | Default | Allowed | In a run | Meaning |\n|---|---|---|---|---|---|\n";
    for (const auto& field : section.fields) {
      // A name for several settings takes what the first of them takes.
      const SettingField& typed = field.stands_for.empty() ? field : *section.find(field.stands_for[0]);
      const auto* choice = std::get_if<SettingField::Choice>(&typed.target);
      std::string allowed = range_text(typed);
      if (choice) {
        for (const auto& name : choice->names) allowed += (allowed.empty() ? "" : ", ") + code(name);
      }
      std::string kind = choice ? "choice" : kind_text(typed);
      for (const std::string article : {"an ", "a "}) {
        if (kind.starts_with(article)) kind = kind.substr(article.size());
      }
      if (std::holds_alternative<uint64_t*>(typed.target)) {
        kind = "integer";
        if (allowed.empty()) allowed = "at least 0";
      }
      text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", code(field.name), kind, code(field.default_text),
                          allowed, name_of(typed.kind), cell(field.meaning));
    }
  }
  return text;
}

std::string Settings::help() const {
  std::string text;
  for (const auto& section : sections_) {
    text += (text.empty() ? "" : "\n") + section.name + (section.title.empty() ? "" : ": " + section.title) + "\n";
    for (const auto& field : section.fields) {
      const SettingField& typed = field.stands_for.empty() ? field : *section.find(field.stands_for[0]);
      text += fmt::format("  {}.{}{}\n      {} ({}; {})\n", section.name, field.name,
                          field.stands_for.empty() ? "=" + field.default_text : "", field.meaning, expectation(typed),
                          name_of(typed.kind));
    }
  }
  return text;
}

bool Settings::explicitly_set(const std::string& setting) const {
  const size_t dot = setting.find('.');
  const Section* section = dot == std::string::npos ? nullptr : find(setting.substr(0, dot));
  if (!section || !section->find(setting.substr(dot + 1))) {
    throw std::invalid_argument("no setting was declared as '" + setting + "'");
  }
  return explicitly_set_.contains(setting);
}

// --- Documents ------------------------------------------------------------------------------------------------------

struct Document::Node {
  YAML::Node yaml;
};

Document::Document(std::filesystem::path file, std::shared_ptr<const Node> node)
    : file_(std::move(file)), node_(std::move(node)), where_(at_line(file_, node_->yaml.Mark())) {}

Document Document::read(const std::filesystem::path& file) {
  return {file, std::make_shared<Node>(Node{read_yaml(file, file.string(), "", "a mapping")})};
}

Document::Kind Document::kind() const {
  if (node_->yaml.IsScalar()) return Kind::scalar;
  if (node_->yaml.IsSequence()) return Kind::list;
  return node_->yaml.IsMap() ? Kind::mapping : Kind::nothing;
}

std::string Document::found() const {
  return kind() == Kind::list ? "a list" : value_of(node_->yaml).found();
}

std::string Document::text() const {
  return kind() == Kind::scalar ? node_->yaml.Scalar() : "";
}

std::vector<Document> Document::elements() const {
  std::vector<Document> elements;
  if (kind() != Kind::list) return elements;
  for (const auto& element : node_->yaml) elements.push_back({file_, std::make_shared<Node>(Node{element})});
  return elements;
}

std::vector<Document::Entry> Document::entries(const std::string& what, const std::vector<std::string>& known) const {
  if (kind() != Kind::mapping) throw Error(where_, fmt::format("{} was expected, found {}", what, found()));
  std::vector<Entry> entries;
  for (const auto& [key, where, value] : entries_of(node_->yaml, file_, "")) {
    if (!known.empty() && std::find(known.begin(), known.end(), key) == known.end()) {
      const std::string near = nearest_of(key, known);
      throw Error(where, fmt::format("{} has no key {}", what, in_quotes(key)),
                  near.empty() ? "its keys are: " + joined(known) : did_you_mean(near));
    }
    entries.push_back({key, where, Document(file_, std::make_shared<Node>(Node{value}))});
  }
  return entries;
}

std::string Document::override_value() const {
  const Value value = value_of(node_->yaml);
  if (value.kind == Value::Kind::scalar) return value.texts[0];
  if (value.kind != Value::Kind::list)
    throw Error(where_, "a value or a list of values was expected, found " + found());
  std::string list;
  for (const auto& text : value.texts) list += (list.empty() ? "" : ", ") + text_as_yaml(text);
  return fmt::format("[{}]", list);
}

std::string nearest_word(const std::string& word, const std::vector<std::string>& known) {
  return nearest_of(word, known);
}

}  // namespace transformer
