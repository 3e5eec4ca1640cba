# Every outside package, found once. The names are Debian 12's; deploy/packages.sh installs them.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Boost 1.81 REQUIRED)  # headers alone: Asio and Beast
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(libedit REQUIRED IMPORTED_TARGET libedit)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc>=2.5)

if(STRATA_CUDA)
  find_package(CUDAToolkit REQUIRED)
  message(WARNING "No CUDA kernels yet: this build finds the toolkit and runs on the CPU only")
endif()

find_program(STRATA_PROTOC protoc REQUIRED)
find_program(STRATA_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)

if(STRATA_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
endif()

find_program(STRATA_CCACHE ccache)
if(STRATA_CCACHE)
  # Paths relative to the checkout, so that several checkouts share one cache.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
               CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
               ${STRATA_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()
