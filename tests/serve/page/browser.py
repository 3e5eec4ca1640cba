"""A headless Chromium over its DevTools protocol, spoken on two pipes: no package but Python's own library.

    with Browser() as browser:
        page = browser.open("http://127.0.0.1:8080/")
        page.run("document.title")
"""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium():
    return next(filter(None, map(shutil.which, CHROMIUMS)), None)


class BrowserError(Exception):
    pass


class Browser:
    def __init__(self, width=1280, height=800):
        self.folder = tempfile.TemporaryDirectory(prefix="strata-browser-", ignore_cleanup_errors=True)
        to_read, self.to_browser = os.pipe()
        self.from_browser, to_write = os.pipe()

        def give_pipes():  # the browser reads from 3 and writes to 4
            low, high = os.dup(to_read), os.dup(to_write)
            os.dup2(low, 3)
            os.dup2(high, 4)
            os.set_inheritable(3, True)
            os.set_inheritable(4, True)

        self.process = subprocess.Popen(
            [find_chromium(), "--headless=new", "--no-sandbox", "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}",
             "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-gpu",
             "--disable-dev-shm-usage", "--hide-scrollbars", f"--window-size={width},{height}", "about:blank"],
            preexec_fn=give_pipes, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.next_id = 0
        self.answers = {}
        self.events = []
        self.arrived = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.to_browser)
        self.folder.cleanup()

    def _read(self):
        rest = b""
        while True:
            try:
                data = os.read(self.from_browser, 1 << 16)
            except OSError:
                data = b""
            if not data:
                break
            *messages, rest = (rest + data).split(b"\0")
            with self.arrived:
                for message in map(json.loads, messages):
                    if "id" in message:
                        self.answers[message["id"]] = message
                    else:
                        self.events.append(message)
                self.arrived.notify_all()
        with self.arrived:
            self.answers = None
            self.arrived.notify_all()

    def call(self, method, session=None, timeout=60, **parameters):
        self.next_id += 1
        number = self.next_id
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        with self.arrived:
            if not self.arrived.wait_for(lambda: self.answers is None or number in self.answers, timeout):
                raise BrowserError(f"{method}: no answer in {timeout} s")
            if self.answers is None:
                raise BrowserError(f"{method}: the browser has ended")
            answer = self.answers.pop(number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, url):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(domain + ".enable")
        page.go(url)
        return page


class Page:
    def __init__(self, browser, session, target):
        self.browser, self.session, self.target = browser, session, target

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def go(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def events(self, method):
        with self.browser.arrived:
            return [event["params"] for event in self.browser.events
                    if event["method"] == method and event.get("sessionId") == self.session]

    def run(self, script):
        """The value of an expression; a promise is waited for."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise BrowserError(f"{script}: {details.get('exception', {}).get('description', details['text'])}")
        return result["result"].get("value")

    def wait(self, script, timeout=30):
        """Until an expression is true; returns its value."""
        end = time.monotonic() + timeout
        while True:
            value = self.run(script)
            if value:
                return value
            if time.monotonic() > end:
                raise BrowserError(f"not true within {timeout} s: {script}")
            time.sleep(0.05)

    def type(self, text):
        self.call("Input.insertText", text=text)

    KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "ArrowUp": (38, ""), "Tab": (9, "")}

    def press(self, key, shift=False, alt=False, code=None):
        number, text = self.KEYS.get(key, (ord(key[0].upper()), key))
        common = {"key": key, "code": code or (key if key in self.KEYS else "Key" + key.upper()), "windowsVirtualKeyCode": number,
                  "modifiers": (1 if alt else 0) | (8 if shift else 0)}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text and not alt else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def size(self, width, height, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def colours(self, scheme):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
