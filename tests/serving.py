"""A running `gannet serve` and requests to it through the standard library and sockets alone.

GANNET_BIN names the binary; GANNET_MODEL, if set, the model. The default is the built-in model, and
the tests of agents depend on its abilities: think, call tools, and answer quickly.
"""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

START_SECONDS = 120
TINY = Path(__file__).parents[1] / "crates" / "tiny" / "model"


def wide_model(folder, context=16384):
    """The built-in model with a longer context than in training, because agents' prompts are long.
    YaRN scaling keeps its answers usable there."""
    shutil.copytree(TINY, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.gguf"))
    path = Path(folder) / "config.json"
    config = json.loads(path.read_text())
    config["max_position_embeddings"] = context
    trained = 640
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": trained}
    config["rope_scaling"] = scaling
    path.write_text(json.dumps(config))
    return str(folder)


class Reply:
    """A whole response."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.body[:2000]!r}"


class Stream:
    """A streamed answer, event by event: server-sent events or lines of JSON."""

    def __init__(self, connection, response):
        self.connection, self.response = connection, response
        self.status = response.status

    def __iter__(self):
        """Pairs of the event's name, if it has one, and its data: JSON, or else text."""
        name = None
        for line in self.response:
            line = line.decode().rstrip("\r\n")
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, parsed(line.removeprefix("data: "))
                name = None
            elif line.startswith("{"):
                yield None, parsed(line)

    def leave(self):
        """Resets the connection, as when a client is killed."""
        self.connection.sock and abort(self.connection.sock)
        self.response.close()
        self.connection.close()


def parsed(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def abort(sock):
    linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    sock.close()


class Server:
    """A `gannet serve` on a free port."""

    def __init__(self, *options, model=None, **environment):
        command = [os.environ["GANNET_BIN"], "serve", "--port", "0", *options]
        model = model or os.environ.get("GANNET_MODEL")
        command += ["-m", model] if model else []
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )
        self.log = []
        self.port = None
        self.listening = threading.Event()
        threading.Thread(target=self._read_log, daemon=True).start()
        if not self.listening.wait(START_SECONDS) or self.port is None:
            self.process.kill()
            raise RuntimeError("the server did not start:\n" + "".join(self.log))

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line)
            found = re.search(r"listening on http://[0-9.]+:([0-9]+)", line)
            if found and self.port is None:
                self.port = int(found.group(1))
                self.listening.set()
        self.listening.set()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}"

    def _send(self, method, path, body, headers, timeout):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        headers = {"content-type": "application/json", **(headers or {})}
        connection.request(method, path, body=body, headers=headers)
        return connection, connection.getresponse()

    def call(self, method, path, body=None, headers=None, timeout=120):
        connection, response = self._send(method, path, body, headers, timeout)
        try:
            return Reply(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def post(self, path, body, **settings):
        return self.call("POST", path, body, **settings)

    def get(self, path):
        return self.call("GET", path)

    def stream(self, path, body, timeout=120):
        return Stream(*self._send("POST", path, body, None, timeout))

    def socket(self, timeout=30):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def stats(self):
        return self.get("/v1/stats?format=json").json

    def requests(self):
        return self.stats()["requests"]

    def has(self, path):
        """Whether this build serves the route."""
        return self.post(path, {}).status not in (404, 405)

    def wait(self, condition, seconds=30, what=""):
        """Polls the counts of requests until `condition` holds; returns the seconds this took."""
        started = time.monotonic()
        while time.monotonic() - started < seconds:
            counts = self.requests()
            if condition(counts):
                return time.monotonic() - started
            time.sleep(0.005)
        raise AssertionError(f"{what or 'not'} after {seconds} s: {counts}")

    def idle(self, seconds=30):
        done = lambda counts: not counts["running"] and not counts["waiting"]
        return self.wait(done, seconds, "still busy")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)
