#include "transformer/base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "transformer/base/checksum.h"
#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/model_files.h"
#include "transformer/base/number.h"

namespace transformer {

namespace fs = std::filesystem;

namespace {

constexpr size_t buffer_size = size_t{1} << 20;

// When this process began, or soon after. What one of its number wrote before was another's: in a container all that
// wrote may have had the same.
const auto process_began = fs::file_time_type::clock::now();

/// The descriptor that `file` names, as /proc/self/fd/1 does; -1: none.
int descriptor_named(const std::filesystem::path& file) {
  std::error_code error;
  const auto folder = std::filesystem::canonical(folder_of(file), error);
  if (error || folder != std::filesystem::canonical("/proc/self/fd", error) || error) return -1;
  return number_in<int>(file.filename().string()).value_or(-1);
}

/// The path of this process's descriptor.
std::string path_of(int descriptor) {
  return "/proc/self/fd/" + std::to_string(descriptor);
}

/// A file in `folder` without a name, which goes with the process, even where that is killed; -1 where the file system
/// has none, or none that could be given a name.
int open_nameless(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
  if (descriptor < 0 || ::access(path_of(descriptor).c_str(), F_OK) == 0) return descriptor;
  ::close(descriptor);
  return -1;
}

[[noreturn]] void refuse_to_write(const fs::path& file, int error_number) {
  const std::error_code error(error_number, std::generic_category());
  if (is_no_path(error)) throw Error("cannot write " + file.string(), error.message());
  throw Failure("cannot write " + file.string(), error.message());
}

}  // namespace

std::filesystem::path followed_links(std::filesystem::path file) {
  for (int links = 0; links < 40 && descriptor_named(file) < 0 && is_link(file); ++links) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(file, error);
    if (error) throw_refused(file, "is a link that cannot be followed", error);
    file = folder_of(file) / target;
  }
  return file;
}

bool is_stream(const std::filesystem::path& file) {
  const auto target = followed_links(file);
  return descriptor_named(target) >= 0 || kind_behind(target) == fs::file_type::unknown;
}

AtomicFile::AtomicFile(const std::filesystem::path& file) : file_(file), target_(followed_links(file)) {
  check_name(file);
  if (const int number = descriptor_named(target_); number >= 0) {
    // Opened by its name, a file would be written from its beginning, over what others wrote.
    descriptor_ = ::fcntl(number, F_DUPFD_CLOEXEC, 0);
    if (descriptor_ < 0) fail(errno);
    return;
  }
  const auto existing = kind_behind(target_);
  if (existing == fs::file_type::directory) fail(EISDIR);
  if (existing == fs::file_type::unknown) {
    descriptor_ = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail(errno);
    return;
  }
  descriptor_ = open_nameless(folder_of(target_));
  nameless_ = descriptor_ >= 0;
  if (!nameless_) {
    name_temporary([this] {
      descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      return descriptor_ >= 0;
    });
  }
  take_mode_of_target();
}

void AtomicFile::name_temporary(const std::function<bool()>& make) {
  // Not made from the target's name, which may already be as long as names can be.
  static std::atomic<uint64_t> counter = 0;
  do {
    temporary_ = folder_of(target_) / (temporary_prefix + std::to_string(::getpid()) + "-" + std::to_string(counter++));
    if (make()) return;
  } while (errno == EEXIST);
  const int error_number = errno;
  temporary_.clear();
  fail(error_number);
}

void remove_leftovers(const std::filesystem::path& folder) {
  for (const auto& path : entries_of(folder)) {
    const std::string name = path.filename().string(), prefix = temporary_prefix;
    if (!name.starts_with(prefix)) continue;
    const auto process =
        number_in<pid_t>(std::string_view(name).substr(prefix.size(), name.find('-', prefix.size()) - prefix.size()));
    if (!process || *process <= 0) continue;
    const bool own_number = *process == ::getpid();
    if (!own_number && (::kill(*process, 0) == 0 || errno != ESRCH)) continue;
    std::error_code error;
    const auto status = std::filesystem::symlink_status(path, error);
    if (error || !std::filesystem::is_regular_file(status)) continue;
    const auto written = std::filesystem::last_write_time(path, error);
    const auto before = own_number ? process_began : std::filesystem::file_time_type::clock::now();
    if (error || before - written < std::chrono::hours(1)) continue;
    std::filesystem::remove(path, error);
  }
}

AtomicFile::AtomicFile(const std::filesystem::path& file, const Unfinished& unfinished)
    : file_(file), target_(followed_links(file)), temporary_(unfinished.file), unfinished_(true) {
  check_name(file);
  if (kind_behind(target_) == fs::file_type::directory) fail(EISDIR);
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail(errno);
  take_mode_of_target(S_IRUSR | S_IWUSR);  // another process goes on with it
  const auto bytes = static_cast<off_t>(unfinished.bytes);
  if (::ftruncate(descriptor_, bytes) != 0 || ::lseek(descriptor_, bytes, SEEK_SET) < 0) {
    const int error_number = errno;
    ::close(descriptor_);
    fail(error_number);
  }
}

void AtomicFile::check_name(const fs::path& file) {
  const auto target = followed_links(file);
  if (descriptor_named(target) >= 0) return;
  // A link that is left is one of a circle.
  if (is_link(target)) refuse_to_write(file, ELOOP);
  struct stat status = {}, folder = {};
  const bool is_there = ::lstat(target.c_str(), &status) == 0;
  if (!is_there && errno == ENAMETOOLONG) refuse_to_write(file, errno);
  // In a folder such as /tmp a file of somebody else's, even one that all may write to, is root's to replace alone:
  // capabilities are not asked for.
  const uid_t user = ::geteuid();
  if (is_there && S_ISREG(status.st_mode) && ::stat(folder_of(target).c_str(), &folder) == 0 &&
      (folder.st_mode & S_ISVTX) != 0 && user != 0 && user != status.st_uid && user != folder.st_uid) {
    refuse_to_write(file, EPERM);
  }
}

/// Who could read the old file can read the new one. Where this is not ours to decide, the new file's own mode stays.
void AtomicFile::take_mode_of_target(mode_t more) {
  struct stat existing = {};
  if (::stat(target_.c_str(), &existing) != 0) return;
  if (::fchmod(descriptor_, (existing.st_mode & 07777) | more) != 0) errno = 0;
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty() && !unfinished_) ::unlink(temporary_.c_str());
}

void AtomicFile::fail(int error_number) const {
  refuse_to_write(file_, error_number);
}

void AtomicFile::write(const void* data, size_t bytes) {
  const auto* begin = static_cast<const char*>(data);
  if (buffer_.size() + bytes > buffer_size) flush();
  if (bytes > buffer_size) {
    write_through(begin, bytes);
  } else {
    buffer_.append(begin, bytes);
  }
}

void AtomicFile::flush() {
  write_through(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void AtomicFile::write_through(const char* data, size_t bytes) {
  while (bytes > 0) {
    // The kernel writes at most 2 GiB at once.
    const ssize_t written = ::write(descriptor_, data, std::min(bytes, size_t{1} << 30));
    if (written < 0) {
      if (errno == EINTR) continue;
      fail(errno);
    }
    data += written;
    bytes -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  flush();
  const bool is_regular = nameless_ || !temporary_.empty();
  // Not before: another process may have to open it for writing.
  if (unfinished_) take_mode_of_target();
  if (is_regular && ::fsync(descriptor_) != 0) fail(errno);
  const auto link_to = [this](const fs::path& name) {
    return ::linkat(AT_FDCWD, path_of(descriptor_).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
  };
  const bool is_named = nameless_ && link_to(target_);
  // No call links over an older file, so that for a moment there is a temporary name then.
  if (nameless_ && !is_named) name_temporary([&] { return link_to(temporary_); });
  // Some file systems report a full disk only here.
  if (::close(std::exchange(descriptor_, -1)) != 0) fail(errno);
  if (!is_regular) return;
  if (!is_named && ::rename(temporary_.c_str(), target_.c_str()) != 0) fail(errno);
  temporary_.clear();
  sync_folder(folder_of(target_));
}

fs::path place_of(const fs::path& file) {
  const auto followed = followed_links(file);
  std::error_code none;
  auto folder = fs::weakly_canonical(folder_of(followed), none);
  if (none) folder = fs::absolute(folder_of(followed), none).lexically_normal();
  if (none) throw Error(file.string(), "cannot be found: the current folder is gone", "change to another");
  return folder / followed.filename();
}

void check_not_read(const std::string& flag, const fs::path& output, const std::vector<fs::path>& inputs) {
  std::error_code none;
  if (!fs::is_regular_file(output, none)) return;
  const auto refuse = [&](const std::string& what) {
    throw Error(flag, fmt::format("{} is {}", output.string(), what), "name another file");
  };
  for (const auto& input : inputs) {
    if (fs::equivalent(output, input, none)) refuse("what is read as well");
    if (!fs::is_directory(input, none)) continue;
    auto names = checksummed_names(input);
    names.insert({config_name, checksums_name});
    names.insert(model_names.begin(), model_names.end());  // of one without checksums
    for (const auto& name : names) {
      if (fs::equivalent(output, input / name, none)) refuse("a file of the model that is read as well");
    }
  }
}

void check_output_file(const std::string& flag, const fs::path& output, const std::vector<fs::path>& inputs) {
  std::error_code none;
  if (output.empty()) return;
  AtomicFile::check_name(output);
  if (fs::is_directory(output, none)) throw Error(flag, output.string() + " is a folder", "name a file");
  const auto folder = folder_of(followed_links(output));
  if (!is_stream(output) && !fs::is_directory(folder, none)) {
    throw Error(flag, fmt::format("{}: there is no folder {}", output.string(), folder.string()),
                "make it, or name another file");
  }
  // What else may be wrong, with this question as well, shows when it is written.
  if (!is_stream(output) && ::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0 &&
      (errno == EACCES || errno == EROFS)) {
    refuse_to_write(output, errno);
  }
  check_not_read(flag, output, inputs);
}

void write_atomically(const std::filesystem::path& file, std::string_view text) {
  AtomicFile atomic(file);
  atomic.write(text);
  atomic.commit();
}

void copy_atomically(const fs::path& from, const fs::path& to) {
  std::ifstream in(from, std::ios::binary);
  if (!in) throw Failure(from.string(), std::string("cannot be read: ") + std::strerror(errno));
  AtomicFile out(to);
  std::vector<char> block(buffer_size);
  while (in.read(block.data(), std::ssize(block)), in.gcount() > 0) {
    out.write(block.data(), static_cast<size_t>(in.gcount()));
  }
  if (!in.eof()) throw Failure(from.string(), std::string("cannot be read: ") + std::strerror(errno));
  out.commit();
}

void part_from_copies(const fs::path& file) {
  std::error_code none;
  if (fs::is_regular_file(file, none) && fs::hard_link_count(file, none) > 1 && !none) copy_atomically(file, file);
}

}  // namespace transformer
