// tour walk MODEL: one sentence of real text through every tensor of a model, with shapes and numbers.
// tour pictures FOLDER: what transformer/README.md shows, as SVG.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "transformer/architecture/sinusoids.h"
#include "transformer/inference/beam_search.h"
#include "transformer/model/compatibility.h"
#include "transformer/model/transformer.h"
#include "transformer/report/attention_picture.h"
#include "transformer/report/plot.h"
#include "transformer/text/vocabulary.h"
#include "transformer/training/label_smoothing_loss.h"
#include "transformer/training/noam_schedule.h"

using namespace transformer;
using torch::Tensor;

namespace {

// --- walk
// -------------------------------------------------------------------------------------------------------------

constexpr const char* sentence = "The weather is nice today.";
constexpr const char* translation = "Das Wetter ist heute schön.";

std::string shape(const Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

/// The first numbers of a vector.
std::string numbers(const Tensor& vector, int64_t count = 4) {
  std::string text;
  for (int64_t i = 0; i < std::min(count, vector.size(0)); ++i)
    text += fmt::format("{:7.2f}", vector[i].item<double>());
  return text + (count < vector.size(0) ? "  .." : "");
}

/// A tensor by name, its shape, and what its last dimension begins with at a position.
void show(const std::string& name, const Tensor& tensor, const std::string& of, const Tensor& vector) {
  fmt::print("{:<34}{:<16}{:<18}{}\n", name, shape(tensor), of, numbers(vector));
}

template <class Module>
Module& part(Transformer& model, const std::string& name) {
  return *std::dynamic_pointer_cast<Module>(model->named_modules()[name]);
}

Tensor row(const std::vector<int64_t>& ids) {
  return torch::tensor(ids).unsqueeze(0);
}

void walk(const std::string& directory) {
  torch::NoGradGuard no_grad;
  Transformer model = load_transformer(directory);
  const auto& s = model->settings();
  const auto vocabularies = Vocabularies::load(directory, s.source_vocabulary_size, s.target_vocabulary_size);
  const auto& words = *vocabularies.source;

  fmt::print("text        {}\n", sentence);
  auto ids = words.encode(sentence);
  ids.push_back(Vocabulary::end);
  std::vector<std::string> pieces;
  for (const auto id : ids) pieces.push_back(words.piece(id));
  fmt::print("pieces      {}\nids         {}\n\n", fmt::join(pieces, " "), fmt::join(ids, " "));

  const int64_t at = 1;  // the piece that is followed
  const auto& of = pieces[at];
  const auto source = row(ids);
  auto& embedding = part<TokenEmbeddingImpl>(model, "embedding");
  auto& positions = part<PositionalEncodingImpl>(model, "source_positions");
  const auto tokens = embedding.forward(source);
  const auto places = positions.forward(0, source.size(1), tokens);
  const auto x = tokens + places;
  show("embedding x sqrt(d_model)", tokens, of, tokens[0][at]);
  show("positional encoding", places, fmt::format("position {}", at), places[at]);
  show("their sum", x, of, x[0][at]);

  fmt::print("\nEncoder, layer 1\n");
  auto& attention = part<MultiHeadAttentionImpl>(model, "encoder.layers.0.self_attention");
  const auto heads = attention.project(x);
  show("queries", heads.query, of + ", head 1", heads.query[0][0][at]);
  show("keys", heads.key, of + ", head 1", heads.key[0][0][at]);
  show("values", heads.value, of + ", head 1", heads.value[0][0][at]);
  const auto scores = compatibility(heads.query, heads.key, {});
  show("Q K^T / sqrt(d_k)", scores, of + ", head 1", scores[0][0][at]);
  const auto weights = masked_softmax(scores, {});
  show("softmax", weights, of + ", head 1", weights[0][0][at]);
  const auto attended = attention.attend(heads, {}).values;
  show("heads joined, x W^O", attended, of, attended[0][at]);
  const auto first = part<EncoderLayerImpl>(model, "encoder.layers.0").forward(x).values;
  show("after feed-forward, normalised", first, of, first[0][at]);
  const auto encoded = model->encode(source, /*weights=*/true);
  fmt::print("\nAfter layer {}\n", encoded.weights.size());
  show("memory", encoded.memory, of, encoded.memory[0][at]);

  fmt::print("\nDecoder, given the translation so far\n");
  auto output = vocabularies.target->encode(translation);
  auto input = output;
  input.insert(input.begin(), Vocabulary::begin);
  output.push_back(Vocabulary::end);
  const auto decoded = model->decode(row(input), encoded, /*weights=*/true);
  const auto piece = [&](int64_t id) { return vocabularies.target->piece(id); };
  show("hidden states", decoded.values, piece(input[at]), decoded.values[0][at]);
  const auto& own = decoded.self_weights.back();
  show("self-attention, causal", own, piece(input[at]) + ", head 1", own[0][0][at]);
  const auto& cross = decoded.memory_weights.back();
  show("attention over the memory", cross, piece(input[at]) + ", head 1", cross[0][0][at]);
  const auto logits = model->project(decoded.values);
  show("logits", logits, piece(input[at]), logits[0][at]);

  fmt::print("\nWhat comes next, and with which probability\n");
  for (size_t t = 0; t < input.size(); ++t) {
    const auto [best, tokens_of] = logits[0][static_cast<int64_t>(t)].softmax(-1).topk(3);
    std::string text;
    for (int64_t i = 0; i < 3; ++i) {
      text += fmt::format("  {} {:.2f}", piece(tokens_of[i].item<int64_t>()), best[i].item<double>());
    }
    fmt::print("after {:<12}{}\n", piece(input[t]), text);
  }
  const auto targets = row(output);
  const auto plain = label_smoothing_loss(logits, targets, 0, TransformerImpl::padding_id);
  const auto smooth = label_smoothing_loss(logits, targets, 0.1, TransformerImpl::padding_id);
  const auto count = static_cast<double>(output.size());
  fmt::print("\nloss a piece {:.2f}, with smoothed labels {:.2f}; perplexity {:.2f}\n",
             plain.loss.item<double>() / count, smooth.loss.item<double>() / count,
             std::exp(plain.negative_log_likelihood.item<double>() / count));

  fmt::print("\nBeam search, 2 wide\n");
  SentenceSearch search(50, {.beam = 2}, Vocabulary::end);
  auto cache = model->start(encoded);
  Tensor rows = torch::zeros({1}, torch::kInt64), tokens_in = torch::full({1}, Vocabulary::begin);
  for (bool done = false; !done;) {
    cache.reorder(rows);
    const auto log_probabilities = model->step(tokens_in, cache).log_softmax(-1);
    const auto [best, chosen] = log_probabilities.topk(search.width());
    Continuations continuations{.width = search.width(), .tokens = {}, .log_probabilities = {}};
    for (int64_t i = 0; i < best.numel(); ++i) {
      continuations.tokens.push_back(chosen.view(-1)[i].item<int64_t>());
      continuations.log_probabilities.push_back(best.view(-1)[i].item<double>());
    }
    done = search.advance(continuations, 0);
    std::vector<int64_t> parents, newest;
    std::string text;
    for (const auto& live : search.live()) {
      parents.push_back(live.parent);
      newest.push_back(live.token);
      text += fmt::format("  {:<10}{:6.2f}", piece(live.token), live.log_probability);
    }
    if (!done) fmt::print("{}\n", text);
    rows = torch::tensor(parents, torch::kInt64);
    tokens_in = torch::tensor(newest, torch::kInt64);
  }
  const auto result = search.take_result();
  fmt::print("the best, by log p / lp: {:.2f}  {}\n", result.front().score,
             vocabularies.target->decode(result.front().tokens));
}

// --- pictures
// -----------------------------------------------------------------------------------------------------------

void write(const std::string& folder, const std::string& name, const std::string& svg) {
  std::ofstream out(folder + "/" + name, std::ios::binary);
  out << svg;
  if (!out.flush()) throw std::runtime_error("cannot write " + name);
}

Axis axis(const std::string& label, Scale scale = Scale::linear) {
  return {.label = label, .scale = scale, .lower = std::nullopt, .upper = std::nullopt};
}

PlotSeries curve(const std::string& name, int64_t style) {
  return {.name = name, .points = {}, .markers = false, .style = style};
}

void add(PlotSeries& series, double x, double y) {
  series.points.push_back({.x = x, .y = y, .title = "", .label = ""});
}

LinePlot plot(const std::string& title, const Axis& x, const Axis& y) {
  LinePlot made;
  made.title = title;
  made.x = x;
  made.y = y;
  return made;
}

void pictures(const std::string& folder) {
  constexpr int64_t d_model = 512, count = 100;
  auto sinusoid = plot("Positional encoding, d_model = 512", axis("position"), axis("value"));
  const auto encodings = sinusoids(0, count, d_model);
  for (const int64_t dimension : {60, 61, 100, 160}) {
    auto series = curve(fmt::format("dimension {}", dimension), static_cast<int64_t>(sinusoid.series.size()));
    for (int64_t position = 0; position < count; ++position) {
      add(series, static_cast<double>(position), encodings[static_cast<size_t>(position * d_model + dimension)]);
    }
    sinusoid.series.push_back(series);
  }
  write(folder, "tour-sinusoids.svg", line_plot(sinusoid, SvgUse::standalone));

  auto noam = plot("Learning rate", axis("step"), axis("rate"));
  for (const auto& schedule : {NoamSchedule{512, 4000}, NoamSchedule{512, 8000}, NoamSchedule{1024, 4000}}) {
    auto series = curve(fmt::format("d_model {}, warmup {}", schedule.d_model, schedule.warmup_steps),
                        static_cast<int64_t>(noam.series.size()));
    for (int64_t step = 50; step <= 20000; step += 50) add(series, static_cast<double>(step), schedule(step));
    noam.series.push_back(series);
  }
  write(folder, "tour-noam.svg", line_plot(noam, SvgUse::standalone));

  // What the loss of each probability for the right token is, where the other 9 tokens share the rest.
  auto loss = plot("Loss of a token, vocabulary of 10", axis("probability of the right token"), axis("nats"));
  for (const double smoothing : {0.0, 0.1, 0.2}) {
    auto series = curve(fmt::format("ε = {:.1f}", smoothing), static_cast<int64_t>(loss.series.size()));
    for (double p = 0.02; p < 0.999; p += 0.01) {
      auto probabilities = torch::full({1, 10}, (1 - p) / 9, torch::kDouble);
      probabilities[0][0] = p;
      add(series, p,
          label_smoothing_loss(probabilities.log(), torch::zeros({1}, torch::kInt64), smoothing, -1)
              .loss.item<double>());
    }
    loss.series.push_back(series);
  }
  write(folder, "tour-label-smoothing.svg", line_plot(loss, SvgUse::standalone));

  // What a query may attend to: as weights that are shared out evenly.
  AttentionView view;
  view.kind = AttentionView::Kind::decoder;
  view.queries = view.keys = {"<s>", "Das", "Wetter", "ist", "heute", "schön", "."};
  view.layers = {1};
  view.heads = {1, 2};  // causal; causal in a window of 4
  view.layer_count = 1;
  const auto length = static_cast<int64_t>(view.keys.size());
  for (const int64_t window : {0, 4}) {
    const auto seen = neighbourhood(0, length, 0, length, {.causal = true, .window = window}, torch::kCPU);
    const auto even = seen->to(torch::kFloat) / seen->sum(-1, /*keepdim=*/true);
    for (int64_t i = 0; i < even.numel(); ++i) view.weights.push_back(even.view(-1)[i].item<float>());
  }
  AttentionReport report;
  report.views = {view};
  write(folder, "tour-masks.svg", attention_heat_maps(view));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: tour walk MODEL | tour pictures FOLDER\n";
    return 2;
  }
  if (std::string_view(argv[1]) == "walk") {
    walk(argv[2]);
  } else {
    pictures(argv[2]);
  }
}
