#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "transformer/base/model_files.h"

namespace transformer {

/// The values of a saved configuration (Settings::yaml), a setting a line, by their names: "section.setting".
std::map<std::string, std::string> flat_settings(const std::string& yaml);

/// run.json in a run's folder: which names there are the run's, and what has been set aside.
struct RunRecord {
  /// A setting that the run was given another value of on its way.
  struct Change {
    int64_t step = 0;                    // after which the new value counts
    std::string setting, before, after;  // "section.setting"; values as --set takes them
  };
  /// What there is to know about a run.
  struct Facts {
    std::vector<std::string> files;                   // names that are the run's
    std::string corpus;                               // its text's checksum (Corpus::checksum)
    std::map<std::string, std::string> vocabularies;  // that it has put there: checksums of their files
    std::string vocabulary_text;                      // the checksum of the text that they were learned from
    std::string config;                               // that of config.yaml, as the run wrote it
    std::vector<Change> changes;                      // in the order in which they were made
  };
  /// How far setting aside, or what follows it, has come, so that the next start can finish it.
  enum class Stage {
    none,       // nothing is set aside
    moving,     // `moving` is on its way aside
    kept,       // `items` lie aside
    returning,  // `items` are on their way back
    purging     // `items` are being deleted
  };
  /// What has been set aside.
  struct SetAside {
    Stage stage = Stage::none;        // of what follows
    int64_t from = -1;                // -1: by restart
    std::vector<std::string> items;   // relative to the folder
    std::vector<std::string> moving;  // to be among them
    Facts before;                     // the facts that bringing it back restores
  };

  /// Of the file.
  static constexpr const char* name = run_record_name;

  Facts facts;                   // of the run as it is now
  SetAside set_aside;            // to be brought back, or deleted
  std::set<std::string> agents;  // of the launch that the last --restart or --from was of, by their names (agent_name)

  /// The record of the run in `folder`, if there is one. Throws Error where something else has its name. It may come
  /// from anywhere: one that names anything but what runs make is damaged, so that nothing else is moved or deleted
  /// because it says so.
  static std::optional<RunRecord> read(const std::filesystem::path& folder);
  /// Replaces the record in `folder`, whole or not at all. Throws Failure.
  void write(const std::filesystem::path& folder) const;
};

}  // namespace transformer
