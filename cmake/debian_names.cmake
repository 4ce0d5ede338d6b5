# Run by cpack over what it is about to pack. /usr/bin/import is a name that Debian's ImageMagick manages: a file there would
# take its place without a word. In a .deb the program, and its manual page, are called transformer-import.

if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
file(GLOB_RECURSE files "${CPACK_TEMPORARY_DIRECTORY}/*")
foreach(file IN LISTS files)
  if(file MATCHES "^(.*)/usr/(bin|share/man/man1)/(import|import\\.1)$")
    file(RENAME "${file}" "${CMAKE_MATCH_1}/usr/${CMAKE_MATCH_2}/transformer-${CMAKE_MATCH_3}")
  elseif(file MATCHES "/bash-completion/completions/import$")
    file(REMOVE "${file}")
  endif()
endforeach()
