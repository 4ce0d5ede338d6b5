# The kernels, each compiled for its own instruction set (see decoding/kernels.h); which one runs is decided at run time.
# Optimised in debug builds too, where a translation would take minutes otherwise. GCC 12 takes the undefined registers of
# its own intrinsics for a mistake of ours.
function(transformer_kernels name)
  set_source_files_properties(decoding/kernels_${name}.cpp PROPERTIES COMPILE_OPTIONS
    "-O3;-ffp-contract=fast;-fno-math-errno;$<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized;-Wno-maybe-uninitialized>;${ARGN}")
endfunction()

transformer_kernels(portable)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(avx2 -mavx2 -mfma)
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  transformer_kernels(avx2 ${avx2})
  transformer_kernels(avx512 ${avx512})
  transformer_kernels(avx512_vnni ${avx512} -mavx512vnni)
  transformer_kernels(avx512_bf16 ${avx512} -mavx512vnni -mavx512bf16)
endif()
