#pragma once

#include <string>
#include <vector>

namespace transformer {

// What a run calls what it writes into its folder. A name is of something directly in it ("config.yaml",
// "checkpoints"); an entry is a file there, or what lies in one of the run's folders ("checkpoints/step-00000100").

/// Folders of which the run owns what is named as runs name it.
const std::vector<std::string>& run_folder_names();

/// Whether it is one of run_folder_names().
bool is_run_folder(const std::string& name);
/// Whether it is a name of any kind: of run_file_names (run_files.h), of a vocabulary or of a folder.
bool is_run_name(const std::string& name);
/// Whether a run names its entries so; a folder itself is none.
bool is_run_entry(const std::string& entry);

}  // namespace transformer
