// Our side of scripts/bench decode: decode_worker MODEL PRECISION THREADS SOURCES. Loads a model directory, then obeys
// one command a line from standard input and answers each with a line, so that both sides can take turns while each
// stays loaded. benchmarks/peers/ctranslate2_decode.py is the same for CTranslate2.
//
//   run BATCH BEAM FIRST COUNT STEPS FILE
//     Decodes COUNT of the sources from FIRST on. STEPS 0: until the end tokens. Otherwise no token ends an output, and
//     each has STEPS tokens, which take as many steps. Answers "SECONDS TOKENS", ends included, and writes the outputs'
//     ids to FILE, a line each, unless it is "-".
//   memory
//     Answers "PEAK NOW", in bytes of resident memory.
//
// The first line of output is "ready NAME BYTES": of kernels or version, and resident memory before the model was
// loaded.
//
// SOURCES holds a sentence a line, ids of pieces without the end.

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "peers/worker.h"
#include "transformer/base/settings.h"
#include "transformer/inference/continuous_search.h"
#include "transformer/inference/inference_model.h"

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

struct Command {
  int64_t batch, beam;
  size_t first, count;
  int64_t steps;
  std::string file;
};

/// Long-lived, as in a program: its workers keep their memory from command to command.
Engine& engine_of(const std::shared_ptr<const InferenceModel>& model, int64_t threads, int64_t batch) {
  static std::unique_ptr<Engine> engine;
  if (!engine || engine->options().batch_sentences != batch) {
    engine = std::make_unique<Engine>(model, Engine::Options{.threads = threads, .batch_sentences = batch});
  }
  return *engine;
}

std::string run(const std::shared_ptr<const InferenceModel>& model, int64_t threads,
                const std::vector<std::vector<int64_t>>& all, const Command& command) {
  const auto sources = std::span(all).subspan(command.first, command.count);
  std::vector<int64_t> lengths;
  for (const auto& source : sources) {
    // Far more than a trained model's outputs have, as on the other side.
    constexpr int64_t extra = 300;
    lengths.push_back(command.steps > 0 ? command.steps : static_cast<int64_t>(source.size()) + extra);
  }
  const DecodingSettings settings{.beam = command.beam,
                                  .alpha = 0.6,
                                  .length_penalty = DecodingSettings::LengthPenalty::power,
                                  .stop = DecodingSettings::Stop::beam_finished,
                                  .batch_sentences = command.batch};
  auto& engine = engine_of(model, threads, command.batch);
  const auto start = std::chrono::steady_clock::now();
  const auto results = decode_all(engine, requests_for(sources, lengths, settings.validated(), {},
                                                       command.steps > 0 ? SentenceSearch::no_end : Vocabulary::end));
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

void serve(int argc, char** argv) {
  const std::map<std::string, Precision> precisions = {
      {"float32", Precision::float32}, {"bf16", Precision::bf16}, {"int8", Precision::int8}};
  if (argc != 5 || !precisions.contains(argv[2])) {
    throw Error("decode_worker", "wants MODEL PRECISION THREADS SOURCES");
  }
  const int64_t before = status("VmRSS");
  const std::filesystem::path directory = argv[1];
  const int64_t threads = std::stoll(argv[3]);
  ModelSettings model_settings;
  Settings settings;
  settings.section("model", model_settings, "");
  settings.load(directory / "config.yaml", UnknownSections::ignored);
  const std::shared_ptr<const InferenceModel> model =
      InferenceModel::load(directory, model_settings.resolved(), precisions.at(argv[2]));
  const auto sources = read_sources(argv[4]);
  std::cout << "ready " << model->kernels().name << " " << before << std::endl;

  obey([&](std::istringstream& arguments) -> std::string {
    Command command{};
    arguments >> command.batch >> command.beam >> command.first >> command.count >> command.steps >> command.file;
    if (command.first + command.count > sources.size()) arguments.setstate(std::ios::failbit);
    return arguments ? run(model, threads, sources, command) : "";
  });
}

}  // namespace

}  // namespace transformer

int main(int argc, char** argv) {
  return transformer::worker_main("decode_worker", argc, argv, transformer::serve);
}
