#!/usr/bin/env python3
"""Goal: `cmake --install` makes a prefix that works, wherever it is. Method: into temporary folders; programs run from there,
units are read as systemd would read them, and their commands run a cluster.

Usage: install_test.py CMAKE BUILD_FOLDER SOURCE_FOLDER
"""
import contextlib
import os
import pathlib
import re
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

CMAKE, BUILD, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
MODEL = SOURCE / "tests/data/models/llama.gguf"
TIMEOUT_S = 60
ROLES = ("coordinator", "worker")


def call(command, **options):
    """What a command prints. Errors: AssertionError with its output if it fails."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=TIMEOUT_S, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def install(prefix, destdir=None):
    environment = {name: value for name, value in os.environ.items() if name != "DESTDIR"}
    call([CMAKE, "--install", BUILD, "--prefix", prefix], env=environment | ({"DESTDIR": str(destdir)} if destdir else {}))


def files_below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


class Unit:
    """A unit's settings as systemd reads them: {section: {key: [values]}}."""

    def __init__(self, path):
        self.path = path
        self.sections = {}
        for line in path.read_text().splitlines():
            if line.startswith("["):
                section = self.sections.setdefault(line.strip("[]"), {})
            elif line and not line.startswith("#"):
                key, value = line.split("=", 1)
                section.setdefault(key, []).append(value)

    def __getitem__(self, key):
        (value,) = self.sections["Service"][key]
        return value

    def command(self):
        """The words of ExecStart, a program first."""
        words = shlex.split(self["ExecStart"])
        return [words[0].replace("%%", "%")] + words[1:]

    def environment(self, folders):
        """Of Environment=; `folders` has what %S and %C stand for."""
        values = {}
        for line in self.sections["Service"]["Environment"]:
            for word in shlex.split(line):
                name, value = word.split("=", 1)
                for specifier, folder in folders.items():
                    value = value.replace(specifier, str(folder))
                values[name] = value
        return values


def environment_file(path):
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def filled(words, values):
    """A word that is $NAME becomes its words, ${NAME} within a word becomes its text."""
    result = []
    for word in words:
        if re.fullmatch(r"\$\w+", word):
            result += values[word[1:]].split()
        else:
            result.append(re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], word))
    return result


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # A blank and a percent sign, which units have to write in another way.
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="strata-install."))
        cls.addClassCleanup(shutil.rmtree, cls.work, ignore_errors=True)
        cls.prefix = cls.work / "a prefix of 100%"
        install(cls.prefix)
        cls.program = cls.prefix / "bin/strata"
        cls.documents = cls.prefix / "share/doc/strata"
        cls.units = {role: Unit(cls.prefix / f"lib/systemd/system/strata-{role}.service") for role in ROLES}
        cls.settings = {role: environment_file(cls.documents / f"examples/{role}.env") for role in ROLES}
        # Nothing of this user's own is read or left behind.
        cls.environment = {"PATH": f"{cls.program.parent}:{os.environ['PATH']}", "HOME": str(cls.work / "home"),
                           "STRATA_TOKEN": secrets.token_hex(16)}
        for name in ("ASAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS"):
            if name in os.environ:
                cls.environment[name] = os.environ[name]

    def test_the_program_says_its_version_and_answers(self):
        (version,) = re.findall(r"project\(strata VERSION ([\d.]+)", (SOURCE / "CMakeLists.txt").read_text())
        self.assertEqual(call([self.program, "--version"], env=self.environment), f"strata {version}\n")
        self.assertIn(f"## [{version}]", (self.documents / "CHANGELOG.md").read_text())
        answer = call([self.program, "run", "-m", MODEL, "-p", "Hello", "-n", "4", "--json"], env=self.environment)
        self.assertIn('"finish_reason":"length"', answer.replace(" ", ""))

    def test_documents_lead_to_documents(self):
        for name in ("LICENSE", "NOTICE", "README.md", "CHANGELOG.md", "docs/operations.md", "docs/request.svg"):
            self.assertTrue((self.documents / name).is_file(), name)
        for page in self.documents.rglob("*.md"):
            for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
                self.assertTrue((page.parent / target).exists(), f"{page.name} names {target}")

    def test_units_name_what_is_there(self):
        for role, unit in self.units.items():
            with self.subTest(role):
                command = unit.command()
                self.assertEqual(command[0], str(self.program))
                self.assertTrue(os.access(command[0], os.X_OK))
                self.assertEqual(command[1], role)
                options = call([self.program, role, "--help"], env=self.environment)
                for option in [word for word in command if word.startswith("-")]:
                    self.assertRegex(options, rf"(?m)^ +(-\w, )?{option}\b|^ +{option}, ")
                (page,) = unit.sections["Unit"]["Documentation"]
                page = page.strip('"').removeprefix("file:").replace("%%", "%").replace("%20", " ").replace("%25", "%")
                self.assertTrue(pathlib.Path(page).is_file(), page)
                # Settings: from the file that the example says it is copied to; nothing else is asked for.
                example = (self.documents / f"examples/{role}.env").read_text()
                self.assertIn(f"copy this file to {unit['EnvironmentFile']}", example)
                name, file = unit["LoadCredential"].split(":")
                self.assertIn(file, example)
                self.assertIn(f"${{CREDENTIALS_DIRECTORY}}/{name}", command)
                known = self.settings[role] | unit.environment({}) | {"CREDENTIALS_DIRECTORY": ""}
                self.assertEqual(set(re.findall(r"\$\{?(\w+)", unit["ExecStart"])) - set(known), set())

    def test_units_ask_for_little(self):
        owned = []
        for role, unit in self.units.items():
            with self.subTest(role):
                for key, value in {"DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "PrivateTmp": "yes",
                                   "CapabilityBoundingSet": "", "SystemCallFilter": "@system-service"}.items():
                    self.assertEqual(unit[key], value, key)
                # What it writes lies in folders that systemd makes for this user.
                folders = {place: unit.sections["Service"].get(key, []) for place, key in
                           (("%S", "StateDirectory"), ("%C", "CacheDirectory"))}
                owned += [f"{place}/{name}" for place, names in folders.items() for name in names]
                for name, value in unit.environment({}).items():
                    if name.startswith("XDG_"):
                        self.assertIn(value, owned, name)
        # Two users cannot own the same one.
        self.assertEqual(len(owned), len(set(owned)))

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not here")
    def test_systemd_finds_no_fault_in_units(self):
        for unit in self.units.values():
            self.assertEqual(call(["systemd-analyze", "verify", "--man=no", unit.path]), "")

    @contextlib.contextmanager
    def service(self, role, settings):
        """A unit's command with its environment, as systemd would run it."""
        unit = self.units[role]
        folders = {"%S": self.work / "state", "%C": self.work / "cache", "%H": "the-host"}
        credentials = self.work / "credentials"
        credentials.mkdir(exist_ok=True)
        (credentials / "token").write_text(self.environment["STRATA_TOKEN"] + "\n")
        own = unit.environment(folders) | self.settings[role] | settings | {"CREDENTIALS_DIRECTORY": str(credentials)}
        environment = {name: value for name, value in self.environment.items() if name not in ("STRATA_TOKEN", "HOME")}
        log = open(self.work / f"{role}.log", "w+")
        process = subprocess.Popen(filled(unit.command(), own), env=environment | own, stdout=log, stderr=log, cwd="/")
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
            finally:
                log.close()

    def logs(self):
        return "\n".join(path.read_text() for path in sorted(self.work.glob("*.log")))

    def test_units_commands_run_a_cluster(self):
        address = f"127.0.0.1:{free_port()}"
        coordinator = {"STRATA_MODEL": str(MODEL), "STRATA_LISTEN": address, "STRATA_OPTIONS": "--workers 1"}
        worker = {"STRATA_JOIN": address, "STRATA_OPTIONS": f"--threads 1 --models {MODEL.parent}"}
        with self.service("coordinator", coordinator), self.service("worker", worker) as process:
            ask = [self.program, "run", "--coordinator", address, "-p", "Hello", "-n", "4"]
            deadline = time.monotonic() + TIMEOUT_S
            while subprocess.run(ask, env=self.environment, capture_output=True, timeout=TIMEOUT_S, check=False).returncode != 0:
                self.assertIsNone(process.poll(), self.logs())
                self.assertLess(time.monotonic(), deadline, self.logs())
                time.sleep(0.1)
            self.assertIn("the-host", call([self.program, "ps", "--coordinator", address], env=self.environment))
        # The coordinator's id is where the unit keeps it, and nothing is anywhere else.
        self.assertTrue(list((self.work / "state/strata-coordinator").rglob("*")))
        self.assertFalse((self.work / "home/.local").exists())

    def test_a_moved_prefix_runs(self):
        moved = self.work / "moved"
        install(self.work / "first")
        (self.work / "first").rename(moved)
        environment = self.environment | {"PATH": f"{moved / 'bin'}:{os.environ['PATH']}"}
        output = call([moved / "share/doc/strata/examples/two-workers.sh", MODEL, "Hello"], env=environment)
        self.assertIn("large", output)
        self.assertIn("small", output)

    def test_the_example_ends_when_the_coordinator_does(self):
        example = self.documents / "examples/two-workers.sh"
        for arguments in (["missing.gguf", "Hello"], []):
            done = subprocess.run([example, *arguments], env=self.environment, capture_output=True, text=True, timeout=TIMEOUT_S,
                                  check=False)
            self.assertEqual(done.returncode, 1 if arguments else 2)
            self.assertIn("missing.gguf" if arguments else "Usage: two-workers.sh", done.stderr)

    def test_destdir_is_a_stage_and_no_part_of_a_path(self):
        stage = self.work / "stage"
        install("/opt/strata", destdir=stage)
        self.assertEqual({path.name for path in stage.iterdir()}, {"opt"})
        self.assertEqual(files_below(stage / "opt/strata"), files_below(self.prefix))
        for role in ROLES:
            unit = stage / f"opt/strata/lib/systemd/system/strata-{role}.service"
            self.assertEqual(Unit(unit).command()[0], "/opt/strata/bin/strata")
            self.assertNotIn(str(self.work), unit.read_text())
            self.assertEqual(unit.stat().st_mode & 0o777, 0o644)

    def test_the_documented_commands_upgrade_and_remove(self):
        prefix = self.work / "upgraded"
        install(prefix)
        (prefix / "bin/strata").write_text("of the last version")
        install(prefix)
        self.assertEqual((prefix / "bin/strata").stat().st_size, self.program.stat().st_size)
        operations = (self.documents / "docs/operations.md").read_text()
        (remove,) = re.findall(r"^sudo (rm -r /usr/local/.*)$", operations, re.M)
        call(["bash", "-c", remove.replace("/usr/local", shlex.quote(str(prefix)))])
        self.assertEqual(files_below(prefix), set())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
