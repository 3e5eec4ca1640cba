"""Programs that performance_table.py starts, and what is known about the cores that they run on.

A program runs in a process group of its own. The group ends when the program's turn is over, when its
time is up and when the script is interrupted; should the script be killed, the kernel ends the program.
What goes wrong is a RunError with one sentence; the caller leaves that cell of the table empty.
"""
import contextlib
import ctypes
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

GRACE_S = 2  # what a program has to end in an orderly way, before it is killed
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


class RunError(Exception):
    """One sentence: what failed, and where."""


class Interrupted(KeyboardInterrupt):
    """A signal asked the script to stop. Whoever holds a program ends it on the way out."""

    def __init__(self, number):
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def stop_on_signals():
    """Ctrl-C, SIGTERM and a closed terminal raise Interrupted; what is ignored (nohup) stays ignored."""
    def interrupt(number, _):
        raise Interrupted(number)

    handle_signals(interrupt)


def stop_at_once_on_signals():
    handle_signals(signal.SIG_DFL)


def handle_signals(handler):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


class Child:
    """A running program; ends with the `with` block. After stop(): its exit code and peak resident bytes.

    Of its cores it gets those that are named, or all. Errors: RunError if it does not start."""

    def __init__(self, command, stdout, stderr, env=None, cores=None):
        self.name = pathlib.Path(command[0]).name
        self.exit_code = None
        self.peak_rss_bytes = None
        parent = os.getpid()

        def prepare():  # in the new process
            os.setpgid(0, 0)
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:  # it has died since
                os._exit(1)
            if cores is not None:
                os.sched_setaffinity(0, cores)

        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                                             env=dict(os.environ, **(env or {})), preexec_fn=prepare)
        except OSError as error:
            raise RunError(f"{command[0]} did not start: {error.strerror}") from error
        except subprocess.SubprocessError as error:
            raise RunError(f"{command[0]} did not start: it may not use the cores {sorted(cores or ())}") from error
        self.pid = self._process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def wait(self, timeout_s):
        """Whether it has ended within this time. It stays a zombie until stop(), so that its number is not reused."""
        handle = os.pidfd_open(self.pid)
        try:
            return bool(select.select([handle], [], [], timeout_s)[0])
        finally:
            os.close(handle)

    def stop(self):
        """Ends what still runs of the group and takes the result."""
        if self.exit_code is not None:
            return
        try:
            if not self.wait(0):
                self._signal_group(signal.SIGTERM)
                self.wait(GRACE_S)
        finally:  # a second Ctrl-C comes here at once
            self._signal_group(signal.SIGKILL)
            _, status, usage = os.wait4(self.pid, 0)  # only wait4 tells what memory it had
            self.exit_code = self._process.returncode = os.waitstatus_to_exitcode(status)
            self.peak_rss_bytes = usage.ru_maxrss * 1024

    def _signal_group(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def run(command, timeout_s, env=None, cores=None):
    """(standard output, peak resident bytes) of a program that has to succeed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        with Child(command, out, errors, env, cores) as child:
            in_time = child.wait(timeout_s)
        if not in_time:
            raise RunError(f"{child.name} took longer than {timeout_s:g} s")
        out.seek(0)
        errors.seek(0)
        if child.exit_code != 0:
            last = errors.read().decode(errors="replace").strip().split("\n")[-1]
            raise RunError(f"{child.name} ended with {child.exit_code}: {last[:200]}")
        return out.read().decode(errors="replace"), child.peak_rss_bytes


# --- Cores ---------------------------------------------------------------------------------------


def usable_cores():
    return sorted(os.sched_getaffinity(0))


def two_cores():
    """Two cores of those that this process may use, not the two threads of one core if there are others.
    Errors: RunError with fewer."""
    cores = usable_cores()
    if len(cores) < 2:
        raise RunError("this takes two cores, and there is one")
    first = cores[-1]
    siblings = core_siblings(first)
    return next((core for core in reversed(cores[:-1]) if core not in siblings), cores[-2]), first


def core_siblings(core):
    """All threads of the core, as /sys says ("0-1,8")."""
    with contextlib.suppress(OSError, ValueError):
        text = pathlib.Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text()
        found = set()
        for part in text.strip().split(","):
            begin, _, end = part.partition("-")
            found.update(range(int(begin), int(end or begin) + 1))
        return found
    return {core}


class TakenCore:
    """Another process that computes on this core and never stops, for a `with` block. check() says whether it does."""

    MIN_SHARE = 0.2  # of the core; two that want it get a half each
    START_S = 10

    def __init__(self, core, command=None):
        self.core = core
        self._command = command or [sys.executable, "-c", "while True: pass"]

    def __enter__(self):
        self._child = Child(self._command, subprocess.DEVNULL, subprocess.DEVNULL, cores={self.core})
        try:
            deadline = time.monotonic() + self.START_S
            while self._used_s() < 0.05 and time.monotonic() < deadline and not self._child.wait(0.01):
                pass
            self._begin = time.monotonic(), self._used_s()
        except BaseException:
            self._child.stop()
            raise
        return self

    def __exit__(self, *_):
        self._child.stop()

    def _used_s(self):
        fields = self._stat()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _stat(self):
        """From the third field on."""
        return pathlib.Path(f"/proc/{self._child.pid}/stat").read_text().rsplit(")", 1)[1].split()

    def check(self):
        """The part of the core that it had since it began. Errors: RunError if it is gone, elsewhere or idle."""
        if self._child.wait(0):
            raise RunError(f"the process that was to take core {self.core} has ended")
        core = int(self._stat()[36])
        if core != self.core or os.sched_getaffinity(self._child.pid) != {self.core}:
            raise RunError(f"the process that was to take core {self.core} runs on core {core}")
        begin, used_s = self._begin
        share = (self._used_s() - used_s) / max(time.monotonic() - begin, 1e-9)
        if share < self.MIN_SHARE:
            raise RunError(f"the process that was to take core {self.core} had {share * 100:.0f}% of it")
        return share


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
        return max(busy - own, 0) / max(seconds, 1e-9)


def wait_for_quiet(patience_s):
    """Waits until nobody else computes."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        load = OthersLoad()
        time.sleep(1)
        if load.cores() < 0.1:
            return


def processor_name():
    info = pathlib.Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*:\s*(.*)", info)
    flags = set((re.search(r"flags\s*:\s*(.*)", info) or [None, ""])[1].split())
    sets = [text for flag, text in (("avx2", "AVX2"), ("avx_vnni", "AVX-VNNI"), ("avx512f", "AVX-512"),
                                    ("avx512_vnni", "AVX-512 VNNI"), ("amx_int8", "AMX")) if flag in flags]
    cache = cache_text()
    numbers = " ".join(f"{key} {found[1]}" for key in ("family", "model")
                       if (found := re.search(rf"(?:cpu )?{key}\s*:\s*(\d+)", info)))
    return (f"{name[1] if name else 'unknown processor'} ({numbers}), {len(usable_cores())} cores, "
            f"{', '.join(sets)}{cache}")


def cache_text():
    with contextlib.suppress(OSError, ValueError):
        cache = pathlib.Path("/sys/devices/system/cpu/cpu0/cache")
        last = max(cache.glob("index*"), key=lambda index: int((index / "level").read_text()))
        return f", last-level cache {(last / 'size').read_text().strip()}"
    return ""
