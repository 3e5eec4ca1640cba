#!/usr/bin/env python3
"""Goal: the performance scripts do what they say. Method: random models of a tiny shape run in the real
program; the table is made from programs that print known figures and note the order of their calls.

Usage: performance_test.py STRATA
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).parent
STRATA = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None

# Says what `strata` and llama-bench would, and notes its name and arguments.
PRETENDER = """#!/bin/sh
echo "${0##*/} $*" >> "$(dirname "$0")/calls"
case "${0##*/} $*" in
"strata inspect"*) echo '{"file_bytes": 100, "tensor_bytes": 2000000, "tensors": [
  {"name": "token_embd.weight", "shape": [10, 50], "bytes": 1000000},
  {"name": "output.weight", "shape": [10, 50], "bytes": 500000},
  {"name": "blk.0.attn_norm.weight", "shape": [10], "bytes": 40},
  {"name": "blk.0.ffn_up.weight", "shape": [10, 100], "bytes": 500000}]}' ;;
"strata bench"*"--threads 1"*) echo '{"prefill_tokens_per_s": null, "decode_tokens_per_s": 90.0}' ;;
"strata bench"*"--threads 2"*) echo '{"prefill_tokens_per_s": null, "decode_tokens_per_s": 20.0}' ;;
"llama-bench"*"-t 1"*) echo 'a line of its log'; echo '{"avg_ts": 30.0}' ;;
"llama-bench"*) echo 'out of luck' >&2; exit 3 ;;
esac
"""


def run(script, *arguments):
    return subprocess.run([sys.executable, str(FOLDER / script), *map(str, arguments)], capture_output=True, text=True,
                          timeout=100, check=False)


class RandomModel(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def write(self, name, *options):
        result = run("random_model.py", self.path / name, "--shape", "tiny", "--vocab", "600", *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return self.path / name

    def strata(self, *arguments):
        result = subprocess.run([STRATA, *map(str, arguments)], capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_runs_with_finite_logits(self):
        ids = self.path / "ids.json"
        ids.write_text(json.dumps([[1, 70, 80, 300, 599]]))
        for kind in ("Q4_K", "Q8_0"):
            model = self.write(f"{kind}.gguf", "--type", kind)
            logits = json.loads(self.strata("eval", "-m", model, "--tokens", ids, "--json"))[0]["logits_last"]
            self.assertEqual(len(logits), 600)
            self.assertTrue(all(math.isfinite(x) for x in logits))
            # Every layer keeps the size of what goes through it.
            deviation = math.sqrt(sum(x * x for x in logits) / len(logits))
            self.assertTrue(0.3 < deviation < 3, deviation)
            self.assertTrue(self.strata("run", "-m", model, "-p", "Hello", "-n", "4", "--ignore-end"))

    def test_is_the_same_for_the_same_seed(self):
        one = self.write("one.gguf").read_bytes()
        self.assertEqual(self.write("again.gguf").read_bytes(), one)
        self.assertNotEqual(self.write("other.gguf", "--seed", "2").read_bytes(), one)
        self.assertEqual(sorted(p.name for p in self.path.iterdir()), ["again.gguf", "one.gguf", "other.gguf"])

    def test_refuses_what_makes_no_model(self):
        for options in (["--vocab", "10"], ["--layers", "0"]):
            result = run("random_model.py", self.path / "none.gguf", *options)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(options[0], result.stderr)
        self.assertEqual(list(self.path.iterdir()), [])


class Table(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        for name in ("strata", "llama-bench", "llama-batched-bench"):
            (self.path / name).write_text(PRETENDER)
            os.chmod(self.path / name, 0o755)
        for name in ("smollm2.gguf", "gemma3-270m-q4_k_m.gguf"):
            (self.path / name).touch()

    def table(self, *options):
        return run("performance_table.py", "--strata", self.path / "strata", "--models", self.path, *options)

    def test_takes_turns_and_compares(self):
        page = self.path / "page.md"
        page.write_text("# Page\n\n<!-- measured -->\nold\n<!-- end -->\nrest\n")
        result = self.table("--peer", self.path, "--rounds", "2", "--only", "decode", "--json", self.path / "all.json",
                            "--write", page)
        self.assertEqual(result.returncode, 0, result.stderr)
        calls = [line.split()[0] for line in (self.path / "calls").read_text().split("\n") if "-m" in line]
        self.assertEqual(calls[:4], ["llama-bench", "strata", "llama-bench", "strata"])
        lines = [line for line in result.stdout.split("\n") if line.startswith("| decode")]
        self.assertEqual(len(lines), 4)  # two models, one and two threads
        # Of the file's 2 MB, a token reads all but the embeddings: 90 x 1 MB. Without machine_bench there is no limit.
        self.assertEqual(lines[0], "| decode, SmolLM2 135M Q4_1, 1 thread | 90.0 tokens/s | 30.0 | 3.00x | 0.09 GB/s | 3x or 80% "
                                   "| yes |")
        # The peer fails: no ratio, nothing reached or missed, and a sentence on standard error.
        self.assertIn("| 20.0 tokens/s |  |  | 0.02 GB/s | 3x or 80% |  |", lines[1])
        self.assertIn("llama-bench ended with 3: out of luck", result.stderr)
        self.assertEqual(page.read_text(), f"# Page\n\n<!-- measured -->\n\n{result.stdout}\n<!-- end -->\nrest\n")
        samples = json.loads((self.path / "all.json").read_text())["samples"]
        self.assertEqual(samples["decode smollm2.gguf 1"], {"peer": [30.0, 30.0], "ours": [90.0, 90.0], "limit": [None, None]})

    def test_says_whether_a_taken_core_costs_too_much(self):
        result = self.table("--rounds", "1", "--only", "shared")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("| 20.0 and 90.0 tokens/s: 0.22x |  |  |  | 0.9x | no |", result.stdout)

    def test_refuses_an_unknown_row(self):
        result = self.table("--only", "decode,everything")
        self.assertEqual(result.returncode, 2)
        self.assertIn("no row everything", result.stderr)


if __name__ == "__main__":
    unittest.main()
