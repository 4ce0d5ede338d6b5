#include "transformer/text/lines.h"

#include <fmt/format.h>

#include "transformer/base/error.h"
#include "transformer/base/unicode.h"
#include "transformer/text/unpacked_bytes.h"

namespace transformer {

struct LineReader::Implementation {
  explicit Implementation(const std::filesystem::path& file) : bytes(file) {}

  UnpackedBytes bytes;
  std::string buffer;
  size_t position = 0;  // of the first byte in `buffer` not yet handed out
  int64_t count = 0;
  bool at_end = false;

  [[noreturn]] void fail_for_length() const {
    throw Error(bytes.where(count), "the line is longer than 1 MiB",
                "a line is one sentence: split it, or give the file line ends");
  }

  bool fill() {
    buffer.clear();
    position = 0;
    while (!at_end && buffer.empty()) at_end = !bytes.append_to(buffer, count);
    return !buffer.empty();
  }
};

LineReader::LineReader(const std::filesystem::path& file) : implementation_(std::make_unique<Implementation>(file)) {}

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
    throw Error(self.bytes.where(self.count),
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
  return implementation_->bytes.share();
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
