#include "transformer/inference/attention_maps.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include <random>

#include "error_of.h"
#include "inference/tiny_model.h"
#include "support.h"
#include "transformer/architecture/model_directory.h"
#include "transformer/base/error.h"
#include "transformer/decoding/module_backend.h"
#include "transformer/inference/word_alignment.h"

namespace transformer::test {

namespace {

using Ids = std::vector<int64_t>;

Ids random_ids(std::mt19937& random, size_t length) {
  Ids ids(length);
  for (auto& id : ids) id = 4 + static_cast<int64_t>(random() % (pieces - 4));
  return ids;
}

/// A vocabulary learned from `lines`, each `times` times.
std::shared_ptr<const Vocabulary> vocabulary_of(const TemporaryDirectory& directory,
                                                const std::vector<std::string>& lines, int64_t size,
                                                const VocabularySettings& settings = {}) {
  std::string text;
  for (int i = 0; i < 30; ++i) {
    for (const auto& line : lines) text += line + "\n";
  }
  write_file(directory / "text", text);
  Vocabulary::train({directory / "text"}, size, settings, directory / "vocabulary.model");
  return std::make_shared<const Vocabulary>(directory / "vocabulary.model");
}

torch::Tensor tensor(const AttentionWeights& weights) {
  return torch::tensor(weights.values).view({weights.layers, weights.heads, weights.queries, weights.keys});
}

struct Maps {
  torch::Tensor encoder, decoder, cross;
};

bool near(const torch::Tensor& found, const torch::Tensor& expected) {
  return torch::allclose(found.to(torch::kDouble), expected, 0, 1e-5);
}

Maps tensors(const AttentionMaps& maps) {
  return {tensor(maps.encoder), tensor(maps.decoder), tensor(maps.cross)};
}

JoinedTokens joined(const Ids& word_of) {
  JoinedTokens result;
  result.word_of = word_of;
  result.words.resize(static_cast<size_t>(word_of.back()) + 1, "word");
  return result;
}

}  // namespace

TEST_CASE("attention maps are the model's own weights, with rows that sum to 1") {
  auto settings = tiny_settings(pieces);
  const auto variant = GENERATE(0, 1, 2, 3, 4, 5, 6);
  if (variant == 1) settings.encoder_layers = 3;
  if (variant == 2) settings.attention_window = 4;
  if (variant == 3) settings.positions = ModelSettings::Positions::learned;
  if (variant == 4) settings.compatibility = ModelSettings::Compatibility::dot_product;
  if (variant >= 5) settings.compatibility = ModelSettings::Compatibility::additive;
  if (variant == 6) {
    settings.attention_window = 4;
    settings.feed_forward = ModelSettings::FeedForward::attention_over_parameters;
    settings.parameter_heads = 2;
    settings.parameter_d_k = settings.parameter_d_v = 8;
    settings.parameter_pairs = 50;
  }
  auto model = tiny_transformer(settings);
  const auto weights = packed_model(model);
  model->to(torch::kDouble);
  std::mt19937 random(3);
  const auto source = random_ids(random, 7), target = random_ids(random, 5);
  const auto maps = tensors(attention_maps(*weights, source, target));
  CHECK(maps.encoder.sizes() == torch::IntArrayRef{settings.encoder_layers, 2, 8, 8});
  CHECK(maps.decoder.sizes() == torch::IntArrayRef{2, 2, 6, 6});
  CHECK(maps.cross.sizes() == torch::IntArrayRef{2, 2, 6, 8});
  for (const auto& map : {maps.encoder, maps.decoder, maps.cross}) {
    CHECK(map.min().item<double>() >= 0);
    CHECK((map.sum(-1) - 1).abs().max().item<double>() < 1e-5);
  }
  CHECK(maps.decoder.triu(1).abs().max().item<double>() == 0);
  if (settings.attention_window == 4) {
    // Two positions to either side.
    CHECK(maps.decoder.tril(-3).abs().max().item<double>() == 0);
    CHECK(maps.encoder.triu(3).abs().max().item<double>() == 0);
    CHECK(maps.encoder.tril(-3).abs().max().item<double>() == 0);
  }

  // Beside another, longer sentence, so that padding must not be attended to.
  torch::NoGradGuard no_grad;
  auto other = random_ids(random, 11), other_target = random_ids(random, 9);
  auto padded_source = torch::zeros({2, 12}, torch::kInt64), padded_target = torch::zeros({2, 10}, torch::kInt64);
  const auto put = [](torch::Tensor rows, int64_t i, const Ids& ids) {
    rows[i].narrow(0, 0, static_cast<int64_t>(ids.size())).copy_(torch::tensor(ids));
  };
  put(padded_source, 0, written_tokens(source));
  put(padded_source, 1, written_tokens(other));
  put(padded_target, 0, read_tokens(target));
  put(padded_target, 1, read_tokens(other_target));
  const auto encoded = model->encode(padded_source, true);
  const auto decoded = model->decode(padded_target, encoded, true);
  for (int64_t layer = 0; layer < settings.encoder_layers; ++layer) {
    CHECK(near(maps.encoder[layer], encoded.weights[layer][0].narrow(1, 0, 8).narrow(2, 0, 8)));
  }
  for (int64_t layer = 0; layer < 2; ++layer) {
    const auto several = cross_attention(*weights, {source, other}, {target, other_target}, layer);
    REQUIRE(several.size() == 2);
    CHECK(tensor(several[1]).sizes() == torch::IntArrayRef{1, 2, 10, 12});
    // Beside others as alone, bit for bit.
    CHECK(torch::equal(tensor(several[0])[0], maps.cross[layer]));
    CHECK(near(maps.decoder[layer], decoded.self_weights[layer][0].narrow(1, 0, 6).narrow(2, 0, 6)));
    CHECK(near(maps.cross[layer], decoded.memory_weights[layer][0].narrow(1, 0, 6).narrow(2, 0, 8)));
    CHECK(near(tensor(several[1])[0], decoded.memory_weights[layer][1]));
  }
}

TEST_CASE("a decoder of recurrent units attends to the source alone") {
  auto settings = tiny_settings(pieces);
  settings.decoder_self_attention = ModelSettings::DecoderSelfAttention::ssru;
  auto model = tiny_transformer(settings);
  const Ids source = {7, 30, 12}, target = {5, 9};
  const auto maps = attention_maps(*packed_model(model), source, target);
  model->to(torch::kDouble);
  CHECK(maps.decoder.layers == 0);
  CHECK(maps.decoder.values.empty());
  torch::NoGradGuard no_grad;
  const auto decoded = model->decode(torch::tensor(read_tokens(target)).unsqueeze(0),
                                     model->encode(torch::tensor(written_tokens(source)).unsqueeze(0)), true);
  const auto cross = tensor(maps.cross);
  for (int64_t layer = 0; layer < settings.decoder_layers; ++layer) {
    CHECK(!decoded.self_weights[static_cast<size_t>(layer)].defined());
    CHECK(near(cross[layer], decoded.memory_weights[static_cast<size_t>(layer)][0]));
  }
}

TEST_CASE("the first layer's weights follow from the paper's equation") {
  // Recomputed from the parameters: softmax(Q K^T / sqrt(d_k)) of embeddings and positions.
  auto settings = tiny_settings(pieces);
  auto model = tiny_transformer(settings);
  const Ids source = {7, 30, 12};
  const auto maps = tensors(attention_maps(*packed_model(model), source, {5}));
  model->to(torch::kDouble);
  torch::NoGradGuard no_grad;
  const auto parameters = model->named_parameters();
  const int64_t width = 16, heads = 2, d_k = 8;
  auto x = parameters["source_embedding.weight"].index_select(0, torch::tensor(written_tokens(source))) * 4.0;  // √16
  for (int64_t position = 0; position < 4; ++position) {
    for (int64_t i = 0; i < width; i += 2) {
      const double angle = static_cast<double>(position) / std::pow(10000.0, static_cast<double>(i) / width);
      x[position][i] += std::sin(angle);
      x[position][i + 1] += std::cos(angle);
    }
  }
  const auto projected = x.matmul(parameters["encoder.layers.0.self_attention.input_weight"].t());  // [4, 48]
  for (int64_t head = 0; head < heads; ++head) {
    const auto query = projected.narrow(1, head * d_k, d_k), key = projected.narrow(1, width + head * d_k, d_k);
    const auto expected = (query.matmul(key.t()) / std::sqrt(8.0)).softmax(-1);
    CHECK(near(maps.encoder[0][head], expected));
  }
}

TEST_CASE("every map of every layer is what PyTorch's own modules find from the same weights") {
  // Random weights with a matrix for each embedding, and learned ones with one for all.
  const TemporaryDirectory directory;
  const bool learned = GENERATE(false, true);
  std::filesystem::path folder = std::filesystem::path(TRANSFORMER_SOURCE_DIR) / "data/model-en-de";
  if (!learned) write_tiny_model(folder = directory / "model");
  std::mt19937 random(5);
  const auto source = random_ids(random, 13), target = random_ids(random, 17);
  run_reference("attention_maps.py", fmt::format("'{}' {} {} '{}'", folder.string(), fmt::join(source, ","),
                                                 fmt::join(target, ","), (directory / "maps").string()));
  auto expected = read_tensors(directory / "maps").tensors;
  const auto model = InferenceModel::load(folder, read_model_settings(folder), Precision::float32);
  const auto maps = tensors(attention_maps(*model, source, target));
  for (const auto& [name, map] :
       {std::pair("encoder", maps.encoder), {"decoder", maps.decoder}, {"cross", maps.cross}}) {
    CAPTURE(learned, name);
    REQUIRE(map.sizes() == expected.at(name).sizes());
    CHECK(near(map, expected.at(name).to(torch::kDouble)));
  }
}

TEST_CASE("joined weights are sums over keys and means over queries") {
  std::mt19937 random(11);
  for (int trial = 0; trial < 20; ++trial) {
    const auto ascending = [&](size_t count) {
      Ids word_of = {0};
      while (word_of.size() < count) word_of.push_back(word_of.back() + static_cast<int64_t>(random() % 2));
      return word_of;
    };
    const auto query_words = ascending(1 + random() % 9), key_words = ascending(1 + random() % 9);
    const auto queries = static_cast<int64_t>(query_words.size()), keys = static_cast<int64_t>(key_words.size());
    const auto weights = torch::rand({2, 3, queries, keys}).softmax(-1);
    const auto* numbers = weights.const_data_ptr<float>();
    const auto result = tensor(joined_weights({2, 3, queries, keys, {numbers, numbers + weights.numel()}},
                                              joined(query_words), joined(key_words)));
    REQUIRE(result.sizes() == torch::IntArrayRef{2, 3, query_words.back() + 1, key_words.back() + 1});
    CHECK((result.sum(-1) - 1).abs().max().item<double>() < 1e-5);
    const auto given = weights.accessor<float, 4>();
    const auto found = result.accessor<float, 4>();
    for (int64_t q = 0; q <= query_words.back(); ++q) {
      for (int64_t k = 0; k <= key_words.back(); ++k) {
        double sum = 0;
        int count = 0;
        for (int64_t t = 0; t < queries; ++t) {
          if (query_words[static_cast<size_t>(t)] != q) continue;
          ++count;
          for (int64_t s = 0; s < keys; ++s) {
            if (key_words[static_cast<size_t>(s)] == k) sum += static_cast<double>(given[1][2][t][s]);
          }
        }
        CHECK(static_cast<double>(found[1][2][q][k]) == Approx(sum / count).epsilon(1e-5));
      }
    }
  }
}

TEST_CASE("pieces are joined at white space") {
  TemporaryDirectory directory;
  const auto vocabulary =
      vocabulary_of(directory, {"the cat sat on a mat.", "cats sit", "日本語を話す", "naïve 😀 mats", "a\tb"}, 330);
  const auto words_of = [&](const std::string& text) {
    const auto tokens = written_tokens(vocabulary->encode(text));
    const auto result = joined_tokens(*vocabulary, tokens);
    CHECK(result.word_of.size() == tokens.size());
    CHECK(std::is_sorted(result.word_of.begin(), result.word_of.end()));
    CHECK(result.word_of.front() == 0);
    CHECK(result.word_of.back() == static_cast<int64_t>(result.words.size()) - 1);
    for (size_t i = 1; i < tokens.size(); ++i) CHECK(result.word_of[i] - result.word_of[i - 1] <= 1);
    return result.words;
  };
  using Words = std::vector<std::string>;
  CHECK(words_of("the cats sat.") == Words{"the", "cats", "sat.", "</s>"});
  CHECK(words_of("日本語を話す") == Words{"日本語を話す", "</s>"});
  CHECK(words_of("") == Words{"</s>"});
  // Letters that the vocabulary spells in bytes are whole again.
  CHECK(words_of("Žluťoučký kůň 👩‍👩‍👧 ok") ==
        Words{"Žluťoučký", "kůň", "👩‍👩‍👧", "ok", "</s>"});
  CHECK(words_of("the  cat   ") == Words{"the", "cat", "</s>"});
  CHECK(words_of("cat\tmat") == Words{"cat", "mat", "</s>"});
  // ▁ written in the text is no space.
  CHECK(words_of("the ▁▁ cat") == Words{"the", "▁▁", "cat", "</s>"});

  const auto read = joined_tokens(*vocabulary, read_tokens(vocabulary->encode("the cat")));
  CHECK(read.words == Words{"<s>", "the", "cat"});
  // Half a character, as a model may write it.
  const auto half = vocabulary->encode("Ž");
  CHECK(joined_tokens(*vocabulary, {half[half.size() - 2]}).words == Words{"\xEF\xBF\xBD"});

  // Whatever the text: the words of its pieces are those that its white space separates.
  std::mt19937 random(2);
  const std::vector<std::string> parts = {"cat", "é",  " ", "  ",      "\t",     "日本",   "😀",      ".",
                                          "▁",   "ab", "⁇", "e\u0301", "\u00A0", "\u3000", "\u0085", "\x01"};
  for (int trial = 0; trial < 300; ++trial) {
    std::string text = "x";
    for (size_t i = random() % 12; i > 0; --i) text += parts[random() % parts.size()];
    text += "y";
    Words expected;
    for (const auto word : alignment_words(text)) {
      expected.push_back(vocabulary->normalization() == Normalization::nfc ? normalized(word) : std::string(word));
    }
    expected.emplace_back("</s>");
    INFO(text);
    Words found;
    for (const auto& word : words_of(text)) {
      for (const auto part : alignment_words(word)) found.emplace_back(part);
    }
    CHECK(found == expected);
  }
}

TEST_CASE("alignment words are separated by blanks of every kind") {
  CHECK(alignment_words("").empty());
  CHECK(alignment_words(" \t ").empty());
  CHECK(alignment_words(" a  b\tc\r\n") == std::vector<std::string_view>{"a", "b", "c"});
  CHECK(alignment_words("a\u00A0b\u3000\u2028c\u200Bd") == std::vector<std::string_view>{"a", "b", "c\u200Bd"});
  CHECK(to_pharaoh({{0, 0}, {2, 1}, {2, 3}}) == "0-0 2-1 2-3");
  CHECK(to_pharaoh({}).empty());
}

TEST_CASE("alignments are the source words with most attention, by brute force") {
  TemporaryDirectory directory;
  const auto lines = made_up_sentences(60, 4);
  const auto vocabulary = vocabulary_of(directory, lines, 300);
  auto settings = tiny_settings(300);
  if (GENERATE(false, true)) {
    settings.compatibility = ModelSettings::Compatibility::additive;
    settings.attention_window = 5;
    settings.activation = ModelSettings::Activation::swiglu;
  }
  const auto model = packed_model(tiny_transformer(settings));
  const int64_t layer = GENERATE(0, 1, 2), head = GENERATE(0, 2);
  const auto at = GENERATE(AlignmentSettings::At::writing, AlignmentSettings::At::reading);
  const WordAligner aligner(model, {vocabulary, vocabulary}, {layer, head, at});
  std::vector<std::string> sources(lines.begin(), lines.begin() + 30), targets(lines.begin() + 30, lines.end());
  sources[4] = "";
  targets[9] = " \t";
  const auto alignments = aligner.align(sources, targets);
  REQUIRE(alignments.size() == sources.size());
  CHECK(alignments[4].empty());
  CHECK(alignments[9].empty());
  bool any_without = false;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (i == 4 || i == 9) continue;
    INFO(sources[i] << " | " << targets[i]);
    const auto source = vocabulary->encode(sources[i]), target = vocabulary->encode(targets[i]);
    const auto maps = tensor(attention_maps(*model, source, target).cross).to(torch::kDouble);
    auto weights = maps[layer == 0 ? 1 : layer - 1];
    weights = head == 0 ? weights.mean(0) : weights[head - 1];
    // Words of made-up sentences are their pieces from one that begins with ▁ to the next.
    const auto number = [&](const Ids& ids) {
      Ids words;
      int64_t word = -1;
      for (const auto id : ids) {
        if (vocabulary->piece(id).starts_with("▁")) ++word;
        words.push_back(word);
      }
      return words;
    };
    const auto source_words = number(source), target_words = number(target);
    REQUIRE(source_words.back() + 1 == static_cast<int64_t>(alignment_words(sources[i]).size()));
    REQUIRE(target_words.back() + 1 == static_cast<int64_t>(alignment_words(targets[i]).size()));
    std::vector<AlignmentLink> expected;
    for (int64_t word = 0; word <= target_words.back(); ++word) {
      std::vector<double> received(static_cast<size_t>(source_words.back()) + 2);
      for (size_t t = 0; t < target.size(); ++t) {
        if (target_words[t] != word) continue;
        const auto position = static_cast<int64_t>(t) + (at == AlignmentSettings::At::reading ? 1 : 0);
        for (size_t s = 0; s <= source.size(); ++s) {
          const auto own = s < source.size() ? source_words[s] : source_words.back() + 1;
          received[static_cast<size_t>(own)] += weights[position][static_cast<int64_t>(s)].item<double>();
        }
      }
      const auto best = std::max_element(received.begin(), received.end()) - received.begin();
      if (best <= source_words.back()) {
        expected.push_back({best, word});
      } else {
        any_without = true;
      }
    }
    CHECK(to_pharaoh(alignments[i]) == to_pharaoh(expected));
    // Alone as in a batch.
    CHECK(to_pharaoh(aligner.align({sources[i]}, {targets[i]}).front()) == to_pharaoh(expected));
    // The first two words' pieces, whatever the line's own are.
    const auto words = alignment_words(targets[i]);
    if (words.size() < 3) continue;
    const auto given = vocabulary->encode(fmt::format("{} {}", words[0], words[1]));
    const auto of_given = aligner.align({sources[i]}, {targets[i]}, 1, {given}).front();
    CHECK(to_pharaoh(of_given) ==
          to_pharaoh(aligner.align({sources[i]}, {fmt::format("{} {}", words[0], words[1])}).front()));
    CHECK(std::all_of(of_given.begin(), of_given.end(), [](const auto& link) { return link.target < 2; }));
  }
  if (head == 0 && layer == 1) CHECK(any_without);
}

TEST_CASE("a model that looks where we say aligns so") {
  // Cross-attention made by hand: queries and keys are the positional encoding's slowest waves alone, so that position
  // t attends most to position t; word for word, then, the translation of n words is aligned diagonally.
  TemporaryDirectory directory;
  std::vector<std::string> lines;
  for (int i = 0; i < 20; ++i) lines.push_back("aa bb cc dd ee ff gg hh");
  const auto vocabulary = vocabulary_of(directory, lines, 290);
  auto settings = tiny_settings(290);
  settings.d_model = 32;
  settings.heads = 1;
  settings.encoder_layers = settings.decoder_layers = 1;
  Transformer model(settings);
  model->eval();
  torch::NoGradGuard no_grad;
  auto parameters = model->named_parameters();
  for (auto& parameter : parameters) {
    // No sub-layer adds anything: what attends is the positions themselves, normalised.
    if (parameter.value().dim() > 1) parameter.value().zero_();
  }
  auto input = parameters["decoder.layers.0.memory_attention.input_weight"];  // [(2 d_k + d_v), D]
  input.narrow(0, 0, 32).copy_(20 * torch::eye(32));
  input.narrow(0, 32, 32).copy_(20 * torch::eye(32));
  const WordAligner aligner(packed_model(model), {vocabulary, vocabulary}, {});
  const std::string text = "aa bb cc dd ee";
  REQUIRE(vocabulary->encode(text).size() == 5);  // a piece a word
  CHECK(to_pharaoh(aligner.align({text}, {text})[0]) == "0-0 1-1 2-2 3-3 4-4");
  CHECK(to_pharaoh(aligner.align({"aa bb cc"}, {text})[0]) == "0-0 1-1 2-2");  // the fourth looks at the end
  const WordAligner reading(packed_model(model), {vocabulary, vocabulary}, {0, 0, AlignmentSettings::At::reading});
  CHECK(to_pharaoh(reading.align({text}, {text})[0]) == "1-0 2-1 3-2 4-3");
}

TEST_CASE("words are those of the line where SentencePiece makes blanks or takes words out") {
  const TemporaryDirectory folder;
  run_reference("normalizing_vocabulary.py", fmt::format("'{}/data/tatoeba-en-de/valid.en.gz' '{}'",
                                                         TRANSFORMER_SOURCE_DIR, (folder / "nfkc").string()));
  const auto vocabulary = std::make_shared<const Vocabulary>(folder / "nfkc.model");
  const WordAligner aligner(packed_model(tiny_transformer(tiny_settings(vocabulary->size()))), {vocabulary, vocabulary},
                            {});
  const std::string plain = "I have a cat", odd = "I\u200Chave \u200B a cat";
  const auto tokens = vocabulary->encode(plain);
  REQUIRE(vocabulary->encode(odd) == tokens);
  // Which words of `plain` are which ones of `odd`; none is "\u200B".
  const std::vector<size_t> place = {0, 0, 2, 3};
  const auto expected = aligner.attention({plain}, {plain}).front();
  const auto read = aligner.attention({odd}, {plain}, {}, {}).front();
  REQUIRE(read.source_words == 4);
  for (size_t target = 0; target < 4; ++target) {
    std::vector<float> sums(4);
    for (size_t i = 0; i < 4; ++i) sums[place[i]] += expected.weights[target * 4 + i];
    for (size_t i = 0; i < 4; ++i) CHECK(read.weights[target * 4 + i] == Approx(sums[i]));
  }
  // A written word attends as the mean of its pieces does.
  const auto written = aligner.attention({plain}, {odd}).front();
  const auto count = [&](size_t word) {
    const auto words = vocabulary->words_of_pieces(plain);
    return static_cast<float>(std::count(words.begin(), words.end(), static_cast<int64_t>(word)));
  };
  const float first = count(0), second = count(1);
  for (size_t i = 0; i < 4; ++i) {
    const float mean = (first * expected.weights[i] + second * expected.weights[4 + i]) / (first + second);
    CHECK(written.weights[i] == Approx(mean));
    CHECK(written.weights[4 + i] == 0);
    for (size_t word : {2, 3}) CHECK(written.weights[word * 4 + i] == Approx(expected.weights[word * 4 + i]));
  }
  // What is said beside the source is none of its words, and no word of the target has two links.
  const auto said = aligner.attention({odd}, {plain}, {}, {"I\u200Chave"}).front();
  const auto same = aligner.attention({plain}, {plain}, {}, {"I have"}).front();
  for (size_t target = 0; target < 4; ++target) {
    CHECK(said.weights[target * 4 + 3] == Approx(same.weights[target * 4 + 3]));
  }
  const auto links = aligner.align({plain}, {odd}).front();
  for (size_t i = 1; i < links.size(); ++i) CHECK(links[i].target > links[i - 1].target);
}

TEST_CASE("weights that are no numbers are a failure of the model") {
  auto model = tiny_transformer(tiny_settings(pieces));
  torch::NoGradGuard no_grad;
  model->named_parameters()["encoder.layers.0.self_attention.input_weight"].fill_(3e38);
  const auto packed = packed_model(model);
  const Ids source = {5, 9, 12}, target = {7, 8};
  CHECK_THROWS_AS(attention_maps(*packed, source, target), Failure);
  CHECK_THROWS_AS(cross_attention(*packed, {source}, {target}, 1), Failure);
  for (const int64_t layer : {-1, 99}) {
    CHECK_THROWS_AS(cross_attention(*packed, {source}, {target}, layer), std::invalid_argument);
  }
}

TEST_CASE("layers and heads that a model has not are refused, and pairs too long to align") {
  TemporaryDirectory directory;
  const auto vocabulary = vocabulary_of(directory, made_up_sentences(60, 4), 300);
  auto settings = tiny_settings(300);
  settings.positions = ModelSettings::Positions::learned;
  settings.max_positions = 20;
  const auto model = packed_model(tiny_transformer(settings));
  const auto with = [&](AlignmentSettings alignment) {
    return error_of([&] { WordAligner(model, {vocabulary, vocabulary}, alignment); });
  };
  CHECK(with({}).empty());
  CHECK(with({2, 2}).empty());
  CHECK(with({3, 0}).find("no layer 3") != std::string::npos);
  CHECK(with({0, 3}).find("no head 3") != std::string::npos);
  const WordAligner aligner(model, {vocabulary, vocabulary}, {});
  std::string longer = "ba";
  for (int i = 0; i < 30; ++i) longer += " qx";
  const auto message = error_of([&] { aligner.align({"ba", longer}, {"ba", "ba"}, 7); });
  CHECK(message.find("line 8: has") != std::string::npos);
  CHECK(message.find("split") != std::string::npos);
}

}  // namespace transformer::test
