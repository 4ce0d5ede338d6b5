#include "transformer/sweep/results.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "transformer/base/atomic_file.h"
#include "transformer/base/checksum.h"
#include "transformer/base/error.h"
#include "transformer/base/file_lock.h"
#include "transformer/base/folder.h"
#include "transformer/base/json_number.h"
#include "transformer/base/read_file.h"
#include "transformer/base/run_files.h"
#include "transformer/base/settings.h"
#include "transformer/base/unreadable.h"
#include "transformer/report/run_log.h"
#include "transformer/report/sweep_tables.h"

namespace transformer {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr int results_format = 1;
constexpr const char* record_kind = "transformer sweep";
constexpr const char* note_mark = "sweep: ";
constexpr const char* failure_mark = "failed: ";
constexpr int64_t last_words_bytes = 1 << 14;  // of a log, or of metrics.jsonl: enough for the last line

// Whether this process was told to stop, and has blocked the signal to ask for it (BlockedSignals).
bool stop_is_pending() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1 ||
         sigismember(&pending, SIGHUP) == 1;
}

// Files in a sweep's folder that one process at a time holds, of those that train its runs: while it changes
// sweep.json, for which each waits that starts a run, so briefly; while it writes the report; and while it waits to do
// so.
constexpr const char* record_lock = ".sweep.lock";
constexpr const char* report_lock = ".report.lock";
constexpr const char* next_report_lock = ".next-report.lock";

// A hold on one of them. Throws Failure where that cannot be, or a signal comes while it waits.
class SweepLock {
 public:
  explicit SweepLock(const fs::path& file) {
    for (lock_.emplace(file, FileLock::Wait::no); lock_->error_number() == EWOULDBLOCK;
         lock_.emplace(file, FileLock::Wait::no)) {
      if (stop_is_pending()) throw Failure(file.string(), "another process holds it, and this one is told to stop");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    if (const int error = lock_->error_number()) {
      throw Failure(file.string(), fmt::format("cannot be written: {}", std::strerror(error)));
    }
  }

 private:
  std::optional<FileLock> lock_;
};

// The file's last `bytes`, from the beginning of a line; empty where there is none. Throws as is_file, and Unreadable.
std::string tail(const fs::path& file, int64_t bytes) {
  if (!is_file(file)) return "";
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) throw_unread(file, "cannot be read", errno);
  const int64_t size = in.tellg(), begin = std::max<int64_t>(0, size - bytes);
  in.seekg(begin);
  std::string text(static_cast<size_t>(size - begin), '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) throw_unread(file, "cannot be read", errno);
  text.resize(static_cast<size_t>(in.gcount()));
  return begin == 0 ? text : text.substr(std::min(text.size(), text.find('\n') + 1));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// The lines at its end; what cannot be read says nothing.
std::vector<std::string> last_words(const fs::path& file) {
  try {
    return lines_of(tail(file, last_words_bytes));
  } catch (const Error&) {
  } catch (const Failure&) {
  }
  return {};
}

bool ends_within_line(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return in.seekg(-1, std::ios::end) && in.get() != '\n';
}

// A whole line of JSON, or null: a line may still be being written.
json parsed(const std::string& text) {
  return json::parse(text, nullptr, /*allow_exceptions=*/false);
}

template <class Value>
Value member(const json& object, const char* name, Value otherwise) {
  const auto found = object.find(name);
  if (found == object.end()) return otherwise;
  if constexpr (std::is_same_v<Value, std::string>) {
    return found->is_string() ? found->template get<Value>() : otherwise;
  } else if constexpr (std::is_same_v<Value, int64_t>) {
    return whole_number(*found).value_or(otherwise);
  } else {
    return found->is_number() ? found->template get<Value>() : otherwise;
  }
}

std::optional<double> number(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::vector<CurvePoint> read_curve(const fs::path& folder) {
  std::vector<CurvePoint> curve;
  if (!something_at(folder / metrics_name)) return curve;
  const auto log = read_metrics(folder);
  auto points = log.validation;
  if (log.final_model) points.push_back(*log.final_model);
  const auto earlier = [](const auto& one, const auto& other) { return one.step < other.step; };
  std::stable_sort(points.begin(), points.end(), earlier);
  for (const auto& point : points) {
    if (!point.perplexity || !std::isfinite(*point.perplexity)) continue;
    // Steps are alike: between two reports, and before the first, tokens grow with them.
    const auto behind = std::upper_bound(log.training.begin(), log.training.end(), point, earlier);
    const auto near = behind == log.training.begin() ? behind : std::prev(behind);
    double tokens = 0;
    if (near != log.training.end() && near->step > 0) {
      const auto& report = *near;
      constexpr double most = 9e18;  // whatever the file says
      tokens = report.target_tokens.value_or(0) * static_cast<double>(point.step) / static_cast<double>(report.step);
      tokens = std::clamp(tokens, -most, most);
    }
    // The final model is another than the last one validated where checkpoints are averaged; one point a step.
    if (!curve.empty() && curve.back().step == point.step) curve.pop_back();
    const auto bleu = point.bleu && std::isfinite(*point.bleu) ? point.bleu : std::nullopt;
    curve.push_back({point.step, std::llround(tokens), *point.perplexity, bleu});
  }
  return curve;
}

// The checksum of the vocabulary that the model in `folder` writes in; empty where there is none.
std::string written_vocabulary(const fs::path& folder) {
  for (const auto& name : {target_vocabulary_name, vocabulary_name}) {
    if (something_at(folder / name)) return file_checksum(folder / name);
  }
  return "";
}

// These settings, a line each.
std::string listed(const std::map<std::string, std::string>& values, const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) {
    const auto found = values.find(name);
    if (found != values.end()) text += fmt::format("{}={}\n", name, found->second);
  }
  return text;
}

// Whether train has begun a run, whichever, in a sweep's folder: ROW/seed-N.
bool any_run_begun(const fs::path& folder) {
  for (const auto& row : entries_of(folder)) {
    std::error_code error;
    if (!fs::is_directory(row, error)) continue;
    for (const auto& run : entries_of(row)) {
      if (fs::is_directory(run, error) && something_at(run / config_name)) return true;
    }
  }
  return false;
}

// Whether figures are the same, but for rounding, whatever this setting says. Those that end a run or make and judge
// its model are none of these, although a run may go on with other values of theirs (SettingKind::free).
bool changes_no_figure(const std::string& setting) {
  static const std::set<std::string> names = {
      "training.log_every", "training.device_flops",    "training.recompute",      "training.deterministic",
      "training.bucket_mb", "training.shard_optimizer", "training.timeout_seconds"};
  const bool of_decoding = setting.starts_with("decoding.");
  return says_where(setting) || names.contains(setting) || (of_decoding && !decides_translations(setting));
}

// What is wrong with the settings in the run's folder; nothing where figures are of its own. Throws Failure where they
// cannot be read: what cannot be read may be right.
std::optional<std::string> wrong_settings(const PlannedRun& run, const ReadConfiguration& read) {
  const auto file = (run.folder / config_name).string();
  try {
    std::string different;
    read_kept([&] { different = other_settings(run, read); });
    if (different.empty()) return std::nullopt;
    return fmt::format("{}: is of other settings ({})", file, different);
  } catch (const Error& error) {
    const std::string text = error.what();
    return text.starts_with(file) ? text : fmt::format("{}: {}", file, text);
  }
}

}  // namespace

std::string other_settings(const PlannedRun& run, const ReadConfiguration& read) {
  const auto file = run.folder / config_name;
  if (!is_file(file)) throw Error(file.string(), "is not a regular file");
  auto there = read.checked(file, {}).values;
  std::vector<std::string> different;
  for (const auto& [name, value] : run.configuration.values) {
    const auto& before = there[name];
    if (before == value || changes_no_figure(name)) continue;
    different.push_back(fmt::format("{}: {} there, {} now", name, before, value));
  }
  return fmt::format("{}", fmt::join(different, ", "));
}

bool is_being_trained(const PlannedRun& run) {
  return something_at(run.log) && FileLock(run.log, FileLock::Wait::no).error_number() == EWOULDBLOCK;
}

SweepRun read_result(const PlannedRun& run, const ReadConfiguration& read) {
  SweepRun result;
  result.seed = run.seed;
  // What train last said, whatever lies there.
  const auto not_these = [&] {
    if (const auto reason = read_failure(run.log)) {
      result.state = SweepRun::State::failed;
      result.reason = *reason;
    }
    return result;
  };
  if (something_at(run.folder / config_name)) {
    if (wrong_settings(run, read)) return not_these();  // damaged ones are none
    // One run's figures that cannot be read are that run's loss.
    try {
      result.curve = read_curve(run.folder);
    } catch (const Error& error) {
      result.reason = error.what();
    } catch (const Failure& failure) {
      result.reason = failure.what();
    }
  }
  const auto summary = parsed(summary_text(run.folder));
  if (summary.is_object() && something_at(run.folder / config_name)) {
    result.state = SweepRun::State::finished;
    result.perplexity = number(summary, "perplexity");
    result.bleu = number(summary, "bleu");
    result.bleu_signature = member<std::string>(summary, "bleu_signature", "");
    result.parameters = member<int64_t>(summary, "parameters", 0);
    result.seconds = member<double>(summary, "seconds", 0);
    result.flops = member<double>(summary, "flops", 0);
    result.steps = member<int64_t>(summary, "steps", 0);
    result.ended_by = member<std::string>(summary, "ended_by", "");
    result.averaged_checkpoints = member<int64_t>(summary, "averaged_checkpoints", 0);
    return result;
  }
  if (const auto reason = read_failure(run.log)) {
    result.state = SweepRun::State::failed;
    result.reason = *reason;
  } else if (const auto progress = read_progress(run.folder); progress && result.reason.empty()) {
    result.reason = fmt::format("at step {} of {}", progress->step, run.steps());
  }
  return result;
}

std::string unfinished_reason(const PlannedRun& run, const ReadConfiguration& read) {
  const auto summary = run.folder / summary_name;
  if (!something_at(summary)) return "it ended well, but without a summary.json";
  const auto wrong = wrong_settings(run, read);
  // Without its summary a run has not ended.
  return fmt::format("{}; remove {}, and the run ends once more from its last checkpoint",
                     wrong ? *wrong : fmt::format("{}: is no summary, or is damaged", summary.string()),
                     summary.string());
}

std::optional<RunProgress> read_progress(const fs::path& folder) {
  const auto lines = last_words(folder / metrics_name);
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const auto record = parsed(*line);
    if (!record.is_object() || member<std::string>(record, "kind", "") != "train") continue;
    return RunProgress{member<int64_t>(record, "step", 0), member<double>(record, "tokens_per_second", 0)};
  }
  return std::nullopt;
}

void note_in_log(const fs::path& log, const std::string& text) {
  const bool within_line = ends_within_line(log);  // a program's last word
  std::ofstream out(log, std::ios::binary | std::ios::app);
  if (within_line) out << '\n';
  out << fmt::format("{}{:%Y-%m-%d %H:%M:%S}: {}\n", note_mark, fmt::localtime(std::time(nullptr)), text);
  out.flush();
  if (!out) throw Failure(log.string(), "cannot be written", "is the disk full?");
}

std::string failure_reason(const fs::path& log, const std::string& end) {
  const auto lines = last_words(log);
  // A program's last word, before its end: "train: error: ..".
  constexpr std::string_view error = ": error: ";
  const size_t at = lines.empty() || lines.back().starts_with(note_mark) ? std::string::npos : lines.back().find(error);
  return at == std::string::npos ? end : lines.back().substr(at + error.size());
}

void note_failure(const fs::path& log, const std::string& reason) {
  note_in_log(log, failure_mark + reason);
}

std::optional<std::string> read_failure(const fs::path& log) {
  std::vector<std::string> lines;
  // A reason may be all of a program's last words.
  read_kept([&] { lines = lines_of(tail(log, 2 * last_words_bytes)); });
  if (lines.empty() || !lines.back().starts_with(note_mark)) return std::nullopt;
  const size_t at = lines.back().find(failure_mark);
  if (at == std::string::npos) return std::nullopt;
  return lines.back().substr(at + std::string_view(failure_mark).size());
}

SweepReport make_report(const Plan& plan, const std::vector<SweepRun>& results) {
  SweepReport report{.title = plan.grid.title,
                     .description = plan.grid.description,
                     .base_config = plan.grid.base.string(),
                     .rows = {},
                     .base_row = plan.grid.base_row};
  for (const auto& row : plan.grid.rows) {
    report.rows.push_back(
        {.name = row.name, .group = row.group, .changes = row.changes, .paper = row.paper, .runs = {}});
  }
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    auto& row = report.rows[plan.runs[i].row];
    row.runs.push_back(results.at(i));
    const auto& values = plan.runs[i].configuration.values;
    if (results[i].state == SweepRun::State::finished) {
      const auto unknown = [&](const std::runtime_error& error) {
        row.vocabulary = error.what();  // as nobody else's
        if (row.runs.back().reason.empty()) row.runs.back().reason = error.what();
      };
      try {
        row.vocabulary = written_vocabulary(plan.runs[i].folder);
      } catch (const Error& error) {
        unknown(error);
      } catch (const Failure& failure) {
        unknown(failure);
      }
    }
    row.validation = listed(values, {"data.validation_source", "data.validation_target"});
    if (results[i].averaged_checkpoints > 0) row.averaged_checkpoints.insert(results[i].averaged_checkpoints);
  }
  return report;
}

std::string results_json(const Plan& plan, const std::vector<SweepRun>& results) {
  using nlohmann::ordered_json;
  const auto put = [](ordered_json& object, const char* name, const std::optional<double>& value) {
    if (value && std::isfinite(*value)) object[name] = *value;
  };
  ordered_json rows = ordered_json::array();
  for (const auto& row : plan.grid.rows) {
    ordered_json object{{"name", row.name}, {"group", row.group}, {"changes", row.changes}};
    if (row.paper) {
      auto& paper = object["paper"] = ordered_json::object();
      put(paper, "perplexity", row.paper->perplexity);
      put(paper, "bleu", row.paper->bleu);
      put(paper, "parameters_millions", row.paper->parameters_millions);
    }
    object["runs"] = ordered_json::array();
    rows.push_back(std::move(object));
  }
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    const auto& result = results.at(i);
    ordered_json object{{"seed", result.seed}, {"state", name_of(result.state)}};
    if (!result.reason.empty()) object["reason"] = result.reason;
    object["folder"] = plan.runs[i].folder.string();
    put(object, "perplexity", result.perplexity);
    put(object, "bleu", result.bleu);
    if (!result.bleu_signature.empty()) object["bleu_signature"] = result.bleu_signature;
    if (result.parameters > 0) object["parameters"] = result.parameters;
    if (result.state == SweepRun::State::finished) {
      put(object, "seconds", result.seconds);
      put(object, "flops", result.flops);
      if (result.steps > 0) object["steps"] = result.steps;
      if (!result.ended_by.empty()) object["ended_by"] = result.ended_by;
      if (result.averaged_checkpoints > 0) object["averaged_checkpoints"] = result.averaged_checkpoints;
    }
    auto& curve = object["curve"] = ordered_json::array();
    for (const auto& point : result.curve) {
      ordered_json entry{{"step", point.step}, {"target_tokens", point.target_tokens}};
      put(entry, "perplexity", point.perplexity);
      put(entry, "bleu", point.bleu);
      curve.push_back(std::move(entry));
    }
    rows[plan.runs[i].row]["runs"].push_back(std::move(object));
  }
  ordered_json root{{"format", results_format},
                    {"title", plan.grid.title},
                    {"base", plan.grid.base.string()},
                    {"base_row", plan.grid.base_row},
                    {"rows", std::move(rows)}};
  // A log may hold anything, and a reason comes from one.
  return root.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

SweepFiles::SweepFiles(fs::path folder) : folder_(std::move(folder)) {
  load();
}

void SweepFiles::load() {
  const auto file = folder_ / sweep_record_name;
  if (something_at(file)) {
    const auto record = parsed(read_file(file));
    const bool known = record.is_object() && member<std::string>(record, "kind", "") == record_kind &&
                       record.contains("files") && record["files"].is_array();
    if (!known) {
      throw Error(file.string(), "is not a sweep's record, or is damaged", "move it away, or choose another --output");
    }
    for (const auto& name : record["files"]) {
      if (name.is_string()) files_.insert(name.get<std::string>());
    }
    const auto read = [&](const char* member, std::map<std::string, std::string>& checksums) {
      const auto there = record.value(member, json::object());
      for (const auto& [name, checksum] : there.items()) {
        if (checksum.is_string()) checksums[name] = checksum.get<std::string>();
      }
    };
    read("vocabularies", vocabularies_);
    read("inputs", inputs_);
  } else if (something_at(folder_ / "results.json")) {
    const auto results = parsed(read_file(folder_ / "results.json"));
    all_ = results.is_object() && member<int64_t>(results, "format", 0) == results_format &&
           results.contains("base_row") && results.contains("rows") && results["rows"].is_array();
  }
}

bool SweepFiles::owns(const std::string& name) const {
  return all_ || files_.contains(name);
}

void SweepFiles::claim(const std::vector<std::string>& names) {
  for (const auto& name : names) {
    if (!owns(name) && something_at(folder_ / name)) {
      throw Error((folder_ / name).string(), "is in the way: the sweep writes there, and it is not the sweep's",
                  "move it away, or choose another --output");
    }
  }
  const bool known = std::all_of(names.begin(), names.end(), [&](const auto& name) { return files_.contains(name); });
  if (known) return;
  const SweepLock lock(folder_ / record_lock);
  load();  // what other processes have recorded since
  files_.insert(names.begin(), names.end());
  save();
}

void SweepFiles::check_inputs(const std::map<std::string, std::string>& checksums) const {
  for (const auto& [name, checksum] : checksums) {
    const auto read = inputs_.find(name);
    if (read == inputs_.end() || read->second == checksum) continue;
    if (!any_run_begun(folder_)) return;
    throw Error(name, fmt::format("is another file than the one that runs in {} have read", folder_.string()),
                "put that one back, or choose another --output: a table compares runs on the same text");
  }
}

void SweepFiles::claim_inputs(const std::map<std::string, std::string>& checksums) {
  const SweepLock lock(folder_ / record_lock);
  load();
  check_inputs(checksums);
  const auto before = inputs_;
  for (const auto& [name, checksum] : checksums) inputs_[name] = checksum;
  if (inputs_ != before) save();
}

void SweepFiles::give_vocabulary(const std::string& name, const std::string& bytes) {
  Checksum checksum;
  checksum.add(bytes);
  {
    const SweepLock lock(folder_ / record_lock);
    load();
    vocabularies_[name] = checksum.text();
    save();
  }
  write_atomically(folder_ / name, bytes);
}

void SweepFiles::take_back_vocabulary(const std::string& name) const {
  const auto given = vocabularies_.find(name);
  if (given == vocabularies_.end()) return;
  const auto file = folder_ / name;
  std::error_code error;
  if (!fs::is_regular_file(fs::symlink_status(file, error)) || file_checksum(file) != given->second) return;
  fs::remove(file, error);
  if (error) throw Failure(file.string(), "cannot be deleted: " + error.message());
}

void SweepFiles::save() const {
  const nlohmann::ordered_json content{
      {"kind", record_kind}, {"files", files_}, {"vocabularies", vocabularies_}, {"inputs", inputs_}};
  write_atomically(folder_ / sweep_record_name, content.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
}

void claim_files(const Plan& plan, const std::vector<size_t>& chosen) {
  const auto& output = plan.grid.output;
  const auto log = [&](const PlannedRun& run) { return run.log.lexically_relative(output).string(); };
  SweepFiles files(output);
  std::vector<std::string> names(sweep_report_names.begin(), sweep_report_names.end());
  std::vector<std::string> others(job_array_names.begin(), job_array_names.end());
  for (const size_t run : chosen) names.push_back(log(plan.runs[run]));
  for (const auto& run : plan.runs) others.push_back(log(run));
  // The first record of a sweep from before there was one holds what else it has made.
  std::copy_if(others.begin(), others.end(), std::back_inserter(names),
               [&](const auto& name) { return files.owns(name) && something_at(output / name); });
  files.claim(names);
}

std::map<std::string, std::string> input_checksums(const Plan& plan, const std::vector<size_t>& chosen) {
  std::map<std::string, std::string> checksums;
  for (const size_t run : chosen) {
    for (const auto& file : plan.runs[run].configuration.inputs) {
      if (!checksums.contains(file) && is_file(file)) checksums[file] = file_checksum(file);
    }
  }
  return checksums;
}

void claim_job_array(const Plan& plan) {
  SweepFiles(plan.grid.output).claim({job_array_names.begin(), job_array_names.end()});
}

void write_report(const Plan& plan, const std::vector<SweepRun>& results) {
  const auto report = make_report(plan, results);
  write_atomically(plan.grid.output / "results.json", results_json(plan, results));
  write_atomically(plan.grid.output / "report.md", sweep_markdown(report));
  write_atomically(plan.grid.output / "report.html", sweep_html(report));
}

namespace {

void read_and_report(const Plan& plan, const ReadConfiguration& read) {
  std::vector<SweepRun> results;
  for (const auto& run : plan.runs) {
    results.push_back(read_result(run, read));
    if (results.back().state == SweepRun::State::finished || !is_being_trained(run)) continue;
    results.back().state = SweepRun::State::running;
    results.back().reason.clear();
  }
  write_report(plan, results);
}

}  // namespace

void renew_report(const Plan& plan, const ReadConfiguration& read) {
  const SweepLock lock(plan.grid.output / report_lock);
  read_and_report(plan, read);
}

bool renew_report_after_run(const Plan& plan, const ReadConfiguration& read) {
  std::optional<FileLock> next(std::in_place, plan.grid.output / next_report_lock, FileLock::Wait::no);
  if (next->error_number() == EWOULDBLOCK) return false;
  const SweepLock lock(plan.grid.output / report_lock);
  next.reset();  // before anything is read: who ends from now on is not among it, and waits
  read_and_report(plan, read);
  return true;
}

}  // namespace transformer
