#!/usr/bin/env bash
# Masks of Strata and of llama.cpp's grammar, step by step over the same documents.
#
#   tests/bench/grammar_peer.sh SOURCE BUILD [VECTORS.json [VOCABULARY.gguf]]
#
# SOURCE: a llama.cpp tree; BUILD: its build folder, with shared libraries. Strata is looked for in
# build/release. Where its build fails with an illegal instruction, configure llama.cpp with
# -DGGML_NATIVE=OFF -DGGML_AVX2=ON.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,9p' "$0"; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
source=$1 build=$2
vectors=${3:-$root/tests/data/grammar/bench.json}
vocabulary=${4:-$root/build/release/tests/runtime/text/vocabularies/qwen2.gguf}
program=$(mktemp)
trap 'rm -f "$program"' EXIT
g++ -std=c++20 -O2 -I"$source/include" -I"$source/ggml/include" -I"$source/common" -I"$source/vendor" \
  "$root/tests/bench/grammar_peer.cpp" -o "$program" \
  -L"$build/bin" -lllama-common -lllama -lggml -lggml-base -Wl,-rpath,"$build/bin"
"$program" "$vectors" "$vocabulary"
"$root/build/release/bin/grammar_bench" "$vectors" --vocabulary "$vocabulary"
