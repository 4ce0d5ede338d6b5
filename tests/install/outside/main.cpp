// outside MODEL: uses parts of the installed library whose results are known, then translates standard input.
#include <fmt/format.h>
#include <transformer/inference/beam_search.h>
#include <transformer/inference/translator.h>
#include <transformer/model/attention.h>

#include <cmath>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

void attention_by_hand() {
  transformer::MultiHeadAttention attention(
      transformer::MultiHeadAttentionOptions{.d_model = 2, .heads = 1, .d_k = 1, .d_v = 1});
  const torch::NoGradGuard no_grad;
  auto parameters = attention->named_parameters();
  parameters["input_weight"].copy_(torch::tensor({1., 0., 2., 0., 3., 5.}).view({3, 2}));  // W^Q, W^K, W^V
  parameters["output.weight"].copy_(torch::tensor({1., -1.}).view({2, 1}));
  const auto input = torch::eye(2).unsqueeze(0);
  const auto attended = attention->forward(input, input, input, {.weights = true});
  require(attended.values.sizes() == torch::IntArrayRef({1, 2, 2}), "attention's values have another shape");
  require(attended.weights.sizes() == torch::IntArrayRef({1, 1, 2, 2}), "attention's weights have another shape");
  // Queries are 1 and 0, keys 2 and 0, values 3 and 5: the first query weighs by softmax(2, 0), the second evenly.
  const double first = std::exp(2.) / (std::exp(2.) + 1);
  const double value = 3 * first + 5 * (1 - first);
  const auto expected = torch::tensor({value, -value, 4., -4.}).view({1, 2, 2});
  require(torch::allclose(attended.values, expected.to(torch::kFloat), 1e-6, 1e-6), "attention gives other values");
}

// Tokens: 1 begins, 2 ends, 3 and 4 are words. Greedy search starts with 3, which no good end follows.
transformer::Continuations continuations(int64_t token) {
  using Candidates = std::vector<std::pair<int64_t, double>>;
  const Candidates candidates = token == 1   ? Candidates{{3, 0.6}, {4, 0.4}}
                                : token == 3 ? Candidates{{3, 0.4}, {4, 0.35}, {2, 0.25}}
                                             : Candidates{{2, 0.9}, {3, 0.1}};
  transformer::Continuations row;
  for (const auto& [next, probability] : candidates) {
    row.tokens.push_back(next);
    row.log_probabilities.push_back(std::log(probability));
  }
  // Every row is as wide as the widest.
  for (int64_t next = 5; row.tokens.size() < 3; ++next) {
    row.tokens.push_back(next);
    row.log_probabilities.push_back(-INFINITY);
  }
  return row;
}

void search_by_hand() {
  const transformer::StepFunction step = [](std::span<const int64_t> tokens, std::span<const int64_t>, int64_t) {
    transformer::Continuations all{.width = 3, .tokens = {}, .log_probabilities = {}};
    for (const int64_t token : tokens) {
      const auto row = continuations(token);
      all.tokens.insert(all.tokens.end(), row.tokens.begin(), row.tokens.end());
      all.log_probabilities.insert(all.log_probabilities.end(), row.log_probabilities.begin(),
                                   row.log_probabilities.end());
    }
    return all;
  };
  transformer::DecodingSettings settings;
  settings.alpha = 0;
  settings.beam = 2;
  const std::vector<int64_t> lengths = {4};
  const auto best = transformer::beam_search(step, lengths, 1, 2, settings).at(0).at(0);
  require(best.tokens == std::vector<int64_t>{4} && best.finished, "beam search finds another hypothesis");
  require(std::abs(best.score - std::log(0.4 * 0.9)) < 1e-12, "beam search gives another score");
  settings.beam = 1;
  const auto greedy = transformer::beam_search(step, lengths, 1, 2, settings).at(0).at(0);
  require(greedy.tokens == std::vector<int64_t>{3, 3, 3, 3}, "greedy search finds another hypothesis");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    require(argc == 2, "usage: outside MODEL");
    attention_by_hand();
    search_by_hand();
    const transformer::Translator translator(argv[1]);
    std::vector<std::string> lines;
    for (std::string line; std::getline(std::cin, line);) lines.push_back(line);
    for (const auto& translations : translator.translate(lines)) fmt::print("{}\n", translations.front().text);
  } catch (const std::exception& error) {
    std::cerr << "outside: " << error.what() << "\n";
    return 1;
  }
}
