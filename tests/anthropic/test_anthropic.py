"""The official Anthropic client against a running `gannet serve`.

GANNET_BIN names the binary; GANNET_MODEL, if set, the model (the built-in one by default). Run with

    python -m venv .venv && .venv/bin/pip install -r tests/anthropic/requirements.txt
    GANNET_BIN=target/release/gannet .venv/bin/python -m pytest tests/anthropic

The tests check the shapes and laws of the protocol rather than the words of an answer, so that
they hold for any model.
"""

import asyncio
import json
import re
import time

import anthropic
import pytest
import serving

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


class Server(serving.Server):
    """With its official client."""

    def settings(self, **settings):
        settings = {"api_key": "none", "max_retries": 0, "timeout": 120, **settings}
        return {"base_url": self.address, **settings}

    def client(self, **settings):
        return anthropic.Anthropic(**self.settings(**settings))


@pytest.fixture(scope="session")
def server():
    server = Server()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def client(server):
    return server.client()


def request(messages=QUESTION, temperature=0, **settings):
    """The members of a request; the client no longer has a parameter for the temperature."""
    settings = {"max_tokens": 24, "thinking": {"type": "disabled"}, **settings}
    body = {"temperature": temperature, **settings.pop("extra_body", {})}
    return {"model": "any", "messages": messages, "extra_body": body, **settings}


def ask(client, messages=QUESTION, **settings):
    return client.messages.create(**request(messages, **settings))


def text(message):
    return "".join(block.text for block in message.content if block.type == "text")


def prompt_tokens(usage):
    cached = usage.cache_read_input_tokens + usage.cache_creation_input_tokens
    return usage.input_tokens + cached


def stable(message):
    """The parts that two answers to one request have in common."""
    message = message.to_dict(exclude_none=True)
    usage = message.pop("usage")
    message.pop("id")
    return message, usage["output_tokens"]


def test_create_answers_with_a_message(client):
    answer = ask(client)
    assert (answer.type, answer.role) == ("message", "assistant")
    assert re.fullmatch("msg_.{24}", answer.id)
    assert text(answer)
    assert answer.stop_reason in ("end_turn", "max_tokens")
    assert answer.stop_sequence is None
    assert 0 < answer.usage.output_tokens <= 24
    assert answer.usage.service_tier == "standard"
    assert answer._request_id


def test_kinds_of_input_tokens_add_up_to_the_count(client):
    count = client.messages.count_tokens(
        model="any", messages=QUESTION, thinking={"type": "disabled"}
    ).input_tokens
    plain = ask(client).usage
    assert plain.cache_creation_input_tokens == 0
    assert prompt_tokens(plain) == count > 0
    marked = ask(client, cache_control={"type": "ephemeral"}).usage
    assert marked.input_tokens == 0
    assert prompt_tokens(marked) == count


def test_stream_amounts_to_the_whole_answer(client):
    with client.messages.stream(**request()) as stream:
        said = "".join(stream.text_stream)
        streamed = stream.get_final_message()
    whole = ask(client)
    assert said == text(whole)
    assert stable(streamed) == stable(whole)
    assert prompt_tokens(streamed.usage) == prompt_tokens(whole.usage)


def test_events_come_in_order(client):
    kinds = [event.type for event in client.messages.create(**request(), stream=True)]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    open_blocks = 0
    for kind in kinds[1:-2]:
        open_blocks += {"content_block_start": 1, "content_block_stop": -1}.get(kind, 0)
        assert open_blocks in (0, 1)
        assert kind != "content_block_delta" or open_blocks == 1
    assert open_blocks == 0


def test_first_bytes_come_before_the_answer(server):
    """The stream begins with the message and a ping, checked on the wire."""
    client = server.client()
    with client.messages.with_streaming_response.create(**request(), stream=True) as response:
        lines = response.iter_lines()
        names = []
        while len(names) < 2:
            line = next(lines)
            if line.startswith("event: "):
                names.append(line.removeprefix("event: "))
    assert names == ["message_start", "ping"]


def test_limit_and_stop_sequences_end_the_answer(client):
    whole = text(ask(client))
    middle = len(whole) // 2
    stop = whole[middle : middle + 3]
    answer = ask(client, stop_sequences=[stop, "never to be seen"])
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", stop)
    assert text(answer) == whole[: whole.find(stop)]
    answer = ask(client, max_tokens=1)
    assert (answer.stop_reason, answer.usage.output_tokens) == ("max_tokens", 1)


def test_system_prompts_without_billing_headers_are_equal(client):
    def count(number):
        header = f"x-anthropic-billing-header: cc_version=2.1; cch={number};"
        system = [{"type": "text", "text": header}, {"type": "text", "text": "Be brief."}]
        return client.messages.count_tokens(model="any", messages=QUESTION, system=system)

    plain = client.messages.count_tokens(model="any", messages=QUESTION, system="Be brief.")
    assert count("1") == count("99999999") == plain


def test_the_answer_goes_on_where_it_was_begun(client):
    begun = [*QUESTION, {"role": "assistant", "content": "The capital of France is"}]
    answer = ask(client, begun)
    assert answer.type == "message"
    assert not text(answer).startswith("The capital of France is")


def test_thinking_is_a_block_with_a_signature_and_comes_back(client):
    thinking = {"type": "enabled", "budget_tokens": 1024}
    answer = ask(client, thinking=thinking, max_tokens=200)
    kinds = [block.type for block in answer.content]
    assert kinds in (["thinking", "text"], ["text"])
    assert "<think>" not in text(answer)
    if kinds[0] == "thinking":
        assert answer.content[0].thinking and answer.content[0].signature
        assert answer.usage.output_tokens_details.thinking_tokens > 0
    # The client sends back the unchanged answer.
    history = [*QUESTION, answer.to_param(), {"role": "user", "content": "And of Italy?"}]
    assert ask(client, history, thinking=thinking).type == "message"


def test_a_forced_tool_is_called(client):
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        settings = {"tools": [WEATHER], "tool_choice": choice, "max_tokens": 200}
        answer = ask(client, **settings)
        assert answer.stop_reason == "tool_use"
        calls = [block for block in answer.content if block.type == "tool_use"]
        assert calls
        for call in calls:
            assert re.fullmatch("toolu_[0-9a-f]{32}", call.id)
            assert call.name == "get_weather"
            assert isinstance(call.input["city"], str)
        with client.messages.stream(**request(**settings)) as stream:
            streamed = stream.get_final_message()
        inputs = [block.input for block in streamed.content if block.type == "tool_use"]
        assert inputs == [call.input for call in calls]


def test_results_of_tools_come_back_and_are_answered(client):
    calls = [
        {"type": "tool_use", "id": f"toolu_{city}", "name": "get_weather", "input": {"city": city}}
        for city in ("Paris", "Rome")
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "toolu_Rome", "content": "rain"},
        {
            "type": "tool_result",
            "tool_use_id": "toolu_Paris",
            "content": [{"type": "text", "text": "no such city"}],
            "is_error": True,
        },
    ]
    messages = [
        {"role": "user", "content": "How is the weather in Paris and Rome?"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, *calls]},
        {"role": "user", "content": [*results, {"type": "text", "text": "Well?"}]},
    ]
    search = {"type": "web_search_20250305", "name": "web_search"}
    assert ask(client, messages, tools=[WEATHER, search]).usage.output_tokens > 0
    messages[-1]["content"][0]["tool_use_id"] = "toolu_unknown"
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(client, messages, tools=[WEATHER])
    assert "messages[2].content[0].tool_use_id" in caught.value.api_message


def test_context_overflow_tells_both_sizes(client):
    long = [{"role": "user", "content": "a b " * 50_000}]
    started = time.monotonic()
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(client, long)
    assert time.monotonic() - started < 30
    error = caught.value.body["error"]
    assert error["type"] == caught.value.type == "invalid_request_error"
    assert error["n_prompt_tokens"] >= error["n_ctx"] > 0
    assert f"prompt is too long: {error['n_prompt_tokens']} tokens > " in error["message"]
    assert caught.value.request_id
    counted = client.messages.count_tokens(
        model="any", messages=long, thinking={"type": "disabled"}
    )
    # Far more text than the context holds is tokenized only as far as that shows.
    assert counted.input_tokens >= error["n_prompt_tokens"]


@pytest.mark.parametrize(
    "settings, place",
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"stop_sequences": ["x"] * 17}, "stop_sequences"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0]"),
        ({"system": 3}, "system"),
    ],
)
def test_wrong_fields_are_named(client, settings, place):
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(client, **settings)
    assert caught.value.type == "invalid_request_error"
    assert place in caught.value.api_message


def test_unknown_routes_are_not_found(client):
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.post("/v1/messages/nothing", body={}, cast_to=object)
    assert caught.value.type == "not_found_error"


def test_async_client_streams(server):
    async def streamed():
        async with anthropic.AsyncAnthropic(**server.settings()) as client:
            async with client.messages.stream(**request()) as stream:
                return await stream.get_final_message()

    assert stable(asyncio.run(streamed())) == stable(ask(server.client()))


def test_leaving_a_stream_frees_the_server(client):
    story = [{"role": "user", "content": "Tell me a story."}]
    stream = client.messages.create(**request(story, max_tokens=100_000), stream=True)
    next(iter(stream))
    stream.close()
    started = time.monotonic()
    ask(client, max_tokens=1)
    assert time.monotonic() - started < 20


def test_members_of_the_beta_client_are_taken(client):
    answer = client.beta.messages.create(
        **request(extra_body={"context_management": {"edits": []}}),
        betas=["interleaved-thinking-2025-05-14"],
        metadata={"user_id": "someone"},
        service_tier="auto",
    )
    assert json.loads(answer.to_json())["type"] == "message"
