// Whether memory grows with the corpus: corpus_memory PAIRS FOLDER repeats data/tatoeba-en-de to PAIRS sentence pairs,
// and prints for every stage how much memory the process took of its own at most (RssAnon: what no file backs, so what
// the system cannot take back). Text and cache stay in FOLDER, so that a second run shows a start with a full cache.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "benchmarks/benchmark.h"
#include "transformer/text/batches.h"
#include "transformer/text/parallel_lines.h"

namespace fs = std::filesystem;
using namespace transformer;

namespace {

constexpr const char* data = "data/tatoeba-en-de";

int64_t anonymous_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8));
  }
  throw std::runtime_error("/proc/self/status has no RssAnon");
}

// Runs `work` and prints its time and the most memory that was taken meanwhile.
template <class Work>
void stage(const std::string& name, const Work& work) {
  std::atomic<int64_t> peak = anonymous_kilobytes();
  const auto begin = std::chrono::steady_clock::now();
  {
    const std::jthread watch([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        peak = std::max(peak.load(), anonymous_kilobytes());
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
    work();
  }
  peak = std::max(peak.load(), anonymous_kilobytes());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  fmt::print("{:<34} {:>8.1f} s  {:>7} MB at most, {:>5} MB after\n", name, seconds.count(), peak / 1024,
             anonymous_kilobytes() / 1024);
  std::fflush(stdout);
}

void repeat_text(int64_t pairs, const fs::path& source_file, const fs::path& target_file) {
  if (fs::exists(source_file) && fs::exists(target_file)) return;
  std::ofstream source(source_file, std::ios::binary), target(target_file, std::ios::binary);
  for (int64_t written = 0; written < pairs;) {
    ParallelLines lines(fmt::format("{}/train.en.gz", data), fmt::format("{}/train.de.gz", data));
    for (std::string a, b; written < pairs && lines.next(a, b); ++written) {
      source << a << '\n';
      target << b << '\n';
    }
  }
  if (!source.flush() || !target.flush()) throw std::runtime_error("the text cannot be written");
}

void run(int64_t pairs, const fs::path& folder) {
  fs::create_directories(folder);
  const auto source = folder / fmt::format("{}.en", pairs), target = folder / fmt::format("{}.de", pairs);
  const auto model = folder / fmt::format("{}.model", pairs);
  stage("writing the text", [&] { repeat_text(pairs, source, target); });
  stage("learning from 200,000 sentences", [&] {
    if (!fs::exists(model)) Vocabulary::train({source, target}, 8000, {.sample_sentences = 200'000}, model);
  });
  const Vocabulary vocabulary(model);
  std::optional<Corpus> corpus;
  const auto read = [&] {
    corpus = Corpus::read({source.string()}, {target.string()}, vocabulary, vocabulary, {.cache = folder / "cache"});
  };
  stage("reading, tokenised where not cached", read);
  corpus.reset();
  stage("reading from the cache", read);
  if (corpus->report().from_cache != 1) throw std::runtime_error("it was not in the cache");

  std::optional<Batches> batches;
  int64_t count = 0, tokens = 0;
  stage("planning an epoch", [&] {
    batches.emplace(*corpus, Batches::Options{.batch_tokens = 25000, .weights = {1}}, 0);
    count = batches->size();
  });
  batches.reset();
  stage("walking an epoch", [&] {
    batches.emplace(*corpus, Batches::Options{.batch_tokens = 25000}, 0);
    for (Batch batch; batches->next(batch);) tokens += batch.target_tokens;
  });
  batches.reset();
  stage("resuming at its last batch", [&] {
    batches.emplace(*corpus, Batches::Options{.batch_tokens = 25000}, 0, count - 1);
    Batch batch;
    if (!batches->next(batch) || batches->next(batch)) throw std::runtime_error("that was not the last batch");
  });
  fmt::print("{} pairs in {} batches, {} target tokens\n", corpus->size(), count, tokens);
}

}  // namespace

int main(int argc, char** argv) {
  return run_benchmark(argc, argv, "Whether memory grows with the corpus; runs in the project's root",
                       [](CLI::App& app, const auto& parse) {
                         int64_t pairs = 0;
                         std::string folder;
                         app.add_option("PAIRS", pairs, "Sentence pairs")->required()->check(above_zero());
                         app.add_option("FOLDER", folder, "Where text and cache stay")->required();
                         parse();
                         run(pairs, folder);
                       });
}
