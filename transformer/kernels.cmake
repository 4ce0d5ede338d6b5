# Kernels, compiled for each instruction set (kernels/instruction_set.h); which ones run is decided at run time. Optimised
# in debug builds too, where a test would take minutes otherwise. GCC 12 takes the undefined registers of its own
# intrinsics for a mistake of ours.
function(transformer_kernels file)
  set_source_files_properties(${file}.cpp PROPERTIES COMPILE_OPTIONS
    "-O3;-ffp-contract=fast;-fno-math-errno;$<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized;-Wno-maybe-uninitialized>;${ARGN}")
endfunction()

set(avx2 -mavx2 -mfma)
set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
transformer_kernels(kernels/instructions_portable)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  transformer_kernels(kernels/instructions_avx2 ${avx2})
  transformer_kernels(kernels/instructions_avx512 ${avx512})
  transformer_kernels(kernels/instructions_avx512_vnni ${avx512} -mavx512vnni)
  transformer_kernels(kernels/instructions_avx512_bf16 ${avx512} -mavx512vnni -mavx512bf16)
  transformer_kernels(kernels/instructions_avx512_amx ${avx512} -mavx512vnni -mavx512bf16 -mamx-tile -mamx-int8 -mamx-bf16)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  transformer_kernels(kernels/instructions_neon_dotprod -march=armv8.2-a+dotprod)
  transformer_kernels(kernels/instructions_neon_i8mm -march=armv8.2-a+dotprod+i8mm)
  transformer_kernels(kernels/instructions_neon_bf16 -march=armv8.2-a+dotprod+i8mm+bf16)
endif()
