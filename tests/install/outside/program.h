#pragma once

#include <transformer/training/distributed/processes.h>
#include <transformer/training/trainer.h>

#include <filesystem>
#include <iostream>

/// Trains in a folder, from its newest checkpoint on where it has one.
inline void train(const transformer::Launch& launch, const transformer::TrainingTask& task,
                  const transformer::TrainingSettings& settings, const std::filesystem::path& run,
                  const transformer::TrainerHooks& hooks = {}) {
  transformer::Communicator communicator(launch, {});
  communicator.guard([&] {
    transformer::Trainer trainer(communicator, task, settings, run, {}, hooks);
    if (!transformer::resumable_checkpoints(run).empty()) trainer.resume();
    trainer.run();
  });
}

/// main of PROGRAM ARGUMENT.. [--processes N], with `arguments` of those.
template <class Body>
int program(int argc, char** argv, int arguments, const Body& body) {
  try {
    const bool several = argc == arguments + 3;
    if (argc != arguments + 1 && !several) throw std::invalid_argument("other arguments are expected");
    const auto launch = transformer::read_launch(transformer::process_environment());
    if (several && !launch.distributed())
      return transformer::run_processes(std::stoi(argv[argc - 1]), {argv, argv + argc});
    body(argv, launch);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << "\n";
    return 1;
  }
}
