#include <fmt/format.h>

#include "transformer/base/settings.h"

namespace transformer {

namespace {

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

}  // namespace

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
      std::string allowed = typed.range_text();
      if (choice) {
        for (const auto& name : choice->names) allowed += (allowed.empty() ? "" : ", ") + code(name);
      }
      std::string kind = choice ? "choice" : typed.type_text();
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
                          field.stands_for.empty() ? "=" + field.default_text : "", field.meaning, typed.expectation(),
                          name_of(typed.kind));
    }
  }
  return text;
}

}  // namespace transformer
