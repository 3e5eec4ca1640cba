#!/usr/bin/env python3
"""Measures what docs/performance.md shows, ours and the peer's in turn, and prints its table in Markdown.

Example:
  tests/bench/performance_table.py --strata build/release/bin/strata --models /tmp/models --peer ~/peers/build/bin

The models' folder has smollm2.gguf and gemma3-270m-q4_k_m.gguf; larger ones with random weights are
written there. --peer names the folder with llama-bench and llama-batched-bench; without it the
peer's columns are empty. A whole run takes about half an hour, most of it the peer's.
Each row's rounds are peer, ours, peer, ours ...; figures are medians. Limits (read bandwidth at the
model's size, peak integer rate) are measured between them by machine_bench, which stands beside the
strata program, as matmul_bench, cpu_bench and hop_bench do: build them too, or their figures are left out.
Use an otherwise idle machine: what others computed meanwhile is said with the table.
"""
import argparse
import json
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import kernel_tables  # noqa: E402
import random_model  # noqa: E402
from performance_programs import (Machine, Model, Peer, RunError, Strata, core_taken, median,  # noqa: E402
                                  processor_name)

MIB = 1 << 20
BEGIN, END = "<!-- measured -->", "<!-- end -->"


class Bench:
    """The programs, the models and the options of one run."""

    def __init__(self, options):
        self.options = options
        self.strata = Strata(options.strata)
        self.peer = Peer(options.peer) if options.peer else None
        self.machine = Machine(pathlib.Path(options.strata).parent)
        self.folder = pathlib.Path(options.models)
        self.models = {}
        self.samples = {}  # for --json: everything that was measured

    def model(self, name):
        if name not in self.models:
            path = self.folder / name
            if not path.exists():
                raise RunError(f"{path} is missing")
            self.models[name] = Model(self.strata, path)
        return self.models[name]

    def random_model(self, kind):
        name = f"random-{self.options.shape}-{kind.lower()}.gguf"
        if not (self.folder / name).exists():
            random_model.write_model(self.folder / name, self.options.shape, kind)
        return self.model(name)

    def interleave(self, what, sides, rounds=None):
        """Runs each side once a round, in order. {side: median}; None where it has no figure."""
        values = {name: [] for name in sides}
        failed = {}
        for _ in range(rounds or self.options.rounds):
            for name, measure in sides.items():
                if name in failed or (name.startswith("peer") and self.peer is None):
                    continue
                try:
                    values[name].append(measure())
                except RunError as error:
                    failed[name] = str(error)
                    say(f"{what}, {name}: {error}")
        self.samples[what] = values
        say(f"{what}: " + "; ".join(f"{name} " + " ".join(f"{v:.4g}" for v in found if v is not None)
                                    for name, found in values.items() if found))
        return {name: median(found) for name, found in values.items()}


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


# --- A row of the table --------------------------------------------------------------------------


def number(value, unit=""):
    if value is None:
        return ""
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return f"{text} {unit}" if unit else text


def joined(separator, *texts):
    """What is known, with separators between."""
    return separator.join(text for text in texts if text)


def times(value):
    return "" if value is None else f"{value:.2f}x"


def percent(value):
    return "" if value is None else f"{value * 100:.0f}%"


def ratio(a, b):
    return a / b if a is not None and b else None


class Line:
    """One line: figures as text, and whether the aim is reached (None: it could not be told)."""

    HEADINGS = ("work", "ours", "peer", "ratio", "of the limit", "aim", "reached")

    def __init__(self, work, ours, aim, reached, peer="", of_peer="", of_limit=""):
        self.cells = (work, ours, peer, of_peer, of_limit, aim, {True: "yes", False: "no", None: ""}[reached])


def at_least(value, aim):
    return None if value is None else value >= aim


def at_most(value, aim):
    return None if value is None else value <= aim


def any_of(*results):
    """True once one aim of several is reached; None if none could be told."""
    known = [result for result in results if result is not None]
    return any(known) if known else None


def all_of(*results):
    known = [result for result in results if result is not None]
    return all(known) if known and (len(known) == len(results) or not all(known)) else None


def thread_text(threads):
    return f"{threads} thread{'s' if threads > 1 else ''}"


# --- The rows ------------------------------------------------------------------------------------

SMOLLM2 = ("SmolLM2 135M Q4_1", "smollm2.gguf")
GEMMA3 = ("Gemma 3 270M Q4_K_M", "gemma3-270m-q4_k_m.gguf")


def prefill(bench):
    for (title, file), aim in ((SMOLLM2, 8), (GEMMA3, 3)):
        model = bench.model(file)
        for threads in bench.options.threads:
            found = bench.interleave(f"prefill {file} {threads}", {
                "peer": lambda: bench.peer.bench(model, threads, prompt=512)["tokens_per_s"],
                "ours": lambda: bench.strata.bench(model, threads, prompt=512)["prefill_tokens_per_s"],
                "limit": lambda: bench.machine.int8_gops(threads)})
            gops = found["ours"] * model.prefill_ops / 1e9 if found["ours"] else None
            of_peer, of_limit = ratio(found["ours"], found["peer"]), ratio(gops, found["limit"])
            yield Line(f"prefill 512, {title}, {thread_text(threads)}", number(found["ours"], "tokens/s"),
                       f"{aim}x, 25%", all_of(at_least(of_peer, aim), at_least(of_limit, 0.25)),
                       number(found["peer"]), times(of_peer),
                       f"{percent(of_limit)} of {number(found['limit'])} GOPS" if of_limit else "")


def decode_line(bench, title, model, threads, gen, aim_text, reached):
    found = bench.interleave(f"decode {model.path.name} {threads}", {
        "peer": lambda: bench.peer.bench(model, threads, gen=gen)["tokens_per_s"],
        "ours": lambda: bench.strata.bench(model, threads, gen=gen)["decode_tokens_per_s"],
        "limit": lambda: bench.machine.read_gb_per_s(model.tensor_bytes, threads)})
    gb_per_s = found["ours"] * model.tensor_bytes / 1e9 if found["ours"] else None
    of_peer, of_limit = ratio(found["ours"], found["peer"]), ratio(gb_per_s, found["limit"])
    return Line(f"decode, {title}, {thread_text(threads)}", number(found["ours"], "tokens/s"), aim_text,
                reached(of_peer, of_limit), number(found["peer"]), times(of_peer),
                f"{percent(of_limit)} of {number(found['limit'])} GB/s" if of_limit else number(gb_per_s, "GB/s"))


def decode(bench):
    for (title, file), aim in ((SMOLLM2, 3), (GEMMA3, 1.6)):
        for threads in bench.options.threads:
            yield decode_line(bench, title, bench.model(file), threads, 128, f"{aim}x or 80%",
                              lambda of_peer, of_limit: any_of(at_least(of_peer, aim), at_least(of_limit, 0.8)))


def large(bench):
    for kind in ("Q4_K", "Q8_0"):
        model = bench.random_model(kind)
        title = f"random {bench.options.shape.upper()} {kind}, {number(model.tensor_bytes / 1e6)} MB"
        for threads in bench.options.threads:
            yield decode_line(bench, title, model, threads, 24, "90%", lambda _, of_limit: at_least(of_limit, 0.9))


def batch(bench):
    title, file = SMOLLM2
    model = bench.model(file)
    for sequences, aim in ((8, 6), (32, 8)):
        for threads in bench.options.threads:
            found = bench.interleave(f"batch {sequences} {threads}", {
                "peer": lambda: bench.peer.batched(model, threads, 128, 64, sequences)["tokens_per_s"],
                "ours": lambda: bench.strata.bench(model, threads, prompt=128, gen=64,
                                                   batch=sequences)["decode_tokens_per_s"]})
            of_peer = ratio(found["ours"], found["peer"])
            yield Line(f"{sequences} sequences of 128+64 decoding, {title}, {thread_text(threads)}",
                       number(found["ours"], "tokens/s"), f"{aim}x", at_least(of_peer, aim), number(found["peer"]),
                       times(of_peer))


def depth(bench):
    title, file = SMOLLM2
    model = bench.model(file)
    for tokens in (4096, 8192):
        for threads in bench.options.threads:
            sides = {"ours": lambda: bench.strata.bench(model, threads, gen=16, depth=tokens)["decode_tokens_per_s"]}
            ours = bench.interleave(f"depth {tokens} {threads}", sides)["ours"]
            peer = None
            if tokens <= bench.options.peer_depth:
                # Reading the context takes the peer minutes: one round.
                peer = bench.interleave(f"depth {tokens} {threads} of the peer", {
                    "peer": lambda: bench.peer.bench(model, threads, gen=8, depth=tokens, warm_up=False,
                                                     timeout_s=1800)["tokens_per_s"],
                }, rounds=1)["peer"]
            of_peer = ratio(ours, peer)
            yield Line(f"decode behind {tokens:,} tokens, {title}, {thread_text(threads)}", number(ours, "tokens/s"),
                       "10x", at_least(of_peer, 10), number(peer), times(of_peer))


def kv(bench):
    title, file = SMOLLM2
    model = bench.model(file)
    threads = bench.options.threads[0]
    for tokens in (512, 4096):
        found = bench.interleave(f"kv {tokens}", {
            kv_type: lambda kv_type=kv_type: bench.strata.bench(
                model, threads, gen=32, depth=tokens, kv_type=kv_type)["decode_tokens_per_s"]
            for kv_type in ("f16", "q8_0")})
        speed = ratio(found["q8_0"], found["f16"])
        memory = bench.strata.kv_bytes(model, tokens, "q8_0") / bench.strata.kv_bytes(model, tokens, "f16")
        # 34 bytes for 32 numbers are 53% of 64.
        yield Line(f"q8_0 KV against f16 behind {tokens:,} tokens, {title}, {thread_text(threads)}",
                   f"{number(found['q8_0'])} and {number(found['f16'])} tokens/s: {times(speed)}, {percent(memory)} of the "
                   "memory", "1x, half the memory", all_of(at_least(speed, 1), at_most(memory, 0.54)))


def shared_core(bench):
    title, file = SMOLLM2
    model = bench.model(file)
    core = max(os.sched_getaffinity(0))

    def taken(measure):
        with core_taken(core):
            return measure()

    found = bench.interleave("shared core", {
        "peer alone": lambda: bench.peer.bench(model, 1, gen=48)["tokens_per_s"],
        "ours alone": lambda: bench.strata.bench(model, 1, gen=128)["decode_tokens_per_s"],
        "peer taken": lambda: taken(lambda: bench.peer.bench(model, 2, gen=48)["tokens_per_s"]),
        "ours taken": lambda: taken(lambda: bench.strata.bench(model, 2, gen=128)["decode_tokens_per_s"])})
    ours = ratio(found["ours taken"], found["ours alone"])
    peer = ratio(found["peer taken"], found["peer alone"])
    yield Line(f"decode, 2 threads with a core taken against 1 thread alone, {title}",
               f"{number(found['ours taken'])} and {number(found['ours alone'])} tokens/s: {times(ours)}", "0.9x",
               at_least(ours, 0.9), times(peer))


def workers(bench):
    title, file = SMOLLM2
    model = bench.model(file)
    found = bench.interleave("workers", {
        f"{count} workers": lambda count=count: bench.strata.bench(model, 1, gen=256,
                                                                   workers=count)["decode_tokens_per_s"]
        for count in (0, 2)})
    more_us = None
    if found["0 workers"] and found["2 workers"]:
        more_us = 1e6 / found["2 workers"] - 1e6 / found["0 workers"]
    yield Line(f"a token over 2 workers of one thread against one process, {title}",
               f"{number(more_us)} µs more ({number(found['2 workers'])} and {number(found['0 workers'])} tokens/s)",
               "60 µs", at_most(more_us, 60))
    counts = range(2, 9)
    found = bench.interleave("bytes by workers", {
        str(count): lambda count=count: bench.strata.bench(model, 1, gen=64, workers=count).get(
            "coordinator_bytes_per_token")
        for count in counts}, rounds=1)
    values = [value for value in found.values() if value is not None]
    same = max(values) <= min(values) * 1.05 if len(values) == len(counts) else None
    yield Line(f"the coordinator's bytes a token, 2 to 8 workers, {title}",
               ", ".join(number(value) for value in values), "the same", same)


def hop(bench):
    rounds = [bench.machine.hop_us(2304) for _ in range(bench.options.rounds)]
    if all(rounds):
        bench.samples["hop"] = rounds
        tcp, grpc, ours = (median([found[name] for found in rounds]) for name in ("TCP", "gRPC", "strata"))
        yield Line("there and back between two processes, 2,304 bytes of activations", f"{number(ours)} µs", "", None,
                   f"gRPC stream {number(grpc)} µs, TCP {number(tcp)} µs", times(ratio(ours, grpc)))


def load(bench):
    for title, model, aim_s in ((SMOLLM2[0], bench.model(SMOLLM2[1]), 0.3),
                                (f"random {bench.options.shape.upper()} Q4_K", bench.random_model("Q4_K"), None),
                                (f"random {bench.options.shape.upper()} Q8_0", bench.random_model("Q8_0"), None)):
        model.warm()
        for threads in bench.options.threads:
            seconds = bench.interleave(f"load {model.path.name} {threads}", {
                "ours": lambda: bench.strata.bench(model, threads)["load_s"]})["ours"]
            rate = ratio(model.tensor_bytes / 1e9, seconds)
            rate = rate / threads if rate else None
            reached = at_most(seconds, aim_s) if aim_s else at_least(rate, 1)
            yield Line(f"load with a warm file cache, {title}, {thread_text(threads)}",
                       joined(", ", number(seconds, "s"), number(rate, "GB/s a core")), f"{aim_s} s" if aim_s else "1 GB/s a core",
                       reached)
    rates = bench.machine.pack_gb_per_s()
    if rates:
        slowest = min(rates, key=rates.get)
        yield Line("repacking on one core, slowest weight type", f"{slowest}: {number(rates[slowest])} GB/s",
                   "1 GB/s", at_least(rates[slowest], 1),
                   of_limit=", ".join(f"{name} {number(rate)}" for name, rate in sorted(rates.items())))


def memory(bench):
    for title, model in ((SMOLLM2[0], bench.model(SMOLLM2[1])), (GEMMA3[0], bench.model(GEMMA3[1])),
                         (f"random {bench.options.shape.upper()} Q4_K", bench.random_model("Q4_K"))):
        prompt, gen, threads = 512, 16, bench.options.threads[-1]
        kv_bytes = bench.strata.kv_bytes(model, prompt + gen)
        limit = (model.file_bytes + kv_bytes) * 1.1 + 64 * MIB
        found = bench.interleave(f"memory {model.path.name}", {
            "peer": lambda: bench.peer.bench(model, threads, prompt=prompt)["peak_rss_bytes"],
            "ours": lambda: bench.strata.bench(model, threads, prompt=prompt, gen=gen)["peak_rss_bytes"]}, rounds=1)
        yield Line(f"peak memory, {title}, prompt 512",
                   number(found["ours"] / MIB, "MiB") if found["ours"] else "",
                   f"{number(limit / MIB)} MiB: file {number(model.file_bytes / MIB)}, KV {number(kv_bytes / MIB)}, 10% and 64",
                   at_most(found["ours"], limit), number(found["peer"] / MIB, "MiB") if found["peer"] else "",
                   times(ratio(found["ours"], found["peer"])))


ROWS = {"prefill": prefill, "decode": decode, "large": large, "batch": batch, "depth": depth, "kv": kv,
        "shared": shared_core, "workers": workers, "hop": hop, "load": load, "memory": memory}
TABLES = {"products": kernel_tables.products, "attention": kernel_tables.attention}


# --- The run -------------------------------------------------------------------------------------


class OthersLoad:
    """Cores that others use: all that is busy, or taken by the host, less what our own children used. They spoil the
    figures."""

    def __init__(self):
        self.begin = self.now()

    @staticmethod
    def now():
        fields = [int(x) for x in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
        busy = sum(fields[:3]) + sum(fields[5:8])  # without idle and waiting for a disk
        own = os.times()
        return (time.monotonic(), busy / os.sysconf("SC_CLK_TCK"), own.user + own.system + own.children_user +
                own.children_system)

    def cores(self):
        seconds, busy, own = (end - begin for begin, end in zip(self.begin, self.now()))
        return max(busy - own, 0) / seconds


def wait_for_quiet(patience_s):
    """Waits until nobody else computes."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        load = OthersLoad()
        time.sleep(1)
        if load.cores() < 0.1:
            return


def markdown(lines):
    table = [Line.HEADINGS, ("---",) * len(Line.HEADINGS)] + [line.cells for line in lines]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in table)


def write_page(path, text):
    page = path.read_text(encoding="utf-8")
    begin, end = page.find(BEGIN), page.find(END)
    if begin < 0 or end < begin:
        sys.exit(f"performance_table.py: {path} has no lines {BEGIN} and {END}")
    path.write_text(f"{page[:begin]}{BEGIN}\n\n{text}\n\n{page[end:]}", encoding="utf-8")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strata", default="build/release/bin/strata", metavar="FILE", help="the program to measure")
    parser.add_argument("--models", default="/tmp/models", metavar="FOLDER", help="where the models are")
    parser.add_argument("--peer", metavar="FOLDER", help="where llama-bench is")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of each side of a row (default 3)")
    parser.add_argument("--only", metavar="ROW[,ROW...]", help="of " + ", ".join([*ROWS, *TABLES]))
    parser.add_argument("--threads", default="1,2", metavar="N[,N...]", help="of a process (default 1,2)")
    parser.add_argument("--shape", default="1b", choices=random_model.SHAPES, help="of the random models (default 1b)")
    parser.add_argument("--peer-depth", type=int, default=8192, metavar="N",
                        help="leave out the peer's runs behind more tokens: they take minutes each (default 8192)")
    parser.add_argument("--patience", type=int, default=0, metavar="S",
                        help="seconds to wait, before each row, for other processes to become idle (default 0)")
    parser.add_argument("--write", metavar="FILE",
                        help=f"put the tables into this page, between its lines {BEGIN} and {END}")
    parser.add_argument("--json", metavar="FILE", help="write every single figure there")
    options = parser.parse_args()
    options.threads = [int(n) for n in options.threads.split(",")]
    options.only = options.only.split(",") if options.only else [*ROWS, *TABLES]
    for name in options.only:
        if name not in ROWS and name not in TABLES:
            parser.error(f"--only: no row {name}; there are {', '.join([*ROWS, *TABLES])}")
    if not pathlib.Path(options.strata).exists():
        parser.error(f"--strata: {options.strata} is missing: build it, or name another")
    return options


def main():
    options = parse_arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    bench = Bench(options)
    lines = []
    tables = []
    busy = {}
    try:
        for name in options.only:
            wait_for_quiet(options.patience)
            load = OthersLoad()
            try:
                if name in TABLES:
                    tables.append(TABLES[name](bench.machine))
                for line in ROWS[name](bench) if name in ROWS else ():
                    lines.append(line)
            except RunError as error:
                say(f"{name}: {error}")
            busy[name] = load.cores()
            if busy[name] > 0.1:
                say(f"warning: during {name} others used {busy[name]:.2f} cores: do not trust its figures")
    except KeyboardInterrupt:
        say("interrupted: what was measured follows")
    worst = max(busy, key=busy.get, default=None)
    head = (f"{processor_name()}; {time.strftime('%Y-%m-%d')}, medians of {options.rounds}" +
            (f"; others used at most {busy[worst]:.2f} cores (during {worst})." if worst else "."))
    text = "\n\n".join([head] + ([markdown(lines)] if lines else []) + [table for table in tables if table])
    print(text)
    if options.write:
        write_page(pathlib.Path(options.write), text)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(
            {"processor": processor_name(), "busy_cores": busy, "samples": bench.samples,
             "table": [dict(zip(Line.HEADINGS, line.cells)) for line in lines]}, indent=1))


if __name__ == "__main__":
    main()
