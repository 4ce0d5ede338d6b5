#include "transformer/sweep/runner.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>

#include "transformer/base/clock_text.h"
#include "transformer/base/error.h"
#include "transformer/base/file_lock.h"
#include "transformer/base/folder.h"
#include "transformer/base/model_files.h"
#include "transformer/base/read_file.h"
#include "transformer/base/threads.h"

namespace transformer {

namespace fs = std::filesystem;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<std::string> vocabulary_names_of(const std::map<std::string, std::string>& values) {
  const auto joint = values.find("vocabulary.joint");
  return transformer::vocabulary_names_of(joint == values.end() || joint->second != "false");
}

// What a learned vocabulary depends on; empty where it is not learned.
std::string vocabulary_key(const std::map<std::string, std::string>& values) {
  std::string key;
  for (const auto& [name, value] : values) {
    if (name == "training.init_from" && !value.empty()) return "";
    if (name == "data.vocabulary" && value != "[]") return "";
    if (name == "data.train_source" || name == "data.train_target" || name == "data.train_tags" ||
        name.starts_with("vocabulary.") || (name.starts_with("model.") && name.ends_with("vocabulary_size"))) {
      key += fmt::format("{}={}\n", name, value);
    }
  }
  return key;
}

// The vocabularies that a run of the plan has learned with `key`, by name; none where no run has.
std::map<std::string, std::string> learned_vocabularies(const Plan& plan, const std::vector<std::string>& names,
                                                        const std::string& key, const ReadConfiguration& read) {
  for (const auto& run : plan.runs) {
    const auto there = [&](const std::string& name) { return something_at(run.folder / name); };
    try {
      if (!there(config_name) || !std::all_of(names.begin(), names.end(), there)) continue;
      // What it was learned with, which need not be what the grid says by now.
      if (vocabulary_key(read.checked(run.folder / config_name, {}).values) != key) continue;
      std::map<std::string, std::string> learned;
      for (const auto& name : names) learned[name] = read_file(run.folder / name);
      return learned;
    } catch (const std::runtime_error&) {  // Error or Failure: another run's will do, or train learns one
    }
  }
  return {};
}

// A hold on the run's log, for whoever trains it; null where another process has one.
std::shared_ptr<FileLock> hold(const PlannedRun& run) {
  constexpr int most_tries = 4;  // who only looks (is_being_trained) lets go at once
  for (int tries = 1;; ++tries) {
    auto lock = std::make_shared<FileLock>(run.log, FileLock::Wait::no);
    if (lock->error_number() != EWOULDBLOCK) return lock;  // one that cannot be written to shows when it is
    if (tries == most_tries) return nullptr;
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
}

// A process that trains.
struct Active {
  size_t run;   // index into the plan's
  size_t slot;  // index into the devices
  pid_t process;
  double started;
  int64_t first_step;  // where it goes on from
  RunProgress progress;
  std::shared_ptr<FileLock> held;
};

class Runner {
 public:
  Runner(const Plan& plan, const std::vector<size_t>& chosen, std::vector<SweepRun>& results,
         const RunnerOptions& options, const BlockedSignals& signals, const ReadConfiguration& read,
         const std::function<void()>& changed)
      : plan_(plan),
        chosen_(chosen),
        results_(results),
        options_(options),
        signals_(signals),
        read_(read),
        changed_(changed) {
    for (const size_t run : chosen_) {
      auto& result = results_.at(run);
      if (result.state == SweepRun::State::finished) continue;
      result.state = SweepRun::State::waiting;  // what failed before is tried again
      waiting_.push_back(run);
    }
    at_once_ = std::max<size_t>(1, std::min(options_.devices.size(), waiting_.size()));
    for (size_t slot = 0; slot < options_.devices.size(); ++slot) free_slots_.push_back(slot);
    std::reverse(free_slots_.begin(), free_slots_.end());
  }

  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  RunnerEnd run() {
    try {
      train_all();
    } catch (...) {
      end_active();
      throw;
    }
    options_.log.progress({});
    end_.finished = count(SweepRun::State::finished);
    end_.failed = count(SweepRun::State::failed);
    return end_;
  }

 private:
  void train_all() {
    if (const auto done = count(SweepRun::State::finished); done > 0) {
      options_.log.info(fmt::format("{} of {} runs are finished already", done, chosen_.size()));
    }
    double reported = now();
    while (!active_.empty() || (!waiting_.empty() && end_.signal == 0)) {
      while (end_.signal == 0 && !waiting_.empty() && !free_slots_.empty()) start();
      pass_on(signals_.next(200));
      for (auto active = active_.begin(); active != active_.end();) {
        int status = 0;
        if (waitpid(active->process, &status, WNOHANG) != active->process) {
          ++active;
          continue;
        }
        const auto ended = *active;
        active = active_.erase(active);
        free_slots_.push_back(ended.slot);
        finish(ended, status);
      }
      if (untold_) tell_of_change();
      const bool live = options_.log.shows_progress();
      if (now() - reported >= (live ? 1 : options_.progress_seconds) && !active_.empty()) {
        reported = now();
        look_at_progress();
        live ? show_progress() : report_progress();
      }
    }
  }

  // Where that takes long, as the report of thousands of runs does, it waits for others, so as to take no more than a
  // part of the time.
  void tell_of_change() {
    constexpr double quick_seconds = 0.5, share = 0.05;
    const double begun = now();
    untold_ = begun < quiet_until_;
    if (untold_) return;
    changed_();
    const double ended = now();
    if (ended - begun > quick_seconds) quiet_until_ = ended + (ended - begun) / share;
  }

  // All processes end with a checkpoint, or are killed where that takes too long.
  void end_active() {
    if (end_.signal == 0) signal_processes(processes(), SIGTERM);  // a second signal would end them at once
    if (!active_.empty()) {
      options_.log.error(
          fmt::format("the sweep cannot go on; stopping once checkpoints are written ({} running)", active_.size()));
    }
    for (double begun = now(); !active_.empty() && now() - begun <= options_.kill_seconds;) {
      const int signal = signals_.next(50);
      if (signal != 0 && signal != SIGCHLD) begun += signal_all(signal);
      active_.remove_if([](const Active& active) { return waitpid(active.process, nullptr, WNOHANG) != 0; });
    }
    for (const auto& active : active_) {
      kill(active.process, SIGKILL);
      waitpid(active.process, nullptr, 0);
    }
  }

  /// Gives how many seconds all were halted, which are nobody's.
  double signal_all(int signal) const {
    const double begun = now();
    signal_processes(processes(), signal);
    return signal == SIGTSTP ? now() - begun : 0;
  }

  std::vector<pid_t> processes() const {
    std::vector<pid_t> ids;
    for (const auto& active : active_) ids.push_back(active.process);
    return ids;
  }

  int64_t count(SweepRun::State state) const {
    return std::count_if(chosen_.begin(), chosen_.end(), [&](size_t run) { return results_[run].state == state; });
  }

  std::string place() const {
    const auto failed = count(SweepRun::State::failed);
    return fmt::format("{}/{}{}", count(SweepRun::State::finished), chosen_.size(),
                       failed > 0 ? fmt::format(" ({} failed)", failed) : "");
  }

  void start() {
    const size_t index = waiting_.front();
    waiting_.pop_front();
    try {
      start(index);
    } catch (const std::runtime_error& failure) {  // Error or Failure: the other runs go on
      pass_on(signals_.next(0));
      if (end_.signal == 0) fail(index, failure.what());  // a lock's wait ends where a signal comes
    }
    tell_of_change();
  }

  void start(size_t index) {
    const auto& run = plan_.runs[index];
    std::error_code error;
    fs::create_directories(run.folder, error);
    if (error) throw_refused(run.folder, "cannot be made", error);
    auto held = hold(run);
    if (!held) {
      results_[index].state = SweepRun::State::running;
      results_[index].reason.clear();
      options_.log.info(fmt::format("[{}] {} is being trained by another process, and left to it", place(), run.name));
      return;
    }
    check_base(run);
    SweepFiles(plan_.grid.output).claim_inputs(input_checksums(plan_, {index}));
    share_vocabulary(plan_, run, read_);
    pass_on(signals_.next(0));  // others' locks may have taken their time
    if (end_.signal != 0) return;
    const size_t slot = free_slots_.back();
    const auto* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    ProcessOptions process{.command = train_command(plan_, run, options_.train),
                           .environment = device_environment(options_.devices[slot], visible ? visible : ""),
                           .log = run.log,
                           .signals = signals_.before()};
    process.environment.merge(environment_of_shares(static_cast<int>(at_once_)));
    note_in_log(run.log, fmt::format("starts: {}", fmt::join(process.command, " ")));
    const auto before = read_progress(run.folder).value_or(RunProgress{});
    active_.push_back({.run = index,
                       .slot = slot,
                       .process = start_process(process),
                       .started = now(),
                       .first_step = before.step,
                       .progress = {.step = before.step, .tokens_per_second = 0},
                       .held = std::move(held)});
    free_slots_.pop_back();
    results_[index].state = SweepRun::State::running;
    results_[index].reason.clear();
    options_.log.info(fmt::format("[{}] {} starts{}; its log is {}", place(), run.name,
                                  options_.devices[slot] == "cpu" ? "" : " on " + options_.devices[slot],
                                  run.log.string()));
  }

  // Throws Error where the base is another by now: what was checked is what runs.
  void check_base(const PlannedRun& run) const {
    std::vector<SettingOverride> overrides;
    for (const auto& setting : run.overrides) overrides.push_back(parse_override(setting));
    if (read_.checked(plan_.grid.base, {overrides}).values == run.configuration.values) return;
    throw Error(plan_.grid.base.string(), "has changed since the sweep began",
                "put it back as it was, or start the sweep again");
  }

  void fail(size_t index, const std::string& reason) {
    const auto& run = plan_.runs[index];
    auto& result = results_[index];
    result.state = SweepRun::State::failed;
    result.reason = reason;
    try {
      note_failure(run.log, reason);
    } catch (const Failure&) {  // the report tells of it
    }
    options_.log.error(fmt::format("[{}] {} FAILED: {} (log: {})", place(), run.name, reason, run.log.string()));
  }

  void interrupt(size_t index) {
    const auto& run = plan_.runs[index];
    auto& result = results_[index];
    try {
      note_in_log(run.log, "interrupted");
      result = read_result(run, read_);
      options_.log.info(
          fmt::format("[{}] {} stopped{}", place(), run.name, result.reason.empty() ? "" : " " + result.reason));
    } catch (const std::runtime_error& failure) {  // Error or Failure
      fail(index, failure.what());
    }
  }

  void finish(const Active& active, int status) {
    const auto& run = plan_.runs[active.run];
    auto& result = results_[active.run];
    const bool asked = end_.signal != 0 && (WIFSIGNALED(status) || WEXITSTATUS(status) >= 128);
    if (asked) {
      interrupt(active.run);
      return;
    }
    std::string end = "train " + process_end(status);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
      try {
        note_in_log(run.log, "finished");
        result = read_result(run, read_);
        if (result.state != SweepRun::State::finished) end = unfinished_reason(run, read_);
      } catch (const std::runtime_error& failure) {  // Error or Failure
        end = failure.what();
      }
    }
    if (result.state == SweepRun::State::finished) {
      const auto figure = [](const char* name, const std::optional<double>& value) {
        return value ? fmt::format(", {} {:.2f}", name, *value) : "";
      };
      work_done_ += work_since(active, 1);
      busy_seconds_ += now() - active.started;
      options_.log.info(fmt::format("[{}] {} is finished{}{} ({})", place(), run.name,
                                    figure("perplexity", result.perplexity), figure("BLEU", result.bleu),
                                    clock_text(now() - active.started)));
    } else {
      fail(active.run, failure_reason(run.log, end));
    }
    tell_of_change();
  }

  void pass_on(int signal) {
    if (signal == 0 || signal == SIGCHLD) {
      if (second_signal_ > 0 && now() - second_signal_ > options_.kill_seconds) {
        signal_processes(processes(), SIGKILL);
      }
      return;
    }
    const double halted = signal_all(signal);  // before a word of it: whoever reads the log may keep it waiting
    if (second_signal_ > 0) second_signal_ += halted;
    if (signal == SIGTSTP) return;
    if (wishes_.again(signal) && second_signal_ == 0) second_signal_ = now();
    if (end_.signal == 0 && !active_.empty()) {
      options_.log.info(fmt::format(
          "stopping once checkpoints are written ({} running); once more, after more than {} s, to stop at once",
          active_.size(), SignalWishes::seconds_together(signal)));
    }
    end_.signal = signal;
  }

  // The part of a run's work that this process did, when it is at `part` of the run.
  double work_since(const Active& active, double part) const {
    const auto& run = plan_.runs[active.run];
    const double before = static_cast<double>(active.first_step) / std::max<int64_t>(1, run.steps());
    return run.configuration.work * std::max(0.0, part - before);
  }

  double part_of(const Active& active) const {
    const auto steps = std::max<int64_t>(1, plan_.runs[active.run].steps());
    return std::min(1.0, static_cast<double>(active.progress.step) / static_cast<double>(steps));
  }

  // Until all are done, from the work done so far; nothing before any was.
  std::optional<double> seconds_left() const {
    double done = work_done_, busy = busy_seconds_, left = 0, longest = 0;
    for (const auto& active : active_) {
      const double work = work_since(active, part_of(active)), seconds = now() - active.started;
      const double remaining = plan_.runs[active.run].configuration.work * (1 - part_of(active));
      left += remaining;
      if (work <= 0) continue;
      done += work;
      busy += seconds;
      longest = std::max(longest, remaining * seconds / work);
    }
    for (const size_t run : waiting_) left += plan_.runs[run].configuration.work;
    if (done <= 0 || busy <= 0) return std::nullopt;
    const auto at_once = std::min(at_once_, active_.size() + waiting_.size());
    return std::max(longest, left * busy / done / static_cast<double>(std::max<size_t>(1, at_once)));
  }

  void look_at_progress() {
    for (auto& active : active_) {
      if (const auto progress = read_progress(plan_.runs[active.run].folder)) active.progress = *progress;
    }
  }

  void show_progress() const {
    double all = 0, done = 0, speed = 0;
    for (const size_t run : chosen_) {
      const double work = plan_.runs[run].configuration.work;
      all += work;
      if (results_[run].state == SweepRun::State::finished) done += work;
    }
    for (const auto& active : active_) {
      done += plan_.runs[active.run].configuration.work * part_of(active);
      speed += active.progress.tokens_per_second;
    }
    const auto failed = count(SweepRun::State::failed);
    options_.log.progress({.what = "sweep",
                           .done = count(SweepRun::State::finished),
                           .total = static_cast<int64_t>(chosen_.size()),
                           .unit = "runs",
                           .share = all > 0 ? std::optional(done / all) : std::nullopt,
                           .seconds_left = seconds_left(),
                           .detail = fmt::format("{} running{}, {:.0f} tokens/s", active_.size(),
                                                 failed > 0 ? fmt::format(", {} failed", failed) : "", speed)});
  }

  void report_progress() const {
    std::string rows;
    for (const auto& active : active_) {
      const auto& run = plan_.runs[active.run];
      rows += fmt::format(" | {} step {}/{}", run.name, active.progress.step, run.steps());
      if (active.progress.tokens_per_second > 0) {
        rows += fmt::format(", {:.0f} tokens/s", active.progress.tokens_per_second);
      }
    }
    const auto left = seconds_left();
    options_.log.info(
        fmt::format("[{}]{} | {}", place(), rows, left ? clock_text(*left) + " left" : "time left not known yet"));
  }

  const Plan& plan_;
  const std::vector<size_t>& chosen_;
  std::vector<SweepRun>& results_;
  const RunnerOptions& options_;
  const BlockedSignals& signals_;
  const ReadConfiguration& read_;
  const std::function<void()>& changed_;
  bool untold_ = false;     // changes since it was called
  double quiet_until_ = 0;  // when it may be called again

  std::list<size_t> waiting_;
  std::list<Active> active_;
  std::vector<size_t> free_slots_;
  size_t at_once_ = 1;  // runs, at most
  RunnerEnd end_;
  SignalWishes wishes_;
  double second_signal_ = 0;
  double work_done_ = 0, busy_seconds_ = 0;  // by the processes that ended
};

}  // namespace

RunnerEnd run_all(const Plan& plan, const std::vector<size_t>& chosen, std::vector<SweepRun>& results,
                  const RunnerOptions& options, const BlockedSignals& signals, const ReadConfiguration& read,
                  const std::function<void()>& changed) {
  return Runner(plan, chosen, results, options, signals, read, changed).run();
}

std::string as_operand(const fs::path& file) {
  return file.string().starts_with("-") ? (fs::path(".") / file).string() : file.string();
}

std::vector<std::string> train_command(const Plan& plan, const PlannedRun& run, const std::string& train) {
  std::vector<std::string> command = {train, as_operand(plan.grid.base)};
  for (const auto& setting : run.overrides) {
    command.emplace_back("--set");
    command.push_back(setting);
  }
  return command;
}

void share_vocabulary(const Plan& plan, const PlannedRun& run, const ReadConfiguration& read) {
  const auto names = vocabulary_names_of(run.configuration.values);
  const auto key = vocabulary_key(run.configuration.values);
  if (key.empty()) return;
  SweepFiles files(plan.grid.output);
  const auto recorded = [&](const std::string& name) {
    return (run.folder / name).lexically_relative(plan.grid.output).string();
  };
  // Without settings beside it, nobody knows what a vocabulary that was given was learned from.
  if (!something_at(run.folder / config_name)) {
    for (const auto& name : names) files.take_back_vocabulary(recorded(name));
  }
  const auto there = [&](const std::string& name) { return something_at(run.folder / name); };
  if (std::any_of(names.begin(), names.end(), there)) return;
  for (const auto& [name, bytes] : learned_vocabularies(plan, names, key, read)) {
    files.give_vocabulary(recorded(name), bytes);
  }
}

std::map<std::string, std::string> device_environment(const std::string& device, const std::string& visible) {
  if (!device.starts_with("cuda:")) return {};
  auto index = std::strtoul(device.c_str() + 5, nullptr, 10);
  if (visible.empty()) return {{"CUDA_VISIBLE_DEVICES", std::to_string(index)}};
  std::vector<std::string> shown;
  for (size_t begin = 0; begin <= visible.size();) {
    const size_t end = std::min(visible.find(',', begin), visible.size());
    shown.push_back(visible.substr(begin, end - begin));
    begin = end + 1;
  }
  if (index >= shown.size()) {
    throw Error(fmt::format("device '{}'", device), fmt::format("CUDA_VISIBLE_DEVICES shows {} GPUs", shown.size()));
  }
  return {{"CUDA_VISIBLE_DEVICES", shown[index]}};
}

}  // namespace transformer
