# strata_isa_objects(NAME ISA SRCS...): an object library compiled for one vector path, for files
# that are entered only after isa.cpp has found the processor able. Never -march=native: a release
# runs on any x86-64.
set(STRATA_ISA_FLAGS_scalar "")
set(STRATA_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(STRATA_ISA_FLAGS_avx2vnni ${STRATA_ISA_FLAGS_avx2} -mavxvnni)
set(STRATA_ISA_FLAGS_avx512 -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl
                            -mprefer-vector-width=512)
set(STRATA_ISA_FLAGS_avx512vnni ${STRATA_ISA_FLAGS_avx512} -mavx512vnni)

function(strata_isa_objects name isa)
  add_library(${name} OBJECT ${ARGN})
  target_link_libraries(${name} PRIVATE strata_settings)
  # g++ 12 reports its own AVX-512 intrinsics (GCC bug 105593).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND isa MATCHES "avx512")
    target_compile_options(${name} PRIVATE -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  # The vector paths are the scalar path's source over other types: undefined behaviour is looked for
  # there, which halves the time that the others take to compile.
  if(STRATA_SANITIZE MATCHES "undefined" AND NOT isa STREQUAL "scalar")
    target_compile_options(${name} PRIVATE -fno-sanitize=undefined)
  endif()
  # Kernels are hot in every build. But unrolled ones with a check at each access take minutes to
  # optimise fully.
  set(optimise -O3)
  if(STRATA_SANITIZE)
    set(optimise -O1)
  endif()
  target_compile_options(${name} PRIVATE ${STRATA_ISA_FLAGS_${isa}} ${optimise})
endfunction()
