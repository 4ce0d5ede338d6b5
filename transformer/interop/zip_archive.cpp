#include "transformer/interop/zip_archive.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "transformer/base/unicode.h"

namespace transformer {
namespace {

constexpr uint16_t stored = 0, deflated = 8;

/// zlib's state, which goes with it.
struct Inflater {
  z_stream stream = {};
  bool begun = inflateInit2(&stream, -MAX_WBITS) == Z_OK;  // no header, as within zip archives

  Inflater() = default;
  ~Inflater() {
    if (begun) inflateEnd(&stream);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
};

}  // namespace

std::map<std::string_view, ZipEntry> zip_entries(std::string_view archive, const Refusal& refuse) {
  constexpr std::string_view end_mark = "PK\x05\x06";
  constexpr uint32_t entry_mark = 0x02014b50, file_mark = 0x04034b50, end64_mark = 0x06064b50,
                     locator64_mark = 0x07064b50;
  constexpr size_t end_bytes = 22, locator_bytes = 20, longest_comment = 65535;
  constexpr uint16_t extra64 = 1;
  constexpr uint32_t in_extra64 = 0xffffffff;
  constexpr uint64_t most_deflated = 1032;  // bytes that a deflated one can become
  const auto at = [&](uint64_t position) {
    if (position > archive.size()) refuse("its zip archive points beyond its end");
    return ByteCursor(archive.substr(position), refuse);
  };

  // The end's record lies before a comment of any length.
  std::optional<size_t> end;
  for (size_t back = end_bytes; !end && back <= std::min(archive.size(), end_bytes + longest_comment); ++back) {
    if (archive.substr(archive.size() - back).starts_with(end_mark)) end = archive.size() - back;
  }
  if (!end) refuse("its zip archive has no end");
  auto record = at(*end);
  record.take(10);
  uint64_t count = record.number<uint16_t>();
  record.take(4);
  uint64_t directory = record.number<uint32_t>();
  if (*end >= locator_bytes) {
    if (auto locator = at(*end - locator_bytes); locator.number<uint32_t>() == locator64_mark) {
      locator.take(4);
      auto record64 = at(locator.number<uint64_t>());
      if (record64.number<uint32_t>() != end64_mark) refuse("its zip archive has no end");
      record64.take(28);
      count = record64.number<uint64_t>();
      record64.take(8);
      directory = record64.number<uint64_t>();
    }
  }

  std::map<std::string_view, ZipEntry> files;
  auto entries = at(directory);
  for (uint64_t i = 0; i < count; ++i) {  // an entry is at least 46 bytes long
    if (entries.number<uint32_t>() != entry_mark) refuse("its zip archive's list of files is damaged");
    entries.take(4);
    const auto flags = entries.number<uint16_t>();
    const auto method = entries.number<uint16_t>();
    entries.take(4);
    const auto checksum = entries.number<uint32_t>();
    uint64_t packed = entries.number<uint32_t>(), size = entries.number<uint32_t>();
    const auto name_bytes = entries.number<uint16_t>(), extra_bytes = entries.number<uint16_t>(),
               comment_bytes = entries.number<uint16_t>();
    entries.take(8);
    uint64_t offset = entries.number<uint32_t>();
    const auto name = entries.take(name_bytes), extra = entries.take(extra_bytes);
    entries.take(comment_bytes);
    ByteCursor extras(extra, refuse);
    while (extras.left() >= 4) {
      const auto kind = extras.number<uint16_t>();
      const auto bytes = extras.number<uint16_t>();
      ByteCursor field(extras.take(bytes), refuse);
      if (kind != extra64) continue;
      for (auto* value : {&size, &packed, &offset}) {
        if (*value == in_extra64) *value = field.number<uint64_t>();
      }
    }
    if ((method != stored && method != deflated) || (flags & 1) != 0) {
      refuse(fmt::format("its file {} is encrypted, or compressed otherwise than by deflate", in_quotes(name)));
    }
    if (method == stored ? packed != size : size / most_deflated > packed) {
      refuse(fmt::format("its file {} cannot have the size that it says", in_quotes(name)));
    }
    auto local = at(offset);
    if (local.number<uint32_t>() != file_mark) refuse("its zip archive's list of files is damaged");
    local.take(22);
    const auto local_name = local.number<uint16_t>(), local_extra = local.number<uint16_t>();
    local.take(uint64_t{local_name} + local_extra);
    if (!files.emplace(name, ZipEntry{local.take(packed), size, checksum, method == deflated}).second) {
      refuse(fmt::format("its zip archive has the file {} twice", in_quotes(name)));
    }
  }
  return files;
}

std::string unzipped_begin(const ZipEntry& entry, std::string_view name, uint64_t most, const Refusal& refuse) {
  const uint64_t wanted = std::min(most, entry.size);
  if (!entry.is_deflated) return std::string(entry.packed.substr(0, wanted));
  constexpr uint64_t piece = uint64_t{1} << 20;
  const auto damaged = [&] { refuse(fmt::format("its file {} is damaged", in_quotes(name))); };
  Inflater inflater;
  if (!inflater.begun) damaged();
  auto& stream = inflater.stream;
  auto input = entry.packed;
  std::string bytes;
  while (bytes.size() < wanted) {
    if (stream.avail_in == 0) {
      const auto next = input.substr(0, std::numeric_limits<uInt>::max());
      // zlib's input is not const, and is not written to.
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(next.data()));
      stream.avail_in = static_cast<uInt>(next.size());
      input.remove_prefix(next.size());
    }
    const size_t had = bytes.size();
    bytes.resize(had + std::min(piece, wanted - had));
    stream.next_out = reinterpret_cast<Bytef*>(bytes.data() + had);
    stream.avail_out = static_cast<uInt>(bytes.size() - had);
    const int result = inflate(&stream, Z_NO_FLUSH);
    bytes.resize(bytes.size() - stream.avail_out);
    const bool has_ended = result == Z_STREAM_END;
    if ((result != Z_OK && !has_ended) || (has_ended && bytes.size() < wanted) || bytes.size() == had) damaged();
  }
  return bytes;
}

std::string unzipped(const ZipEntry& entry, std::string_view name, const Refusal& refuse) {
  auto bytes = unzipped_begin(entry, name, entry.size, refuse);
  if (crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()) != entry.checksum) {
    refuse(fmt::format("its file {} is damaged: its checksum is another", in_quotes(name)));
  }
  return bytes;
}

}  // namespace transformer
