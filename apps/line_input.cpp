#include "apps/line_input.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "transformer/base/counted.h"
#include "transformer/base/unicode.h"
#include "transformer/text/lines.h"
#include "transformer/text/unpacked_bytes.h"

namespace transformer {

namespace {

// Where a line has no end at all, its rest is not looked for forever.
constexpr size_t longest_rest = size_t{1} << 30;

}  // namespace

struct LineInput::Implementation {
  explicit Implementation(UnpackedBytes input) : bytes(std::move(input)) {}

  UnpackedBytes bytes;
  std::string buffer;
  size_t start = 0;       // of the next line
  size_t searched = 0;    // up to here there is no line end
  int64_t number = 0;     // lines handed out
  bool ended = false;     // all is in `buffer`
  bool skipping = false;  // the rest of a line that was too long comes first

  void fill() {
    buffer.erase(0, start);
    searched -= start;
    start = 0;
    ended = !bytes.append_to(buffer, number + 1);
  }

  /// The end of the line that begins at `start`, or npos where it may not wait for it. A line that is longer than lines
  /// may be ends where that shows.
  size_t find_end(bool wait) {
    size_t end;
    while ((end = buffer.find('\n', searched)) == std::string::npos) {
      searched = buffer.size();
      if (ended || buffer.size() - start > most_raw_line_bytes) return buffer.size();
      if (!wait && !bytes.readable()) return std::string::npos;
      fill();
    }
    return end;
  }

  /// False where it may not wait for the end of the line that is left out.
  bool skip_rest(bool wait) {
    for (size_t skipped = 0; skipping;) {
      const size_t end = buffer.find('\n', start);
      if (end != std::string::npos || ended) {
        start = searched = end == std::string::npos ? buffer.size() : end + 1;
        skipping = false;
        break;
      }
      skipped += buffer.size() - start;
      if (skipped > longest_rest) throw Error(bytes.where(number), "has no end within 1 GiB", "give text");
      start = searched = buffer.size();
      if (!wait && !bytes.readable()) return false;
      fill();
    }
    return true;
  }
};

LineInput::LineInput(const std::string& file)
    : implementation_(std::make_unique<Implementation>(is_standard(file) ? UnpackedBytes(STDIN_FILENO, standard_input)
                                                                         : UnpackedBytes(file))) {}

LineInput::~LineInput() = default;
LineInput::LineInput(LineInput&&) noexcept = default;
LineInput& LineInput::operator=(LineInput&&) noexcept = default;

LineInput::Read LineInput::next(InputLine& line, bool wait) {
  auto& self = *implementation_;
  line = {};
  if (!self.skip_rest(wait)) return Read::nothing_yet;
  const size_t end = self.find_end(wait);
  if (end == std::string::npos) return Read::nothing_yet;
  if (end == self.start && self.ended && end == self.buffer.size()) return Read::end;
  std::string_view text = std::string_view(self.buffer).substr(self.start, end - self.start);
  const bool whole = end < self.buffer.size() || self.ended;
  self.start = self.searched = std::min(end + 1, self.buffer.size());
  const bool ended = end < self.buffer.size();
  const bool carriage_return = text.ends_with('\r');
  if (carriage_return) text.remove_suffix(1);
  line.end = carriage_return ? (ended ? "\r\n" : "\r") : (ended ? "\n" : "");
  if (self.number == 0 && text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  ++self.number;
  if (text.size() > most_line_bytes) {
    self.skipping = !whole;
    line.end = "\n";
    text = text.substr(0, most_line_bytes);
    // Not in the middle of a character.
    while (!text.empty() && continues_character(text.back())) text.remove_suffix(1);
    if (!text.empty() && static_cast<unsigned char>(text.back()) >= 0xC0) text.remove_suffix(1);
    line.text = repaired_utf8(text);
    line.problem = too_long_problem;
    line.remedy = "break it into lines of at most 1 MiB";
  } else if (const size_t broken = find_broken_utf8(text); broken != std::string_view::npos) {
    line.text = repaired_utf8(text);
    line.problem = fmt::format("is not UTF-8 (byte {} of the line is 0x{:02X})", broken + 1,
                               static_cast<unsigned char>(text[broken]));
    line.remedy = not_utf8_remedy(text);
  } else {
    line.text = text;
  }
  return Read::line;
}

const std::string& LineInput::name() const {
  return implementation_->bytes.name();
}

std::string LineInput::where(int64_t line) const {
  return implementation_->bytes.where(line);
}

std::optional<double> LineInput::share() const {
  return implementation_->bytes.share();
}

Error ends_early(const LineInput& shorter, const LineInput& longer, int64_t lines) {
  return {shorter.name(), fmt::format("ends after {}, but {} has more", counted(lines, "line"), longer.name()),
          "line by line, one is to be the other's translation"};
}

}  // namespace transformer
