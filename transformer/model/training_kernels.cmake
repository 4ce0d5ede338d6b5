# The kernels of training, each compiled for its own instruction set (see model/training_kernels.h); which one runs is
# decided at run time. Optimised in debug builds too. GCC 12 takes the undefined registers of its own intrinsics for a
# mistake of ours.
function(transformer_training_kernels name)
  set_source_files_properties(model/training_kernels_${name}.cpp PROPERTIES COMPILE_OPTIONS
    "-O3;-ffp-contract=fast;-fno-math-errno;$<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized;-Wno-maybe-uninitialized>;${ARGN}")
endfunction()

transformer_training_kernels(portable)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  transformer_training_kernels(avx2 -mavx2 -mfma)
  transformer_training_kernels(avx512 -mavx2 -mfma -mavx512f -mavx512bw -mavx512dq -mavx512vl
                               -mprefer-vector-width=512)
endif()
