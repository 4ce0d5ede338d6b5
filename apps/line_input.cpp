#include "apps/line_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "transformer/base/unicode.h"
#include "transformer/text/lines.h"

namespace transformer {

namespace {

constexpr size_t chunk = size_t{1} << 16;
// Where a line has no end at all, its rest is not looked for forever.
constexpr size_t longest_rest = size_t{1} << 30;

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF", gzip_magic = "\x1F\x8B";

/// `text` with U+FFFD in the place of every byte that belongs to no character.
std::string repaired(std::string_view text) {
  std::string result;
  for (size_t position = 0; position < text.size();) append_utf8(next_code_point(text, position), result);
  return result;
}

}  // namespace

struct LineInput::Implementation {
  std::string name;
  int descriptor = -1;
  bool opened = false;  // by this object
  off_t size = 0;       // of a regular file; else 0
  off_t taken = 0;      // bytes read from the descriptor

  std::string buffer;
  size_t start = 0;         // of the next line
  size_t searched = 0;      // up to here there is no line end
  int64_t number = 0;       // lines handed out
  bool ended = false;       // all is in `buffer`
  bool skipping = false;    // the rest of a line that was too long comes first
  bool recognised = false;  // whether the input is compressed
  std::unique_ptr<z_stream> stream;
  std::string compressed;  // what `stream` takes from

  ~Implementation() {
    if (stream) inflateEnd(stream.get());
    if (opened) ::close(descriptor);
  }

  std::string where(int64_t line) const { return fmt::format("{}:{}", name, line); }

  Error damaged(const std::string& what) const {
    return {where(number + 1), what, "check the file with gzip -t and fetch it again"};
  }

  bool readable() const {
    if (stream && stream->avail_in > 0) return true;
    pollfd input{descriptor, POLLIN, 0};
    return poll(&input, 1, 0) > 0;
  }

  /// Appends what there is, at most a chunk, waiting for some; false at the end.
  bool read_into(std::string& bytes) {
    const size_t before = bytes.size();
    bytes.resize(before + chunk);
    ssize_t count;
    do {
      count = ::read(descriptor, bytes.data() + before, chunk);
    } while (count < 0 && errno == EINTR);
    const int error_number = errno;
    bytes.resize(before + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count < 0 && error_number == EISDIR) throw Error(name, "is a folder; expected text, plain or from gzip");
    if (count < 0) throw Failure(name, fmt::format("cannot be read: {}", std::strerror(error_number)));
    taken += count;
    return count > 0;
  }

  void fill() {
    buffer.erase(0, start);
    searched -= start;
    start = 0;
    if (!stream) {
      ended = !read_into(buffer);
      if (recognised) return;
      while (!ended && buffer.size() < gzip_magic.size() && gzip_magic.starts_with(buffer)) ended = !read_into(buffer);
      recognised = true;
      if (!buffer.starts_with(gzip_magic)) return;
      compressed.swap(buffer);
      ended = false;
      stream = std::make_unique<z_stream>();
      // 16: gzip's frame and no other.
      if (inflateInit2(stream.get(), 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
      feed();
    }
    inflate_some();
  }

  void feed() {
    stream->next_in = reinterpret_cast<Bytef*>(compressed.data());
    stream->avail_in = static_cast<uInt>(compressed.size());
  }

  /// More compressed bytes; false at their end.
  bool more_compressed() {
    if (stream->avail_in > 0) return true;
    compressed.clear();
    const bool more = read_into(compressed);
    feed();
    return more;
  }

  void inflate_some() {
    const size_t before = buffer.size();
    if (!more_compressed()) throw damaged("the gzip data end too early");
    buffer.resize(before + chunk);
    stream->next_out = reinterpret_cast<Bytef*>(buffer.data() + before);
    stream->avail_out = chunk;
    const int status = inflate(stream.get(), Z_NO_FLUSH);
    buffer.resize(before + chunk - stream->avail_out);
    if (status == Z_STREAM_END) {
      // Another member may follow, as in files that were appended to each other; what is none is passed over, as gzip
      // does with the zeros behind a tape's data.
      ended = !more_compressed() || *stream->next_in != static_cast<Bytef>(gzip_magic[0]);
      if (!ended) inflateReset(stream.get());
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      throw damaged(fmt::format("the gzip data are damaged ({})", stream->msg ? stream->msg : "no reason given"));
    }
  }

  /// The end of the line that begins at `start`, or npos where it may not wait for it. A line that is longer than lines
  /// may be ends where that shows.
  size_t find_end(bool wait) {
    size_t end;
    while ((end = buffer.find('\n', searched)) == std::string::npos) {
      searched = buffer.size();
      if (ended || buffer.size() - start > most_raw_line_bytes) return buffer.size();
      if (!wait && !readable()) return std::string::npos;
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
      if (skipped > longest_rest) throw Error(where(number), "has no end within 1 GiB", "give text");
      start = searched = buffer.size();
      if (!wait && !readable()) return false;
      fill();
    }
    return true;
  }
};

LineInput::LineInput(const std::string& file) : implementation_(std::make_unique<Implementation>()) {
  auto& self = *implementation_;
  self.name = is_standard(file) ? standard_input : file;
  self.opened = !is_standard(file);
  self.descriptor = self.opened ? ::open(file.c_str(), O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
  if (self.descriptor < 0) {
    self.opened = false;
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    throw Error(file, missing ? "no such file" : fmt::format("cannot be opened: {}", std::strerror(errno)),
                missing ? "paths are relative to the folder that the program runs in" : "");
  }
  struct stat status = {};
  if (fstat(self.descriptor, &status) != 0) return;
  if (S_ISDIR(status.st_mode)) throw Error(self.name, "is a folder; expected text, plain or compressed with gzip");
  if (S_ISREG(status.st_mode)) self.size = status.st_size;
}

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
    while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80) text.remove_suffix(1);
    if (!text.empty() && static_cast<unsigned char>(text.back()) >= 0xC0) text.remove_suffix(1);
    line.text = repaired(text);
    line.problem = "is longer than 1 MiB";
    line.remedy = "split it into sentences";
  } else if (const size_t broken = find_broken_utf8(text); broken != std::string_view::npos) {
    line.text = repaired(text);
    line.problem = fmt::format("is not UTF-8 (byte {} of the line is 0x{:02X})", broken + 1,
                               static_cast<unsigned char>(text[broken]));
    line.remedy = not_utf8_remedy(text);
  } else {
    line.text = text;
  }
  return Read::line;
}

const std::string& LineInput::name() const {
  return implementation_->name;
}

std::string LineInput::where(int64_t line) const {
  return implementation_->where(line);
}

std::optional<double> LineInput::share() const {
  const auto& self = *implementation_;
  if (self.size <= 0) return std::nullopt;
  return std::min(1.0, static_cast<double>(self.taken) / static_cast<double>(self.size));
}

}  // namespace transformer
