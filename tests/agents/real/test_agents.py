"""Agents themselves against `gannet serve`: each reads a file, edits it and runs a command, and
is then asked again.

    tests/agents/real/install
    GANNET_BIN=target/release/gannet target/venv/bin/python -m pytest tests/agents/real

An agent that is not installed is skipped, and so are all without the reference files that have the
vocabulary, unless GANNET_REQUIRE_SHARED=1 makes that a failure.
"""

import os
import socketserver
import subprocess
import threading
from dataclasses import dataclass

import pytest
from forcing import Counts, Proxy
from model import TEMPLATE, VOCABULARY, long_model
from real_agents import AGENTS
from serving import Server

HIT = 0.99
SECONDS = 240  # a quiet machine needs ten
PROMPT = "Rename beta to gamma in notes.txt, and copy it."
LATER = "Is all of it done?"


# A template that refuses system messages after others, as Qwen3.5's and later ones do.
STRICT = """{%- for message in messages if message.role == 'system' and not loop.first %}
{{- raise_exception('System message must be at the beginning.') }}
{%- endfor %}"""


@pytest.fixture(scope="module", params=["takes", "refuses"])
def server(request, tmp_path_factory):
    """A server of a model whose template takes late system messages, or refuses them."""
    for file in (VOCABULARY, TEMPLATE):
        if not file.exists():
            required = os.environ.get("GANNET_REQUIRE_SHARED") == "1"
            (pytest.fail if required else pytest.skip)(f"{file} does not exist")
    folder, options = tmp_path_factory.mktemp("model"), ["--kv-memory", "1GiB"]
    if request.param == "refuses":
        strict = folder / "strict.jinja"
        strict.write_text(STRICT + TEMPLATE.read_text())
        options += ["--chat-template", str(strict)]
    server = Server(*options, model=long_model(folder))
    yield server
    server.stop()


class Outside:
    """A proxy for everything that is not on this machine: it refuses and counts."""

    def __init__(self):
        self.asked = asked = []

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                asked.append(self.rfile.readline().decode(errors="replace").strip())
                self.wfile.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")

        self.tcp = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.tcp.daemon_threads = True
        threading.Thread(target=self.tcp.serve_forever, daemon=True).start()

    def environment(self):
        address = f"http://127.0.0.1:{self.tcp.server_address[1]}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        proxies = {n: address for name in names for n in (name, name.lower())}
        return {**proxies, "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}

    def stop(self):
        self.tcp.shutdown()
        self.tcp.server_close()


@dataclass
class Run:
    """A prompt given to an agent."""

    process: subprocess.CompletedProcess
    exchanges: list
    counted: Counts  # by the server's statistics

    def __repr__(self):
        answers = [(it.status, it.data[-1:]) for it in self.exchanges if it.status != 200]
        ended = f"exit {self.process.returncode}, refused: {answers}"
        return f"{ended}\n{self.process.stdout[-4000:]}\n{self.process.stderr[-4000:]}"


class Session:
    """An agent with a file to edit, its first prompt, and a later one if it continues."""

    def __init__(self, kind, server, folder):
        self.server, home, self.work = server, folder / "home", folder / "work"
        home.mkdir()
        self.work.mkdir()
        # Both exist beforehand, because some prompts list the files of the folder.
        (self.work / "notes.txt").write_text("alpha\nbeta\n")
        (self.work / "copy.txt").write_text("")
        plan = kind(home, self.work, "").plan()
        self.proxy, self.outside = Proxy(server, plan), Outside()
        self.agent = kind(home, self.work, self.proxy.address)
        try:
            self.runs = [self.run(PROMPT)]
            if kind.continues:
                self.runs.append(self.run(LATER, later=True))
        finally:
            self.proxy.stop()
            self.outside.stop()

    def run(self, prompt, later=False):
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.agent.home), "TERM": "dumb"}
        environment |= self.outside.environment() | self.agent.environment()
        before, seen = self.statistics(), len(self.proxy.exchanges)
        process = subprocess.run(
            [str(self.agent.binary()), *self.agent.command(prompt, later)],
            cwd=self.work,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        after = self.statistics()
        pairs = zip(after, before)
        return Run(process, self.proxy.exchanges[seen:], Counts(*(a - b for a, b in pairs)))

    def statistics(self):
        self.server.idle()
        stats = self.server.stats()
        cache = stats["kv_cache"]
        return cache["queried_tokens"], cache["hit_tokens"], stats["tokens"]["generated"]


@pytest.fixture(scope="module", params=AGENTS, ids=lambda kind: kind.__name__)
def session(request, server, tmp_path_factory):
    if not request.param.binary().exists():
        pytest.skip(f"{request.param.binary()} is not installed")
    return Session(request.param, server, tmp_path_factory.mktemp(request.param.__name__))


def test_it_ends_well(session):
    for run in session.runs:
        assert run.process.returncode == 0, run
    text = session.proxy.plan[-1].text.splitlines()[0]
    assert text in session.runs[0].process.stdout, session.runs[0]


def test_the_file_is_edited_and_the_command_run_on_it(session):
    for name in ("notes.txt", "copy.txt"):
        assert (session.work / name).read_text() == "alpha\ngamma\n", session.runs[0]


def test_every_step_is_one_request_that_is_answered(session):
    statuses = [[exchange.status for exchange in run.exchanges] for run in session.runs]
    assert statuses[0] == [200] * len(session.proxy.plan), session.runs[0]
    assert statuses[1:] in ([], [[200]]), session.runs[-1]


def test_every_turn_finds_the_turn_before_in_the_cache(session):
    agent, first = session.agent, len(session.runs[0].exchanges)
    exchanges = [exchange for run in session.runs for exchange in run.exchanges]
    assert len(exchanges) > 1
    for number, (before, after) in enumerate(zip(exchanges, exchanges[1:]), 1):
        if ("loop" if number < first else "later") in agent.grows:
            known = before.counts.prompt + before.counts.output
        else:
            known = shared(session.server, before.body, after.body)
        cached = after.counts.cached
        assert cached >= HIT * known, f"request {number + 1}: {cached} cached of {known}"


def shared(server, *bodies):
    """The number of tokens with which the prompts of chat completions begin alike."""
    prompts = [server.post("/apply-template", body).json["prompt"] for body in bodies]
    tokens = [
        server.post("/tokenize", {"content": prompt, "parse_special": True}).json["tokens"]
        for prompt in prompts
    ]
    differs = (at for at, (a, b) in enumerate(zip(*tokens)) if a != b)
    return next(differs, min(map(len, tokens)))


def test_usage_is_what_the_server_counts(session):
    before = Counts()
    for run in session.runs:
        sent = sum((exchange.counts for exchange in run.exchanges), Counts())
        assert sent == run.counted
        before = before + sent if session.agent.sums_up else sent
        reported = session.agent.reported(run.process.stdout)
        if not session.agent.reports_cached:
            reported.cached = before.cached
        assert reported == before


def test_nothing_outside_is_asked_for(session):
    assert session.outside.asked == []
