"""Prompts are never truncated: a prompt that does not fit, or that leaves no token for the answer, is
refused before anything is computed, in the protocol's error format and with both sizes."""

import re
import time

import pytest
from protocols import PROTOCOLS, user
from serving import Server

CONTEXT = 2048
# What is counted of a text of 300,000 tokens before it is refused.
FAR = range(CONTEXT + 1, 300_100)


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.stop()


def computed(server):
    stats = server.stats()
    return stats["steps"]["count"], stats["tokens"]["prompt"]


def served(server, protocol):
    if not server.has(protocol.path):
        pytest.skip(f"this build does not serve {protocol.path}")


def settled(server):
    """Computed steps and prompt tokens once the counts are final: an answer may arrive earlier."""
    server.idle()
    now, before = computed(server), None
    while now != before:
        time.sleep(0.05)
        now, before = computed(server), now
    return now


def tokens(server, protocol, text):
    """The number of prompt tokens, from an answer of one token."""
    reply = server.post(protocol.path, protocol.body(text, 1, False, False))
    return protocol.whole(reply.json).prompt if reply.status == 200 else None


def exactly(server, protocol, size):
    """A text whose prompt has this number of tokens, made of words of one token each."""
    word = " the"
    few, many = tokens(server, protocol, word * 10), tokens(server, protocol, word * 20)
    assert many - few == 10, "the word is not one token"
    return word * (10 + size - few)


def check_refusal(server, protocol, text, sizes, stream, limit):
    before = settled(server)
    reply = server.post(protocol.path, protocol.body(text, limit, stream, False))
    assert reply.status == 400, reply
    assert protocol.error(reply.json)
    told = [int(number) for number in re.findall("[0-9]+", reply.body.decode())]
    assert CONTEXT in told and any(number in sizes for number in told), reply
    assert computed(server) == before
    return reply.json


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=repr)
def test_a_prompt_as_long_as_the_context_is_refused_and_one_token_less_is_not(server, protocol):
    served(server, protocol)
    for size in (CONTEXT, CONTEXT + 1):
        text = exactly(server, protocol, size)
        for stream in (False, True):
            check_refusal(server, protocol, text, [size], stream, 1)
    text = exactly(server, protocol, CONTEXT - 1)
    assert tokens(server, protocol, text) == CONTEXT - 1


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=repr)
def test_a_prompt_far_too_long_is_refused_before_it_is_counted_to_its_end(server, protocol):
    served(server, protocol)
    started = time.monotonic()
    error = check_refusal(server, protocol, " the" * 300_000, FAR, True, 16)
    assert time.monotonic() - started < 60
    if protocol.path.startswith("/v1/") and "messages" not in protocol.path:
        error = error["error"]
        assert error["code"] == "context_length_exceeded"
        assert error["n_prompt_tokens"] in FAR and error["n_ctx"] == CONTEXT


def test_anthropic_clients_know_the_error_by_its_words(server):
    [protocol] = [one for one in PROTOCOLS if one.name == "messages"]
    served(server, protocol)
    error = check_refusal(server, protocol, " the" * 3000, range(3000, 3100), False, 16)
    assert error["type"] == "error" and error["error"]["type"] == "invalid_request_error"
    assert error["error"]["message"].startswith("prompt is too long: ")


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=repr)
def test_what_an_answer_may_not_exceed_is_the_room_that_is_left(server, protocol):
    """An answer that does not fit ends with the finish reason for length, not with an error."""
    served(server, protocol)
    text = exactly(server, protocol, CONTEXT - 4)
    reply = server.post(protocol.path, protocol.body(text, 100, False, False))
    if reply.status == 400:
        # In OpenAI's API the sum is refused, with both numbers.
        assert str(CONTEXT) in protocol.error(reply.json), reply
        return
    told = protocol.whole(reply.json)
    assert told.prompt == CONTEXT - 4
    assert told.output <= 4


COUNTS = {
    "/v1/messages/count_tokens": lambda text: {"model": "m", "messages": user(text)},
    "/v1/responses/input_tokens": lambda text: {"model": "m", "input": text},
}


@pytest.mark.parametrize("path", COUNTS)
def test_counting_says_what_a_prompt_has_also_if_it_does_not_fit(server, path):
    body = COUNTS[path]
    if not server.has(path):
        pytest.skip(f"this build does not serve {path}")
    before = computed(server)
    few = server.post(path, body(" the" * 10)).json["input_tokens"]
    reply = server.post(path, body(" the" * 5010))
    assert reply.status == 200, reply
    assert reply.json["input_tokens"] == few + 5000
    assert computed(server) == before


def test_embeddings_of_too_long_a_text_are_refused(server):
    for path, more in (("/v1/embeddings", {}), ("/api/embed", {"truncate": False})):
        if not server.has(path):
            continue
        reply = server.post(path, {"model": "m", "input": " the" * 5000, **more})
        assert reply.status == 400 and str(CONTEXT) in reply.body.decode(), reply
