#!/usr/bin/env bash
# A cluster of two unlike workers on this machine, by hand, with the `strata` that is in the PATH.
# Usage: two-workers.sh MODEL.gguf "PROMPT"
set -euo pipefail
[ $# -eq 2 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
model=$1 prompt=$2
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$work"' EXIT
strata coordinator -m "$model" --listen 127.0.0.1:0 --address-file "$work/address" --workers 2 &
coordinator=$!
# Without an address it has said why, and ended.
until [ -s "$work/address" ]; do
  kill -0 "$coordinator" 2>/dev/null || exit 1
  sleep 0.05
done
address=$(cat "$work/address")
strata worker --join "$address" --name large --threads 2 --models "$(dirname "$model")" &
strata worker --join "$address" --name small --threads 1 --memory 512M --models "$(dirname "$model")" &
strata run --coordinator "$address" -p "$prompt"
strata ps --coordinator "$address"
