#pragma once

#include <fmt/format.h>
#include <zlib.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace transformer::test {

/// A file of a zip archive that tests make. What is not given is as it should be.
struct ArchivedFile {
  std::string name = {}, content = {};             // its bytes as they lie in the archive
  std::optional<uint64_t> offset = {}, size = {};  // as the list of files says
  std::optional<uint64_t> packed = {};             // bytes
  std::optional<uint32_t> checksum = {};
  uint16_t method = 0;  // 8: deflated
  uint16_t flags = 0;
  std::string extra = {};
};

struct ArchiveEnd {
  std::optional<uint64_t> count = {}, directory = {};
  std::string comment = {};
};

/// The number's lowest byte first.
inline std::string as_bytes(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
  return text;
}

inline uint32_t checksum_of(const std::string& bytes) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

inline ArchivedFile deflated_file(const std::string& name, const std::string& content) {
  z_stream stream = {};
  deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, content.size()), '\0');
  auto unpacked = content;
  stream.next_in = reinterpret_cast<Bytef*>(unpacked.data());
  stream.avail_in = static_cast<uInt>(unpacked.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return {.name = name, .content = packed, .size = content.size(), .checksum = checksum_of(content), .method = 8};
}

inline std::string zip_of(const std::vector<ArchivedFile>& files, const ArchiveEnd& end = {}) {
  std::string archive, list;
  for (const auto& file : files) {
    const uint64_t offset = file.offset.value_or(archive.size()), bytes = file.content.size();
    archive += fmt::format("PK\x03\x04{}{}{}{}{}", std::string(22, '\0'), as_bytes(file.name.size(), 2), as_bytes(0, 2),
                           file.name, file.content);
    list +=
        fmt::format("PK\x01\x02{}{}{}{}{}{}{}", std::string(4, '\0'), as_bytes(file.flags, 2), as_bytes(file.method, 2),
                    std::string(4, '\0'), as_bytes(file.checksum.value_or(checksum_of(file.content)), 4),
                    as_bytes(file.packed.value_or(bytes), 4), as_bytes(file.size.value_or(bytes), 4));
    list += fmt::format("{}{}{}{}{}{}", as_bytes(file.name.size(), 2), as_bytes(file.extra.size(), 2),
                        std::string(10, '\0'), as_bytes(offset, 4), file.name, file.extra);
  }
  return fmt::format("{}{}PK\x05\x06{}{}{}{}{}{}", archive, list, std::string(6, '\0'),
                     as_bytes(end.count.value_or(files.size()), 2), as_bytes(list.size(), 4),
                     as_bytes(end.directory.value_or(archive.size()), 4), as_bytes(end.comment.size(), 2), end.comment);
}

}  // namespace transformer::test
