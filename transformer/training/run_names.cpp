#include "transformer/training/run_names.h"

#include <algorithm>
#include <regex>
#include <utility>

#include "transformer/base/run_files.h"
#include "transformer/training/checkpoint.h"

namespace transformer {

namespace {

/// Folders of a run, and whether it gives a name to what it puts into them.
using Grammar = bool (*)(const std::string& name);
const std::vector<std::pair<std::string, Grammar>>& grammars() {
  static const std::vector<std::pair<std::string, Grammar>> grammars = {
      {checkpoints_name, [](const std::string& name) { return parse_checkpoint_name(name).has_value(); }},
      {validations_name,
       [](const std::string& name) {
         static const std::regex grammar(R"((step-[0-9]{8,}|final)\.txt)");
         return std::regex_match(name, grammar);
       }},
      {corpus_name, [](const std::string& name) {
         static const std::regex grammar(R"([0-9a-f]{32}(\.lock|\.partial)?|texts\.json)");
         return std::regex_match(name, grammar);
       }}};
  return grammars;
}

template <class Names>
bool contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

const std::vector<std::string>& run_folder_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> folders;
    for (const auto& [folder, grammar] : grammars()) folders.push_back(folder);
    return folders;
  }();
  return names;
}

bool is_run_folder(const std::string& name) {
  return contains(run_folder_names(), name);
}

bool is_run_name(const std::string& name) {
  return contains(run_file_names, name) || contains(vocabulary_names, name) || is_run_folder(name);
}

bool is_run_entry(const std::string& entry) {
  const auto slash = entry.find('/');
  if (slash == std::string::npos) return is_run_name(entry) && !is_run_folder(entry);
  for (const auto& [folder, grammar] : grammars()) {
    if (folder == entry.substr(0, slash)) return grammar(entry.substr(slash + 1));
  }
  return false;
}

}  // namespace transformer
