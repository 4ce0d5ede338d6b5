#include "transformer/inference/shortlist.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <unordered_map>

#include "transformer/base/error.h"
#include "transformer/base/tensor_file.h"

namespace transformer {

namespace {

constexpr const char* file_format = "transformer-shortlist-1";

std::vector<int32_t> frequent(const Lexicon& lexicon, const Shortlist::Options& options) {
  std::vector<int32_t> always;
  for (const int32_t target : lexicon.frequent()) {
    if (std::ssize(always) >= options.frequent) break;
    if (target > Vocabulary::unknown) always.push_back(target);
  }
  always.push_back(Vocabulary::unknown);
  return always;
}

std::vector<std::vector<int32_t>> translations(const Lexicon& lexicon, const Vocabularies& vocabularies,
                                               const Shortlist::Options& options) {
  std::unordered_map<std::string, int32_t> same;
  for (int64_t id = Vocabulary::unknown + 1; id < vocabularies.target->size(); ++id) {
    same.emplace(vocabularies.target->piece(id), static_cast<int32_t>(id));
  }
  std::vector<std::vector<int32_t>> all;
  for (int64_t source = 0; source < vocabularies.source->size(); ++source) {
    auto& of_piece = all.emplace_back();
    for (const auto& [target, probability] : lexicon.of(source)) {
      if (std::ssize(of_piece) >= options.translations || static_cast<double>(probability) < options.least) break;
      if (target > Vocabulary::unknown) of_piece.push_back(target);
    }
    const auto copy = same.find(vocabularies.source->piece(source));
    if (source > Vocabulary::unknown && copy != same.end()) of_piece.push_back(copy->second);
  }
  return all;
}

}  // namespace

Shortlist::Shortlist(std::vector<int32_t> always, std::vector<std::vector<int32_t>> translations, int64_t target_size)
    : always_(std::move(always)), target_size_(target_size) {
  const auto put_in_order = [&](std::vector<int32_t>& ids) {
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    if (!ids.empty() && (ids.front() < Vocabulary::first_written || ids.back() >= target_size)) {
      throw std::out_of_range("Shortlist: a piece that no output is written in");
    }
  };
  always_.push_back(Vocabulary::end);
  put_in_order(always_);
  starts_.push_back(0);
  for (auto& of_piece : translations) {
    put_in_order(of_piece);
    translations_.insert(translations_.end(), of_piece.begin(), of_piece.end());
    starts_.push_back(std::ssize(translations_));
  }
}

Shortlist::Shortlist(const Lexicon& lexicon, const Vocabularies& vocabularies, const Options& options)
    : Shortlist(frequent(lexicon, options), translations(lexicon, vocabularies, options), vocabularies.target->size()) {
  source_checksum_ = vocabularies.source->checksum();
  target_checksum_ = vocabularies.target->checksum();
}

void Shortlist::write(const std::filesystem::path& file) const {
  write_tensor_file(
      file,
      {{"always", {ElementType::int32, {std::ssize(always_)}, [&] { return always_.data(); }}},
       {"starts", {ElementType::int64, {std::ssize(starts_)}, [&] { return starts_.data(); }}},
       {"translations", {ElementType::int32, {std::ssize(translations_)}, [&] { return translations_.data(); }}}},
      {{"format", file_format}, {"source_vocabulary", source_checksum_}, {"target_vocabulary", target_checksum_}});
}

Shortlist Shortlist::read(const std::filesystem::path& file, const Vocabularies& vocabularies) {
  const TensorReader reader(file);
  const auto refuse = [&](const std::string& what, const std::string& remedy) {
    throw Error(file.string(), what, remedy);
  };
  const auto said = [&](const char* name) {
    const auto found = reader.metadata().find(name);
    return found == reader.metadata().end() ? std::string() : found->second;
  };
  if (said("format") != file_format) refuse("is no shortlist of this version", "name a file that `shortlist` wrote");
  if (said("source_vocabulary") != vocabularies.source->checksum() ||
      said("target_vocabulary") != vocabularies.target->checksum()) {
    refuse("was made for other vocabularies than the model's", "make one for this model: shortlist --model DIR");
  }
  const auto damaged = [&] { refuse("contradicts itself", "the file is damaged; make it anew"); };
  const auto load = [&]<class T>(const char* name, ElementType type, std::vector<T>& values) {
    const auto found = reader.entries().find(name);
    if (found == reader.entries().end() || found->second.type != type || found->second.shape.size() != 1) damaged();
    values.resize(static_cast<size_t>(found->second.elements()));
    reader.read(name, values.data());
  };
  Shortlist list;
  list.source_checksum_ = said("source_vocabulary");
  list.target_checksum_ = said("target_vocabulary");
  list.target_size_ = vocabularies.target->size();
  load("always", ElementType::int32, list.always_);
  load("starts", ElementType::int64, list.starts_);
  load("translations", ElementType::int32, list.translations_);
  const auto ascending = [&](std::span<const int32_t> ids) {
    return std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end() &&
           (ids.empty() || (ids.front() >= Vocabulary::first_written && ids.back() < vocabularies.target->size()));
  };
  if (!ascending(list.always_) || list.always_.empty() || list.always_.front() != Vocabulary::end) damaged();
  if (std::ssize(list.starts_) != vocabularies.source->size() + 1 || list.starts_.front() != 0 ||
      list.starts_.back() != std::ssize(list.translations_)) {
    damaged();
  }
  for (size_t i = 0; i + 1 < list.starts_.size(); ++i) {
    if (list.starts_[i] < 0 || list.starts_[i] > list.starts_[i + 1] ||
        list.starts_[i + 1] > std::ssize(list.translations_)) {
      damaged();
    }
    const auto first = static_cast<size_t>(list.starts_[i]), end = static_cast<size_t>(list.starts_[i + 1]);
    if (!ascending(std::span(list.translations_).subspan(first, end - first))) damaged();
  }
  return list;
}

std::vector<int32_t> Shortlist::candidates(std::span<const int64_t> source) const {
  std::vector<int32_t> ids = always_;
  for (const int64_t piece : source) {
    const auto from = static_cast<size_t>(piece);
    ids.insert(ids.end(), translations_.begin() + static_cast<std::ptrdiff_t>(starts_.at(from)),
               translations_.begin() + static_cast<std::ptrdiff_t>(starts_.at(from + 1)));
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

double Shortlist::mean_translations() const {
  return static_cast<double>(translations_.size()) / static_cast<double>(std::max<int64_t>(source_size(), 1));
}

}  // namespace transformer
