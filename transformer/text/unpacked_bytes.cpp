#include "transformer/text/unpacked_bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "transformer/base/error.h"
#include "transformer/base/unreadable.h"

namespace transformer {

namespace {

constexpr size_t bytes_at_once = size_t{1} << 16;
constexpr std::string_view gzip_magic = "\x1F\x8B";

}  // namespace

struct UnpackedBytes::Implementation {
  std::string name;
  int descriptor = -1;
  bool opened = false;  // by this object
  off_t size = 0;       // of a regular file; else 0
  off_t taken = 0;      // bytes read from the descriptor

  bool recognised = false;           // whether they are packed
  std::unique_ptr<z_stream> stream;  // where they are
  std::string packed;                // what `stream` takes from
  bool within = true;                // gzip data that have not ended
  bool padded = false;               // zeros were behind them

  ~Implementation() {
    if (stream) inflateEnd(stream.get());
    if (opened) ::close(descriptor);
  }

  void look_at_kind() {
    struct stat status = {};
    if (fstat(descriptor, &status) != 0) return;
    if (S_ISDIR(status.st_mode)) throw Error(name, "is a folder; expected text, plain or compressed with gzip");
    if (S_ISREG(status.st_mode)) size = status.st_size;
  }

  std::string where(int64_t line) const { return fmt::format("{}:{}", name, line); }

  /// Appends what there is, at most bytes_at_once, waiting for some; false at the end.
  bool read_into(std::string& bytes) {
    const size_t before = bytes.size();
    bytes.resize(before + bytes_at_once);
    ssize_t count;
    while ((count = ::read(descriptor, bytes.data() + before, bytes_at_once)) < 0) {
      pollfd input = {descriptor, POLLIN, 0};
      // A program before this one may have left the stream so that it does not wait by itself.
      if (errno == EAGAIN) ::poll(&input, 1, -1);
      if (errno != EAGAIN && errno != EINTR) break;
    }
    const int error_number = errno;
    bytes.resize(before + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count < 0) throw Failure(name, fmt::format("cannot be read: {}", std::strerror(error_number)));
    taken += count;
    return count > 0;
  }

  /// The first bytes, or the end of what is too short to be gzip.
  bool recognise(std::string& bytes) {
    recognised = true;
    std::string first;
    bool more = true;
    while (more && first.size() < gzip_magic.size() && gzip_magic.starts_with(first)) more = read_into(first);
    if (!first.starts_with(gzip_magic)) {
      bytes += first;
      return more || !first.empty();
    }
    packed = std::move(first);
    stream = std::make_unique<z_stream>();
    // 16: gzip's frame and no other.
    if (inflateInit2(stream.get(), 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
    feed();
    return true;
  }

  void feed() {
    stream->next_in = reinterpret_cast<Bytef*>(packed.data());
    stream->avail_in = static_cast<uInt>(packed.size());
  }

  /// More packed bytes; false at their end.
  bool more_packed() {
    if (stream->avail_in > 0) return true;
    packed.clear();
    const bool more = read_into(packed);
    feed();
    return more;
  }

  Error damaged(int64_t line, const std::string& what) const {
    return {where(line), what, "check the file with gzip -t and fetch it again"};
  }

  /// What may be behind gzip data: others, or zeros to the end.
  void begin_next(int64_t line) {
    while (stream->avail_in > 0 && *stream->next_in == 0) {
      padded = true;
      ++stream->next_in;
      --stream->avail_in;
    }
    if (stream->avail_in == 0) return;
    if (padded || *stream->next_in != static_cast<Bytef>(gzip_magic[0])) {
      throw Error(where(line), "the gzip data are followed by bytes that are none",
                  "compress what was appended, too, or check the file with gzip -t and fetch it again");
    }
    inflateReset(stream.get());
    within = true;
  }

  bool unpack(std::string& bytes, int64_t line) {
    if (!more_packed()) {
      if (within) throw damaged(line, "the gzip data end too early");
      return false;
    }
    if (!within) begin_next(line);
    if (!within) return true;
    const size_t before = bytes.size();
    bytes.resize(before + bytes_at_once);
    stream->next_out = reinterpret_cast<Bytef*>(bytes.data() + before);
    stream->avail_out = bytes_at_once;
    const int status = inflate(stream.get(), Z_NO_FLUSH);
    bytes.resize(before + bytes_at_once - stream->avail_out);
    if (status == Z_STREAM_END) {
      within = false;
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      throw damaged(line, fmt::format("the gzip data are damaged ({})", stream->msg ? stream->msg : "no reason given"));
    }
    return true;
  }
};

UnpackedBytes::UnpackedBytes(const std::filesystem::path& file) : implementation_(std::make_unique<Implementation>()) {
  auto& self = *implementation_;
  self.name = file.string();
  self.descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (self.descriptor < 0) {
    const int error_number = errno;
    if (error_number == ENOENT || error_number == ENOTDIR) {
      throw Error(self.name, "no such file", "paths are relative to the folder that the program runs in");
    }
    throw_unread(file, "cannot be opened", error_number);
  }
  self.opened = true;
  self.look_at_kind();
}

UnpackedBytes::UnpackedBytes(int descriptor, std::string name) : implementation_(std::make_unique<Implementation>()) {
  implementation_->name = std::move(name);
  implementation_->descriptor = descriptor;
  implementation_->look_at_kind();
}

UnpackedBytes::~UnpackedBytes() = default;
UnpackedBytes::UnpackedBytes(UnpackedBytes&&) noexcept = default;
UnpackedBytes& UnpackedBytes::operator=(UnpackedBytes&&) noexcept = default;

bool UnpackedBytes::append_to(std::string& bytes, int64_t line) {
  auto& self = *implementation_;
  if (!self.recognised) return self.recognise(bytes);
  return self.stream ? self.unpack(bytes, line) : self.read_into(bytes);
}

bool UnpackedBytes::readable() const {
  const auto& self = *implementation_;
  if (self.stream && self.stream->avail_in > 0) return true;
  pollfd input{self.descriptor, POLLIN, 0};
  return poll(&input, 1, 0) > 0;
}

const std::string& UnpackedBytes::name() const {
  return implementation_->name;
}

std::string UnpackedBytes::where(int64_t line) const {
  return implementation_->where(line);
}

std::optional<double> UnpackedBytes::share() const {
  const auto& self = *implementation_;
  if (self.size <= 0) return std::nullopt;
  return std::min(1.0, static_cast<double>(self.taken) / static_cast<double>(self.size));
}

}  // namespace transformer
