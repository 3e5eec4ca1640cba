"""A server that speaks as `strata serve` does, with answers by the book: what a model would say only by chance.

Usage: mock_server.py PAGE.html [PORT]. PAGE.html is what the build joins. An answer is chosen by the question's first
word: see ANSWERS. `state` lets a test change the cluster and count requests.
"""
import base64
import copy
import hashlib
import http.server
import json
import pathlib
import re
import socket
import sys
import threading
import time

HOSTILE = """<script>window.broken = 1</script>
<img src=x onerror="window.broken = 2">

[click](javascript:window.broken=3) ![picture](https://example.com/p.png) <a href="https://example.com">a</a>

- <iframe src="https://example.com/frame"></iframe>
- `<b>` and **<i>bold</i>**

| <u>a</u> | b |
| --- | --- |
| <style>body{display:none}</style> | <svg onload="window.broken=4"> |

```html
<script src="https://example.com/x.js"></script>
```

&lt;b&gt; [data](data:text/html,<script>window.broken=5</script>) [good](https://example.com/good)
"""

LONG = """## Cutting a model into stages

A planner gives each machine a *contiguous* range of layers, so that an activation crosses the network **once per stage**. The cost of a split is its slowest stage plus the hops between them:

$t = \\max_i t_i + \\sum h_i$

1. Measure what a machine can read per second.
2. Count the bytes of each layer, with its cache.
   - weights, repacked as the device wants them
   - keys and values for every position
3. Choose the split with the lowest `max(t)`.

| node | layers | memory | ms per step |
| :--- | ---: | ---: | ---: |
| attic | 0–9 | 3.1 GiB | 11.2 |
| cellar | 10–19 | 3.0 GiB | 11.9 |
| kitchen-pi | 20–23 | 0.9 GiB | 12.4 |

```python
def best_split(layers: list[Layer], nodes: list[Node]) -> list[range]:
    \"\"\"Dynamic programming over (layers placed, nodes used).\"\"\"
    best = {(0, 0): (0.0, [])}  # cost of the slowest stage so far
    for used, node in enumerate(nodes, start=1):
        for end in range(len(layers) + 1):
            candidates = []
            for begin in range(end + 1):
                if (begin, used - 1) not in best or not node.fits(layers[begin:end]):
                    continue
                cost, ranges = best[begin, used - 1]
                candidates.append((max(cost, node.time(layers[begin:end])), ranges + [range(begin, end)]))
            if candidates:
                best[end, used] = min(candidates, key=lambda candidate: candidate[0])
    return best[len(layers), len(nodes)][1]
```

> It is exact, and for eight nodes and a hundred layers it takes less than a millisecond.

See [the documentation](https://example.com/strata/docs) or https://example.com/plan for more. ~~Guesses~~ measurements decide.
"""

THOUGHTS = "The person asks for a split. Eight gigabytes on one side, four on the other; the layers are equal.\n\nSo two thirds to one third, minus the head."

TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]


def node(name, index, begin, end, layers, used, limit, **more):
    stage = None if index is None else {
        "index": index, "layer_begin": begin, "layer_end": end, "has_embedding": begin == 0, "has_head": end == layers,
        "weights_bytes": int(used * 0.8), "kv_bytes": int(used * 0.15), "compute_bytes": int(used * 0.04), "received_bytes": 0}
    return {"name": name, "address": f"192.168.1.{20 + len(name)}:50052", "state": "ready" if stage else "spare",
            "devices": [{"name": "cpu", "description": "CPU, 8 cores, AVX2", "total_bytes": limit, "free_bytes": limit - used,
                         "read_bytes_per_s": 4.1e10, "int8_ops_per_s": 9e11, "f32_ops_per_s": 3e11}],
            "memory_limit_bytes": limit, "used_bytes": used, "steps_done": 4211, "step_us": 11_200.0 if stage else None, "forecast_us": 9_800.0 if stage else None, "process_id": 4000 + len(name),
            "last_heartbeat_ms": 210, "stage": stage, **more}


GIB = 1 << 30
FIVE_NODES = [
    node("attic", 0, 0, 9, 28, int(3.1 * GIB), 8 * GIB, hop_us=410),
    node("cellar", 1, 9, 16, 28, int(2.4 * GIB), 4 * GIB, hop_us=380),
    node("lab-server-with-a-long-name", 2, 16, 25, 28, int(3.2 * GIB), 16 * GIB, hop_us=1250),
    node("pi", 3, 25, 28, 28, int(1.1 * GIB), 2 * GIB),
    node("old-laptop", None, 0, 0, 28, 0, 4 * GIB),
]


class State:
    """What the server says and what it was asked; a test may change and read it."""

    def __init__(self):
        self.cluster = {"state": "ready", "detail": "", "epoch": 3, "model": "qwen3-1.7b-q4_k_m", "model_digest": "sha256:0",
                        "cluster_id": "c1", "live_sequences": 1, "waiting_sequences": 0, "predicted_tokens_per_s": 41.5,
                        "measured_tokens_per_s": 38.2, "nodes": copy.deepcopy(FIVE_NODES)}
        self.requests = []      # bodies of chats
        self.cancelled = 0      # streams whose reader went away
        self.key = ""           # asked for, if set
        self.delay_s = 0.012    # between two chunks
        self.failures = {}      # first word -> how often it has failed


def page_and_policy(path):
    """The page's bytes and the policy that the real server sends with them."""
    body = pathlib.Path(path).read_bytes()

    def hashes(tag):
        return " ".join("'sha256-" + base64.b64encode(hashlib.sha256(text).digest()).decode() + "'"
                        for text in re.findall(rb"<%s>(.*?)</%s>" % (tag, tag), body, re.S))

    return body, (f"default-src 'none'; script-src {hashes(b'script')}; style-src {hashes(b'style')}; connect-src 'self'; img-src data:; "
                  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'")


def chunks_of(text, size=5):
    return [text[at:at + size] for at in range(0, len(text), size)]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state = None
    page = b""
    policy = ""

    def log_message(self, *_):
        pass

    def reply(self, status, body, kind="application/json", headers=()):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status, message, code=None, headers=(), **more):
        self.reply(status, {"error": {"message": message, "type": "error", "code": code or status, "param": None, **more}}, headers=headers)

    def is_known(self):
        if not self.state.key or self.headers.get("Authorization") == "Bearer " + self.state.key:
            return True
        self.refuse(401, "the API key is missing or wrong", "invalid_api_key")
        return False

    def do_GET(self):
        if self.path == "/":
            self.reply(200, self.page, "text/html; charset=utf-8", [("Content-Security-Policy", self.policy)])
        elif self.path == "/v1/models" and self.is_known():
            self.reply(200, {"object": "list", "data": [{"id": "qwen3-1.7b-q4_k_m", "object": "model", "created": 0,
                                                         "owned_by": "strata", "meta": {"n_ctx": 8192}}]})
        elif self.path == "/cluster" and self.is_known():
            self.reply(200, self.state.cluster() if callable(self.state.cluster) else self.state.cluster)
        elif self.path not in ("/v1/models", "/cluster"):
            self.refuse(404, f"{self.path} is not known")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.is_known():
            return
        self.state.requests.append(body)
        messages = body["messages"]
        word = messages[-1]["content"].split()[0].lower().strip("?.!,:") if messages[-1]["role"] == "user" else "result"
        if word == "busy" and not self.state.failures.setdefault(word, 0):
            self.state.failures[word] += 1
            self.refuse(503, "stage 1 was on cellar, which is lost; no other node has room for its 7 layers", headers=[("Retry-After", "3")])
        elif word == "toolong":
            self.refuse(400, "the prompt has 9,120 tokens, the context is 8,192", "context_length_exceeded", n_prompt_tokens=9120, n_ctx=8192)
        else:
            self.stream(word, body)

    def stream(self, word, body):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        started = time.monotonic()
        count = 0
        try:
            for delta in self.deltas(word, body):
                self.event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
                count += 1
                time.sleep(self.state.delay_s)
            if word == "cut":
                return
            if word == "fails":
                self.event({"error": {"message": "cellar was lost and nothing took over its layers", "type": "server_error", "code": 500}})
                return
            finish = "tool_calls" if word == "weather" else "length" if word == "short" else "stop"
            self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
            ms = (time.monotonic() - started) * 1000
            self.event({"choices": [], "usage": {"prompt_tokens": 812, "completion_tokens": count, "total_tokens": 812 + count,
                                                 "prompt_tokens_details": {"cached_tokens": 640}},
                        "timings": {"predicted_n": count, "predicted_ms": ms, "predicted_per_second": count / max(ms, 1) * 1000}})
            self.wfile.write(b"data: [DONE]\n\n")
        except (BrokenPipeError, ConnectionResetError):
            self.state.cancelled += 1

    def deltas(self, word, body):
        """What is streamed for the question's first word."""
        yield {"role": "assistant", "content": ""}
        if word == "wait":
            time.sleep(3)
        if word == "weather":
            yield {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": ""}}]}
            for part in chunks_of('{"city": "Paris", "days": 3}'):
                yield {"tool_calls": [{"index": 0, "function": {"arguments": part}}]}
            return
        if word in ("plan", "think"):
            for part in chunks_of(THOUGHTS):
                yield {"reasoning_content": part}
        text = {"html": HOSTILE, "plan": LONG, "think": "Two thirds to one third.", "cut": "This answer breaks off in the mid",
                "fails": "This one begins well, but", "endless": "word " * 4000, "short": "Once upon a time there was a"}.get(word)
        for part in chunks_of(text or f"You said: {body['messages'][-1]['content']}. That is turn {len(body['messages'])}."):
            yield {"content": part}

    def event(self, value):
        value = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", **value}
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        self.wfile.flush()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.connections = set()

    def process_request(self, request, client_address):
        self.connections.add(request)
        super().process_request(request, client_address)

    def end(self):
        """Ends it as if its process had gone."""
        self.shutdown()
        self.server_close()
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # closed already

    def handle_error(self, *_):
        pass  # readers that go away are counted where it matters


def start(page_path, port=0):
    """A server on a free port, with its `state`; stop it by end()."""
    body, policy = page_and_policy(page_path)
    state = State()
    server = Server(("127.0.0.1", port), type("Bound", (Handler,), {"state": state, "page": body, "policy": policy}))
    server.state = state
    server.url = f"http://127.0.0.1:{server.server_address[1]}/"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


if __name__ == "__main__":
    running = start(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8080)
    print(running.url, flush=True)
    threading.Event().wait()
