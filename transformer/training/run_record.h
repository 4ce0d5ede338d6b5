#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace transformer {

/// run.json in a run's folder: which names there are the run's, and what has been set aside.
struct RunRecord {
  struct Change {
    int64_t step = 0;
    std::string setting, before, after;
  };
  struct Facts {  // what there is to know about a run
    std::vector<std::string> files;
    std::string corpus;
    std::vector<Change> changes;
  };
  enum class Stage { none, moving, kept, returning, purging };
  struct SetAside {
    Stage stage = Stage::none;
    int64_t from = -1;                // -1: by restart
    std::vector<std::string> items;   // relative to the folder
    std::vector<std::string> moving;  // to be among them
    Facts before;
  };

  static constexpr const char* name = "run.json";

  Facts facts;
  SetAside set_aside;

  /// The record of the run in `folder`, if there is one. Throws Error where something else has its name. It may come
  /// from anywhere: one that names anything but what runs make is damaged, so that nothing else is moved or deleted
  /// because it says so.
  static std::optional<RunRecord> read(const std::filesystem::path& folder);
  void write(const std::filesystem::path& folder) const;
};

}  // namespace transformer
