#include "transformer/inference/draft_batch.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "transformer/base/error.h"
#include "transformer/inference/inference_model.h"

namespace transformer {

namespace {

// Rows that are only read, of a step: a step has room for the whole vocabulary's logits of each.
constexpr size_t most_missed = 64;

}  // namespace

DraftBatch::DraftBatch(const InferenceModel& model, DraftPace& pace) : batch_(model), pace_(pace) {}

std::vector<int64_t> DraftBatch::add(std::span<const DecodingRequest* const> requests) {
  std::vector<InferenceBatch::Source> sources;
  for (const auto* request : requests) {
    sources.push_back({.pieces = request->source, .candidates = request->candidates()});
  }
  auto places = batch_.add(sources);
  for (const int64_t place : places) {
    if (place >= std::ssize(read_)) read_.resize(static_cast<size_t>(place) + 1);
    read_[static_cast<size_t>(place)].clear();
  }
  return places;
}

void DraftBatch::remove(int64_t place) {
  batch_.remove(place);
}

void DraftBatch::clear() {
  batch_.clear();
}

void DraftBatch::read_ahead(std::span<Unread> unread) {
  std::vector<InferenceBatch::Row> rows;
  const auto step = [&] {
    if (rows.empty()) return;
    const CpuClock clock;
    batch_.step(rows, 1);
    pace_.draft().observe(std::ssize(rows), clock.seconds());
    rows.clear();
  };
  for (auto& [guess, tokens] : unread) {
    auto& read = read_[static_cast<size_t>(guess->place)];
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      rows.push_back({guess->place, 0, tokens[i], false, /*follows=*/i > 0 && !rows.empty()});
      read.push_back(tokens[i]);
      if (rows.size() == most_missed) step();
    }
    tokens.erase(tokens.begin(), tokens.end() - 1);
  }
  step();
}

void DraftBatch::propose(std::span<Guess> guesses) {
  std::vector<Unread> active;
  for (auto& guess : guesses) {
    if (guess.most < 1) continue;
    auto& read = read_[static_cast<size_t>(guess.place)];
    // The newest token is read in any case: what it is followed by is asked for.
    const auto known = guess.read.end() - 1;
    const auto agreed = std::mismatch(guess.read.begin(), known, read.begin(), read.end()).first;
    const auto same = agreed - guess.read.begin();
    if (same < std::ssize(read)) {
      if (same == 0) throw std::logic_error("DraftBatch: an output that begins with another token");
      batch_.take_back(guess.place, std::ssize(read) - same);
      read.resize(static_cast<size_t>(same));
    }
    active.push_back({&guess, {agreed, guess.read.end()}});
  }
  size_t missed = 0;
  for (const auto& [guess, tokens] : active) missed += tokens.size() - 1;
  if (missed > most_missed) read_ahead(active);
  std::vector<InferenceBatch::Row> rows;
  std::vector<std::pair<Guess*, bool>> told;  // of every row: whose, and whether its continuations are asked for
  while (!active.empty()) {
    rows.clear();
    told.clear();
    int64_t width = 1;
    for (const auto& [guess, tokens] : active) {
      const bool whole = guess->search.wants_whole_rows();
      if (!whole) width = std::max(width, guess->search.width());
      for (size_t i = 0; i < tokens.size(); ++i) {
        const bool last = i + 1 == tokens.size();
        rows.push_back({guess->place, 0, tokens[i], last && whole, i > 0});
        told.emplace_back(guess, last);
        read_[static_cast<size_t>(guess->place)].push_back(tokens[i]);
      }
    }
    const CpuClock clock;
    const auto continuations = batch_.step(
        rows, width, [&](size_t row, const RowScores& scores) { told[row].first->search.take_row(0, scores); });
    pace_.draft().observe(std::ssize(rows), clock.seconds());
    std::vector<Unread> next;
    for (size_t row = 0; row < rows.size(); ++row) {
      const auto& [guess, asked] = told[row];
      if (!asked) continue;
      const double before = guess->search.live().front().log_probability;
      try {
        if (guess->search.advance(continuations, static_cast<int64_t>(row))) continue;
      } catch (const Failure&) {
        continue;  // a draft whose weights are damaged has nothing to propose
      }
      const auto& live = guess->search.live().front();
      const double probability = std::exp(live.log_probability - before);
      const double chance = guess->chance * pace_.chance(probability);
      if (!pace_.worth_row(chance)) continue;
      guess->chance = chance;
      guess->proposals.push_back(live.token);
      guess->probabilities.push_back(probability);
      const bool full = std::ssize(guess->proposals) == guess->most;
      if (!full && pace_.worth_another(chance)) next.push_back({guess, {live.token}});
    }
    active = std::move(next);
  }
}

}  // namespace transformer
