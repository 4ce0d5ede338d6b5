#include "transformer/text/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <thread>

#include "transformer/base/error.h"

namespace transformer {

namespace {

// Pairs read before they are encoded: enough to keep every thread busy, little beside the ids themselves.
constexpr size_t chunk = 1 << 16;

struct EncodedPair {
  std::vector<int64_t> source, target;
};

// Calls work(i) for every i < count from several threads; the first exception comes out here.
template <class Work>
void in_parallel(size_t count, const Work& work) {
  const size_t threads = std::clamp<size_t>(std::min<size_t>(std::thread::hardware_concurrency(), count / 256), 1, 16);
  std::vector<std::exception_ptr> errors(threads);
  const auto share = [&](size_t thread) {
    try {
      for (size_t i = count * thread / threads; i < count * (thread + 1) / threads; ++i) work(i);
    } catch (...) {
      errors[thread] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (size_t thread = 1; thread < threads; ++thread) others.emplace_back(share, thread);
    share(0);
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

// The lines that both files still hold must be as many.
[[noreturn]] void throw_unequal(const std::string& source_file, LineReader& source, const std::string& target_file,
                                LineReader& target) {
  std::string line;
  while (source.next(line)) continue;
  while (target.next(line)) continue;
  throw Error("",
              fmt::format("{} has {} lines but {} has {}", source_file, source.count(), target_file, target.count()),
              "line n of one must be the translation of line n of the other");
}

}  // namespace

void DataSettings::describe(Fields<DataSettings>& field) {
  using S = DataSettings;
  field("train_source", &S::train_source, "text to learn from, one sentence a line, plain or .gz");
  field("train_target", &S::train_target, "its translation, line by line; as many files as train_source");
  field("validation_source", &S::validation_source, "text to watch progress on");
  field("validation_target", &S::validation_target, "its translation, line by line");
  field("max_length", &S::max_length, "pieces a side; longer pairs are left out of training", at_least(1));
}

Corpus Corpus::read(const std::vector<std::string>& source_files, const std::vector<std::string>& target_files,
                    const Vocabulary& source_vocabulary, const Vocabulary& target_vocabulary, const Options& options) {
  if (source_files.size() != target_files.size()) {
    throw Error("", fmt::format("{} source files but {} target files", source_files.size(), target_files.size()),
                "every source file needs its translation: name the files in the same order on both sides");
  }
  Corpus corpus;
  CorpusReport& report = corpus.report_;
  const auto limit = static_cast<size_t>(options.max_length);
  const auto append = [](const std::vector<int64_t>& ids, std::vector<int32_t>& all, std::vector<int64_t>& offsets) {
    all.insert(all.end(), ids.begin(), ids.end());
    offsets.push_back(static_cast<int64_t>(all.size()));
  };

  std::vector<std::string> sources(chunk), targets(chunk);
  std::vector<EncodedPair> encoded(chunk);
  const auto encode = [&](size_t count) {
    in_parallel(count, [&](size_t i) {
      encoded[i] = {source_vocabulary.encode(trim(sources[i])), target_vocabulary.encode(trim(targets[i]))};
    });
    for (size_t i = 0; i < count; ++i) {
      auto& [source, target] = encoded[i];
      const bool empty = source.empty() || target.empty();
      const bool too_long = source.size() > limit || target.size() > limit;
      report.empty += empty;
      report.too_long += too_long && !empty;
      if ((empty || too_long) && !options.keep_all) continue;
      source.resize(std::min(source.size(), limit));
      target.resize(std::min(target.size(), limit));
      append(source, corpus.source_ids_, corpus.source_offsets_);
      append(target, corpus.target_ids_, corpus.target_offsets_);
    }
  };

  size_t count = 0;
  for (size_t file = 0; file < source_files.size(); ++file) {
    LineReader source(source_files[file]), target(target_files[file]);
    for (;;) {
      const bool more = source.next(sources[count]);
      if (more != target.next(targets[count])) throw_unequal(source_files[file], source, target_files[file], target);
      if (!more) break;
      if (++count == chunk) {
        encode(count);
        count = 0;
      }
    }
  }
  encode(count);

  report.pairs = corpus.size();
  report.source_tokens = corpus.source_offsets_.back();
  report.target_tokens = corpus.target_offsets_.back();
  return corpus;
}

std::span<const int32_t> Corpus::source_ids(int64_t pair) const {
  return {source_ids_.data() + source_offsets_[pair], static_cast<size_t>(source_length(pair))};
}

std::span<const int32_t> Corpus::target_ids(int64_t pair) const {
  return {target_ids_.data() + target_offsets_[pair], static_cast<size_t>(target_length(pair))};
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
