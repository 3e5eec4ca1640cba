#!/usr/bin/env python3
"""Says on what the time of a row of performance_table.py goes: perf samples stage_bench, which does the row's
work without a coordinator, and each sample counts for the kind of work that its function does.

Example:
  tests/bench/profile_rows.py --only prefill,decode --threads 1,2

Needs perf and, beside the strata program, stage_bench; both models, and for `large` the random ones that
performance_table.py writes. A case takes some ten seconds. Loading the model is left out of the parts, and with
it what the kernel does.
What fails becomes a line with the reason. Exit codes: as performance_table.py's.
"""
import argparse
import os
import pathlib
import re
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from performance_processes import Interrupted, RunError, run, stop_on_signals  # noqa: E402
from performance_report import markdown  # noqa: E402
from performance_rows import GEMMA3, SMOLLM2, number, percent, thread_text  # noqa: E402

SECONDS = 4  # a case is repeated until it has run for about so long
FREQUENCY = 997  # a prime: no period of the program's falls in with it

# What a function does, by its name; the first that fits counts.
LOADING = "loading"
KINDS = (
    (LOADING, r"pack_group|pack_rows|^\[k\]|GgufFile|Tokenizer|Vocab|_dl_|do_lookup"),
    ("waiting for threads", r"ThreadPool::(wait|work_on_job|run_job)|clock_gettime|futex|sched_yield"),
    ("rounding activations", r"quantise"),
    ("attention", r"score_|value_tile|segment_into|add_spans|add_tile_values|kv_head|[Aa]ttention|source_of"),
    ("writing KV", r"write_k|write_v|KvWrite"),
    ("products", r"matmul|MulMat|run_tile|run_groups|packed_group"),
    ("norms, rotation, activation", r"norm|Norm|rope|Rope|silu|gelu|elementwise|Elementwise|add_rows|unpack_row|GetRows"),
)
OTHER = "other"
SHOWN = [kind for kind, _ in KINDS if kind != LOADING] + [OTHER]


def kind_of(symbol):
    return next((kind for kind, pattern in KINDS if re.search(pattern, symbol)), OTHER)


def parts_of(report):
    """{kind: part of all samples that are no loading} of perf's lines "12.3%\\t[.] function"."""
    sums = dict.fromkeys([LOADING, *SHOWN], 0.0)
    for line in report.split("\n"):
        found = re.match(r"\s*([\d.]+)%?\s*\t\s*(\[.\].*)", line)
        if found:
            sums[kind_of(re.sub(r"^\[\.\] *", "", found[2]))] += float(found[1])
    whole = sum(sums[kind] for kind in SHOWN)
    if whole <= 0:
        raise RunError("perf took no samples")
    return {kind: sums[kind] / whole for kind in SHOWN}


def cases(shape):
    """{row: [(work, model's file, what stage_bench is to do, which of its figures counts)]}."""
    random = [(kind, f"random-{shape}-{kind.lower()}.gguf") for kind in ("Q4_K", "Q8_0")]
    title, file = SMOLLM2
    decoding = {"prompt": 0, "gen": 64}
    return {
        "prefill": [(f"prefill 512, {title}", file, {"prompt": 512, "gen": 0}, "prefill")
                    for title, file in (SMOLLM2, GEMMA3)],
        "decode": [(f"decode, {title}", file, decoding, "decode") for title, file in (SMOLLM2, GEMMA3)],
        "large": [(f"decode, random {shape.upper()} {kind}", file, decoding | {"gen": 24}, "decode") for kind, file in random],
        "batch": [(f"{count} sequences, {title}", file, decoding | {"batch": count, "depth": 128}, "decode")
                  for count in (8, 32)],
        "depth": [(f"decode behind {depth:,} tokens, {title}", file, decoding | {"gen": 16, "depth": depth}, "decode")
                  for depth in (4096, 8192)],
        "kv": [(f"decode behind 4,096 tokens, {kv} KV, {title}", file, decoding | {"gen": 16, "depth": 4096, "kv": kv},
                "decode") for kv in ("f16", "q8_0")],
    }


class Line:
    HEADINGS = ("work", "tokens/s", *SHOWN, "note")

    def __init__(self, work, tokens_per_s=None, parts=None, note=""):
        self.cells = (work, number(tokens_per_s), *(percent(parts[kind]) if parts else "" for kind in SHOWN), note)


def profile(stage_bench, model, threads, load, what, folder):
    """(tokens a second, parts) of one case. Errors: RunError."""
    if not model.exists():
        raise RunError(f"{model} is missing")
    arguments = [str(model), "--threads", str(threads)]
    for name, value in load.items():
        arguments += [f"--{name}", str(value)]
    once = speed_of(run([stage_bench, *arguments], 300)[0], what)
    tokens = load["prompt"] or load["gen"] * load.get("batch", 1)
    repeat = max(round(SECONDS * once / tokens), 1)
    data = str(folder / "perf.data")
    out, _ = run(["perf", "record", "-q", "-F", str(FREQUENCY), "-o", data, stage_bench, *arguments, "--repeat", str(repeat)], 300)
    report, _ = run(["perf", "report", "-q", "--stdio", "-i", data, "--sort", "symbol", "-F", "overhead,symbol", "-t", "\t"], 60)
    return speed_of(out, what), parts_of(report)


def speed_of(output, what):
    found = [float(text) for text in re.findall(rf"^prefill .*?{'' if what == 'prefill' else 'decode '}([\d.]+)", output, re.M)]
    if not found or max(found) <= 0:
        raise RunError("stage_bench printed no tokens a second")
    return sorted(found)[len(found) // 2]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = list(cases("1b"))
    parser.add_argument("--strata", default="build/release/bin/strata", metavar="FILE", help="stage_bench stands beside it")
    parser.add_argument("--models", default="/tmp/models", metavar="FOLDER", help="where the models are")
    parser.add_argument("--only", metavar="ROW[,ROW...]", help="of " + ", ".join(names))
    parser.add_argument("--threads", default="1,2", metavar="N[,N...]", help="of a process (default 1,2)")
    parser.add_argument("--shape", default="1b", metavar="SHAPE", help="of the random models (default 1b)")
    options = parser.parse_args()
    options.only = options.only.split(",") if options.only else names
    for name in options.only:
        if name not in names:
            parser.error(f"--only: no row {name}; there are {', '.join(names)}")
    if not re.fullmatch(r"[1-9]\d{0,2}(,[1-9]\d{0,2})*", options.threads):
        parser.error(f"--threads: {options.threads} is no list of numbers from 1 to 999")
    options.threads = [int(text) for text in options.threads.split(",")]
    options.stage_bench = str(pathlib.Path(options.strata).parent / "stage_bench")
    if not os.access(options.stage_bench, os.X_OK):
        parser.error(f"--strata: there is no program {options.stage_bench}: build it")
    if shutil.which("perf") is None:
        parser.error("there is no perf: install it (Debian: linux-perf)")
    return options


def main():
    options = parse_arguments()
    stop_on_signals()
    lines = []
    exit_code = 0
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name in options.only:
                for work, file, load, what in cases(options.shape)[name]:
                    for threads in options.threads:
                        work_text = f"{work}, {thread_text(threads)}"
                        try:
                            found = profile(options.stage_bench, pathlib.Path(options.models) / file, threads, load, what,
                                            pathlib.Path(folder))
                            lines.append(Line(work_text, *found))
                        except RunError as error:
                            lines.append(Line(work_text, note=f"failed: {error}"))
                            exit_code = 1
    except Interrupted as interrupted:
        exit_code = interrupted.exit_code
    print(markdown(lines, Line.HEADINGS))
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
