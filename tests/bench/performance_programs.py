"""The programs that performance_table.py measures: ours, the peer's, and the machine's limits.

Each call starts one process, waits for it and returns its figures. What goes wrong, a figure that is
missing in what a program prints as well, is a RunError with one sentence.
"""
import contextlib
import json
import math
import pathlib
import re
import statistics

from performance_processes import RunError, run


def json_lines(output):
    """The objects that stand alone on a line; a program's log may stand between."""
    found = []
    for line in output.split("\n"):
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                found.append(value)
    return found


def last_object(output, program):
    found = json_lines(output)
    if not found:
        raise RunError(f"{program} printed no JSON object")
    return found[-1]


def figure(found, name, program):
    """A number of what a program printed. Errors: RunError if it is missing, null or none."""
    value = found.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise RunError(f"{program} gave no {name}")
    return value


class Model:
    """A file, and what its header says."""

    def __init__(self, strata, path):
        self.path = pathlib.Path(path)
        facts = strata.inspect(path)
        try:
            self.file_bytes = facts["file_bytes"]
            self.tensor_bytes = facts["tensor_bytes"]  # read for each decoded token, the head tied or not
            tensors = {tensor["name"]: tensor for tensor in facts["tensors"]}
            if "output.weight" in tensors:  # then of the embeddings one row is read
                self.tensor_bytes -= tensors["token_embd.weight"]["bytes"]
            weights = sum(math.prod(tensor["shape"]) for name, tensor in tensors.items()
                          if name.startswith("blk.") and len(tensor["shape"]) >= 2)
        except (KeyError, TypeError) as error:
            raise RunError(f"strata inspect {self.path.name} gave no {error.args[0]}") from error
        self.prefill_ops = 2 * weights  # a multiply and an add of each weight; the head is for the last token

    def warm(self):
        """Reads the file, so that it stands in the system's cache."""
        try:
            with open(self.path, "rb") as file:
                while file.read(1 << 24):
                    pass
        except OSError as error:
            raise RunError(f"{self.path}: {error.strerror}") from error


class Strata:
    """`strata` of one build."""

    def __init__(self, program):
        self.program = str(program)

    def inspect(self, path):
        output = self._run(["inspect", str(path), "--tensors", "--json"], 60)
        return last_object(output.replace("\n", " "), "strata inspect")

    def kv_bytes(self, model, context, kv_type="f16"):
        """What a KV cache for one sequence of `context` tokens takes."""
        output = self._run(["plan", "-m", str(model.path), "--ctx", str(context), "--sequences", "1", "--kv-type",
                            kv_type, "--json"], 60)
        stages = last_object(output, "strata plan").get("stages")
        if not stages:
            raise RunError("strata plan gave no stages")
        return sum(figure(stage, "kv_bytes", "strata plan") for stage in stages)

    def bench(self, model, threads, prompt=1, gen=1, batch=1, depth=0, kv_type="f16", workers=0, timeout_s=600, cores=None):
        """The JSON object of `strata bench`."""
        output = self._run(self.bench_arguments(model, threads, prompt, gen, batch, depth, kv_type, workers), timeout_s,
                           cores)
        return last_object(output, "strata bench")

    def measure(self, name, *arguments, **options):
        """One figure of it."""
        return figure(self.bench(*arguments, **options), name, "strata bench")

    @staticmethod
    def bench_arguments(model, threads, prompt=1, gen=1, batch=1, depth=0, kv_type="f16", workers=0):
        arguments = ["bench", "-m", str(model.path), "--threads", str(threads), "--prompt", str(prompt), "--gen", str(gen),
                     "--batch", str(batch), "--depth", str(depth), "--kv-type", kv_type, "--json"]
        return arguments + (["--workers", str(workers)] if workers else [])

    def _run(self, arguments, timeout_s, cores=None):
        return run([self.program] + arguments, timeout_s, cores=cores)[0]


class Peer:
    """llama.cpp's benches, from the folder with its binaries and libraries."""

    PROGRAMS = ("llama-bench", "llama-batched-bench")

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def bench(self, model, threads, prompt=0, gen=0, depth=0, kv_type="f16", warm_up=True, timeout_s=300, cores=None):
        """Tokens a second of one test, and the peak resident bytes of the process."""
        command = [str(self.folder / "llama-bench"), "-m", str(model.path), "-p", str(prompt), "-n", str(gen), "-d",
                   str(depth), "-t", str(threads), "-ctk", kv_type, "-ctv", kv_type, "-r", "1", "-o", "jsonl"]
        if not warm_up:
            command.append("--no-warmup")
        output, peak_rss_bytes = run(command, timeout_s, self._environment(), cores)
        found = last_object(output, "llama-bench")
        return {"tokens_per_s": figure(found, "avg_ts", "llama-bench"), "peak_rss_bytes": peak_rss_bytes}

    def batched(self, model, threads, prompt, gen, batch, timeout_s=600):
        """Tokens a second of `batch` sequences that decode together."""
        command = [str(self.folder / "llama-batched-bench"), "-m", str(model.path), "-c", str((prompt + gen) * batch),
                   "-npp", str(prompt), "-ntg", str(gen), "-npl", str(batch), "-t", str(threads), "--output-format",
                   "jsonl"]
        found = last_object(run(command, timeout_s, self._environment())[0], "llama-batched-bench")
        return figure(found, "speed_tg", "llama-batched-bench")

    def _environment(self):
        return {"LD_LIBRARY_PATH": str(self.folder)}


class Machine:
    """Our benchmarks of single parts, beside the program: what the machine, the kernels and a hop reach alone."""

    PROGRAMS = ("machine_bench", "matmul_bench", "cpu_bench", "hop_bench")

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.ways = []  # how memory was read fastest: {"MB", "cores", "GB/s", "ahead_KiB", "streams"} of each time

    def has(self, program):
        return (self.folder / program).exists()

    def missing(self):
        return [program for program in self.PROGRAMS if not self.has(program)]

    def read_gb_per_s(self, size_bytes, threads):
        megabytes = max(round(size_bytes / 1e6), 1)
        found = self._best("read", f"MB:{megabytes}/cores:{threads}", "GB/s", threads, [f"--sizes={megabytes}"])
        if found is None:
            return None
        self.ways.append({"MB": megabytes, "cores": threads} |
                         {key: found.get(key) for key in ("GB/s", "ahead_KiB", "streams")})
        return found["GB/s"]

    def int8_gops(self, threads):
        found = self._best("int8", f".*/cores:{threads}", "GOPS", threads)
        return found and found["GOPS"]

    def f32_gops(self, threads):
        found = self._best("f32", f".*/cores:{threads}", "GOPS", threads)
        return found and found["GOPS"]

    def hop_us(self, size_bytes):
        """{"TCP", "gRPC", "strata"}: the median round trip of a message of this size."""
        output, _ = run([str(self.folder / "hop_bench")], 300)
        found = re.search(rf"^\s*{size_bytes}\s+\d+\s+([\d.]+) \(\d+\)\s+([\d.]+) \(\d+\)\s+([\d.]+) \(", output, re.M)
        if not found:
            raise RunError(f"hop_bench printed no line for {size_bytes} bytes")
        return dict(zip(("TCP", "gRPC", "strata"), map(float, found.groups())))

    def pack_gb_per_s(self):
        """By weight type."""
        found = self.measures("matmul_bench", "^pack/", "GB/s")
        return {name.split("/")[1]: figures["GB/s"] for name, figures in found.items() if "/" in name}

    def names(self, program):
        return run([str(self.folder / program), "--benchmark_list_tests"], 60)[0].split("\n")

    def measures(self, program, pattern, counter, arguments=(), repetitions=1):
        """{benchmark: all its figures}, of the repetition with the most of `counter`."""
        output, _ = run([str(self.folder / program), f"--benchmark_filter={pattern}", "--benchmark_format=json",
                         "--benchmark_min_time=0.2", f"--benchmark_repetitions={repetitions}", *arguments], 600)
        best = {}
        try:
            for found in json.loads(output)["benchmarks"]:
                if found.get("error_occurred"):
                    raise RunError(f"{program}, {found['name']}: {found.get('error_message')}")
                if counter in found and found["run_type"] == "iteration":
                    best[found["name"]] = max(found, best.get(found["name"], found), key=lambda figures: figures[counter])
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{program} printed no benchmarks as JSON") from error
        if not best:
            raise RunError(f"{program} has no benchmark {pattern} with {counter}")
        return best

    def _best(self, what, case, counter, threads, arguments=()):
        """Of several ways to do the same, the quickest; None without machine_bench."""
        if not self.has("machine_bench"):
            return None
        found = self.measures("machine_bench", f"^{what}/{case}(/|$)", counter, [f"--cores={threads}", *arguments],
                              repetitions=3)
        return max(found.values(), key=lambda figures: figures[counter])


def median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None
