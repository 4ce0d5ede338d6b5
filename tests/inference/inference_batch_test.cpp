#include "transformer/inference/inference_batch.h"

#include <algorithm>
#include <stdexcept>

#include "inference/tiny_model.h"
#include "transformer/base/memory.h"

namespace transformer::test {

namespace {

using Ids = std::vector<int64_t>;
using SelfAttention = ModelSettings::DecoderSelfAttention;

/// Of so few parameters that keys and values are most of what decoding takes: 16 KiB a position.
ModelSettings wide_records() {
  auto settings = tiny_settings(pieces);
  settings.d_k = settings.d_v = 512;
  return settings;
}

/// Reads `positions` more of a sentence with so many hypotheses, the same ones for the same beginning.
Continuations read_on(InferenceBatch& batch, int64_t place, int64_t from, int64_t positions, int64_t beam = 1) {
  Continuations last;
  for (int64_t position = from; position < from + positions; ++position) {
    std::vector<InferenceBatch::Row> rows;
    for (int64_t i = 0; i < (position == 0 ? 1 : beam); ++i) {
      const int64_t token = position == 0 ? Vocabulary::begin : 5 + (position + i) % (pieces - 5);
      rows.push_back({.place = place, .parent = position > 1 ? i : 0, .token = token});
    }
    last = batch.step(rows, 5);
  }
  return last;
}

}  // namespace

TEST_CASE("what a window or a recurrent unit leaves behind takes no memory, whatever else is kept") {
  auto settings = wide_records();
  settings.decoder_self_attention = GENERATE(SelfAttention::attention, SelfAttention::ssru);
  if (settings.decoder_self_attention == SelfAttention::attention) settings.attention_window = 6;
  const auto packed = packed_model(tiny_transformer(settings));
  InferenceBatch batch(*packed);
  const Ids few(3, 7), many(100, 7);
  const auto place = batch.add(std::vector<InferenceBatch::Source>{{.pieces = few, .beam = 4}}).front();
  for (const int64_t other : batch.add(std::vector<InferenceBatch::Source>(16, {.pieces = many}))) batch.remove(other);
  read_on(batch, place, 0, 100, 4);
  const int64_t before = resident_bytes(), in_use = batch.cache_bytes();
  read_on(batch, place, 100, 1500, 4);  // 94 MiB of keys and values
  CHECK(batch.cache_bytes() <= in_use);
  CHECK(resident_bytes() - before < int64_t{24} << 20);
}

TEST_CASE("of what sentences leave that go one by one, a quarter of what is in use is kept at most, or 8 MiB") {
  const auto packed = packed_model(tiny_transformer(wide_records()));
  InferenceBatch batch(*packed);
  const Ids source(150, 7);
  std::vector<int64_t> places;
  for (int64_t i = 0; i < 30; ++i) {
    // Pages are of several sizes.
    const int64_t beam = 1 + i % 3;
    places.push_back(batch.add(std::vector<InferenceBatch::Source>{{.pieces = source, .beam = beam}}).front());
    read_on(batch, places.back(), 0, 40, beam);
  }
  CHECK(batch.cache_bytes() > int64_t{80} << 20);
  int64_t most = 0;
  for (const int64_t place : places) {
    const int64_t in_use = batch.cache_bytes(), kept = batch.kept_bytes();
    batch.remove(place);
    CHECK(batch.kept_bytes() <= std::max(int64_t{8} << 20, batch.cache_bytes() / 4));
    // What one leaves is kept where there is room.
    if (kept < batch.cache_bytes() / 8) CHECK(batch.kept_bytes() + batch.cache_bytes() == in_use + kept);
    most = std::max(most, batch.kept_bytes());
  }
  CHECK(most > int64_t{12} << 20);
  CHECK(batch.cache_bytes() == 0);
  CHECK(batch.kept_bytes() > 0);
}

TEST_CASE("what is taken back is as if it had never been read, and what was left behind is not taken back") {
  auto settings = tiny_settings(pieces);
  settings.attention_window = GENERATE(0, 6);
  settings.decoder_self_attention = GENERATE(SelfAttention::attention, SelfAttention::ssru);
  const auto packed = packed_model(tiny_transformer(settings));
  const Ids source = {5, 6, Vocabulary::end};
  const std::vector<InferenceBatch::Source> one = {{.pieces = source}};
  constexpr int64_t most = InferenceBatch::most_taken_back, read = 300;
  const bool all_stay = settings.attention_window == 0 && settings.decoder_self_attention == SelfAttention::attention;
  for (const int64_t times : {1, 2, 4}) {
    CAPTURE(times, settings.attention_window, all_stay);
    InferenceBatch batch(*packed), fresh(*packed);
    const int64_t place = batch.add(one).front(), other = fresh.add(one).front();
    read_on(batch, place, 0, read);
    const auto take_back = [&] { batch.take_back(place, most / 2); };
    for (int64_t time = 0; time < times && time < (all_stay ? times : 2); ++time) take_back();
    if (times == 4 && !all_stay) {
      CHECK_THROWS_AS(
          [&] {
            for (int64_t time = 2; time < 8; ++time) take_back();
          }(),
          std::logic_error);
      continue;
    }
    const int64_t left = read - times * (most / 2);
    read_on(fresh, other, 0, left);
    const auto found = read_on(batch, place, left, 5), expected = read_on(fresh, other, left, 5);
    CHECK(found.tokens == expected.tokens);
    CHECK(found.log_probabilities == expected.log_probabilities);
  }
}

TEST_CASE("sentences that cannot be decoded are refused before any is added") {
  const auto packed = packed_model(tiny_transformer(tiny_settings(pieces)));
  InferenceBatch batch(*packed);
  const Ids source = {5, Vocabulary::end};
  const auto add = [&](const InferenceBatch::Source& second) {
    return batch.add(std::vector<InferenceBatch::Source>{{.pieces = source}, second});
  };
  for (const int64_t beam : {-1, 0}) {
    CHECK_THROWS_AS(add({.pieces = source, .beam = beam}), std::invalid_argument);
  }
  for (const std::vector<int32_t>& candidates : {std::vector<int32_t>{2, 7, 5}, {2, 5, 5}}) {
    CHECK_THROWS_AS(add({.pieces = source, .candidates = candidates}), std::invalid_argument);
  }
  for (const std::vector<int32_t>& candidates : {std::vector<int32_t>{-1, 2, 5}, {0, 2}, {1, 2}, {2, pieces}}) {
    CHECK_THROWS_AS(add({.pieces = source, .candidates = candidates}), std::out_of_range);
  }
  CHECK(batch.cache_bytes() == 0);
  CHECK(add({.pieces = source, .candidates = {2, 5, pieces - 1}}) == Ids{0, 1});
}

}  // namespace transformer::test
