#include "transformer/base/control_group.h"

#include <filesystem>
#include <limits>
#include <string>

#include "support.h"
#include "transformer/base/memory.h"
#include "transformer/base/process.h"

using namespace transformer;
using transformer::test::TemporaryDirectory;
using transformer::test::write_file;

namespace {

void put(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  write_file(file, text);
}

constexpr double any = std::numeric_limits<double>::infinity();
constexpr int64_t all = std::numeric_limits<int64_t>::max();

}  // namespace

TEST_CASE("of nested control groups the narrowest counts") {
  const TemporaryDirectory root;
  const auto sys = root.path() / "sys/fs/cgroup";
  put(root.path() / "proc/self/cgroup", "0::/slice/job\n");
  put(sys / "slice/job/cpu.max", "max 100000\n");
  put(sys / "slice/cpu.max", "150000 100000\n");
  put(sys / "slice/job/memory.max", "1000000\n");
  put(sys / "slice/job/memory.current", "700000\n");
  put(sys / "slice/job/memory.stat", "anon 400000\nfile 300000\ninactive_file 150000\nactive_file 50000\n");
  put(sys / "slice/memory.max", "max\n");
  put(sys / "slice/memory.current", "900000\n");
  auto limits = control_group_limits(root.path());
  CHECK(limits.processors == 1.5);
  CHECK(limits.free_bytes == 500000);  // pages of files are given up for it

  put(sys / "slice/memory.max", "950000");
  CHECK(control_group_limits(root.path()).free_bytes == 50000);
  put(sys / "slice/memory.max", "800000");
  CHECK(control_group_limits(root.path()).free_bytes == -100000);
}

TEST_CASE("limits of the first version of control groups count, too") {
  const TemporaryDirectory root;
  const auto sys = root.path() / "sys/fs/cgroup";
  // As a container sees it: paths of the machine outside, its own group at the root.
  put(root.path() / "proc/self/cgroup", "9:name=systemd:/a\n5:memory:/docker/1f\n2:cpu,cpuacct:/docker/1f\n0::/\n");
  put(sys / "cpu/cpu.cfs_quota_us", "-1\n");
  put(sys / "cpu/cpu.cfs_period_us", "100000\n");
  put(sys / "memory/memory.limit_in_bytes", "9223372036854771712\n");
  put(sys / "memory/memory.usage_in_bytes", "4096\n");
  put(sys / "memory/memory.stat", "inactive_file 1\ntotal_inactive_file 1096\n");
  auto limits = control_group_limits(root.path());
  CHECK(limits.processors == any);
  CHECK(limits.free_bytes == 9223372036854771712 - 3000);

  put(sys / "cpu/cpu.cfs_quota_us", "200000\n");
  put(sys / "memory/memory.limit_in_bytes", "10000\n");
  limits = control_group_limits(root.path());
  CHECK(limits.processors == 2);
  CHECK(limits.free_bytes == 7000);
}

TEST_CASE("what cannot be understood of control groups limits nothing") {
  const TemporaryDirectory root;
  CHECK(control_group_limits(root.path()).processors == any);
  for (const std::string groups : {"", "0", "0::", "0:cpu", "::\n", "0::/../../etc\n", "0::a/./b/\n3:memory:\n"}) {
    INFO(groups);
    put(root.path() / "proc/self/cgroup", groups);
    put(root.path() / "sys/fs/cgroup/cpu.max", "0 0\n");
    put(root.path() / "sys/fs/cgroup/memory.max", "1e3\n");
    put(root.path() / "sys/fs/cgroup/memory.current", "99999999999999999999\n");
    put(root.path() / "sys/fs/cgroup/memory/memory.limit_in_bytes", "\n");
    const auto limits = control_group_limits(root.path());
    CHECK(limits.processors == any);
    CHECK(limits.free_bytes == all);
  }
}

TEST_CASE("this process has a core and memory") {
  CHECK(usable_cores() >= 1);
  CHECK(available_bytes() > 1 << 20);
  CHECK(available_bytes() < int64_t{1} << 60);
}
