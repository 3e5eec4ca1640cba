#!/usr/bin/env bash
# Installs what is missing, builds the release preset and runs every test; ends with ctest's summary.
# Usage: tests/run.sh [CTEST ARGUMENTS...], such as tests/run.sh -L unit
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/progress.sh
deploy/packages.sh

# The two real models come while the build runs. Without them their tests are skipped, visibly.
export STRATA_MODELS_DIR=${STRATA_MODELS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/strata/models}
mkdir -p build
(deploy/fetch_model.sh smollm2 && deploy/fetch_model.sh gemma3-270m) >build/fetch.log 2>&1 &
fetch=$!
trap 'kill "$fetch" 2>/dev/null || true' EXIT

cmake --preset release >build/configure.log 2>&1 || {
  cat build/configure.log >&2
  fail "the build cannot be configured; what is wrong stands above (log: build/configure.log)"
}
cmake --build --preset release -j "$(build_jobs)" ||
  fail "the build failed; the compiler's words stand above. If it was killed, memory ran out: end other programs and run this again"
wait "$fetch" ||
  echo "warning: the real models could not be fetched; tests that need them are skipped (log: build/fetch.log)" >&2
ctest --preset release --no-tests=error -j "$(nproc)" "$@"
