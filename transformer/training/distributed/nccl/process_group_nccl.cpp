// NCCL's part of training/distributed, in a module of its own: it needs LibTorch's CUDA part, which programs open
// only when a GPU is asked for.

#define USE_C10D_NCCL
#include <cstdlib>
#include <string_view>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

/// A c10d::ProcessGroupNCCL, whose one reference the caller takes over. `store` is borrowed.
extern "C" c10d::Backend* transformer_open_nccl(c10d::Store* store, int rank, int world_size, int64_t milliseconds) {
  // Monitor ends processes that hang or have lost another, and says which; c10d's own watchdog would abort first.
  // torchrun asks for it (1) in every process that it starts, whatever the user wants.
  const char* const handling = std::getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING");
  const bool of_torchrun = std::getenv("TORCHELASTIC_RUN_ID") && handling && std::string_view(handling) == "1";
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/of_torchrun ? 1 : 0);
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = std::chrono::milliseconds(milliseconds);
  auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(c10::intrusive_ptr<c10d::Store>::reclaim_copy(store), rank,
                                                           world_size, std::move(options));
  return group.release();
}
