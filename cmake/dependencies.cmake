# The one place that finds or rejects each package the project builds on.

# A package found here is used by targets that a consumer links, in whatever folder it does so.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)

# find_package, whose failure names the Debian package that helps. A macro, because find_package sets variables.
macro(transformer_require package debian_package)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    set(transformer_unusable "")
    if(${package}_CONSIDERED_VERSIONS)
      set(transformer_unusable " (unusable: version ${${package}_CONSIDERED_VERSIONS})")
    endif()
    string(JOIN " " transformer_wanted ${package} ${ARGN})
    message(FATAL_ERROR "${transformer_wanted} was not found${transformer_unusable}. scripts/setup installs "
                        "everything; this one alone: sudo apt-get install ${debian_package}")
  endif()
endmacro()

transformer_require(Threads libc6-dev)
transformer_require(fmt libfmt-dev)
transformer_require(spdlog libspdlog-dev)
transformer_require(yaml-cpp libyaml-cpp-dev)
transformer_require(nlohmann_json nlohmann-json3-dev)
transformer_require(ZLIB zlib1g-dev)
transformer_require(PkgConfig pkg-config)
pkg_check_modules(sentencepiece QUIET IMPORTED_TARGET GLOBAL sentencepiece)
if(NOT sentencepiece_FOUND)
  message(FATAL_ERROR "sentencepiece was not found. scripts/setup installs everything; this one alone: "
                      "sudo apt-get install libsentencepiece-dev")
endif()
pkg_check_modules(xxhash QUIET IMPORTED_TARGET GLOBAL libxxhash)
if(NOT xxhash_FOUND)
  message(FATAL_ERROR "xxhash was not found. scripts/setup installs everything; this one alone: "
                      "sudo apt-get install libxxhash-dev")
endif()
if(TRANSFORMER_APPS OR TRANSFORMER_TESTS)
  transformer_require(CLI11 libcli11-dev)
endif()
if(TRANSFORMER_TESTS)
  transformer_require(Catch2 catch2 2)
endif()

# --- LibTorch -------------------------------------------------------------------------------------------
# torch's own TorchConfig.cmake runs CMake's CUDA machinery for a CUDA build and fails where there is no
# CUDA toolkit, although nothing here needs one. So its libraries and headers are looked up directly. In this order:
# a LibTorch on CMAKE_PREFIX_PATH (or Torch_DIR), an active Python environment that has torch, the one this build
# folder used before, .venv.

set(TRANSFORMER_TORCH_VERSION 2.11)

function(transformer_torch_root_of_python python result)
  set(${result} "" PARENT_SCOPE)
  if(EXISTS "${python}")
    execute_process(
      COMMAND ${python} -c "import importlib.util as u, os; print(os.path.dirname(u.find_spec('torch').origin))"
      OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
    if(status EQUAL 0)
      set(${result} "${root}" PARENT_SCOPE)
    endif()
  endif()
endfunction()

# "2.11.0" for a folder that holds a LibTorch (a wheel's has version.py, an archive's build-version), or "".
function(transformer_torch_version root result)
  set(version "")
  if(EXISTS "${root}/lib/libtorch_cpu.so")
    set(version "unknown")
    foreach(file version.py build-version)
      if(EXISTS "${root}/${file}")
        file(READ "${root}/${file}" text)
        if(text MATCHES "[0-9]+\\.[0-9]+\\.[0-9]+")
          set(version "${CMAKE_MATCH_0}")
          break()
        endif()
      endif()
    endforeach()
  endif()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

function(transformer_find_torch)
  set(named)
  foreach(folder "${Torch_DIR}" "$ENV{Torch_DIR}")
    list(APPEND named ${folder})
  endforeach()
  set(prefixes "${CMAKE_PREFIX_PATH};$ENV{CMAKE_PREFIX_PATH}")
  string(REPLACE ":" ";" prefixes "${prefixes}")
  list(APPEND named ${prefixes})

  set(active)
  find_program(path_python python3 NO_CACHE)
  foreach(python "$ENV{VIRTUAL_ENV}/bin/python" "$ENV{CONDA_PREFIX}/bin/python" "${path_python}")
    transformer_torch_root_of_python("${python}" root)
    list(APPEND active "${root}")
  endforeach()
  transformer_torch_root_of_python("${PROJECT_SOURCE_DIR}/.venv/bin/python" venv)

  set(refused "")
  foreach(source named active before venv)
    if(source STREQUAL "before")
      set(roots "${TRANSFORMER_TORCH_ROOT}")
    else()
      set(roots "${${source}}")
    endif()
    foreach(root IN LISTS roots)
      # `python -c 'import torch; print(torch.utils.cmake_prefix_path)'` ends in share/cmake, Torch_DIR in
      # share/cmake/Torch.
      string(REGEX REPLACE "/share/cmake(/Torch)?/?$" "" root "${root}")
      transformer_torch_version("${root}" version)
      if(NOT version)
        continue()
      endif()
      if(version MATCHES "^${TRANSFORMER_TORCH_VERSION}\\.")
        message(STATUS "LibTorch ${version}: ${root}")
        set(TRANSFORMER_TORCH_ROOT "${root}" CACHE INTERNAL "The LibTorch that is used")
        return()
      endif()
      string(APPEND refused "\n  ${root} is version ${version}")
      if(source STREQUAL "named")
        message(FATAL_ERROR "LibTorch ${TRANSFORMER_TORCH_VERSION} is needed, and CMAKE_PREFIX_PATH or Torch_DIR "
                            "names another:${refused}")
      endif()
    endforeach()
  endforeach()
  if(refused)
    set(refused "\nFound, but not usable:${refused}")
  endif()
  message(FATAL_ERROR
    "LibTorch ${TRANSFORMER_TORCH_VERSION} was not found. Run scripts/setup, which installs it into .venv, activate a "
    "Python environment that has torch ${TRANSFORMER_TORCH_VERSION}, or name an unpacked LibTorch: "
    "cmake -DCMAKE_PREFIX_PATH=/path/to/libtorch${refused}")
endfunction()
transformer_find_torch()

# torch's include folder carries an fmt of its own (12), which would shadow the installed one that spdlog was
# compiled with. A folder holding nothing but a link to the installed fmt, placed before torch's, keeps them apart.
get_target_property(fmt_includes fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
find_path(TRANSFORMER_FMT_INCLUDE fmt/core.h HINTS ${fmt_includes} NO_CACHE)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/installed-fmt)
file(CREATE_LINK ${TRANSFORMER_FMT_INCLUDE}/fmt ${PROJECT_BINARY_DIR}/installed-fmt/fmt SYMBOLIC)

# libtorch_cpu alone: programs that translate on a CPU then start faster and smaller. libtorch_cuda is opened when
# a device asks for it.
add_library(transformer_torch INTERFACE)
target_include_directories(transformer_torch SYSTEM INTERFACE
  $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/installed-fmt>
  ${TRANSFORMER_TORCH_ROOT}/include ${TRANSFORMER_TORCH_ROOT}/include/torch/csrc/api/include)
target_link_libraries(transformer_torch INTERFACE
  ${TRANSFORMER_TORCH_ROOT}/lib/libtorch_cpu.so ${TRANSFORMER_TORCH_ROOT}/lib/libc10.so Threads::Threads)
target_compile_definitions(transformer_torch INTERFACE
  _GLIBCXX_USE_CXX11_ABI=1 TRANSFORMER_TORCH_LIBRARIES="${TRANSFORMER_TORCH_ROOT}/lib")

# --- CUDA headers ---------------------------------------------------------------------------------------
# What c10/cuda and ATen/cuda include, from the Python packages beside torch (nvidia-cuda-crt and nvidia-cuda-cccl
# complete them) or from a toolkit of the CUDA version that torch was built with. Code for CUDA is compiled
# wherever transformer_cuda_headers exists; nvcc is never needed.

function(transformer_find_cuda_headers)
  set(TRANSFORMER_CUDA_HEADERS "" CACHE INTERNAL "Folders with CUDA's headers; empty: none, or a LibTorch without CUDA")
  set(torch ${TRANSFORMER_TORCH_ROOT})
  if(NOT EXISTS ${torch}/lib/libtorch_cuda.so OR NOT EXISTS ${torch}/include/c10/cuda/impl/cuda_cmake_macros.h)
    message(STATUS "CUDA: this LibTorch is built without it")
    return()
  endif()
  set(want "")
  if(EXISTS ${torch}/version.py)
    file(READ ${torch}/version.py text)
    if(text MATCHES "cuda[^=\n]*= '([0-9]+)\\.")
      set(want ${CMAKE_MATCH_1})
    endif()
  endif()
  get_filename_component(site ${torch} DIRECTORY)
  file(GLOB candidates ${site}/nvidia/*/include
       ${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/*/include)
  foreach(candidate IN LISTS candidates)
    if(want AND candidate MATCHES "/nvidia/cu([0-9]+)/" AND NOT CMAKE_MATCH_1 EQUAL want)
      list(REMOVE_ITEM candidates ${candidate})
    endif()
  endforeach()
  foreach(toolkit "$ENV{CUDA_HOME}" "$ENV{CUDA_PATH}" /usr/local/cuda)
    if(toolkit)
      list(APPEND candidates ${toolkit}/include)
    endif()
  endforeach()

  # The wheels may lie in two environments, so each header is looked for by itself.
  set(folders)
  foreach(header cuda_runtime_api.h crt/host_defines.h cublas_v2.h cusparse.h cusolverDn.h)
    set(folder NOTFOUND)
    foreach(candidate IN LISTS folders candidates)
      if(EXISTS ${candidate}/${header})
        set(folder ${candidate})
        break()
      endif()
    endforeach()
    if(NOT folder)
      message(STATUS "CUDA: ${header} was not found, code for CUDA is left out (scripts/setup brings it)")
      return()
    endif()
    list(APPEND folders ${folder})
  endforeach()
  foreach(candidate IN LISTS candidates)
    if(EXISTS ${candidate}/nccl.h)
      list(APPEND folders ${candidate})
      break()
    endif()
  endforeach()
  foreach(candidate IN LISTS candidates)
    if(EXISTS ${candidate}/cccl/cuda/std/version)
      list(APPEND folders ${candidate}/cccl)
      break()
    endif()
  endforeach()
  list(REMOVE_DUPLICATES folders)

  list(GET folders 0 first)
  file(STRINGS ${first}/cuda_runtime_api.h line REGEX "^#define CUDART_VERSION ")
  string(REGEX MATCH "[0-9]+" number "${line}")
  math(EXPR have "${number} / 1000")
  if(want AND NOT have EQUAL want)
    message(STATUS "CUDA: headers of version ${have} in ${first}, LibTorch was built with ${want}: left out")
    return()
  endif()
  message(STATUS "CUDA ${have} headers: ${first}")
  set(TRANSFORMER_CUDA_HEADERS "${folders}" CACHE INTERNAL "")
  add_library(transformer_cuda_headers INTERFACE)
  target_include_directories(transformer_cuda_headers SYSTEM INTERFACE ${folders})
endfunction()
transformer_find_cuda_headers()

find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM AND PROJECT_IS_TOP_LEVEL)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=mold TRANSFORMER_MOLD_WORKS)
  if(TRANSFORMER_MOLD_WORKS)
    add_link_options(-fuse-ld=mold)
  endif()
endif()
