#pragma once

#include <ATen/record_function.h>
#include <c10/core/Device.h>

#include <filesystem>

namespace transformer {

/// Names a part of the work, from here to the end of the scope, in profiles:
///
///     const ProfiledRange range("forward");
///
/// While nothing is profiled it costs one look at whether something is, some nanoseconds. Ranges may nest. `name` must
/// live as long as the range.
class ProfiledRange {
 public:
  /// Begins the part.
  explicit ProfiledRange(const char* name) : record_(at::RecordScope::USER_SCOPE) {
    if (record_.isActive()) record_.before(name);
  }

 private:
  at::RecordFunction record_;
};

/// A profile of what happens between start() and stop(): LibTorch's operators with their times and shapes on every
/// thread that works for this one, autograd's included, the ranges that ProfiledRange names, and on a GPU its kernels.
/// Written as a Chrome trace (JSON) for https://ui.perfetto.dev or chrome://tracing.
///
/// One profile at a time. Recording slows the work down and holds every operator in memory: some steps, not thousands.
class Profile {
 public:
  /// `file` is written by stop(); `device` says whether to record a GPU.
  Profile(std::filesystem::path file, c10::Device device);
  /// Without stop() the recording is dropped and no file written.
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// Starts recording; to be called on the thread that does the work, as stop() is. Throws Failure where this
  /// LibTorch has no profiler, or another profile is being recorded.
  void start();
  /// Ends the recording and writes the file, whole or not at all. Throws Failure naming the file.
  void stop();
  /// Whether it is recording.
  bool running() const { return running_; }

 private:
  std::filesystem::path file_;
  c10::Device device_;
  bool running_ = false;
};

}  // namespace transformer
