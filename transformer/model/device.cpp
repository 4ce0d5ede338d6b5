#include "transformer/model/device.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <torch/cuda.h>

#include <filesystem>

#include "transformer/base/device_name.h"
#include "transformer/base/error.h"

namespace transformer {

namespace {

// The folder of the LibTorch that this program runs with; empty where it is linked statically.
std::filesystem::path torch_folder() {
  link_map* library = nullptr;
  if (void* handle = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD)) {
    dlinfo(handle, RTLD_DI_LINKMAP, &library);
    dlclose(handle);
  }
  return library ? std::filesystem::path(library->l_name).parent_path() : std::filesystem::path();
}

void open_cuda(const std::string& name) {
  const auto beside_torch = torch_folder() / "libtorch_cuda.so";
  // Elsewhere, the loader's own search path knows better.
  for (const auto& library : {beside_torch.string(), std::string("libtorch_cuda.so")}) {
    if (dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL)) return;
  }
  const char* reason = dlerror();
  throw Error("device '" + name + "'",
              fmt::format("LibTorch's CUDA part cannot be opened ({})", reason ? reason : "no reason given"),
              "install a LibTorch built for CUDA, or use the device 'cpu'");
}

}  // namespace

c10::Device open_device(const std::string& name) {
  const auto gpu = gpu_of(name);
  if (!gpu) return c10::Device(c10::kCPU);
  open_cuda(name);
  const auto count = static_cast<int>(torch::cuda::device_count());
  if (count == 0) {
    throw Error("device '" + name + "'", "this machine has no GPU that CUDA can use",
                "check nvidia-smi and CUDA_VISIBLE_DEVICES, or use the device 'cpu'");
  }
  if (*gpu >= count) {
    throw Error("device '" + name + "'", fmt::format("this machine has {} GPU{}", count, count == 1 ? "" : "s"),
                count == 1 ? "use 'cuda'" : fmt::format("the last is 'cuda:{}'", count - 1));
  }
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(*gpu));
}

}  // namespace transformer
