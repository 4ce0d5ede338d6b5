# Compiler settings of this project's own targets; nothing here reaches a consumer.

option(TRANSFORMER_WERROR "Treat warnings in this project's own code as errors" OFF)

function(transformer_own_code target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  # -fPIC for programs too, where CMake would say -fPIE: one precompiled header then serves libraries and programs.
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE -fPIC)
  # What is installed names no folder of the machine that built it.
  target_compile_options(${target} PRIVATE -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
                                           $<$<BOOL:${TRANSFORMER_WERROR}>:-Werror>)
endfunction()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND PROJECT_IS_TOP_LEVEL)
  # A precompiled header is only cached under these sloppiness rules (ccache's manual, "Precompiled headers").
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE_PROGRAM})
endif()

# One precompiled header for every target that sees LibTorch: without it each translation unit parses
# LibTorch's headers anew, up to 20 s each. GCC accepts it only where the compile flags agree, so the targets
# that reuse it go through this function.
# What ccache asks for beside a precompiled header (its manual) differs between compilers.
set(transformer_pch_flags $<IF:$<CXX_COMPILER_ID:GNU>,-fpch-preprocess,SHELL:-Xclang -fno-pch-timestamp>)
# Sources that never see LibTorch (PLAIN, names without .cpp) do without: loading it costs them more than it saves.
function(transformer_precompile target)
  cmake_parse_arguments(PARSE_ARGV 1 argument "" "" PLAIN)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM name)
    if(name IN_LIST argument_PLAIN)
      set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
  if(NOT TARGET transformer_pch)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/pch.cpp CONTENT "")
    add_library(transformer_pch OBJECT ${PROJECT_BINARY_DIR}/pch.cpp)
    transformer_own_code(transformer_pch)
    target_link_libraries(transformer_pch PRIVATE transformer_torch)
    target_precompile_headers(transformer_pch PRIVATE <torch/types.h> <torch/autograd.h> <torch/nn/module.h> <torch/nn/pimpl.h>
                              <torch/nn/modules/linear.h> <torch/nn/modules/normalization.h>)
    target_compile_options(transformer_pch PRIVATE ${transformer_pch_flags})
  endif()
  target_precompile_headers(${target} REUSE_FROM transformer_pch)
  target_compile_options(${target} PRIVATE ${transformer_pch_flags})
endfunction()

# In a unity build the files of `target` are compiled as one: what they all include is parsed once, and what they all
# instantiate is compiled once. It does not see what a file forgets to include, nor names of one file that hide another's;
# other builds do, so the warnings that are about files are theirs. APART names folders whose files stay on their own.
function(transformer_unity target)
  cmake_parse_arguments(PARSE_ARGV 1 argument "" "" APART)
  if(TRANSFORMER_UNITY)
    get_target_property(sources ${target} SOURCES)
    foreach(folder IN LISTS argument_APART)
      set(apart ${sources})
      list(FILTER apart INCLUDE REGEX "/${folder}/")
      set_source_files_properties(${apart} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endforeach()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
    target_compile_options(${target} PRIVATE -Wno-shadow $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
    # A linker takes whole object files, and of one for a whole room programs need little.
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-ffunction-sections>
                                             $<$<CONFIG:Release>:-fdata-sections>)
    target_link_options(${target} PRIVATE $<$<CONFIG:Release>:-Wl,--gc-sections>)
  endif()
endfunction()
