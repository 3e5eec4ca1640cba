#!/usr/bin/env python3
"""Measures what docs/performance.md shows, ours and the peer's in turn, and prints its tables in Markdown.

Example:
  tests/bench/performance_table.py --strata build/release/bin/strata --models /tmp/models --peer ~/peers/build/bin

The models' folder has smollm2.gguf and gemma3-270m-q4_k_m.gguf; larger ones with random weights are
written there. --peer names the folder with llama-bench and llama-batched-bench; without it the
peer's columns are empty. A whole run takes about half an hour, most of it the peer's; --rows lists the rows.
Each row's rounds are peer, ours, peer, ours ...; figures are medians. Limits (read bandwidth at the
model's size, peak integer rate) are measured between them by machine_bench, which stands beside the
strata program, as matmul_bench, cpu_bench and hop_bench do: build them too.
Use an otherwise idle machine: what others computed meanwhile is said with each table.

What fails becomes a line with the reason, and the run goes on. Ctrl-C stops it: what was measured is
printed and stays in the file of --json, the page is left as it was.
Exit codes: 0 done, 1 something failed, 2 used wrongly, 130 interrupted (SIGTERM: 143).
"""
import argparse
import os
import pathlib
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import random_model  # noqa: E402
from performance_processes import (Interrupted, OthersLoad, RunError, processor_name,  # noqa: E402
                                   stop_at_once_on_signals, stop_on_signals, usable_cores, wait_for_quiet)
from performance_programs import Peer  # noqa: E402
from performance_report import BEGIN, END, Json, Page, PageError, markdown, section  # noqa: E402
from performance_rows import ROWS, Bench, Line, say  # noqa: E402


def why(error):
    """One sentence."""
    if isinstance(error, (RunError, random_model.ModelError)):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    traceback.print_exception(error, file=sys.stderr)
    return f"the script failed: {type(error).__name__}: {error}"


class Measured:
    """One row of this run: its lines, or its text, and under which circumstances they came to be."""

    def __init__(self, name, rounds):
        self.row = ROWS[name]
        self.rounds = rounds
        self.lines = []
        self.text = ""
        self.failed = False
        self.complete = False
        self.begin = time.time()
        self.seconds = 0
        self.others_cores = None

    def markdown(self):
        facts = [time.strftime("%Y-%m-%d %H:%M", time.localtime(self.begin))]
        facts += [f"medians of {self.rounds}" if self.rounds > 1 else "one round"] if self.row.lines else []
        facts += [f"others used {self.others_cores:.2f} cores"] if self.others_cores is not None else []
        facts += [] if self.complete else ["interrupted"]
        title = f"**{self.row.title}** ({', '.join(facts)})"
        return "\n\n".join(filter(None, [title, markdown(self.lines, Line.HEADINGS) if self.lines else "", self.text]))

    def to_json(self):
        return {"begin": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(self.begin)), "seconds": round(self.seconds, 1),
                "others_cores": self.others_cores, "complete": self.complete, "failed": self.failed, "text": self.text,
                "lines": [dict(zip(Line.HEADINGS, line.cells)) for line in self.lines]}


class Run:
    """The rows of one run, one after the other."""

    def __init__(self, options):
        self.options = options
        self.bench = Bench(options)
        self.head = f"{processor_name()}."
        self.rows = {}
        self.failed = False

    def measure(self):
        missing = self.bench.machine.missing()
        if missing:
            say(f"beside {self.options.strata} there is no {', '.join(missing)}: what they measure is left out")
        for name in self.options.only:
            wait_for_quiet(self.options.patience)
            self._measure_row(name)

    def _measure_row(self, name):
        measured = self.rows[name] = Measured(name, self.options.rounds)
        load = OthersLoad()
        try:
            if measured.row.table:
                self._measure_table(measured)
            else:
                for work, measure in measured.row.lines(self.bench):
                    measured.lines.append(self._line(work, measure))
                    self.failed |= measured.lines[-1].failed
                    measured.failed |= measured.lines[-1].failed
                    self.write_json()
            measured.complete = True
        finally:
            measured.seconds = time.time() - measured.begin
            measured.others_cores = load.cores()
            self.write_json()
        if measured.others_cores > 0.1:
            say(f"warning: during {name} others used {measured.others_cores:.2f} cores: do not trust its figures")

    def _line(self, work, measure):
        try:
            line = measure()
        except Exception as error:  # whatever it is, the rows that follow have their turn
            reason = why(error)
            say(f"{work}: {reason}")
            line = Line("", notes=[f"failed: {reason}"], failed=True)
        line.work = work
        return line

    def _measure_table(self, measured):
        try:
            measured.text = measured.row.table(self.bench.machine)
        except Exception as error:
            measured.text = f"Not measured: {why(error)}."
            measured.failed = self.failed = True
            say(f"{measured.row.title}: {measured.text}")

    def sections(self):
        return {name: measured.markdown() for name, measured in self.rows.items()
                if measured.lines or measured.text}

    def text(self):
        return "\n\n".join([self.head] + [section(name, text) for name, text in self.sections().items()])

    def write_json(self):
        """A file that can't be written any more is said once and costs no figures."""
        if self.options.json is None:
            return
        options = {name: getattr(self.options, name) for name in ("strata", "peer", "rounds", "only", "threads", "shape")}
        try:
            self.options.json.write({
                "processor": processor_name(), "options": options,
                "rows": {name: measured.to_json() for name, measured in self.rows.items()},
                "samples": self.bench.samples, "failures": self.bench.failures, "read_limits": self.bench.machine.ways})
        except PageError as error:
            self.options.json = None
            self.failed = True
            say(f"--json: {error}")

    def write_page(self):
        is_whole = all(name in self.rows and self.rows[name].complete for name in ROWS)
        try:
            self.options.write.write(self.head, self.sections(), list(ROWS), is_whole)
        except PageError as error:
            self.failed = True
            say(f"--write: {error}; the tables follow on standard output")


# --- Options -------------------------------------------------------------------------------------


def list_rows(names=None):
    """What there is to measure, as a table; the minutes with the peer and without."""
    rows = {name: ROWS[name] for name in names or ROWS}
    width = max(len(row.title) for row in rows.values())
    lines = [f"  {'row':10} {'minutes':>7}  alone  {'what':{width}}  needs, beside strata"]
    lines += [f"  {name:10} {row.minutes[0]:7g}  {row.minutes[1]:5g}  {row.title:{width}}  {row.needs}"
              for name, row in rows.items()]
    total = [sum(row.minutes[i] for row in rows.values()) for i in (0, 1)]
    return "\n".join([*lines, f"  {'':10} {total[0]:7.0f}  {total[1]:5.0f}  all of them, in 3 rounds with 1 and 2 threads on "
                      "two cores; alone: without the peer"])


def numbers(parser, option, text, most):
    """[1, 2] of "1,2"."""
    try:
        found = list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        found = []
    if not found or min(found) < 1 or max(found) > most:
        parser.error(f"{option}: {text} is no list of numbers from 1 to {most}")
    return found


def make_parser():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="rows:\n" + list_rows())
    parser.add_argument("--strata", default="build/release/bin/strata", metavar="FILE", help="the program to measure")
    parser.add_argument("--models", default="/tmp/models", metavar="FOLDER", help="where the models are")
    parser.add_argument("--peer", metavar="FOLDER", help="where llama-bench is")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of each side of a row (default 3)")
    parser.add_argument("--only", metavar="ROW[,ROW...]", help="measure some of the rows; a page keeps the others")
    parser.add_argument("--rows", action="store_true", help="list the rows, how long each takes and what it needs")
    parser.add_argument("--threads", default="1,2", metavar="N[,N...]", help="of a process (default 1,2)")
    parser.add_argument("--shape", default="1b", choices=random_model.SHAPES, help="of the random models (default 1b)")
    parser.add_argument("--peer-depth", type=int, default=8192, metavar="N",
                        help="leave out the peer's runs behind more tokens: they take minutes each (default 8192)")
    parser.add_argument("--patience", type=int, default=0, metavar="S",
                        help="seconds to wait, before each row, for other processes to become idle (default 0)")
    parser.add_argument("--write", metavar="FILE",
                        help=f"put the tables into this page, between its lines {BEGIN} and {END}")
    parser.add_argument("--write-partial", action="store_true",
                        help="put them there when interrupted, too: the rows that are complete")
    parser.add_argument("--json", metavar="FILE", help="write every single figure there, after each line")
    return parser


def parse_arguments():
    """Checks all that half an hour later would be an unpleasant surprise."""
    parser = make_parser()
    options = parser.parse_args()
    options.threads = numbers(parser, "--threads", options.threads, 256)
    if options.rounds < 1:
        parser.error("--rounds: at least one round is needed")
    options.only = list(dict.fromkeys(options.only.split(","))) if options.only else list(ROWS)
    for name in options.only:
        if name not in ROWS:
            parser.error(f"--only: no row {name}; there are {', '.join(ROWS)}")
    if options.rows:
        print(list_rows(options.only))
        sys.exit(0)
    if not os.access(options.strata, os.X_OK) or not pathlib.Path(options.strata).is_file():
        parser.error(f"--strata: there is no program {options.strata}: build it, or name another")
    if not pathlib.Path(options.models).is_dir():
        parser.error(f"--models: there is no folder {options.models}")
    for name in Peer.PROGRAMS if options.peer else ():
        if not os.access(pathlib.Path(options.peer) / name, os.X_OK):
            parser.error(f"--peer: {options.peer} has no program {name}")
    if max(options.threads) > len(usable_cores()):
        say(f"warning: --threads {max(options.threads)} on {len(usable_cores())} cores")
    check_outputs(parser, options)
    return options


def check_outputs(parser, options):
    try:
        option = "--write"
        options.write = Page(options.write) if options.write else None
        if options.write and options.write.has_other_text() and (options.write_partial or len(options.only) < len(ROWS)):
            parser.error(f"--write: the tables in {options.write.path} don't say to which rows they belong, so that some "
                         "of them can't be kept: measure all rows")
        option = "--json"
        options.json = Json(options.json) if options.json else None
    except PageError as error:
        parser.error(f"{option}: {error}")


def main():
    options = parse_arguments()
    stop_on_signals()
    run = Run(options)
    exit_code = 0
    try:
        run.measure()
    except Interrupted as interrupted:
        exit_code = interrupted.exit_code
        say(f"{interrupted}: what was measured follows" +
            ("" if options.write is None or options.write_partial else f"; {options.write.path} is left as it was"))
        if options.write_partial:
            run.rows = {name: measured for name, measured in run.rows.items() if measured.complete}
    stop_at_once_on_signals()  # files are whole at each moment
    if options.write and (not exit_code or (options.write_partial and run.rows)):
        run.write_page()
    print(run.text(), flush=True)
    return exit_code or int(run.failed)


if __name__ == "__main__":
    sys.exit(main())
