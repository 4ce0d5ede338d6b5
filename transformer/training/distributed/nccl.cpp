#include "transformer/training/distributed/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "transformer/base/error.h"
#include "transformer/training/distributed/clock.h"
#include "transformer/training/distributed/message_of.h"

namespace transformer {

namespace {

namespace fs = std::filesystem;

constexpr const char* nccl = "backend 'nccl'";
constexpr const char* nccl_module = "transformer_nccl.so";

// The NCCL module, which lies beside this code (or the program it is linked into), in the lib folder next to it, or
// where the loader looks: programs that link the library installed are told its folder when they are linked.
void* load_nccl_module() {
  std::vector<std::string> candidates;
  Dl_info own;
  std::error_code ignored;
  if (dladdr(reinterpret_cast<const void*>(&load_nccl_module), &own) && own.dli_fname) {
    auto file = fs::weakly_canonical(own.dli_fname, ignored);
    if (const auto program = fs::read_symlink("/proc/self/exe", ignored); !fs::exists(file, ignored)) file = program;
    candidates.push_back((file.parent_path() / nccl_module).string());
    candidates.push_back((file.parent_path().parent_path() / "lib" / nccl_module).string());
  }
  candidates.emplace_back(nccl_module);
  std::string there;  // why the first one that is there cannot be loaded
  for (const auto& candidate : candidates) {
    if (void* module = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL)) return module;
    const char* text = dlerror();
    const std::string reason = text ? text : "for no stated reason";
    // The loader says this of a file that is not there, but also of one that the file needs.
    const bool missing = reason.starts_with(candidate + ": ") && reason.ends_with(std::strerror(ENOENT));
    if (!missing && there.empty()) there = reason;
  }
  if (there.empty()) {
    throw Error(nccl,
                fmt::format("there is no {} in {}", nccl_module, fs::path(candidates.front()).parent_path().string()),
                "build with CUDA's headers and a LibTorch for CUDA (scripts/setup brings both), or use the backend "
                "'gloo'");
  }
  throw Error(nccl, fmt::format("its module is there, but cannot be loaded ({})", there),
              "install the LibTorch for CUDA that it was built with, or build it again with the one that is installed");
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> open_nccl(const StorePointer& store, const Launch& launch, double timeout) {
  void* module = load_nccl_module();
  using Open = c10d::Backend*(c10d::Store*, int, int, int64_t);
  auto* open = reinterpret_cast<Open*>(dlsym(module, "transformer_open_nccl"));
  if (!open) throw Error(nccl, fmt::format("{} belongs to another version", nccl_module), "build it again");
  try {
    return c10::intrusive_ptr<c10d::Backend>::reclaim(
        open(store.get(), launch.rank, launch.world_size, milliseconds(timeout).count()));
  } catch (const std::exception& error) {
    throw Error(nccl, fmt::format("NCCL itself refuses ({})", message_of(error)),
                "it needs a GPU and a driver, as nvidia-smi shows them: where there is none, use the backend 'gloo'");
  }
}

}  // namespace transformer
