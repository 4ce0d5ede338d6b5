#include "transformer/model/device.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <torch/cuda.h>

#include <array>
#include <filesystem>

#include "transformer/base/device_name.h"
#include "transformer/base/error.h"
#include "transformer/kernels/processor.h"

namespace transformer {

namespace {

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

std::filesystem::path torch_folder() {
  link_map* library = nullptr;
  if (void* handle = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD)) {
    dlinfo(handle, RTLD_DI_LINKMAP, &library);
    dlclose(handle);
  }
  return library ? std::filesystem::path(library->l_name).parent_path() : std::filesystem::path();
}

c10::Device open_device(const std::string& name) {
  const auto gpu = gpu_of(name);
  if (!gpu) return c10::Device(c10::kCPU);
  const int count = visible_gpus(name);
  if (*gpu >= count) {
    throw Error("device '" + name + "'", fmt::format("this machine has {} GPU{}", count, count == 1 ? "" : "s"),
                count == 1 ? "use 'cuda'" : fmt::format("the last is 'cuda:{}'", count - 1));
  }
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(*gpu));
  c10::impl::VirtualGuardImpl(c10::kCUDA).setDevice(device);
  at::globalContext().setSDPUseCuDNN(false);
  return device;
}

int visible_gpus(const std::string& name) {
  if (!gpu_of(name)) return 0;
  open_cuda(name);
  const auto count = static_cast<int>(torch::cuda::device_count());
  if (count == 0) {
    throw Error("device '" + name + "'", "this machine has no GPU that CUDA can use",
                "check nvidia-smi and CUDA_VISIBLE_DEVICES, or use the device 'cpu'");
  }
  return count;
}

std::string gpu_identity(const c10::Device& device) {
  if (!device.is_cuda()) return "";
  // The driver's library, which LibTorch's CUDA part has loaded; its numbers of GPUs are LibTorch's.
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (!driver) return "";
  std::array<unsigned char, 16> id{};
  using GetUuid = int(unsigned char*, int);
  auto* get_uuid = reinterpret_cast<GetUuid*>(dlsym(driver, "cuDeviceGetUuid"));
  const int number = device.has_index() ? device.index() : 0;
  const bool known = get_uuid && get_uuid(id.data(), number) == 0;
  dlclose(driver);
  return known ? fmt::format("GPU-{:02x}", fmt::join(id, "")) : "";
}

bool multiplies_bf16(const c10::Device& device) {
  if (device.is_cpu()) return processor().avx512_bf16;
  // Convolutions or not, it is the question whether the GPU is an Ampere or later.
  return device.is_cuda() && at::detail::getCUDAHooks().supportsBFloat16ConvolutionWithCuDNNv8();
}

}  // namespace transformer
