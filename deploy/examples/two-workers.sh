#!/usr/bin/env bash
# A cluster of two unlike workers on this machine, by hand. Usage: two-workers.sh MODEL.gguf "PROMPT"
set -euo pipefail
model=$1 prompt=$2
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
strata coordinator -m "$model" --listen 127.0.0.1:50051 --workers 2 &
strata worker --join 127.0.0.1:50051 --name large --threads 2 --models "$(dirname "$model")" &
strata worker --join 127.0.0.1:50051 --name small --threads 1 --memory 512M --models "$(dirname "$model")" &
strata run --coordinator 127.0.0.1:50051 -p "$prompt"
strata ps --coordinator 127.0.0.1:50051
