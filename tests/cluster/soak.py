#!/usr/bin/env python3
"""Asks a cluster on loopback again and again while its processes are killed, frozen and ended at random, and
compares each answer with what the undisturbed cluster gave.

Usage: tests/cluster/soak.py --strata build/release/bin/strata --model smollm2.gguf [--seconds 1200] [--seed N]

Three workers, of which two suffice. `steady` is frozen at times but never ended, so that its memory shows what
faults leave behind; the others and the coordinator are killed, ended and frozen. A fault ends when its process
is back or runs on; from there it is measured how long it takes until the cluster says `ready` and answers.

Exit code 1 if an answer differs, a request hangs, a process ends that nobody ended, an error has no sentence,
the cluster is not back in time, or memory grows. Nothing is left running.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

REQUEST_LIMIT_S = 90  # a request that takes longer hangs: its own --wait is 30 s, an answer some seconds
READY_MEDIAN_S = 5
READY_WORST_S = 10
GROWTH_LIMIT_MIB = 20

# Prompt and options: greedy and sampled, short and long, free and constrained.
CASES = [
    ("Hello", ["-n", "8", "--temperature", "0"]),
    ("Name three colours.", ["-n", "24", "--seed", "7"]),
    ("word " * 300, ["-n", "12", "--temperature", "0"]),
    ("word " * 900 + "end", ["-n", "6", "--seed", "3"]),
    ("A number, please.", ["-n", "16", "--regex", "[0-9]{3,8}", "--seed", "11"]),
    ("Count.", ["-n", "60", "--ignore-end", "--temperature", "0"]),
    ("Tell me a story.", ["-n", "120", "--ignore-end", "--seed", "5"]),
    ("Why is the sky blue?", ["-n", "40", "--temperature", "0.8", "--top-k", "40", "--seed", "9"]),
]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Process:
    """One strata process that the soak may kill and start again."""

    def __init__(self, name, command, log):
        self.name, self.command, self.log = name, command, log
        self.child = None
        self.expected_end = False

    def start(self):
        self.expected_end = False
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=log)

    def end(self, how):
        self.expected_end = True
        if self.child.poll() is None:
            self.child.send_signal(how)
            self.child.send_signal(signal.SIGCONT)
        self.child.wait()

    def anonymous_mib(self):
        try:
            with open(f"/proc/{self.child.pid}/status") as status:
                return next(int(line.split()[1]) / 1024 for line in status if line.startswith("RssAnon"))
        except (OSError, StopIteration):
            return 0.0

    def crashed(self):
        return not self.expected_end and self.child.poll() is not None


class Soak:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="strata-soak-"))
        # The commands find the token where they look for it themselves.
        os.environ["STRATA_TOKEN"] = "%048x" % random.getrandbits(192)
        strata, model = options.strata, options.model
        self.address = f"127.0.0.1:{free_port()}"
        common = ["--models", str(pathlib.Path(model).parent), "--threads", "1", "--memory", "2GiB"]
        self.coordinator = Process(
            "coordinator", [strata, "coordinator", "-m", model, "--workers", "2", "--ctx", "2048",
                            "--listen", self.address, "--state", str(self.folder / "state")], self.folder / "coordinator.log")
        self.workers = [
            Process(name, [strata, "worker", "--join", self.address, "--name", name,
                           "--cache", str(self.folder / name), "--speed", "10,50,20"] + common, self.folder / f"{name}.log")
            for name in ("steady", "one", "two")]
        self.expected = []
        self.outcomes = collections.Counter()
        self.errors = collections.Counter()
        self.problems = []
        self.recovery = []
        self.faults = collections.Counter()
        self.memory = []
        self.lock = threading.Lock()
        self.stop = threading.Event()

    def processes(self):
        return [self.coordinator] + self.workers

    def ask(self, case, wait="30"):
        """The answer's tokens, or the error's text; None if it hangs."""
        prompt, arguments = CASES[case]
        command = [self.options.strata, "run", "--coordinator", self.address, "--json", "--wait", wait, "-p", prompt]
        try:
            done = subprocess.run(command + arguments, capture_output=True, timeout=REQUEST_LIMIT_S)
        except subprocess.TimeoutExpired:
            return None, None
        if done.returncode == 0:
            return json.loads(done.stdout)["tokens"], None
        text = done.stderr.decode(errors="replace").strip()
        try:
            return None, json.loads(text)["error"]["message"]
        except (ValueError, KeyError):
            return None, f"not a sentence (exit code {done.returncode}): {text[-300:]}"

    def state(self):
        command = [self.options.strata, "ps", "--coordinator", self.address, "--json"]
        done = subprocess.run(command, capture_output=True)
        try:
            return json.loads(done.stdout)["state"]
        except (ValueError, KeyError):
            return "no answer"

    def client(self, number):
        choose = random.Random(self.options.seed * 1000 + number)
        while not self.stop.is_set():
            case = choose.randrange(len(CASES))
            if choose.random() < 0.1:
                self.leave_early(case, choose.random() * 1.5)
                continue
            tokens, error = self.ask(case)
            with self.lock:
                self.judge(case, tokens, error)

    def judge(self, case, tokens, error):
        if tokens is not None and tokens == self.expected[case]:
            self.outcomes["right"] += 1
        elif tokens is not None:
            self.outcomes["different"] += 1
            self.problems.append(f"case {case}: {tokens} in place of {self.expected[case]}")
        elif error is None:
            self.outcomes["hanging"] += 1
            self.problems.append(f"case {case} was not answered within {REQUEST_LIMIT_S} s")
        else:
            self.outcomes["error"] += 1
            self.errors[error[:110]] += 1
            if error.startswith("not a sentence"):
                self.problems.append(error)

    def leave_early(self, case, seconds):
        prompt, arguments = CASES[case]
        command = [self.options.strata, "run", "--coordinator", self.address, "-p", prompt] + arguments
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(seconds)
        child.kill()
        child.wait()
        with self.lock:
            self.outcomes["left early"] += 1

    def one_fault(self):
        kind = self.random.choice(["kill", "kill", "end", "freeze", "freeze long", "freeze steady", "kill two",
                                   "kill coordinator", "freeze coordinator"])
        self.faults[kind] += 1
        worker = self.random.choice(self.workers[1:])
        pause = self.random.random() * 3
        if kind in ("kill", "end"):
            worker.end(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
            time.sleep(pause)
            worker.start()
        elif kind == "kill two":
            for each in self.workers[1:]:
                each.end(signal.SIGKILL)
            time.sleep(pause)
            for each in self.workers[1:]:
                each.start()
        elif kind == "kill coordinator":
            self.coordinator.end(signal.SIGKILL)
            time.sleep(pause)
            self.coordinator.start()
        else:
            victim = {"freeze steady": self.workers[0], "freeze coordinator": self.coordinator}.get(kind, worker)
            victim.child.send_signal(signal.SIGSTOP)
            time.sleep(6 + pause if kind == "freeze long" else pause)
            victim.child.send_signal(signal.SIGCONT)
        return kind

    def until_ready(self, kind):
        begin = time.monotonic()
        while time.monotonic() - begin < 60:
            if self.state() == "ready" and self.ask(0, "1")[0] == self.expected[0]:
                self.recovery.append((time.monotonic() - begin, kind))
                return
            time.sleep(0.1)
        self.recovery.append((60.0, kind))
        self.problems.append(f"not ready within 60 s of '{kind}': {self.state()}")

    def watch(self, begin):
        while not self.stop.wait(5):
            now = time.monotonic() - begin
            with self.lock:
                self.memory.append((now, self.workers[0].anonymous_mib(), self.coordinator.anonymous_mib()))
                counts = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
            print(f"{now:6.0f} s  {sum(self.faults.values())} faults; {counts}; steady {self.memory[-1][1]:.0f} MiB, "
                  f"coordinator {self.memory[-1][2]:.0f} MiB", file=sys.stderr, flush=True)

    def run(self):
        for process in self.processes():
            process.start()
        deadline = time.monotonic() + 60
        while self.state() != "ready" and time.monotonic() < deadline:
            time.sleep(0.1)
        for case in range(len(CASES)):
            tokens, error = self.ask(case)
            if tokens is None:
                raise SystemExit(f"error: the undisturbed cluster did not answer case {case}: {error}")
            self.expected.append(tokens)
        begin = time.monotonic()
        threads = [threading.Thread(target=self.client, args=(number,)) for number in range(self.options.clients)]
        threads.append(threading.Thread(target=self.watch, args=(begin,)))
        for thread in threads:
            thread.start()
        try:
            while time.monotonic() - begin < self.options.seconds:
                self.until_ready(self.one_fault())
                for process in self.processes():
                    if process.crashed():
                        self.problems.append(f"{process.name} ended by itself with {process.child.returncode}")
                        process.start()
                time.sleep(self.random.random() * 4)
        finally:
            self.stop.set()
            for thread in threads:
                thread.join()

    def check_memory(self):
        """Growth of the worker that lived through it all, from the third minute to the end, by medians."""
        late = [steady for now, steady, _ in self.memory if now > 180]
        if len(late) < 24:
            return None
        growth = statistics.median(late[-12:]) - statistics.median(late[:12])
        if growth > GROWTH_LIMIT_MIB:
            self.problems.append(f"the steady worker grew by {growth:.0f} MiB after the third minute")
        return growth

    def report(self):
        times = sorted(seconds for seconds, _ in self.recovery)
        growth = self.check_memory()
        if times and statistics.median(times) > READY_MEDIAN_S:
            median = statistics.median(times)
            self.problems.append(f"ready after {median:.1f} s at the median, wanted {READY_MEDIAN_S}")
        if times and times[-1] > READY_WORST_S:
            worst = max(self.recovery)
            self.problems.append(f"ready after {worst[0]:.1f} s at worst ('{worst[1]}'), wanted {READY_WORST_S}")
        print(json.dumps({
            "seed": self.options.seed, "seconds": self.options.seconds, "faults": dict(self.faults),
            "requests": dict(self.outcomes), "errors": dict(self.errors.most_common(20)),
            "ready_median_s": round(statistics.median(times), 2) if times else None,
            "ready_worst_s": round(times[-1], 2) if times else None,
            "steady_growth_mib": None if growth is None else round(growth, 1),
            "memory_mib": [[round(value) for value in row] for row in self.memory[::12]],
            "problems": self.problems}, indent=1))

    def close(self):
        for process in reversed(self.processes()):
            if process.child:
                process.end(signal.SIGTERM)
        if self.problems:
            print(f"logs are in {self.folder}", file=sys.stderr)
        else:
            shutil.rmtree(self.folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--strata", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--clients", type=int, default=4)
    soak = Soak(parser.parse_args())
    print(f"seed {soak.options.seed}", file=sys.stderr, flush=True)
    try:
        soak.run()
    finally:
        soak.close()
    soak.report()
    return 1 if soak.problems else 0


if __name__ == "__main__":
    sys.exit(main())
