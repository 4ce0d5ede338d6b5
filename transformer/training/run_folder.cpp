#include "transformer/training/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>

#include "transformer/base/atomic_file.h"
#include "transformer/base/checksum.h"
#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/number.h"
#include "transformer/base/read_file.h"
#include "transformer/base/run_files.h"
#include "transformer/base/settings.h"
#include "transformer/base/unicode.h"
#include "transformer/base/unreadable.h"
#include "transformer/text/corpus_cache.h"
#include "transformer/training/checkpoint.h"
#include "transformer/training/run_names.h"

namespace transformer {

namespace {

namespace fs = std::filesystem;
using Stage = RunRecord::Stage;

constexpr const char* aside_name = ".replaced";

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
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

// Deletes what a killed process had not yet given its name in `place`, where whoever has the run's lock alone writes.
void remove_unwritten(const fs::path& place) {
  for (const auto& entry : entries_of(place)) {
    std::error_code ignored;
    const bool is_file = fs::is_regular_file(fs::symlink_status(entry, ignored));
    if (is_file && entry.filename().string().starts_with(temporary_prefix)) fs::remove(entry, ignored);
  }
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw Failure(path.string(), "cannot be removed: " + error.message());
}

// What somebody keeps within an entry that is a folder.
std::vector<fs::path> strangers_within(const fs::path& path, const std::string& entry) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {};
  const fs::path name(entry);
  if (name.parent_path() == corpus_name) return strange_entries(path, CorpusCache::file_names());
  const auto checkpoint = parse_checkpoint_name(name.filename().string());
  const bool unfinished = !checkpoint || checkpoint->state == CheckpointName::State::partial;
  return unfinished ? std::vector<fs::path>() : strange_entries_of(path);
}

// Deletes an entry; what somebody has put into it meanwhile stays.
void remove_entry(const fs::path& path, const std::string& entry) {
  if (strangers_within(path, entry).empty()) {
    remove_tree(path);
  } else if (fs::path(entry).parent_path() == corpus_name) {
    remove_known(path, CorpusCache::file_names());
  } else {
    remove_checkpoint(path);
  }
}

// Whether a folder named like a checkpoint is one, or what is left of one.
bool may_be_checkpoint(const fs::path& path) {
  const auto name = parse_checkpoint_name(path.filename().string());
  return name && (name->state == CheckpointName::State::partial || holds_checkpoint(path));
}

// Whether a folder lies there, no link to one.
bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(fs::symlink_status(path, error));
}

}  // namespace

// --- what is there -------------------------------------------------------------------------------------------

RunFolder::RunFolder(fs::path folder, const std::string& config, const std::map<std::string, SettingRule>& rules,
                     const RunFolderOptions& options)
    : folder_(std::move(folder)), config_(config), given_(flat_settings(config)), rules_(rules), options_(options) {
  if (options_.restart && !options_.from.empty()) {
    throw Error("--from", "cannot be given together with --restart", "a run either goes on or begins anew");
  }
  look();
  if ((recorded_ || recognised_) && !options_.look_only) {
    lock();
    look();  // while nobody else works on it
    recover();
  }
  done_before_ = std::any_of(options_.agents.begin(), options_.agents.end(),
                             [&](const auto& agent) { return record_.agents.contains(agent); });
  if (done_before_) {
    options_.restart = false;
    options_.from.clear();
  }
  decide();
  check_replaced();
}

RunFolder::RunFolder(fs::path folder) : folder_(std::move(folder)) {
  if (!read_record()) throw Error(folder_.string(), fmt::format("holds no run ({} is missing)", record_name));
  lock();
  read_record();
  recover();
}

bool RunFolder::read_record() {
  const auto record = RunRecord::read(folder_);
  recorded_ = record.has_value();
  if (record) record_ = *record;
  return recorded_;
}

void RunFolder::lock() {
  lock_.emplace(folder_, "another run", "wait for it, stop it, or choose another training.output");
  claimed_.emplace(folder_);
}

std::vector<std::string> RunFolder::wanted() const {
  std::vector<std::string> names(run_file_names.begin(), run_file_names.end());
  if (!options_.profile) std::erase(names, trace_name);
  const auto cache = value_of(given_, "data.cache");
  for (const auto& name : run_folder_names()) {
    if (name != corpus_name || cache.empty() || cache == "\"\"") names.push_back(name);
  }
  return names;
}

void RunFolder::look() {
  record_ = {};
  recognised_ = false;
  entries_of(folder_);  // throws where it is no folder or cannot be read
  if (!read_record()) recognise();
  for (const auto& name : wanted()) {
    const auto path = folder_ / name;
    if (contains(record_.facts.files, name)) {
      std::error_code error;
      if (is_run_folder(name)) {
        entries_of(path);
      } else if (something_at(path) && !fs::is_regular_file(path, error)) {
        throw Error(path.string(), "is not a file that can be read", "mount what it leads to, or move it away");
      }
      continue;
    }
    const bool in_the_way = is_run_folder(name) ? !entries_of(path).empty() : something_at(path);
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
    entries_of(folder_ / checkpoints_name);
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
    record_.facts.files = wanted();
    for (const auto& name : vocabulary_names) {
      if (something_at(checkpoint / name)) record_.facts.files.push_back(name);
    }
    return;
  }
}

std::vector<std::string> RunFolder::own_entries() const {
  std::vector<std::string> entries;
  for (const auto& name : record_.facts.files) {
    if (is_run_folder(name)) {
      for (const auto& path : entries_of(folder_ / name)) {
        const auto entry = fmt::format("{}/{}", name, path.filename().string());
        const bool may_be_own =
            name == checkpoints_name ? may_be_checkpoint(path) : name != validations_name || !is_folder(path);
        if (is_run_entry(entry) && may_be_own) entries.push_back(entry);
      }
    } else if (owns(name)) {
      entries.push_back(name);
    }
  }
  return entries;
}

bool RunFolder::owns(const std::string& name) const {
  const auto path = folder_ / name;
  if (!contains(record_.facts.files, name) || !something_at(path)) return false;
  const auto vocabulary = record_.facts.vocabularies.find(name);
  std::error_code error;  // records from before there were checksums name vocabularies alone
  return vocabulary == record_.facts.vocabularies.end() ||
         (fs::is_regular_file(path, error) && file_checksum(path) == vocabulary->second);
}

void RunFolder::check_replaced() const {
  std::vector<std::string> replaced;
  if (options_.restart || starts_anew_) replaced = own_entries();
  if (from_ >= 0) replaced = entries_behind(from_);
  // What is set aside is what was there first. What has come since would be lost.
  const auto made_since = record_.set_aside.stage == Stage::kept ? entries_made_since() : std::vector<std::string>{};
  for (const auto& entry : replaced) {
    if (fs::path(entry).parent_path() != checkpoints_name || !contains(made_since, entry)) continue;
    const auto name = parse_checkpoint_name(fs::path(entry).filename().string());
    if ((name && name->state == CheckpointName::State::partial) || !looks_whole(folder_ / entry)) continue;
    throw Error((folder_ / entry).string(),
                fmt::format("would be lost: {} is for what the last --restart or --from replaced",
                            (folder_ / aside_name).string()),
                "go on without --restart or --from, bring back what was replaced with --undo, or choose another "
                "training.output");
  }
  for (const auto& entry : replaced) {
    const auto strange = strangers_within(folder_ / entry, entry);
    if (strange.empty()) continue;
    throw Error(strange.front().string(),
                fmt::format("is in the way: it is no part of {}, which is to be replaced", entry),
                "move it away, or choose another training.output");
  }
  // Folders of the user's that are named like checkpoints that this run will write.
  const auto checkpoints = resumable_checkpoints(folder_);
  const bool anew = found_ == Found::nothing || checkpoints.empty();
  const int64_t behind = anew ? -1 : from_ >= 0 ? from_ : checkpoint_step(checkpoints.front());
  for (const auto& path : entries_of(folder_ / checkpoints_name)) {
    const auto name = parse_checkpoint_name(path.filename().string());
    if (!name || name->state != CheckpointName::State::whole || name->step <= behind || name->step > steps()) continue;
    if (holds_checkpoint(path)) continue;
    throw Error(path.string(), "is in the way: the run writes a checkpoint there, and this is none",
                "move it away, or choose another training.output");
  }
  if (found_ == Found::finished_run) return;
  // And like texts of its validations.
  for (const auto& path : entries_of(folder_ / validations_name)) {
    if (!is_folder(path) || !is_run_entry(fmt::format("validation/{}", path.filename().string()))) continue;
    const int64_t step = checkpoint_step(path.stem());
    if (path.stem() != "final" && (step <= behind || step > steps())) continue;
    throw Error(path.string(), "is in the way: the run writes a file there",
                "move it away, or choose another training.output");
  }
}

int64_t RunFolder::steps() const {
  const auto steps = number_in<int64_t>(value_of(given_, "training.steps"));
  return steps.value_or(std::numeric_limits<int64_t>::max());
}

void RunFolder::remove_own(const std::vector<std::string>& entries) const {
  // Its settings go last, by which the next start knows the rest where this process is killed.
  for (const bool settings : {false, true}) {
    for (const auto& entry : entries) {
      if ((entry == config_name) == settings) remove_entry(folder_ / entry, entry);
    }
  }
}

bool RunFolder::has_come_further() const {
  const auto scheduled = list_checkpoints(folder_);
  const bool later = !scheduled.empty() && checkpoint_step(scheduled.back()) > record_.set_aside.from;
  // The summary, written last, was set aside with the rest: the one that is there is new.
  return later || something_at(folder_ / summary_name);
}

// --- settings ------------------------------------------------------------------------------------------------

std::vector<RunFolder::Difference> RunFolder::differences(const std::map<std::string, std::string>& saved) const {
  const auto linear = [](const auto& settings) { return value_of(settings, "training.schedule") == "linear"; };
  const auto by_bleu = [](const auto& settings) { return value_of(settings, "training.best_by") == "bleu"; };
  std::vector<Difference> different;
  for (const auto& [name, value] : given_) {
    const auto rule = rules_.find(name);
    auto kind = rule == rules_.end() ? SettingKind::fixed : rule->second.kind;
    // No other schedule's past depends on when it ends.
    if (name == "training.steps" && !linear(saved) && !linear(given_)) kind = SettingKind::free;
    // What was the best by other translations is no longer kept.
    if (decides_translations(name) && (by_bleu(saved) || by_bleu(given_))) kind = SettingKind::changeable;
    const auto found = saved.find(name);
    // What a setting did before it existed is its default.
    const auto before = found != saved.end()   ? found->second
                        : rule == rules_.end() ? "(none)"
                                               : rule->second.default_text;
    // Shells complete a folder's name with a slash behind it.
    const auto folder = [](const std::string& text) { return (fs::path(text) / "").lexically_normal(); };
    const bool same = before == value || (name == "training.init_from" && folder(before) == folder(value));
    if (!same && kind != SettingKind::free) different.push_back({name, before, value, kind});
  }
  return different;
}

bool RunFolder::is_edited() const {
  const auto& config = record_.facts.config;
  return !config.empty() && something_at(folder_ / config_name) && file_checksum(folder_ / config_name) != config;
}

std::map<std::string, std::string> RunFolder::saved_settings(bool begun) {
  const bool from_folder = options_.from.empty() && something_at(folder_ / config_name) && !(begun && is_edited());
  if (from_folder) return flat_settings(read_file(folder_ / config_name));
  const auto checkpoint = choose_checkpoint();
  auto saved = flat_settings(read_file(checkpoint / config_name));
  for (const auto& change : record_.facts.changes) {
    if (options_.from.empty() && change.step >= checkpoint_step(checkpoint)) saved[change.setting] = change.after;
  }
  return saved;
}

void RunFolder::check_vocabularies(const std::vector<fs::path>& checkpoints) {
  for (const std::string name : vocabulary_names) {
    // All checkpoints of a run have the same one: a damaged copy says nothing.
    const auto whole = std::find_if(checkpoints.begin(), checkpoints.end(), [&](const fs::path& checkpoint) {
      return something_at(checkpoint / name) && damage_found([&] { verify_checksums(checkpoint, {name}); }).empty();
    });
    if (whole == checkpoints.end()) continue;
    const auto own = *whole / name, here = folder_ / name;
    if (!something_at(here)) {
      lost_vocabularies_[name] = own;
    } else if (file_checksum(own) != file_checksum(here)) {
      throw Error(here.string(),
                  fmt::format("is another vocabulary than the run was trained with, which is {}", own.string()),
                  "put that one back to go on, or --restart to begin anew");
    }
  }
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
  // Where a run computes and writes is no part of its result.
  const auto is_same_as = [&](std::map<std::string, std::string> there) {
    auto here = given_;
    for (auto* settings : {&there, &here}) {
      std::erase_if(*settings, [](const auto& setting) { return says_where(setting.first); });
    }
    return there == here;
  };
  if (something_at(folder_ / weights_name) && !begun) {
    // It was finished, and somebody needed its checkpoints' space.
    if (something_at(folder_ / summary_name) && something_at(folder_ / config_name) && !is_edited() &&
        is_same_as(flat_settings(read_file(folder_ / config_name)))) {
      found_ = Found::finished_run;
      return;
    }
    throw Error(folder_.string(), "holds a model without the checkpoints to go on from",
                "choose another training.output, or --restart to replace it");
  }
  // What its vocabulary was learned from, where a run came no further than that.
  const auto is_of_other_text = [&] {
    return !record_.facts.vocabularies.empty() && !vocabulary_text().empty() &&
           vocabulary_text() != record_.facts.vocabulary_text;
  };
  if (!something_at(folder_ / config_name) && !begun) {
    const bool other_settings = !record_.facts.vocabularies.empty() && record_.facts.config != checksum_of(config_);
    starts_anew_ = record_.set_aside.stage != Stage::kept && (other_settings || is_of_other_text());
    return;
  }
  const auto saved = saved_settings(begun);
  std::string all, fixed;
  for (const auto& [name, before, after, kind] : differences(saved)) {
    const auto text = fmt::format("{}: {} there, {} now", name, before, after);
    all += (all.empty() ? "" : ", ") + text;
    if (kind == SettingKind::fixed) fixed += text;
    if (!options_.from.empty()) changes_.push_back({from_, name, before, after});
  }
  if (!begun) {
    // It came no further than its vocabulary, which was learned for other settings, or from another text.
    const bool other_text = is_of_other_text();
    const bool edited = is_edited();
    starts_anew_ = !fixed.empty() || other_text || edited;
    if (starts_anew_ && record_.set_aside.stage == Stage::kept) {
      throw Error(folder_.string(),
                  fmt::format("holds a run {} that --restart began",
                              !fixed.empty() ? "with other settings (" + all + ")"
                              : other_text   ? "of another text"
                                             : "with other settings than its config.yaml has now"),
                  "--undo brings back the run that it replaced, --restart begins anew");
    }
    return;
  }
  if (!fixed.empty()) {
    throw Error(folder_.string(), "holds a run with other settings (" + all + ")",
                fmt::format("give the settings it had to go on with it, --restart to replace it, or another "
                            "training.output{}",
                            undo_advice()));
  }
  if (!all.empty() && options_.from.empty()) {
    throw Error(folder_.string(), "holds a run with other settings (" + all + ")",
                fmt::format("to go on with the new ones: {} --from last (or --from STEP, an earlier checkpoint's); or "
                            "give the settings it had, or another training.output{}",
                            options_.command.empty() ? "the same command with" : options_.command, undo_advice()));
  }
  auto checkpoints = resumable_checkpoints(folder_);
  const int64_t come_to = from_ >= 0 ? from_ : checkpoint_step(checkpoints.front());
  if (from_ >= 0) std::erase_if(checkpoints, [&](const auto& other) { return checkpoint_step(other) != from_; });
  check_vocabularies(checkpoints);
  if (steps() < come_to) {
    throw Error("training.steps",
                fmt::format("is {}, and the run in {} has come to step {}", steps(), folder_.string(), come_to),
                "give no fewer, or go on from an earlier checkpoint with --from STEP");
  }
  const bool finished = something_at(folder_ / summary_name) && options_.from.empty() && is_same_as(saved);
  found_ = finished ? Found::finished_run : Found::run;
}

fs::path RunFolder::choose_checkpoint() {
  const auto checkpoints = resumable_checkpoints(folder_);
  if (options_.from.empty() || options_.from == "last") {
    std::string newest;
    for (const auto& checkpoint : checkpoints) {
      const auto damage = damage_found([&] { verify_checksums(checkpoint); });
      if (!damage.empty()) {  // resuming says so and takes the one before
        if (newest.empty()) newest = damage;
        continue;
      }
      from_ = options_.from.empty() ? -1 : checkpoint_step(checkpoint);
      return checkpoint;
    }
    throw no_whole_checkpoint(folder_, newest);
  }
  const auto& text = options_.from;
  from_ = number_in<int64_t>(text).value_or(-1);
  if (from_ < 0) {
    throw Error("--from", in_quotes(text) + " is no step", "write the step of a checkpoint, or last");
  }
  std::string steps;
  for (const auto& checkpoint : checkpoints) {
    const auto step = checkpoint_step(checkpoint);
    if (step == from_) {
      read_kept([&] { verify_checksums(checkpoint); });
      return checkpoint;
    }
    steps = fmt::format("{}{}{}", step, steps.empty() ? "" : ", ", steps);
  }
  throw Error("--from", fmt::format("there is no checkpoint of step {} in {}", from_, folder_.string()),
              fmt::format("there are: {}{}", steps,
                          record_.set_aside.stage == Stage::kept ? "; --undo brings back later ones" : ""));
}

const std::string& RunFolder::vocabulary_text() {
  if (!vocabulary_text_) vocabulary_text_ = options_.vocabulary_text ? options_.vocabulary_text() : "";
  return *vocabulary_text_;
}

bool RunFolder::keeps(const std::string& name) const {
  const bool replaced = options_.restart || starts_anew_;
  return something_at(folder_ / name) && !(replaced && owns(name));
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

void RunFolder::check_apart(const std::string& what, const fs::path& path) const {
  auto names = wanted();
  names.insert(names.end(), vocabulary_names.begin(), vocabulary_names.end());
  names.push_back(record_name);
  for (const auto& name : names) {
    if (!is_within(path, folder_ / name)) continue;
    throw Error(what, fmt::format("{} is where the run writes its {}", path.string(), name), "choose another");
  }
}

// --- what changes --------------------------------------------------------------------------------------------

fs::path RunFolder::aside(const std::string& item) const {
  const fs::path path(item);
  return folder_ / path.parent_path() / aside_name / path.filename();
}

void RunFolder::remove_empty_folders(const std::vector<std::string>& items) const {
  std::error_code ignored;  // one that holds something else is not empty
  for (const auto& item : items) {
    const auto place = aside(item).parent_path();
    remove_unwritten(place);
    fs::remove(place, ignored);
  }
}

void RunFolder::set_aside(const std::vector<std::string>& items, int64_t from, const RunRecord::Facts& after) {
  const bool more = record_.set_aside.stage == Stage::kept;
  const auto goes_on_with = [&](const std::string& item) {
    return from >= 0 && (item == config_name || item == metrics_name || item == events_name);
  };
  if (!more) {
    for (const auto& item : items) {
      const auto place = aside(item).parent_path();
      remove_unwritten(place);
      if (!entries_of(place).empty()) {
        throw Error(place.string(), "is in the way: what is replaced is kept there", "move it away");
      }
    }
    record_.set_aside = {};
    record_.set_aside.from = from;
    record_.set_aside.before = record_.facts;
  }
  // What is kept is what was there first, nothing of what has been made since.
  const auto made_since = more ? entries_made_since() : std::vector<std::string>{};
  std::vector<std::string> discarded;
  for (const auto& item : items) {
    if (contains(made_since, item)) {
      if (!goes_on_with(item)) discarded.push_back(item);
    } else if (!contains(record_.set_aside.items, item)) {
      record_.set_aside.moving.push_back(item);
    }
  }
  record_.set_aside.stage = Stage::moving;
  record_.write(folder_);
  auto kept = record_;
  try {
    for (const auto& item : record_.set_aside.moving) {
      if (goes_on_with(item)) {
        const auto copy = aside(item);
        std::error_code refused;  // shows where it is written
        fs::create_directories(copy.parent_path(), refused);
        copy_atomically(folder_ / item, copy);
      } else {
        move_to(folder_ / item, aside(item));
      }
      kept.set_aside.items.push_back(item);
    }
    if (from < 0) discarded = own_entries();
    kept.set_aside.moving.clear();
    kept.set_aside.from = from < 0 ? -1 : std::min(record_.set_aside.from, from);
    kept.set_aside.stage = Stage::kept;
    if (from >= 0) kept.facts = after;  // else once what is discarded is gone, which is the run's until then
    kept.agents = options_.agents;
    kept.write(folder_);
  } catch (...) {
    try {
      revert_moving();
    } catch (const std::runtime_error&) {  // Error or Failure: the next start finishes it (recover)
    }
    throw;
  }
  record_ = kept;
  remove_own(discarded);
  if (from >= 0) return;
  record_.facts = after;
  record_.write(folder_);
}

void RunFolder::revert_moving() {
  give_back(record_.set_aside.moving);
  record_.set_aside.moving.clear();
  record_.set_aside.stage = record_.set_aside.items.empty() ? Stage::none : Stage::kept;
  record_.write(folder_);
}

void RunFolder::recover() {
  if (record_.set_aside.stage == Stage::moving) {
    revert_moving();
    undone_ = record_.set_aside.stage == Stage::none;
  }
  if (record_.set_aside.stage == Stage::returning) {
    finish_undo();
    undone_ = true;
  }
  if (record_.set_aside.stage == Stage::purging || (record_.set_aside.stage == Stage::kept && has_come_further()))
    purge();
}

void RunFolder::give_back(const std::vector<std::string>& items) {
  for (const auto& item : items) {
    if (!something_at(aside(item))) continue;
    if (something_at(folder_ / item)) remove_entry(folder_ / item, item);
    move_to(aside(item), folder_ / item);
  }
  remove_empty_folders(items);
}

void RunFolder::finish_undo() {
  for (const auto& entry : entries_made_since()) {
    if (!contains(record_.set_aside.items, entry)) remove_entry(folder_ / entry, entry);
  }
  give_back(record_.set_aside.items);
  record_.facts = record_.set_aside.before;
  record_.set_aside = {};
  record_.agents.clear();
  record_.write(folder_);
}

void RunFolder::purge() {
  record_.set_aside.stage = Stage::purging;
  record_.write(folder_);
  for (const auto& item : record_.set_aside.items) remove_entry(aside(item), item);
  remove_empty_folders(record_.set_aside.items);
  record_.set_aside = {};
  record_.write(folder_);
}

void RunFolder::claim() {
  if (lock_) {
    remove_leftovers(folder_);
    for (const char* name : {validations_name, corpus_name}) {
      if (contains(record_.facts.files, name) && is_folder(folder_ / name)) remove_leftovers(folder_ / name);
    }
  }
  if (done_before_) {
    // Of agents that come and go, one that came later may be the last that knows of the launch.
    const auto known = record_.agents.size();
    record_.agents.insert(options_.agents.begin(), options_.agents.end());
    if (record_.agents.size() > known) record_.write(folder_);
  }
  if (found_ != Found::nothing) {
    for (const auto& lost : lost_vocabularies_) {
      std::string contents;
      read_kept([&] { contents = read_file(lost.second); });
      put_vocabulary(lost.first, contents);
    }
    return;
  }
  if (!lock_) {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) throw_refused(folder_, "cannot create the folder", error);
    lock();
    look();  // nobody else has begun anything meanwhile
    if (recorded_ || recognised_) {
      throw Error(folder_.string(), "another run has begun in this folder",
                  "start again, or choose another training.output");
    }
  }
  RunRecord::Facts mine;
  mine.files = record_.facts.files;
  mine.vocabularies = record_.facts.vocabularies;
  for (const auto& name : wanted()) {
    if (!contains(mine.files, name)) mine.files.push_back(name);
  }
  // One is recorded when it is there, and not kept where the run begins anew.
  for (const auto& name : vocabulary_names) {
    if (keeps(name) && owns(name)) continue;
    std::erase(mine.files, name);
    mine.vocabularies.erase(name);
  }
  mine.vocabulary_text = vocabulary_text();
  mine.config = checksum_of(config_);
  const bool begun = !resumable_checkpoints(folder_).empty() || something_at(folder_ / weights_name);
  if (options_.restart && (begun || record_.set_aside.stage == Stage::kept)) {
    // Of a run that has no checkpoint, and replaced one, nothing is worth keeping (check_replaced).
    const bool again = record_.set_aside.stage == Stage::kept && record_.set_aside.from < 0;
    set_aside(again ? std::vector<std::string>{} : own_entries(), -1, mine);
  } else if (options_.restart || starts_anew_) {
    remove_own(own_entries());
  }
  record_.facts = mine;
  if (options_.restart) record_.agents = options_.agents;
  record_.write(folder_);
  write_atomically(folder_ / config_name, config_);
}

void RunFolder::check_in_place() const {
  claimed_->check();
}

void RunFolder::put_vocabulary(const std::string& name, const std::string& contents) {
  check_in_place();
  if (!contains(record_.facts.files, name)) record_.facts.files.push_back(name);
  record_.facts.vocabularies[name] = checksum_of(contents);
  record_.write(folder_);
  write_atomically(folder_ / name, contents);
}

void RunFolder::check_corpus(const std::string& checksum) const {
  if (found_ != Found::run || record_.facts.corpus.empty() || record_.facts.corpus == checksum) return;
  throw Error("data.train_source", fmt::format("the text is not what the run in {} was trained on", folder_.string()),
              "bring back the text as it was, or begin another run (--restart, or another training.output)");
}

std::vector<std::string> RunFolder::entries_behind(int64_t step) const {
  std::vector<std::string> behind;
  for (const auto& entry : own_entries()) {
    const fs::path path(entry);
    const auto folder = path.parent_path().string();
    const bool final_model = entry == weights_name || entry == checksums_name || entry == summary_name ||
                             entry == config_name || entry == metrics_name || entry == events_name ||
                             entry == "validation/final.txt";
    const auto checkpoint = parse_checkpoint_name(path.filename().string());
    const bool later = (folder == checkpoints_name && checkpoint && checkpoint->state == CheckpointName::State::whole &&
                        checkpoint->step > step) ||
                       (folder == validations_name && checkpoint_step(path.stem()) > step);
    if (final_model || later) behind.push_back(entry);
  }
  return behind;
}

std::vector<std::string> RunFolder::entries_made_since() const {
  return record_.set_aside.from < 0 ? own_entries() : entries_behind(record_.set_aside.from);
}

void RunFolder::begin(const std::string& checksum) {
  check_in_place();
  if (found_ == Found::nothing) {
    if (record_.facts.corpus == checksum) return;
    record_.facts.corpus = checksum;
    record_.write(folder_);
    return;
  }
  auto facts = record_.facts;
  facts.corpus = checksum;
  facts.config = checksum_of(config_);
  for (const auto& name : wanted()) {
    if (!contains(facts.files, name)) facts.files.push_back(name);
  }
  if (from_ >= 0) {
    std::erase_if(facts.changes, [&](const RunRecord::Change& change) { return change.step >= from_; });
    facts.changes.insert(facts.changes.end(), changes_.begin(), changes_.end());
    set_aside(entries_behind(from_), from_, facts);
  } else {
    record_.facts = facts;
    record_.write(folder_);
    // What tells of the end is of an earlier one.
    for (const auto* name : {summary_name, "validation/final.txt"}) {
      if (contains(own_entries(), name)) remove_tree(folder_ / name);
    }
  }
  write_atomically(folder_ / config_name, config_);
}

void RunFolder::progressed() {
  check_in_place();
  if (record_.set_aside.stage == Stage::kept && has_come_further()) purge();
}

std::string RunFolder::set_aside_text() const {
  if (record_.set_aside.stage != Stage::kept) return "";
  return fmt::format(
      "what {} replaces is kept in {} until the next scheduled checkpoint or the end; --undo brings it back",
      record_.set_aside.from < 0 ? "--restart" : "--from", (folder_ / aside_name).string());
}

std::string RunFolder::undo_advice() const {
  return record_.set_aside.stage == Stage::kept ? "; --undo brings back what it replaced" : "";
}

void RunFolder::undo(const fs::path& folder) {
  RunFolder run(folder);
  if (run.undone_) return;  // what a killed process had begun, or come to the end of
  if (run.record_.set_aside.stage != Stage::kept) {
    throw Error(folder.string(),
                "nothing is set aside here: no --restart or --from since the newest scheduled checkpoint");
  }
  for (const auto& name : vocabulary_names) {
    if (!contains(run.record_.set_aside.items, name) || !something_at(folder / name) || run.owns(name)) continue;
    throw Error((folder / name).string(), "is in the way of what is to be brought back, and is not the run's",
                "move it away");
  }
  for (const auto& item : run.record_.set_aside.items) {
    if (fs::path(item).parent_path() != validations_name || !is_folder(folder / item)) continue;
    throw Error((folder / item).string(), "is in the way of what is to be brought back, and is not the run's",
                "move it away");
  }
  run.record_.set_aside.stage = Stage::returning;
  run.record_.write(folder);
  run.finish_undo();
}

}  // namespace transformer
