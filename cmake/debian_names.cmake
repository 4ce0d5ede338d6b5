# Run by cpack over what it is about to pack. /usr/bin/import is a name that Debian's ImageMagick manages: a file there would
# take its place without a word. In a .deb the program is called transformer-import, and so do its manual page and the
# completion of its options.

if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
file(GLOB_RECURSE programs "${CPACK_TEMPORARY_DIRECTORY}/import")
list(FILTER programs INCLUDE REGEX "/bin/import$")
foreach(program IN LISTS programs)
  cmake_path(GET program PARENT_PATH bin)
  cmake_path(GET bin PARENT_PATH usr)
  file(RENAME "${program}" "${bin}/transformer-import")
  foreach(page share/man/man1/import.1 share/bash-completion/completions/import)
    file(REMOVE "${usr}/${page}")
  endforeach()
  execute_process(COMMAND "${bin}/transformer-import" --man
                  OUTPUT_FILE "${usr}/share/man/man1/transformer-import.1" COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND "${bin}/transformer-import" --completion bash
                  OUTPUT_FILE "${usr}/share/bash-completion/completions/transformer-import" COMMAND_ERROR_IS_FATAL ANY)
endforeach()
