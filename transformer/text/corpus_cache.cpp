#include "transformer/text/corpus_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "transformer/base/atomic_file.h"
#include "transformer/base/checksum.h"
#include "transformer/base/error.h"
#include "transformer/base/file_lock.h"
#include "transformer/base/folder.h"
#include "transformer/base/json_number.h"
#include "transformer/base/mapped_file.h"
#include "transformer/base/read_file.h"
#include "transformer/text/vocabulary.h"

namespace transformer {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t format_version = 2;  // of entries and of the list; what has another is made anew
constexpr size_t most_list_bytes = size_t{64} << 20, most_manifest_bytes = size_t{1} << 20;
constexpr const char* manifest_name = "corpus.json";
constexpr const char* texts_name = "texts.json";
constexpr const char* partial_suffix = ".partial";

fs::path with_suffix(const fs::path& path, const char* suffix) {
  return path.string() + suffix;
}

[[noreturn]] void fail_to_write(const fs::path& path, int error_number) {
  throw Failure(fmt::format("cannot write {}", path.string()), std::strerror(error_number));
}

// --- the checksums of text files -------------------------------------------------------------------------

// What changes when a file is written to.
struct Stamp {
  int64_t bytes = 0, modified_ns = 0;
  int64_t changed_ns = 0;  // of size, content or time of writing, which may be set to what it was before
  uint64_t inode = 0;
  bool operator==(const Stamp&) const = default;

  static Stamp of(const fs::path& file) {
    struct stat status = {};
    if (::stat(file.c_str(), &status) != 0) {
      throw Error(file.string(), fmt::format("cannot be read: {}", std::strerror(errno)));
    }
    return {status.st_size, nanoseconds(status.st_mtim), nanoseconds(status.st_ctim), status.st_ino};
  }

  // Anybody can set a file's time to a year that 64 bits of nanoseconds do not reach, 2263 for one.
  static int64_t nanoseconds(const timespec& time) {
    constexpr int64_t second = 1'000'000'000, last = std::numeric_limits<int64_t>::max() / second - 1;
    return std::clamp<int64_t>(time.tv_sec, -last, last) * second + time.tv_nsec;
  }

  // A file written to a moment ago may be written to again within the same tick of its file system's clock.
  bool is_settled() const {
    constexpr int64_t coarsest_tick_ns = 2'000'000'000;
    timespec now = {};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return std::max(modified_ns, changed_ns) < nanoseconds(now) - coarsest_tick_ns;
  }
};

struct KnownText {
  Stamp stamp;
  std::string checksum;
};

// Reading it again is all that a lost or damaged list costs.
std::map<std::string, KnownText> read_texts(const fs::path& file) {
  std::map<std::string, KnownText> texts;
  try {
    const auto json = Json::parse(read_file(file, most_list_bytes));
    if (json.at("format") != format_version) return {};
    for (const auto& [name, text] : json.at("texts").items()) {
      texts[name] = {{text.at("bytes"), text.at("modified_ns"), text.at("changed_ns"), text.at("inode")},
                     text.at("checksum")};
    }
  } catch (const std::exception&) {
    return {};
  }
  return texts;
}

// The checksum of a text file's bytes, from the list while the file has not been written to since.
std::string text_checksum(const fs::path& folder, const fs::path& file, const Stamp& stamp,
                          std::vector<std::string>& warnings) {
  const auto list = folder / texts_name;
  const std::string name = fs::canonical(file).string();
  const auto texts = read_texts(list);
  if (const auto found = texts.find(name); found != texts.end() && found->second.stamp == stamp) {
    return found->second.checksum;
  }
  std::string checksum = file_checksum(file);
  if (!stamp.is_settled()) return checksum;
  auto known = read_texts(list);  // with what others have added meanwhile
  known[name] = {stamp, checksum};
  Json json{{"format", format_version}, {"texts", Json::object()}};
  for (const auto& [key, text] : known) {
    json["texts"][key] = {{"bytes", text.stamp.bytes},
                          {"modified_ns", text.stamp.modified_ns},
                          {"changed_ns", text.stamp.changed_ns},
                          {"inode", text.stamp.inode},
                          {"checksum", text.checksum}};
  }
  try {
    write_atomically(list, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  } catch (const std::runtime_error& failure) {  // Failure, or Error where its name leads in a circle
    warnings.push_back(fmt::format("{}; the text files will be read again at the next start", failure.what()));
  }
  return checksum;
}

// --- locks -----------------------------------------------------------------------------------------------

fs::path lock_file(const fs::path& entry) {
  return with_suffix(entry, ".lock");
}

bool is_key(const std::string& text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// What the name of an entry, or of what belongs to one, begins with.
std::string key_of(const fs::path& path) {
  const auto name = path.filename().string();
  return name.substr(0, name.find('.'));
}

// Removes what killed processes left. What is being made is locked.
void sweep(const fs::path& folder) {
  std::error_code ignored;
  std::vector<fs::path> left;
  for (const auto& item : fs::directory_iterator(folder, ignored)) {
    // The folder may be one of the user's, with names of theirs: an entry's is a checksum.
    if (!is_key(key_of(item.path())) || item.path().extension() != partial_suffix || !item.is_directory(ignored)) {
      continue;
    }
    // Whoever made it held the lock, whose file stays.
    if (something_at(lock_file(folder / key_of(item.path())))) left.push_back(item.path());
  }
  for (const auto& partial : left) {
    const FileLock lock(lock_file(folder / key_of(partial)), FileLock::Wait::no);
    if (!lock.keeps_others_out()) continue;  // it is being made, or that cannot be known
    try {
      remove_known(partial, CorpusCache::file_names());
    } catch (const std::runtime_error&) {  // it stays
    }
  }
}

// --- entries ---------------------------------------------------------------------------------------------

struct Damage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw Damage(otherwise);
}

MappedFile open_listed(const fs::path& entry, const char* name, const Json& manifest) {
  MappedFile file(entry / name);
  const auto& listed = manifest.at("files").at(name);
  const auto bytes = whole_number_of(listed.at("bytes"));
  require(static_cast<int64_t>(file.bytes()) == bytes,
          fmt::format("{} has {} bytes, not {}", name, file.bytes(), bytes));
  Checksum checksum;
  checksum.add(file.as<char>().data(), file.bytes());
  require(checksum.text() == listed.at("checksum").get<std::string>(), fmt::format("{} has another checksum", name));
  return file;
}

// Nothing that comes out of an entry may reach beyond an array here or a row of the embedding later, whatever its bytes
// are. Returns the pieces of the longest sentence.
int64_t check_side(const char* name, std::span<const int32_t> ids, std::span<const int64_t> offsets, int64_t pairs,
                   int64_t vocabulary_size) {
  require(pairs >= 0 && !offsets.empty() && static_cast<int64_t>(offsets.size() - 1) == pairs,
          fmt::format("{}.offsets is of other pairs than {}", name, manifest_name));
  require(offsets.front() == 0 && offsets.back() == static_cast<int64_t>(ids.size()),
          fmt::format("{}.offsets does not fit {}.ids", name, name));
  int64_t longest = 0, shortest = 0;
  for (size_t i = 1; i < offsets.size(); ++i) {
    const int64_t length = offsets[i] - offsets[i - 1];
    longest = std::max(longest, length);
    shortest = std::min(shortest, length);
  }
  require(shortest >= 0, fmt::format("{}.offsets is not in order", name));
  // Padding, begin and end are never inside a sentence.
  int32_t lowest = Vocabulary::unknown, highest = Vocabulary::unknown;
  for (const int32_t id : ids) {
    lowest = std::min(lowest, id);
    highest = std::max(highest, id);
  }
  require(lowest >= Vocabulary::unknown && highest < vocabulary_size,
          fmt::format("{}.ids holds ids that are not in the vocabulary", name));
  return longest;
}

// Throws something when the entry is not as it was written.
CorpusPart open_entry(const fs::path& entry, const CorpusCache::Recipe& recipe) {
  const auto manifest = Json::parse(read_file(entry / manifest_name, most_manifest_bytes));
  require(manifest.at("format") == format_version, fmt::format("{} has another format", manifest_name));
  struct Mapped {
    MappedFile source_ids, source_offsets, target_ids, target_offsets;
  };
  const auto files = std::make_shared<const Mapped>(
      Mapped{open_listed(entry, "source.ids", manifest), open_listed(entry, "source.offsets", manifest),
             open_listed(entry, "target.ids", manifest), open_listed(entry, "target.offsets", manifest)});
  CorpusPart part{.source_ids = files->source_ids.as<int32_t>(),
                  .target_ids = files->target_ids.as<int32_t>(),
                  .source_offsets = files->source_offsets.as<int64_t>(),
                  .target_offsets = files->target_offsets.as<int64_t>(),
                  .longest = 0,
                  .report = {},
                  .storage = files};
  auto& report = part.report;
  report.checksum = manifest.at("text");
  report.pairs = whole_number_of(manifest.at("pairs"));
  report.empty = whole_number_of(manifest.at("empty"));
  report.too_long = whole_number_of(manifest.at("too_long"));
  report.ratio = whole_number_of(manifest.at("ratio"));
  report.source_tokens = static_cast<int64_t>(part.source_ids.size());
  report.target_tokens = static_cast<int64_t>(part.target_ids.size());
  part.longest =
      std::max(check_side("source", part.source_ids, part.source_offsets, report.pairs, recipe.source_vocabulary_size),
               check_side("target", part.target_ids, part.target_offsets, report.pairs, recipe.target_vocabulary_size));
  return part;
}

// The entry, or nothing where it is missing or damaged; then `damage` says how, or is empty.
std::optional<CorpusPart> open_if_whole(const fs::path& entry, const CorpusCache::Recipe& recipe, std::string& damage) {
  damage.clear();
  std::error_code ignored;
  if (!fs::exists(entry, ignored)) return std::nullopt;
  try {
    auto part = open_entry(entry, recipe);
    part.report.from_cache = 1;
    return part;
  } catch (const std::exception& error) {
    damage = error.what();
    return std::nullopt;
  }
}

// One of an entry's four files while it is written.
class EntryFile {
 public:
  EntryFile(const fs::path& folder, const char* name) : name_(name), file_(folder / name) {}

  template <class T>
  void write(std::span<const T> numbers) {
    file_.write(numbers.data(), numbers.size_bytes());
    checksum_.add(numbers.data(), numbers.size_bytes());
    bytes_ += numbers.size_bytes();
  }
  void commit(Json& manifest) {
    file_.commit();
    manifest["files"][name_] = {{"bytes", bytes_}, {"checksum", checksum_.text()}};
  }

 private:
  const char* name_;
  AtomicFile file_;
  Checksum checksum_;
  uint64_t bytes_ = 0;
};

// The ids and offsets of one side while they are written.
class EntrySide {
 public:
  EntrySide(const fs::path& folder, const char* ids, const char* offsets)
      : ids_(folder, ids), offsets_(folder, offsets) {
    write_offset();
  }
  void add(std::span<const int32_t> sentence) {
    ids_.write(sentence);
    offset_ += static_cast<int64_t>(sentence.size());
    write_offset();
  }
  void commit(Json& manifest) {
    ids_.commit(manifest);
    offsets_.commit(manifest);
  }

 private:
  void write_offset() { offsets_.write(std::span<const int64_t>(&offset_, 1)); }

  EntryFile ids_, offsets_;
  int64_t offset_ = 0;
};

// Throws Error where an entry's folder holds somebody's files.
void refuse_strangers(const fs::path& entry) {
  const auto strange = strange_entries(entry, CorpusCache::file_names());
  if (strange.empty()) return;
  throw Error(strange.front().string(), "is in the way: tokenised text is to be replaced there", "move it away");
}

// Deletes an entry, or part of one, if there is any; and nothing else.
void remove_own(const fs::path& entry) {
  refuse_strangers(entry);
  if (something_at(entry)) remove_known(entry, CorpusCache::file_names());
}

// A folder that goes again unless it gets its name.
class PartialFolder {
 public:
  // `alone`: nobody else makes the entry meanwhile, so that what has the name was left by a process that was killed.
  PartialFolder(const fs::path& entry, bool alone)
      : entry_(entry), path_(with_suffix(entry, partial_suffix)), alone_(alone) {
    if (alone) remove_own(path_);
    for (int number = 0; ::mkdir(path_.c_str(), 0777) != 0; ++number) {
      if (alone || errno != EEXIST) fail_to_write(path_, errno);
      path_ = fmt::format("{}.{}-{}{}", entry.string(), ::getpid(), number, partial_suffix);
    }
  }
  ~PartialFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  const fs::path& path() const { return path_; }

  // Where somebody else has made the entry meanwhile, theirs stays.
  void commit() {
    if (::rename(path_.c_str(), entry_.c_str()) != 0) {
      if (!alone_ && (errno == ENOTEMPTY || errno == EEXIST)) return;
      fail_to_write(entry_, errno);
    }
    path_.clear();
    try {
      sync_folder(entry_.parent_path());
    } catch (const Failure&) {  // the entry is whole
    }
  }

 private:
  fs::path entry_, path_;
  bool alone_;
};

// Out of the way at once, whoever still reads it, and then deleted.
void remove_entry(const fs::path& entry, bool alone) {
  refuse_strangers(entry);
  const PartialFolder removed(entry, alone);
  std::error_code error;
  fs::rename(entry, removed.path(), error);
  if (!alone && error == std::errc::no_such_file_or_directory) return;  // somebody else has done it
  if (error) fail_to_write(entry, error.value());
}

}  // namespace

const std::set<std::string>& CorpusCache::file_names() {
  static const std::set<std::string> names = {manifest_name, "source.ids", "source.offsets", "target.ids",
                                              "target.offsets"};
  return names;
}

CorpusCache::CorpusCache(fs::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw_refused(folder_, "cannot be made", error);
  sweep(folder_);
}

CorpusPart CorpusCache::part(const fs::path& source_file, const fs::path& target_file, const Recipe& recipe,
                             const Tokenise& tokenise) const {
  std::vector<std::string> warnings;
  const auto source_stamp = Stamp::of(source_file), target_stamp = Stamp::of(target_file);
  Checksum key;
  key.add(fmt::format("format {}\nsource {}\ntarget {}\nvocabularies of {} and {}\n{}", format_version,
                      text_checksum(folder_, source_file, source_stamp, warnings),
                      text_checksum(folder_, target_file, target_stamp, warnings), recipe.source_vocabulary_size,
                      recipe.target_vocabulary_size, recipe.text));
  const auto entry = folder_ / key.text();

  std::string damage;
  auto part = open_if_whole(entry, recipe, damage);
  if (!part) {
    const FileLock lock(lock_file(entry), FileLock::Wait::yes);
    if (lock.error_number()) fail_to_write(lock_file(entry), lock.error_number());
    part = open_if_whole(entry, recipe, damage);  // another process may have made it meanwhile
    if (!part) {
      if (!damage.empty()) {
        warnings.push_back(fmt::format("{} was damaged ({}) and has been made anew", entry.string(), damage));
        remove_entry(entry, lock.keeps_others_out());
      }
      part = make(entry, lock.keeps_others_out(), recipe, [&](const TakePair& take) {
        auto report = tokenise(take);
        for (const auto& [file, stamp] : {std::pair{&source_file, &source_stamp}, {&target_file, &target_stamp}}) {
          if (Stamp::of(*file) != *stamp) throw Failure(file->string(), "was written to while it was read");
        }
        return report;
      });
    }
  }
  part->report.warnings = std::move(warnings);
  return *std::move(part);
}

CorpusPart CorpusCache::make(const fs::path& entry, bool alone, const Recipe& recipe, const Tokenise& tokenise) const {
  PartialFolder folder(entry, alone);
  EntrySide source(folder.path(), "source.ids", "source.offsets");
  EntrySide target(folder.path(), "target.ids", "target.offsets");
  const auto report = tokenise([&](std::span<const int32_t> source_ids, std::span<const int32_t> target_ids) {
    source.add(source_ids);
    target.add(target_ids);
  });
  Json manifest{{"format", format_version}, {"text", report.checksum},     {"pairs", report.pairs},
                {"empty", report.empty},    {"too_long", report.too_long}, {"ratio", report.ratio},
                {"files", Json::object()}};
  source.commit(manifest);
  target.commit(manifest);
  write_atomically(folder.path() / manifest_name, manifest.dump(2) + "\n");
  // Before it has its name, under which somebody else may replace it where there are no locks.
  auto part = [&] {
    try {
      return open_entry(folder.path(), recipe);
    } catch (const std::exception& error) {
      throw Failure(entry.string(), fmt::format("is damaged as soon as it is written ({})", error.what()),
                    "is the disk failing?");
    }
  }();
  folder.commit();
  return part;
}

}  // namespace transformer
