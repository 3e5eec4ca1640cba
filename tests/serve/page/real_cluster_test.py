"""The page beside a real cluster: it shows the workers, and moves when one is killed and when one comes.

Usage: real_cluster_test.py PAGE.html STRATA MODEL.gguf. `GET /cluster` is answered by `strata ps --json`, which says the same as
a server does. Exit code 77, which ctest shows as skipped, where no Chromium is installed.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(__file__))
import browser as browsers
import mock_server

NAMES = "[...document.querySelectorAll('.card h4')].map((node) => node.innerText)"
EVENTS = "document.querySelector('.events').innerText"


class Cluster:
    def __init__(self, strata, model, folder):
        self.strata, self.model, self.folder = strata, model, folder
        self.environment = dict(os.environ, STRATA_TOKEN="page-test-" + os.urandom(12).hex())
        self.processes = []
        file = os.path.join(folder, "address")
        self.start("coordinator", "-m", model, "--workers", "2", "--listen", "127.0.0.1:0", "--address-file", file, "--state", folder)
        end = time.monotonic() + 60
        while not os.path.exists(file) or not open(file, encoding="utf-8").read().strip():
            if time.monotonic() > end:
                sys.exit("FAILED: the coordinator wrote no address in 60 s")
            time.sleep(0.05)
        with open(file, encoding="utf-8") as written:
            self.address = written.read().strip()

    def start(self, *arguments):
        log = open(os.path.join(self.folder, f"log-{len(self.processes)}"), "w", encoding="utf-8")
        process = subprocess.Popen([self.strata, *arguments], env=self.environment, stdout=log, stderr=log)
        log.close()
        self.processes.append(process)
        return process

    def worker(self, name):
        return self.start("worker", "--join", self.address, "--name", name, "--models", os.path.dirname(self.model), "--speed", "20,400,100")

    def status(self):
        said = subprocess.run([self.strata, "ps", "--coordinator", self.address, "--json"], env=self.environment, capture_output=True,
                              check=True, timeout=30).stdout
        return json.loads(said)

    def end(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def watch(page, cluster):
    """Kills a worker, starts another, and looks at the page all the while."""
    first = cluster.worker("first")
    cluster.worker("second")
    page.wait(NAMES + ".length === 2", 60)
    page.wait("document.querySelector('#cluster header .state').innerText === 'ready'", 60)
    page.wait("document.querySelectorAll('.layers li').length === 2")
    shown = page.run("[...document.querySelectorAll('.card')].map((node) => node.innerText)")
    for name, text in zip(page.run(NAMES), shown):
        node = next(node for node in cluster.status()["nodes"] if node["name"] == name)
        for part in (node["address"], f"process\n{node['process_id']}", "hop\n"):
            assert part in text, f"{name} without {part!r}: {text}"
    first.send_signal(signal.SIGKILL)
    page.wait(f"JSON.stringify({NAMES}) === '[\"second\"]'", 60)
    page.wait(EVENTS + ".includes('first is gone')")
    page.wait("document.querySelector('#cluster header .state').innerText !== 'ready' || document.querySelectorAll('.layers li').length === 1")
    cluster.worker("third")
    page.wait(NAMES + ".includes('third')", 60)
    page.wait(EVENTS + ".includes('third joined')")


def main():
    if not browsers.find_chromium():
        print("skipped: no Chromium (apt-get install chromium)")
        sys.exit(77)
    page_path, strata, model = sys.argv[1:]
    server = mock_server.start(page_path)
    with tempfile.TemporaryDirectory(prefix="strata-page-") as folder:
        cluster = Cluster(strata, model, folder)
        try:
            server.state.cluster = cluster.status
            with browsers.Browser() as browser:
                page = browser.open(server.url + "#cluster")
                watch(page, cluster)
                assert not page.events("Runtime.exceptionThrown"), page.events("Runtime.exceptionThrown")
        finally:
            cluster.end()
            server.end()
    print("the page showed the cluster, a worker's death and another's coming")


if __name__ == "__main__":
    main()
