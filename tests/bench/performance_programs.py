"""The programs that performance_table.py measures: ours, the peer's, and the machine's limits.

Each call starts one process, waits for it and returns its figures. What goes wrong is a RunError with
one sentence; the caller leaves that cell of the table empty.
"""
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile


class RunError(Exception):
    """One sentence: what failed, and where."""


def run(command, timeout_s, env=None):
    """(standard output, peak resident bytes) of a program that has to succeed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        try:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
                                     env=dict(os.environ, **(env or {})))
        except OSError as error:
            raise RunError(f"{command[0]} did not start: {error.strerror}") from error
        timer = subprocess.Popen(["sleep", str(timeout_s)])
        try:
            # One wait for both, since only wait4 tells what memory the child had.
            while True:
                pid, status, usage = os.wait4(-1, 0)
                if pid == timer.pid:
                    timer.returncode = os.waitstatus_to_exitcode(status)
                    raise RunError(f"{pathlib.Path(command[0]).name} took longer than {timeout_s} s")
                if pid == child.pid:
                    child.returncode = os.waitstatus_to_exitcode(status)
                    break
        finally:
            for process in (child, timer):
                if process.returncode is None:
                    process.kill()
                    process.wait()
        out.seek(0)
        errors.seek(0)
        if child.returncode != 0:
            last = errors.read().decode(errors="replace").strip().split("\n")[-1]
            raise RunError(f"{pathlib.Path(command[0]).name} ended with {child.returncode}: {last[:200]}")
        return out.read().decode(errors="replace"), usage.ru_maxrss * 1024


def json_lines(output):
    found = []
    for line in output.split("\n"):
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                found.append(value)
    return found


class Model:
    """A file, and what its header says."""

    def __init__(self, strata, path):
        self.path = pathlib.Path(path)
        facts = strata.inspect(path)
        self.file_bytes = facts["file_bytes"]
        self.tensor_bytes = facts["tensor_bytes"]  # read for each decoded token, the head tied or not
        tensors = facts["tensors"]
        names = {tensor["name"] for tensor in tensors}
        if "output.weight" in names:  # then of the embeddings one row is read
            self.tensor_bytes -= next(t["bytes"] for t in tensors if t["name"] == "token_embd.weight")
        weights = 0
        for tensor in tensors:
            if tensor["name"].startswith("blk.") and len(tensor["shape"]) >= 2:
                count = 1
                for extent in tensor["shape"]:
                    count *= extent
                weights += count
        self.prefill_ops = 2 * weights  # a multiply and an add of each weight; the head is for the last token

    def warm(self):
        """Reads the file, so that it stands in the system's cache."""
        with open(self.path, "rb") as file:
            while file.read(1 << 24):
                pass


class Strata:
    """`strata` of one build."""

    def __init__(self, program):
        self.program = str(program)

    def inspect(self, path):
        return json_lines(self._run(["inspect", str(path), "--tensors", "--json"], 60)[0].replace("\n", " "))[0]

    def kv_bytes(self, model, context, kv_type="f16"):
        """What a KV cache for one sequence of `context` tokens takes."""
        out, _ = self._run(["plan", "-m", str(model.path), "--ctx", str(context), "--sequences", "1", "--kv-type",
                            kv_type, "--json"], 60)
        return sum(stage["kv_bytes"] for stage in json_lines(out)[0]["stages"])

    def bench(self, model, threads, prompt=1, gen=1, batch=1, depth=0, kv_type="f16", workers=0, timeout_s=600):
        """The JSON object of `strata bench`."""
        command = ["bench", "-m", str(model.path), "--threads", str(threads), "--prompt", str(prompt), "--gen", str(gen),
                   "--batch", str(batch), "--depth", str(depth), "--kv-type", kv_type, "--json"]
        if workers:
            command += ["--workers", str(workers)]
        found = json_lines(self._run(command, timeout_s)[0])
        if not found:
            raise RunError("strata bench printed no JSON object")
        return found[-1]

    def _run(self, arguments, timeout_s):
        return run([self.program] + arguments, timeout_s)


class Peer:
    """llama.cpp's benches, from the folder with its binaries and libraries."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        for name in ("llama-bench", "llama-batched-bench"):
            if not (self.folder / name).exists():
                sys.exit(f"performance_table.py: --peer {folder} has no {name}")

    def bench(self, model, threads, prompt=0, gen=0, depth=0, kv_type="f16", warm_up=True, timeout_s=300):
        """Tokens a second of one test, and the peak resident bytes of the process."""
        command = [str(self.folder / "llama-bench"), "-m", str(model.path), "-p", str(prompt), "-n", str(gen), "-d",
                   str(depth), "-t", str(threads), "-ctk", kv_type, "-ctv", kv_type, "-r", "1", "-o", "jsonl"]
        if not warm_up:
            command.append("--no-warmup")
        out, peak_rss_bytes = run(command, timeout_s, self._environment())
        found = json_lines(out)
        if not found:
            raise RunError("llama-bench printed no JSON object")
        return {"tokens_per_s": found[-1]["avg_ts"], "peak_rss_bytes": peak_rss_bytes}

    def batched(self, model, threads, prompt, gen, batch, timeout_s=600):
        """Tokens a second of `batch` sequences that decode together."""
        command = [str(self.folder / "llama-batched-bench"), "-m", str(model.path), "-c", str((prompt + gen) * batch),
                   "-npp", str(prompt), "-ntg", str(gen), "-npl", str(batch), "-t", str(threads), "--output-format",
                   "jsonl"]
        found = json_lines(run(command, timeout_s, self._environment())[0])
        if not found:
            raise RunError("llama-batched-bench printed no JSON object")
        return {"tokens_per_s": found[-1]["speed_tg"]}

    def _environment(self):
        return {"LD_LIBRARY_PATH": str(self.folder)}


class Machine:
    """Our benchmarks of single parts, beside the program: what the machine, the kernels and a hop reach alone."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def read_gb_per_s(self, size_bytes, threads):
        megabytes = max(round(size_bytes / 1e6), 1)
        found = self.counters("machine_bench", f"^read/MB:{megabytes}/cores:{threads}(/|$)", "GB/s",
                              [f"--sizes={megabytes}"], repetitions=3)
        return max(found.values(), default=None)

    def int8_gops(self, threads):
        found = self.counters("machine_bench", f"^int8/.*/cores:{threads}(/|$)", "GOPS", repetitions=3)
        return max(found.values(), default=None)

    def f32_gops(self, threads):
        found = self.counters("machine_bench", f"^f32/.*/cores:{threads}(/|$)", "GOPS", repetitions=3)
        return max(found.values(), default=None)

    def hop_us(self, size_bytes):
        """{"TCP", "gRPC", "strata"}: the median round trip of a message of this size; empty without hop_bench."""
        if not (self.folder / "hop_bench").exists():
            return {}
        out, _ = run([str(self.folder / "hop_bench")], 300)
        found = re.search(rf"^\s*{size_bytes}\s+\d+\s+([\d.]+) \(\d+\)\s+([\d.]+) \(\d+\)\s+([\d.]+) \(", out, re.M)
        return dict(zip(("TCP", "gRPC", "strata"), map(float, found.groups()))) if found else {}

    def pack_gb_per_s(self):
        """By weight type."""
        found = self.counters("matmul_bench", "^pack/", "GB/s")
        return {name.split("/")[1]: value for name, value in found.items()}

    def names(self, program):
        path = self.folder / program
        return run([str(path), "--benchmark_list_tests"], 60)[0].split("\n") if path.exists() else []

    def counters(self, program, pattern, counter, arguments=(), repetitions=1):
        """{benchmark: its counter}; empty without the program."""
        return {name: found[counter]
                for name, found in self.measures(program, pattern, counter, arguments, repetitions).items()}

    def measures(self, program, pattern, counter, arguments=(), repetitions=1):
        """{benchmark: all its figures}, of the repetition with the most of `counter`; empty without the program."""
        path = self.folder / program
        if not path.exists():
            return {}
        out, _ = run([str(path), f"--benchmark_filter={pattern}", "--benchmark_format=json",
                      "--benchmark_min_time=0.2", f"--benchmark_repetitions={repetitions}", *arguments], 600)
        best = {}
        for found in json.loads(out)["benchmarks"]:
            if counter in found and found["run_type"] == "iteration":
                best[found["name"]] = max(found, best.get(found["name"], found), key=lambda figures: figures[counter])
        return best


@contextlib.contextmanager
def core_taken(core):
    """Another process that computes on this core and never stops."""
    spinner = subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"])
    try:
        yield
    finally:
        spinner.kill()
        spinner.wait()


def processor_name():
    info = pathlib.Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*:\s*(.*)", info)
    flags = set((re.search(r"flags\s*:\s*(.*)", info) or [None, ""])[1].split())
    sets = [text for flag, text in (("avx2", "AVX2"), ("avx_vnni", "AVX-VNNI"), ("avx512f", "AVX-512"),
                                    ("avx512_vnni", "AVX-512 VNNI"), ("amx_int8", "AMX")) if flag in flags]
    cache = cache_text()
    numbers = " ".join(f"{key} {found[1]}" for key in ("family", "model")
                       if (found := re.search(rf"(?:cpu )?{key}\s*:\s*(\d+)", info)))
    return (f"{name[1] if name else 'unknown processor'} ({numbers}), {len(os.sched_getaffinity(0))} cores, "
            f"{', '.join(sets)}{cache}")


def cache_text():
    with contextlib.suppress(OSError):
        cache = pathlib.Path("/sys/devices/system/cpu/cpu0/cache")
        last = max(cache.glob("index*"), key=lambda index: int((index / "level").read_text()))
        return f", last-level cache {(last / 'size').read_text().strip()}"
    return ""


def median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None
