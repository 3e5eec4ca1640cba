# Compiles several sources of a target as one, which instantiates what they share once: half the compiler's
# time. The file that includes them names them relative to the checkout, so that ccache, unlike with
# CMake's own UNITY_BUILD, finds it again from another checkout. Names local to a file must differ from
# those of its neighbours; the clang preset compiles each file alone, as it is written.
option(STRATA_JOIN_SOURCES "Compile several sources of a target as one (GNU only)" ON)
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(STRATA_JOIN_SOURCES OFF)
endif()
if(STRATA_JOIN_SOURCES)
  # To g++ an included file is a header, where a member of a type local to the file would be a mistake.
  target_compile_options(strata_settings INTERFACE -Wno-subobject-linkage)
endif()
set(STRATA_JOIN_MAX 6)  # more saves little, and makes the next change wait longer

# strata_join_sources(OUT TARGET SRCS...): sets OUT to the files to compile for these sources.
function(strata_join_sources out target)
  set(alone ${ARGN})
  set(mine ${ARGN})
  list(FILTER mine EXCLUDE REGEX "^[$]<")  # objects of another target
  list(LENGTH mine count)
  if(NOT STRATA_JOIN_SOURCES OR count LESS 2)
    set(${out} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  list(FILTER alone INCLUDE REGEX "^[$]<")
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  math(EXPR batches "(${count} + ${STRATA_JOIN_MAX} - 1) / ${STRATA_JOIN_MAX}")
  math(EXPR size "(${count} + ${batches} - 1) / ${batches}")
  foreach(batch RANGE 1 ${batches})
    set(joined ${CMAKE_CURRENT_BINARY_DIR}/${target}_${batch}.cpp)
    math(EXPR from "(${batch} - 1) * ${size}")
    list(SUBLIST mine ${from} ${size} sources)
    list(TRANSFORM sources REPLACE "(.+)" "#include \"${folder}/\\1\"\n" OUTPUT_VARIABLE includes)
    list(JOIN includes "" includes)
    file(CONFIGURE OUTPUT ${joined} CONTENT "${includes}" @ONLY)
    list(APPEND alone ${joined})
  endforeach()
  set(${out} ${alone} PARENT_SCOPE)
endfunction()
