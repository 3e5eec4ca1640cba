# Runs within `cmake --install`: writes the systemd units for the prefix that was asked for, which is
# known only now. Variables: UNIT_TEMPLATES (a folder), UNIT_BINDIR and UNIT_DOCDIR (below the prefix,
# or absolute). DESTDIR is where files are put, and no part of what they say.
get_filename_component(prefix "${CMAKE_INSTALL_PREFIX}" ABSOLUTE)
get_filename_component(program "${UNIT_BINDIR}/strata" ABSOLUTE BASE_DIR "${prefix}")
get_filename_component(documents "${UNIT_DOCDIR}" ABSOLUTE BASE_DIR "${prefix}")
if("${program}${documents}" MATCHES "[\"\\\n]")
  message(FATAL_ERROR "systemd units cannot name ${program}: a quote, backslash or line break in it; choose another prefix")
endif()
# In a unit's value % begins a specifier.
string(REPLACE "%" "%%" STRATA_PROGRAM "${program}")
string(REPLACE "%" "%%25" STRATA_DOCUMENTATION "file:${documents}/docs/operations.md")
string(REPLACE " " "%%20" STRATA_DOCUMENTATION "${STRATA_DOCUMENTATION}")
foreach(unit strata-coordinator.service strata-worker.service)
  set(target "${prefix}/lib/systemd/system/${unit}")
  message(STATUS "Installing: $ENV{DESTDIR}${target}")
  configure_file("${UNIT_TEMPLATES}/${unit}.in" "$ENV{DESTDIR}${target}" @ONLY)
  file(CHMOD "$ENV{DESTDIR}${target}" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES "${target}")
endforeach()
