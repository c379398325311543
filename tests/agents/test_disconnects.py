"""A client that disconnects stops its own request, at once and in any state, and no other."""

import http.client
import itertools
import json
import threading

import pytest
from protocols import PROTOCOLS
from serving import Server, abort, wide_model

# Much shorter than any of the requests here, much longer than a step.
SOON = 5
NEIGHBOUR = {
    "messages": [{"role": "user", "content": "Tell me a story."}],
    "max_tokens": 4000,
    "ignore_eos": True,
    "temperature": 0,
}
unique = itertools.count()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return wide_model(tmp_path_factory.mktemp("wide"))


# Drafts would have requests end before the tests look.
@pytest.fixture(scope="module")
def wide(model):
    server = Server("--parallel", "4", "--speculate", "off", model=model)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def narrow(model):
    """A server with one running request; a second one waits."""
    server = Server("--parallel", "1", "--speculate", "off", model=model)
    yield server
    server.stop()


class Neighbour:
    """A request that runs meanwhile, and must complete."""

    def __init__(self, server):
        self.server = server
        self.reply = None
        self.thread = threading.Thread(target=self.ask)

    def ask(self):
        self.reply = self.server.post("/v1/chat/completions", NEIGHBOUR, timeout=300)

    def __enter__(self):
        self.server.idle()
        self.thread.start()
        self.server.wait(lambda counts: counts["running"] == 1, what="no neighbour")
        return self

    def __exit__(self, *problem):
        self.thread.join()
        if problem[0]:
            return
        assert self.reply.status == 200, self.reply
        [choice] = self.reply.json["choices"]
        assert choice["finish_reason"] == "length"
        assert self.reply.json["usage"]["completion_tokens"] == NEIGHBOUR["max_tokens"]


def begin(server, protocol, text, stream):
    """A request that has been sent."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = json.dumps(protocol.body(text, 5000, stream, True))
    connection.request("POST", protocol.path, body, {"content-type": "application/json"})
    return connection


def check_left(server, protocol, stream, text, there, way):
    before = server.requests()
    connection = begin(server, protocol, text, stream)
    server.wait(there, what="not there")
    steps = server.stats()["steps"]["count"]
    server.wait(lambda _: server.stats()["steps"]["count"] > steps + 20, what="no steps")
    # A request that had ended by itself would prove nothing.
    assert there(server.requests())
    way(connection)
    # The counts are not a snapshot: each changes on its own.
    gone = lambda counts: (
        counts["finished"]["cancelled"] == before["finished"]["cancelled"] + 1
        and counts["running"] == 1
        and counts["waiting"] == 0
    )
    server.wait(gone, SOON, f"{protocol}, stream {stream}: still there")
    after = server.requests()
    assert after["finished"]["failed"] == before["finished"]["failed"]


def reset(connection):
    abort(connection.sock)


def close(connection):
    connection.close()


WAYS = [(False, reset), (True, reset), (False, close), (True, close)]


def served(server, protocol):
    if not server.has(protocol.path):
        pytest.skip(f"this build does not serve {protocol.path}")


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=repr)
def test_leaving_while_tokens_are_made_stops_that_request_alone(wide, protocol):
    served(wide, protocol)
    with Neighbour(wide):
        for stream, way in WAYS:
            there = lambda counts: counts["running"] == 2
            check_left(wide, protocol, stream, "Tell me a story.", there, way)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=repr)
def test_leaving_while_a_prompt_is_computed_stops_that_request_alone(wide, protocol):
    served(wide, protocol)
    with Neighbour(wide):
        for stream, way in WAYS[:2]:
            # A distinct beginning each time, which is not in the cache.
            text = f"{next(unique)} " + "one two three four five " * 1800
            there = lambda counts: counts["running"] == 2
            check_left(wide, protocol, stream, text, there, way)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=repr)
def test_leaving_the_queue_stops_that_request_alone(narrow, protocol):
    served(narrow, protocol)
    with Neighbour(narrow):
        for stream, way in WAYS:
            there = lambda counts: counts["running"] == 1 and counts["waiting"] == 1
            check_left(narrow, protocol, stream, "Tell me a story.", there, way)
