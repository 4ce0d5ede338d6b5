#include "transformer/training/profile.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <string_view>
#include <system_error>
#include <vector>

#include "transformer/base/atomic_file.h"
#include "transformer/base/error.h"

namespace transformer {

namespace fs = std::filesystem;
namespace profiler = torch::autograd::profiler;
using profiler::ActivityType;

namespace {

// Waits for what a GPU has still to do, which belongs to the time before.
void finish_work(c10::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

// Removes a file when the scope ends.
struct Temporary {
  fs::path file;
  ~Temporary() {
    std::error_code ignored;
    fs::remove(file, ignored);
  }
};

}  // namespace

Profile::Profile(fs::path file, c10::Device device) : file_(std::move(file)), device_(device) {}

Profile::~Profile() {
  if (!running_) return;
  try {
    profiler::disableProfiler();
  } catch (const std::exception&) {
    // What is being dropped cannot be dropped twice.
  }
}

void Profile::start() {
  if (running_ || profiler::profilerEnabled()) throw Failure(file_.string(), "another profile is being recorded");
  // Or the profiler prints an error about the GPU that a machine does not have. Who wants its messages sets a level.
  ::setenv("KINETO_LOG_LEVEL", "99", /*overwrite=*/0);
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO, /*report_input_shapes=*/true);
  std::set<ActivityType> activities{ActivityType::CPU};
  if (device_.is_cuda()) activities.insert(ActivityType::CUDA);
  finish_work(device_);
  try {
    profiler::prepareProfiler(config, activities);
    profiler::enableProfiler(config, activities);
  } catch (const c10::Error& error) {
    throw Failure(file_.string(), fmt::format("this LibTorch cannot profile: {}", error.what_without_backtrace()));
  }
  running_ = true;
}

void Profile::stop() {
  if (!running_) throw Failure(file_.string(), "no profile is being recorded");
  running_ = false;
  finish_work(device_);
  const auto result = profiler::disableProfiler();
  AtomicFile file(file_);
  // The profiler reports no error when it cannot write, so what it wrote is read back and judged.
  const Temporary written{file_.parent_path() / fmt::format(".profile-{}.json", ::getpid())};
  result->save(written.file.string());
  std::error_code error;
  if (!fs::exists(written.file, error)) throw Failure("cannot write " + file_.string(), "the profiler wrote nothing");
  std::ifstream trace(written.file, std::ios::binary);
  std::vector<char> block(1 << 20);
  char last = 0;
  while (trace.read(block.data(), std::ssize(block)), trace.gcount() > 0) {
    const std::string_view text(block.data(), static_cast<size_t>(trace.gcount()));
    if (const auto end = text.find_last_not_of(" \n"); end != text.npos) last = text[end];
    file.write(text.data(), text.size());
  }
  if (trace.bad()) throw Failure(written.file.string(), "cannot be read again");
  if (last != '}') {
    throw Failure("cannot write " + file_.string(), "the profiler wrote only a part of it", "is the disk full?");
  }
  file.commit();
}

}  // namespace transformer
