# Headers, libraries, programs and a CMake package, in a tree that may be moved: the one path in it that is absolute is
# that of the LibTorch it was built with, which programs open it by and a consumer may replace. As components: programs,
# interface (the C interface), development (all that C++ programs need).

include(CMakePackageConfigHelpers)
set(transformer_package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/transformer)

install(EXPORT transformer NAMESPACE transformer:: FILE transformerTargets.cmake
        DESTINATION ${transformer_package_folder} COMPONENT development)
install(EXPORT transformer_c NAMESPACE transformer:: FILE transformerCTargets.cmake
        DESTINATION ${transformer_package_folder} COMPONENT interface)
string(REGEX MATCH "^[0-9]+" transformer_fmt_major "${fmt_VERSION}")
file(RELATIVE_PATH transformer_modules_folder "${CMAKE_INSTALL_FULL_LIBDIR}/cmake/transformer" "${CMAKE_INSTALL_FULL_BINDIR}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/transformerConfig.cmake.in ${PROJECT_BINARY_DIR}/transformerConfig.cmake @ONLY)
# Before 1.0 a minor version may change what a program relies on.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/transformerConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/transformerConfig.cmake ${PROJECT_BINARY_DIR}/transformerConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/libraries.cmake
        DESTINATION ${transformer_package_folder} COMPONENT development)

# Not of rooms that were not built.
set(transformer_left_out PATTERN python EXCLUDE)
if(NOT TRANSFORMER_LIBTORCH)
  foreach(room decoding model sweep training)
    list(APPEND transformer_left_out PATTERN ${room} EXCLUDE)
  endforeach()
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/transformer DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        FILES_MATCHING PATTERN "*.h" ${transformer_left_out})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT programs)
