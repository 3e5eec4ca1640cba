"""The rows of performance_table.py: what each measures, how long that takes and what it needs.

A row yields its lines as (work, function): the function measures and returns the Line. So one that fails
costs no other. Sides take turns; >1x in the column `ratio` is better for us everywhere.
"""
import functools
import pathlib
import sys
import time

import kernel_tables
import random_model
from performance_processes import RunError, TakenCore, two_cores, usable_cores
from performance_programs import Machine, Model, Peer, Strata, figure, median

MIB = 1 << 20


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Found(dict):
    """{side: median, or None without a figure}; `notes` says which sides have fewer rounds than asked for, and why."""

    def __init__(self, medians, notes):
        super().__init__(medians)
        self.notes = notes


class Bench:
    """The programs, the models and the options of one run."""

    def __init__(self, options):
        self.options = options
        self.strata = Strata(options.strata)
        self.peer = Peer(options.peer) if options.peer else None
        self.machine = Machine(pathlib.Path(options.strata).parent)
        self.folder = pathlib.Path(options.models)
        self.models = {}
        self.samples = {}  # everything that was measured: {what: {side: [figure of each round]}}
        self.failures = {}  # {what: {side: why}}

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
            say(f"writing {self.folder / name}")
            random_model.write_model(self.folder / name, self.options.shape, kind)
        return self.model(name)

    def interleave(self, what, sides, rounds=None):
        """Runs each side once a round, in order. A side that fails once is left out of later rounds. Returns Found."""
        rounds = rounds or self.options.rounds
        values = {name: [] for name in sides}
        self.samples[what] = values
        failed = {}
        for _ in range(rounds):
            for name, measure in sides.items():
                if name in failed or (name.startswith("peer") and self.peer is None):
                    continue
                try:
                    values[name].append(measure())
                except RunError as error:
                    failed[name] = str(error)
                    self.failures.setdefault(what, {})[name] = str(error)
                    say(f"{what}, {name}: {error}")
        say(f"{what}: " + "; ".join(f"{name} " + " ".join(f"{v:.4g}" for v in found if v is not None)
                                    for name, found in values.items() if found))
        notes = [f"{name}: {len(values[name])} of {rounds} rounds, then {error}" if values[name] else f"{name}: {error}"
                 for name, error in failed.items()]
        return Found({name: median(found) for name, found in values.items()}, notes)


# --- A line of a table ---------------------------------------------------------------------------


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


def scaled(value, factor):
    return None if value is None else value * factor


class Line:
    """One line: figures as text, and whether the aim is reached (None: it could not be told)."""

    HEADINGS = ("work", "ours", "peer", "ratio", "of the limit", "aim", "reached", "note")

    def __init__(self, ours, aim="", reached=None, peer="", of_peer="", of_limit="", notes=(), failed=False):
        self.work = ""  # the caller's
        self.failed = failed
        self._cells = (ours, peer, of_peer, of_limit, aim, {True: "yes", False: "no", None: ""}[reached],
                       joined("; ", *notes))

    @property
    def cells(self):
        return (self.work, *self._cells)


def of_found(found, ours, aim, reached=None, notes=(), **cells):
    """A Line whose figures come from interleave(): what failed there stands in its note."""
    return Line(ours, aim, reached, notes=[*notes, *found.notes], failed=bool(found.notes), **cells)


def at_least(value, aim):
    return None if value is None else value >= aim


def at_most(value, aim):
    return None if value is None else value <= aim


def any_of(*results):
    """True once one aim of several is reached, False if all are missed; else None: the unknown ones decide."""
    return True if True in results else None if None in results else False


def all_of(*results):
    """False once one is missed, True if all are reached; else None."""
    return False if False in results else None if None in results else True


def thread_text(threads):
    return f"{threads} thread{'s' if threads > 1 else ''}"


def crowd(count, what):
    """A note, if so many threads or processes have fewer cores than that."""
    cores = len(usable_cores())
    return f"{count} {what} on {cores} core{'s' if cores > 1 else ''}" if count > cores else ""


# --- The rows ------------------------------------------------------------------------------------

SMOLLM2 = ("SmolLM2 135M Q4_1", "smollm2.gguf")
GEMMA3 = ("Gemma 3 270M Q4_K_M", "gemma3-270m-q4_k_m.gguf")


def prefill(bench):
    for (title, file), aim in ((SMOLLM2, 8), (GEMMA3, 3)):
        for threads in bench.options.threads:
            yield (f"prefill 512, {title}, {thread_text(threads)}",
                   functools.partial(prefill_line, bench, file, aim, threads))


def prefill_line(bench, file, aim, threads):
    model = bench.model(file)
    found = bench.interleave(f"prefill {file} {threads}", {
        "peer": lambda: bench.peer.bench(model, threads, prompt=512)["tokens_per_s"],
        "ours": lambda: bench.strata.measure("prefill_tokens_per_s", model, threads, prompt=512),
        "limit": lambda: bench.machine.int8_gops(threads)})
    of_peer = ratio(found["ours"], found["peer"])
    of_limit = ratio(scaled(found["ours"], model.prefill_ops / 1e9), found["limit"])
    return of_found(found, number(found["ours"], "tokens/s"), f"{aim}x, 25%",
                    all_of(at_least(of_peer, aim), at_least(of_limit, 0.25)), [crowd(threads, "threads")],
                    peer=number(found["peer"]), of_peer=times(of_peer),
                    of_limit=f"{percent(of_limit)} of {number(found['limit'])} GOPS" if of_limit else "")


def decode(bench):
    for (title, file), aim in ((SMOLLM2, 3), (GEMMA3, 1.6)):
        for threads in bench.options.threads:
            yield f"decode, {title}, {thread_text(threads)}", functools.partial(
                decode_line, bench, functools.partial(bench.model, file), threads, 128, f"{aim}x or 80%",
                lambda of_peer, of_limit, aim=aim: any_of(at_least(of_peer, aim), at_least(of_limit, 0.8)))


def large(bench):
    for kind in ("Q4_K", "Q8_0"):
        for threads in bench.options.threads:
            yield f"decode, random {bench.options.shape.upper()} {kind}, {thread_text(threads)}", functools.partial(
                decode_line, bench, functools.partial(bench.random_model, kind), threads, 24, "90%",
                lambda _, of_limit: at_least(of_limit, 0.9))


def decode_line(bench, open_model, threads, gen, aim, reached):
    model = open_model()
    found = bench.interleave(f"decode {model.path.name} {threads}", {
        "peer": lambda: bench.peer.bench(model, threads, gen=gen)["tokens_per_s"],
        "ours": lambda: bench.strata.measure("decode_tokens_per_s", model, threads, gen=gen),
        "limit": lambda: bench.machine.read_gb_per_s(model.tensor_bytes, threads)})
    gb_per_s = scaled(found["ours"], model.tensor_bytes / 1e9)
    of_peer, of_limit = ratio(found["ours"], found["peer"]), ratio(gb_per_s, found["limit"])
    return of_found(found, number(found["ours"], "tokens/s"), aim, reached(of_peer, of_limit),
                    [f"{number(model.tensor_bytes / 1e6)} MB a token", crowd(threads, "threads")],
                    peer=number(found["peer"]), of_peer=times(of_peer),
                    of_limit=f"{percent(of_limit)} of {number(found['limit'])} GB/s" if of_limit else
                    number(gb_per_s, "GB/s"))


def batch(bench):
    title, file = SMOLLM2
    for sequences, aim in ((8, 6), (32, 8)):
        for threads in bench.options.threads:
            yield (f"{sequences} sequences of 128+64 decoding, {title}, {thread_text(threads)}",
                   functools.partial(batch_line, bench, file, sequences, aim, threads))


def batch_line(bench, file, sequences, aim, threads):
    model = bench.model(file)
    found = bench.interleave(f"batch {sequences} {threads}", {
        "peer": lambda: bench.peer.batched(model, threads, 128, 64, sequences),
        "ours": lambda: bench.strata.measure("decode_tokens_per_s", model, threads, prompt=128, gen=64, batch=sequences)})
    of_peer = ratio(found["ours"], found["peer"])
    return of_found(found, number(found["ours"], "tokens/s"), f"{aim}x", at_least(of_peer, aim),
                    [crowd(threads, "threads")], peer=number(found["peer"]), of_peer=times(of_peer))


def depth(bench):
    title, file = SMOLLM2
    for tokens in (4096, 8192):
        for threads in bench.options.threads:
            yield (f"decode behind {tokens:,} tokens, {title}, {thread_text(threads)}",
                   functools.partial(depth_line, bench, file, tokens, threads))


def depth_line(bench, file, tokens, threads):
    model = bench.model(file)
    found = bench.interleave(f"depth {tokens} {threads}", {
        "ours": lambda: bench.strata.measure("decode_tokens_per_s", model, threads, gen=16, depth=tokens)})
    notes = [crowd(threads, "threads")]
    peer = None
    if bench.peer and tokens > bench.options.peer_depth:
        notes.append(f"peer left out (--peer-depth {bench.options.peer_depth})")
    elif bench.peer:
        # Reading the context takes the peer minutes: one round.
        of_peer = bench.interleave(f"depth {tokens} {threads} of the peer", {
            "peer": lambda: bench.peer.bench(model, threads, gen=8, depth=tokens, warm_up=False,
                                             timeout_s=1800)["tokens_per_s"]}, rounds=1)
        peer = of_peer["peer"]
        notes.append("peer: 1 round" if peer else "")
        found.notes.extend(of_peer.notes)
    of_peer = ratio(found["ours"], peer)
    return of_found(found, number(found["ours"], "tokens/s"), "10x", at_least(of_peer, 10), notes, peer=number(peer),
                    of_peer=times(of_peer))


def kv(bench):
    title, file = SMOLLM2
    threads = bench.options.threads[0]
    for tokens in (512, 4096):
        yield (f"q8_0 KV against f16 behind {tokens:,} tokens, {title}, {thread_text(threads)}",
               functools.partial(kv_line, bench, file, tokens, threads))


def kv_line(bench, file, tokens, threads):
    model = bench.model(file)
    found = bench.interleave(f"kv {tokens}", {
        kv_type: lambda kv_type=kv_type: bench.strata.measure("decode_tokens_per_s", model, threads, gen=32, depth=tokens,
                                                              kv_type=kv_type)
        for kv_type in ("f16", "q8_0")})
    speed = ratio(found["q8_0"], found["f16"])
    size = ratio(bench.strata.kv_bytes(model, tokens, "q8_0"), bench.strata.kv_bytes(model, tokens, "f16"))
    # 34 bytes for 32 numbers are 53% of 64.
    return of_found(found, joined(", ", f"{number(found['q8_0'])} and {number(found['f16'])} tokens/s: {times(speed)}",
                                  f"{percent(size)} of the memory"),
                    "1x, half the memory", all_of(at_least(speed, 1), at_most(size, 0.54)))


def shared(bench):
    title, file = SMOLLM2
    yield (f"decode, 2 threads with a core taken against 1 thread alone, {title}",
           functools.partial(shared_line, bench, file))


def shared_line(bench, file):
    """All sides have the same two cores, however many there are: a thread could move to a third one."""
    model = bench.model(file)
    cores = two_cores()
    shares = []

    def taken(measure):
        with TakenCore(cores[-1]) as core:
            value = measure()
            shares.append(core.check())
            return value

    def ours(threads):
        return bench.strata.measure("decode_tokens_per_s", model, threads, gen=128, cores=cores)

    def peers(threads):
        return bench.peer.bench(model, threads, gen=48, cores=cores)["tokens_per_s"]

    found = bench.interleave("shared core", {
        "peer alone": lambda: peers(1), "ours alone": lambda: ours(1),
        "peer taken": lambda: taken(lambda: peers(2)), "ours taken": lambda: taken(lambda: ours(2))})
    kept = ratio(found["ours taken"], found["ours alone"])
    peer = ratio(found["peer taken"], found["peer alone"])
    return of_found(found, f"{number(found['ours taken'])} and {number(found['ours alone'])} tokens/s: {times(kept)}", "0.9x",
                    at_least(kept, 0.9),
                    [f"on cores {cores[0]} and {cores[1]}; the other process had {percent(min(shares))} of core {cores[1]} "
                     "at least" if shares else ""], peer=times(peer))


def workers(bench):
    title, file = SMOLLM2
    yield (f"a token over 2 workers of one thread against one process, {title}",
           functools.partial(workers_line, bench, file))
    yield f"the coordinator's bytes a token, 2 to 8 workers, {title}", functools.partial(bytes_line, bench, file)


def workers_line(bench, file):
    model = bench.model(file)
    hops = []

    def measure(count):
        found = bench.strata.bench(model, 1, gen=256, workers=count)
        if count and found.get("hop_us") is not None:
            hops.append(found["hop_us"])
        return figure(found, "decode_tokens_per_s", "strata bench")

    found = bench.interleave("workers", {f"{count} workers": functools.partial(measure, count) for count in (0, 2)})
    bench.samples["workers: a hop, us"] = {"ours": hops}
    more_us = None
    if found["0 workers"] and found["2 workers"]:
        more_us = 1e6 / found["2 workers"] - 1e6 / found["0 workers"]
    hop_us = median(hops)
    return of_found(found, f"{number(more_us)} µs more ({number(found['2 workers'])} and {number(found['0 workers'])} "
                    "tokens/s)", "60 µs", at_most(more_us, 60),
                    [f"beside computing {number(hop_us)} µs a stage, the median of tokens" if hop_us else "",
                     crowd(3, "processes")])


def bytes_line(bench, file):
    model = bench.model(file)
    counts = range(2, 9)
    found = bench.interleave("bytes by workers", {
        str(count): lambda count=count: bench.strata.measure("coordinator_bytes_per_token", model, 1, gen=64, workers=count)
        for count in counts}, rounds=1)
    values = [value for value in found.values() if value is not None]
    same = max(values) <= min(values) * 1.05 if len(values) == len(counts) else None
    return of_found(found, ", ".join(number(value) for value in values), "the same", same)


def hop(bench):
    yield "there and back between two processes, 2,304 bytes of activations", functools.partial(hop_line, bench)


def hop_line(bench):
    rounds = []
    found = bench.interleave("hop", {"strata": lambda: rounds.append(bench.machine.hop_us(2304)) or rounds[-1]["strata"]})
    grpc, tcp = (median([figures[name] for figures in rounds]) for name in ("gRPC", "TCP"))
    bench.samples["hop"] = {name: [figures[name] for figures in rounds] for name in ("TCP", "gRPC", "strata")}
    return of_found(found, number(found["strata"], "µs"), "", None, [crowd(2, "processes")],
                    peer=joined(", ", grpc and f"gRPC stream {number(grpc)} µs", tcp and f"TCP {number(tcp)} µs"),
                    of_peer=times(ratio(grpc, found["strata"])))


def load(bench):
    shape = bench.options.shape.upper()
    for title, open_model, aim_s in ((SMOLLM2[0], functools.partial(bench.model, SMOLLM2[1]), 0.3),
                                     (f"random {shape} Q4_K", functools.partial(bench.random_model, "Q4_K"), None),
                                     (f"random {shape} Q8_0", functools.partial(bench.random_model, "Q8_0"), None)):
        for threads in bench.options.threads:
            yield (f"load with a warm file cache, {title}, {thread_text(threads)}",
                   functools.partial(load_line, bench, open_model, aim_s, threads))
    yield "repacking on one core, slowest weight type", functools.partial(repacking_line, bench)


def load_line(bench, open_model, aim_s, threads):
    model = open_model()
    model.warm()
    found = bench.interleave(f"load {model.path.name} {threads}", {
        "ours": lambda: bench.strata.measure("load_s", model, threads)})
    rate = scaled(ratio(model.tensor_bytes / 1e9, found["ours"]), 1 / threads)
    return of_found(found, joined(", ", number(found["ours"], "s"), number(rate, "GB/s a core")),
                    f"{aim_s} s" if aim_s else "1 GB/s a core",
                    at_most(found["ours"], aim_s) if aim_s else at_least(rate, 1), [crowd(threads, "threads")])


def repacking_line(bench):
    rates = bench.machine.pack_gb_per_s()
    slowest = min(rates, key=rates.get)
    bench.samples["repacking"] = {name: [rate] for name, rate in rates.items()}
    return Line(f"{slowest}: {number(rates[slowest])} GB/s", "1 GB/s", at_least(rates[slowest], 1),
                notes=[", ".join(f"{name} {number(rate)}" for name, rate in sorted(rates.items()))])


def memory(bench):
    for title, open_model in ((SMOLLM2[0], functools.partial(bench.model, SMOLLM2[1])),
                              (GEMMA3[0], functools.partial(bench.model, GEMMA3[1])),
                              (f"random {bench.options.shape.upper()} Q4_K", functools.partial(bench.random_model, "Q4_K"))):
        yield f"peak memory, {title}, prompt 512", functools.partial(memory_line, bench, open_model)


def memory_line(bench, open_model):
    model = open_model()
    prompt, gen, threads = 512, 16, bench.options.threads[-1]
    kv_bytes = bench.strata.kv_bytes(model, prompt + gen)
    limit = (model.file_bytes + kv_bytes) * 1.1 + 64 * MIB
    found = bench.interleave(f"memory {model.path.name}", {
        "peer": lambda: bench.peer.bench(model, threads, prompt=prompt)["peak_rss_bytes"],
        "ours": lambda: bench.strata.measure("peak_rss_bytes", model, threads, prompt=prompt, gen=gen)}, rounds=1)
    return of_found(found, number(scaled(found["ours"], 1 / MIB), "MiB"), f"{number(limit / MIB)} MiB",
                    at_most(found["ours"], limit),
                    [f"aim: file {number(model.file_bytes / MIB)}, KV {number(kv_bytes / MIB)}, 10% and 64"],
                    peer=number(scaled(found["peer"], 1 / MIB), "MiB"), of_peer=times(ratio(found["peer"], found["ours"])))


# --- All of them ---------------------------------------------------------------------------------


class Row:
    """What a row is: its title, how to measure it, minutes (3 rounds, 1 and 2 threads, on two cores; without the peer)
    and what it needs beside strata. `lines` yields lines, `table` returns a text."""

    def __init__(self, title, minutes, needs, lines=None, table=None):
        self.title = title
        self.minutes = minutes
        self.needs = needs
        self.lines = lines
        self.table = table


BOTH = "both models"
ROWS = {
    "prefill": Row("Prompts of 512 tokens", (2.5, 1), f"{BOTH}, machine_bench", prefill),
    "decode": Row("Decoding, one sequence", (2, 1.5), f"{BOTH}, machine_bench", decode),
    "large": Row("Decoding, models beyond the last-level cache", (4, 2), "2 GB for random models, machine_bench", large),
    "batch": Row("Decoding, 8 and 32 sequences", (6, 1), "smollm2.gguf", batch),
    "depth": Row("Decoding behind a long context", (10, 3), "smollm2.gguf", depth),
    "kv": Row("The KV cache's types", (1.5, 1.5), "smollm2.gguf", kv),
    "shared": Row("A core that is shared", (0.3, 0.2), "smollm2.gguf, two cores", shared),
    "workers": Row("Workers on one machine", (1.5, 1.5), "smollm2.gguf, 3 cores to say something", workers),
    "hop": Row("A hop", (0.2, 0.2), "hop_bench", hop),
    "load": Row("Loading", (2, 2), "smollm2.gguf, 2 GB for random models, matmul_bench", load),
    "memory": Row("Peak memory", (0.5, 0.3), f"{BOTH}, 1 GB for a random model", memory),
    "products": Row("Matrix products", (0.6, 0.6), "matmul_bench, machine_bench", table=kernel_tables.products),
    "attention": Row("Attention", (0.6, 0.6), "cpu_bench, machine_bench", table=kernel_tables.attention),
}
