#include "transformer/training/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "transformer/base/atomic_file.h"
#include "transformer/base/error.h"

namespace transformer {

namespace {

constexpr std::array<uint32_t, 256> crc_table = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = (remainder >> 1) ^ (remainder & 1 ? 0x82f63b78u : 0u);
    table[byte] = remainder;
  }
  return table;
}();

// A record's checksums are stored rotated and shifted, so that a checksum of data that holds checksums stays useful.
uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

template <class Number>
void append_little_endian(std::string& bytes, Number number) {
  for (size_t i = 0; i < sizeof number; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xff);
}

template <class Number>
Number little_endian(std::string_view bytes) {
  Number number = 0;
  for (size_t i = 0; i < sizeof number; ++i) number |= Number{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return number;
}

// A TFRecord: length, its checksum, data, their checksum. A run's hold a few numbers each.
constexpr size_t header_bytes = 12, footer_bytes = 4, most_record_bytes = size_t{1} << 20;

std::string record(std::string_view data) {
  std::string bytes;
  append_little_endian(bytes, uint64_t{data.size()});
  append_little_endian(bytes, masked_crc(bytes));
  bytes += data;
  append_little_endian(bytes, masked_crc(data));
  return bytes;
}

// Length of the whole record that `bytes` begins with; 0 where there is none.
size_t whole_record(std::string_view bytes) {
  if (bytes.size() < header_bytes + footer_bytes) return 0;
  if (little_endian<uint32_t>(bytes.substr(8)) != masked_crc(bytes.substr(0, 8))) return 0;
  const auto length = little_endian<uint64_t>(bytes);
  if (length > bytes.size() - header_bytes - footer_bytes) return 0;
  const auto data = bytes.substr(header_bytes, length);
  if (little_endian<uint32_t>(bytes.substr(header_bytes + length)) != masked_crc(data)) return 0;
  return header_bytes + length + footer_bytes;
}

// Protocol buffers' encoding: a field is its number and kind, then a number of variable length, eight or four bytes,
// or a length and as many bytes.
enum class Kind { varint = 0, eight_bytes = 1, with_length = 2, four_bytes = 5 };

void append_varint(std::string& bytes, uint64_t number) {
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(number | 0x80);
  bytes += static_cast<char>(number);
}

void append_key(std::string& bytes, int field, Kind kind) {
  append_varint(bytes, static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(kind));
}

void append_text(std::string& bytes, int field, std::string_view text) {
  append_key(bytes, field, Kind::with_length);
  append_varint(bytes, text.size());
  bytes += text;
}

// Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;
//         SessionLog session_log = 7; }
std::string event(int64_t step) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  std::string bytes;
  append_key(bytes, 1, Kind::eight_bytes);
  append_little_endian(bytes, std::bit_cast<uint64_t>(now.count()));
  append_key(bytes, 2, Kind::varint);
  append_varint(bytes, static_cast<uint64_t>(step));
  return bytes;
}

std::string version_event() {
  auto bytes = event(0);
  append_text(bytes, 3, "brain.Event:2");
  return bytes;
}

// SessionLog { SessionStatus status = 1; }, START being 1.
std::string restart_event(int64_t first_step) {
  std::string log;
  append_key(log, 1, Kind::varint);
  append_varint(log, 1);
  auto bytes = event(first_step);
  append_text(bytes, 7, log);
  return bytes;
}

// Summary { repeated Value value = 1; }, Value { string tag = 1; float simple_value = 2; }
std::string summary_event(int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  std::string summary;
  for (const auto& [tag, number] : values) {
    std::string value;
    append_text(value, 1, tag);
    append_key(value, 2, Kind::four_bytes);
    append_little_endian(value, std::bit_cast<uint32_t>(static_cast<float>(number)));
    append_text(summary, 1, value);
  }
  auto bytes = event(step);
  append_text(bytes, 5, summary);
  return bytes;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t remainder = 0xffffffffu;
  for (const char byte : bytes) {
    remainder = (remainder >> 8) ^ crc_table[(remainder ^ static_cast<unsigned char>(byte)) & 0xff];
  }
  return ~remainder;
}

EventFile::EventFile(const std::filesystem::path& file, int64_t first_step) : file_(file) {
  part_from_copies(file_);
  descriptor_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail(errno);
  try {
    std::string rest;  // behind the whole records
    std::array<char, 1 << 16> part;
    for (ssize_t count = 0;
         rest.size() <= most_record_bytes && (count = ::read(descriptor_, part.data(), part.size())) != 0;) {
      if (count < 0) {
        if (errno != EINTR) fail(errno);
        continue;
      }
      rest.append(part.data(), static_cast<size_t>(count));
      size_t whole = 0;
      while (const size_t bytes = whole_record(std::string_view(rest).substr(whole))) whole += bytes;
      rest.erase(0, whole);
      bytes_ += static_cast<int64_t>(whole);
    }
    if (!rest.empty() && ::ftruncate(descriptor_, bytes_) != 0) fail(errno);
    append(bytes_ == 0 ? version_event() : restart_event(first_step));
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

EventFile::~EventFile() {
  ::close(descriptor_);
}

void EventFile::fail(int error_number) const {
  throw Failure("cannot write " + file_.string(), std::strerror(error_number));
}

void EventFile::write(int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  append(summary_event(step, values));
}

void EventFile::append(std::string_view event) {
  const auto bytes = record(event);
  // In one call, so that a reader meets whole records, and a killed program leaves none unfinished. A short count means
  // that the next call will say what is wrong.
  for (std::string_view rest = bytes; !rest.empty();) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written >= 0) {
      rest.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      const int error_number = errno;
      if (::ftruncate(descriptor_, bytes_) != 0) errno = 0;  // where this fails too, the next start cuts it
      fail(error_number);
    }
  }
  bytes_ += static_cast<int64_t>(bytes.size());
}

}  // namespace transformer
