// An entry of the cache of tokenised text: its five files. Without corpus.json they get one that fits them, with the
// number of pairs from the file `pairs`: no fuzzer guesses checksums.

#include "transformer/text/corpus_cache.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "fuzz/fuzz.h"
#include "transformer/base/checksum.h"
#include "transformer/text/vocabulary.h"

using namespace transformer;

namespace {

constexpr int64_t vocabulary_size = 100;

CorpusReport tokenise(const TakePair& take) {
  const std::array<int32_t, 3> source{4, 5, 6};
  const std::array<int32_t, 2> target{7, 99};
  take(source, target);
  take(target, source);
  CorpusReport report;
  report.pairs = 2;
  return report;
}

struct Prepared {
  std::filesystem::path text, folder, entry;
  CorpusPart part() const {
    return CorpusCache(folder).part(
        text, text, {.text = "", .source_vocabulary_size = vocabulary_size, .target_vocabulary_size = vocabulary_size},
        tokenise);
  }
  Prepared() : text(fuzz::write_scratch("text", "one\ntwo\n")), folder(fuzz::scratch() / "cache") {
    part();
    for (const auto& item : std::filesystem::directory_iterator(folder)) {
      if (item.is_directory()) entry = item.path();
    }
  }
};

const fuzz::Target target("corpus_cache", [](std::string_view input) {
  static const Prepared prepared;
  auto files = fuzz::files_of(input);
  std::string manifest;
  if (!files.contains("corpus.json")) {
    int64_t pairs = 0;
    const auto text = files["pairs"];
    std::from_chars(text.data(), text.data() + text.size(), pairs);
    nlohmann::json json{{"format", 1}, {"pairs", pairs}, {"empty", 0}, {"too_long", 0}, {"ratio", 0}};
    for (const char* name : {"source.ids", "source.offsets", "target.ids", "target.offsets"}) {
      Checksum checksum;
      checksum.add(files[name]);
      json["files"][name] = {{"bytes", files[name].size()}, {"checksum", checksum.text()}};
    }
    manifest = json.dump();
    files["corpus.json"] = manifest;
  }
  files.erase("pairs");
  fuzz::write_folder("cache/" + prepared.entry.filename().string(), files);
  const auto part = prepared.part();
  fuzz::require(part.source_offsets.size() == part.target_offsets.size(), "both sides have as many sentences");
  int64_t longest = 0;
  const auto check = [&](std::span<const int32_t> ids, std::span<const int64_t> offsets) {
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      longest = std::max(longest, offsets[i + 1] - offsets[i]);
      for (const auto id : ids.subspan(offsets[i], offsets[i + 1] - offsets[i])) {
        fuzz::require(id >= Vocabulary::unknown && id < vocabulary_size, "ids are of the vocabulary");
      }
    }
  };
  check(part.source_ids, part.source_offsets);
  check(part.target_ids, part.target_offsets);
  fuzz::require(longest == part.longest, "the longest sentence is as long as it is said to be");
});

}  // namespace
