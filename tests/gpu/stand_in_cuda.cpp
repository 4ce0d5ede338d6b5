// In the place of LibTorch's CUDA part on a machine without a GPU: devices "cuda:0" and so on, whose memory is the
// host's own and whose operations are the CPU's. Everything around the arithmetic is as a GPU has it: where a tensor
// lies, what may be mixed with what, random numbers of its own, an allocator with an end, transfers that have not
// arrived until somebody waits for them. What a program does with a GPU then runs, and what a GPU would refuse is
// refused.
//
//   STAND_IN_GPUS        how many there are (1)
//   STAND_IN_GPU_BYTES   the memory of each (1e10)
//   STAND_IN_GPU_REPORT  a file that gets a line when the program ends: what the host waited for, and how often
//
// New memory is filled with what is not a number, so that nobody reads what was never written.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/stack.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fmt/format.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "seen_by_host.h"

namespace {

constexpr auto cuda = c10::DeviceType::CUDA;
constexpr c10::DeviceIndex most_gpus = 8;

double number_from(const char* variable, double otherwise) {
  const char* text = std::getenv(variable);
  return text && *text ? std::strtod(text, nullptr) : otherwise;
}

c10::DeviceIndex gpus() {
  static const auto count = static_cast<c10::DeviceIndex>(number_from("STAND_IN_GPUS", 1));
  return count;
}

thread_local c10::DeviceIndex current_gpu = 0;

c10::Device numbered(c10::Device device) {
  return {cuda, device.has_index() ? device.index() : current_gpu};
}

// What the host waited for.
class Waits {
 public:
  ~Waits() {
    const char* file = std::getenv("STAND_IN_GPU_REPORT");
    if (!file) return;
    std::string line = "{";
    for (const auto& [what, count] : counts_) {
      line += fmt::format("{}\"{}\": {}", line.size() > 1 ? ", " : "", what, count);
    }
    std::ofstream(file, std::ios::app) << line << "}\n";
  }
  void add(const std::string& what) {
    const std::lock_guard lock(mutex_);
    ++counts_[what];
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int64_t> counts_;
};

Waits& waits() {
  static Waits all;
  return all;
}

// Memory.

class Memory final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const auto gpu = current_gpu;
    const std::lock_guard lock(mutex_);
    auto& used = used_.at(gpu);
    static const auto all = static_cast<int64_t>(number_from("STAND_IN_GPU_BYTES", 1e10));
    if (used.current + static_cast<int64_t>(bytes) > all) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", bytes, " bytes.");
    }
    used.increase(bytes);
    auto* block = new Block{gpu, bytes, bytes ? std::malloc(bytes) : nullptr};
    if (bytes) std::memset(block->data, 0xff, bytes);
    return {block->data, block, &Memory::free, c10::Device(cuda, gpu)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t count) const override { std::memcpy(to, from, count); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex gpu) override {
    const std::lock_guard lock(mutex_);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0] = stats.reserved_bytes[0] = used_.at(gpu);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex gpu) override {
    const std::lock_guard lock(mutex_);
    used_.at(gpu).reset_accumulated();
  }
  void resetPeakStats(c10::DeviceIndex gpu) override {
    const std::lock_guard lock(mutex_);
    used_.at(gpu).reset_peak();
  }

 private:
  struct Block {
    c10::DeviceIndex gpu;
    size_t bytes;
    void* data;
  };
  static void free(void* context);

  std::mutex mutex_;
  std::array<c10::CachingAllocator::Stat, most_gpus> used_;
};

Memory& memory() {
  static auto* all = new Memory;  // tensors may outlive whatever is static
  return *all;
}

void Memory::free(void* context) {
  const auto* block = static_cast<Block*>(context);
  {
    const std::lock_guard lock(memory().mutex_);
    memory().used_.at(block->gpu).decrease(block->bytes);
  }
  if (block->data) std::memset(block->data, 0xff, block->bytes);
  std::free(block->data);
  delete block;
}

// Streams: what is asked of any but the first is done when somebody waits for it.

class Streams {
 public:
  void later(c10::Stream stream, std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    waiting_[key(stream)].push_back(std::move(work));
  }
  void finish(c10::Stream stream) { finish(key(stream)); }
  void finish_all() {
    std::vector<Key> keys;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [stream, work] : waiting_) keys.push_back(stream);
    }
    for (const auto& stream : keys) finish(stream);
  }

 private:
  using Key = std::pair<c10::DeviceIndex, c10::StreamId>;
  static Key key(c10::Stream stream) { return {stream.device_index(), stream.id()}; }
  void finish(const Key& stream) {
    std::vector<std::function<void()>> work;
    {
      const std::lock_guard lock(mutex_);
      work.swap(waiting_[stream]);
    }
    for (const auto& each : work) each();
  }

  std::mutex mutex_;
  std::map<Key, std::vector<std::function<void()>>> waiting_;
};

Streams& streams() {
  static auto* all = new Streams;
  return *all;
}

thread_local std::map<c10::DeviceIndex, c10::StreamId> current_streams;

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return cuda; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {cuda, current_gpu}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.is_cuda() && device.index() < gpus(), "there is no ", device);
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) current_gpu = device.index();
  }
  c10::Stream getStream(c10::Device device) const override {
    device = numbered(device);
    return c10::Stream(c10::Stream::UNSAFE, device, current_streams[device.index()]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, numbered(device), 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream getNewStream(c10::Device device, int) const override {
    static std::atomic<c10::StreamId> last{0};
    return c10::Stream(c10::Stream::UNSAFE, numbered(device), ++last);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const auto before = getStream(stream.device());
    current_streams[stream.device_index()] = stream.id();
    return before;
  }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (!*event) *event = new c10::Stream(stream);
    *static_cast<c10::Stream*>(*event) = stream;
  }
  void block(void* event, const c10::Stream&) const override {
    if (event) streams().finish(*static_cast<c10::Stream*>(event));
  }
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<c10::Stream*>(event); }
  c10::DeviceIndex deviceCount() const noexcept override { return gpus(); }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& stream) const override {
    waits().add("a stream");
    streams().finish(stream);
  }
  void synchronizeEvent(void* event) const override {
    waits().add("an event");
    block(event, c10::Stream(c10::Stream::DEFAULT, getDevice()));
  }
  void synchronizeDevice(c10::DeviceIndex) const override {
    waits().add("a device");
    streams().finish_all();
  }
};

// Random numbers: the CPU's generator, one for each GPU.

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex gpu)
      : GeneratorImpl(c10::Device(cuda, gpu), c10::DispatchKeySet(c10::DispatchKey::CUDA)),
        own_(c10::make_intrusive<at::CPUGeneratorImpl>()) {}
  void set_current_seed(uint64_t seed) override { own_->set_current_seed(seed); }
  void set_offset(uint64_t offset) override { own_->set_offset(offset); }
  uint64_t get_offset() const override { return own_->get_offset(); }
  uint64_t current_seed() const override { return own_->current_seed(); }
  uint64_t seed() override { return own_->seed(); }
  void set_state(const c10::TensorImpl& state) override { own_->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return own_->get_state(); }
  Generator* clone_impl() const override {
    auto* copy = new Generator(device().index());
    copy->own_->set_state(*own_->get_state());
    return copy;
  }

 private:
  c10::intrusive_ptr<at::CPUGeneratorImpl> own_;
};

at::Generator& generator(c10::DeviceIndex gpu) {
  static auto* all = [] {
    auto* made = new std::vector<at::Generator>;
    for (c10::DeviceIndex i = 0; i < most_gpus; ++i) made->push_back(at::make_generator<Generator>(i));
    return made;
  }();
  return all->at(gpu < 0 ? current_gpu : gpu);
}

// While it lives, what draws from the host's generator draws from `gpu`'s.
class Lent {
 public:
  explicit Lent(c10::DeviceIndex gpu)
      : own_(generator(gpu)), host_(at::detail::getDefaultCPUGenerator()), before_(host_.get_state()) {
    host_.set_state(own_.get_state());
  }
  ~Lent() {
    own_.set_state(host_.get_state());
    host_.set_state(before_);
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

 private:
  at::Generator &own_, host_;
  at::Tensor before_;
};

struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return gpus() > 0; }
  bool hasCUDA() const override { return gpus() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return gpus(); }
  int getNumGPUs() const override { return gpus(); }
  c10::DeviceIndex current_device() const override { return current_gpu; }
  c10::DeviceIndex getCurrentDevice() const override { return current_gpu; }
  void setCurrentDevice(c10::DeviceIndex gpu) const override { current_gpu = gpu; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex gpu) const override { return std::exchange(current_gpu, gpu); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex gpu) const override { return exchangeDevice(gpu); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex gpu) const override { return generator(gpu); }
  at::Generator getNewGenerator(c10::DeviceIndex gpu) const override { return at::make_generator<Generator>(gpu); }
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(c10::DeviceType::CPU); }
  at::Allocator* getCUDADeviceAllocator() const override { return &memory(); }
  bool supportsBFloat16ConvolutionWithCuDNNv8() const override { return true; }
  void deviceSynchronize(c10::DeviceIndex) const override {
    waits().add("a device");
    streams().finish_all();
  }
};

// Tensors.

constexpr c10::DispatchKeySet on_gpu(c10::DispatchKey::CUDA);

at::Tensor new_tensor(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<c10::Layout>,
                      std::optional<c10::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(numbered(device.value_or(c10::Device(cuda))));
  return at::detail::empty_generic(sizes, &memory(), on_gpu, c10::dtype_or_default(type), format);
}

at::Tensor new_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                       std::optional<c10::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(numbered(device.value_or(c10::Device(cuda))));
  return at::detail::empty_strided_generic(sizes, strides, &memory(), on_gpu, c10::dtype_or_default(type));
}

at::Tensor on_device(const at::Tensor& host, c10::Device device) {
  auto moved = at::empty_strided(host.sizes(), host.strides(), host.options().device(device));
  seen_by_host(moved).copy_(host);
  return moved;
}

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const auto move = [to, from] {
    const auto target = to.is_cuda() ? seen_by_host(to) : to;
    target.copy_((from.is_cuda() ? seen_by_host(from) : from).expand(target.sizes()));
  };
  if (!to.is_cuda()) {
    waits().add("a copy to the host");
    const auto gpu = from.device();
    streams().finish(Guard().getStream(gpu));
    move();
    return to;
  }
  const auto stream = Guard().getStream(to.device());
  if (non_blocking && from.is_cpu() && stream.id() != 0) {
    streams().later(stream, move);
  } else {
    move();
  }
  return to;
}

at::Scalar number(const at::Tensor& tensor) {
  waits().add("a number");
  return seen_by_host(tensor).item();
}

const at::Tensor& resize(const at::Tensor& tensor, at::IntArrayRef sizes, std::optional<at::MemoryFormat>) {
  if (tensor.sizes() == sizes) return tensor;
  auto* own = tensor.unsafeGetTensorImpl();
  const auto values = at::empty(sizes, tensor.options());
  own->set_storage_keep_dtype(values.storage());
  own->set_storage_offset(0);
  own->set_sizes_contiguous(sizes);
  return tensor;
}

void record_stream(at::Tensor&, c10::Stream) {}

// Of a GPU's attention kernels there is none here: the plain formula, as a GPU computes it where none fits.
int64_t kind_of_attention(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                          double, bool, std::optional<double>, bool) {
  return 0;
}

// The CPU's does not change the type on the way, as products of 16 bits want it.
at::Tensor softmax(const at::Tensor& input, int64_t dim, bool to_float) {
  return on_device(at::_softmax(to_float ? seen_by_host(input).to(at::kFloat) : seen_by_host(input), dim, false),
                   input.device());
}

at::Tensor log_softmax(const at::Tensor& input, int64_t dim, bool to_float) {
  return on_device(at::_log_softmax(to_float ? seen_by_host(input).to(at::kFloat) : seen_by_host(input), dim, false),
                   input.device());
}

// Products of 16 bits in float, which the CPU does not have.
at::Tensor& product(const at::Tensor& a, const at::Tensor& b, at::ScalarType type, at::Tensor& out) {
  auto host = seen_by_host(out);
  at::mm_out(host, seen_by_host(a).to(type), seen_by_host(b).to(type));
  return out;
}

at::Tensor& added_product(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, at::ScalarType type,
                          const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  auto host = seen_by_host(out);
  at::addmm_out(host, seen_by_host(self), seen_by_host(a).to(type), seen_by_host(b).to(type), beta, alpha);
  return out;
}

// Everything else: on the CPU, on the same memory.
void on_host(const c10::OperatorHandle& operation, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& schema = operation.schema();
  const size_t begin = stack->size() - schema.arguments().size();
  std::optional<c10::Device> device;
  struct Written {
    at::Tensor own, host;
  };
  std::vector<Written> written;
  const auto host_of = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    if (tensor.is_cpu()) {
      TORCH_CHECK(tensor.dim() == 0,
                  "Expected all tensors to be on the same device, but found the host's among the GPU's, in ",
                  schema.name());
      return tensor;
    }
    TORCH_CHECK(!device || *device == tensor.device(), "Expected all tensors to be on the same device, but found ",
                *device, " and ", tensor.device(), " in ", schema.name());
    device = tensor.device();
    return seen_by_host(tensor);
  };
  for (size_t i = begin; i < stack->size(); ++i) {
    auto& value = (*stack)[i];
    const auto* alias = schema.arguments()[i - begin].alias_info();
    if (value.isTensor()) {
      const auto own = value.toTensor();
      auto host = host_of(own);
      if (alias && alias->isWrite() && own.defined()) {
        if (own.numel() == 0) host = at::empty({0}, host.options());  // which may be given a size
        written.push_back({own, host});
      }
      value = host;
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> hosts;
      for (const at::Tensor& tensor : value.toTensorList()) hosts.push_back(host_of(tensor));
      value = hosts;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> hosts;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
        hosts.push_back(tensor ? std::optional(host_of(*tensor)) : std::nullopt);
      }
      value = hosts;
    } else if (value.isDevice()) {
      device = numbered(value.toDevice());
      value = c10::Device(c10::kCPU);
    } else if (value.isGenerator()) {
      TORCH_CHECK(false, schema.name(), ": generators that are given are not imitated");
    }
  }
  const auto gpu = device.value_or(Guard().getDevice());
  for (const auto tag : {at::Tag::dynamic_output_shape, at::Tag::data_dependent_output}) {
    if (operation.hasTag(tag)) waits().add(schema.name());
  }
  if (operation.hasTag(at::Tag::nondeterministic_seeded)) {
    const Lent lent(gpu.index());
    operation.callBoxed(*stack);
  } else {
    operation.callBoxed(*stack);
  }
  for (const auto& each : written) {
    if (each.own.numel() == 0 && each.host.numel() > 0) {
      each.own.resize_(each.host.sizes());
      seen_by_host(each.own).copy_(each.host);
    }
  }
  const size_t results = stack->size() - schema.returns().size();
  size_t next = 0;
  for (size_t i = results; i < stack->size(); ++i) {
    auto& value = (*stack)[i];
    const auto* alias = schema.returns()[i - results].alias_info();
    if (value.isTensor() && value.toTensor().defined()) {
      if (alias && alias->isWrite()) {
        value = written.at(next++).own;
      } else {
        TORCH_CHECK(!alias, schema.name(), ": views of this kind are not imitated");
        value = on_device(value.toTensor(), gpu);
      }
    } else if (value.isTensorList()) {
      TORCH_CHECK(!alias, schema.name(), ": views of this kind are not imitated");
      c10::List<at::Tensor> owned;
      for (const at::Tensor& tensor : value.toTensorList()) owned.push_back(on_device(tensor, gpu));
      value = owned;
    }
  }
}

}  // namespace

namespace at {
namespace {
using StandInHooks = ::Hooks;
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", StandInHooks)
}  // namespace
}  // namespace at

C10_REGISTER_GUARD_IMPL(CUDA, Guard)

namespace {
[[maybe_unused]] const bool has_memory = [] {
  c10::SetAllocator(cuda, &memory());
  waits();
  return true;
}();
}  // namespace

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_host>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", TORCH_FN(new_tensor));
  library.impl("empty_strided", TORCH_FN(new_strided));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("copy_", TORCH_FN(copy));
  library.impl("_local_scalar_dense", TORCH_FN(number));
  library.impl("resize_", TORCH_FN(resize));
  library.impl("record_stream", TORCH_FN(record_stream));
  library.impl("mm.dtype_out", TORCH_FN(product));
  library.impl("addmm.dtype_out", TORCH_FN(added_product));
  library.impl("_softmax", TORCH_FN(softmax));
  library.impl("_log_softmax", TORCH_FN(log_softmax));
  library.impl("_fused_sdp_choice", TORCH_FN(kind_of_attention));
}
