// Our side of scripts/bench decode: decode_worker MODEL PRECISION THREADS SOURCES. Loads a model directory, then obeys
// one command a line from standard input and answers each with a line, so that both sides can take turns while each
// stays loaded. benchmarks/peers/ctranslate2_decode.py is the same for CTranslate2.
//
//   run BATCH BEAM FIRST COUNT STEPS FILE
//     Decodes COUNT of the sources from FIRST on. STEPS 0: until the end tokens. Otherwise no token ends an output, and
//     each has STEPS tokens, which take as many steps. Answers "SECONDS TOKENS", ends included, and writes the outputs'
//     ids to FILE, a line each, unless it is "-".
//   shortlist TRANSLATIONS
//     From now on outputs are written in a list's candidates: as many made-up translations of each piece; 0: in all.
//     Answers how many candidates a source has on average.
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

#include <chrono>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "peers/limits.h"
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

std::string run(const std::shared_ptr<const InferenceModel>& model, int64_t threads,
                const std::vector<std::vector<int64_t>>& all, const std::shared_ptr<const Shortlist>& shortlist,
                const Command& command) {
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
  auto requests = requests_for(sources, lengths, settings.validated(), {},
                               command.steps > 0 ? SentenceSearch::no_end : Vocabulary::end);
  for (auto& request : requests) request.shortlist = shortlist;
  const auto start = std::chrono::steady_clock::now();
  const auto results = decode_all(engine, std::move(requests));
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

size_t bytes_of(const InferenceModel::FeedForward& layer) {
  if (const auto* attention = std::get_if<InferenceModel::ParameterAttention>(&layer)) {
    return attention->query.bytes() + attention->output.bytes() + static_cast<size_t>(attention->pairs.size());
  }
  const auto& network = std::get<InferenceModel::Network>(layer);
  return network.inner.bytes() + (network.gate.outputs() > 0 ? network.gate.bytes() : 0) + network.outer.bytes();
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
    step += layer.query_key_value.bytes() + layer.self_output.bytes() + layer.query.bytes() +
            layer.memory_output.bytes() + bytes_of(layer.feed_forward);
  }
  return fmt::format("{} {} {} {}", multiply_adds(1, 0), multiply_adds(0, 1), encoding, step);
}

void serve(int argc, char** argv) {
  const auto precision = argc == 5 ? precision_named(argv[2]) : std::nullopt;
  if (!precision) throw Error("decode_worker", "wants MODEL PRECISION THREADS SOURCES");
  const int64_t before = status("VmRSS");
  const std::filesystem::path directory = argv[1];
  const int64_t threads = std::stoll(argv[3]);
  ModelSettings model_settings;
  Settings settings;
  settings.section("model", model_settings, "");
  settings.load(directory / "config.yaml", UnknownSections::ignored);
  const std::shared_ptr<const InferenceModel> model =
      InferenceModel::load(directory, model_settings.resolved(), *precision);
  const auto sources = read_sources(argv[4]);
  std::cout << "ready " << model->kernels().name << " " << before << std::endl;

  std::shared_ptr<const Shortlist> shortlist;
  const Answer decode = [&](std::istringstream& arguments) -> std::string {
    Command command{};
    arguments >> command.batch >> command.beam >> command.first >> command.count >> command.steps >> command.file;
    if (command.first + command.count > sources.size()) arguments.setstate(std::ios::failbit);
    return arguments ? run(model, threads, sources, shortlist, command) : "";
  };
  const Answer shorten = [&](std::istringstream& arguments) -> std::string {
    int64_t translations = 0;
    if (!(arguments >> translations)) return "";
    shortlist = translations > 0 ? made_up_shortlist(model->settings(), translations) : nullptr;
    size_t candidates = 0;
    for (const auto& source : sources) candidates += shortlist ? shortlist->candidates(source).size() : 0;
    return std::to_string(candidates / std::max<size_t>(sources.size(), 1));
  };
  const Answer limits = [&](std::istringstream&) {
    return fmt::format("{} {}", multiply_adds_a_second(*precision, model->kernels().name), memory_bytes_a_second());
  };
  obey(decode,
       {{"limits", limits}, {"shortlist", shorten}, {"work", [&](std::istringstream&) { return work_of(*model); }}});
}

}  // namespace

}  // namespace transformer

int main(int argc, char** argv) {
  return transformer::worker_main("decode_worker", argc, argv, transformer::serve);
}
