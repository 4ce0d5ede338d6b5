#pragma once

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace transformer {

/// A 128-bit checksum (XXH3) of bytes that come piece by piece: fast enough to be taken of everything that is written
/// and read. It finds damage; it is no protection against people.
class Checksum {
 public:
  /// Of no bytes yet.
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  /// Takes up the next bytes. How they are cut into pieces changes nothing.
  void add(const void* data, size_t bytes);
  /// The same of a text's bytes.
  void add(std::string_view text) { add(text.data(), text.size()); }
  /// Of what was added so far: 32 hexadecimal digits, as `xxh128sum` prints them.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The checksum of a text's bytes.
std::string checksum_of(std::string_view text);

/// The checksum of a file's bytes. Throws Error when it cannot be opened, Failure when reading fails midway.
std::string file_checksum(const std::filesystem::path& file);

/// Beside the files that it speaks of: a line a file, "CHECKSUM  NAME". `xxh128sum --check` reads it.
inline constexpr const char* checksums_name = "checksums.xxh128";

/// Writes the checksums of `names`, files in `directory`. Throws as file_checksum, and Failure where nothing can be
/// written.
void write_checksums(const std::filesystem::path& directory, const std::vector<std::string>& names);

/// The files that the checksums in `directory` list; none where there is no list, or none that can be understood.
std::set<std::string> checksummed_names(const std::filesystem::path& directory);

/// Compares `names`, or every file listed where none are named, with the checksums in `directory`. Throws Error naming
/// the first file that is missing, has other bytes or is not listed, or the list itself where it is missing or damaged.
void verify_checksums(const std::filesystem::path& directory, const std::vector<std::string>& names = {});

}  // namespace transformer
