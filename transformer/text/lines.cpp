#include "transformer/text/lines.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transformer/base/error.h"
#include "transformer/base/unicode.h"

namespace transformer {

namespace {

constexpr unsigned buffer_size = 1 << 17;
constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

}  // namespace

struct LineReader::Implementation {
  std::filesystem::path file;
  gzFile handle = nullptr;
  std::string buffer;
  size_t position = 0;  // of the first byte in `buffer` not yet handed out
  int64_t count = 0;
  double bytes = 0;  // of the file; 0: not known
  bool at_end = false;

  ~Implementation() {
    if (handle) gzclose(handle);
  }

  [[noreturn]] void fail_for_length() const {
    throw Error(fmt::format("{}:{}", file.string(), count), "the line is longer than 1 MiB",
                "a line is one sentence: split it, or give the file line ends");
  }

  bool fill() {
    if (at_end) return false;
    buffer.resize(buffer_size);
    position = 0;
    const int read = gzread(handle, buffer.data(), buffer_size);
    // gzread hands out what it has of a truncated file as if that were all; only gzerror tells.
    int status = Z_OK;
    const std::string message = gzerror(handle, &status);
    if (read < 0 || status == Z_BUF_ERROR) {
      if (status == Z_ERRNO) throw Error(file.string(), "cannot be read: " + std::string(std::strerror(errno)));
      throw Error(fmt::format("{}:{}", file.string(), count),
                  status == Z_BUF_ERROR ? "the gzip data end too early" : "the gzip data are damaged (" + message + ")",
                  "check the file with gzip -t and fetch it again");
    }
    buffer.resize(static_cast<size_t>(read));
    at_end = read == 0;
    return !at_end;
  }
};

LineReader::LineReader(const std::filesystem::path& file) : implementation_(std::make_unique<Implementation>()) {
  implementation_->file = file;
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    throw Error(file.string(), "is a folder; expected a text file, plain or compressed with gzip");
  }
  errno = 0;
  implementation_->handle = gzopen(file.c_str(), "rb");
  if (!implementation_->handle) {
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    throw Error(file.string(), missing ? "no such file" : "cannot be opened: " + std::string(std::strerror(errno)),
                missing ? "paths are relative to the folder that the program runs in" : "");
  }
  gzbuffer(implementation_->handle, buffer_size);
  if (std::filesystem::is_regular_file(file, ignored)) {
    const auto bytes = std::filesystem::file_size(file, ignored);
    if (!ignored) implementation_->bytes = static_cast<double>(bytes);
  }
}

LineReader::~LineReader() = default;
LineReader::LineReader(LineReader&&) noexcept = default;
LineReader& LineReader::operator=(LineReader&&) noexcept = default;

bool LineReader::next(std::string& line) {
  auto& self = *implementation_;
  line.clear();
  bool found = false;
  ++self.count;
  while (self.position < self.buffer.size() || self.fill()) {
    found = true;
    const size_t end = self.buffer.find('\n', self.position);
    line.append(self.buffer, self.position, end == std::string::npos ? end : end - self.position);
    if (line.size() > most_raw_line_bytes) self.fail_for_length();
    self.position = end == std::string::npos ? self.buffer.size() : end + 1;
    if (end != std::string::npos) break;
  }
  if (!found) {
    --self.count;
    return false;
  }
  if (line.ends_with('\r')) line.pop_back();
  if (self.count == 1 && line.starts_with(byte_order_mark)) line.erase(0, byte_order_mark.size());
  if (line.size() > most_line_bytes) self.fail_for_length();
  if (const size_t broken = find_broken_utf8(line); broken != std::string_view::npos) {
    throw Error(fmt::format("{}:{}", self.file.string(), self.count),
                fmt::format("not UTF-8 (byte {} of the line is 0x{:02X})", broken + 1,
                            static_cast<unsigned char>(line[broken])),
                not_utf8_remedy(line));
  }
  return true;
}

int64_t LineReader::count() const {
  return implementation_->count;
}

std::optional<double> LineReader::share() const {
  if (implementation_->bytes <= 0) return std::nullopt;
  return std::clamp(static_cast<double>(gzoffset(implementation_->handle)) / implementation_->bytes, 0.0, 1.0);
}

std::string not_utf8_remedy(std::string_view line) {
  // Two bytes a character, most of which have one that is 0, or the mark of their order.
  const bool two_bytes =
      line.starts_with("\xFF\xFE") || line.starts_with("\xFE\xFF") || line.find('\0') != std::string_view::npos;
  return fmt::format("convert the text, for example with iconv -f {} -t UTF-8", two_bytes ? "UTF-16" : "ISO-8859-1");
}

std::vector<std::string> read_lines(const std::filesystem::path& file) {
  LineReader reader(file);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) lines.push_back(std::move(line));
  return lines;
}

}  // namespace transformer
