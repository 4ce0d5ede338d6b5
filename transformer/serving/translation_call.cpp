#include "transformer/serving/translation_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "transformer/base/ascii.h"
#include "transformer/base/number.h"
#include "transformer/base/setting_value.h"
#include "transformer/base/spelling.h"
#include "transformer/base/unicode.h"
#include "transformer/serving/request_error.h"
#include "transformer/text/lines.h"

namespace transformer {

namespace {

using Value = nlohmann::json;

constexpr int deepest = 8;
constexpr size_t most_settings = 100;
constexpr int64_t most_alternatives = 10000;

[[noreturn]] void mistake(const std::string& sentence) {
  throw RequestError(400, sentence);
}

Value parse_json(std::string_view body) {
  if (body.empty()) mistake("there is no body: send a JSON object");
  Value json;
  try {
    json = Value::parse(body.begin(), body.end(), [](int depth, Value::parse_event_t, Value&) {
      if (depth > deepest) mistake(fmt::format("the body is nested deeper than {} levels", deepest));
      return true;
    });
  } catch (const Value::parse_error& error) {
    mistake(fmt::format("the body is not JSON in UTF-8, from byte {} on", error.byte));
  } catch (const Value::exception&) {
    mistake("the body holds a number that is too large");
  }
  if (!json.is_object()) mistake("the body should be a JSON object");
  return json;
}

/// What a field holds, in the words of messages.
std::string found(const Value& value) {
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
  if (value.is_number() || value.is_boolean()) return value.dump();
  return value.is_null() ? "null" : value.is_array() ? "a list" : "an object";
}

std::string text_of(const std::string& name, const Value& value) {
  if (!value.is_string()) mistake(fmt::format("{} takes a text, found {}", name, found(value)));
  return value.get<std::string>();
}

bool truth_of(const std::string& name, const Value& value) {
  if (!value.is_boolean()) mistake(fmt::format("{} takes true or false, found {}", name, found(value)));
  return value.get<bool>();
}

void check_alternatives(int64_t number, const std::string& given) {
  if (number >= 0 && number <= most_alternatives) return;
  mistake(fmt::format("alternatives takes an integer from 0 to {}, found {}", most_alternatives, given));
}

int64_t alternatives_of(const std::string& text) {
  const auto number = number_in<int64_t>(text).value_or(-1);
  check_alternatives(number, in_quotes(text));
  return number;
}

int64_t alternatives_of(const Value& value) {
  if (value.is_string()) return alternatives_of(value.get_ref<const std::string&>());
  const bool small = value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(most_alternatives);
  check_alternatives(small ? value.get<int64_t>() : -1, found(value));
  return value.get<int64_t>();
}

void add_text(std::vector<std::string>& texts, std::string text, size_t most_texts) {
  if (texts.size() >= most_texts) throw RequestError(413, fmt::format("a request holds {} texts at most", most_texts));
  if (text.starts_with(byte_order_mark)) text.erase(0, byte_order_mark.size());  // of a file that was sent as it is
  texts.push_back(std::move(text));
}

void take_texts(std::vector<std::string>& texts, const std::string& name, const Value& value, size_t most_texts) {
  if (!value.is_array()) {
    if (!value.is_string()) mistake(fmt::format("{} takes a text or a list of texts, found {}", name, found(value)));
    return add_text(texts, value.get<std::string>(), most_texts);
  }
  for (const auto& element : value) {
    if (!element.is_string()) mistake(fmt::format("{} takes a list of texts, found {} in it", name, found(element)));
    add_text(texts, element.get<std::string>(), most_texts);
  }
}

bool is_html(const std::string& format) {
  if (format == "text" || format == "html") return format == "html";
  mistake(fmt::format("format takes text or html, found {}", in_quotes(format)));
}

void check_target(const std::string& target, const std::string& model) {
  if (target.empty() && model.empty()) mistake("target is missing: the code of a language");
}

void check_asked(const TranslationCall& call, bool has_texts, const std::string& name) {
  if (!has_texts) mistake(fmt::format("{} is missing: the text to translate", name));
  check_target(call.target, call.model);
}

/// A setting's value as --set takes it.
std::string setting_text(const std::string& name, const Value& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  if (!value.is_array()) mistake(fmt::format("decoding.{} takes a value or a list, found {}", name, found(value)));
  std::string list;
  for (const auto& element : value) {
    if (element.is_structured() || element.is_null())
      mistake(fmt::format("decoding.{} takes values, found {} in its list", name, found(element)));
    list += (list.empty() ? "" : ", ") + (element.is_string() ? as_yaml(element.get<std::string>()) : element.dump());
  }
  return fmt::format("[{}]", list);
}

using Take = std::function<void(const std::string& name, const Value& value)>;

enum class Unknown { refused, ignored };

void take_fields(const Value& json, const std::map<std::string, Take>& known, Unknown unknown = Unknown::refused) {
  for (const auto& [name, value] : json.items()) {
    const auto field = known.find(name);
    if (field == known.end() && unknown == Unknown::ignored) continue;
    if (field == known.end()) {
      std::vector<std::string> names;
      for (const auto& [other, take] : known) names.push_back(other);
      const auto hint = did_you_mean(nearest_word(name, names));
      mistake(fmt::format("unknown field {}{}", in_quotes(name), hint.empty() ? "" : "; " + hint));
    }
    if (!value.is_null()) field->second(name, value);
  }
}

/// The texts of a call, one or a list; `has_texts`: the field was there.
Take texts_into(TranslationCall& call, bool& has_texts, size_t most_texts) {
  return [&call, &has_texts, most_texts](const std::string& name, const Value& value) {
    take_texts(call.texts, name, value, most_texts);
    call.is_list = value.is_array();
    has_texts = true;
  };
}

Take into(std::string& text) {
  return [&text](const std::string& name, const Value& value) { text = text_of(name, value); };
}

std::string from_form(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      decoded += ' ';
    } else if (text[i] != '%') {
      decoded += text[i];
    } else {
      const int high = i + 2 < text.size() ? hexadecimal_digit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hexadecimal_digit(text[i + 2]) : -1;
      if (high < 0 || low < 0) mistake("the form holds a % that two hexadecimal digits do not follow");
      decoded += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  if (find_broken_utf8(decoded) != std::string::npos) mistake("the form is not UTF-8");
  return decoded;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> parse_form(std::string_view body) {
  std::vector<std::pair<std::string, std::string>> fields;
  while (!body.empty()) {
    const auto part = body.substr(0, body.find('&'));
    body.remove_prefix(std::min(body.size(), part.size() + 1));
    if (part.empty()) continue;
    const size_t equals = std::min(part.find('='), part.size());
    fields.emplace_back(from_form(part.substr(0, equals)),
                        equals == part.size() ? "" : from_form(part.substr(equals + 1)));
  }
  return fields;
}

TranslationCall parse_libretranslate_json(std::string_view body, size_t most_texts) {
  const auto json = parse_json(body);
  TranslationCall call;
  std::string format = "text";
  bool has_texts = false;
  // Clients of this interface send what later versions of it know, too.
  take_fields(
      json,
      {{"q", texts_into(call, has_texts, most_texts)},
       {"source", into(call.source)},
       {"target", into(call.target)},
       {"format", into(format)},
       {"api_key", into(call.api_key)},
       {"alternatives", [&](const std::string&, const Value& value) { call.alternatives = alternatives_of(value); }}},
      Unknown::ignored);
  call.is_html = is_html(format);
  check_asked(call, has_texts, "q");
  return call;
}

TranslationCall parse_libretranslate_form(std::string_view body, size_t most_texts) {
  TranslationCall call;
  std::string format = "text";
  for (auto& [name, value] : parse_form(body)) {
    if (name == "q") add_text(call.texts, std::move(value), most_texts);
    if (name == "source") call.source = value;
    if (name == "target") call.target = value;
    if (name == "format") format = value;
    if (name == "api_key") call.api_key = value;
    if (name == "alternatives") call.alternatives = alternatives_of(value);
  }
  call.is_list = call.texts.size() > 1;
  call.is_html = is_html(format);
  check_asked(call, !call.texts.empty(), "q");
  return call;
}

TranslationCall parse_translation(std::string_view body, size_t most_texts) {
  const auto json = parse_json(body);
  TranslationCall call;
  std::string format = "text";
  bool has_texts = false;
  take_fields(
      json,
      {{"text", texts_into(call, has_texts, most_texts)},
       {"source", into(call.source)},
       {"target", into(call.target)},
       {"model", into(call.model)},
       {"format", into(format)},
       {"api_key", into(call.api_key)},
       {"alignments", [&](const std::string& name, const Value& value) { call.alignments = truth_of(name, value); }},
       {"attention", [&](const std::string& name, const Value& value) { call.attention = truth_of(name, value); }},
       {"stream", [&](const std::string& name, const Value& value) { call.stream = truth_of(name, value); }},
       {"document", [&](const std::string& name, const Value& value) { call.document = truth_of(name, value); }},
       {"decoding", [&](const std::string& name, const Value& value) {
          if (!value.is_object()) mistake(fmt::format("{} takes an object of settings, found {}", name, found(value)));
          if (value.size() > most_settings)
            mistake(fmt::format("{} takes {} settings at most, found {}", name, most_settings, value.size()));
          for (const auto& [setting, given] : value.items()) {
            const auto full_name = fmt::format("decoding.{}", setting);
            if (given.is_null()) {
              call.not_given.push_back(full_name);  // as in every other field
            } else {
              call.decoding.push_back({full_name, setting_text(setting, given), ""});
            }
          }
        }}});
  call.is_html = is_html(format);
  if (call.is_html && (call.alignments || call.attention)) {
    mistake("alignments and attention are of the words of plain text: leave them or format out");
  }
  check_asked(call, has_texts, "text");
  return call;
}

ScoreCall parse_score(std::string_view body, size_t most_texts) {
  const auto json = parse_json(body);
  ScoreCall call;
  const auto texts_into = [most_texts](std::vector<std::string>& texts) -> Take {
    return [&texts, most_texts](const std::string& name, const Value& value) {
      take_texts(texts, name, value, most_texts);
    };
  };
  take_fields(json, {{"text", texts_into(call.texts)},
                     {"translation", texts_into(call.translations)},
                     {"source", into(call.source)},
                     {"target", into(call.target)},
                     {"model", into(call.model)},
                     {"api_key", into(call.api_key)}});
  for (const char* name : {"text", "translation"}) {
    if (!json.contains(name) || json[name].is_null()) mistake(fmt::format("{} is missing", name));
  }
  if (call.texts.size() != call.translations.size() || json["text"].is_array() != json["translation"].is_array()) {
    mistake("text and translation are one text each, or lists of one length");
  }
  check_target(call.target, call.model);
  return call;
}

}  // namespace transformer
