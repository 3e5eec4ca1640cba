#!/usr/bin/env python3
"""Goal: `strata serve` answers as OpenAI's clients expect, and refuses what makes no sense by naming it. Method: the program
with a tiny model; requests by the standard library, and by hand over a socket.

Usage: http_api_test.py STRATA MODEL
"""
import http.client
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

STRATA, MODEL = sys.argv[1:3]
PATIENCE_S = 60
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 6}


class Server:
    def __init__(self, *arguments):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        file = self.folder / "address"
        self.child = subprocess.Popen([STRATA, "serve", "-m", MODEL, "--threads", "1", "--listen", "127.0.0.1:0",
                                       "--address-file", str(file), *arguments], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_S
        while not file.exists() or self.ask("GET", "/health")[0] != 200:
            assert time.monotonic() < deadline and self.child.poll() is None, "the server does not come up"
            time.sleep(0.02)
            if file.exists():
                self.host, self.port = file.read_text().strip().rsplit(":", 1)

    def ask(self, method, path, body=None, headers=None):
        """Status, headers, text."""
        if not hasattr(self, "port"):
            return 0, {}, ""
        connection = http.client.HTTPConnection(self.host, int(self.port), timeout=PATIENCE_S)
        try:
            data = body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
            connection.request(method, path, data, headers or {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read().decode()
        finally:
            connection.close()

    def post(self, path, body):
        status, _, text = self.ask("POST", path, body)
        return status, json.loads(text)

    def close(self):
        self.child.terminate()
        code = self.child.wait(PATIENCE_S)
        shutil.rmtree(self.folder)
        return code


class HttpApi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--alias", "tiny", "--allow-host", "Models.Example")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.close() == 0

    def test_models_are_listed_and_told_one_by_one(self):
        status, _, text = self.server.ask("GET", "/v1/models")
        self.assertEqual((status, json.loads(text)["data"][0]["id"]), (200, "tiny"))
        self.assertEqual(self.server.ask("GET", "/v1/models/tiny")[0], 200)
        self.assertEqual(self.server.ask("GET", "/v1/models/other")[0], 404)

    def test_a_chat_answers_as_strata_run_does(self):
        status, answer = self.server.post("/v1/chat/completions", CHAT)
        self.assertEqual(status, 200, answer)
        done = subprocess.run([STRATA, "run", "-m", MODEL, "-p", "Hello", "-n", "6", "--temperature", "0", "--json"],
                              capture_output=True, check=True, timeout=PATIENCE_S)
        self.assertEqual(answer["choices"][0]["message"]["content"], json.loads(done.stdout)["text"])
        self.assertEqual(answer["usage"]["prompt_tokens"], json.loads(done.stdout)["prompt_tokens"])

    def test_a_stream_says_the_same_and_ends_with_done(self):
        _, whole = self.server.post("/v1/chat/completions", CHAT)
        status, headers, text = self.server.ask("POST", "/v1/chat/completions", dict(CHAT, stream=True))
        self.assertEqual(status, 200)
        self.assertTrue(headers["content-type"].startswith("text/event-stream"))
        lines = [line[len("data: "):] for line in text.split("\n") if line.startswith("data: ")]
        self.assertEqual(lines[-1], "[DONE]")
        chunks = [json.loads(line) for line in lines[:-1]]
        content = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
        self.assertEqual(content, whole["choices"][0]["message"]["content"])
        reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
        self.assertEqual([reason for reason in reasons if reason], ["length"])

    def test_completions_tell_the_logprobs_of_the_prompt(self):
        status, answer = self.server.post("/v1/completions", {"prompt": "Hello you", "max_tokens": 0, "echo": True,
                                                              "logprobs": 1})
        self.assertEqual(status, 200, answer)
        logprobs = answer["choices"][0]["logprobs"]
        self.assertIsNone(logprobs["token_logprobs"][0])
        self.assertTrue(all(value <= 0 for value in logprobs["token_logprobs"][1:]))
        self.assertEqual("".join(logprobs["tokens"]), "Hello you")

    def test_what_makes_no_sense_is_refused_by_name(self):
        for field, value in [("max_tokens", -1), ("max_tokens", "ten"), ("temperature", -1), ("top_p", 2), ("n", 10**9),
                             ("messages", []), ("messages", [{"role": "x", "content": "a"}]), ("stop", [""]),
                             ("logit_bias", {"-1": 1}), ("chat_template", "x"), ("stream", 3)]:
            status, answer = self.server.post("/v1/chat/completions", dict(CHAT, **{field: value}))
            self.assertEqual(status, 400, (field, value, answer))
            self.assertIn(field.split("[")[0], answer["error"]["message"] + str(answer["error"]["param"]))

    def test_a_prompt_beyond_the_context_says_both_numbers(self):
        for text in ("word " * 700, "word " * 100000):
            status, answer = self.server.post("/v1/chat/completions",
                                              dict(CHAT, messages=[{"role": "user", "content": text}]))
            self.assertEqual((status, answer["error"]["code"]), (400, "context_length_exceeded"), answer)
            self.assertEqual(answer["error"]["n_ctx"], 512)
            self.assertGreater(answer["error"]["n_prompt_tokens"], 512)

    def test_bad_bodies_are_400(self):
        for body in ("", "{", "[" * 100000, '{"a":1e400}', '{"model":1,"model":2}', b"\xff\xfe", "null", "[]"):
            status, _, text = self.server.ask("POST", "/v1/chat/completions", body)
            self.assertEqual(status, 400, (body[:20], text))
            self.assertIn("message", json.loads(text)["error"])

    def test_paths_and_methods_that_are_none(self):
        self.assertEqual(self.server.ask("GET", "/nothing")[0], 404)
        self.assertEqual(self.server.ask("GET", "/v1/chat/completions")[0], 405)

    def test_a_foreign_host_is_refused(self):
        self.assertIn(self.server.ask("GET", "/v1/models", headers={"Host": "evil.example"})[0], (400, 403, 421))

    def test_a_host_that_was_named_is_welcome(self):
        self.assertEqual(self.server.ask("GET", "/v1/models", headers={"Host": "models.example:8080"})[0], 200)

    def test_a_client_that_leaves_does_not_keep_its_slot(self):
        for _ in range(8):
            with socket.create_connection((self.server.host, int(self.server.port))) as connection:
                body = json.dumps(dict(CHAT, max_tokens=400, ignore_eos=True))
                connection.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
                                   f"\r\n\r\n{body}".encode())
        self.assertEqual(self.server.post("/v1/chat/completions", CHAT)[0], 200)

    def test_the_page_and_its_status_are_served(self):
        status, headers, text = self.server.ask("GET", "/")
        self.assertEqual((status, "<html" in text), (200, True))
        self.assertIn("content-security-policy", headers)
        self.assertEqual(self.server.ask("GET", "/cluster")[0], 200)
        self.assertEqual(self.server.ask("GET", "/metrics")[0], 200)


class Keys(unittest.TestCase):
    def test_a_key_is_asked_for(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("anna secret-of-anna\n")
            file.flush()
            server = Server("--api-keys", file.name)
            try:
                for headers, expected in [({}, 401), ({"Authorization": "Bearer secret-of-ann"}, 401),
                                          ({"Authorization": "Bearer secret-of-anna"}, 200),
                                          ({"x-api-key": "secret-of-anna"}, 200)]:
                    self.assertEqual(server.ask("GET", "/v1/models", headers=headers)[0], expected, headers)
            finally:
                self.assertEqual(server.close(), 0)

    def test_beyond_loopback_keys_are_needed(self):
        done = subprocess.run([STRATA, "serve", "-m", MODEL, "--listen", "0.0.0.0:0", "--insecure-network"],
                              capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--api-keys", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
