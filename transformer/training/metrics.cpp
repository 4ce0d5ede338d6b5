#include "transformer/training/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>

#include "transformer/base/atomic_file.h"
#include "transformer/base/error.h"
#include "transformer/base/json_number.h"

namespace transformer {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

namespace {

// The last of the first `bytes` of a file, a few lines, of which none is long; nothing where they cannot be read.
std::string last_bytes(const fs::path& file, int64_t bytes) {
  std::string end(static_cast<size_t>(std::min<int64_t>(bytes, 1 << 16)), '\0');
  std::ifstream in(file, std::ios::binary);
  in.seekg(bytes - std::ssize(end));
  in.read(end.data(), std::ssize(end));
  return in ? end : "";
}

// Up to where the first `bytes` of a file are whole lines.
int64_t whole_lines(const fs::path& file, int64_t bytes) {
  const auto end = last_bytes(file, bytes);
  if (end.empty()) return bytes;
  return bytes - std::ssize(end) + static_cast<int64_t>(end.rfind('\n') + 1);
}

// Whether there are metrics: of what is no file writing says what is wrong with it. What cannot be looked at is no
// empty file: its lines would be lost under new ones.
bool has_metrics(const fs::path& file) {
  std::error_code error;
  const auto status = fs::status(file, error);
  if (error && status.type() != fs::file_type::not_found) {
    throw Failure(file.string(), "cannot be read: " + error.message());
  }
  return fs::is_regular_file(status);
}

// The file, with no other name by which a copy of the run would see what is written to it.
fs::path own(const fs::path& file) {
  part_from_copies(file);
  return file;
}

// Cuts `file` to at most `bytes`; returns its length then.
int64_t cut(const fs::path& file, int64_t bytes) {
  if (!has_metrics(file)) return 0;
  std::error_code error;
  const auto size = fs::file_size(file, error);
  if (error) throw Failure(file.string(), "cannot be read: " + error.message());
  // After a power cut it may be shorter than it was, and end within a line.
  const auto kept = static_cast<int64_t>(size) < bytes ? whole_lines(file, static_cast<int64_t>(size)) : bytes;
  fs::resize_file(file, kept, error);
  if (error) throw Failure(file.string(), "cannot be cut to the checkpoint's length: " + error.message());
  return kept;
}

// A line of metrics.jsonl: whose step is 1 or more, and kind a text; else nothing.
struct Line {
  int64_t step = 0;
  std::string kind;
  json record;
};

std::optional<Line> line_of(const std::string& text) {
  auto record = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object() || !record.contains("step") || !record.contains("kind") || !record["kind"].is_string()) {
    return std::nullopt;
  }
  const auto step = whole_number(record["step"]).value_or(0);
  if (step < 1) return std::nullopt;
  auto kind = record["kind"].get<std::string>();
  return Line{step, std::move(kind), std::move(record)};
}

// The least step of the lines behind `bytes`, which are in its order, where it is less than `otherwise`: a final
// model's line is of the last step, as those before it are.
int64_t first_step_behind(const fs::path& file, int64_t bytes, int64_t otherwise) {
  if (!has_metrics(file)) return otherwise;
  std::ifstream in(file, std::ios::binary);
  in.seekg(bytes);
  std::string text;
  std::getline(in, text);
  const auto line = line_of(text);
  return line ? std::min(otherwise, line->step) : otherwise;
}

// What TensorBoard is told of a line; null is what JSON has for what is not finite.
std::vector<std::pair<std::string, double>> scalars_of(const Line& line) {
  std::vector<std::pair<std::string, double>> scalars;
  for (const auto& [name, value] : line.record.items()) {
    if (name == "step" || !(value.is_number() || value.is_null())) continue;
    scalars.emplace_back(line.kind + "/" + name,
                         value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
  }
  return scalars;
}

}  // namespace

Metrics::Metrics(const fs::path& run, int64_t bytes, int64_t first_step)
    : Metrics(run, bytes, first_step, first_step_behind(run / metrics_name, bytes, first_step)) {}

Metrics::Metrics(const fs::path& run, int64_t bytes, int64_t first_step, int64_t first_revoked)
    : file_(own(run / metrics_name)), bytes_(cut(file_, bytes)), events_(run / events_name, first_revoked) {
  // Of a step that the cut goes through, what stays is told again.
  if (first_revoked < first_step) {
    std::istringstream lines(last_bytes(file_, bytes_));
    for (std::string text; std::getline(lines, text);) {
      const auto line = line_of(text);
      if (line && line->step >= first_revoked) events_.write(line->step, scalars_of(*line));
    }
  }
  if (bytes_ == 0) append(json{{"kind", "header"}, {"format", metrics_format}}.dump());
}

void Metrics::append(const std::string& line) {
  errno = 0;
  std::ofstream out(file_, std::ios::binary | std::ios::app);
  out << line << '\n';
  out.flush();
  if (!out) throw Failure("cannot write " + file_.string(), std::strerror(errno));
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
  json line{{"kind", kind}, {"step", step}};
  std::vector<std::pair<std::string, double>> scalars;
  for (const auto& [name, value] : values) {
    std::visit([&field = line[name]](const auto& known) { field = known; }, value);
    if (const auto* number = std::get_if<double>(&value)) scalars.emplace_back(kind + "/" + name, *number);
    if (const auto* count = std::get_if<int64_t>(&value)) {
      scalars.emplace_back(kind + "/" + name, static_cast<double>(*count));
    }
  }
  // A text may be anybody's.
  append(line.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace));
  events_.write(step, scalars);
}

}  // namespace transformer
