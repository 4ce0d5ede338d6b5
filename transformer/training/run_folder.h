#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "transformer/base/file_lock.h"
#include "transformer/base/settings.h"
#include "transformer/training/claimed_folder.h"
#include "transformer/training/run_record.h"

namespace transformer {

/// What a run is told about its folder.
struct RunFolderOptions {
  bool restart = false;      // replace the run that is there
  std::string from = {};     // go on from the checkpoint of this step, or "last"; empty: no other settings are meant
  bool look_only = false;    // --dry-run: change nothing, take no lock
  bool profile = false;      // trace.json is written, too
  std::string command = {};  // what the user typed, for messages; empty: not known
  /// Who starts the run's processes again where one fails, with the same arguments (agent_name): `restart` and `from`
  /// count once for as long as one of them is there. Empty: nobody does.
  std::set<std::string> agents = {};
  /// The checksum of the text that vocabularies are learned from, asked for where a run has none of its own yet; null:
  /// they are not learned.
  std::function<std::string()> vocabulary_text = nullptr;
};

/// A run's folder, which may be a user's folder as well: which files in it are the run's own, and what happens to them.
///
/// run.json records the run's names before anything is made under them; they must have been free then. What is not
/// recorded is the user's and is never written to, moved or deleted. In the folders checkpoints/, validation/ and
/// corpus/ only what is named as runs name it is the run's, and within a checkpoint only what checkpoints consist of:
/// other files there are named before what holds them is replaced, and stay where an older checkpoint makes room. A
/// vocabulary that the user put there is used, and stays the user's: the run's is the one whose checksum is recorded.
///
/// Runs from before there was a record are recognised by a whole checkpoint whose settings are the run's; the record is
/// written when they go on.
///
/// What is replaced (by `restart`), or lies behind the step that a run goes back to (`from`), is set aside by renaming,
/// in `.replaced` beside where it was, and deleted when the run has a scheduled checkpoint again, or has ended without
/// needing one (`progressed`); until then `undo` brings it back. Killed anywhere in between, the next start finishes or
/// reverts what was begun.
///
/// Only one process may use a folder at a time, and of several that train together only rank 0.
class RunFolder {
 public:
  /// What was there before.
  enum class Found {
    nothing,      // nothing that can be gone on with
    run,          // a run with a checkpoint to go on from
    finished_run  // a run that has left its model
  };

  /// Looks at `folder` and decides what a run with the settings `config` (Settings::yaml(), kinds in `rules`) may do
  /// there; changes nothing, except that what a killed process left half done is finished or reverted. Throws Error
  /// where a file of the user's is in the way, where there is a run with other settings, or a run is being worked on;
  /// Failure where something cannot be looked at, or a checkpoint cannot be read (read_kept).
  RunFolder(std::filesystem::path folder, const std::string& config, const std::map<std::string, SettingRule>& rules,
            const RunFolderOptions& options);

  /// What there is to go on with: nothing too where a run came no further than before its first checkpoint.
  Found found() const { return found_; }
  /// Whether the vocabulary `name` that is there will be the run's: the user's, or learned for these settings.
  bool keeps(const std::string& name) const;
  /// Whether the vocabulary `name` is gone, and will come back from a checkpoint.
  bool brings_back(const std::string& name) const { return lost_vocabularies_.contains(name); }
  /// Throws Error where `path`, which `what` names, is one of the files that `claim` will set aside.
  void check_input(const std::string& what, const std::filesystem::path& path) const;
  /// Throws Error where `path`, which `what` names and which others write to, is or lies in what the run makes.
  void check_apart(const std::string& what, const std::filesystem::path& path) const;

  /// Makes the folder the run's: locks it, and for a new run sets aside what is replaced, records its names and writes
  /// config.yaml. To be called when all that can be checked has been.
  void claim();
  /// Throws Failure where that folder is not at its path any more (ClaimedFolder): before anything is written there. To
  /// be called after `claim`; what writes there of the following does so itself.
  void check_in_place() const;
  /// Puts a vocabulary that the run has made, or copied, where it belongs, after `claim`: recorded before it is there.
  void put_vocabulary(const std::string& name, const std::string& contents);
  /// Throws Error where the run was trained on another text; `checksum` is its tokenised content's.
  void check_corpus(const std::string& checksum) const;
  /// The run begins or goes on: what lies behind `from` is set aside, changed settings are recorded.
  void begin(const std::string& checksum);
  /// There may be a scheduled checkpoint or the final model now: then what was set aside goes.
  void progressed();

  /// Whether something is set aside that the next scheduled checkpoint or the end deletes, and how to get it back.
  std::string set_aside_text() const;
  /// Brings back what the last restart or `from` set aside. Throws Error where nothing is.
  static void undo(const std::filesystem::path& folder);

  /// The record's name, of which a run's folder is known.
  static constexpr const char* record_name = RunRecord::name;

 private:
  struct Difference {
    std::string name, before, after;
    SettingKind kind;
  };

  explicit RunFolder(std::filesystem::path folder);  // to undo
  bool read_record();
  void lock();
  void look();
  void recognise();
  void decide();
  /// Of the text that vocabularies are learned from; empty where they are not.
  const std::string& vocabulary_text();
  /// Names that a run writes to, but for vocabularies.
  std::vector<std::string> wanted() const;
  std::vector<std::string> own_entries() const;
  /// Whether the file of this name is the run's: of vocabularies, the one that was recorded.
  bool owns(const std::string& name) const;
  /// That the run is to come to.
  int64_t steps() const;
  /// Throws Error where something of the user's lies within what will be set aside or deleted, or a checkpoint would be
  /// deleted, since what is set aside already is what it replaced.
  void check_replaced() const;
  void remove_own(const std::vector<std::string>& entries) const;
  std::vector<std::string> entries_behind(int64_t step) const;
  /// Since something was set aside.
  std::vector<std::string> entries_made_since() const;
  /// Than what was set aside: by a scheduled checkpoint, or to the end. Who stops a run that replaces another by
  /// mistake leaves a checkpoint as well.
  bool has_come_further() const;
  std::filesystem::path choose_checkpoint();
  std::string undo_advice() const;
  std::vector<Difference> differences(const std::map<std::string, std::string>& saved) const;
  /// Whether config.yaml is another than the run wrote: its reader may have edited it.
  bool is_edited() const;
  /// The run's settings, as config.yaml has them; where that is gone, or is not what the run wrote, those of the newest
  /// checkpoint with the changes since, and of the chosen one where the run is to go on from there.
  std::map<std::string, std::string> saved_settings(bool begun);
  /// Throws Error where a vocabulary is another than the first whole one of `checkpoints`; one that is gone will be
  /// brought back.
  void check_vocabularies(const std::vector<std::filesystem::path>& checkpoints);

  std::filesystem::path aside(const std::string& item) const;
  void remove_empty_folders(const std::vector<std::string>& items) const;
  /// Throws what is refused on the way; what had been moved is then back, or comes back at the next start.
  void set_aside(const std::vector<std::string>& items, int64_t from, const RunRecord::Facts& after);
  /// What was on its way aside is back where it was.
  void revert_moving();
  void give_back(const std::vector<std::string>& items);
  void finish_undo();
  void purge();
  void recover();

  std::filesystem::path folder_;
  std::string config_;
  std::map<std::string, std::string> given_;  // what it says, as flat_settings
  std::map<std::string, SettingRule> rules_;
  RunFolderOptions options_;
  std::optional<FolderLock> lock_;
  std::optional<ClaimedFolder> claimed_;  // since it is locked
  bool recorded_ = false;                 // run.json is there
  bool recognised_ = false;               // a run from before there was one
  RunRecord record_;
  Found found_ = Found::nothing;
  bool done_before_ = false;  // what was asked for, by an earlier attempt of this launch
  bool undone_ = false;       // what a killed process was setting aside, or bringing back, is back
  bool starts_anew_ = false;  // what is there of a run came to nothing, and was of other settings or another text
  std::optional<std::string> vocabulary_text_;  // once it is known
  int64_t from_ = -1;
  std::vector<RunRecord::Change> changes_;                          // that `from` brings
  std::map<std::string, std::filesystem::path> lost_vocabularies_;  // by their names: where there are copies
};

}  // namespace transformer
