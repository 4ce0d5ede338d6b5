# The target `docs`: the public headers by Doxygen, into build/.../docs/html. A warning is an error, but for names without
# a remark, of which there may be no more than there were; most of them are in headers that are nobody's interface.
set(TRANSFORMER_UNDOCUMENTED_NAMES 628)

find_package(Doxygen QUIET)
find_package(Python3 QUIET COMPONENTS Interpreter)
if(NOT DOXYGEN_FOUND OR NOT Python3_FOUND)
  add_custom_target(docs COMMAND ${CMAKE_COMMAND} -E echo "docs needs Doxygen: sudo apt-get install doxygen"
                         COMMAND ${CMAKE_COMMAND} -E false VERBATIM)
  return()
endif()
set(DOXYGEN_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/docs)
set(DOXYGEN_STRIP_FROM_PATH ${PROJECT_SOURCE_DIR})
set(DOXYGEN_FILE_PATTERNS *.h)
# Tables of kernels, and what serves LibTorch's own, are nobody's interface.
set(DOXYGEN_EXCLUDE_PATTERNS */kernels/* */interface/python/*)
set(DOXYGEN_INPUT_FILTER "${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/doxygen_filter.py")
set(DOXYGEN_FILTER_SOURCE_FILES NO)
set(DOXYGEN_MARKDOWN_SUPPORT NO)
set(DOXYGEN_AUTOLINK_SUPPORT NO)
set(DOXYGEN_JAVADOC_AUTOBRIEF YES)
set(DOXYGEN_DISTRIBUTE_GROUP_DOC YES)
set(DOXYGEN_HIDE_UNDOC_RELATIONS NO)
set(DOXYGEN_PREDEFINED "TORCH_MODULE(x)=")
set(DOXYGEN_MACRO_EXPANSION YES)
set(DOXYGEN_EXPAND_ONLY_PREDEF YES)
set(DOXYGEN_GENERATE_TREEVIEW YES)
set(DOXYGEN_HAVE_DOT NO)
set(DOXYGEN_QUIET YES)
set(DOXYGEN_WARN_LOGFILE ${PROJECT_BINARY_DIR}/docs/warnings)
doxygen_add_docs(docs_pages ${PROJECT_SOURCE_DIR}/transformer COMMENT "Doxygen: the library's headers")
add_custom_target(docs COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/doxygen_warnings.py
                               ${DOXYGEN_WARN_LOGFILE} ${TRANSFORMER_UNDOCUMENTED_NAMES} VERBATIM)
add_dependencies(docs docs_pages)
