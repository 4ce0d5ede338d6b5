#include "transformer/text/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "transformer/base/checksum.h"
#include "transformer/base/counted.h"
#include "transformer/base/document.h"
#include "transformer/base/error.h"
#include "transformer/base/threads.h"
#include "transformer/base/unicode.h"
#include "transformer/text/corpus_cache.h"
#include "transformer/text/mixture.h"
#include "transformer/text/normalization.h"
#include "transformer/text/parallel_lines.h"

namespace transformer {

namespace {

// Pairs read before they are encoded: enough to keep every thread busy, little memory whatever the corpus's size.
constexpr size_t chunk = 1 << 16;
constexpr size_t chunk_bytes = size_t{64} << 20;
constexpr size_t usual_line = 1 << 12;
// That a thread encodes together, which is worth its start.
constexpr size_t pairs_at_once = 256;

struct EncodedPair {
  std::vector<int32_t> source, target;
};

constexpr size_t longest_tag = 64;  // bytes

// What is in a corpus and what is not.
enum class Verdict { kept, empty, too_long, ratio };

Verdict judge(const EncodedPair& pair, const Corpus::Options& options) {
  const auto source = static_cast<int64_t>(pair.source.size()), target = static_cast<int64_t>(pair.target.size());
  const int64_t shorter = std::min(source, target), longer = std::max(source, target);
  if (shorter == 0) return Verdict::empty;
  if (longer > options.max_length) return Verdict::too_long;
  const bool judged = options.max_length_ratio > 0 && longer > Corpus::ratio_judged_above;
  if (judged && static_cast<double>(longer) > options.max_length_ratio * static_cast<double>(shorter)) {
    return Verdict::ratio;
  }
  return Verdict::kept;
}

// The pieces that texts begin with, of vocabularies of many languages.
struct Told {
  std::optional<int64_t> source, target;
  std::string text() const {
    return source || target ? fmt::format("\nlanguages {} {}", source.value_or(-1), target.value_or(-1)) : "";
  }
};

std::optional<int64_t> language_of(const Vocabulary& vocabulary, const std::string& code, const char* setting) {
  if (code.empty()) return std::nullopt;
  const int64_t piece = vocabulary.languages().piece(code, setting);
  if (vocabulary.languages().behind_end) {
    throw Error(setting, "this model reads a source's language behind its end, and cannot be trained so",
                "import it without 'legacy_behaviour'");
  }
  return piece;
}

// Passes the pairs of two parallel files to `take` as ids.
CorpusReport tokenise(const std::string& source_file, const std::string& target_file,
                      const Vocabulary& source_vocabulary, const Vocabulary& target_vocabulary,
                      const Corpus::Options& options, const Told& told, const std::vector<int64_t>& tag,
                      const TakePair& take,
                      const std::function<void(int64_t pairs, std::optional<double> share)>& progressed) {
  CorpusReport report;
  const int64_t most_threads = std::min<int64_t>(default_threads(), 16);
  const auto limit = static_cast<size_t>(options.max_length);
  Checksum checksum;
  const auto add_line = [&](std::string_view line) {
    const uint64_t bytes = line.size();  // or "a" and "b c" would be "a b" and "c"
    checksum.add(&bytes, sizeof(bytes));
    checksum.add(line);
  };
  ParallelLines lines(source_file, target_file);
  int64_t read = 0;
  std::vector<std::string> sources(chunk), targets(chunk);
  std::vector<EncodedPair> encoded(chunk);
  const auto encode = [](const Vocabulary& vocabulary, const std::string& line, std::optional<int64_t> language,
                         const std::vector<int64_t>& before) {
    auto ids = vocabulary.encode_line(line);
    if (ids.empty()) return std::vector<int32_t>();
    ids.insert(ids.begin(), before.begin(), before.end());
    if (language) ids.insert(ids.begin(), *language);
    return std::vector<int32_t>(ids.begin(), ids.end());
  };
  for (bool more = true; more;) {
    size_t count = 0;
    size_t bytes = 0;
    while (count < chunk && bytes < chunk_bytes && (more = lines.next(sources[count], targets[count]))) {
      add_line(sources[count]);
      add_line(targets[count]);
      bytes += sources[count].size() + targets[count].size();
      ++count;
    }
    in_parallel(count, pairs_at_once, most_threads, [&](size_t first, size_t last) {
      for (size_t i = first; i < last; ++i) {
        encoded[i] = {encode(source_vocabulary, sources[i], told.source, tag),
                      encode(target_vocabulary, targets[i], told.target, {})};
      }
    });
    for (size_t i = 0; i < count; ++i) {
      for (auto* line : {&sources[i], &targets[i]}) {
        if (line->capacity() > usual_line) std::string().swap(*line);  // or each of them grew in the end
      }
      auto& pair = encoded[i];
      const Verdict verdict = judge(pair, options);
      report.empty += verdict == Verdict::empty;
      const bool cut = std::max(pair.source.size(), pair.target.size()) > limit;
      report.too_long += options.keep_all ? cut : verdict == Verdict::too_long;
      report.ratio += verdict == Verdict::ratio;
      if (verdict != Verdict::kept && !options.keep_all) continue;
      pair.source.resize(std::min(pair.source.size(), limit));
      pair.target.resize(std::min(pair.target.size(), limit));
      take(pair.source, pair.target);
      ++report.pairs;
      report.source_tokens += static_cast<int64_t>(pair.source.size());
      report.target_tokens += static_cast<int64_t>(pair.target.size());
    }
    read += static_cast<int64_t>(count);
    progressed(read, lines.share());
  }
  report.checksum = checksum.text();
  return report;
}

// The bytes of each file, as far as they are known: how much of the text each is.
std::vector<double> file_sizes(const std::vector<std::string>& files) {
  std::vector<double> sizes;
  for (const auto& file : files) {
    std::error_code error;
    const auto bytes = std::filesystem::is_regular_file(file, error) ? std::filesystem::file_size(file, error) : 0;
    sizes.push_back(error ? 0 : static_cast<double>(bytes));
  }
  return sizes;
}

// A part in memory of what `tokenise` passes on.
CorpusPart in_memory(const CorpusCache::Tokenise& tokenise) {
  struct Storage {
    std::vector<int32_t> source_ids, target_ids;
    std::vector<int64_t> source_offsets{0}, target_offsets{0};
  };
  const auto storage = std::make_shared<Storage>();
  CorpusPart part;
  const auto append = [&](std::span<const int32_t> ids, std::vector<int32_t>& all, std::vector<int64_t>& offsets) {
    all.insert(all.end(), ids.begin(), ids.end());
    offsets.push_back(static_cast<int64_t>(all.size()));
    part.longest = std::max(part.longest, static_cast<int64_t>(ids.size()));
  };
  part.report = tokenise([&](std::span<const int32_t> source, std::span<const int32_t> target) {
    append(source, storage->source_ids, storage->source_offsets);
    append(target, storage->target_ids, storage->target_offsets);
  });
  part.source_ids = storage->source_ids;
  part.target_ids = storage->target_ids;
  part.source_offsets = storage->source_offsets;
  part.target_offsets = storage->target_offsets;
  part.storage = storage;
  return part;
}

}  // namespace

std::string CorpusReport::cut_text(int64_t max_length) const {
  return fmt::format("{} of {} {} more than {} pieces on a side, and {} judged up to there", too_long,
                     counted(pairs, "pair"), too_long == 1 ? "has" : "have", max_length, too_long == 1 ? "is" : "are");
}

void DataSettings::describe(Fields<DataSettings>& field) {
  using S = DataSettings;
  field("train_source", &S::train_source, "text to learn from, one sentence a line, plain or .gz");
  field("train_target", &S::train_target, "its translation, line by line; as many files as train_source");
  field("train_weights", &S::train_weights,
        "how often an epoch uses each pair of training files: 2: every sentence pair twice; 0.5: one half, the other "
        "half in the next epoch; 0: none; empty: all once",
        between(0, Mixture::largest_weight));
  field("train_tags", &S::train_tags,
        "a word that every source sentence of each pair of training files begins with, such as <BT> before machines' "
        "translations, \"\" for none; a vocabulary that is learned has it as one piece; empty: none anywhere");
  field("validation_source", &S::validation_source, "text to watch progress on").changeable();
  field("validation_target", &S::validation_target, "its translation, line by line").changeable();
  field("max_length", &S::max_length, "pieces a side; longer pairs are left out of training", between(1, 1e6));
  field("max_length_ratio", &S::max_length_ratio,
        fmt::format("pairs with more than {} pieces on one side, and more than this times as many as on the other, are "
                    "left out of training; 0: none; 2 costs 0.2 % of clean text",
                    Corpus::ratio_judged_above),
        between(0, 1e6));
  field("source_language", &S::source_language,
        "of the text, where the model knows many languages: as the model calls it, such as eng_Latn, en_XX or en");
  field("target_language", &S::target_language, "of its translation, where the model knows many languages");
  field("cache", &S::cache, "where tokenised text is kept, memory-mapped; empty: in the run's folder").free();
  field("vocabulary", &S::vocabulary,
        "the vocabulary to use instead of learning one: a vocabulary.model of SentencePiece's, or two, [source.model, "
        "target.model], where vocabulary.joint is false; what else the section vocabulary says is not looked at then");
}

void check_tags(const std::vector<std::string>& tags, size_t corpora) {
  const std::string where = "data.train_tags";
  if (tags.empty()) return;
  if (tags.size() != corpora) {
    throw Error(where,
                fmt::format("{} for {} of training files", counted(tags.size(), "tag"), counted(corpora, "pair")),
                "give one for each, in the order of the files, \"\" where there is none");
  }
  for (const auto& tag : tags) {
    if (tag.empty() ||
        (normalized(tag) == tag && tag.find_first_of(" ,") == std::string::npos && tag.size() <= longest_tag)) {
      continue;
    }
    throw Error(where, in_quotes(tag) + " is no tag",
                fmt::format("a tag is one word, without commas, of at most {} bytes, such as <BT>", longest_tag));
  }
}

std::vector<std::string> distinct_tags(std::vector<std::string> tags) {
  std::sort(tags.begin(), tags.end());
  tags.erase(std::unique(tags.begin(), tags.end()), tags.end());
  std::erase(tags, "");
  return tags;
}

std::vector<std::string> tags_of_model(const std::filesystem::path& config_yaml) {
  std::vector<std::string> tags;
  for (const auto& section : Document::read(config_yaml).keys()) {
    if (section.key != "data") continue;
    for (const auto& setting : section.value.keys()) {
      if (setting.key != "train_tags") continue;
      for (const auto& tag : setting.value.elements()) tags.push_back(tag.text());
    }
  }
  return distinct_tags(std::move(tags));
}

Corpus Corpus::read(const std::vector<std::string>& source_files, const std::vector<std::string>& target_files,
                    const Vocabulary& source_vocabulary, const Vocabulary& target_vocabulary, const Options& options) {
  check_file_counts(source_files, target_files);
  if (options.max_length_ratio != 0 && !(options.max_length_ratio >= 1)) {
    throw Error("data.max_length_ratio", fmt::format("{} leaves no pair", options.max_length_ratio),
                "the longer side is at least once as long as the shorter: give 1 or more, or 0 for no limit");
  }
  const Told told{language_of(source_vocabulary, options.source_language, "data.source_language"),
                  language_of(target_vocabulary, options.target_language, "data.target_language")};
  check_tags(options.tags, source_files.size());
  std::optional<CorpusCache> cache;
  if (!options.cache.empty()) cache.emplace(options.cache);
  const CorpusCache::Recipe recipe{
      .text = fmt::format("source vocabulary {}\ntarget vocabulary {}\nmax_length {}\nmax_length_ratio {} above {}\n"
                          "keep_all {}{}",
                          source_vocabulary.checksum(), target_vocabulary.checksum(), options.max_length,
                          options.max_length_ratio, ratio_judged_above, options.keep_all, told.text()),
      .source_vocabulary_size = source_vocabulary.size(),
      .target_vocabulary_size = target_vocabulary.size()};

  const auto sizes = file_sizes(source_files);
  const double all = std::accumulate(sizes.begin(), sizes.end(), 0.0);
  int64_t pairs_before = 0;
  double bytes_before = 0;
  Corpus corpus;
  for (size_t file = 0; file < source_files.size(); ++file) {
    const auto& source = source_files[file];
    const auto& target = target_files[file];
    const auto tag = options.tags.empty() ? std::vector<int64_t>() : source_vocabulary.encode(options.tags[file]);
    const auto encode = [&](const TakePair& take) {
      int64_t latest = 0;
      const auto progressed = [&](int64_t pairs, std::optional<double> share) {
        latest = pairs;
        if (share && all > 0) share = (bytes_before + *share * sizes[file]) / all;
        if (options.progressed) options.progressed(pairs_before + pairs, share);
      };
      auto report =
          tokenise(source, target, source_vocabulary, target_vocabulary, options, told, tag, take, progressed);
      pairs_before += latest;
      return report;
    };
    // A pipe cannot be read twice, first for its checksum. And what does not exist is better named by its reader.
    std::error_code ignored;
    const bool regular =
        std::filesystem::is_regular_file(source, ignored) && std::filesystem::is_regular_file(target, ignored);
    auto of_tag = recipe;
    if (!tag.empty()) of_tag.text += fmt::format("\ntag {}", fmt::join(tag, " "));
    corpus.add(cache && regular ? cache->part(source, target, of_tag, encode) : in_memory(encode));
    bytes_before += sizes[file];
  }
  return corpus;
}

Corpus Corpus::of(const std::vector<std::vector<int64_t>>& sources, const std::vector<std::vector<int64_t>>& targets) {
  if (sources.size() != targets.size()) {
    throw Error("corpus", fmt::format("{} sources, but {} targets", sources.size(), targets.size()),
                "give each source its target");
  }
  Corpus corpus;
  corpus.add(in_memory([&](const TakePair& take) {
    CorpusReport report;
    Checksum checksum;
    const auto narrowed = [&](const std::vector<int64_t>& ids) {
      std::vector<int32_t> narrow;
      narrow.reserve(ids.size());
      for (const int64_t id : ids) {
        if (id < 0 || id > std::numeric_limits<int32_t>::max()) {
          throw Error(fmt::format("pair {} of the corpus", report.pairs + 1), fmt::format("has the id {}", id),
                      "ids go from 0 to 2147483647");
        }
        narrow.push_back(static_cast<int32_t>(id));
      }
      const uint64_t length = narrow.size();
      checksum.add(&length, sizeof(length));
      checksum.add(narrow.data(), narrow.size() * sizeof(int32_t));
      return narrow;
    };
    for (size_t i = 0; i < sources.size(); ++i) {
      const auto source = narrowed(sources[i]), target = narrowed(targets[i]);
      take(source, target);
      ++report.pairs;
      report.source_tokens += static_cast<int64_t>(source.size());
      report.target_tokens += static_cast<int64_t>(target.size());
    }
    report.checksum = checksum.text();
    return report;
  }));
  return corpus;
}

void Corpus::add(CorpusPart part) {
  const auto& report = part.report;
  report_.pairs += report.pairs;
  report_.empty += report.empty;
  report_.too_long += report.too_long;
  report_.ratio += report.ratio;
  report_.source_tokens += report.source_tokens;
  report_.target_tokens += report.target_tokens;
  report_.from_cache += report.from_cache;
  report_.warnings.insert(report_.warnings.end(), report.warnings.begin(), report.warnings.end());
  starts_.push_back(starts_.back() + part.pairs());
  parts_.push_back(std::move(part));
}

std::vector<int64_t> Corpus::sizes() const {
  std::vector<int64_t> sizes;
  for (const auto& part : parts_) sizes.push_back(part.pairs());
  return sizes;
}

std::string Corpus::checksum() const {
  Checksum checksum;
  for (const auto& part : parts_) checksum.add(part.report.checksum);
  return checksum.text();
}

int64_t Corpus::longest(const std::vector<double>& weights) const {
  check_weights(weights, parts_.size());
  int64_t longest = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (weights.empty() || weights[i] > 0) longest = std::max(longest, parts_[i].longest);
  }
  return longest;
}

std::vector<int64_t> Corpus::source(int64_t pair) const {
  const auto ids = source_ids(pair);
  return {ids.begin(), ids.end()};
}

std::vector<int64_t> Corpus::target(int64_t pair) const {
  const auto ids = target_ids(pair);
  return {ids.begin(), ids.end()};
}

}  // namespace transformer
