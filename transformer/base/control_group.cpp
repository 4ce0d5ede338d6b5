#include "transformer/base/control_group.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transformer/base/number.h"

namespace transformer {

namespace {

/// What stands between blanks in a file; nothing where it cannot be read.
std::vector<std::string> words_in(const std::filesystem::path& file) {
  std::vector<std::string> words;
  std::ifstream stream(file);
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// The number that a file holds; none where it holds another word, such as "max", which stands for no limit.
std::optional<int64_t> number_at(const std::filesystem::path& file) {
  const auto words = words_in(file);
  return words.empty() ? std::nullopt : number_in<int64_t>(words[0]);
}

void take_processors(std::optional<int64_t> quota, std::optional<int64_t> period, ControlGroupLimits& limits) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return;
  limits.processors = std::min(limits.processors, static_cast<double>(*quota) / static_cast<double>(*period));
}

/// `prefix`: what names in memory.stat begin with. The pages of files count as used, and are given up where they must.
void take_memory(std::optional<int64_t> limit, std::optional<int64_t> used, const std::filesystem::path& group,
                 const std::string& prefix, ControlGroupLimits& limits) {
  if (!limit || !used) return;
  const auto statistics = words_in(group / "memory.stat");
  for (const char* pages : {"inactive_file", "active_file"}) {
    const auto name = std::find(statistics.begin(), statistics.end(), prefix + pages);
    if (statistics.end() - name >= 2) *used -= number_in<int64_t>(name[1]).value_or(0);
  }
  limits.free_bytes = std::min(limits.free_bytes, *limit - std::max<int64_t>(0, *used));
}

void take_group(const std::filesystem::path& group, ControlGroupLimits& limits) {
  // Version 2.
  if (const auto words = words_in(group / "cpu.max"); words.size() == 2) {
    take_processors(number_in<int64_t>(words[0]), number_in<int64_t>(words[1]), limits);
  }
  take_memory(number_at(group / "memory.max"), number_at(group / "memory.current"), group, "", limits);
  // Version 1.
  take_processors(number_at(group / "cpu.cfs_quota_us"), number_at(group / "cpu.cfs_period_us"), limits);
  take_memory(number_at(group / "memory.limit_in_bytes"), number_at(group / "memory.usage_in_bytes"), group, "total_",
              limits);
}

/// Whether a list such as "cpu,cpuacct" has `name`.
bool lists(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const auto comma = std::min(names.find(','), names.size());
    if (names.substr(0, comma) == name) return true;
    names.remove_prefix(std::min(comma + 1, names.size()));
  }
  return false;
}

}  // namespace

ControlGroupLimits control_group_limits(const std::filesystem::path& root) {
  ControlGroupLimits limits;
  const auto mounted = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // number:controllers:/path
    const auto controllers_at = line.find(':') + 1;
    const auto path_at = line.find(':', controllers_at) + 1;
    if (controllers_at == 0 || path_at == 0) continue;
    const auto controllers = std::string_view(line).substr(controllers_at, path_at - 1 - controllers_at);
    std::filesystem::path hierarchy;
    if (controllers.empty()) {
      hierarchy = mounted;
    } else if (lists(controllers, "cpu")) {
      hierarchy = mounted / "cpu";
    } else if (lists(controllers, "memory")) {
      hierarchy = mounted / "memory";
    } else {
      continue;
    }
    // In a container the path may be the one outside: its own group is then the root.
    auto path = std::filesystem::path(line.substr(path_at)).lexically_normal().relative_path();
    for (;; path = path.parent_path()) {
      take_group(hierarchy / path, limits);
      if (path.empty()) break;
    }
  }
  return limits;
}

}  // namespace transformer
