#include "transformer/report/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "transformer/base/checksum.h"
#include "transformer/base/document.h"
#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/json_number.h"
#include "transformer/base/number.h"
#include "transformer/base/read_file.h"
#include "transformer/base/run_files.h"
#include "transformer/base/unicode.h"
#include "transformer/base/unreadable.h"
#include "transformer/text/lines.h"

namespace transformer {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// NaN for null, which is how a run writes what is not finite; nullopt for what is not there, or is something else.
std::optional<double> number(const json& object, const char* name) {
  constexpr double not_finite = std::numeric_limits<double>::quiet_NaN();
  const auto found = object.find(name);
  if (found == object.end() || !(found->is_number() || found->is_null())) return std::nullopt;
  const double value = found->is_null() ? not_finite : found->get<double>();
  return std::isfinite(value) ? value : not_finite;
}

// Of a clock or a count, which nothing that diverges makes other than finite.
std::optional<double> finite_number(const json& object, const char* name) {
  const auto value = number(object, name);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<int64_t> count(const json& object, const char* name) {
  const auto found = object.find(name);
  constexpr int64_t most = int64_t{1} << 53;
  const auto value = found == object.end() ? std::nullopt : whole_number(*found);
  return value && *value >= 0 && *value <= most ? value : std::nullopt;
}

std::string text(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Every whole line; null in the place of one of more than most_line_bytes.
void each_line(const fs::path& file, const std::function<void(const std::string*)>& use) {
  std::error_code ignored;  // what cannot be looked at cannot be read either
  if (fs::exists(file, ignored) && !is_file(file)) throw Error(file.string(), "is not a regular file");
  std::ifstream in(file, std::ios::binary);
  if (!in.is_open()) throw Failure(file.string(), fmt::format("cannot be read: {}", std::strerror(errno)));
  std::string line, block(1 << 16, '\0');
  bool too_long = false;
  while (in) {
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    std::string_view rest(block.data(), static_cast<size_t>(in.gcount()));
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      const auto piece = rest.substr(0, end);
      too_long = too_long || line.size() + piece.size() > most_line_bytes;
      if (!too_long) line.append(piece);
      if (end == std::string_view::npos) break;
      use(too_long ? nullptr : &line);
      line.clear();
      too_long = false;
      rest.remove_prefix(end + 1);
    }
  }
  if (in.bad()) throw Failure(file.string(), fmt::format("cannot be read: {}", std::strerror(errno)));
}

RunPoint point_of(const json& record, size_t bleu_kind = 0) {
  return {.step = count(record, "step").value_or(0),
          .seconds = finite_number(record, "seconds"),
          .loss = number(record, "loss"),
          .perplexity = number(record, "perplexity"),
          .bleu = number(record, "bleu"),
          .bleu_kind = bleu_kind,
          .rate = number(record, "rate"),
          .gradient_norm = number(record, "gradient_norm"),
          .largest_norm = number(record, "largest_gradient_norm"),
          .target_tokens = finite_number(record, "target_tokens"),
          .speed = number(record, "tokens_per_second"),
          .memory = number(record, "memory")};
}

/// Peaks stay, whichever reports go.
void keep_peaks(RunPoint& kept, const RunPoint& dropped) {
  for (const auto value : {&RunPoint::largest_norm, &RunPoint::memory}) {
    if (const auto& peak = dropped.*value) kept.*value = std::fmax((kept.*value).value_or(*peak), *peak);
  }
}

/// Every second goes, but for the last and the extremes: what is told of all of them stays.
void thin_validations(std::vector<RunPoint>& points) {
  std::vector<bool> kept(points.size());
  for (size_t i = 0; i < points.size(); i += 2) kept[i] = true;
  kept.back() = true;
  for (const auto value : {&RunPoint::perplexity, &RunPoint::bleu}) {
    std::optional<size_t> least, most;
    for (size_t i = 0; i < points.size(); ++i) {
      const auto& here = points[i].*value;
      if (!here || !std::isfinite(*here)) continue;
      if (value == &RunPoint::bleu && points[i].bleu_kind != points.back().bleu_kind) continue;
      if (!least || *here < *(points[*least].*value)) least = i;
      if (!most || *here > *(points[*most].*value)) most = i;
    }
    for (const auto& extreme : {least, most}) {
      if (extreme) kept[*extreme] = true;
    }
  }
  size_t next = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    if (kept[i]) points[next++] = points[i];
  }
  points.resize(next);
}

/// The value of `section`.`name` in the run's config.yaml, where there is one that is not damaged: it is not what a
/// report is about. Throws Failure where it cannot be read.
std::optional<Document> configured(const fs::path& folder, const std::string& section, const std::string& name) {
  const auto file = folder / config_name;
  std::optional<Document> found;
  if (!is_file(file)) return found;
  try {
    read_kept([&] {
      for (const auto& outer : Document::read(file).keys()) {
        if (outer.key != section) continue;
        for (const auto& inner : outer.value.keys()) {
          if (!found && inner.key == name) found = inner.value;
        }
      }
    });
  } catch (const Error&) {
  }
  return found;
}

std::vector<std::string> configured_files(const fs::path& folder, const std::string& name) {
  std::vector<std::string> files;
  if (const auto value = configured(folder, "data", name)) {
    for (const auto& element : value->elements()) files.push_back(element.text());
  }
  return files;
}

/// The checksum of the vocabulary that a run's models write in, where it can be read: no figure depends on it.
std::string written_vocabulary(const fs::path& folder) {
  for (const auto& name : {target_vocabulary_name, vocabulary_name}) {
    try {
      if (is_file(folder / name)) return file_checksum(folder / name);
    } catch (const Error&) {
    } catch (const Failure&) {
    }
  }
  return "";
}

/// The checksum of the validation text's lines, however its files are called and packed; empty where there is none that
/// can be read: no figure depends on it.
std::string text_checksum(const fs::path& folder) {
  const auto text = validation_text(folder);
  if (text.target.empty()) return "";
  Checksum checksum;
  try {
    for (const auto* files : {&text.source, &text.target}) {
      for (const auto& file : *files) {
        if (!is_file(file)) return "";
        LineReader reader(file);
        for (std::string line; reader.next(line);) {
          checksum.add(line);
          checksum.add("\n");
        }
      }
      checksum.add(std::string_view("\0", 1));
    }
  } catch (const Error&) {
    return "";
  } catch (const Failure&) {
    return "";
  }
  return checksum.text();
}

}  // namespace

std::string summary_text(const fs::path& folder) {
  const auto file = folder / summary_name;
  std::string summary;
  if (!is_file(file)) return summary;
  try {
    read_kept([&] { summary = read_file(file); });
  } catch (const Error&) {
  }
  return summary;
}

RunLog read_metrics(const fs::path& folder) {
  const auto file = folder / metrics_name;
  if (!something_at(file)) {
    throw Error(folder.string(), "is not the folder of a run: metrics.jsonl is missing",
                "name a folder that train writes, once it trains");
  }
  RunLog run;
  run.metrics = file;
  size_t stride = 1, seen = 0, bleu_kind = 0;
  std::optional<RunPoint> last;  // which is shown, whatever the stride
  int64_t lines = 0, records = 0;
  each_line(file, [&](const std::string* line) {
    ++lines;
    if (line && trim(*line).empty()) return;
    const auto record = line ? json::parse(*line, nullptr, /*allow_exceptions=*/false) : json();
    if (!record.is_object()) {
      if (run.damaged_lines++ == 0) run.first_damaged = lines;
      return;
    }
    ++records;
    const auto kind = text(record, "kind");
    if (kind == "header" && count(record, "format").value_or(metrics_format) > metrics_format) {
      throw Error(file.string(), "is of a later version of its format", "use the program that wrote it");
    }
    if (kind == "train") {
      if (last) keep_peaks(run.training.back(), *last);
      last.reset();
      if (seen++ % stride != 0) {
        last = point_of(record);
        return;
      }
      run.training.push_back(point_of(record));
      if (run.training.size() < most_run_points) return;
      last = run.training.back();  // an even number: it is one of those that go
      run.training.pop_back();
      for (size_t i = 0; 2 * i < run.training.size(); ++i) {
        run.training[i] = run.training[2 * i];
        if (2 * i + 1 < run.training.size()) keep_peaks(run.training[i], run.training[2 * i + 1]);
      }
      run.training.resize((run.training.size() + 1) / 2);
      stride *= 2;
    } else if (kind == "validation" || kind == "final") {
      if (const auto signature = text(record, "bleu_signature"); !signature.empty()) {
        auto& kinds = run.bleu_signatures;
        const auto known = std::find(kinds.begin(), kinds.end(), signature);
        bleu_kind = static_cast<size_t>(known - kinds.begin());
        if (known == kinds.end()) kinds.push_back(signature);
      }
      const auto point = point_of(record, bleu_kind);
      if (kind == "final") {
        run.final_model = point;
      } else {
        run.validation.push_back(point);
        if (run.validation.size() > most_run_points) thin_validations(run.validation);
      }
    }
  });
  if (last) run.training.push_back(*last);
  if (run.damaged_lines > 0 && records == 0) {
    throw Error(fmt::format("{}:{}", file.string(), run.first_damaged),
                "is no record of a run, and no other line is one",
                "name the folder that train wrote, or fetch the file again");
  }
  return run;
}

RunLog read_run_log(const fs::path& folder, const std::string& name) {
  auto run = read_metrics(folder);
  run.name = name;
  run.vocabulary = written_vocabulary(folder);
  run.validated_on = text_checksum(folder);
  const auto summary = json::parse(summary_text(folder), nullptr, /*allow_exceptions=*/false);
  run.finished = summary.is_object();
  if (run.finished) run.parameters = count(summary, "parameters");
  if (const auto steps = configured(folder, "training", "steps")) {
    const auto value = number_in<int64_t>(steps->text());
    if (value > 0) run.steps = value;
  }
  return run;
}

fs::path newest_validation(const fs::path& folder) {
  fs::path newest;
  int64_t greatest = -1;
  const bool is_finished = is_file(folder / summary_name);  // else it has gone on since
  for (const auto& entry : entries_of(folder / validations_name)) {
    if (!is_file(entry)) continue;
    const auto name = entry.filename().string();
    if (name == "final.txt" && is_finished) return entry;
    const auto step = entry.extension() == ".txt" ? step_of(entry.stem().string()) : std::nullopt;
    if (!step || *step <= greatest) continue;
    greatest = *step;
    newest = entry;
  }
  return newest;
}

ValidationText validation_text(const fs::path& folder) {
  return {.source = configured_files(folder, "validation_source"),
          .target = configured_files(folder, "validation_target")};
}

}  // namespace transformer
