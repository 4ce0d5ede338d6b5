#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "transformer/architecture/settings.h"
#include "transformer/text/corpus.h"
#include "transformer/text/vocabulary.h"
#include "transformer/training/run_folder.h"
#include "transformer/training/settings.h"
#include "transformer/training/trainer.h"

namespace transformer {

/// Everything a training run is told.
struct RunSettings {
  DataSettings data;                         // section `data`, and so on
  VocabularySettings vocabulary;             // how one is learned
  ModelSettings model;                       // what is trained
  TrainingSettings training;                 // and how
  std::string config;                        // the complete settings as they are saved: every section as YAML
  std::map<std::string, SettingRule> rules;  // of all of them: what a run that has begun may change
};

/// What a run needs from outside, built once vocabularies and validation data are known.
struct RunHooks {
  /// Judges a model on the validation corpus; called at intervals and on the final model, by all ranks of
  /// `communicator`, which may share the work. Rank 0's result counts, and it alone writes the file `hypotheses`.
  std::function<Validation(Communicator& communicator, Transformer& model, const Vocabularies& vocabularies,
                           const Corpus& validation, const std::filesystem::path& hypotheses)>
      validate;
  /// Called by all ranks before training begins, when the texts are read: what `validate` needs of files is taken up
  /// here, whatever becomes of them later.
  std::function<void()> begins = {};
  /// As TrainerHooks has it.
  const std::atomic<bool>* stop = nullptr;
  /// Lines for a person. Rank 0 alone writes any.
  Log log = {};
};

/// Throws Error where settings contradict each other; looks at no file.
void check_settings(const RunSettings& settings);

/// What is asked of a run besides its settings.
struct RunOptions {
  RunFolderOptions folder;    // what may become of a run that the output folder holds
  int64_t profile_steps = 0;  // write a Chrome trace of so many steps
};

/// How a call ended: with a model, or because it was told to stop.
enum class RunEnd {
  finished,    // a model is there, made now or before
  interrupted  // a checkpoint is there, to go on from
};

/// From text to a model directory: learns vocabularies or takes those of `training.init_from`, reads the corpus,
/// trains, averages checkpoints and leaves `training.output` as a model directory with summary.json beside it. An
/// output directory that holds a run of the same settings is gone on with, a finished one left as it is; RunFolder says
/// what happens to others. All that can be checked is checked before anything in the directory changes. Throws Error,
/// or Failure as Trainer::run does.
///
/// All ranks of `communicator` call it, with the same settings, but for those that say where each computes
/// (says_where), the same texts, and a directory that all of them can read; rank 0 alone writes. `device` is this
/// rank's own. Throws Error on every rank where one has others, or does not see what rank 0 has in the directory.
RunEnd run_training(Communicator& communicator, const std::string& device, const RunSettings& settings,
                    const RunHooks& hooks, const RunOptions& options = {});

/// The model's summary, as `train --dry-run` prints it: `parameters: N` first.
std::string model_summary(const ModelSettings& settings);

/// Checks what a run would read, wherever it goes: settings, texts, a vocabulary or a model that is given. Throws
/// Error.
void check_inputs(const RunSettings& settings);

/// Checks all that a run would need before it computes anything: settings, what its folder holds, files, vocabulary,
/// space on the disk. Changes nothing. Returns a description of what it found.
std::string check_run(const RunSettings& settings, const RunOptions& options = {});

}  // namespace transformer
