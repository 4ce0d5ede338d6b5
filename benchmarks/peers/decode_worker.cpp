// Our side of scripts/bench decode: decode_worker MODEL PRECISION THREADS SOURCES. Loads a model directory, then obeys
// one command a line from standard input and answers each with a line, so that both sides can take turns while each
// stays loaded. benchmarks/peers/ctranslate2_decode.py is the same for CTranslate2.
//
//   run BATCH BEAM FIRST COUNT STEPS FILE
//     Decodes COUNT of the sources from FIRST on. STEPS 0: until the end tokens. Otherwise no token ends an output, and
//     each has STEPS tokens, which take as many steps. Answers "SECONDS TOKENS", ends included, and writes the outputs'
//     ids to FILE, a line each, unless it is "-".
//   shortlist FILE
//     From now on outputs are written in a list's candidates, a file of `shortlist`; where it is a number, in as many
//     made-up translations of each piece; 0: in all. Answers "SOURCE BATCH": how many candidates a source has, and 32
//     of them have together, on average.
//   wish [WORD...]
//     From now on outputs are searched for with these, and without a word plainly: a setting, as
//     decoding.no_repeat_ngram=3; required=N phrases of each sentence's own plain output, or with of=FILE of a
//     line of this; bias=N tokens that are preferred; forbidden=FILE of phrases, a line each; models=2 that decode
//     together, the second a copy of the first; alignments or confidences, made after the search and timed with it.
//   draft MODEL
//     From now on a model directory guesses for searches of one hypothesis; 0: none. Answers "done".
//   drafted
//     Answers "STEPS PROPOSED ACCEPTED" of all searches with this draft so far.
//   workers N
//     From now on so many threads decode, instead of THREADS.
//   processor
//     Answers the seconds of processor time that the last `run` took, of all threads together.
//   memory
//     Answers "PEAK NOW", in bytes of resident memory.
//   limits
//     Answers "MULTIPLY-ADDS BYTES", a second, that one thread can do and read from memory at most (peers/limits.h).
//   work
//     Answers "PER-SOURCE-TOKEN PER-ROW SOURCE-BYTES STEP-BYTES": multiply-adds with weights of a source's token, and
//     of a hypothesis's; bytes of weights that encoding reads, and a step of decoding.
//
// The first line of output is "ready NAME BYTES": of kernels or version, and resident memory before the model was
// loaded.
//
// SOURCES holds a sentence a line, ids of pieces without the end.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "peers/limits.h"
#include "peers/wishes.h"
#include "peers/worker.h"
#include "transformer/architecture/cost.h"
#include "transformer/base/settings.h"
#include "transformer/inference/continuous_search.h"
#include "transformer/inference/inference_model.h"
#include "transformer/inference/shortlist.h"

namespace transformer {

namespace {

std::vector<std::vector<int64_t>> read_sources(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw Error(file, "cannot be opened");
  std::vector<std::vector<int64_t>> sources;
  for (std::string line; std::getline(in, line);) {
    std::istringstream numbers(line);
    auto& source = sources.emplace_back();
    for (int64_t id; numbers >> id;) source.push_back(id);
    source.push_back(Vocabulary::end);
  }
  return sources;
}

std::shared_ptr<const InferenceModel> load_model(const std::filesystem::path& directory, Precision precision) {
  ModelSettings model_settings;
  Settings settings;
  settings.section("model", model_settings, "");
  settings.load(directory / "config.yaml", UnknownSections::ignored);
  return InferenceModel::load(directory, model_settings.resolved(), precision);
}

struct Command {
  int64_t batch, beam;
  size_t first, count;
  int64_t steps;
  std::string file;
};

/// As a shortlist of a trained model would be: some that are always there, and others that differ from piece to piece.
std::shared_ptr<const Shortlist> made_up_shortlist(const ModelSettings& settings, int64_t translations) {
  std::mt19937 random(1);
  const auto any = [&] {
    return static_cast<int32_t>(4 + random() % static_cast<uint64_t>(settings.target_vocabulary_size - 4));
  };
  std::vector<int32_t> always(100);
  std::generate(always.begin(), always.end(), any);
  std::vector<std::vector<int32_t>> all(static_cast<size_t>(settings.source_vocabulary_size),
                                        std::vector<int32_t>(static_cast<size_t>(translations)));
  for (auto& of_piece : all) std::generate(of_piece.begin(), of_piece.end(), any);
  return std::make_shared<const Shortlist>(std::move(always), std::move(all), settings.target_vocabulary_size);
}

/// How many candidates a source has, and how many sources of like length that share a batch have together: means.
std::pair<size_t, size_t> mean_candidates(const Shortlist& list, std::vector<std::vector<int64_t>> sources) {
  constexpr size_t batch = 32;
  std::stable_sort(sources.begin(), sources.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  size_t all = 0, together = 0, batches = 0;
  for (size_t first = 0; first < sources.size(); first += batch, ++batches) {
    std::set<int32_t> shared;
    for (size_t i = first; i < std::min(sources.size(), first + batch); ++i) {
      const auto candidates = list.candidates(sources[i]);
      all += candidates.size();
      shared.insert(candidates.begin(), candidates.end());
    }
    together += shared.size();
  }
  return {all / std::max<size_t>(sources.size(), 1), together / std::max<size_t>(batches, 1)};
}

/// What commands are obeyed with.
class DecodeWorker {
 public:
  DecodeWorker(const std::filesystem::path& directory, std::shared_ptr<const InferenceModel> model, int64_t threads,
               std::vector<std::vector<int64_t>> sources)
      : directory_(directory),
        model_(std::move(model)),
        threads_(threads),
        sources_(std::move(sources)),
        wishes_(directory, model_) {}

  std::string run(std::istringstream& arguments) {
    Command command{};
    arguments >> command.batch >> command.beam >> command.first >> command.count >> command.steps >> command.file;
    if (command.first + command.count > sources_.size()) arguments.setstate(std::ios::failbit);
    return arguments ? run(command) : "";
  }

  std::string shorten(std::istringstream& arguments) {
    std::string list;
    if (!(arguments >> list)) return "";
    if (list.find_first_not_of("0123456789") != std::string::npos) {
      shortlist_ = std::make_shared<const Shortlist>(Shortlist::read(list, wishes_.vocabularies()));
    } else {
      const int64_t translations = std::stoll(list);
      shortlist_ = translations > 0 ? made_up_shortlist(model_->settings(), translations) : nullptr;
    }
    if (!shortlist_) return "0 0";
    const auto [source, batch] = mean_candidates(*shortlist_, sources_);
    return fmt::format("{} {}", source, batch);
  }

  std::string wish(std::istringstream& arguments) {
    wishes_.read(arguments);
    return "done";
  }

  std::string work_with(std::istringstream& arguments) {
    arguments >> threads_;
    return "done";
  }

  std::string draft_with(std::istringstream& arguments) {
    std::string directory;
    if (!(arguments >> directory)) return "";
    draft_ = nullptr;
    engines_.clear();
    if (directory != "0") draft_ = load_model(directory, model_->precision());
    return "done";
  }

  std::string drafted() const {
    Engine::Drafted all;
    for (const auto& [_, engine] : engines_) {
      const auto drafted = engine->drafted();
      all.steps += drafted.steps;
      all.proposed += drafted.proposed;
      all.accepted += drafted.accepted;
    }
    return fmt::format("{} {} {}", all.steps, all.proposed, all.accepted);
  }

  std::string processor() const { return fmt::format("{:.6f}", processor_seconds_); }

 private:
  std::string run(const Command& command) {
    const auto sources = std::span(sources_).subspan(command.first, command.count);
    auto requests = requests_of(sources, wishes_.changed(settings_of(command)), command.steps);
    const auto plain = [&](size_t index) -> const auto& {
      return plain_output(command, command.first + index);
    };
    wishes_.put_into(requests, command.first, plain);
    for (auto& request : requests) request.shortlist = shortlist_;
    auto& engine = engine_of(command.batch, wishes_.models());
    const auto lines = wishes_.any_follow() ? wishes_.texts(sources) : std::vector<std::string>();
    const auto start = std::chrono::steady_clock::now();
    const auto processor_start = std::clock();
    const auto results = decode_all(engine, std::move(requests));
    if (wishes_.any_follow()) wishes_.follow(sources, lines, results, command.batch);
    processor_seconds_ = static_cast<double>(std::clock() - processor_start) / CLOCKS_PER_SEC;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

    size_t tokens = 0;
    std::string text;
    for (const auto& hypotheses : results) {
      const auto& best = hypotheses.front();
      tokens += best.tokens.size() + (best.finished ? 1 : 0);
      text += fmt::format("{}\n", fmt::join(best.tokens, " "));
    }
    if (command.file != "-") std::ofstream(command.file) << text;
    return fmt::format("{:.6f} {}", seconds, tokens);
  }

  static DecodingSettings settings_of(const Command& command) {
    return {.beam = command.beam,
            .alpha = 0.6,
            .length_penalty = DecodingSettings::LengthPenalty::power,
            .stop = DecodingSettings::Stop::beam_finished,
            .batch_sentences = command.batch};
  }

  static std::vector<DecodingRequest> requests_of(std::span<const std::vector<int64_t>> sources,
                                                  const DecodingSettings& settings, int64_t steps) {
    std::vector<int64_t> lengths;
    for (const auto& source : sources) {
      // Far more than a trained model's outputs have, as on the other side.
      constexpr int64_t extra = 300;
      lengths.push_back(steps > 0 ? steps : static_cast<int64_t>(source.size()) + extra);
    }
    return requests_for(sources, lengths, settings.validated(), {},
                        steps > 0 ? SentenceSearch::no_end : Vocabulary::end);
  }

  /// Of the plain search that a command asks for; those of all its sources are found at once, and kept.
  const std::vector<int64_t>& plain_output(const Command& command, size_t index) {
    auto& known = plain_outputs_[{command.beam, command.steps}];
    const size_t end = command.first + command.count;
    if (known.size() < end) {
      const auto missing = std::span(sources_).subspan(known.size(), end - known.size());
      for (auto& hypotheses :
           decode_all(engine_of(command.batch, 1), requests_of(missing, settings_of(command), command.steps))) {
        known.push_back(std::move(hypotheses.front().tokens));
      }
    }
    return known[index];
  }

  /// Long-lived, as in a program: its workers keep their memory from command to command of as many sentences at once.
  Engine& engine_of(int64_t batch, int64_t models) {
    if (batch != batch_) engines_.clear();
    batch_ = batch;
    auto& engine = engines_[{models, threads_}];
    if (engine) return *engine;
    Ensemble ensemble{.models = {model_}};
    while (std::ssize(ensemble.models) < models) ensemble.models.push_back(copy());
    engine = std::make_unique<Engine>(
        ensemble,
        Engine::Options{.threads = threads_, .batch_sentences = batch, .draft = models == 1 ? draft_ : nullptr});
    return *engine;
  }

  /// Of the model, with weights of its own, as another one would have.
  const std::shared_ptr<const InferenceModel>& copy() {
    if (!copy_) copy_ = InferenceModel::load(directory_, model_->settings(), model_->precision());
    return copy_;
  }

  const std::filesystem::path directory_;
  const std::shared_ptr<const InferenceModel> model_;
  std::shared_ptr<const InferenceModel> copy_;   // null where none has been wanted
  std::shared_ptr<const InferenceModel> draft_;  // null: none
  int64_t threads_;
  const std::vector<std::vector<int64_t>> sources_;
  Wishes wishes_;
  std::shared_ptr<const Shortlist> shortlist_;                                              // null: none
  double processor_seconds_ = 0;                                                            // of the last run
  int64_t batch_ = 0;                                                                       // of `engines_`
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<Engine>> engines_;                  // by models and threads
  std::map<std::pair<int64_t, int64_t>, std::vector<std::vector<int64_t>>> plain_outputs_;  // by beam and steps
};

/// None where the model has no such matrix.
size_t bytes_of(const PackedMatrix& matrix) {
  return matrix.outputs() > 0 ? matrix.bytes() : 0;
}

size_t bytes_of(const InferenceModel::FeedForward& layer) {
  if (const auto* attention = std::get_if<InferenceModel::ParameterAttention>(&layer)) {
    return attention->query.bytes() + attention->output.bytes() + static_cast<size_t>(attention->pairs.size());
  }
  const auto& network = std::get<InferenceModel::Network>(layer);
  return network.inner.bytes() + bytes_of(network.gate) + network.outer.bytes();
}

std::string work_of(const InferenceModel& model) {
  // What one token adds where there is no other to attend to.
  const auto multiply_adds = [&](int64_t source, int64_t target) {
    const auto flops = count_flops(model.settings(), {.rows = 1, .source_length = source, .target_length = target});
    return (flops.forward() - flops.attention_products) / 2;
  };
  size_t encoding = 0, step = model.projection().bytes();
  for (const auto& layer : model.encoder()) {
    encoding += layer.query_key_value.bytes() + layer.attention_output.bytes() + bytes_of(layer.feed_forward);
  }
  for (const auto& layer : model.decoder()) {
    encoding += layer.key_value.bytes();
    step += bytes_of(layer.recurrence) + bytes_of(layer.query_key_value) + bytes_of(layer.self_output) +
            layer.query.bytes() + layer.memory_output.bytes() + bytes_of(layer.feed_forward);
  }
  return fmt::format("{} {} {} {}", multiply_adds(1, 0), multiply_adds(0, 1), encoding, step);
}

void serve(int argc, char** argv) {
  const auto precision = argc == 5 ? precision_named(argv[2]) : std::nullopt;
  if (!precision) throw Error("decode_worker", "wants MODEL PRECISION THREADS SOURCES");
  const int64_t before = status("VmRSS");
  const std::filesystem::path directory = argv[1];
  const int64_t threads = count_of("THREADS", argv[3]);
  const auto model = load_model(directory, *precision);
  const auto sources = read_sources(argv[4]);
  std::cout << "ready " << model->kernels().name << " " << before << std::endl;

  DecodeWorker worker(directory, model, threads, sources);
  const Answer limits = [&](std::istringstream&) {
    return fmt::format("{} {}", multiply_adds_a_second(*precision, model->kernels().name), memory_bytes_a_second());
  };
  obey([&](std::istringstream& arguments) { return worker.run(arguments); },
       {{"draft", [&](std::istringstream& arguments) { return worker.draft_with(arguments); }},
        {"drafted", [&](std::istringstream&) { return worker.drafted(); }},
        {"limits", limits},
        {"processor", [&](std::istringstream&) { return worker.processor(); }},
        {"shortlist", [&](std::istringstream& arguments) { return worker.shorten(arguments); }},
        {"wish", [&](std::istringstream& arguments) { return worker.wish(arguments); }},
        {"work", [&](std::istringstream&) { return work_of(*model); }},
        {"workers", [&](std::istringstream& arguments) { return worker.work_with(arguments); }}});
}

}  // namespace

}  // namespace transformer

int main(int argc, char** argv) {
  return transformer::worker_main("decode_worker", argc, argv, transformer::serve);
}
