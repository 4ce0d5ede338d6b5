#include "transformer/base/new_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <initializer_list>
#include <map>
#include <mutex>
#include <string_view>
#include <system_error>

#include "transformer/base/atomic_file.h"
#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/number.h"

namespace transformer {

namespace fs = std::filesystem;

namespace {

/// The folders that this process is writing, each with those that were made for it to lie in, the innermost first.
struct Unfinished {
  std::mutex mutex;
  std::map<fs::path, std::vector<fs::path>> folders;
};

Unfinished& unfinished() {
  static auto& folders = *new Unfinished;  // a signal may come while the process ends
  return folders;
}

/// The process that wrote a folder of that name, which is `prefix`, its number and a count; 0: it is none.
pid_t writer_of(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return 0;
  name.remove_prefix(prefix.size());
  const size_t dash = name.find('-');
  if (dash == std::string_view::npos) return 0;
  const auto process = number_in<pid_t>(name.substr(0, dash));
  const auto count = number_in<int>(name.substr(dash + 1));
  return process && *process > 0 && count && *count >= 0 ? *process : 0;
}

/// Deletes folders of such names in `parent` that killed processes left. Neither sign is enough alone: on a disk of
/// several machines the process may be another's, and not every file system has locks of folders. Called with the
/// mutex.
void remove_left(const fs::path& parent, const std::string& prefix) {
  std::error_code error, ignored;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end; entry.increment(error)) {
    const auto name = entry->path().filename();
    const pid_t process = writer_of(name.string(), prefix);
    if (process == 0) continue;
    if (process == ::getpid()) {  // in a container, all that wrote before had this number, too
      const auto& own = unfinished().folders;
      if (std::any_of(own.begin(), own.end(), [&](const auto& folder) { return folder.first.filename() == name; }))
        continue;
    } else if (::kill(process, 0) == 0 || errno != ESRCH) {
      continue;
    }
    if (!fs::is_directory(entry->symlink_status(ignored))) continue;
    const FileLock lock(entry->path(), FileLock::Wait::no);
    if (lock.keeps_others_out()) fs::remove_all(entry->path(), ignored);
  }
}

/// The two change names, at once; false where the file system cannot do it.
bool exchange(const fs::path& one, const fs::path& other) {
  return ::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0;
}

/// As fs::create_directories; those that were made, the innermost first.
std::vector<fs::path> make_folders(const fs::path& path, std::error_code& error) {
  std::vector<fs::path> missing, made;
  std::error_code ignored;
  for (auto each = path; fs::symlink_status(each, ignored).type() == fs::file_type::not_found && each.has_filename();
       each = each.parent_path()) {
    missing.push_back(each);
  }
  for (auto each = missing.rbegin(); each != missing.rend() && !error; ++each) {
    if (fs::create_directory(*each, error)) made.insert(made.begin(), *each);
  }
  if (!error) fs::create_directories(path, error);
  return made;
}

/// Those that hold anything by now stay.
void remove_empty(const std::vector<fs::path>& folders) {
  for (const auto& folder : folders) ::rmdir(folder.c_str());
}

[[noreturn]] void end_by(int signal) {
  // Never given back: nothing is begun or finished any more.
  unfinished().mutex.lock();
  for (const auto& [folder, parents] : unfinished().folders) {
    // Under another name of such a folder, where no other thread goes on writing to it.
    const auto ended = folder.string() + "0";
    std::error_code error, ignored;
    fs::rename(folder, ended, error);
    fs::remove_all(error ? folder : fs::path(ended), ignored);
    remove_empty(parents);
  }
  std::signal(signal, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);
}

}  // namespace

NewFolder::NewFolder(const fs::path& given) : final_(followed_links(given)) {
  const auto& path = final_;
  std::error_code error;
  const std::lock_guard guard(unfinished().mutex);
  const auto parents = make_folders(folder_of(path), error);
  if (!error) remove_left(folder_of(path), hidden_name() + ".partial-");
  // What a process of the same number left is not this one's to write into; in a container, all have the same.
  for (int number = 0; !error; ++number) {
    partial_ = beside("partial", number);
    if (::mkdir(partial_.c_str(), 0777) == 0) {
      unfinished().folders.emplace(partial_, parents);
      lock_.emplace(partial_, FileLock::Wait::no);
      return;
    }
    if (errno != EEXIST) error.assign(errno, std::generic_category());
  }
  remove_empty(parents);
  throw_refused(path, "cannot create the folder", error);
}

NewFolder::~NewFolder() {
  if (committed_) return;
  const std::lock_guard guard(unfinished().mutex);
  const auto entry = unfinished().folders.extract(partial_);
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
  remove_empty(entry.mapped());
}

void NewFolder::commit(bool replaces) {
  const std::lock_guard guard(unfinished().mutex);
  std::error_code error, ignored;
  const bool is_there = replaces && something_at(final_);
  // What is replaced has the name of an unfinished one then, which goes even where this process is killed.
  if (!is_there || !exchange(partial_, final_)) {
    const auto replaced = is_there ? free_for_replaced() : fs::path();
    if (is_there) fs::rename(final_, replaced, error);
    if (!error) {
      fs::rename(partial_, final_, error);
      if (is_there) fs::rename(replaced, error ? final_ : partial_, ignored);
    }
  }
  // No other folder than an empty one is renamed over.
  const auto taken = {std::errc::directory_not_empty, std::errc::file_exists, std::errc::not_a_directory};
  if (!replaces && std::any_of(taken.begin(), taken.end(), [&](std::errc code) { return error == code; })) {
    throw Error(final_.string(), "was made by somebody else meanwhile", "choose another folder");
  }
  if (error) throw Failure(final_.string(), "cannot be given its name: " + error.message());
  // From here on the name that it had may be another's.
  unfinished().folders.erase(partial_);
  committed_ = true;
  // What was replaced goes in any case: the new folder has its name, if perhaps not after a power cut.
  if (is_there) fs::remove_all(partial_, ignored);
  sync_folder(folder_of(final_));
}

DeletesUnfinishedFolders::DeletesUnfinishedFolders()
    : signals_({SIGINT, SIGTERM, SIGHUP}), watch_([this](const std::stop_token& stop) {
        constexpr int milliseconds = 20;
        while (!stop.stop_requested()) {
          const int signal = signals_.next(milliseconds);
          if (signal != 0) end_by(signal);
        }
      }) {}

DeletesUnfinishedFolders::~DeletesUnfinishedFolders() {
  // Before signals come again.
  watch_.request_stop();
  watch_.join();
}

/// What the names begin with under which it lies meanwhile.
std::string NewFolder::hidden_name() const {
  return fmt::format(".{}", name_beside(final_, std::string_view("..replaced-2147483647-2147483647").size()));
}

fs::path NewFolder::beside(const char* kind, int number) const {
  return final_.parent_path() / fmt::format("{}.{}-{}-{}", hidden_name(), kind, ::getpid(), number);
}

/// Where names cannot be exchanged and a process was killed within commit(), this one may be that of the only copy of
/// somebody's folder: it stays.
fs::path NewFolder::free_for_replaced() const {
  int number = 0;
  while (something_at(beside("replaced", number))) ++number;
  return beside("replaced", number);
}

fs::path folder_path(const fs::path& given) {
  const auto normal = [](const fs::path& path) {
    const auto whole = path.lexically_normal();
    return whole.has_filename() ? whole : whole.parent_path();
  };
  const auto path = normal(given);
  // Beside these no other name can lie; of the rest messages speak as they were given.
  return path.empty() || path == "." || path.filename() == ".." ? normal(fs::absolute(path)) : path;
}

std::vector<std::string> folder_names(const std::vector<std::string>& given) {
  std::vector<std::string> names;
  for (const auto& folder : given) names.push_back(folder_path(folder).filename().string());
  auto sorted = names;
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end() ? names : given;
}

void check_replaceable(const fs::path& folder, const fs::path& read, bool force, const OwnFolders& own) {
  std::error_code ignored;
  if (!something_at(folder)) return;
  if (fs::equivalent(folder, read, ignored)) {
    throw Error(folder.string(), "is the folder that is read, so it is not replaced", "name another folder");
  }
  if (!force) throw Error(folder.string(), "exists already", "name another folder, or replace it with --force");
  if (!fs::is_directory(folder, ignored) || !own.is_one(folder)) {
    throw Error(folder.string(), fmt::format("is no {} that this program has written, so it is not replaced", own.kind),
                "name another folder, or delete it by hand where nobody needs it");
  }
  for (const auto& entry : entries_of(folder)) {
    if (!own.known.contains(entry.filename().string()) || !fs::is_regular_file(entry, ignored)) {
      throw Error(entry.string(), fmt::format("does not belong to the {}, so the folder is not replaced", own.kind),
                  "move it away, or name another folder");
    }
  }
}

}  // namespace transformer
