#include "transformer/base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <iterator>
#include <string>
#include <string_view>

#include "support.h"
#include "transformer/base/error.h"

using namespace transformer;
using transformer::test::read_file;
using transformer::test::TemporaryDirectory;
using transformer::test::write_file;

namespace {

/// Lets files grow to `bytes` at most while it lives; writing more then fails as it does on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before_) == 0);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_ = {};
  void (*handler_)(int);
};

/// Whether open() refuses files without a name, as file systems do that know none (NFS).
std::atomic<bool> no_nameless_files = false;

size_t files_in(const std::filesystem::path& directory) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(directory), {}));
}

}  // namespace

/// What is asked of the disk, in its order, while `is_listed`: F a file's content, D a folder's, R a new name,
/// L a first one.
std::string asked;
std::atomic<bool> is_listed = false;

/// What stat() and lstat() fail at, with EIO, where they are not empty.
std::string_view not_seen, not_seen_itself;

/// In the whole program, in the C library's place.
extern "C" __attribute__((used)) int fsync(int descriptor) {
  struct stat status = {};
  if (is_listed && ::fstat(descriptor, &status) == 0) asked += S_ISDIR(status.st_mode) ? 'D' : 'F';
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}
extern "C" __attribute__((used)) int rename(const char* from, const char* to) noexcept {
  if (is_listed) asked += 'R';
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
extern "C" __attribute__((used)) int linkat(int from_folder, const char* from, int to_folder, const char* to,
                                            int flags) noexcept {
  const auto status = static_cast<int>(::syscall(SYS_linkat, from_folder, from, to_folder, to, flags));
  if (is_listed && status == 0) asked += 'L';
  return status;
}
extern "C" __attribute__((used)) int stat(const char* path, struct stat* status) noexcept {
  if (path != not_seen) return ::fstatat(AT_FDCWD, path, status, 0);
  errno = EIO;
  return -1;
}
extern "C" __attribute__((used)) int lstat(const char* path, struct stat* status) noexcept {
  if (path != not_seen_itself) return ::fstatat(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
  errno = EIO;
  return -1;
}
extern "C" __attribute__((used)) int open(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const auto mode = va_arg(rest, int);
  va_end(rest);
  if (no_nameless_files && (flags & O_TMPFILE) == O_TMPFILE) {
    errno = EOPNOTSUPP;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

TEST_CASE("an atomic file appears at commit with everything that was written") {
  TemporaryDirectory directory;
  const std::string large(3'000'000, 'x');
  {
    AtomicFile file(directory / "out");
    file.write("head ");
    file.write(large);
    file.write(" tail");
    CHECK_FALSE(std::filesystem::exists(directory / "out"));
    file.commit();
    CHECK(read_file(directory / "out") == "head " + large + " tail");
  }
  CHECK(files_in(directory.path()) == 1);
}

TEST_CASE("without commit the older file stays and nothing else is left") {
  TemporaryDirectory directory;
  write_file(directory / "out", "older");
  {
    AtomicFile file(directory / "out");
    file.write(std::string(2'000'000, 'x'));
  }
  CHECK(read_file(directory / "out") == "older");
  CHECK(files_in(directory.path()) == 1);
}

TEST_CASE("a process that is killed while it writes leaves nothing but the older file") {
  TemporaryDirectory directory;
  write_file(directory / "out", "older");
  const pid_t child = fork();
  if (child == 0) {
    AtomicFile file(directory / "out");
    file.write(std::string(2'000'000, 'x'));
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(read_file(directory / "out") == "older");
  CHECK(files_in(directory.path()) == 1);
}

TEST_CASE("where a file cannot be without a name it has one of its own until it is whole") {
  TemporaryDirectory directory;
  write_file(directory / "out", "older");
  write_file(directory / (std::string(temporary_prefix) + std::to_string(::getpid()) + "-0"), "a thesis");
  no_nameless_files = true;
  {
    AtomicFile file(directory / "out");
    file.write(std::string(2'000'000, 'x'));
    CHECK(files_in(directory.path()) == 3);
  }
  CHECK(read_file(directory / "out") == "older");
  CHECK(files_in(directory.path()) == 2);
  write_atomically(directory / "out", "newer");
  no_nameless_files = false;
  CHECK(read_file(directory / "out") == "newer");
  CHECK(read_file(directory / (std::string(temporary_prefix) + std::to_string(::getpid()) + "-0")) == "a thesis");
  CHECK(files_in(directory.path()) == 2);
}

TEST_CASE("what a killed process left goes once nobody can be at work on it, and nothing else goes") {
  using std::chrono::hours, std::filesystem::file_time_type;
  TemporaryDirectory directory;
  const pid_t child = fork();
  if (child == 0) ::_exit(0);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  const auto name = [](const std::string& process) { return temporary_prefix + process; };
  const auto dead = std::to_string(child), alive = std::to_string(::getpid());
  const std::vector<std::string> stay = {
      name(alive + "-0"), name("-1"), name("0-1"), name(""), name("x"), name(dead + "-9"), "writing-" + dead + "-0"};
  for (const auto& other : stay) write_file(directory / other, "x");
  write_file(directory / name(dead + "-0"), "x");
  write_file(directory / name(dead + "-17"), "");
  write_file(directory / name(alive + "-3"), "x");  // in a container all that write may have one number
  std::filesystem::create_directory(directory / name(dead + "-1"));
  std::filesystem::create_symlink("nowhere", directory / name(dead + "-2"));
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    const auto file = entry.path().filename();
    const bool fresh = file == name(dead + "-9") || file == name(alive + "-0");
    if (!fresh && !entry.is_symlink()) std::filesystem::last_write_time(entry, file_time_type::clock::now() - hours(2));
  }
  remove_leftovers(directory.path());
  CHECK_FALSE(std::filesystem::exists(directory / name(dead + "-0")));
  CHECK_FALSE(std::filesystem::exists(directory / name(dead + "-17")));
  CHECK_FALSE(std::filesystem::exists(directory / name(alive + "-3")));
  CHECK(files_in(directory.path()) == stay.size() + 2);
  remove_leftovers(directory / "none");
}

TEST_CASE("write_atomically replaces a file, and can empty it") {
  TemporaryDirectory directory;
  write_atomically(directory / "out", "first");
  write_atomically(directory / "out", "second");
  CHECK(read_file(directory / "out") == "second");
  write_atomically(directory / "out", "");
  CHECK(std::filesystem::file_size(directory / "out") == 0);
  CHECK(files_in(directory.path()) == 1);
}

TEST_CASE("a file in the working directory needs no folder in its name") {
  TemporaryDirectory directory;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(directory.path());
  write_atomically("out", "text");
  std::filesystem::current_path(before);
  CHECK(read_file(directory / "out") == "text");
}

TEST_CASE("a new file has the mode that the umask gives, a replaced one keeps its own") {
  TemporaryDirectory directory;
  const auto mode = [&] {
    struct stat status = {};
    REQUIRE(stat((directory / "out").c_str(), &status) == 0);
    return status.st_mode & 07777;
  };
  const mode_t before = umask(027);
  write_atomically(directory / "out", "text");
  umask(before);
  CHECK(mode() == 0640);
  REQUIRE(chmod((directory / "out").c_str(), 0604) == 0);
  write_atomically(directory / "out", "more");
  CHECK(mode() == 0604);
}

TEST_CASE("a symbolic link stays, and the file that it names is replaced") {
  TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "real");
  std::filesystem::create_symlink("real/file", directory / "link");
  for (const std::string text : {"created through a dangling link", "replaced"}) {
    write_atomically(directory / "link", text);
    CHECK(std::filesystem::is_symlink(directory / "link"));
    CHECK(read_file(directory / "real/file") == text);
    CHECK(files_in(directory / "real") == 1);
  }
}

TEST_CASE("links that lead in a circle are refused and stay") {
  TemporaryDirectory directory;
  std::filesystem::create_symlink("b", directory / "a");
  std::filesystem::create_symlink("a", directory / "b");
  CHECK_THROWS_WITH(write_atomically(directory / "a", "text"), Catch::Contains("Too many levels of symbolic links"));
  CHECK(std::filesystem::is_symlink(directory / "a"));
  CHECK(std::filesystem::is_symlink(directory / "b"));
  CHECK(files_in(directory.path()) == 2);
}

TEST_CASE("a link or a pipe that cannot be looked at is not taken for none") {
  TemporaryDirectory directory;
  const auto link = directory / "link", pipe = directory / "pipe";
  write_file(directory / "file", "before");
  std::filesystem::create_symlink("file", link);
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const auto check_refused = [&](std::string_view& failing, const std::filesystem::path& file) {
    for (const bool writes : {true, false}) {
      std::string said;
      failing = file.native();
      try {
        writes ? write_atomically(file, "text") : static_cast<void>(is_stream(file));
      } catch (const Failure& failure) {
        said = failure.what();
      }
      failing = {};
      CHECK(said == file.string() + ": cannot be looked at: Input/output error");
    }
  };
  check_refused(not_seen_itself, link);
  check_refused(not_seen, pipe);
  CHECK(std::filesystem::is_symlink(link));
  CHECK(std::filesystem::is_fifo(pipe));
  CHECK(read_file(directory / "file") == "before");
  CHECK(files_in(directory.path()) == 3);
}

TEST_CASE("a name as long as names can be is written") {
  TemporaryDirectory directory;
  const std::string name(255, 'n');
  write_atomically(directory / name, "text");
  CHECK(read_file(directory / name) == "text");
}

TEST_CASE("a missing folder, a folder as target and a file as folder fail with the path and the reason") {
  TemporaryDirectory directory;
  const std::string root = directory.path().string();
  write_file(directory / "file", "text");
  CHECK_THROWS_WITH(AtomicFile(directory / "none/out"),
                    Equals("cannot write " + root + "/none/out: No such file or directory"));
  CHECK_THROWS_WITH(AtomicFile(directory.path()), Equals("cannot write " + root + ": Is a directory"));
  CHECK_THROWS_WITH(AtomicFile(directory / "file/out"), Equals("cannot write " + root + "/file/out: Not a directory"));
  CHECK_THROWS_AS(AtomicFile(directory / "none/out"), Failure);
}

TEST_CASE("a folder that may not be written to fails with the path and the reason") {
  // The kernel's own folder refuses everyone, root included.
  CHECK_THROWS_AS(AtomicFile("/proc/self/out"), Failure);
  CHECK_THROWS_WITH(AtomicFile("/proc/self/out"), StartsWith("cannot write /proc/self/out: "));
}

TEST_CASE("a full disk fails with the path and the reason, keeps the older file and leaves nothing behind") {
  TemporaryDirectory directory;
  write_file(directory / "out", "older");
  const std::string path = (directory / "out").string();
  const auto size = GENERATE(size_t{20'000}, size_t{5'000'000});
  {
    FileSizeLimit limit(10'000);
    CHECK_THROWS_WITH(write_atomically(path, std::string(size, 'x')),
                      Equals("cannot write " + path + ": File too large"));
  }
  CHECK(read_file(directory / "out") == "older");
  CHECK(files_in(directory.path()) == 1);
}

TEST_CASE("a device is written to and stays a device") {
  CHECK_THROWS_WITH(write_atomically("/dev/full", "text"), Equals("cannot write /dev/full: No space left on device"));
  write_atomically("/dev/null", "text");
  CHECK(std::filesystem::is_character_file("/dev/null"));
}

TEST_CASE("output that would replace its input is refused") {
  TemporaryDirectory directory;
  write_file(directory / "in", "text");
  std::filesystem::create_symlink("in", directory / "link");
  std::filesystem::create_hard_link(directory / "in", directory / "same");
  for (const char* name : {"in", "link", "same"}) {
    CHECK_THROWS_WITH(check_output_file("--output", directory / name, {"", directory / "none", directory / "in"}),
                      Contains("--output") && Contains(name));
  }
  CHECK_NOTHROW(check_output_file("--output", "/dev/null", {"/dev/null"}));
  CHECK_NOTHROW(check_output_file("--output", directory / "new", {directory / "in"}));
  CHECK_NOTHROW(check_output_file("--output", "", {""}));
}

TEST_CASE("what this user can never write is refused before anything is worked at for it") {
  if (::geteuid() != 0) return;  // others' files are wanted
  constexpr uid_t nobody = 65534;
  TemporaryDirectory directory;
  const auto shared = directory / "shared", closed = directory / "closed";
  for (const auto& [folder, mode] : {std::pair(shared, 01777), std::pair(closed, 0755)}) {
    std::filesystem::create_directory(folder);
    REQUIRE(::chmod(folder.c_str(), static_cast<mode_t>(mode)) == 0);
  }
  REQUIRE(::chmod(directory.path().c_str(), 0755) == 0);
  write_file(shared / "theirs", "text");
  REQUIRE(::chmod((shared / "theirs").c_str(), 0666) == 0);
  const auto refusal = [](const std::filesystem::path& output) -> std::string {
    try {
      check_output_file("--output", output, {});
    } catch (const Failure& failure) {
      return failure.what();
    }
    return "";
  };
  REQUIRE(::seteuid(nobody) == 0);
  const auto of_theirs = refusal(shared / "theirs"), of_own = refusal(shared / "own"),
             of_closed = refusal(closed / "own");
  REQUIRE(::seteuid(0) == 0);
  CHECK(of_theirs == fmt::format("cannot write {}: Operation not permitted", (shared / "theirs").string()));
  CHECK(of_own.empty());
  CHECK(of_closed == fmt::format("cannot write {}: Permission denied", (closed / "own").string()));
}

TEST_CASE("a file that is to be written in place is parted from copies that are links, and from those alone") {
  TemporaryDirectory directory;
  const auto file = directory / "file", copy = directory / "copy";
  const std::string text = std::string(3 << 20, 'x') + "end";
  write_file(file, text);
  const auto number_of = [](const std::filesystem::path& path) {
    struct stat status = {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    return status.st_ino;
  };
  const auto before = number_of(file);
  part_from_copies(file);
  CHECK(number_of(file) == before);  // it has no other name
  std::filesystem::create_hard_link(file, copy);
  part_from_copies(file);
  CHECK(number_of(copy) == before);
  CHECK(number_of(file) != before);
  CHECK(read_file(file) == text);
  CHECK(read_file(copy) == text);
  CHECK_NOTHROW(part_from_copies(directory / "absent"));
}

TEST_CASE("a named pipe is written to and stays a pipe") {
  TemporaryDirectory directory;
  const auto pipe = directory / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(is_stream(pipe));
  // Opened for both, so that nobody waits for the other.
  const int reader = open(pipe.c_str(), O_RDWR | O_NONBLOCK);
  REQUIRE(reader >= 0);
  AtomicFile file(pipe);
  file.write("text");
  file.flush();
  char text[8] = {};
  CHECK(read(reader, text, sizeof text) == 4);
  file.commit();
  close(reader);
  CHECK(std::string(text) == "text");
  CHECK(std::filesystem::is_fifo(pipe));
  CHECK(files_in(directory.path()) == 1);
}

TEST_CASE("a descriptor is written to where it stands, even where it leads to a file") {
  TemporaryDirectory directory;
  write_file(directory / "out", "before ");
  const int descriptor = open((directory / "out").c_str(), O_WRONLY | O_APPEND);
  REQUIRE(descriptor >= 0);
  struct stat before = {}, after = {};
  REQUIRE(fstat(descriptor, &before) == 0);
  for (const auto* const folder : {"/dev/fd/", "/proc/self/fd/"}) {
    const auto name = folder + std::to_string(descriptor);
    CHECK(is_stream(name));
    write_atomically(name, "text ");
  }
  // As /dev/stdout is one.
  std::filesystem::create_symlink("/proc/self/fd/" + std::to_string(descriptor), directory / "link");
  CHECK(is_stream(directory / "link"));
  write_atomically(directory / "link", "end");
  close(descriptor);
  CHECK(read_file(directory / "out") == "before text text end");
  REQUIRE(stat((directory / "out").c_str(), &after) == 0);
  CHECK(before.st_ino == after.st_ino);
  CHECK(files_in(directory.path()) == 2);
  CHECK_THROWS_AS(AtomicFile("/dev/fd/987654"), Failure);
  CHECK_FALSE(is_stream(directory / "out"));
  CHECK_FALSE(is_stream(directory / "none"));
  CHECK_FALSE(is_stream(directory.path()));
  CHECK(is_stream("/dev/null"));
}

TEST_CASE("an unfinished file stays for whoever goes on with it") {
  TemporaryDirectory directory;
  const auto out = directory / "out", partial = directory / "out.partial";
  write_file(out, "older");
  REQUIRE(chmod(out.c_str(), 0604) == 0);
  {
    AtomicFile file(out, AtomicFile::Unfinished{partial});
    file.write("one two torn");
    file.flush();
  }
  CHECK(read_file(out) == "older");
  CHECK(read_file(partial) == "one two torn");
  {
    AtomicFile file(out, AtomicFile::Unfinished{partial, 8});
    CHECK(read_file(partial) == "one two ");
    file.write("three");
    file.commit();
  }
  CHECK(read_file(out) == "one two three");
  CHECK(files_in(directory.path()) == 1);
  struct stat status = {};
  REQUIRE(stat(out.c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0604);
  // A link is not followed: what it leads to is somebody else's.
  write_file(directory / "other", "other");
  std::filesystem::create_symlink("other", partial);
  CHECK_THROWS_AS(AtomicFile(out, AtomicFile::Unfinished{partial}), Error);
  CHECK(read_file(directory / "other") == "other");
}

TEST_CASE("a file's content is on the disk before it has its name, and the name after it") {
  TemporaryDirectory directory;
  for (const bool nameless : {true, false}) {
    no_nameless_files = !nameless;
    for (const bool replaces : {false, true}) {
      asked.clear();
      is_listed = true;
      write_atomically(directory / "out", "text");
      is_listed = false;
      CHECK(asked == (!nameless ? "FRD" : replaces ? "FLRD" : "FLD"));
      CHECK(read_file(directory / "out") == "text");
    }
    std::filesystem::remove(directory / "out");
  }
  no_nameless_files = false;
}
