#include "transformer/base/checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <new>
#include <sstream>

#include "transformer/base/atomic_file.h"
#include "transformer/base/error.h"
#include "transformer/base/read_file.h"
#include "transformer/base/unicode.h"
#include "transformer/base/unreadable.h"

namespace transformer {

namespace fs = std::filesystem;

struct Checksum::State {
  XXH3_state_t* xxh3 = XXH3_createState();
  State() {
    if (!xxh3) throw std::bad_alloc();
    XXH3_128bits_reset(xxh3);
  }
  ~State() { XXH3_freeState(xxh3); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {}
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::add(const void* data, size_t bytes) {
  if (bytes > 0) XXH3_128bits_update(state_->xxh3, data, bytes);
}

std::string Checksum::text() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh3);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string checksum_of(std::string_view text) {
  Checksum checksum;
  checksum.add(text);
  return checksum.text();
}

std::string file_checksum(const fs::path& file) {
  std::error_code ignored;
  const auto status = fs::status(file, ignored);
  if (fs::is_directory(status)) throw Error(file.string(), "is a folder, not a file");
  // A pipe may have nobody who writes to it, and a device no end.
  if (fs::exists(status) && !fs::is_regular_file(status)) throw Error(file.string(), "is not a regular file");
  std::FILE* in = std::fopen(file.c_str(), "rb");
  if (!in) throw_unread(file, "cannot be read", errno);
  Checksum checksum;
  std::vector<char> buffer(1 << 20);
  size_t count = 0;
  while ((count = std::fread(buffer.data(), 1, buffer.size(), in)) > 0) checksum.add(buffer.data(), count);
  const int failed = std::ferror(in) ? errno : 0;
  std::fclose(in);
  if (failed) throw Failure("cannot read " + file.string(), std::strerror(failed), "look at its disk, and start again");
  return checksum.text();
}

void write_checksums(const fs::path& directory, const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += fmt::format("{}  {}\n", file_checksum(directory / name), name);
  write_atomically(directory / checksums_name, text);
}

namespace {

// Name -> checksum. Throws Error where the list is missing or damaged.
std::map<std::string, std::string> read_checksums(const fs::path& directory) {
  const fs::path list = directory / checksums_name;
  std::map<std::string, std::string> listed;
  const auto damaged = [&](const std::string& what) { throw Error(list.string(), "is damaged: " + what); };
  std::error_code ignored, unknown;  // what cannot be looked at cannot be read either
  const auto status = fs::status(list, ignored);
  constexpr uintmax_t largest_list = 1 << 20;  // of dozens of files
  const bool too_large = fs::is_regular_file(status) && fs::file_size(list, unknown) > largest_list && !unknown;
  if (too_large || (fs::exists(status) && !fs::is_regular_file(status))) {
    damaged("a list of a few files' checksums was expected");
  }
  std::istringstream lines(read_file(list));
  for (std::string line; std::getline(lines, line);) {
    constexpr size_t digits = 32;
    if (line.size() < digits + 3 || line.compare(digits, 2, "  ") != 0 || lines.eof()) {
      damaged("expected lines of a checksum, two spaces and a file's name");
    }
    const auto name = line.substr(digits + 2);
    if (name.back() == '\r') damaged("its lines end with carriage returns, which xxh128sum does not write");
    // The list speaks of what lies beside it, and of nothing elsewhere on the machine.
    if (name == "." || name == ".." || name.find('/') != std::string::npos || name.find('\0') != std::string::npos) {
      damaged(fmt::format("{} is no file beside it", in_quotes(name)));
    }
    if (!listed.emplace(name, line.substr(0, digits)).second)
      damaged(fmt::format("it lists {} twice", in_quotes(name)));
  }
  if (listed.empty()) damaged("it is empty");
  return listed;
}

}  // namespace

std::set<std::string> checksummed_names(const fs::path& directory) {
  std::set<std::string> names;
  try {
    for (const auto& [name, checksum] : read_checksums(directory)) names.insert(name);
  } catch (const std::runtime_error&) {  // Error or Failure
  }
  return names;
}

void verify_checksums(const fs::path& directory, const std::vector<std::string>& names) {
  const fs::path list = directory / checksums_name;
  const auto listed = read_checksums(directory);
  const auto verify = [&](const std::string& name, const std::string& expected) {
    if (file_checksum(directory / name) != expected) {
      throw Error((directory / name).string(),
                  fmt::format("is damaged: its checksum is not the one in {}", list.string()),
                  "copy it again; if it was changed on purpose, list it anew, as xxhsum -H128 does");
    }
  };
  if (names.empty()) {
    for (const auto& [name, checksum] : listed) verify(name, checksum);
  }
  for (const auto& name : names) {
    const auto found = listed.find(name);
    if (found == listed.end()) throw Error(list.string(), fmt::format("is damaged: it does not list {}", name));
    verify(name, found->second);
  }
}

}  // namespace transformer
