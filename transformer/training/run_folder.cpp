#include "transformer/training/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <utility>

#include "transformer/base/atomic_file.h"
#include "transformer/base/checksum.h"
#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/read_file.h"
#include "transformer/base/unicode.h"
#include "transformer/training/checkpoint.h"
#include "transformer/training/metrics.h"
#include "transformer/training/trainer.h"

namespace transformer {

namespace {

namespace fs = std::filesystem;

constexpr int format_version = 1;
constexpr const char* record_kind = "transformer run";
constexpr const char* config_name = "config.yaml";
constexpr const char* weights_name = "model.safetensors";
constexpr const char* aside_name = ".replaced";

const std::vector<std::string> vocabulary_files = {"vocabulary.model", "source.model", "target.model"};
const std::vector<std::string> plain_files = {config_name,     weights_name, checksums_name, metrics_name,
                                              EventFile::name, trace_name,   summary_name};

// Folders of a run, and how it names what it puts into them.
const std::vector<std::pair<std::string, std::regex>> folders = {
    {"checkpoints", std::regex(R"((\.partial-|damaged-)?(interrupted-)?step-[0-9]{8,}(-[0-9]+)?)")},
    {"validation", std::regex(R"((step-[0-9]{8,}|final)\.txt)")},
    {"corpus", std::regex(R"([0-9a-f]{32}(\.lock|\.partial)?|texts\.json)")}};

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_vocabulary(const std::string& name) {
  return contains(vocabulary_files, name);
}

const std::regex* grammar_of(const std::string& name) {
  for (const auto& [folder, grammar] : folders) {
    if (folder == name) return &grammar;
  }
  return nullptr;
}

bool is_name(const std::string& name) {
  return contains(plain_files, name) || is_vocabulary(name) || grammar_of(name);
}

// A record may come from anywhere; nothing beyond what runs make is moved or deleted because it says so.
bool is_entry(const std::string& entry) {
  const auto slash = entry.find('/');
  if (slash == std::string::npos) return is_name(entry) && !grammar_of(entry);
  const auto* grammar = grammar_of(entry.substr(0, slash));
  return grammar && std::regex_match(entry.substr(slash + 1), *grammar);
}

// "section.key" -> value of a saved config: one setting a line, as Settings::yaml writes it.
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

std::string value_of(const std::map<std::string, std::string>& settings, const std::string& name) {
  const auto found = settings.find(name);
  return found == settings.end() ? "" : found->second;
}

void move_to(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  if (!error) fs::rename(from, to, error);
  if (error) throw Failure(from.string(), fmt::format("cannot be moved to {}: {}", to.string(), error.message()));
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw Failure(path.string(), "cannot be removed: " + error.message());
}

// Whether all is there that a checkpoint consists of.
bool looks_whole(const fs::path& checkpoint) {
  const std::vector<std::string> names = {config_name, weights_name, checksums_name, "optimizer.safetensors",
                                          "progress.json"};
  return std::all_of(names.begin(), names.end(), [&](const auto& name) {
    std::error_code error;
    return fs::is_regular_file(checkpoint / name, error);
  });
}

}  // namespace

// --- the record ----------------------------------------------------------------------------------------------

struct RunFolder::Json {
  static nlohmann::ordered_json write(const Facts& facts) {
    nlohmann::ordered_json json{{"files", facts.files}, {"corpus", facts.corpus}};
    json["changes"] = nlohmann::ordered_json::array();
    for (const auto& change : facts.changes) {
      json["changes"].push_back(
          {{"step", change.step}, {"setting", change.setting}, {"before", change.before}, {"after", change.after}});
    }
    return json;
  }

  static Facts read(const nlohmann::json& json) {
    Facts facts;
    facts.files = json.at("files").get<std::vector<std::string>>();
    facts.corpus = json.at("corpus").get<std::string>();
    for (const auto& change : json.at("changes")) {
      facts.changes.push_back({change.at("step").get<int64_t>(), change.at("setting").get<std::string>(),
                               change.at("before").get<std::string>(), change.at("after").get<std::string>()});
    }
    if (!std::all_of(facts.files.begin(), facts.files.end(), is_name)) throw std::invalid_argument("a strange name");
    return facts;
  }

  static constexpr std::pair<const char*, Stage> stages[] = {{"none", Stage::none},
                                                             {"moving", Stage::moving},
                                                             {"kept", Stage::kept},
                                                             {"returning", Stage::returning},
                                                             {"purging", Stage::purging}};
};

bool RunFolder::read_record() {
  const auto file = folder_ / record_name;
  recorded_ = something_at(file);
  if (!recorded_) return false;
  try {
    const auto json = nlohmann::json::parse(read_file(file));
    if (json.at("kind") != record_kind) throw std::invalid_argument("of another kind");
    if (json.at("format") != format_version) {
      throw Error(file.string(), "is of a format that this version does not know", "use the version that wrote it");
    }
    facts_ = Json::read(json);
    set_aside_ = {};
    if (json.contains("set_aside")) {
      const auto& aside = json.at("set_aside");
      for (const auto& [name, stage] : Json::stages) {
        if (aside.at("stage") == name) set_aside_.stage = stage;
      }
      set_aside_.from = aside.at("from").get<int64_t>();
      set_aside_.items = aside.at("items").get<std::vector<std::string>>();
      set_aside_.moving = aside.at("moving").get<std::vector<std::string>>();
      set_aside_.before = Json::read(aside.at("before"));
      for (const auto* items : {&set_aside_.items, &set_aside_.moving}) {
        if (!std::all_of(items->begin(), items->end(), is_entry)) throw std::invalid_argument("a strange name");
      }
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    throw Error(file.string(), "is not a run's record, or is damaged",
                "move it away if it is yours, or choose another training.output");
  }
  return true;
}

void RunFolder::write_record() const {
  nlohmann::ordered_json json{{"kind", record_kind}, {"format", format_version}};
  json.update(Json::write(facts_));
  if (set_aside_.stage != Stage::none) {
    auto& aside = json["set_aside"];
    for (const auto& [name, stage] : Json::stages) {
      if (set_aside_.stage == stage) aside["stage"] = name;
    }
    aside["from"] = set_aside_.from;
    aside["items"] = set_aside_.items;
    aside["moving"] = set_aside_.moving;
    aside["before"] = Json::write(set_aside_.before);
  }
  write_atomically(folder_ / record_name, json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

// --- what is there -------------------------------------------------------------------------------------------

RunFolder::RunFolder(fs::path folder, const std::string& config, const std::map<std::string, SettingRule>& rules,
                     const RunFolderOptions& options)
    : folder_(std::move(folder)), config_(config), rules_(rules), options_(options) {
  if (options_.restart && !options_.from.empty()) {
    throw Error("--from", "cannot be given together with --restart", "a run either goes on or begins anew");
  }
  look();
  if ((recorded_ || recognised_) && !options_.look_only) {
    lock();
    look();  // while nobody else works on it
    recover();
  }
  decide();
}

RunFolder::RunFolder(fs::path folder) : folder_(std::move(folder)) {
  if (!read_record()) throw Error(folder_.string(), fmt::format("holds no run ({} is missing)", record_name));
  lock();
  read_record();
  recover();
}

void RunFolder::lock() {
  lock_.emplace(folder_ / ".lock", FileLock::Wait::no);
  const int error = lock_->error_number();
  if (!lock_->is_open()) throw Failure(folder_.string(), std::string("cannot be written to: ") + std::strerror(error));
  if (error != 0) {
    throw Error(folder_.string(), "another run is working in this folder",
                "wait for it, stop it, or choose another training.output");
  }
}

std::vector<std::string> RunFolder::wanted() const {
  auto names = plain_files;
  for (const auto& [name, grammar] : folders) {
    const auto cache = value_of(flat_settings(config_), "data.cache");
    if (name != "corpus" || cache.empty() || cache == "\"\"") names.push_back(name);
  }
  return names;
}

void RunFolder::look() {
  facts_ = {};
  set_aside_ = {};
  recognised_ = false;
  entries_of(folder_);  // throws where it is no folder or cannot be read
  if (!read_record()) recognise();
  for (const auto& name : wanted()) {
    const auto path = folder_ / name;
    if (contains(facts_.files, name)) {
      std::error_code error;
      if (grammar_of(name)) {
        entries_of(path);
      } else if (something_at(path) && !fs::is_regular_file(path, error)) {
        throw Error(path.string(), "is not a file that can be read", "mount what it leads to, or move it away");
      }
      continue;
    }
    const bool in_the_way = grammar_of(name) ? !entries_of(path).empty() : something_at(path);
    if (!in_the_way) continue;
    if (something_at(folder_ / weights_name) && !recorded_) {
      throw Error(folder_.string(), "holds a model without the checkpoints to go on from",
                  "choose another training.output, or move its files away");
    }
    throw Error(path.string(),
                fmt::format("is in the way: a run writes there, and it is no run's (by {})", record_name),
                "move it away, or choose another training.output");
  }
}

void RunFolder::recognise() {
  const auto config = folder_ / config_name;
  std::error_code error;
  if (!fs::is_regular_file(config, error)) {
    entries_of(folder_ / "checkpoints");
    return;
  }
  const auto settings = flat_settings(read_file(config));
  for (const auto& checkpoint : resumable_checkpoints(folder_)) {
    if (!looks_whole(checkpoint)) continue;
    const auto theirs = flat_settings(read_file(checkpoint / config_name));
    recognised_ = std::all_of(rules_.begin(), rules_.end(), [&](const auto& rule) {
      return rule.second.kind != SettingKind::fixed || value_of(settings, rule.first) == value_of(theirs, rule.first);
    });
    if (!recognised_) continue;
    facts_.files = wanted();
    for (const auto& name : vocabulary_files) {
      if (something_at(checkpoint / name)) facts_.files.push_back(name);
    }
    return;
  }
}

std::vector<std::string> RunFolder::own_entries() const {
  std::vector<std::string> entries;
  for (const auto& name : facts_.files) {
    if (const auto* grammar = grammar_of(name)) {
      for (const auto& entry : entries_of(folder_ / name)) {
        const auto inner = entry.filename().string();
        if (std::regex_match(inner, *grammar)) entries.push_back(fmt::format("{}/{}", name, inner));
      }
    } else if (something_at(folder_ / name)) {
      entries.push_back(name);
    }
  }
  return entries;
}

bool RunFolder::has_new_checkpoint() const {
  const auto checkpoints = resumable_checkpoints(folder_);
  return !checkpoints.empty() && checkpoint_step(checkpoints.front()) > set_aside_.from;
}

// --- settings ------------------------------------------------------------------------------------------------

std::vector<RunFolder::Difference> RunFolder::differences(const std::string& saved_config) const {
  const auto saved = flat_settings(saved_config), given = flat_settings(config_);
  const auto linear = [](const auto& settings) { return value_of(settings, "training.schedule") == "linear"; };
  std::vector<Difference> different;
  for (const auto& [name, value] : given) {
    const auto rule = rules_.find(name);
    auto kind = rule == rules_.end() ? SettingKind::fixed : rule->second.kind;
    // No other schedule's past depends on when it ends.
    if (name == "training.steps" && !linear(saved) && !linear(given)) kind = SettingKind::free;
    const auto found = saved.find(name);
    // What a setting did before it existed is its default.
    const auto before = found != saved.end()   ? found->second
                        : rule == rules_.end() ? "(none)"
                                               : rule->second.default_text;
    if (before != value && kind != SettingKind::free) different.push_back({name, before, value, kind});
  }
  return different;
}

void RunFolder::decide() {
  found_ = Found::nothing;
  if (!recorded_ && !recognised_) {
    if (!options_.from.empty())
      throw Error("--from", fmt::format("there is no run in {}", folder_.string()), "leave it out");
    return;
  }
  if (options_.restart) return;
  const bool begun = !resumable_checkpoints(folder_).empty();
  if (!options_.from.empty() && !begun) {
    throw Error("--from", fmt::format("the run in {} has no checkpoint yet", folder_.string()), "leave it out");
  }
  if (something_at(folder_ / weights_name) && !begun) {
    throw Error(folder_.string(), "holds a model without the checkpoints to go on from",
                "choose another training.output, or --restart to replace it");
  }
  if (!something_at(folder_ / config_name) && !begun) return;
  fs::path saved = folder_;
  if (!options_.from.empty() || !something_at(folder_ / config_name)) saved = choose_checkpoint();
  std::string all, fixed;
  for (const auto& [name, before, after, kind] : differences(read_file(saved / config_name))) {
    const auto text = fmt::format("{}: {} there, {} now", name, before, after);
    all += (all.empty() ? "" : ", ") + text;
    if (kind == SettingKind::fixed) fixed += text;
    if (!options_.from.empty()) changes_.push_back({from_, name, before, after});
  }
  if (!begun) {
    if (!fixed.empty() && set_aside_.stage == Stage::kept) {
      throw Error(folder_.string(), fmt::format("holds a run with other settings ({}) that --restart began", all),
                  "--undo brings back the run that it replaced, --restart begins anew");
    }
    starts_anew_ = !fixed.empty();  // it came no further than its vocabulary, which was learned for other settings
    return;
  }
  if (!fixed.empty()) {
    throw Error(folder_.string(), "holds a run with other settings (" + all + ")",
                "give the settings it had to go on with it, --restart to replace it, or another training.output");
  }
  if (!all.empty() && options_.from.empty()) {
    throw Error(folder_.string(), "holds a run with other settings (" + all + ")",
                fmt::format("to go on with the new ones: {} --from last (or --from STEP, an earlier checkpoint's); or "
                            "give the settings it had, or another training.output",
                            options_.command.empty() ? "the same command with" : options_.command));
  }
  // Where a run computes and writes is no part of its result.
  auto there = flat_settings(read_file(saved / config_name)), here = flat_settings(config_);
  for (const char* name : {"training.output", "training.device", "training.threads", "data.cache"}) {
    there.erase(name);
    here.erase(name);
  }
  const bool finished = something_at(folder_ / summary_name) && options_.from.empty() && there == here;
  found_ = finished ? Found::finished_run : Found::run;
}

fs::path RunFolder::choose_checkpoint() {
  const auto checkpoints = resumable_checkpoints(folder_);
  if (options_.from.empty() || options_.from == "last") {
    for (const auto& checkpoint : checkpoints) {
      try {
        verify_checksums(checkpoint);
      } catch (const std::runtime_error&) {  // damaged, or cannot be read: resuming reports it and takes the one before
        continue;
      }
      from_ = options_.from.empty() ? -1 : checkpoint_step(checkpoint);
      return checkpoint;
    }
    throw Error((folder_ / "checkpoints").string(), "none of its checkpoints is whole",
                "--restart replaces the run and begins anew");
  }
  const auto& text = options_.from;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), from_);
  if (problem != std::errc() || end != text.data() + text.size() || from_ < 0) {
    throw Error("--from", in_quotes(text) + " is no step", "write the step of a checkpoint, or last");
  }
  std::string steps;
  for (const auto& checkpoint : checkpoints) {
    const auto step = checkpoint_step(checkpoint);
    if (step == from_) {
      verify_checksums(checkpoint);
      return checkpoint;
    }
    steps = fmt::format("{}{}{}", step, steps.empty() ? "" : ", ", steps);
  }
  throw Error(
      "--from", fmt::format("there is no checkpoint of step {} in {}", from_, folder_.string()),
      fmt::format("there are: {}{}", steps, set_aside_.stage == Stage::kept ? "; --undo brings back later ones" : ""));
}

bool RunFolder::keeps(const std::string& name) const {
  const bool replaced = options_.restart || starts_anew_;
  return something_at(folder_ / name) && !(replaced && contains(facts_.files, name));
}

void RunFolder::check_input(const std::string& what, const fs::path& path) const {
  if (!options_.restart && !starts_anew_) return;
  const auto entries = own_entries();
  const bool replaced =
      (!entries.empty() && is_within(folder_, path)) ||
      std::any_of(entries.begin(), entries.end(), [&](const auto& entry) { return is_within(path, folder_ / entry); });
  if (replaced) {
    throw Error(what, path.string() + " is of the run that is to be replaced", "choose another training.output");
  }
}

// --- what changes --------------------------------------------------------------------------------------------

fs::path RunFolder::aside(const std::string& item) const {
  const fs::path path(item);
  return folder_ / path.parent_path() / aside_name / path.filename();
}

void RunFolder::remove_empty_folders(const std::vector<std::string>& items) const {
  std::error_code ignored;  // one that holds something else is not empty
  for (const auto& item : items) fs::remove(aside(item).parent_path(), ignored);
}

void RunFolder::set_aside(const std::vector<std::string>& items, int64_t from, const Facts& after) {
  const bool more = set_aside_.stage == Stage::kept;
  if (!more) {
    for (const auto& item : items) {
      const auto place = aside(item).parent_path();
      if (!entries_of(place).empty()) {
        throw Error(place.string(), "is in the way: what is replaced is kept there", "move it away");
      }
    }
    set_aside_ = {};
    set_aside_.from = from;
    set_aside_.before = facts_;
  }
  // Of what was set aside before and has been made again, the first is kept: nothing has come of the second.
  for (const auto& item : items) {
    if (!contains(set_aside_.items, item)) set_aside_.moving.push_back(item);
  }
  set_aside_.stage = Stage::moving;
  write_record();
  for (const auto& item : set_aside_.moving) {
    // A run that goes back goes on with these.
    if (from >= 0 && (item == config_name || item == metrics_name)) {
      std::error_code error;
      fs::create_directories(aside(item).parent_path(), error);
      write_atomically(aside(item), read_file(folder_ / item));
    } else {
      move_to(folder_ / item, aside(item));
    }
  }
  if (from < 0) {
    set_aside_.from = -1;
    for (const auto& entry : own_entries()) remove_tree(folder_ / entry);
  }
  set_aside_.items.insert(set_aside_.items.end(), set_aside_.moving.begin(), set_aside_.moving.end());
  set_aside_.moving.clear();
  set_aside_.from = from < 0 ? -1 : std::min(set_aside_.from, from);
  set_aside_.stage = Stage::kept;
  facts_ = after;
  write_record();
}

void RunFolder::recover() {
  if (set_aside_.stage == Stage::moving) {
    give_back(set_aside_.moving);
    set_aside_.moving.clear();
    set_aside_.stage = set_aside_.items.empty() ? Stage::none : Stage::kept;
    write_record();
  }
  if (set_aside_.stage == Stage::returning) finish_undo();
  if (set_aside_.stage == Stage::purging || (set_aside_.stage == Stage::kept && has_new_checkpoint())) purge();
}

void RunFolder::give_back(const std::vector<std::string>& items) {
  for (const auto& item : items) {
    if (!something_at(aside(item))) continue;
    if (something_at(folder_ / item)) remove_tree(folder_ / item);
    move_to(aside(item), folder_ / item);
  }
  remove_empty_folders(items);
}

void RunFolder::finish_undo() {
  if (set_aside_.from < 0) {
    for (const auto& entry : own_entries()) {
      if (!contains(set_aside_.items, entry)) remove_tree(folder_ / entry);
    }
  }
  give_back(set_aside_.items);
  facts_ = set_aside_.before;
  set_aside_ = {};
  write_record();
}

void RunFolder::purge() {
  set_aside_.stage = Stage::purging;
  write_record();
  for (const auto& item : set_aside_.items) remove_tree(aside(item));
  remove_empty_folders(set_aside_.items);
  set_aside_ = {};
  write_record();
}

void RunFolder::claim() {
  if (found_ != Found::nothing) return;
  if (!lock_) {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) throw Error("training.output", fmt::format("cannot create {}: {}", folder_.string(), error.message()));
    lock();
    look();  // nobody else has begun anything meanwhile
    if (recorded_ || recognised_) {
      throw Error(folder_.string(), "another run has begun in this folder",
                  "start again, or choose another training.output");
    }
  }
  Facts mine;
  mine.files = facts_.files;
  for (const auto& name : wanted()) {
    if (!contains(mine.files, name)) mine.files.push_back(name);
  }
  for (const auto& name : vocabulary_files) {
    if (!contains(mine.files, name) && !something_at(folder_ / name)) mine.files.push_back(name);
  }
  const bool begun = !resumable_checkpoints(folder_).empty() || something_at(folder_ / weights_name);
  if (options_.restart && (begun || set_aside_.stage == Stage::kept)) {
    // Of a run that has no checkpoint, and replaced one, nothing is worth keeping.
    const bool again = set_aside_.stage == Stage::kept && set_aside_.from < 0;
    set_aside(again ? std::vector<std::string>{} : own_entries(), -1, mine);
  } else if (options_.restart || starts_anew_) {
    for (const auto& entry : own_entries()) remove_tree(folder_ / entry);
  }
  facts_ = mine;
  write_record();
  write_atomically(folder_ / config_name, config_);
}

void RunFolder::check_corpus(const std::string& checksum) const {
  if (found_ != Found::run || facts_.corpus.empty() || facts_.corpus == checksum) return;
  throw Error("data.train_source", fmt::format("the text is not what the run in {} was trained on", folder_.string()),
              "bring back the text as it was, or begin another run (--restart, or another training.output)");
}

std::vector<std::string> RunFolder::entries_behind(int64_t step) const {
  std::vector<std::string> behind;
  for (const auto& entry : own_entries()) {
    const fs::path path(entry);
    const auto folder = path.parent_path().string();
    const bool final_model = entry == weights_name || entry == checksums_name || entry == summary_name ||
                             entry == config_name || entry == metrics_name || entry == "validation/final.txt";
    const bool later =
        (folder == "checkpoints" && checkpoint_step(path) > step && !path.filename().string().starts_with('.') &&
         !path.filename().string().starts_with("damaged")) ||
        (folder == "validation" && checkpoint_step(path.stem()) > step);
    if (final_model || later) behind.push_back(entry);
  }
  return behind;
}

void RunFolder::begin(const std::string& checksum) {
  if (found_ == Found::nothing) {
    if (facts_.corpus == checksum) return;
    facts_.corpus = checksum;
    write_record();
    return;
  }
  auto facts = facts_;
  facts.corpus = checksum;
  for (const auto& name : wanted()) {
    if (!contains(facts.files, name)) facts.files.push_back(name);
  }
  if (from_ >= 0) {
    std::erase_if(facts.changes, [&](const Change& change) { return change.step >= from_; });
    facts.changes.insert(facts.changes.end(), changes_.begin(), changes_.end());
    set_aside(entries_behind(from_), from_, facts);
  } else {
    facts_ = facts;
    write_record();
    if (something_at(folder_ / summary_name)) remove_tree(folder_ / summary_name);
  }
  write_atomically(folder_ / config_name, config_);
}

void RunFolder::checkpoint_written() {
  if (set_aside_.stage == Stage::kept && has_new_checkpoint()) purge();
}

std::string RunFolder::set_aside_text() const {
  if (set_aside_.stage != Stage::kept) return "";
  return fmt::format("what {} replaces is kept in {} until the next checkpoint; --undo brings it back",
                     set_aside_.from < 0 ? "--restart" : "--from", (folder_ / aside_name).string());
}

void RunFolder::undo(const fs::path& folder) {
  RunFolder run(folder);
  if (run.set_aside_.stage != Stage::kept) {
    throw Error(folder.string(), "nothing is set aside here: no --restart or --from since the newest checkpoint");
  }
  run.set_aside_.stage = Stage::returning;
  run.write_record();
  run.finish_undo();
}

}  // namespace transformer
