#!/usr/bin/env python3
"""Goal: the performance scripts do what they say, whatever fails or interrupts them. Method: random models of
a tiny shape run in the real program; tables are made from programs that print known figures, note the
order of their calls, fail or hang as a file beside them says.

Usage: performance_test.py STRATA [MACHINE_BENCH]
"""
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

import performance_processes as processes
import performance_report as report
import performance_rows as rows
from performance_processes import RunError

FOLDER = pathlib.Path(__file__).parent
STRATA = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
MACHINE_BENCH = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None

# Says what `strata` and llama's benches would, and notes its name and arguments. Before that it does what the
# file `mischief` beside it says.
PRETENDER = """#!/bin/sh
here=$(dirname "$0")
call="${0##*/} $*"
echo "$call" >> "$here/calls"
if [ -e "$here/mischief" ]; then . "$here/mischief"; fi
case "$call" in
"strata inspect"*) echo '{"file_bytes": 100, "tensor_bytes": 2000000, "tensors": [
  {"name": "token_embd.weight", "shape": [10, 50], "bytes": 1000000},
  {"name": "output.weight", "shape": [10, 50], "bytes": 500000},
  {"name": "blk.0.attn_norm.weight", "shape": [10], "bytes": 40},
  {"name": "blk.0.ffn_up.weight", "shape": [10, 100], "bytes": 500000}]}' ;;
"strata plan"*) echo '{"stages": [{"kv_bytes": 1000}]}' ;;
"strata bench"*"--workers"*) echo '{"decode_tokens_per_s": 80.0, "hop_us": 95.0, "coordinator_bytes_per_token": 240}' ;;
"strata bench"*"--threads 2"*) echo '{"decode_tokens_per_s": 20.0, "peak_rss_bytes": 1000, "load_s": 0.1}' ;;
"strata bench"*) echo '{"prefill_tokens_per_s": null, "decode_tokens_per_s": 90.0, "peak_rss_bytes": 1000}' ;;
"llama-bench"*"-t 1"*) echo 'a line of its log'; echo '{"avg_ts": 30.0}' ;;
"llama-bench"*) echo 'out of luck' >&2; exit 3 ;;
"hop_bench"*) echo '  2304      1            10.0 (12)          40.0 (50)          80.0 (90)       40.0' ;;
"machine_bench"*"^read"*"--cores=4"*) echo '{"benchmarks": [
  {"name": "read/MB:1/cores:4", "run_type": "iteration", "GB/s": 0.5, "ahead_KiB": 6, "streams": 2},
  {"name": "read/MB:1/cores:4", "run_type": "iteration", "GB/s": 0.18, "ahead_KiB": 6, "streams": 2}]}' ;;
"machine_bench"*) echo 'none of these' ;;
esac
"""
PAGE = "# Page\n\n<!-- measured -->\n\nA machine.\n\n{}<!-- end -->\nrest\n"
KEPT = "<!-- row hop -->\n**A hop** (2020-01-01 00:00)\n\n| a table |\n\n"


def run(script, *arguments):
    return subprocess.run([sys.executable, str(FOLDER / script), *map(str, arguments)], capture_output=True, text=True,
                          timeout=100, check=False)


def start(script, *arguments):
    """With Ctrl-C as a terminal's programs have it, even where the tests run in the background."""
    return subprocess.Popen([sys.executable, str(FOLDER / script), *map(str, arguments)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def wait_until(condition, what):
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within 30 s: {what}")
        time.sleep(0.01)


def is_running(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"  # nobody may be there to reap it


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)

    def program(self, text, name="program"):
        path = self.path / name
        path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def pid(self, name):
        path = self.path / name
        wait_until(lambda: path.exists() and path.read_text().endswith("\n"), f"{name} is written")
        return int(path.read_text())


class RandomModel(InFolder):
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
        result = run("random_model.py", self.path / "nowhere" / "none.gguf")
        self.assertEqual(result.returncode, 1)
        self.assertIn("No such file or directory", result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        self.assertEqual(list(self.path.iterdir()), [])

    def test_an_interrupt_leaves_nothing_behind(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with start("random_model.py", self.path / "large.gguf", "--shape", "3b") as script:
                wait_until((self.path / "large.gguf.part").exists, "it writes")
                script.send_signal(number)
                self.assertEqual(script.communicate()[1], "")
            self.assertEqual(script.returncode, code)
            self.assertEqual(list(self.path.iterdir()), [])


class Programs(InFolder):
    """performance_processes.py: no program outlives its turn."""

    def test_output_and_memory_of_a_program(self):
        out, peak_rss_bytes = processes.run([self.program("echo out; echo noise >&2")], 30)
        self.assertEqual(out, "out\n")
        self.assertTrue(1 << 20 <= peak_rss_bytes < 1 << 30, peak_rss_bytes)

    def test_a_failure_is_one_sentence(self):
        for command, text in ((self.program("echo first; echo out of luck >&2; exit 3"), "program ended with 3: out of luck"),
                              (str(self.path / "none"), "none did not start: No such file or directory"),
                              (str(self.path), "did not start: Permission denied")):
            with self.assertRaises(RunError) as caught:
                processes.run([command], 30)
            self.assertTrue(str(caught.exception).endswith(text), caught.exception)

    def test_a_timeout_ends_the_program_and_its_children(self):
        slow = self.program(f"sleep 100 & echo $! > {self.path}/child; echo $$ > {self.path}/self; wait")
        begin = time.monotonic()
        with self.assertRaisesRegex(RunError, "^program took longer than 1 s$"):
            processes.run([slow], 1)
        self.assertLess(time.monotonic() - begin, 20)
        wait_until(lambda: not is_running(self.pid("child")) and not is_running(self.pid("self")), "both are ended")

    def test_a_program_that_ignores_sigterm_is_killed(self):
        stubborn = self.program(f"trap '' TERM; echo $$ > {self.path}/self; while true; do sleep 0.05; done")
        with unittest.mock.patch.object(processes, "GRACE_S", 0.2):
            with self.assertRaisesRegex(RunError, "took longer"):
                processes.run([stubborn], 1)
        self.assertFalse(is_running(self.pid("self")))

    def test_what_a_program_leaves_running_is_ended(self):
        processes.run([self.program(f"sleep 100 & echo $! > {self.path}/child")], 30)
        wait_until(lambda: not is_running(self.pid("child")), "its child is ended")

    def test_an_exception_on_the_way_ends_the_program(self):
        program = self.program(f"echo $$ > {self.path}/self; sleep 100")
        with self.assertRaises(processes.Interrupted):
            with processes.Child([program], subprocess.DEVNULL, subprocess.DEVNULL):
                pid = self.pid("self")
                raise processes.Interrupted(signal.SIGINT)
        self.assertFalse(is_running(pid))

    def test_a_killed_script_takes_its_program_along(self):
        program = self.program(f"echo $$ > {self.path}/self; exec sleep 100")
        code = f"import sys; sys.path.insert(0, '{FOLDER}'); import performance_processes as p; p.run(['{program}'], 100)"
        with subprocess.Popen([sys.executable, "-c", code]) as script:
            pid = self.pid("self")
            script.kill()
        wait_until(lambda: not is_running(pid), "the program is ended")

    def test_somebody_elses_child_keeps_its_result(self):
        with subprocess.Popen([self.program("exit 7")]) as other:
            processes.run([self.program("sleep 0.2", "slow")], 30)
            self.assertEqual(other.wait(), 7)

    def test_a_program_stays_on_its_cores(self):
        core = processes.usable_cores()[-1]
        out, _ = processes.run([sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"], 30, cores={core})
        self.assertEqual(out, f"{{{core}}}\n")
        with self.assertRaisesRegex(RunError, "may not use the cores"):
            processes.run(["true"], 30, cores={9999})

    def test_a_core_is_taken_or_it_is_said(self):
        core = processes.usable_cores()[-1]
        with unittest.mock.patch.object(processes.TakenCore, "MIN_SHARE", 0.01):  # others may want it, too
            with processes.TakenCore(core) as taken:
                time.sleep(0.5)
                self.assertGreater(taken.check(), 0.01)
        for command, text in ((["true"], "has ended"), (["sleep", "100"], f"core {core} had 0% of it")):
            with unittest.mock.patch.object(processes.TakenCore, "START_S", 0.1), processes.TakenCore(core, command) as taken:
                time.sleep(0.2)
                with self.assertRaisesRegex(RunError, text):
                    taken.check()

    def test_two_cores_are_not_the_threads_of_one(self):
        for cores, siblings, expected in (([0, 1, 2, 3], {2, 3}, (1, 3)), ([0, 1], {0, 1}, (0, 1)), ([4, 7], {7}, (4, 7))):
            with unittest.mock.patch.object(processes, "usable_cores", lambda cores=cores: cores), \
                    unittest.mock.patch.object(processes, "core_siblings", lambda _, siblings=siblings: siblings):
                self.assertEqual(processes.two_cores(), expected)
        with unittest.mock.patch.object(processes, "usable_cores", lambda: [5]):
            with self.assertRaisesRegex(RunError, "two cores"):
                processes.two_cores()


class Texts(InFolder):
    """Lines and pages, without programs."""

    def test_an_unknown_aim_is_neither_reached_nor_missed(self):
        self.assertEqual([rows.any_of(True, None), rows.any_of(None, False), rows.any_of(False, False), rows.any_of(None)],
                         [True, None, False, None])
        self.assertEqual([rows.all_of(False, None), rows.all_of(None, True), rows.all_of(True, True)], [False, None, True])

    def test_more_threads_than_cores_is_said(self):
        with unittest.mock.patch.object(rows, "usable_cores", lambda: [0, 1]):
            self.assertEqual(rows.crowd(3, "processes"), "3 processes on 2 cores")
            self.assertEqual(rows.crowd(2, "processes"), "")

    def test_a_cell_keeps_the_table_whole(self):
        line = rows.Line("1", notes=["a|b\nc", "", "d"])
        self.assertEqual(report.markdown([line], rows.Line.HEADINGS).split("\n")[-1], "|  | 1 |  |  |  |  |  | a\\|b c; d |")

    def page(self, text):
        path = self.path / "page.md"
        path.write_text(text)
        return report.Page(path)

    def test_rows_that_were_not_measured_stay(self):
        page = self.page(PAGE.format("<!-- row decode -->\n**Decode** (old)\n\n" + KEPT))
        page.write("A machine.", {"decode": "**Decode** (new)"}, ["decode", "hop"], is_whole=False)
        self.assertEqual(page.path.read_text(), PAGE.format("<!-- row decode -->\n**Decode** (new)\n\n" + KEPT))
        # From another machine: the kept ones say where they were measured, and once only.
        for _ in range(2):
            page.write("Another.", {"decode": "**Decode** (new)"}, ["decode", "hop"], is_whole=False)
            self.assertIn("**A hop** (2020-01-01 00:00)\n\nMeasured on: A machine.\n\n| a table |", page.path.read_text())
            self.assertEqual(page.path.read_text().count("A machine."), 1)
        page.write("Another.", {"decode": "**Decode** (newest)"}, ["decode", "hop"], is_whole=True)
        self.assertNotIn("A hop", page.path.read_text())
        self.assertTrue(page.path.read_text().endswith("(newest)\n\n<!-- end -->\nrest\n"))

    def test_a_page_that_changed_meanwhile_keeps_the_change(self):
        page = self.page(PAGE.format(""))
        page.path.write_text("New. " + page.path.read_text())
        page.path.chmod(0o640)
        page.write("A machine.", {"hop": "**A hop**"}, ["hop"], is_whole=True)
        self.assertTrue(page.path.read_text().startswith("New. # Page"))
        self.assertEqual(page.path.stat().st_mode & 0o777, 0o640)
        page.path.write_text("no lines any more")
        with self.assertRaisesRegex(report.PageError, "needs one line <!-- measured -->"):
            page.write("A machine.", {}, [], is_whole=True)
        self.assertEqual([path.name for path in self.path.iterdir()], ["page.md"])


class Table(InFolder):
    def setUp(self):
        super().setUp()
        for name in ("strata", "llama-bench", "llama-batched-bench"):
            self.program(PRETENDER, name)
        for name in ("smollm2.gguf", "gemma3-270m-q4_k_m.gguf"):
            (self.path / name).touch()
        self.json = self.path / "all.json"
        self.page = self.path / "page.md"
        self.page.write_text(PAGE.format(KEPT))

    def mischief(self, text):
        (self.path / "mischief").write_text(text)

    def options(self, *options):
        return ["--strata", self.path / "strata", "--models", self.path, "--shape", "tiny", *options]

    def table(self, *options, code=0):
        result = run("performance_table.py", *self.options(*options))
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def changed_table(self, change, *options, code=0):
        """With this change to the script."""
        text = (f"import sys\nsys.path.insert(0, {str(FOLDER)!r})\nimport performance_processes, performance_rows\n"
                f"import performance_table\n{change}\nsys.exit(performance_table.main())")
        result = subprocess.run([sys.executable, "-c", text, *map(str, self.options(*options))], capture_output=True, text=True,
                                timeout=100, check=False)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    @staticmethod
    def lines(result, begin):
        return [line for line in result.stdout.split("\n") if line.startswith(f"| {begin}")]

    def test_takes_turns_and_compares(self):
        result = self.table("--peer", self.path, "--rounds", "2", "--only", "decode", "--json", self.json, "--write",
                            self.page, code=1)
        calls = [line.split()[0] for line in (self.path / "calls").read_text().split("\n") if "-m" in line]
        self.assertEqual(calls[:4], ["llama-bench", "strata", "llama-bench", "strata"])
        lines = self.lines(result, "decode")
        self.assertEqual(len(lines), 4)  # two models, one and two threads
        # Of the file's 2 MB, a token reads all but the embeddings: 90 x 1 MB. Without machine_bench there is no limit.
        self.assertEqual(lines[0], "| decode, SmolLM2 135M Q4_1, 1 thread | 90.0 tokens/s | 30.0 | 3.00x | 0.09 GB/s "
                                   "| 3x or 80% | yes | 1.00 MB a token |")
        # The peer fails: no ratio, nothing reached or missed, and a sentence.
        self.assertIn("| 20.0 tokens/s |  |  | 0.02 GB/s | 3x or 80% |  |", lines[1])
        self.assertIn("peer: llama-bench ended with 3: out of luck", lines[1])
        self.assertIn("llama-bench ended with 3: out of luck", result.stderr)
        found = json.loads(self.json.read_text())
        self.assertEqual(found["samples"]["decode smollm2.gguf 1"],
                         {"peer": [30.0, 30.0], "ours": [90.0, 90.0], "limit": [None, None]})
        self.assertEqual(found["failures"], {f"decode {file} 2": {"peer": "llama-bench ended with 3: out of luck"}
                                             for file in ("smollm2.gguf", "gemma3-270m-q4_k_m.gguf")})
        self.assertEqual([line["ours"] for line in found["rows"]["decode"]["lines"]],
                         ["90.0 tokens/s", "20.0 tokens/s"] * 2)
        # The page has the measured row, and the one that it had before.
        page = self.page.read_text()
        self.assertTrue(page.startswith("# Page\n\n<!-- measured -->\n\n") and page.endswith("\n\n<!-- end -->\nrest\n"))
        self.assertIn(result.stdout.strip(), page)
        self.assertIn("| a table |", page)

    def test_says_how_many_rounds_gave_a_figure(self):
        self.mischief(f'case "$call" in llama*) if [ -e {self.path}/ran ]; then echo tired >&2; exit 1; fi; '
                      f"touch {self.path}/ran ;; esac")
        result = self.table("--peer", self.path, "--only", "decode", "--threads", "1", code=1)
        line = self.lines(result, "decode, SmolLM2")[0]
        self.assertIn("| 90.0 tokens/s | 30.0 | 3.00x |", line)
        self.assertIn("peer: 1 of 3 rounds, then llama-bench ended with 1: tired", line)

    def test_a_limit_for_each_number_of_threads(self):
        self.program(PRETENDER, "machine_bench")
        result = self.table("--only", "decode", "--threads", "4", "--rounds", "1", "--json", self.json)
        # The best of the repetitions: 90 MB a second of 0.5 GB/s.
        self.assertIn("| 18% of 0.50 GB/s |", self.lines(result, "decode, SmolLM2 135M Q4_1, 4 threads")[0])
        self.assertEqual(json.loads(self.json.read_text())["read_limits"][0],
                         {"MB": 1, "cores": 4, "GB/s": 0.5, "ahead_KiB": 6, "streams": 2})

    def test_what_fails_is_a_line_and_the_run_goes_on(self):
        (self.path / "gemma3-270m-q4_k_m.gguf").unlink()
        self.program(PRETENDER, "hop_bench")
        self.program(PRETENDER, "machine_bench")
        self.mischief('case "$call" in "strata plan"*) echo "{\\"stages\\": [{}]}"; exit 0 ;; '
                      '"strata bench"*"--threads 2"*"--prompt 1 --gen 16"*) echo "{"; exit 0 ;; esac')
        result = self.table("--only", "prefill,memory,depth,hop,products", "--rounds", "1", "--write", self.page, code=1)
        self.assertIn("ours: strata bench gave no prefill_tokens_per_s", self.lines(result, "prefill 512, SmolLM2")[0])
        self.assertIn("machine_bench printed no benchmarks as JSON", self.lines(result, "prefill 512, SmolLM2")[0])
        self.assertIn(f"| failed: {self.path}/gemma3-270m-q4_k_m.gguf is missing |",
                      self.lines(result, "prefill 512, Gemma")[0])
        self.assertIn("| failed: strata plan gave no kv_bytes |", self.lines(result, "peak memory, SmolLM2")[0])
        one, two = self.lines(result, "decode behind 4,096")
        self.assertIn("| 90.0 tokens/s |", one)
        self.assertIn("ours: strata bench printed no JSON object", two)
        self.assertIn("Not measured:", result.stdout)
        self.assertIn("matmul_bench did not start: No such file or directory", result.stdout)
        self.assertIn("| 80.0 µs | gRPC stream 40.0 µs, TCP 10.0 µs | 0.50x |", result.stdout)
        self.assertNotIn("Traceback", result.stderr)
        self.assertIn("is missing", self.page.read_text())

    def test_a_fault_of_the_script_costs_one_line_only(self):
        result = self.changed_table("""
performance_rows.batch_line = lambda *_: {}["key"]
performance_rows.kv_line = lambda *_: [][1]""", "--only", "batch,kv,decode", code=1)
        self.assertIn("failed: the script failed: KeyError: 'key'", self.lines(result, "8 sequences")[0])
        self.assertIn("failed: the script failed: IndexError", self.lines(result, "q8_0")[0])
        self.assertIn("90.0 tokens/s", self.lines(result, "decode, SmolLM2")[0])

    def test_an_interrupt_keeps_what_was_measured(self):
        self.mischief(f'case "$call" in "strata bench"*"--threads 2"*) echo $$ > {self.path}/hanging; exec sleep 100 ;; esac')
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            (self.path / "hanging").unlink(missing_ok=True)
            with start("performance_table.py", *self.options("--only", "decode", "--rounds", "1", "--json", self.json,
                                                             "--write", self.page)) as script:
                pid = self.pid("hanging")
                # Written after each line, not at the end.
                self.assertEqual(len(json.loads(self.json.read_text())["rows"]["decode"]["lines"]), 1)
                script.send_signal(number)
                out, errors = script.communicate()
            self.assertEqual(script.returncode, code, errors)
            self.assertFalse(is_running(pid))
            self.assertIn("| decode, SmolLM2 135M Q4_1, 1 thread | 90.0 tokens/s |", out)
            self.assertIn("interrupted)", out)
            self.assertIn(f"{signal.Signals(number).name}: what was measured follows", errors)
            self.assertNotIn("Traceback", errors)
            self.assertEqual(self.page.read_text(), PAGE.format(KEPT))
            found = json.loads(self.json.read_text())
            self.assertEqual(found["samples"]["decode smollm2.gguf 1"]["ours"], [90.0])
            self.assertFalse(found["rows"]["decode"]["complete"])
        self.assertEqual([path.name for path in self.path.glob(".*")], [])

    def test_an_interrupted_run_writes_complete_rows_if_asked(self):
        self.mischief(f'case "$call" in "strata bench"*"--depth 512"*) echo $$ > {self.path}/hanging; exec sleep 100 ;; esac')
        with start("performance_table.py", *self.options("--only", "decode,kv", "--rounds", "1", "--write", self.page,
                                                         "--write-partial")) as script:
            self.pid("hanging")
            script.send_signal(signal.SIGINT)
            script.communicate()
        self.assertEqual(script.returncode, 130)
        page = self.page.read_text()
        self.assertEqual(report.SECTION.findall(page), ["decode", "hop"])
        self.assertNotIn("interrupted", page)

    def test_what_can_not_be_written_is_said_before_anything_runs(self):
        old = self.path / "old.md"
        old.write_text(PAGE.format("| a table | of no row |\n"))
        for text, options in (("page.md needs one line <!-- measured -->", ["--write", self.page]),
                              ("none.md: No such file or directory", ["--write", self.path / "none.md"]),
                              ("folder", ["--json", self.path / "folder" / "all.json"]),
                              ("can't be written", ["--json", self.path]),
                              ("measure all rows", ["--write", old])):
            for broken in ("<!-- end -->\n<!-- measured -->", "<!-- measured -->", "<!-- measured --><!-- end --><!-- end -->"):
                self.page.write_text(broken)
                result = self.table("--only", "decode", *options, code=2)
                self.assertIn(text, result.stderr)
                self.assertIn(f"error: {options[0]}: ", result.stderr)
        self.assertFalse((self.path / "calls").exists())

    def test_above_1x_is_better_everywhere(self):
        self.program(PRETENDER, "hop_bench")
        result = self.table("--peer", self.path, "--only", "memory,hop", "--threads", "1")
        # Our 1,000 bytes against the megabytes of a shell.
        cells = self.lines(result, "peak memory, SmolLM2")[0].split(" | ")
        self.assertGreater(float(cells[3].rstrip("x")), 100)
        self.assertEqual(cells[6], "yes")
        self.assertIn("| 0.50x |", self.lines(result, "there and back")[0])  # twice as slow as gRPC's 40 µs

    @unittest.skipIf(len(processes.usable_cores()) < 2, "one core")
    def test_says_whether_a_taken_core_costs_too_much(self):
        self.mischief('case "$call" in "strata bench"*) grep Cpus_allowed_list /proc/self/status '
                      f'>> {self.path}/cores; sleep 0.5 ;; esac')
        result = self.changed_table("performance_processes.TakenCore.MIN_SHARE = 0.001",  # others may want the core, too
                                    "--rounds", "1", "--only", "shared")
        self.assertIn("| 20.0 and 90.0 tokens/s: 0.22x |  |  |  | 0.9x | no |", result.stdout)
        self.assertRegex(result.stdout, r"the other process had \d+% of core \d+")
        for text in (self.path / "cores").read_text().splitlines():
            self.assertEqual(len(re.findall(r"\d+", text)), 2, text)

    def test_workers_that_share_cores_are_said(self):
        result = self.table("--rounds", "1", "--only", "workers")
        self.assertIn("1,389 µs more (80.0 and 90.0 tokens/s)", result.stdout)
        self.assertIn("beside computing 95.0 µs a stage", result.stdout)
        cores = len(processes.usable_cores())
        self.assertEqual(f"3 processes on {cores} core" in result.stdout, cores < 3)
        self.assertIn("| 240, 240, 240, 240, 240, 240, 240 |", result.stdout)

    def test_lists_its_rows(self):
        for option in ("--rows", "--help"):
            result = run("performance_table.py", option)
            self.assertEqual(result.returncode, 0, result.stderr)
            for name, row in rows.ROWS.items():
                self.assertRegex(result.stdout, rf"\n  {name} +[\d.]+ +[\d.]+  {re.escape(row.title)} ")
                self.assertIn(row.needs, result.stdout)

    def test_refuses_wrong_options(self):
        for options, text in ((["--only", "decode,everything"], "no row everything"), (["--threads", "1,none"], "--threads"),
                              (["--threads", "0"], "--threads"), (["--rounds", "0"], "--rounds"),
                              (["--peer", self.path / "none"], "has no program llama-bench"),
                              (["--models", self.path / "none"], "--models"), (["--strata", self.path], "--strata")):
            self.assertIn(text, self.table(*options, code=2).stderr)


class Profile(InFolder):
    def test_counts_samples_by_the_kind_of_work(self):
        self.program("", "strata")
        self.program(f'echo "$*" >> {self.path}/calls; [ "$3" = 1 ] || {{ echo no luck >&2; exit 3; }}\n'
                     'echo "loaded in 0.1 s"; echo "prefill 0.0 decode 160.0 tokens/s; per processor second 1.0 and 2.0"',
                     "stage_bench")
        # 20% of the samples are loading: of the others half are products.
        self.program("""#!/bin/sh
if [ $1 = report ]; then
  printf '40.00%%\\t[.] strata::cpu::run_tile<Q4_1>   \n30.00%%\\t[.] quantise_row\n10.00%%\\t[.] somebody\n'
  printf '15.00%%\\t[k] clear_page_erms\n5.00%%\\t[.] strata::cpu::pack_group\n'
else
  shift 6; exec "$@"
fi
""", "perf")
        (self.path / "smollm2.gguf").touch()
        with unittest.mock.patch.dict(os.environ, PATH=f"{self.path}:{os.environ['PATH']}"):
            result = run("profile_rows.py", "--strata", self.path / "strata", "--models", self.path, "--only", "decode")
        self.assertEqual(result.returncode, 1, result.stderr)
        one, two, missing = result.stdout.split("\n")[2:5]
        self.assertEqual(one, "| decode, SmolLM2 135M Q4_1, 1 thread | 160 | 0% | 38% | 0% | 0% | 50% | 0% | 12% |  |")
        self.assertIn("failed: stage_bench ended with 3: no luck", two)
        self.assertIn("gemma3-270m-q4_k_m.gguf is missing", missing)
        # 64 tokens at 160 tokens/s: ten times for four seconds.
        self.assertIn("--prompt 0 --gen 64 --repeat 10", (self.path / "calls").read_text())

    def test_refuses_wrong_options(self):
        self.program("", "stage_bench")
        for options, text in ((["--only", "hop"], "no row hop"), (["--threads", "0"], "--threads"),
                              (["--strata", self.path / "none" / "strata"], "stage_bench")):
            result = run("profile_rows.py", "--strata", self.path / "strata", *options)
            self.assertEqual(result.returncode, 2)
            self.assertIn(text, result.stderr)


@unittest.skipUnless(MACHINE_BENCH, "no machine_bench was named")
class MachineBench(unittest.TestCase):
    def test_reads_in_the_best_way_with_any_number_of_cores(self):
        result = subprocess.run([MACHINE_BENCH, "--sizes=1", "--cores=1,3", "--benchmark_filter=^read",
                                 "--benchmark_format=json", "--benchmark_min_time=0.01"], capture_output=True, text=True,
                                timeout=100, check=True)
        found = json.loads(result.stdout)["benchmarks"]
        self.assertEqual([figures["name"].split("/")[2] for figures in found], ["cores:1", "cores:3"])
        for figures in found:
            self.assertGreater(figures["GB/s"], 0.1)
            self.assertIn(figures["ahead_KiB"], (0, 1, 2, 4, 6, 8))
            self.assertIn(figures["streams"], (1, 2, 4))

    def arithmetic(self, *options):
        return subprocess.run([MACHINE_BENCH, "--benchmark_filter=^(int8|f32)/", "--benchmark_format=json",
                               "--benchmark_min_time=0.02", "--cores=1", *options], capture_output=True, text=True, timeout=100,
                              check=False)

    def test_arithmetic_is_no_faster_than_clock_and_ports(self):
        result = self.arithmetic()
        self.assertEqual(result.returncode, 0, result.stderr)
        for figures in json.loads(result.stdout)["benchmarks"]:
            with self.subTest(figures["name"]):
                self.assertFalse(figures.get("error_occurred"), figures.get("error_message"))
                self.assertGreater(figures["GOPS"], 1)
                self.assertGreater(figures["GHz"], 0.3)
                self.assertLess(figures["GHz"], 8)

    def test_a_rate_above_clock_and_ports_is_an_error(self):
        result = self.arithmetic("--steps-per-cycle=0.01")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"machine_bench: \d+ GOPS are more than the \d+ that [\d.]+ GHz and 0.01 steps a cycle")
        machine = rows.Machine(MACHINE_BENCH.parent)
        with unittest.mock.patch.object(machine, "measures", lambda *arguments, **options: type(machine).measures(
                machine, *arguments[:3], [*arguments[3], "--steps-per-cycle=0.01"], **options)):
            with self.assertRaisesRegex(RunError, "machine_bench ended with 1: .* GOPS are more than"):
                machine.int8_gops(1)

    def test_chains_are_as_many_in_the_program(self):
        """Equal chains would be one register's. In builds for debugging registers are no chains."""
        if MACHINE_BENCH.parent.parent.name != "release":
            self.skipTest("only an optimised build keeps chains in registers")
        code = subprocess.run(["objdump", "-d", "-C", "--no-show-raw-insn", MACHINE_BENCH], capture_output=True, text=True,
                              timeout=100, check=True).stdout
        chains = {}
        for name, body in re.findall(r"^[0-9a-f]+ <void strata::bench::(run_\w+<.*?>)\(.*>:\n((?:.+\n)+)", code, re.M):
            # What the loop adds to: the last operand of the step's last instruction.
            chains[name.replace("strata::bench::", "")] = len(set(
                re.findall(r"(?:vpdpbusd|vfmadd\d+ps|vpaddd) .*(%[yz]mm\d+)$", body, re.M)))
        self.assertEqual(chains, {"run_avx2<F32Avx2>": 12, "run_avx2<Int8Avx2>": 8, "run_avx2<Int8Avx2Vnni>": 12,
                                  "run_avx512<F32Avx512>": 24, "run_avx512<Int8Avx512>": 12,
                                  "run_avx512<Int8Avx512Vnni>": 24})

    def test_refuses_what_are_no_numbers(self):
        for option in ("--steps-per-cycle=x", "--steps-per-cycle=65", "--cores=0", "--cores=1,", "--cores=257", "--cores=", "--sizes=a"):
            result = subprocess.run([MACHINE_BENCH, option], capture_output=True, text=True, timeout=100, check=False)
            self.assertEqual(result.returncode, 2)
            self.assertIn(f"machine_bench: {option}: ", result.stderr)


if __name__ == "__main__":
    unittest.main()
