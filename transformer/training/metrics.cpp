#include "transformer/training/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "transformer/base/error.h"

namespace transformer {

namespace fs = std::filesystem;

namespace {

// Up to where the first `bytes` of a file are whole lines, of which none is long.
int64_t whole_lines(const fs::path& file, int64_t bytes) {
  constexpr int64_t longest = 1 << 16;
  const int64_t begin = std::max<int64_t>(0, bytes - longest);
  std::string end(static_cast<size_t>(bytes - begin), '\0');
  std::ifstream in(file, std::ios::binary);
  in.seekg(begin);
  in.read(end.data(), bytes - begin);
  if (!in) return bytes;
  return begin + static_cast<int64_t>(end.rfind('\n') + 1);
}

// Cuts `file` to at most `bytes`; returns its length then. What cannot be looked at is no empty file: its lines would
// be lost under new ones.
int64_t cut(const fs::path& file, int64_t bytes) {
  std::error_code error;
  const auto status = fs::status(file, error);
  if (status.type() == fs::file_type::not_found) return 0;
  if (error) throw Failure(file.string(), "cannot be read: " + error.message());
  if (!fs::is_regular_file(status)) return 0;  // writing says what is wrong with it
  const auto size = fs::file_size(file, error);
  if (error) throw Failure(file.string(), "cannot be read: " + error.message());
  // After a power cut it may be shorter than it was, and end within a line.
  const auto kept = static_cast<int64_t>(size) < bytes ? whole_lines(file, static_cast<int64_t>(size)) : bytes;
  fs::resize_file(file, kept, error);
  if (error) throw Failure(file.string(), "cannot be cut to the checkpoint's length: " + error.message());
  return kept;
}

}  // namespace

Metrics::Metrics(const fs::path& run, int64_t bytes, int64_t first_step)
    : file_(run / metrics_name), bytes_(cut(file_, bytes)), events_(run / events_name, first_step) {
  if (bytes_ == 0) append(nlohmann::ordered_json{{"kind", "header"}, {"format", metrics_format}}.dump());
}

void Metrics::append(const std::string& line) {
  std::ofstream out(file_, std::ios::binary | std::ios::app);
  out << line << '\n';
  out.flush();
  if (!out) throw Failure(file_.string(), "cannot be written", "is the disk full?");
  bytes_ += static_cast<int64_t>(line.size()) + 1;
}

void Metrics::sync() const {
  const int descriptor = ::open(file_.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return;  // that it cannot be written to shows at the next line
  const int status = ::fdatasync(descriptor), error_number = errno;
  ::close(descriptor);
  if (status == 0 || error_number == EINVAL || error_number == ENOTSUP) return;
  throw Failure("cannot write " + file_.string(), std::strerror(error_number));
}

void Metrics::record(const std::string& kind, int64_t step, const Values& values) {
  nlohmann::ordered_json json{{"kind", kind}, {"step", step}};
  std::vector<std::pair<std::string, double>> scalars;
  for (const auto& [name, value] : values) {
    std::visit([&field = json[name]](const auto& known) { field = known; }, value);
    if (const auto* number = std::get_if<double>(&value)) scalars.emplace_back(kind + "/" + name, *number);
    if (const auto* count = std::get_if<int64_t>(&value)) {
      scalars.emplace_back(kind + "/" + name, static_cast<double>(*count));
    }
  }
  // A text may be anybody's.
  append(json.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::ordered_json::error_handler_t::replace));
  events_.write(step, scalars);
}

}  // namespace transformer
