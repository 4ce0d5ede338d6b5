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

#include "transformer/base/error.h"
#include "transformer/model/device.h"
#include "transformer/model/fused/gpu_arguments.h.h"
#include "transformer/model/fused/gpu_attention.cu.h"
#include "transformer/model/fused/gpu_kernels.cu.h"
#include "transformer/model/fused/gpu_numbers.cuh.h"

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
  int (*code_size)(void* program, size_t* size);
  int (*code)(void* program, char* text);
  int (*ptx_size)(void* program, size_t* size);
  int (*ptx)(void* program, char* text);
  int (*get_context)(void** context);
  int (*set_context)(void* context);
  int (*retain_context)(void** context, int device);
  int (*error_name)(int result, const char** name);
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
  take(functions.get_context, driver, "cuCtxGetCurrent");
  take(functions.set_context, driver, "cuCtxSetCurrent");
  take(functions.retain_context, driver, "cuDevicePrimaryCtxRetain");
  take(functions.error_name, driver, "cuGetErrorName");
  take(functions.code_size, nvrtc, "nvrtcGetCUBINSize");
  take(functions.code, nvrtc, "nvrtcGetCUBIN");
  take(functions.ptx_size, nvrtc, "nvrtcGetPTXSize");
  take(functions.ptx, nvrtc, "nvrtcGetPTX");
  take(functions.current_stream, RTLD_DEFAULT, "aoti_torch_get_current_cuda_stream");
  return {functions, missing};
}

constexpr int64_t any_width = 64;  // of kernels that have no rows

class CompiledKernels : public GpuKernels {
 public:
  /// `capability`: of the GPU, as 90 is that of an H100. Throws Failure where no kernel can be compiled and loaded.
  CompiledKernels(const Functions& functions, int device, int capability)
      : f_(functions), device_(device), capability_(capability) {
    const c10::DeviceGuard guard(this_device());
    const char* const trial = "relu_backward";
    enter(trial);
    function_of(trial, {.width = any_width});
  }

 protected:
  void launch(const char* name, const Program& program, int64_t blocks, int64_t threads,
              const void* arguments) const override {
    const c10::DeviceGuard guard(this_device());
    enter(name);
    void* const function = function_of(name, program);
    void* stream = nullptr;
    check(f_.current_stream(device_, &stream), name, "LibTorch does not say its current stream");
    void* parameters[] = {const_cast<void*>(arguments)};
    check(f_.launch(function, static_cast<unsigned>(blocks), 1, 1, static_cast<unsigned>(threads), 1, 1, 0, stream,
                    parameters, nullptr),
          name, "it cannot be started");
  }

 private:
  c10::Device this_device() const { return {c10::kCUDA, static_cast<c10::DeviceIndex>(device_)}; }

  // A thread that has used no GPU yet, as autograd's may be, has no context before the runtime needs one.
  void enter(const char* name) const {
    void* context = nullptr;
    f_.get_context(&context);
    if (context) return;
    check(f_.retain_context(&context, device_), name, "this thread gets no context of the GPU");
    check(f_.set_context(context), name, "this thread gets no context of the GPU");
  }

  void check(int result, const char* name, const char* what) const {
    if (result == 0) return;
    const char* error = nullptr;
    f_.error_name(result, &error);
    throw Failure(fmt::format("kernel '{}'", name), fmt::format("{} ({})", what, error ? error : "unknown error"));
  }

  void* function_of(const char* name, const Program& program) const {
    const std::lock_guard lock(mutex_);
    auto& module = modules_[program];
    if (!module) check(f_.load_module(&module, compiled(name, program).c_str()), name, "the driver does not load it");
    auto& function = loaded_[{module, name}];
    if (!function) check(f_.get_function(&function, module, name), name, "it is not in its module");
    return function;
  }

  // Machine code, which drivers older than NVRTC take as well; PTX for a GPU that is newer than NVRTC.
  std::string compiled(const char* name, const Program& program) const {
    const auto code = compiled_for(fmt::format("sm_{}", capability_), program, f_.code_size, f_.code);
    if (!code.first.empty()) return code.first;
    auto ptx = compiled_for("compute_80", program, f_.ptx_size, f_.ptx);
    if (ptx.first.empty()) {
      throw Failure(fmt::format("kernel '{}'", name), fmt::format("NVRTC does not compile it: {}", ptx.second));
    }
    return std::move(ptx.first);
  }

  // The code, empty where there is none, and what NVRTC says.
  std::pair<std::string, std::string> compiled_for(const std::string& architecture, const Program& made,
                                                   int (*size_of)(void*, size_t*), int (*fill)(void*, char*)) const {
    const bool attention = made.width == 0;
    const char* const file = attention ? "gpu_attention.cu" : "gpu_kernels.cu";
    const std::string text(attention ? embedded::gpu_attention_cu : embedded::gpu_kernels_cu);
    const std::string arguments(embedded::gpu_arguments_h), numbers(embedded::gpu_numbers_cuh);
    const char* const header_texts[] = {arguments.c_str(), numbers.c_str()};
    const char* const header_names[] = {"gpu_arguments.h", "gpu_numbers.cuh"};
    void* program = nullptr;
    if (f_.create_program(&program, text.c_str(), file, 2, header_texts, header_names) != 0)
      return {"", "it takes none"};
    const auto width = fmt::format("-DWIDTH={}", made.width), length = fmt::format("-DLENGTH={}", made.length),
               head = fmt::format("-DHEAD={}", made.head), target = "--gpu-architecture=" + architecture;
    const char* const options[] = {target.c_str(), "--std=c++17", width.c_str(), length.c_str(), head.c_str()};
    const bool good = f_.compile_program(program, 5, options) == 0;
    auto code = good ? filled(program, size_of, fill) : "";
    auto log = filled(program, f_.log_size, f_.log);
    f_.destroy_program(&program);
    while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
    return {std::move(code), std::move(log)};
  }

  static std::string filled(void* program, int (*size_of)(void*, size_t*), int (*fill)(void*, char*)) {
    size_t size = 0;
    if (size_of(program, &size) != 0) return "";
    std::string text(size, '\0');
    return size > 0 && fill(program, text.data()) == 0 ? text : "";
  }

  Functions f_;
  int device_, capability_;
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
  constexpr int major_capability = 75, minor_capability = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
  int major = 0, minor = 0;
  if (functions.get_attribute(&major, major_capability, device) != 0 ||
      functions.get_attribute(&minor, minor_capability, device) != 0 || major < 8) {
    return {nullptr, "GPU from Ampere on"};
  }
  try {
    return {std::make_unique<CompiledKernels>(functions, device, 10 * major + minor), ""};
  } catch (const Failure& failure) {
    return {nullptr, fmt::format("way to compile kernels ({})", failure.what())};
  }
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
  return static_cast<int>(
      std::clamp<int64_t>(in_flight / blocks_of_columns(columns), 1, std::max<int64_t>(1, (rows + 3) / 4)));
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
