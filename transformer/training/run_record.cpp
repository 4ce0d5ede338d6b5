#include "transformer/training/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "transformer/base/atomic_file.h"
#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/json_number.h"
#include "transformer/base/read_file.h"
#include "transformer/base/unicode.h"
#include "transformer/training/run_names.h"

namespace transformer {

namespace {

constexpr int record_format = 1;
constexpr const char* record_kind = "transformer run";

using Stage = RunRecord::Stage;
constexpr std::pair<const char*, Stage> stages[] = {{"none", Stage::none},
                                                    {"moving", Stage::moving},
                                                    {"kept", Stage::kept},
                                                    {"returning", Stage::returning},
                                                    {"purging", Stage::purging}};

nlohmann::ordered_json json_of(const RunRecord::Facts& facts) {
  nlohmann::ordered_json json{{"files", facts.files}, {"corpus", facts.corpus}};
  if (!facts.vocabularies.empty()) json["vocabularies"] = facts.vocabularies;
  if (!facts.vocabulary_text.empty()) json["vocabulary_text"] = facts.vocabulary_text;
  if (!facts.config.empty()) json["config"] = facts.config;
  json["changes"] = nlohmann::ordered_json::array();
  for (const auto& change : facts.changes) {
    json["changes"].push_back(
        {{"step", change.step}, {"setting", change.setting}, {"before", change.before}, {"after", change.after}});
  }
  return json;
}

RunRecord::Facts read_facts(const nlohmann::json& json) {
  RunRecord::Facts facts;
  facts.files = json.at("files").get<std::vector<std::string>>();
  facts.corpus = json.at("corpus").get<std::string>();
  if (json.contains("vocabularies")) json.at("vocabularies").get_to(facts.vocabularies);
  if (json.contains("vocabulary_text")) json.at("vocabulary_text").get_to(facts.vocabulary_text);
  if (json.contains("config")) json.at("config").get_to(facts.config);
  for (const auto& change : json.at("changes")) {
    facts.changes.push_back({whole_number_of(change.at("step")), change.at("setting").get<std::string>(),
                             change.at("before").get<std::string>(), change.at("after").get<std::string>()});
  }
  if (!std::all_of(facts.files.begin(), facts.files.end(), is_run_name)) throw std::invalid_argument("a strange name");
  return facts;
}

// What is set aside belongs to the user: a stage of a later version, or a damaged one, never counts as none.
Stage read_stage(const std::string& text) {
  const auto found =
      std::find_if(std::begin(stages), std::end(stages), [&](const auto& one) { return text == one.first; });
  if (found == std::end(stages)) throw std::invalid_argument("a strange stage");
  return found->second;
}

}  // namespace

std::optional<RunRecord> RunRecord::read(const std::filesystem::path& folder) {
  const auto file = folder / name;
  if (!something_at(file)) return std::nullopt;
  RunRecord record;
  try {
    const auto json = nlohmann::json::parse(read_file(file));
    if (json.at("kind") != record_kind) throw std::invalid_argument("of another kind");
    if (json.at("format") != record_format) {
      throw Error(file.string(), "is of a format that this version does not know", "use the version that wrote it");
    }
    record.facts = read_facts(json);
    if (json.contains("agents")) json.at("agents").get_to(record.agents);
    if (json.contains("set_aside")) {
      const auto& aside = json.at("set_aside");
      record.set_aside.stage = read_stage(aside.at("stage").get<std::string>());
      record.set_aside.from = whole_number_of(aside.at("from"));
      record.set_aside.items = aside.at("items").get<std::vector<std::string>>();
      record.set_aside.moving = aside.at("moving").get<std::vector<std::string>>();
      record.set_aside.before = read_facts(aside.at("before"));
      for (const auto* items : {&record.set_aside.items, &record.set_aside.moving}) {
        if (!std::all_of(items->begin(), items->end(), is_run_entry)) throw std::invalid_argument("a strange name");
      }
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    throw Error(file.string(), "is not a run's record, or is damaged",
                "move it away if it is yours, or choose another training.output");
  }
  return record;
}

void RunRecord::write(const std::filesystem::path& folder) const {
  nlohmann::ordered_json json{{"kind", record_kind}, {"format", record_format}};
  json.update(json_of(facts));
  if (!agents.empty()) json["agents"] = agents;
  if (set_aside.stage != Stage::none) {
    auto& aside = json["set_aside"];
    for (const auto& [text, stage] : stages) {
      if (set_aside.stage == stage) aside["stage"] = text;
    }
    aside["from"] = set_aside.from;
    aside["items"] = set_aside.items;
    aside["moving"] = set_aside.moving;
    aside["before"] = json_of(set_aside.before);
  }
  write_atomically(folder / name, json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

std::map<std::string, std::string> flat_settings(const std::string& yaml) {
  std::map<std::string, std::string> flat;
  std::istringstream lines(yaml);
  std::string line, section;
  while (std::getline(lines, line)) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    if (line[0] != ' ') {
      section = line.substr(0, colon);
    } else {
      flat[fmt::format("{}.{}", section, trim(line.substr(0, colon)))] = trim(line.substr(colon + 1));
    }
  }
  return flat;
}

}  // namespace transformer
