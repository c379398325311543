"""Loads a `gannet serve` with good and bad clients, and checks that it returns to its initial state.

    python3 tests/soak/soak.py --gannet target/release/gannet --minutes 10

The script starts a server on loopback, with the built-in model unless `--model` names another, and runs clients that ask and
wait, disconnect at any moment, read slowly, send nonsense and too much. It samples the server's memory from /proc. At the end
no request may count as running or waiting, no block may be in use, no file descriptor left open, and memory must be flat; no
answer may have failed on the server's side or been stuck. Needs Linux, Python's standard library and the server's /metrics.
Exits with 1 after any violation, and prints it. `.ci/run` runs a minute of it.
"""

import argparse
import asyncio
import json
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from pathlib import Path

START = 300
"""Longest wait in seconds until the server listens."""
QUIET = 60
"""Longest time in seconds from the last client to an idle server."""
GROWTH, SLACK = 1.05, 8e6
"""The last third of the memory samples may exceed the first by this factor and this number of bytes."""
WARM_UP, MIN_SECONDS = 0.2, 60
"""Initial share of the time whose samples are ignored, and its minimum in seconds: memory grows in any case until every part
of the cache and of the heap has been used once."""
AT_REST = ["kv_blocks_used", "num_requests_running", "num_requests_waiting"]
"""Gauges that are 0 on an idle server."""


class Violation(Exception):
    """The server broke a rule."""


class Server:
    """The server under load: its process and its address."""

    def __init__(self, args):
        self.log = tempfile.TemporaryFile("w+", errors="replace")
        command = [args.gannet, "serve", "--port", "0", *(["-m", args.model] if args.model else [])]
        self.process = subprocess.Popen(command + args.serve_args.split(), stdout=self.log, stderr=self.log)
        self.proc = Path(f"/proc/{self.process.pid}")
        self.host, self.port = self.wait_for_address()
        model = json.loads(self.get("/v1/models"))["data"][0]
        self.context, self.vocabulary = model["context_length"], model["meta"]["n_vocab"]

    def wait_for_address(self):
        limit = time.monotonic() + START
        while time.monotonic() < limit and self.process.poll() is None:
            found = re.search(r"listening on http://([\d.]+):(\d+)", self.said())
            if found:
                return found[1], int(found[2])
            time.sleep(0.1)
        self.process.kill()
        sys.exit(f"the server does not start: {self.said()}")

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.host}:{self.port}{path}", timeout=30) as answer:
            return answer.read().decode()

    def metrics(self):
        """The sum of each metric over its labels, by name without the prefix."""
        sums = defaultdict(float)
        for name, value in re.findall(r"^gannet:(\w+)(?:\{.*\})? (\S+)", self.get("/metrics"), re.MULTILINE):
            sums[name] += float(value)
        return sums

    def resident(self):
        return int(re.search(r"VmRSS:\s+(\d+) kB", (self.proc / "status").read_text())[1]) * 1024

    def descriptors(self):
        return sum(1 for _ in (self.proc / "fd").iterdir())

    def end(self):
        """The exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "none within 60 s"


class Connection:
    """One request on its own connection."""

    def __init__(self, server, buffer=None):
        self.server, self.buffer = server, buffer
        self.raw = b""

    async def __aenter__(self):
        sock = socket.socket()
        if self.buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.buffer)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (self.server.host, self.server.port))
        self.reader, self.writer = await asyncio.open_connection(sock=sock, limit=self.buffer or 1 << 16)
        return self

    async def __aexit__(self, *_):
        # Data in flight is dropped, as by a client that crashes.
        self.writer.transport.abort()

    async def send(self, path, body, method="POST", share=1.0):
        """Sends a request, or the first part of one."""
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
        whole = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
        self.writer.write(whole[: round(len(whole) * share)])
        await self.writer.drain()

    async def read(self, most=1 << 16):
        """The next part of the answer; empty at its end."""
        piece = await self.reader.read(most)
        self.raw += piece
        return piece

    async def rest(self):
        """The status, after the whole answer has been read."""
        while await self.read():
            pass
        return self.status()

    def status(self):
        found = re.match(rb"HTTP/1.1 (\d+)", self.raw)
        if not found:
            raise Violation(f"no answer but {self.raw[:80]!r}")
        return int(found[1])

    def events(self):
        return self.raw.count(b"data:")

    def check_complete(self):
        """Checks that an answer with status 200 is complete."""
        streamed = b"text/event-stream" in self.raw
        if b"event: error" in self.raw:
            raise Violation(f"an error in the stream: {self.raw[-300:]!r}")
        if streamed and not (b"data: [DONE]" in self.raw and self.raw.endswith(b"0\r\n\r\n")):
            raise Violation(f"a stream that breaks off: {self.raw[-100:]!r}")


class Clients:
    """The kinds of clients. Each public method is one kind, and returns a word for its outcome."""

    WEIGHTS = {
        "asks": 6, "streams": 6, "chats": 4, "reads_slowly": 2, "leaves_at_once": 3, "leaves_in_the_body": 2,
        "leaves_in_the_prefill": 4, "leaves_in_the_stream": 6, "asks_too_much": 2, "sends_bad_json": 3,
        "sends_wrong_fields": 2, "sends_no_http": 1, "sends_a_huge_body": 0.2, "requests_unknown_routes": 1,
        "stops_reading": 0.5, "comes_in_a_crowd": 1,
    }  # fmt: skip

    def __init__(self, server, seed):
        self.server, self.random = server, random.Random(seed)

    def ids(self, least, most):
        count = self.random.randint(least, max(least, min(most, self.server.context - 80)))
        return [self.random.randrange(self.server.vocabulary) for _ in range(count)]

    def completion(self, prompt=None, tokens=None, **more):
        prompt = prompt or self.ids(1, 200)
        tokens = tokens or self.random.randint(1, 40)
        return {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "seed": self.random.randrange(99), **more}

    async def answered(self, path, body, **options):
        """A request of a good client: answered, or refused because the queue is full."""
        async with Connection(self.server, **options) as connection:
            await connection.send(path, body)
            status = await connection.rest()
            if status not in (200, 429):
                raise Violation(f"{status} to a good request: {connection.raw[-300:]!r}")
            if status == 200:
                connection.check_complete()
            return str(status)

    async def refused(self, expected, path, body, **options):
        """A request that must be refused with one of these statuses."""
        async with Connection(self.server) as connection:
            await connection.send(path, body, **options)
            status = await connection.rest()
            if status not in expected:
                raise Violation(f"{status} instead of {expected}: {connection.raw[-300:]!r}")
            return str(status)

    async def asks(self):
        return await self.answered("/v1/completions", self.completion())

    async def streams(self):
        return await self.answered("/v1/completions", self.completion(stream=True))

    async def chats(self):
        words = " ".join(self.random.choices(["What", "is", "the", "capital", "of", "France", "?"], k=9))
        body = {"messages": [{"role": "user", "content": words}], "max_tokens": 24, "stream": True}
        return await self.answered("/v1/chat/completions", body)

    async def reads_slowly(self):
        async with Connection(self.server, buffer=2048) as connection:
            body = self.completion(tokens=min(400, self.server.context // 4), stream=True, n=2, logprobs=5)
            await connection.send("/v1/completions", body)
            until = time.monotonic() + self.random.uniform(2, 15)
            while time.monotonic() < until and await connection.read(512):
                await asyncio.sleep(0.1)
            # Read the rest with a large window: a small one would take minutes.
            connection.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            status = await connection.rest()
            if status == 200:
                connection.check_complete()
            return str(status)

    async def stops_reading(self):
        async with Connection(self.server, buffer=2048) as connection:
            body = self.completion(tokens=min(1000, self.server.context // 2), stream=True, n=2, logprobs=5)
            await connection.send("/v1/completions", body)
            await connection.read(100)
            # The server disconnects clients that read nothing for half a minute.
            await asyncio.sleep(self.random.uniform(1, 45))
            return "left"

    async def leaves_at_once(self):
        async with Connection(self.server) as connection:
            await connection.send("/v1/completions", self.completion(tokens=60, stream=self.random.random() < 0.5))
            return "left"

    async def leaves_in_the_body(self):
        async with Connection(self.server) as connection:
            await connection.send("/v1/completions", self.completion(), share=self.random.random())
            await asyncio.sleep(self.random.uniform(0, 0.5))
            return "left"

    async def leaves_in_the_prefill(self):
        async with Connection(self.server) as connection:
            prompt = self.ids(500, 4000)
            await connection.send("/v1/completions", self.completion(prompt, 60, stream=True))
            await asyncio.sleep(self.random.uniform(0, 0.2))
            return "left"

    async def leaves_in_the_stream(self):
        async with Connection(self.server) as connection:
            await connection.send("/v1/completions", self.completion(tokens=60, stream=True))
            events = self.random.randint(1, 20)
            while connection.events() < events and await connection.read():
                pass
            return "left"

    async def asks_too_much(self):
        prompt = [1] * (self.server.context + self.random.randint(1, 1000))
        return await self.refused([400], "/v1/completions", self.completion(prompt))

    async def sends_bad_json(self):
        whole = json.dumps(self.completion()).encode()
        broken = [whole[: self.random.randrange(len(whole))], b"[" * 5000, b"\xff\xfe", b"{]", b"null", b"[1]"]
        return await self.refused([400], "/v1/completions", self.random.choice(broken))

    async def sends_wrong_fields(self):
        wrong = [
            {"prompt": {}}, {"prompt": [self.server.vocabulary]}, {"prompt": [-1]}, {"prompt": []},
            {"temperature": "hot"}, {"max_tokens": -5}, {"n": 100_000}, {"stop": 7}, {"logit_bias": {"a": 1}},
        ]  # fmt: skip
        return await self.refused([400], "/v1/completions", {**self.completion(), **self.random.choice(wrong)})

    async def sends_no_http(self):
        async with Connection(self.server) as connection:
            connection.writer.write(self.random.randbytes(self.random.randint(1, 2000)) + b"\r\n\r\n")
            try:
                await asyncio.wait_for(connection.rest(), 2)
                return str(connection.status())
            except (asyncio.TimeoutError, ConnectionError, Violation):
                return "left"

    async def sends_a_huge_body(self):
        return await self.refused([413], "/v1/completions", b" " * (33 << 20))

    async def requests_unknown_routes(self):
        path, method = self.random.choice([("/v1/nothing", "POST"), ("/v1/completions", "DELETE"), ("/nothing", "GET")])
        return await self.refused([404, 405], path, b"", method=method)

    async def comes_in_a_crowd(self):
        """More concurrent requests than may wait: some are refused, and each gets a response."""
        crowd = [self.answered("/v1/completions", self.completion(tokens=2)) for _ in range(self.random.randint(20, 300))]
        found = Counter(await asyncio.gather(*crowd))
        return " and ".join(sorted(found))


class Soak:
    """The whole run and its results."""

    def __init__(self, args, server):
        self.args, self.server = args, server
        self.clients = Clients(server, args.seed)
        self.begun, self.seconds = time.monotonic(), args.minutes * 60
        self.outcomes, self.slowest = defaultdict(Counter), Counter()
        self.memory, self.most, self.violations = [], Counter(), []

    def over(self):
        return time.monotonic() - self.begun > self.seconds or len(self.violations) > 100

    def violation(self, text):
        self.violations.append(f"after {time.monotonic() - self.begun:.0f} s: {text}")

    async def run(self):
        watch = asyncio.create_task(self.watch())
        await asyncio.gather(*(self.client() for _ in range(self.args.clients)))
        await watch
        self.after()

    async def client(self):
        kinds, weights = zip(*Clients.WEIGHTS.items())
        while not self.over() and self.server.process.poll() is None:
            kind = self.clients.random.choices(kinds, weights)[0]
            begun = time.monotonic()
            outcome = await self.outcome(kind)
            self.slowest[kind] = max(self.slowest[kind], time.monotonic() - begun)
            self.outcomes[kind][outcome] += 1

    async def outcome(self, kind):
        try:
            return await asyncio.wait_for(getattr(self.clients, kind)(), self.args.limit)
        except asyncio.TimeoutError:
            self.violation(f"{kind}: stuck for {self.args.limit} s")
        except Violation as problem:
            self.violation(f"{kind}: {problem}")
        except OSError as problem:
            # Clients that leave may see an error; all others must get an answer.
            if kind.startswith("leaves"):
                return "left"
            self.violation(f"{kind}: {problem!r}")
        return "violation"

    async def watch(self):
        """Samples the server while clients run."""
        while not self.over():
            await asyncio.sleep(1)
            if self.server.process.poll() is not None:
                self.violation(f"the server ended with {self.server.process.returncode}")
                return
            self.memory.append((time.monotonic() - self.begun, self.server.resident()))
            try:
                metrics = await asyncio.to_thread(self.server.metrics)
            except OSError as problem:
                self.violation(f"/metrics: {problem!r}")
                continue
            for name in AT_REST + ["kv_blocks"]:
                self.most[name] = max(self.most[name], metrics[name])

    def after(self):
        """Checks the server after all clients have ended."""
        if self.server.process.poll() is not None:
            return
        self.check_rest()
        self.check_memory()
        for name in ["kv_blocks", "kv_blocks_used", "num_requests_running"]:
            if not self.most[name]:
                self.violation(f"{name} was always 0, so that it cannot be checked")
        code = self.server.end()
        if code != 0:
            self.violation(f"exit code after SIGTERM: {code}")
        if re.search("panicked|internal error", self.server.said()):
            self.violation(f"the server's log: {self.server.said()[-2000:]}")

    def check_rest(self):
        limit = time.monotonic() + QUIET
        while True:
            metrics, descriptors = self.server.metrics(), self.server.descriptors()
            left = [f"{name} = {metrics[name]:.0f}" for name in AT_REST if metrics[name]]
            # One more descriptor may be the connection of this request.
            if descriptors > self.descriptors + 1:
                left.append(f"{descriptors} file descriptors, {self.descriptors} at the beginning")
            if not left:
                return
            if time.monotonic() > limit:
                return self.violation(f"remaining {QUIET} s after the last client: {', '.join(left)}")
            time.sleep(0.5)

    def thirds(self):
        """Medians of the first and the last third of the memory samples, or None if there are too few."""
        counted = [bytes for at, bytes in self.memory if at > WARM_UP * self.seconds]
        third = len(counted) // 3
        if third == 0 or WARM_UP * self.seconds < MIN_SECONDS:
            return None
        return [statistics.median(part) for part in (counted[:third], counted[-third:])]

    def check_memory(self):
        thirds = self.thirds()
        if thirds and thirds[1] > GROWTH * thirds[0] + SLACK:
            self.violation(f"memory grew from {thirds[0] / 1e6:.1f} to {thirds[1] / 1e6:.1f} MB")

    def print(self):
        print(f"{'client':24}{'times':>8}{'slowest, s':>12}  outcomes")
        for kind in Clients.WEIGHTS:
            found = self.outcomes[kind]
            words = ", ".join(f"{outcome}: {count}" for outcome, count in found.most_common(4))
            print(f"{kind:24}{found.total():8}{self.slowest[kind]:12.2f}  {words}")
        sizes = [bytes / 1e6 for _, bytes in self.memory] or [0]
        thirds = " and ".join(f"{bytes / 1e6:.1f}" for bytes in self.thirds() or [])
        thirds = f"medians of first and last third {thirds}" if thirds else "the run is too short to tell whether it grows"
        print(f"\nmemory, MB: {sizes[0]:.1f} at first, {max(sizes):.1f} at most; {thirds}")
        print("most at once: " + ", ".join(f"{name} {self.most[name]:.0f}" for name in AT_REST))
        for violation in self.violations[:20]:
            print(f"VIOLATION {violation}")
        print(f"{len(self.violations)} violations" if self.violations else "no violations")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gannet", required=True, help="the program to test")
    parser.add_argument("--model", help="the model; the built-in one if left out")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=16, help="concurrent clients, not counting crowds")
    parser.add_argument("--limit", type=float, default=120, help="longest time in seconds for one client")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="seed of the clients' behaviour")
    parser.add_argument("--serve-args", default="", help="further arguments of gannet serve, in one word")
    return parser.parse_args()


def main():
    args = arguments()
    server = Server(args)
    try:
        print(f"{args.minutes} minutes, {args.clients} clients, --seed {args.seed}", flush=True)
        soak = Soak(args, server)
        soak.descriptors = server.descriptors()
        asyncio.run(soak.run())
    finally:
        server.process.kill()
    soak.print()
    return 1 if soak.violations else 0


if __name__ == "__main__":
    sys.exit(main())
