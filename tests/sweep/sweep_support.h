#pragma once

#include <sys/stat.h>

#include "support.h"
#include "transformer/base/error.h"
#include "transformer/sweep/plan.h"

namespace transformer::test {

/// Settings as small as they can be, in the sections that training has.
struct ToyModel {
  int64_t d_model = 64, heads = 4, d_k = 0, encoder_layers = 6, decoder_layers = 6, vocabulary_size = 100;
  double dropout = 0.1;
  static void describe(Fields<ToyModel>& field) {
    field("d_model", &ToyModel::d_model, "", at_least(1));
    field("heads", &ToyModel::heads, "", at_least(1));
    field("d_k", &ToyModel::d_k, "", at_least(0));
    field.pair("layers", {"encoder_layers", "decoder_layers"}, "");
    field("encoder_layers", &ToyModel::encoder_layers, "");
    field("decoder_layers", &ToyModel::decoder_layers, "");
    field("vocabulary_size", &ToyModel::vocabulary_size, "");
    field("dropout", &ToyModel::dropout, "", fraction());
  }
};

struct ToyTraining {
  std::string output, device = "cpu", init_from;
  uint64_t seed = 1;
  int64_t steps = 100, threads = 0, log_every = 100, average_checkpoints = 5;
  static void describe(Fields<ToyTraining>& field) {
    field("output", &ToyTraining::output, "");
    field("device", &ToyTraining::device, "");
    field("init_from", &ToyTraining::init_from, "");
    field("seed", &ToyTraining::seed, "", between(0, 9007199254740992));
    field("steps", &ToyTraining::steps, "", at_least(1));
    field("threads", &ToyTraining::threads, "");
    field("log_every", &ToyTraining::log_every, "");
    field("average_checkpoints", &ToyTraining::average_checkpoints, "");
  }
};

struct ToyData {
  std::string cache, train_source = "text";
  std::vector<std::string> train_tags;
  static void describe(Fields<ToyData>& field) {
    field("cache", &ToyData::cache, "");
    field("train_source", &ToyData::train_source, "");
    field("train_tags", &ToyData::train_tags, "");
  }
};

struct ToyRecipe {
  ToyModel model;
  ToyTraining training;
  ToyData data;
  Settings settings;
  ToyRecipe() {
    settings.section("model", model, "");
    settings.section("training", training, "");
    settings.section("data", data, "");
  }
  ToyRecipe(const ToyRecipe&) = delete;
};

inline ReadConfiguration toy_reader() {
  return {.plain =
              [](const std::filesystem::path& file) {
                ToyRecipe recipe;
                recipe.settings.load(file);
                return recipe.settings.values();
              },
          .checked =
              [](const std::filesystem::path& file, const std::vector<std::vector<SettingOverride>>& layers) {
                ToyRecipe recipe;
                recipe.settings.load(file);
                for (const auto& layer : layers) recipe.settings.override_with(layer);
                const auto& model = recipe.model;
                if (model.d_k == 0 && model.d_model % model.heads != 0) {
                  throw Error("model.heads", fmt::format("{} does not divide d_model {}", model.heads, model.d_model));
                }
                return RunConfiguration{recipe.settings.values(),
                                        1e9 * static_cast<double>(recipe.training.steps),
                                        {recipe.data.train_source}};
              }};
}

inline void write_program(const std::filesystem::path& file, const std::string& text) {
  write_file(file, text);
  chmod(file.c_str(), 0755);
}

}  // namespace transformer::test
