#pragma once

#include <ATen/Parallel.h>

#include <map>
#include <string>

#include "apps/line_work.h"
#include "apps/setting_options.h"
#include "transformer/base/device.h"
#include "transformer/base/settings.h"
#include "transformer/decoding/translator.h"

namespace transformer {

/// What every program has that decodes with a model directory: the model, the processor, the search. Must outlive the
/// parsing.
class DecodingOptions {
 public:
  explicit DecodingOptions(CLI::App& app)
      : search_(app, "Search (what is not given is as in the model's config.yaml)") {
    app.add_option("--model", model_, "Model directory, as train writes it")->required();
    app.add_option("--device", device_, "cpu, cuda, cuda:1")->capture_default_str();
    app.add_option(
           "--precision", precision_,
           "What weights and activations are rounded to: float32 (as trained), bf16, int8 (on a CPU) or fp16 (on "
           "a GPU)")
        ->check(CLI::IsMember(precisions()))
        ->option_text("{float32,bf16,int8,fp16}")
        ->capture_default_str();
    app.add_option("--threads", threads_,
                   "Processor threads, each with lines of its own; if not given, one for each core")
        ->check(CLI::Range(1, 1024));
  }

  // After parsing:

  const std::string& model() const { return model_; }

  /// Throws Error where it is not there. To be asked before anything is opened or begun.
  torch::Device device() const { return open_device(device_); }

  /// The model, as the command line asks for it.
  Translator open() const {
    if (threads_ > 0) at::set_num_threads(threads_);
    const auto device = open_device(device_);
    InferenceOptions inference;
    inference.precision = precisions().at(precision_);
    inference.threads = at::get_num_threads();
    Translator translator(model_, device, inference);
    translator.set(search_.over(translator.settings()));
    return translator;
  }

  /// Everything that decides what `translator`, as opened, makes of a line, by name. Threads do not.
  std::map<std::string, std::string> identity(const Translator& translator) const {
    auto search = translator.settings();
    Settings settings;
    settings.section("decoding", search, "");
    return {{"model", model_checksum(model_)},
            {"search", settings.yaml()},
            {"precision", precision_},
            {"device", device_.substr(0, device_.find(':'))}};
  }

 private:
  static const std::map<std::string, Precision>& precisions() {
    static const std::map<std::string, Precision> names = {{"float32", Precision::float32},
                                                           {"bf16", Precision::bf16},
                                                           {"int8", Precision::int8},
                                                           {"fp16", Precision::fp16}};
    return names;
  }

  std::string model_, device_ = "cpu", precision_ = "float32";
  int threads_ = 0;
  SettingOptions<DecodingSettings> search_;
};

}  // namespace transformer
