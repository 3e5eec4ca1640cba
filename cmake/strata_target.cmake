# strata_library, strata_binary and strata_test: the only places where compile settings are made.

add_library(strata_settings INTERFACE)
target_include_directories(strata_settings INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(
  strata_settings
  INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror
            # g++ 12 reports std::string::insert as an overlapping or endless copy (GCC bug 105651).
            $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-stringop-overflow>
            # One rounding per written operation, wherever the code is compiled (docs/kernels.md).
            -ffp-contract=off -fno-strict-aliasing
            # Lets ccache keep files that use a precompiled header.
            $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(strata_settings INTERFACE -Wthread-safety)
endif()
if(STRATA_SANITIZE)
  target_compile_options(strata_settings INTERFACE -fsanitize=${STRATA_SANITIZE}
                                                   -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(strata_settings INTERFACE -fsanitize=${STRATA_SANITIZE})
  # With a sanitizer's checks between them, g++ 12 takes the members of a moved std::variant that
  # is known to hold another for uninitialised.
  target_compile_options(strata_settings
                         INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()

include(precompiled_headers)
include(joined_sources)

# strata_library(NAME SRCS a.cpp b.cpp DEPS strata::x lib [PRECOMPILED base|json|test]): target
# strata_NAME with alias strata::NAME.
# Sources are listed one by one: a file that nobody lists is a file that nobody builds.
function(strata_library name)
  cmake_parse_arguments(arg "" "PRECOMPILED" "SRCS;DEPS" ${ARGN})
  strata_join_sources(arg_SRCS strata_${name} ${arg_SRCS})
  add_library(strata_${name} STATIC ${arg_SRCS})
  add_library(strata::${name} ALIAS strata_${name})
  target_link_libraries(strata_${name} PUBLIC strata_settings ${arg_DEPS})
  if(NOT arg_PRECOMPILED)
    set(arg_PRECOMPILED base)
  endif()
  strata_use_precompiled(strata_${name} ${arg_PRECOMPILED})
endfunction()

function(strata_binary name)
  cmake_parse_arguments(arg "" "OUTPUT;PRECOMPILED" "SRCS;DEPS" ${ARGN})
  strata_join_sources(arg_SRCS ${name} ${arg_SRCS})
  add_executable(${name} ${arg_SRCS})
  if(NOT arg_PRECOMPILED)
    set(arg_PRECOMPILED base)
  endif()
  strata_use_precompiled(${name} ${arg_PRECOMPILED})
  target_link_libraries(${name} PRIVATE strata_settings ${arg_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  if(arg_OUTPUT)
    set_target_properties(${name} PROPERTIES OUTPUT_NAME ${arg_OUTPUT})
  endif()
endfunction()

# strata_compile_quickly(TARGET): for code whose own speed nobody notices. A third of the compiler's time.
function(strata_compile_quickly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# strata_test(NAME SRCS ... DEPS ... LABELS unit|reference|bits|cluster|slow [TIMEOUT s] [ENV A=b]):
# one GoogleTest binary, one ctest test. STRATA_TEST_DATA names tests/data for the test.
function(strata_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SRCS;DEPS;LABELS;ENV" ${ARGN})
  strata_binary(${name} PRECOMPILED test SRCS ${arg_SRCS} DEPS ${arg_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  strata_compile_quickly(${name})
  target_compile_definitions(
    ${name} PRIVATE STRATA_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
                    STRATA_BINARY_DIR="${PROJECT_BINARY_DIR}/bin")
  add_test(NAME ${name} COMMAND ${name})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT}
                                          ENVIRONMENT "${arg_ENV}")
  if("cluster" IN_LIST arg_LABELS)
    # Processes with deadlines of their own: nothing else beside them.
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

# strata_count_allocations(TEST): its operator new counts (tests/support/counted_allocations.h).
function(strata_count_allocations name)
  target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/counted_allocations.cpp)
endfunction()
