# Files that a library carries inside: what pages are made of (HTML, CSS, JavaScript) stays in files that their own tools
# read, and an installed or moved program needs none of them.
#
# transformer_embed(TARGET FILE...), in the folder that defines TARGET: of DIR/NAME.js, which may have any content and any
# size, it makes the header "transformer/.../NAME.js.h" (the file's path from the project's root, or the build folder's
# where it is made there, and .h) with transformer::embedded::NAME_js, a std::string_view of constant bytes. The header is
# made again when the file changes, and is seen by TARGET alone.

if(CMAKE_SCRIPT_MODE_FILE)  # by the build: cmake -DFILE=... -DNAME=... -DHEADER=... -P embed.cmake
  file(READ ${FILE} bytes HEX)
  # Characters one by one: a string literal may be limited to 64 KiB, and has characters that end it.
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
  string(REGEX REPLACE "(('[^']*',)('[^']*',)('[^']*',)('[^']*',)('[^']*',)('[^']*',)('[^']*',)('[^']*',))" "\\1\n"
         bytes "${bytes}")
  file(WRITE ${HEADER}
"#pragma once

#include <string_view>

namespace transformer::embedded {

inline constexpr char ${NAME}_bytes[] = {
${bytes}'\\0'};
inline constexpr std::string_view ${NAME}(${NAME}_bytes, sizeof(${NAME}_bytes) - 1);

}  // namespace transformer::embedded
")
  return()
endif()

set(TRANSFORMER_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

function(transformer_embed target)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/embedded)
  foreach(file IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH file)
    cmake_path(GET file FILENAME name)
    string(MAKE_C_IDENTIFIER ${name} identifier)
    set(root ${PROJECT_SOURCE_DIR})
    cmake_path(IS_PREFIX PROJECT_BINARY_DIR ${file} is_made)
    if(is_made)
      set(root ${PROJECT_BINARY_DIR})
    endif()
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${root} OUTPUT_VARIABLE path)
    set(header ${folder}/${path}.h)
    add_custom_command(OUTPUT ${header}
                       COMMAND ${CMAKE_COMMAND} -DFILE=${file} -DNAME=${identifier} -DHEADER=${header}
                               -P ${TRANSFORMER_EMBED_SCRIPT}
                       DEPENDS ${file} ${TRANSFORMER_EMBED_SCRIPT}
                       COMMENT "Embedding ${path}" VERBATIM)
    target_sources(${target} PRIVATE ${header})
  endforeach()
  target_include_directories(${target} PRIVATE ${folder})
endfunction()
