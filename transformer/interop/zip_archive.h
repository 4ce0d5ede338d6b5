#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "transformer/interop/byte_cursor.h"

namespace transformer {

/// A file within a zip archive.
struct ZipEntry {
  std::string_view packed;   ///< its bytes as they lie in the archive
  uint64_t size = 0;         ///< of its bytes, unpacked
  uint32_t checksum = 0;     ///< CRC-32 of its bytes, by the archive's list of files
  bool is_deflated = false;  // packed by deflate; else as they are
};

/// The files of a zip archive (with zip64) by their names, views of the archive. Nothing that it says is believed: they
/// are stored or deflated, lie within the archive, promise no more than deflate can hold, and have a name each;
/// whatever else is there, encryption among it, is refused.
std::map<std::string_view, ZipEntry> zip_entries(std::string_view archive, const Refusal& refuse);

/// The first bytes of an entry, which `name` names in messages: at most `most`, all where there are fewer. Memory is
/// taken as they come, not as they are promised.
std::string unzipped_begin(const ZipEntry& entry, std::string_view name, uint64_t most, const Refusal& refuse);

/// All bytes of an entry; refused where they do not have the checksum that the archive says.
std::string unzipped(const ZipEntry& entry, std::string_view name, const Refusal& refuse);

}  // namespace transformer
