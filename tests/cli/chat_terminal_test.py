#!/usr/bin/env python3
"""Goal: what a person types or pastes into `strata chat` is the question, no more, no less. Method: the program on a
terminal of its own (a pty), keys as a terminal sends them; answers as JSON on a pipe, compared with those of `strata run`.

Usage: chat_terminal_test.py STRATA MODEL
"""
import fcntl
import json
import os
import pathlib
import pty
import select
import shutil
import stat
import subprocess
import sys
import tempfile
import termios
import time
import unittest

STRATA, MODEL = sys.argv[1:3]
PATIENCE_S = 30
PASTE = "\x1b[200~{}\x1b[201~"
LEFT, UP, ENTER, ALT_ENTER, BACKSPACE, END_OF_INPUT = "\x1b[D", "\x1b[A", "\r", "\x1b\r", "\x7f", "\x04"
OPTIONS = ["-m", MODEL, "-n", "4", "--temperature", "0", "--threads", "1", "--json"]


class Chat:
    """A chat on a terminal. Its answers come by answer()."""

    def __init__(self, state, *arguments, term="xterm"):
        self.master, slave = pty.openpty()
        environment = dict(os.environ, XDG_STATE_HOME=str(state), TERM=term)

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.child = subprocess.Popen([STRATA, "chat", *OPTIONS, *arguments], stdin=slave, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, env=environment, preexec_fn=own_terminal)
        os.close(slave)
        self.shown = b""
        self.wait_for(b"> ")

    def wait_for(self, text):
        """Until the terminal shows it."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            self.drain(0.05)
            assert time.monotonic() < deadline, f"not shown: {text}; but: {self.shown[-300:]}"
        self.shown = self.shown.split(text, 1)[1]

    def drain(self, seconds):
        if select.select([self.master], [], [], seconds)[0]:
            try:
                self.shown += os.read(self.master, 65536)
            except OSError:  # its other side is closed
                time.sleep(seconds)

    def keys(self, text):
        data = text.encode()
        while data:
            # A terminal's buffer is small: what it shows is taken meanwhile.
            data = data[os.write(self.master, data[:512]):]
            self.drain(0.01)

    def answer(self):
        """The next answer, or error, as JSON."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self.drain(0)
            ready = select.select([self.child.stdout, self.child.stderr], [], [], 0.05)[0]
            if ready:
                return json.loads(ready[0].readline())
        raise AssertionError("no answer")

    def end(self, keys=END_OF_INPUT):
        deadline = time.monotonic() + PATIENCE_S
        while self.child.poll() is None:
            # Again: a key between two questions, when nobody reads keys, is the terminal's.
            self.keys(keys)
            self.drain(0.2)
            assert time.monotonic() < deadline, "it does not end"
        for stream in (self.child.stdout, self.child.stderr):
            stream.close()
        os.close(self.master)
        return self.child.returncode


def run(question):
    done = subprocess.run([STRATA, "run", *OPTIONS, "-p", question], capture_output=True, timeout=PATIENCE_S, check=False)
    return json.loads(done.stdout or done.stderr)


class ChatOnATerminal(unittest.TestCase):
    def setUp(self):
        self.state = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.state)

    def ask(self, keys, *arguments, **options):
        chat = Chat(self.state, *arguments, **options)
        chat.keys(keys)
        answer = chat.answer()
        self.assertEqual(chat.end(), 0)
        return answer

    def assert_is_question(self, answer, question):
        expected = run(question)
        if "error" in expected:
            self.assertEqual(answer["error"]["message"], expected["error"]["message"])
        else:
            self.assertEqual((answer["prompt_tokens"], answer["tokens"]),
                             (expected["prompt_tokens"], expected["tokens"]))

    def test_four_pasted_lines_are_one_question(self):
        lines = ["Here is my text:", "alpha", "beta", "What comes after alpha?"]
        answer = self.ask(PASTE.format("\r".join(lines)) + ENTER)
        self.assert_is_question(answer, "\n".join(lines))

    def test_a_long_line_is_whole_pasted_or_typed(self):
        for line in ("word " * 60 + "x", "y" * 7539):
            self.assert_is_question(self.ask(PASTE.format(line) + ENTER), line)
            self.assert_is_question(self.ask(line + ENTER), line)
        self.assert_is_question(self.ask("z" * 7539 + ENTER, term="dumb"), "z" * 7539)

    def test_a_paste_holds_no_key_and_no_command(self):
        answer = self.ask(PASTE.format("/quit\rno\x1b[Dt a \x04command\r") + ENTER)
        self.assert_is_question(answer, "/quit\nno[Dt a command")

    def test_cursor_keys_edit_the_question(self):
        answer = self.ask("Hxé漢" + LEFT + BACKSPACE + BACKSPACE + "ello " + ENTER)
        self.assert_is_question(answer, "Hello 漢")

    def test_alt_enter_breaks_a_line(self):
        self.assert_is_question(self.ask("one" + ALT_ENTER + "two" + ENTER), "one\ntwo")

    def test_the_history_lasts_and_is_its_users_own(self):
        self.ask(PASTE.format("first\rquestion") + ENTER)
        self.assert_is_question(self.ask(UP + ENTER), "first\nquestion")
        file = self.state / "strata/chat_history"
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(file.parent.stat().st_mode), 0o700)

    def test_no_history_leaves_no_file(self):
        self.ask("a secret" + ENTER, "--no-history")
        self.assertEqual(list(self.state.rglob("*")), [])

    def test_ctrl_c_at_the_prompt_ends_the_chat(self):
        self.assertEqual(Chat(self.state).end("not asked\x03"), 0)

    def test_the_terminal_is_left_as_it_was(self):
        chat = Chat(self.state)
        before = termios.tcgetattr(chat.master)
        chat.keys("Hi" + ENTER)
        chat.answer()
        chat.wait_for(b"> ")
        master = os.dup(chat.master)
        chat.end()
        after = termios.tcgetattr(master)
        os.close(master)
        self.assertTrue(after[3] & termios.ECHO and after[3] & termios.ICANON)
        self.assertFalse(before[3] & termios.ICANON)


class ChatWithoutATerminal(unittest.TestCase):
    def test_a_closed_standard_input_ends_it(self):
        for closed in ([0], [0, 1], [0, 1, 2]):
            def close(closed=closed):
                for fd in closed:
                    os.close(fd)
            done = subprocess.run([STRATA, "chat", *OPTIONS], timeout=PATIENCE_S, check=False, preexec_fn=close,
                                  stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 0, closed)

    def test_each_line_of_a_pipe_is_a_question_of_any_length(self):
        done = subprocess.run([STRATA, "chat", *OPTIONS], input=("q" * 100000 + "\nHello").encode(), capture_output=True,
                              timeout=PATIENCE_S, check=False)
        error, answer = json.loads(done.stderr), json.loads(done.stdout)
        self.assertEqual(error["error"]["message"], run("q" * 100000)["error"]["message"])
        self.assertEqual(answer["tokens"], run("Hello")["tokens"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
