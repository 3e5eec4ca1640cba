# Three precompiled headers, shared by all targets: `base` (the standard library and fmt), `json` (base
# and nlohmann-json) and `test` (base, nlohmann-json and GoogleTest). They only make the build quicker: every file
# still includes what it uses, which the clang preset checks by building without them.
option(STRATA_PRECOMPILE "Share precompiled headers between targets (GNU only)" ON)
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # clang refuses a header whose definitions differ from the target's, such as FMT_SHARED.
  set(STRATA_PRECOMPILE OFF)
endif()

function(strata_add_precompiled name)
  if(STRATA_PRECOMPILE)
    add_library(strata_precompiled_${name} OBJECT ${PROJECT_SOURCE_DIR}/cmake/precompiled/empty.cpp)
    target_link_libraries(strata_precompiled_${name} PRIVATE strata_settings fmt::fmt)
    target_compile_options(strata_precompiled_${name} PRIVATE -pthread)
    target_precompile_headers(strata_precompiled_${name} PRIVATE ${ARGN})
  endif()
endfunction()

# strata_use_precompiled(TARGET base|json|test). g++ takes the header only where -pthread, which
# defines a macro, is given as it was for the header; gRPC's targets bring it along. And g++ 12 forgets
# there that std::string is a system header, and reports its own false alarms (GCC bug 105329 and kin).
function(strata_use_precompiled target name)
  if(STRATA_PRECOMPILE)
    target_compile_options(${target} PRIVATE -pthread -Wno-array-bounds -Wno-stringop-overread)
    target_precompile_headers(${target} REUSE_FROM strata_precompiled_${name})
  endif()
endfunction()

# CLI11 is in none: its global objects cost each file that sees them 4 s.
set(base <algorithm> <chrono> <cstdint> <functional> <map> <memory> <mutex> <optional> <span> <string>
         <string_view> <thread> <unordered_map> <variant> <vector> <fmt/format.h>)
strata_add_precompiled(base ${base})
strata_add_precompiled(json ${base} <nlohmann/json.hpp>)
if(STRATA_BUILD_TESTS)
  strata_add_precompiled(test ${base} <fstream> <random> <nlohmann/json.hpp> <gtest/gtest.h> <gmock/gmock.h>)
  if(STRATA_PRECOMPILE)
    target_link_libraries(strata_precompiled_test PRIVATE GTest::gtest GTest::gmock)
  endif()
endif()
