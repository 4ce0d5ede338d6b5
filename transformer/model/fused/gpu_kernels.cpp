#include "transformer/model/fused/gpu_kernels.h"

#include <c10/core/DeviceGuard.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "transformer/base/error.h"
#include "transformer/model/device.h"
#include "transformer/model/fused/gpu_arguments.h.h"
#include "transformer/model/fused/gpu_attention.cu.h"
#include "transformer/model/fused/gpu_kernels.cu.h"

namespace transformer {

namespace {

// NVRTC's and the driver's functions, as their headers declare them, which no build needs for that: pointers to what is
// theirs alone are void*, and results are 0 for success.
struct Functions {
  int (*create_program)(void** program, const char* text, const char* name, int headers, const char* const* texts,
                        const char* const* names);
  int (*compile_program)(void* program, int options, const char* const* texts);
  int (*destroy_program)(void** program);
  int (*log_size)(void* program, size_t* size);
  int (*log)(void* program, char* text);
  int (*ptx_size)(void* program, size_t* size);
  int (*ptx)(void* program, char* text);
  int (*load_module)(void** module, const void* image);
  int (*get_function)(void** function, void* module, const char* name);
  int (*get_attribute)(int* value, int attribute, int device);
  int (*launch)(void* function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,
                unsigned threads_y, unsigned threads_z, unsigned shared_bytes, void* stream, void** arguments,
                void** extra);
  // LibTorch's: the stream that the calling thread's operators go to.
  int (*current_stream)(int32_t device, void** stream);
};

// Or what is missing.
std::pair<Functions, std::string> find_functions() {
  Functions functions{};
  std::string missing;
  const auto take = [&](auto& function, void* library, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (!function && missing.empty()) missing = name;
  };
  // The driver is loaded with LibTorch's CUDA part, which brings NVRTC but does not load it before it is used.
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  void* nvrtc = nullptr;
  for (const auto& library : {(torch_folder() / "libcaffe2_nvrtc.so").string(), std::string("libcaffe2_nvrtc.so")}) {
    if (driver && !nvrtc) nvrtc = dlopen(library.c_str(), RTLD_LAZY);
  }
  if (!driver) return {functions, "driver"};
  if (!nvrtc) return {functions, "libcaffe2_nvrtc.so beside LibTorch"};
  take(functions.get_attribute, driver, "cuDeviceGetAttribute");
  take(functions.load_module, driver, "cuModuleLoadData");
  take(functions.get_function, driver, "cuModuleGetFunction");
  take(functions.launch, driver, "cuLaunchKernel");
  take(functions.create_program, nvrtc, "nvrtcCreateProgram");
  take(functions.compile_program, nvrtc, "nvrtcCompileProgram");
  take(functions.destroy_program, nvrtc, "nvrtcDestroyProgram");
  take(functions.log_size, nvrtc, "nvrtcGetProgramLogSize");
  take(functions.log, nvrtc, "nvrtcGetProgramLog");
  take(functions.ptx_size, nvrtc, "nvrtcGetPTXSize");
  take(functions.ptx, nvrtc, "nvrtcGetPTX");
  take(functions.current_stream, RTLD_DEFAULT, "aoti_torch_get_current_cuda_stream");
  return {functions, missing};
}

class CompiledKernels : public GpuKernels {
 public:
  CompiledKernels(const Functions& functions, int device) : f_(functions), device_(device) {}

 protected:
  void launch(const char* name, const Program& program, int64_t blocks, int64_t threads,
              const void* arguments) const override {
    const c10::DeviceGuard guard(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device_)));
    void* const function = function_of(name, program);
    void* stream = nullptr;
    check(f_.current_stream(device_, &stream), name, "LibTorch does not say its current stream");
    void* parameters[] = {const_cast<void*>(arguments)};
    check(f_.launch(function, static_cast<unsigned>(blocks), 1, 1, static_cast<unsigned>(threads), 1, 1, 0, stream,
                    parameters, nullptr),
          name, "it cannot be started");
  }

 private:
  static void check(int result, const char* name, const char* what) {
    if (result != 0) {
      throw Failure(fmt::format("kernel '{}'", name), fmt::format("{} (CUDA's error {})", what, result),
                    "kernels of LibTorch alone are used with training.precision: float32");
    }
  }

  void* function_of(const char* name, const Program& program) const {
    const std::lock_guard lock(mutex_);
    auto& module = modules_[program];
    if (!module) check(f_.load_module(&module, compiled(name, program).c_str()), name, "the driver does not load it");
    auto& function = loaded_[{module, name}];
    if (!function) check(f_.get_function(&function, module, name), name, "it is not in its module");
    return function;
  }

  // Machine code comes from the driver, for whatever GPU it drives.
  std::string compiled(const char* name, const Program& made) const {
    const bool attention = made.width == 0;
    const char* const file = attention ? "gpu_attention.cu" : "gpu_kernels.cu";
    const std::string text(attention ? embedded::gpu_attention_cu : embedded::gpu_kernels_cu);
    const std::string arguments(embedded::gpu_arguments_h);
    const char* const header_texts[] = {arguments.c_str()};
    const char* const header_names[] = {"gpu_arguments.h"};
    void* program = nullptr;
    check(f_.create_program(&program, text.c_str(), file, 1, header_texts, header_names), name,
          "NVRTC does not take it");
    const auto width = fmt::format("-DWIDTH={}", made.width), length = fmt::format("-DLENGTH={}", made.length),
               head = fmt::format("-DHEAD={}", made.head);
    const char* const options[] = {"--gpu-architecture=compute_80", "--std=c++17", width.c_str(), length.c_str(),
                                   head.c_str()};
    const int result = f_.compile_program(program, 5, options);
    std::string ptx;
    if (result == 0) {
      ptx = filled(program, f_.ptx_size, f_.ptx);
    } else {
      const auto log = filled(program, f_.log_size, f_.log);
      f_.destroy_program(&program);
      throw Failure(fmt::format("kernel '{}'", name), fmt::format("NVRTC does not compile it: {}", log));
    }
    f_.destroy_program(&program);
    return ptx;
  }

  static std::string filled(void* program, int (*size_of)(void*, size_t*), int (*fill)(void*, char*)) {
    size_t size = 0;
    size_of(program, &size);
    std::string text(size, '\0');
    if (size > 0) fill(program, text.data());
    return text;
  }

  Functions f_;
  int device_;
  mutable std::mutex mutex_;
  mutable std::map<Program, void*> modules_;  // there while the process is
  mutable std::map<std::pair<void*, std::string>, void*> loaded_;
};

struct Known {
  std::unique_ptr<GpuKernels> kernels;
  std::string missing;
};

Known find_kernels(int device) {
  static const auto found = find_functions();
  const auto& [functions, missing] = found;
  if (!missing.empty()) return {nullptr, missing};
  constexpr int major_capability = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
  int major = 0;
  if (functions.get_attribute(&major, major_capability, device) != 0 || major < 8) {
    return {nullptr, "GPU from Ampere on"};
  }
  return {std::make_unique<CompiledKernels>(functions, device), ""};
}

const Known& known_kernels(const c10::Device& device) {
  static std::mutex mutex;
  static std::map<int, Known> all;
  const std::lock_guard lock(mutex);
  const int number = device.has_index() ? device.index() : 0;
  auto found = all.find(number);
  if (found == all.end()) found = all.emplace(number, find_kernels(number)).first;
  return found->second;
}

std::atomic<const GpuKernels*>& chosen_kernels() {
  static std::atomic<const GpuKernels*> chosen = nullptr;
  return chosen;
}

std::atomic<bool>& are_chosen() {
  static std::atomic<bool> chosen = false;
  return chosen;
}

constexpr int64_t any_width = 64;

// Of relu_backward, whose threads have eight columns each.
int64_t blocks_of_columns(int64_t columns) {
  return (columns / 8 + 127) / 128;
}

int64_t longest(const gpu::AttentionForward& arguments) {
  return std::max(arguments.queries, arguments.keys) <= 64 ? 64 : 128;
}

}  // namespace

void GpuKernels::start(const gpu::ResidualForward& arguments, int64_t width) const {
  if (arguments.rows > 0)
    launch("residual_forward", {.width = width}, std::min<int64_t>((arguments.rows + 7) / 8, 65535), 256, &arguments);
}

void GpuKernels::start(const gpu::ResidualBackward& arguments, int64_t width, int64_t blocks) const {
  launch("residual_backward", {.width = width}, blocks, 256, &arguments);
}

void GpuKernels::start(const gpu::ReluBackward& arguments) const {
  launch("relu_backward", {.width = any_width}, blocks_of_columns(arguments.columns) * arguments.row_blocks, 128,
         &arguments);
}

void GpuKernels::start(const gpu::SmoothedLoss& arguments, int64_t rows) const {
  const auto* name = arguments.vocabulary % 8 == 0 ? "smoothed_loss_in_pieces" : "smoothed_loss_one_by_one";
  if (rows > 0) launch(name, {.width = any_width}, rows, 512, &arguments);
}

void GpuKernels::start(const gpu::AttentionForward& arguments, int64_t head_width, int64_t sentences) const {
  const Program program{.length = longest(arguments), .head = head_width};
  launch("attention_forward", program, sentences * arguments.heads, 128, &arguments);
}

void GpuKernels::start(const gpu::AttentionBackward& arguments, int64_t head_width, int64_t sentences) const {
  const Program program{.length = longest(arguments.forward), .head = head_width};
  launch("attention_backward", program, sentences * arguments.forward.heads, 128, &arguments);
}

int64_t residual_backward_blocks(int64_t rows) {
  return std::clamp<int64_t>((rows + 7) / 8, 1, 264);  // two for each multiprocessor of large GPUs
}

int relu_backward_blocks(int64_t rows, int64_t columns) {
  constexpr int64_t in_flight = 1056;  // eight for each multiprocessor of large GPUs
  return static_cast<int>(std::clamp<int64_t>(in_flight / blocks_of_columns(columns), 1, (rows + 3) / 4));
}

const GpuKernels* gpu_kernels(const c10::Device& device) {
  if (are_chosen()) return chosen_kernels();
  return device.is_cuda() ? known_kernels(device).kernels.get() : nullptr;
}

std::string missing_gpu_kernels(const c10::Device& device) {
  return device.is_cuda() ? known_kernels(device).missing : "GPU";
}

void choose_gpu_kernels(const std::optional<const GpuKernels*>& kernels) {
  chosen_kernels() = kernels.value_or(nullptr);
  are_chosen() = kernels.has_value();
}

}  // namespace transformer
