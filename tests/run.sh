#!/usr/bin/env bash
# Installs what is missing, builds the release preset and runs every test; ends with ctest's summary.
# Usage: tests/run.sh [CTEST ARGUMENTS...], such as tests/run.sh -L unit
set -euo pipefail
cd "$(dirname "$0")/.."
deploy/packages.sh
cmake --preset release >build-configure.log 2>&1 || { cat build-configure.log >&2; exit 1; }
rm -f build-configure.log
cmake --build --preset release
ctest --preset release --no-tests=error "$@"
