#include "transformer/base/document.h"

#include <fmt/format.h>
#include <yaml-cpp/anchor.h>
#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/emitterstyle.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "transformer/base/error.h"
#include "transformer/base/setting_value.h"
#include "transformer/base/spelling.h"
#include "transformer/base/unicode.h"
#include "transformer/base/unreadable.h"

namespace transformer {

namespace {

// A settings file is a few kilobytes; whoever names a model or a corpus by mistake should not wait for it to be read.
constexpr size_t largest_file = size_t{4} << 20;

bool has_more_than_text(std::string_view text) {
  for (size_t position = 0; position < text.size();) {
    const char32_t c = next_code_point(text, position);
    if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f) return true;
  }
  return false;
}

std::string read_text(const std::filesystem::path& file, const std::string& where, const std::string& subject) {
  const auto fail = [&](const std::string& what, const std::string& remedy) {
    throw Error(where, subject + what, remedy);
  };
  std::error_code problem;
  const auto status = std::filesystem::status(file, problem);
  if (status.type() == std::filesystem::file_type::not_found) fail("no such file", "check the path");
  if (std::filesystem::is_directory(status)) fail("this is a folder", "name a settings file (YAML)");
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    const int error_number = errno;
    throw Unreadable(error_number, where,
                     fmt::format("{}it cannot be opened: {}", subject, std::strerror(error_number)),
                     "check the path and its permissions");
  }
  std::string text;
  char block[1 << 14];
  while (stream.read(block, sizeof block), stream.gcount() > 0) {
    text.append(block, static_cast<size_t>(stream.gcount()));
    if (text.size() > largest_file ||
        text.find('\0', text.size() - static_cast<size_t>(stream.gcount())) != std::string::npos) {
      fail("this is no settings file: it is binary or very large", "name a settings file (YAML)");
    }
  }
  if (stream.bad()) throw Unreadable(EIO, where, subject + "it cannot be read", "check the file and its disk");
  if (find_broken_utf8(text) != std::string::npos || has_more_than_text(text)) {
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

SettingValue value_of(const YAML::Node& node) {
  if (node.IsScalar()) return {SettingValue::Kind::scalar, {node.Scalar()}};
  if (node.IsMap()) return {SettingValue::Kind::mapping, {}};
  if (!node.IsSequence()) return {SettingValue::Kind::nothing, {}};
  SettingValue value{SettingValue::Kind::list, {}};
  size_t bytes = 0;
  for (const auto& element : node) {
    // No setting is a list of anything but texts.
    if (!element.IsScalar()) return {SettingValue::Kind::mixed_list, {}};
    // A file of megabytes can name one of its texts a million times.
    if ((bytes += element.Scalar().size()) > largest_file) return {SettingValue::Kind::too_long, {}};
    value.texts.push_back(element.Scalar());
  }
  return value;
}

/// Hears where documents begin, and of nothing else in them.
class DocumentStarts : public YAML::EventHandler {
 public:
  std::vector<YAML::Mark> starts;

  void OnDocumentStart(const YAML::Mark& mark) override { starts.push_back(mark); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

/// Where the first documents of `text` begin, two at most. At a sign that can begin none, such as a comma, the YAML
/// library finds one empty document after the other, for ever: YAML::LoadAll would not return.
std::vector<YAML::Mark> first_documents(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStarts found;
  while (found.starts.size() < 2 && parser.HandleNextDocument(found)) {
  }
  return std::move(found.starts);
}

/// The one document in `text`, which stands in `file`; nothing where the text holds nothing. `refuse_second` throws
/// where a second one begins.
template <class RefuseSecond>
YAML::Node one_document(const std::string& text, const std::string& file, RefuseSecond refuse_second) {
  const auto starts = parsed_yaml(file, text, [&] { return first_documents(text); });
  if (starts.size() > 1 && starts[1].pos == starts[0].pos) {
    throw Error(at_line(file, starts[0]), "this is not valid YAML: nothing can begin like this",
                fmt::format("look at column {}", starts[0].column + 1));
  }
  if (starts.size() > 1) refuse_second(starts[1]);
  return parsed_yaml(file, text, [&] { return YAML::Load(text); });
}

/// The one document in a YAML file that holds something. `where` and `subject` are for messages about a file that
/// cannot be read; an empty one must hold `content`.
YAML::Node read_yaml(const std::filesystem::path& file, const std::string& where, const std::string& subject,
                     const std::string& content) {
  const auto refuse_second = [&](const YAML::Mark& mark) {
    throw Error(at_line(file, mark), "a second YAML document begins here",
                fmt::format("keep one (look at column {})", mark.column + 1));
  };
  const auto document = one_document(read_text(file, where, subject), file.string(), refuse_second);
  if (document.IsNull()) throw Error(file.string(), "the file is empty", "it must hold " + content);
  return document;
}

}  // namespace

struct Document::Node {
  YAML::Node yaml;
};

Document::Document(std::filesystem::path file, std::shared_ptr<const Node> node)
    : file_(std::move(file)), node_(std::move(node)), where_(at_line(file_, node_->yaml.Mark())) {}

Document Document::read(const std::filesystem::path& file) {
  return read(file, file.string(), "", "a mapping");
}

Document Document::read(const std::filesystem::path& file, const std::string& where, const std::string& subject,
                        const std::string& content) {
  return {file, std::make_shared<Node>(Node{read_yaml(file, where, subject, content)})};
}

Document Document::parse(const std::string& text, const std::string& where) {
  const auto refuse_second = [&](const YAML::Mark& mark) {
    const auto rest = trim(std::string_view(text).substr(std::min(static_cast<size_t>(mark.pos), text.size())));
    throw Error(where, fmt::format("{} stands behind the end", in_quotes(rest)), "leave it out, or put it in brackets");
  };
  return {where, std::make_shared<Node>(Node{one_document(text, where, refuse_second)})};
}

Document::Kind Document::kind() const {
  if (node_->yaml.IsScalar()) return Kind::scalar;
  if (node_->yaml.IsSequence()) return Kind::list;
  return node_->yaml.IsMap() ? Kind::mapping : Kind::nothing;
}

std::string Document::found() const {
  return kind() == Kind::list ? "a list" : setting_value().found();
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

std::vector<Document::Entry> Document::keys(const std::string& prefix) const {
  std::vector<Entry> entries;
  if (kind() != Kind::mapping) return entries;
  std::map<std::string, std::string> first_seen;
  for (const auto& element : node_->yaml) {
    const YAML::Node &key = element.first, &value = element.second;
    const std::string where = at_line(file_, key.Mark());
    if (!key.IsScalar()) throw Error(where, "a name was expected before the colon, found " + value_of(key).found());
    const auto [first, is_new] = first_seen.emplace(key.Scalar(), where);
    if (!is_new) {
      throw Error(where, in_quotes(prefix + key.Scalar()) + " is given twice (first at " + first->second + ")",
                  "remove one of them");
    }
    entries.push_back({key.Scalar(), where, Document(file_, std::make_shared<Node>(Node{value}))});
    if (value.IsNull()) entries.back().value.where_ = where;  // where there is nothing, the parser has gone on
  }
  return entries;
}

std::vector<Document::Entry> Document::entries(const std::string& what, const std::vector<std::string>& known) const {
  if (kind() != Kind::mapping) throw Error(where_, fmt::format("{} was expected, found {}", what, found()));
  auto entries = keys();
  for (const auto& entry : entries) {
    if (known.empty() || std::find(known.begin(), known.end(), entry.key) != known.end()) continue;
    throw Error(entry.where, fmt::format("{} has no key {}", what, in_quotes(entry.key)),
                did_you_mean(nearest_word(entry.key, known), fmt::format("its keys are: {}", fmt::join(known, ", "))));
  }
  return entries;
}

SettingValue Document::setting_value() const {
  return value_of(node_->yaml);
}

std::string Document::override_value() const {
  const SettingValue value = setting_value();
  if (value.kind == SettingValue::Kind::scalar) return value.texts[0];
  if (value.kind != SettingValue::Kind::list)
    throw Error(where_, "a value or a list of values was expected, found " + found());
  std::string list;
  for (const auto& text : value.texts) list += (list.empty() ? "" : ", ") + as_yaml(text);
  return fmt::format("[{}]", list);
}

}  // namespace transformer
