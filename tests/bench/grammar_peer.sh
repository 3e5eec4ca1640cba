#!/usr/bin/env bash
# Masks of Strata and of llama.cpp's grammar, step by step over the same documents.
#
#   tests/bench/grammar_peer.sh SOURCE BUILD [VECTORS.json [VOCABULARY.gguf]]
#
# SOURCE: a llama.cpp tree; BUILD: its build folder, with shared libraries. Strata is looked for in
# build/release. Where its build fails with an illegal instruction, configure llama.cpp with
# -DGGML_NATIVE=OFF -DGGML_AVX2=ON. The two take turns, three times (ROUNDS=N), so that a busy
# machine is busy for both; the last line is the ratio of the medians of their medians.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,10p' "$0"; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
source=$1 build=$2
vectors=${3:-$root/tests/data/grammar/bench.json}
vocabulary=${4:-$root/build/release/tests/runtime/text/vocabularies/qwen2.gguf}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
g++ -std=c++20 -O2 -I"$source/include" -I"$source/ggml/include" -I"$source/common" -I"$source/vendor" \
  "$root/tests/bench/grammar_peer.cpp" -o "$folder/peer" \
  -L"$build/bin" -lllama-common -lllama -lggml -lggml-base -Wl,-rpath,"$build/bin"
for _ in $(seq "${ROUNDS:-3}"); do
  "$folder/peer" "$vectors" "$vocabulary" | tee -a "$folder/out"
  "$root/build/release/bin/grammar_bench" "$vectors" --vocabulary "$vocabulary" | tee -a "$folder/out"
done
median() { grep "^$1 " "$folder/out" | sed 's/.*p50 *\([0-9.]*\).*/\1/' | sort -n | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}'; }
for round in 'mask, cold' 'mask, warm'; do
  awk -v peer="$(median llama.cpp)" -v ours="$(median "$round")" -v round="$round" \
    'BEGIN {printf "%s: p50 %.2f us, llama.cpp %.2f us, %.0f times\n", round, ours, peer, peer / ours}'
done
