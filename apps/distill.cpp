#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/decoding_options.h"
#include "apps/line_work.h"
#include "apps/messages.h"
#include "apps/program.h"
#include "apps/unfinished_output.h"
#include "transformer/base/error.h"
#include "transformer/base/folder.h"
#include "transformer/base/read_file.h"
#include "transformer/base/unicode.h"
#include "transformer/base/unreadable.h"
#include "transformer/evaluation/closest.h"
#include "transformer/inference/translator.h"

namespace transformer {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* program_name = "distill";
constexpr const char* record_name = "distill.json";
constexpr int record_format = 1;
// The first is what people wait for, and is there when all are: see UnfinishedOutput.
const std::vector<std::string> file_names = {"target.txt", "source.txt", "scores.txt", record_name};

/// Which of a line's translations a student learns from: --pick.
struct Picking {
  std::string name;

  bool all() const { return name == "all"; }
  /// Whether translations are compared with a reference, and by what.
  bool compares() const { return name == "bleu" || name == "chrf"; }
  Utility utility() const {
    if (name == "bleu") return BleuOptions();
    return ChrfOptions();
  }
};

std::string score_line(const Translation& translation, const std::optional<double>& closeness) {
  return closeness ? fmt::format("{:.6f}\t{:.2f}\n", translation.score, *closeness)
                   : fmt::format("{:.6f}\n", translation.score);
}

/// Makes pairs of a window of lines.
class Teaching {
 public:
  Teaching(const Translator& translator, Picking picking, const LineWork& work)
      : translator_(translator), picking_(std::move(picking)), work_(work) {}

  LineWork::Done operator()(std::vector<InputLine>& lines, int64_t) const {
    std::vector<std::string> texts;
    for (const auto& line : lines) texts.push_back(line.usable() ? line.text : "");
    auto sources = translator_.encode(texts);
    for (size_t i = 0; i < lines.size(); ++i) find_problem(lines[i], sources[i]);
    sources.resize(work_.usable(lines));
    const auto translations = translator_.translate_encoded(sources);
    std::vector<std::vector<Pair>> pairs(sources.size());
    for (size_t i = 0; i < sources.size(); ++i) {
      if (lines[i].usable()) pairs[i] = picked(lines[i], translations[i]);
      if (!lines[i].usable() || !pairs[i].empty()) continue;
      lines[i].refuse("has no translation with text and an end", "give --max-extra-length more, or leave it out");
    }
    LineWork::Done done{.lines = work_.usable(lines), .texts = {"", "", "", ""}};
    for (size_t i = 0; i < done.lines && i < pairs.size(); ++i) {
      for (const auto& [translation, closeness] : pairs[i]) {
        done.texts[0].append(translation->text).append("\n");
        done.texts[1].append(lines[i].text).append("\n");
        done.texts[2].append(score_line(*translation, closeness));
      }
    }
    return done;
  }

 private:
  struct Pair {
    const Translation* translation;
    std::optional<double> closeness;  // to the reference
  };

  void find_problem(InputLine& line, std::vector<int64_t>& source) const {
    if (!line.usable()) return;
    if (auto problem = translator_.problem(source.size()); !problem.empty()) {
      line.refuse(std::move(problem), translator_.remedy);
    } else if (source.empty()) {
      line.problem = "has no text";
    } else if (line.beside && trim(*line.beside).empty()) {
      line.problem = "has a translation without text";
    } else {
      return;
    }
    source.clear();
  }

  /// Of those that are whole: what ran into the longest length often goes round in circles, which nobody should learn.
  std::vector<Pair> picked(const InputLine& line, const std::vector<Translation>& translations) const {
    std::vector<Pair> whole;
    for (const auto& translation : translations) {
      if (translation.finished && !translation.text.empty()) whole.push_back({&translation, std::nullopt});
    }
    if (whole.empty() || picking_.all()) return whole;
    if (!picking_.compares()) return {whole.front()};
    std::vector<std::string> texts;
    for (const auto& pair : whole) texts.push_back(pair.translation->text);
    const auto closest = closest_to(*line.beside, texts, picking_.utility());
    return {{whole[closest.index].translation, closest.score}};
  }

  const Translator& translator_;
  Picking picking_;
  const LineWork& work_;
};

/// What a corpus was made of and how, for who finds it, and for the same command given again.
std::string record_of(const std::map<std::string, std::string>& work, const std::string& source,
                      const std::string& target) {
  ordered_json json = {{"format", record_format}, {"program", std::string(program_name) + " " TRANSFORMER_VERSION}};
  json["source"] = {{"file", source}, {"checksum", file_checksum(source)}};
  if (!target.empty()) json["target"] = {{"file", target}, {"checksum", file_checksum(target)}};
  json["work"] = work;
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

/// The record of a corpus whose texts, the files before the record, are as they lie in `written`: so are they told from
/// what somebody made of them.
std::string with_checksums(const std::string& record, const std::vector<fs::path>& written) {
  auto json = ordered_json::parse(record);
  for (size_t i = 0; i + 1 < file_names.size(); ++i) json["written"][file_names[i]] = file_checksum(written[i]);
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

/// Whether all files of the corpus in `folder`, of which this is the record, are there. Where one is missing, the
/// others are made again: throws Error where one of them is not as it was made.
bool is_whole(const fs::path& folder, const ordered_json& record) {
  const auto there = [&](const std::string& name) { return something_at(folder / name); };
  if (std::all_of(file_names.begin(), file_names.end(), there)) return true;
  const auto written = record.value("written", ordered_json());
  if (!written.is_object()) {
    // What a process left that died while it gave files their names is the journal's.
    if (something_at(UnfinishedOutput::journal_of((folder / file_names.front()).string()))) return false;
    throw Error(folder.string(),
                fmt::format("lacks a file of its corpus, and {} does not say how the others were written", record_name),
                "name another folder");
  }
  for (size_t i = 0; i + 1 < file_names.size(); ++i) {
    const auto& name = file_names[i];
    if (!there(name)) continue;
    if (written.value(name, ordered_json()) == file_checksum(folder / name)) continue;
    throw Error((folder / name).string(), "is not as this program wrote it, and another file of the corpus is missing",
                "move it away, or name another folder");
  }
  return false;
}

/// Whether `folder` holds the corpus that `record` is of already. Throws Error where it holds another one, or files of
/// others under the names that are needed.
bool holds_already(const fs::path& folder, const std::string& record) {
  const auto found = std::find_if(file_names.begin(), file_names.end(),
                                  [&](const std::string& name) { return something_at(folder / name); });
  if (found == file_names.end()) return false;
  const auto text = something_at(folder / record_name) ? read_file(folder / record_name) : "";
  const auto theirs = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto ours = ordered_json::parse(record);
  if (!theirs.is_object() || theirs.value("format", ordered_json()) != record_format || !theirs.contains("work")) {
    throw Error((folder / *found).string(), "is in the way of a file that this program would make",
                "move it away, or name another folder");
  }
  const auto same = [&](const char* part) {
    return theirs.value(part, ordered_json()) == ours.value(part, ordered_json());
  };
  const auto checksum = [](const ordered_json& json, const char* part) {
    const auto file = json.value(part, ordered_json());
    return file.is_object() ? file.value("checksum", ordered_json()) : ordered_json();
  };
  std::string different;
  for (const char* part : {"source", "target"}) {
    if (checksum(theirs, part) != checksum(ours, part)) different = part;
  }
  if (!same("work")) different = "way of making it";
  if (different.empty()) return is_whole(folder, theirs);
  throw Error(folder.string(), fmt::format("holds a corpus already, of another {} (see {})", different, record_name),
              "name another folder");
}

/// The folder of a corpus, which goes again where nothing came into it.
class CorpusFolder {
 public:
  explicit CorpusFolder(fs::path folder) : folder_(std::move(folder)) {}
  ~CorpusFolder() {
    if (made_) ::rmdir(folder_.c_str());
  }
  CorpusFolder(const CorpusFolder&) = delete;
  CorpusFolder& operator=(const CorpusFolder&) = delete;

  /// Throws as throw_refused where it cannot be made.
  void make() {
    std::error_code error;
    made_ = fs::create_directories(folder_, error);
    if (error) throw_refused(folder_, "cannot create the folder", error);
  }
  const fs::path& path() const { return folder_; }

 private:
  fs::path folder_;
  bool made_ = false;
};

}  // namespace

}  // namespace transformer

int main(int argc, char** argv) {
  using namespace transformer;
  return run_program(argc, argv, [](CLI::App& app, auto parse) {
    app.description(
        "Makes a smaller model's training text of what a model translates: OUTPUT/source.txt, OUTPUT/target.txt line "
        "by line, and in scores.txt what the model thinks of each. The same command goes on after whatever ended it.");
    std::string source, target, output, pick;
    DecodingOptions decoding(app, /*several=*/true);
    app.add_option("--source", source, "Text to translate, plain or .gz")->required()->option_text("FILE");
    app.add_option("--target", target, "Its translations by people, line by line, plain or .gz, for --pick")
        ->option_text("FILE");
    app.add_option("--output", output, "Folder for the corpus")->required()->option_text("DIR");
    app.add_option("--pick", pick,
                   "Of a line's --n-best translations, those to learn from: best: the first; bleu, chrf: the one that "
                   "is most like the line of --target by this score (sequence-level interpolation); all: every one; "
                   "if not given, bleu with --target and best without")
        ->check(CLI::IsMember({"best", "bleu", "chrf", "all"}))
        ->option_text("{best,bleu,chrf,all}");
    BadLines bad_lines(
        app,
        "not UTF-8, longer than 1 MiB or than the model takes, or without text, on either side; and those "
        "whose translation has no text or no end",
        BadLines::LeftOut());
    parse();
    if (pick.empty()) pick = target.empty() ? "best" : "bleu";
    const Picking picking{pick};
    if (picking.compares() && target.empty()) {
      throw Error("--pick", fmt::format("{} is a score against a reference, and there is none", pick),
                  "give --target FILE with it");
    }
    for (const auto& [option, file] : {std::pair{"--source", source}, {"--target", target}}) {
      std::error_code ignored;
      if (std::string(option) == "--target" && file.empty()) continue;
      // What is missing is said where it is opened.
      if (!is_standard(file) && (fs::is_regular_file(file, ignored) || !something_at(file))) continue;
      throw Error(option,
                  fmt::format("{} is no file, and work that goes on reads all again", is_standard(file) ? "-" : file),
                  "write it to a file first");
    }

    // An empty corpus teaches nothing.
    if (InputLine line; !LineInput(source).next(line)) {
      throw Error(source, "has no line of text", "give the text that the model is to translate");
    }

    entries_of(output);  // throws where it is none, and cannot become one
    if (something_at(fs::path(output) / checksums_name)) {
      throw Error("--output", output + " holds a model", "choose another folder");
    }
    CorpusFolder folder(output);  // outlives the work
    std::map<std::string, std::string> identity;
    std::string record;
    // Last, since what is gone on with may have been begun with other text behind the lines that were done.
    const auto closing = [&](const std::vector<fs::path>& written) -> std::vector<std::string> {
      if (record_of(identity, source, target) != record) {
        throw Failure(target.empty() ? source : fmt::format("{} or {}", source, target),
                      "changed while it was translated");
      }
      if (fs::file_size(written.front()) == 0) {
        throw Error(source, "has no line of which anything could be learned",
                    "the lines that were left out are told of with --bad-lines stop");
      }
      return {"", "", "", with_checksums(record, written)};
    };
    LineWork::Options options{.program = program_name,
                              .input = source,
                              .outputs = {},
                              .also_read = decoding.inputs(),
                              .makes_folder = true,
                              .beside = target,
                              .closing = closing};
    for (const auto& name : file_names) options.outputs.push_back((folder.path() / name).string());
    LineWork work(options, bad_lines);
    decoding.check_device();
    work.open_input();
    const Translator translator = decoding.open();
    if (picking.compares() && translator.settings().n_best == 1) {
      throw Error("--pick", "there is but one translation of each line to choose from", "give --n-best N with it");
    }
    work.set_windows(decoding.windows(translator));
    identity = decoding.identity(translator);
    identity["way of picking"] = pick;
    record = record_of(identity, source, target);
    bool is_done = false;
    read_kept([&] { is_done = holds_already(folder.path(), record); });
    if (is_done) {
      std::cerr << one_line(fmt::format("{}: {} holds this corpus already", program_name, output)) << '\n';
      return 0;
    }
    folder.make();
    const int status = work.run([&] { return identity; }, Teaching(translator, picking, work));
    std::cerr << one_line(fmt::format("{}: translations of {} of {} lines are in {}", program_name,
                                      work.lines() - bad_lines.count(), work.lines(), output))
              << '\n';
    return status;
  });
}
