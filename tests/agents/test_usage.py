"""Usage is correct in every protocol's fields, and the same for streamed and whole answers."""

import pytest
from protocols import PROTOCOLS, user
from serving import Server

QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.stop()


def served(server, path):
    if not server.has(path):
        pytest.skip(f"this build does not serve {path}")


def both(server, protocol, text, limit):
    events = list(server.stream(protocol.path, protocol.body(text, limit, True, False)))
    reply = server.post(protocol.path, protocol.body(text, limit, False, False))
    assert reply.status == 200, reply
    return protocol.streamed(events), protocol.whole(reply.json)


@pytest.mark.parametrize("limit", [1, 5, 300])
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=repr)
def test_streamed_and_whole_say_the_same(server, protocol, limit):
    served(server, protocol.path)
    both(server, protocol, QUESTION, limit)  # Both find the same in the cache then.
    streamed, whole = both(server, protocol, QUESTION, limit)
    assert streamed == whole
    assert 0 < whole.output <= limit
    if whole.cached is not None:
        assert whole.cached == whole.prompt - 1


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=repr)
def test_the_prompt_is_what_the_template_makes_of_it(server, protocol):
    served(server, protocol.path)
    served(server, "/tokenize")
    text = QUESTION
    if protocol.chat:
        text = server.post("/apply-template", {"messages": user(QUESTION)}).json["prompt"]
    body = {"content": text, "add_special": not protocol.chat, "parse_special": True}
    tokens = server.post("/tokenize", body).json["tokens"]
    reply = server.post(protocol.path, protocol.body(QUESTION, 3, False, False))
    assert protocol.whole(reply.json).prompt == len(tokens)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=repr)
def test_the_server_counts_what_it_tells(server, protocol):
    served(server, protocol.path)
    server.idle()
    before = server.stats()
    reply = server.post(protocol.path, protocol.body("Tell me a story.", 20, False, False))
    told = protocol.whole(reply.json)
    server.idle()
    after = server.stats()
    difference = lambda *keys: value(after, keys) - value(before, keys)
    assert difference("tokens", "generated") == told.output
    assert difference("kv_cache", "queried_tokens") == told.prompt
    if told.cached is not None:
        assert difference("kv_cache", "hit_tokens") == told.cached


def value(stats, keys):
    for key in keys:
        stats = stats[key]
    return stats


def test_reasoning_is_counted_as_part_of_the_answer(server):
    body = {"model": "m", "messages": user("What is 47 + 38?"), "temperature": 0}
    answer = server.post("/v1/chat/completions", body).json
    usage, message = answer["usage"], answer["choices"][0]["message"]
    assert message["reasoning_content"]
    thought = usage["completion_tokens_details"]["reasoning_tokens"]
    assert 0 < thought < usage["completion_tokens"]
    body |= {"chat_template_kwargs": {"enable_thinking": False}}
    usage = server.post("/v1/chat/completions", body).json["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 0


def test_several_choices_count_their_prompt_once(server):
    body = {"model": "m", "messages": user(QUESTION), "max_tokens": 4, "ignore_eos": True}
    one = server.post("/v1/chat/completions", body).json["usage"]
    three = server.post("/v1/chat/completions", body | {"n": 3}).json["usage"]
    assert three["prompt_tokens"] == one["prompt_tokens"]
    assert three["completion_tokens"] == 3 * one["completion_tokens"] == 12
