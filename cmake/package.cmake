# Archives of what runs without LibTorch, by cpack: the programs and libtransformer.so. A .tar.gz has the libraries that
# they need beyond the C and C++ ones beside them, and may be unpacked anywhere; a .deb names Debian's packages instead,
# and has a program whose name is another package's under one of its own (debian_names.cmake).

set(CPACK_PACKAGE_NAME transformer)
set(CPACK_PACKAGE_VENDOR "transformer")
set(CPACK_PACKAGE_CONTACT "transformer")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Translates with Transformers, on CPUs: programs and a C library")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
string(TOLOWER "${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}" system)
set(CPACK_PACKAGE_FILE_NAME transformer-${PROJECT_VERSION}-${system})
set(CPACK_STRIP_FILES ON)

# Beside the libraries that an archive brings along: their licences, and the bill of materials. A .deb brings none along,
# and has the licences of what is compiled in.
find_package(Python3 QUIET COMPONENTS Interpreter)
foreach(component bundled notices)
  set(names)
  if(component STREQUAL bundled)
    set(names "${CPACK_PACKAGE_FILE_NAME} ${PROJECT_VERSION}")
  endif()
  install(CODE "
if(\"${Python3_EXECUTABLE}\" STREQUAL \"\")
  message(FATAL_ERROR \"licences are collected with Python: install python3 and configure again\")
endif()
execute_process(COMMAND \"${Python3_EXECUTABLE}\" \"${CMAKE_CURRENT_LIST_DIR}/bundled.py\"
                        \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\" ${names}
                COMMAND_ERROR_IS_FATAL ANY)" COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()

set(CPACK_GENERATOR TGZ)
find_program(TRANSFORMER_DPKG_SHLIBDEPS dpkg-shlibdeps)
if(TRANSFORMER_DPKG_SHLIBDEPS)
  list(APPEND CPACK_GENERATOR DEB)
endif()
# One package of several components.
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
set(CPACK_COMPONENTS_ALL programs interface bundled)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# Debian's package of this name has a program of this name.
set(CPACK_DEBIAN_PACKAGE_CONFLICTS translate)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
file(WRITE ${PROJECT_BINARY_DIR}/package_options.cmake [=[
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_COMPONENTS_ALL programs interface notices)
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY OFF)
endif()
]=])
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_BINARY_DIR}/package_options.cmake)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/debian_names.cmake)
include(CPack)
