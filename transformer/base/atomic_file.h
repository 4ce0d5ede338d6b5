#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace transformer {

/// A file that appears whole or not at all. It is written without a name in the same folder (O_TMPFILE), or where the
/// file system knows no such files under a temporary one; commit() makes it durable and gives it its name, replacing an
/// older file of that name. Without commit() what was written goes and an older file stays as it was, whatever
/// interrupts the writing; a process that is killed leaves a temporary name behind, where there is one.
///
/// A symbolic link is followed: the file that it points to is replaced, and the link stays. What is no regular file is
/// written to as it comes: see is_stream.
///
/// All members throw Failure naming the file and the reason: "cannot write runs/model.safetensors: No space left on
/// device"; Error where there can be no such path (is_no_path).
class AtomicFile {
 public:
  /// The temporary file of a long piece of work, which outlives its process so that another goes on with it.
  struct Unfinished {
    std::filesystem::path file;  // in the folder that followed_links(the file's name) lies in
    uint64_t bytes = 0;          // of it that count; what lies behind them goes
  };

  /// Opens a temporary file beside the one that `file` leads to, or `file` itself where it is a stream.
  explicit AtomicFile(const std::filesystem::path& file);
  /// Goes on in `unfinished`, made where it is missing, as the temporary file: without commit() it stays. Whether it is
  /// the caller's own is the caller's to know. `file` must be no stream.
  AtomicFile(const std::filesystem::path& file, const Unfinished& unfinished);
  /// Without commit() the temporary file is deleted, unless it is Unfinished; a stream keeps what was written.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends. Bytes are held back and written a mebibyte at a time, so that a full disk may show at a later call.
  void write(const void* data, size_t bytes);
  /// The same of a text's bytes.
  void write(std::string_view text) { write(text.data(), text.size()); }

  /// Hands over what was written so far: to whoever reads a stream, or so that an unfinished file holds it.
  void flush();

  /// Nothing may be written after this.
  void commit();

  /// Throws where there can be no such file, so that nothing is worked at for it: of too long a name, a link that leads
  /// in a circle, the last of which would be replaced, or another user's file in a folder where those stay (/tmp).
  static void check_name(const std::filesystem::path& file);

 private:
  /// Tries names for the temporary file, which `make` makes of temporary_, until one is free.
  void name_temporary(const std::function<bool()>& make);
  void write_through(const char* data, size_t bytes);
  void take_mode_of_target(mode_t more = 0);
  [[noreturn]] void fail(int error_number) const;

  std::filesystem::path file_, target_, temporary_;
  std::string buffer_;
  int descriptor_ = -1;
  bool nameless_ = false;    // temporary_ is a name from commit() on
  bool unfinished_ = false;  // the temporary file outlives this object
};

/// How the names begin under which files lie beside their own until they are whole.
inline constexpr const char* temporary_prefix = ".writing-";

/// Deletes what killed processes left in `folder` under such names: files of processes that this machine does not have,
/// or of this one's number, to which nobody has written for an hour (before this one began), since another machine's
/// may be at work there. Throws as entries_of.
void remove_leftovers(const std::filesystem::path& folder);

/// Throws Error where `output`, which `flag` names, is one of the files `inputs`, or of a folder among these is
/// config.yaml or a file that its checksums list: replacing it would lose what it held.
void check_not_read(const std::string& flag, const std::filesystem::path& output,
                    const std::vector<std::filesystem::path>& inputs);

/// The same, and where it is a folder, or would lie in one that is not there; Failure where nothing can be written in
/// that. An empty name is none that is given.
void check_output_file(const std::string& flag, const std::filesystem::path& output,
                       const std::vector<std::filesystem::path>& inputs);

/// The file that a chain of symbolic links ends at, whether it exists or not. Throws as throw_refused where that cannot
/// be found out: a link that is taken for none would be replaced.
std::filesystem::path followed_links(std::filesystem::path file);

/// Where it lies, by a name that is the same whatever links lead there, whether it exists or not.
std::filesystem::path place_of(const std::filesystem::path& file);

/// Whether `file` is written to rather than replaced: a device, a named pipe, or one of this process's own descriptors
/// (/dev/stdout, /dev/fd/3), even where that leads to a regular file, which others may be writing to as well. Throws as
/// followed_links.
bool is_stream(const std::filesystem::path& file);

/// Replaces the content of `file` with `text`, whole or not at all.
void write_atomically(const std::filesystem::path& file, std::string_view text);
/// Replaces the content of `to` with that of `from`, which may be the same, whole or not at all, however long that is.
/// Throws Failure.
void copy_atomically(const std::filesystem::path& from, const std::filesystem::path& to);
/// Makes a file that has other names (hard links, as `cp -al` makes them) one of its own, before it is written in
/// place. Nothing where there is none. Throws Failure.
void part_from_copies(const std::filesystem::path& file);

}  // namespace transformer
