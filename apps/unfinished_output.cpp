#include "apps/unfinished_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "apps/line_input.h"
#include "transformer/base/checksum.h"
#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/json_number.h"
#include "transformer/base/unreadable.h"

namespace transformer {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view magic = "unfinished output of a program of transformer, format 1\n";

// Of lines that are told of, so many are named.
constexpr size_t named_lines = 5;

UnfinishedOutput::ToldLines told_lines(const Json& entry) {
  UnfinishedOutput::ToldLines lines{.count = whole_number_of(entry.at("count"))};
  for (const auto& line : entry.at("first")) {
    lines.first.emplace_back(whole_number_of(line.at(0)), line.at(1).get<std::string>());
  }
  return lines;
}

// A name as JSON has it, where what is not UTF-8 is replaced.
std::string as_written(const fs::path& name) {
  return Json::parse(Json(name.string()).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

/// The first name of which only one of the two has anything, or each something else; empty: none.
std::string first_difference(const std::map<std::string, std::string>& one,
                             const std::map<std::string, std::string>& other) {
  for (const auto& [name, value] : one) {
    const auto found = other.find(name);
    if (found == other.end() || found->second != value) return name;
  }
  const auto lacking =
      std::find_if(other.begin(), other.end(), [&](const auto& each) { return !one.contains(each.first); });
  return lacking == other.end() ? "" : lacking->first;
}

[[noreturn]] void refuse(const fs::path& file) {
  throw Error(file.string(), "is in the way of a file that this program would make, and is not of this work",
              "move it away, or name another output");
}

/// At most `bytes` of what the open `file` holds from `offset` on, fewer where it ends there. Throws as throw_unread.
std::string bytes_of(int descriptor, const fs::path& file, uint64_t offset, uint64_t bytes) {
  std::string text(bytes, '\0');
  uint64_t read = 0;
  while (read < bytes) {
    const ssize_t count = ::pread(descriptor, text.data() + read, std::min(bytes - read, uint64_t{1} << 30),
                                  static_cast<off_t>(offset + read));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_unread(file, "cannot be read", errno);
    if (count == 0) break;
    read += static_cast<uint64_t>(count);
  }
  text.resize(read);
  return text;
}

/// What a process before this one may have left under a name. Only bytes that were read can be other ones.
class LeftFile {
 public:
  /// Throws as throw_unread where a file is there and cannot be opened.
  explicit LeftFile(fs::path file) : file_(std::move(file)) {
    struct stat status = {};
    if (::lstat(file_.c_str(), &status) != 0) {
      if (errno == ENOENT || errno == ENOTDIR) return;
      throw_unread(file_, "cannot be looked at", errno);
    }
    is_there_ = true;
    if (!S_ISREG(status.st_mode)) return;
    descriptor_ = ::open(file_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (descriptor_ < 0) throw_unread(file_, "cannot be opened", errno);
    size_ = static_cast<uint64_t>(status.st_size);
  }
  ~LeftFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  LeftFile(const LeftFile&) = delete;
  LeftFile& operator=(const LeftFile&) = delete;

  bool is_there() const { return is_there_; }
  /// Whether it is a file. A link would lead to one of somebody else's.
  bool is_regular() const { return descriptor_ >= 0; }
  /// 0 where there is none: of a file that nothing was written to yet none is needed.
  uint64_t size() const { return size_; }

  /// Whether the `bytes` from `offset` on are there and have this checksum.
  bool holds(uint64_t offset, uint64_t bytes, const std::string& checksum) const {
    if (bytes > size_ || offset > size_ - bytes) return false;
    const auto text = bytes > 0 ? bytes_of(descriptor_, file_, offset, bytes) : "";
    return text.size() == bytes && checksum_of(text) == checksum;
  }

 private:
  fs::path file_;
  bool is_there_ = false;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

/// What a line of the journal says of an output.
struct Recorded {
  uint64_t bytes;
  std::string checksum;
};

Recorded recorded_output(const std::string& line, size_t index) {
  const auto output = Json::parse(line)["outputs"][index];
  return {static_cast<uint64_t>(whole_number_of(output["bytes"])), output["checksum"].get<std::string>()};
}

}  // namespace

UnfinishedOutput::UnfinishedOutput(const std::vector<std::string>& files,
                                   const std::map<std::string, std::string>& work) {
  for (const auto& file : files) {
    std::error_code ignored;
    if (fs::is_directory(file, ignored)) {
      throw Failure(fmt::format("cannot write {}", file), std::strerror(EISDIR));
    }
    AtomicFile::check_name(file);
    parts_.push_back({.file = file, .partial = partial_of(file), .output = nullptr});
  }
  journal_ = journal_of(files.front());
  std::set<fs::path> names = {place_of(journal_)};
  for (const auto& part : parts_) {
    for (const auto& path : {followed_links(part.file), part.partial}) {
      if (names.insert(place_of(path)).second) continue;
      throw Error(part.file,
                  fmt::format("cannot be written beside the other output: both would write {}", path.string()),
                  "name another file");
    }
  }
  Json header = {{"files", Json::array()}, {"work", work}};
  for (const auto& part : parts_) header["files"].push_back(part.partial.filename().string());
  header_ = fmt::format("{}{}\n", magic, header.dump(-1, ' ', false, Json::error_handler_t::replace));

  lock();
  try {
    read_kept([&] {
      struct stat status = {};
      if (::fstat(descriptor_, &status) != 0) throw_unread(journal_, "cannot be looked at", errno);
      const auto text = bytes_of(descriptor_, journal_, 0, static_cast<uint64_t>(status.st_size));
      // An empty one was just made, here or by a process that came no further.
      if (!text.starts_with(magic) && !magic.starts_with(text)) refuse(journal_);
      read_journal(text, work);
      keep_what_agrees();
    });
  } catch (...) {
    struct stat status = {};
    if (::fstat(descriptor_, &status) == 0 && status.st_size == 0) ::unlink(journal_.c_str());
    ::close(descriptor_);
    throw;
  }
}

/// Beside the file that is written in the end, so that it can be renamed.
fs::path UnfinishedOutput::partial_of(const std::string& file) {
  const auto target = followed_links(file);
  return target.parent_path() / (name_beside(target, std::string_view(".partial.journal").size()) + ".partial");
}

fs::path UnfinishedOutput::journal_of(const std::string& file) {
  auto journal = partial_of(file);
  journal += ".journal";
  return journal;
}

UnfinishedOutput::~UnfinishedOutput() {
  remove_if_empty();
  ::close(descriptor_);
}

void UnfinishedOutput::remove_if_empty() const {
  struct stat status = {};
  const bool opened = parts_.front().output != nullptr;
  if (!committed_ && opened && empty()) {
    for (const auto& part : parts_) ::unlink(part.partial.c_str());
    ::unlink(journal_.c_str());
  } else if (!opened && ::fstat(descriptor_, &status) == 0 && status.st_size == 0) {
    ::unlink(journal_.c_str());
  }
}

bool UnfinishedOutput::empty() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.bytes == 0; });
}

void UnfinishedOutput::fail(int error_number) const {
  throw Failure(fmt::format("cannot write {}", parts_.front().file), std::strerror(error_number));
}

void UnfinishedOutput::lock() {
  while (true) {
    descriptor_ = ::open(journal_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail(errno);
    struct stat here = {}, there = {};
    int unknown = ::fstat(descriptor_, &here) == 0 ? 0 : errno;
    const bool regular = S_ISREG(here.st_mode);
    // File systems without locks have no two processes told apart; all others have.
    const bool busy = ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    // A process that has just finished may have taken the journal away between the two.
    const bool found = ::lstat(journal_.c_str(), &there) == 0;
    if (!found && errno != ENOENT && errno != ENOTDIR) unknown = errno;
    const bool same = found && here.st_ino == there.st_ino && here.st_dev == there.st_dev;
    if (unknown == 0 && regular && !busy && same) return;
    ::close(std::exchange(descriptor_, -1));
    if (unknown != 0) fail(unknown);
    if (!regular) refuse(journal_);
    if (busy) {
      throw Error(parts_.front().file, "another process is writing it", "wait for that one, or name another output");
    }
  }
}

/// What the journal says, as far as it is whole.
void UnfinishedOutput::read_journal(const std::string& text, const std::map<std::string, std::string>& work) {
  std::vector<std::string> ours;
  size_t position = magic.size();
  const auto next = [&](std::string& line) {
    const size_t end = position < text.size() ? text.find('\n', position) : std::string::npos;
    if (end == std::string::npos) return false;
    line = text.substr(position, end - position);
    position = end + 1;
    return true;
  };
  std::string line;
  if (next(line)) {
    const auto header = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    try {
      ours = header.at("files").get<std::vector<std::string>>();
      difference_ = first_difference(work, header.at("work").get<std::map<std::string, std::string>>());
    } catch (const Json::exception&) {
      difference_ = "journal";
    }
  }
  for (const auto& part : parts_) {
    // The journal of a folder that was moved knows it by another name.
    const bool listed = std::any_of(ours.begin(), ours.end(), [&](const std::string& own) {
      return fs::path(own).filename() == as_written(part.partial.filename());
    });
    if (something_at(part.partial) && !listed) refuse(part.partial);
  }
  if (ours.size() != parts_.size() && difference_.empty() && !ours.empty()) difference_ = "number of outputs";
  if (!difference_.empty()) {
    // What was never recorded would be done again in any case.
    if (next(line) && holds_text()) return;
    difference_.clear();
    return;
  }
  while (next(line)) {
    const auto entry = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    try {
      Window window{.lines = whole_number_of(entry.at("lines")), .input = entry.at("input"), .bad = {}};
      // Version 0.1's first builds did not write these.
      if (entry.contains("cut")) window.tally.cut = whole_number_of(entry.at("cut"));
      if (entry.contains("repaired")) window.tally.repaired = whole_number_of(entry.at("repaired"));
      if (entry.contains("lacking")) window.tally.lacking = told_lines(entry.at("lacking"));
      static_cast<ToldLines&>(window.bad) = told_lines(entry.at("bad"));
      window.bad.choice = entry.at("bad").at("choice");
      // Earlier versions say nothing of it.
      const auto& told = window.bad.first;
      window.bad.too_long = entry.at("bad").value(
          "too_long",
          std::any_of(told.begin(), told.end(), [](const auto& bad) { return bad.second == too_long_problem; }));
      const auto& outputs = entry.at("outputs");
      // What is left of another work's journal, over which this one's was being written, does not count.
      if (outputs.size() != parts_.size() || entry.at("work") != checksum_of(header_)) return;
      for (size_t i = 0; i < parts_.size(); ++i) {
        static_cast<void>(outputs[i].at("checksum").get<std::string>());
        if (whole_number_of(outputs[i].at("bytes")) < 0) return;
      }
      done_.push_back(std::move(window));
      lines_.push_back(line);
    } catch (const Json::exception&) {
      return;
    }
  }
}

/// Where a process died within commit(), a file has its name already: takes the name back, so that all is where work
/// goes on. A file that does not hold just what the journal says may be anybody's, and stays.
void UnfinishedOutput::take_back(Part& part, size_t index) const {
  const auto file = followed_links(part.file);
  const LeftFile left(file);
  if (left.size() == 0) return;
  uint64_t end = 0;
  for (const auto& line : lines_) {
    const auto& [bytes, checksum] = recorded_output(line, index);
    if (!left.holds(end, bytes, checksum)) return;
    end += bytes;
  }
  if (end == left.size() && ::rename(file.c_str(), part.partial.c_str()) != 0) fail(errno);
}

/// Windows whose text is there as it was written.
void UnfinishedOutput::keep_what_agrees() {
  for (size_t i = 0; i < parts_.size() && !done_.empty(); ++i) {
    if (!something_at(parts_[i].partial)) take_back(parts_[i], i);
  }
  std::deque<LeftFile> left;
  for (const auto& part : parts_) {
    left.emplace_back(part.partial);
    if (left.back().is_there() && !left.back().is_regular()) refuse(part.partial);
  }
  size_t kept = 0;
  for (; kept < done_.size(); ++kept) {
    std::vector<uint64_t> ends;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const auto& [bytes, checksum] = recorded_output(lines_[kept], i);
      const uint64_t begin = kept == 0 ? 0 : parts_[i].ends.back();
      if (!left[i].holds(begin, bytes, checksum)) break;
      ends.push_back(begin + bytes);
    }
    if (ends.size() < parts_.size()) break;
    for (size_t i = 0; i < parts_.size(); ++i) parts_[i].ends.push_back(ends[i]);
  }
  done_.resize(kept);
  lines_.resize(kept);
}

bool UnfinishedOutput::holds_text() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return LeftFile(part.partial).size() > 0; });
}

void UnfinishedOutput::go_on_after(size_t windows) {
  std::string journal = header_;
  for (size_t i = 0; i < windows; ++i) journal += lines_[i] + '\n';
  // Over what is there, which is cut behind it: at no time is there no journal, which alone tells whose the files are.
  if (::lseek(descriptor_, 0, SEEK_SET) != 0) fail(errno);
  append(journal);
  if (::ftruncate(descriptor_, static_cast<off_t>(journal.size())) != 0) fail(errno);
  for (auto& part : parts_) {
    part.bytes = windows == 0 ? 0 : part.ends[windows - 1];
    part.output = std::make_unique<AtomicFile>(part.file, AtomicFile::Unfinished{part.partial, part.bytes});
  }
}

void UnfinishedOutput::append(const std::string& text) {
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t count = ::write(descriptor_, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(errno);
    rest.remove_prefix(static_cast<size_t>(count));
  }
}

void UnfinishedOutput::write(const std::vector<std::string>& texts) {
  for (size_t i = 0; i < parts_.size(); ++i) {
    auto& part = parts_[i];
    part.window_bytes = texts[i].size();
    part.window_checksum = checksum_of(texts[i]);
    part.bytes += texts[i].size();
    part.output->write(texts[i]);
    part.output->flush();
  }
}

void UnfinishedOutput::ToldLines::add(int64_t number, const std::string& wrong) {
  ++count;
  if (first.size() < named_lines) first.emplace_back(number, wrong);
}

void UnfinishedOutput::ToldLines::add(const ToldLines& others) {
  count += others.count;
  for (const auto& line : others.first) {
    if (first.size() < named_lines) first.push_back(line);
  }
}

void UnfinishedOutput::BadLines::add(const BadLines& others) {
  ToldLines::add(others);
  too_long = too_long || others.too_long;
}

void UnfinishedOutput::Tally::add(const Tally& other) {
  cut += other.cut;
  repaired += other.repaired;
  lacking.add(other.lacking);
}

void UnfinishedOutput::record(const Window& window) {
  Json outputs = Json::array();
  for (const auto& part : parts_) outputs.push_back({{"bytes", part.window_bytes}, {"checksum", part.window_checksum}});
  const Json entry = {{"work", checksum_of(header_)},
                      {"lines", window.lines},
                      {"input", window.input},
                      {"bad",
                       {{"count", window.bad.count},
                        {"first", window.bad.first},
                        {"choice", window.bad.choice},
                        {"too_long", window.bad.too_long}}},
                      {"cut", window.tally.cut},
                      {"repaired", window.tally.repaired},
                      {"lacking", {{"count", window.tally.lacking.count}, {"first", window.tally.lacking.first}}},
                      {"outputs", outputs}};
  append(entry.dump() + '\n');
}

void UnfinishedOutput::commit() {
  // What takes long, and what may find the disk full, first: the names then follow each other at once.
  for (const auto& part : parts_) {
    part.output->flush();
    const int descriptor = ::open(part.partial.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (descriptor < 0) fail(errno);
    const int status = ::fsync(descriptor), error_number = errno;
    ::close(descriptor);
    if (status != 0) fail(error_number);
  }
  // The first, which people wait for, last: while it is missing, the same command mends what is.
  for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) part->output->commit();
  committed_ = true;
  ::unlink(journal_.c_str());
}

}  // namespace transformer
