#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "apps/line_work.h"
#include "apps/number_option.h"
#include "apps/search_options.h"
#include "transformer/architecture/model_directory.h"
#include "transformer/base/checksum.h"
#include "transformer/base/device_name.h"
#include "transformer/base/error.h"
#include "transformer/base/settings.h"
#include "transformer/base/threads.h"
#include "transformer/inference/inference_model.h"
#include "transformer/inference/shortlist.h"
#include "transformer/inference/translator.h"

namespace transformer {

/// What every program has that decodes with a model directory: the model, the processor, the search. Must outlive the
/// parsing.
class DecodingOptions {
 public:
  /// `several`: whether models may decode together.
  explicit DecodingOptions(CLI::App& app, bool several = false)
      : search_(app, "the model's", several ? std::set<std::string>() : std::set<std::string>{"proposals"}) {
    if (several) {
      app.add_option("--model", models_,
                     "Model directory, as train writes it; given several times, models of one vocabulary that decode "
                     "together, on a CPU")
          ->required()
          ->allow_extra_args(false)
          ->option_text("DIR ...");
      app.add_option("--weights", weights_,
                     "With several models: how much each counts, such as 2,1; if not given, all "
                     "count the same")
          ->delimiter(',')
          ->option_text("NUMBER,...");
      app.add_option("--ensemble", average_,
                     "With several models: whether their probabilities are averaged or the logarithms of these")
          ->check(CLI::IsMember({"probabilities", "log_probabilities"}))
          ->option_text("{probabilities,log_probabilities} [probabilities]");
      app.add_option("--draft", draft_,
                     "A small model of the same vocabulary that guesses what the model then checks, several word "
                     "pieces at a time: faster where few lines are translated at once, and the same to the last bit. "
                     "With --beam 1, or one sample a line, on a CPU")
          ->option_text("DIR");
    } else {
      models_.resize(1);
      app.add_option("--model", models_.front(), "Model directory, as train writes it")->required()->type_name("DIR");
    }
    app.add_option("--device", device_, "cpu, cuda or cuda:N")->type_name("DEVICE")->capture_default_str();
    app.add_option(
           "--precision", precision_,
           "What weights and activations are rounded to: float32 (as trained), bf16, int8 (on a CPU) or fp16 (on "
           "a GPU); if not given, as the model is stored")
        ->check(CLI::IsMember({"float32", "bf16", "int8", "fp16"}))
        ->option_text("{float32,bf16,int8,fp16}");
    app.add_option(
           "--shortlist", shortlist_,
           "Write outputs in the word pieces alone that this file, made by the program shortlist, lists for their "
           "sources: faster, and nearly the same; probabilities, and scores, are then among these pieces")
        ->type_name("FILE");
    app.add_option("--threads", threads_,
                   "Processor threads, each with lines of its own; if not given, OMP_NUM_THREADS, or one for each core")
        ->type_name("N")
        ->transform(number_between(1, 1024));
  }

  // After parsing:

  const std::string& model() const { return models_.front(); }

  /// Files and folders that are read.
  std::vector<std::string> inputs() const {
    auto all = models_;
    for (const auto& file : {draft_, shortlist_}) {
      if (!file.empty()) all.push_back(file);
    }
    return all;
  }

  int64_t threads() const { return threads_ > 0 ? threads_ : default_threads(); }

  /// Windows of lines that `translator`'s workers need to have sentences always, so that none waits for the longest of
  /// a window.
  size_t windows(const Translator& translator) const {
    if (!translator.packed()) return 1;
    const int64_t at_once = threads() * translator.settings().batch_sentences;
    return static_cast<size_t>(2 + at_once / static_cast<int64_t>(LineWork::window_lines));
  }

  /// Throws Error where the device's name is none, and for options that have no place with each other. To be asked
  /// before anything is opened or begun.
  void check_device() const {
    const bool gpu = gpu_of(device_).has_value();
    if (models_.size() > 1 && gpu) throw Error("--device", "several models decode on a CPU", "leave it out");
    if (!draft_.empty() && (gpu || models_.size() > 1)) {
      throw Error("--draft", gpu ? "drafts are for decoding on a CPU" : "proposes for one model, not for several",
                  "leave it out");
    }
    if (search_.given("proposals") && draft_.empty()) {
      throw Error("--proposals", "are a draft model's, and there is none", "give --draft DIR with it, or leave it out");
    }
    for (const bool given : {!weights_.empty(), !average_.empty()}) {
      if (given && models_.size() == 1) {
        throw Error("--model", "a single one has nothing to be averaged with",
                    "give several, or leave --weights and "
                    "--ensemble out");
      }
    }
  }

  /// The packed weights of a model that is open already, or else the model on a CPU, in the precision asked for where
  /// it can be had there: for what is computed with packed weights alone.
  std::shared_ptr<const InferenceModel> packed(const Translator& translator) const {
    if (translator.packed()) return translator.packed();
    const auto precision = precision_named(precision_);
    return InferenceModel::load(model(), read_model_settings(model()),
                                precision == Precision::fp16 ? Precision::float32 : precision);
  }

  /// The model, as the command line asks for it.
  Translator open() const {
    InferenceOptions inference;
    inference.precision = precision_named(precision_);
    inference.threads = threads();
    Translator translator = models_.size() == 1
                                ? Translator(model(), device_, inference)
                                : Translator({models_.begin(), models_.end()}, weights_,
                                             average_ == "log_probabilities" ? Ensemble::Average::log_probabilities
                                                                             : Ensemble::Average::probabilities,
                                             inference);
    translator.set(search_.over(translator.settings(), translator.vocabularies()));
    if (!shortlist_.empty()) {
      translator.set_shortlist(
          std::make_shared<const Shortlist>(Shortlist::read(shortlist_, translator.vocabularies())));
    }
    if (!draft_.empty()) translator.set_draft(draft_);
    return translator;
  }

  /// Everything that decides what `translator`, as opened, makes of a line, by name. Threads and drafts do not, nor do
  /// batches on a CPU.
  std::map<std::string, std::string> identity(const Translator& translator) const {
    auto search = translator.settings();
    const DecodingSettings defaults;
    search.proposals = defaults.proposals;
    if (!gpu_of(device_)) search.batch_sentences = defaults.batch_sentences;
    Settings settings;
    settings.section("decoding", search, "");
    std::string models;
    for (const auto& model : models_) models += model_checksum(model) + ' ';
    std::map<std::string, std::string> all = {
        {"model", models},
        {"way of averaging", fmt::format("{} {}", average_ == "probabilities" ? "" : average_,
                                         fmt::join(counts_alike() ? std::vector<double>() : weights_, ","))},
        {"search", settings.yaml()},
        {"precision", precision_.empty() ? "float32" : precision_},  // what is stored is the model's
        {"device", device_.substr(0, device_.find(':'))}};
    if (!shortlist_.empty()) all["shortlist"] = file_checksum(shortlist_);
    return all;
  }

 private:
  /// As models do without --weights.
  bool counts_alike() const {
    return std::adjacent_find(weights_.begin(), weights_.end(), std::not_equal_to<>()) == weights_.end();
  }

  std::vector<std::string> models_;
  std::vector<double> weights_;
  std::string average_, device_ = "cpu", precision_, shortlist_, draft_;
  int threads_ = 0;
  SearchOptions search_;
};

}  // namespace transformer
