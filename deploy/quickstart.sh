#!/usr/bin/env bash
# A first answer from a small cluster on this machine: installs what is missing, builds, fetches
# SmolLM2-135M-Instruct, starts a coordinator and two workers on loopback, streams the answer, and
# stops them again. A second run builds and downloads nothing.
#
# Usage: deploy/quickstart.sh "PROMPT" [OPTIONS OF strata run]
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -lt 1 ] || [ "$1" = --help ]; then
  sed -n '2,6s/^# \?//p' "$0"
  exit 2
fi
prompt=$1
shift

say() { printf '\033[2m%s\033[0m\n' "$*" >&2; }
[ -t 2 ] || say() { printf '%s\n' "$*" >&2; }

deploy/packages.sh >&2
logs=$(mktemp -d "${TMPDIR:-/tmp}/strata-quickstart.XXXXXX")
# Asks all processes to end, and after five seconds does not ask any more. Ctrl-C meanwhile reaches
# them too, and hurries them.
cleanup() {
  trap - EXIT
  trap '' INT TERM
  local left
  left=$(jobs -p)
  for pid in $left; do kill -TERM "$pid" 2>/dev/null || true; done
  for ((i = 0; i < 50; i++)); do [ -n "$(jobs -rp)" ] && sleep 0.1 || break; done
  for pid in $(jobs -rp); do kill -KILL "$pid" 2>/dev/null || true; done
  wait
  rm -rf "$logs"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if ! { [ -f build/release/build.ninja ] && ninja -C build/release -n strata_cli 2>/dev/null | grep -q 'no work to do'; }; then
  say "building (a few minutes the first time)"
  cmake --preset release >"$logs/build" 2>&1 && cmake --build --preset release --target strata_cli >"$logs/build" 2>&1 ||
    { tail -n 30 "$logs/build" >&2; echo "error: the build failed; the last lines stand above" >&2; exit 1; }
fi
strata=build/release/bin/strata
model=$(deploy/fetch_model.sh smollm2)

# The coordinator takes a free port and writes its address to a file; the workers join it there.
"$strata" coordinator -m "$model" --listen 127.0.0.1:0 --address-file "$logs/address" --workers 2 \
  >"$logs/coordinator" 2>&1 &
coordinator=$!
for ((i = 0; i < 200; i++)); do
  [ -s "$logs/address" ] && break
  kill -0 "$coordinator" 2>/dev/null || break
  sleep 0.05
done
[ -s "$logs/address" ] || { cat "$logs/coordinator" >&2; exit 1; }
address=$(cat "$logs/address")
say "coordinator on $address; starting two workers"
for name in worker-1 worker-2; do
  "$strata" worker --join "$address" --name "$name" --threads 1 --models "$(dirname "$model")" >"$logs/$name" 2>&1 &
done

# Waited for, so that a signal to this script alone takes effect at once.
"$strata" run --coordinator "$address" -p "$prompt" "$@" &
wait $! || { status=$?; tail -n 5 "$logs"/* >&2; exit "$status"; }
"$strata" ps --coordinator "$address" >&2
