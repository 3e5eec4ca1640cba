#!/usr/bin/env bash
# A first answer from a small cluster on this machine: installs what is missing, builds, fetches
# SmolLM2-135M-Instruct, starts a coordinator and two workers on loopback, streams the answer, and
# stops them again. A second run builds and downloads nothing.
#
# Usage: deploy/quickstart.sh "PROMPT" [OPTIONS OF strata run]
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/progress.sh

if [ $# -lt 1 ] || [ "$1" = --help ] || [ "$1" = -h ]; then
  sed -n '2,6s/^# \?//p' "$0"
  [ $# -ge 1 ] && exit 0 || exit 2
fi
prompt=$1
shift

say() { printf '\033[2m%s\033[0m\n' "$*" >&2; }
[ -t 2 ] || say() { printf '%s\n' "$*" >&2; }

deploy/packages.sh
logs=$(mktemp -d "${TMPDIR:-/tmp}/strata-quickstart.XXXXXX")
# Asks all processes to end, and after five seconds does not ask any more. Ctrl-C meanwhile reaches
# them too, and hurries them. Logs stay where something failed.
cleanup() {
  local status=$? left
  trap - EXIT
  trap '' INT TERM
  end_progress
  left=$(jobs -p)
  for pid in $left; do kill -TERM "$pid" 2>/dev/null || true; done
  for ((i = 0; i < 50; i++)); do [ -n "$(jobs -rp)" ] && sleep 0.1 || break; done
  for pid in $(jobs -rp); do kill -KILL "$pid" 2>/dev/null || true; done
  wait
  case $status in
  0 | 2 | 130 | 143) rm -rf "$logs" ;;
  *) rmdir "$logs" 2>/dev/null || true ;;
  esac
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

why_no_build() {
  if grep -q 'Killed signal terminated program' "$logs/build"; then
    echo "memory ran out; end other programs and run this again, it goes on where it stopped"
  elif grep -q 'No space left on device' "$logs/build"; then
    echo "the disk is full; building takes 300 MB, make room and run this again"
  else
    echo "the last lines stand above; after a change of compiler or packages remove build/release and run this again"
  fi
}
build_failed() {
  end_progress
  tail -n 20 "$logs/build" >&2
  fail "the build failed: $(why_no_build) (log: $logs/build)"
}

if ! { [ -f build/release/build.ninja ] && ninja -C build/release -n strata_cli 2>/dev/null | grep -q 'no work to do'; }; then
  say "building (a few minutes the first time)"
  cmake --preset release >"$logs/build" 2>&1 || build_failed
  begin_progress build "$logs/build"
  # Waited for, so that a signal to this script alone takes effect at once.
  ninja -C build/release -j "$(build_jobs)" strata_cli >"$logs/build" 2>&1 &
  wait $! || build_failed
  end_progress
  say "built in build/release/bin"
fi
strata=build/release/bin/strata
model=$(deploy/fetch_model.sh smollm2) || exit 1

# The coordinator takes a free port and writes its address to a file; the workers join it there.
"$strata" coordinator -m "$model" --listen 127.0.0.1:0 --address-file "$logs/address" --workers 2 \
  >"$logs/coordinator" 2>&1 &
coordinator=$!
until [ -s "$logs/address" ]; do
  kill -0 "$coordinator" 2>/dev/null || {
    cat "$logs/coordinator" >&2
    fail "the coordinator ended; what it said stands above (log: $logs/coordinator)"
  }
  sleep 0.05
done
address=$(cat "$logs/address")
say "coordinator on $address; starting two workers"
for name in worker-1 worker-2; do
  "$strata" worker --join "$address" --name "$name" --threads 1 --models "$(dirname "$model")" >"$logs/$name" 2>&1 &
done

# Waited for, as the build.
"$strata" run --coordinator "$address" -p "$prompt" "$@" &
wait $! || {
  status=$?
  [ "$status" -eq 2 ] || say "no answer; what coordinator and workers said stands in $logs"
  exit "$status"
}
"$strata" ps --coordinator "$address" >&2
