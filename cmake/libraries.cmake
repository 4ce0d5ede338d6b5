# What the library links, found or rejected: for building it, and for programs that use it installed, which find this
# file beside transformerConfig.cmake.

# A package found here is used by targets that a consumer links, in whatever folder it does so.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)

# Ends the search with `text` as its reason: an error where this is built, "not found" where it is looked for.
macro(transformer_unusable text)
  if(CMAKE_FIND_PACKAGE_NAME STREQUAL "transformer")
    set(transformer_FOUND FALSE)
    set(transformer_NOT_FOUND_MESSAGE "${text}")
    return()
  endif()
  message(FATAL_ERROR "${text}")
endmacro()

set(transformer_remedy "Install it: ")
if(NOT CMAKE_FIND_PACKAGE_NAME STREQUAL "transformer")
  set(transformer_remedy "scripts/setup installs everything; this one alone: ")
endif()

# find_package, whose failure names the Debian package that helps. A macro, because find_package sets variables.
macro(transformer_require package debian_package)
  find_package(${package} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    set(transformer_rejected "")
    if(${package}_CONSIDERED_VERSIONS)
      set(transformer_rejected " (unusable: version ${${package}_CONSIDERED_VERSIONS})")
    endif()
    string(JOIN " " transformer_wanted ${package} ${ARGN})
    string(CONCAT transformer_rejected "${transformer_wanted} was not found${transformer_rejected}. "
                  "${transformer_remedy}sudo apt-get install ${debian_package}")
    transformer_unusable("${transformer_rejected}")
  endif()
endmacro()

# The same for what only pkg-config knows: the target is PkgConfig::`name`.
macro(transformer_require_module name module debian_package)
  if(NOT TARGET PkgConfig::${name})
    pkg_check_modules(${name} QUIET IMPORTED_TARGET GLOBAL ${module})
    if(NOT ${name}_FOUND)
      transformer_unusable("${module} was not found. ${transformer_remedy}sudo apt-get install ${debian_package}")
    endif()
  endif()
endmacro()

# Whether LibTorch is wanted: in a build that has not switched it off; transformerConfig.cmake says so for a program that
# uses the library installed.
if(NOT CMAKE_FIND_PACKAGE_NAME STREQUAL "transformer")
  set(transformer_wants_libtorch ${TRANSFORMER_LIBTORCH})
endif()

transformer_require(Threads libc6-dev)
# Of a target that a project makes itself, find_package would tell another one's version.
if(transformer_BUILT_WITH_FMT AND TARGET fmt::fmt)
  get_target_property(transformer_fmt_is_found fmt::fmt IMPORTED)
  get_target_property(transformer_own_fmt fmt::fmt VERSION)
  if(NOT transformer_own_fmt)
    set(transformer_own_fmt unknown)
  endif()
  if(NOT transformer_fmt_is_found AND NOT "${transformer_own_fmt}" MATCHES "^${transformer_BUILT_WITH_FMT}\\.")
    string(CONCAT transformer_rejected
      "this project has a target fmt::fmt of its own (version ${transformer_own_fmt}), and the library was built with fmt "
      "${transformer_BUILT_WITH_FMT}. Use that one, look for transformer in a folder of the project that knows no other, "
      "or build the library anew.")
    transformer_unusable("${transformer_rejected}")
  endif()
endif()
transformer_require(fmt libfmt-dev)
# fmt keeps every major version in a namespace of its own, so that what was compiled with one does not link another.
if(transformer_BUILT_WITH_FMT AND NOT "${fmt_VERSION}" MATCHES "^${transformer_BUILT_WITH_FMT}\\.")
  string(CONCAT transformer_rejected
    "fmt ${fmt_VERSION} was found in ${fmt_DIR}, and this library was built with fmt ${transformer_BUILT_WITH_FMT}. "
    "Name that one with -Dfmt_DIR=FOLDER, or build the library anew.")
  transformer_unusable("${transformer_rejected}")
endif()
transformer_require(yaml-cpp libyaml-cpp-dev)
transformer_require(ZLIB zlib1g-dev)
transformer_require(PkgConfig pkg-config)
# In Debian 13 and Ubuntu 24.04 sentencepiece.pc asks for a module of protobuf's, which its package does not bring and its
# shared libraries do without.
pkg_check_modules(sentencepiece QUIET IMPORTED_TARGET GLOBAL sentencepiece)
if(NOT TARGET PkgConfig::sentencepiece)
  find_path(TRANSFORMER_SENTENCEPIECE_INCLUDE sentencepiece_processor.h)
  find_library(TRANSFORMER_SENTENCEPIECE sentencepiece)
  find_library(TRANSFORMER_SENTENCEPIECE_TRAIN sentencepiece_train)
  if(TRANSFORMER_SENTENCEPIECE_INCLUDE AND TRANSFORMER_SENTENCEPIECE AND TRANSFORMER_SENTENCEPIECE_TRAIN)
    add_library(PkgConfig::sentencepiece INTERFACE IMPORTED GLOBAL)
    target_include_directories(PkgConfig::sentencepiece INTERFACE ${TRANSFORMER_SENTENCEPIECE_INCLUDE})
    target_link_libraries(PkgConfig::sentencepiece INTERFACE ${TRANSFORMER_SENTENCEPIECE_TRAIN} ${TRANSFORMER_SENTENCEPIECE})
  endif()
endif()
transformer_require_module(sentencepiece sentencepiece libsentencepiece-dev)
transformer_require_module(xxhash libxxhash libxxhash-dev)
transformer_require_module(utf8proc libutf8proc libutf8proc-dev)
if(NOT transformer_wants_libtorch)
  return()
endif()
# The programs' log; the library's own goes where its caller says.
if(NOT CMAKE_FIND_PACKAGE_NAME STREQUAL "transformer")
  transformer_require(spdlog libspdlog-dev)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  transformer_require(OpenMP libomp-dev COMPONENTS CXX)
else()
  transformer_require(OpenMP g++ COMPONENTS CXX)
endif()

# --- LibTorch -------------------------------------------------------------------------------------------
# torch's own TorchConfig.cmake runs CMake's CUDA machinery for a CUDA build and fails where there is no
# CUDA toolkit, although nothing here needs one. So its libraries and headers are looked up directly. In this order:
# a LibTorch on CMAKE_PREFIX_PATH (or Torch_DIR), an active Python environment that has torch, the one this build
# folder used before, and last .venv, or for an installed library the one that it was built with.

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

# Sets TRANSFORMER_TORCH_ROOT in the cache, and `failure` to why it could not, or to "".
function(transformer_find_torch last_resort remedy failure)
  set(${failure} "" PARENT_SCOPE)
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

  set(refused "")
  foreach(source named active before last_resort)
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
        if(NOT transformer_FIND_QUIETLY)
          message(STATUS "LibTorch ${version}: ${root}")
        endif()
        set(TRANSFORMER_TORCH_ROOT "${root}" CACHE INTERNAL "The LibTorch that is used")
        return()
      endif()
      string(APPEND refused "\n  ${root} is version ${version}")
      if(source STREQUAL "named")
        string(CONCAT text "LibTorch ${TRANSFORMER_TORCH_VERSION} is needed, and CMAKE_PREFIX_PATH or Torch_DIR names "
                      "another:${refused}\n${remedy}")
        set(${failure} "${text}" PARENT_SCOPE)
        return()
      endif()
    endforeach()
  endforeach()
  if(refused)
    set(refused "\nFound, but not usable:${refused}")
  endif()
  set(${failure} "LibTorch ${TRANSFORMER_TORCH_VERSION} was not found. ${remedy}${refused}" PARENT_SCOPE)
endfunction()

if(CMAKE_FIND_PACKAGE_NAME STREQUAL "transformer")
  set(transformer_last_torch "${transformer_BUILT_WITH_TORCH}")
  string(CONCAT transformer_remedy "Activate a Python environment that has torch ${TRANSFORMER_TORCH_VERSION}, or name "
                "an unpacked LibTorch: cmake -DTorch_DIR=/path/to/libtorch")
else()
  transformer_torch_root_of_python("${PROJECT_SOURCE_DIR}/.venv/bin/python" transformer_last_torch)
  string(CONCAT transformer_remedy "Run scripts/setup, which installs it into .venv, activate a Python environment "
                "that has torch ${TRANSFORMER_TORCH_VERSION}, or name an unpacked LibTorch: "
                "cmake -DCMAKE_PREFIX_PATH=/path/to/libtorch")
endif()
transformer_find_torch("${transformer_last_torch}" "${transformer_remedy}" transformer_rejected)
if(transformer_rejected)
  transformer_unusable("${transformer_rejected}")
endif()

# Makes `target` stand for that LibTorch; `folder` is for a file of this build. An exported target takes nothing of it
# along: whoever uses it calls this for a LibTorch of their own.
#
# libtorch_cpu alone: programs that translate on a CPU then start faster and smaller. libtorch_cuda is opened when
# a device asks for it.
#
# torch's include folder carries an fmt of its own (12), which would shadow the installed one that the library and
# spdlog were compiled with. A folder holding nothing but a link to the installed fmt, placed before torch's, keeps them
# apart.
function(transformer_use_torch target folder)
  get_target_property(fmt_includes fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
  find_path(fmt_include fmt/core.h HINTS ${fmt_includes} NO_CACHE)
  file(MAKE_DIRECTORY ${folder})
  file(CREATE_LINK ${fmt_include}/fmt ${folder}/fmt SYMBOLIC)
  foreach(include ${folder} ${TRANSFORMER_TORCH_ROOT}/include ${TRANSFORMER_TORCH_ROOT}/include/torch/csrc/api/include)
    target_include_directories(${target} SYSTEM INTERFACE $<BUILD_INTERFACE:${include}>)
  endforeach()
  foreach(library torch_cpu c10)
    target_link_libraries(${target} INTERFACE $<BUILD_INTERFACE:${TRANSFORMER_TORCH_ROOT}/lib/lib${library}.so>)
  endforeach()
endfunction()
