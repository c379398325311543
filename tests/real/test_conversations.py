"""What clients do with a real model: turns that find their prefix, tools, structured answers, drafts and a cache
on disk, each with the texts that it has without."""

import json

QUESTIONS = [
    "My name is Ada. Please remember it.",
    "What is the capital of Italy?",
    "And of Spain?",
    "Name a fruit that is yellow.",
    "Write one sentence about the sea.",
    "What is two plus three?",
    "Name a colour of the rainbow.",
    "What do bees make?",
    "Write one sentence about winter.",
    "What is my name?",
]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def chat(server, messages, **settings):
    body = {"messages": messages, "temperature": 0, "max_tokens": 24, **settings}
    reply = server.post("/v1/chat/completions", body)
    assert reply.status == 200, reply
    return reply.json


def conversation(server):
    """The answers of ten turns, and their counts of tokens: prompt, cached, generated."""
    messages, counts = [], []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        answer = chat(server, messages)
        usage = answer["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        counts.append((usage["prompt_tokens"], cached, usage["completion_tokens"]))
        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
    return [message["content"] for message in messages[1::2]], counts


def test_each_turn_of_ten_finds_the_turns_before_it(server):
    answers, counts = conversation(server)
    assert all(answers), answers
    assert conversation(server)[0] == answers
    for (prompt, _, generated), (later, cached, _) in zip(counts, counts[1:]):
        # The template ends a turn with two tokens and begins the next with others.
        assert prompt + generated < later
        assert cached >= prompt + generated - 2, counts
        assert cached < later


def test_drafts_and_a_cache_on_disk_change_no_answer(server, serve, tmp_path):
    answers, _ = conversation(server)
    assert conversation(serve("--speculate", "ngram:8"))[0] == answers
    options = ("--kv-dir", str(tmp_path), "--kv-dir-write", "all", "--kv-dir-min-tokens", "32")
    first = serve(*options)
    assert conversation(first)[0] == answers
    first.stop()
    second = serve(*options)
    found, counts = conversation(second)
    assert found == answers
    assert counts[-1][1] > 0 and second.stats()["kv_disk"]["hits"] > 0


def test_a_tool_that_must_be_called_is_called_and_its_result_is_read(server):
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    plain = chat(server, messages)["usage"]["prompt_tokens"]
    one_call = {"parallel_tool_calls": False, "max_tokens": 60}
    answer = chat(server, messages, tools=[WEATHER], tool_choice="required", **one_call)
    assert answer["usage"]["prompt_tokens"] > plain + 50, "the model is shown the tool"
    message = answer["choices"][0]["message"]
    [call] = message["tool_calls"]
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert call["function"]["name"] == "get_weather"
    assert list(json.loads(call["function"]["arguments"])) == ["city"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "Sunny, 31 degrees"}
    answer = chat(server, [*messages, message, result], tools=[WEATHER])
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > plain + 50
    # Without the tools the prompt is another one from its system message on.
    answer = chat(server, [*messages, message, result], tools=[WEATHER], tool_choice="none")
    assert answer["choices"][0]["message"]["content"]


def test_a_structured_answer_follows_its_schema(server):
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 30},
            "people": {"type": "integer", "minimum": 1, "maximum": 99_999_999},
            "share": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        },
        "required": ["city", "people", "share"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": schema}}
    messages = [{"role": "user", "content": "Describe Paris as JSON."}]
    for seed in range(4):
        answer = chat(
            server, messages, response_format=form, max_tokens=120, temperature=1, seed=seed
        )
        assert answer["choices"][0]["finish_reason"] == "stop"
        value = json.loads(answer["choices"][0]["message"]["content"])
        assert list(value) == ["city", "people", "share"]
        assert isinstance(value["people"], int) and 1 <= value["people"] <= 99_999_999
        assert 0 < value["share"] <= 1
