"""The official OpenAI client against a running `gannet serve`.

GANNET_BIN names the binary; GANNET_MODEL, if set, the model (the built-in one by default). Run with

    python -m venv .venv && .venv/bin/pip install -r tests/openai/requirements.txt
    GANNET_BIN=target/release/gannet .venv/bin/python -m pytest tests/openai

The tests check the shapes and laws of the protocol rather than the words of an answer, so that
they hold for any model.
"""

import json
import threading
import time
import urllib.request

import openai
import pytest
import serving

NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
# A model with a confident answer gives the same one for every seed.
OPEN_QUESTION = [{"role": "user", "content": "Tell me a story."}]


class Server(serving.Server):
    """With its official client."""

    def client(self, **settings):
        settings = {"api_key": "none", "max_retries": 0, "timeout": 120, **settings}
        return openai.OpenAI(base_url=self.address + "/v1", **settings)


@pytest.fixture(scope="session")
def server():
    server = Server()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def client(server):
    return server.client()


@pytest.fixture(scope="session")
def model(client):
    return client.models.list().data[0]


def ask(client, model, messages=QUESTION, **settings):
    settings = {"temperature": 0, "max_tokens": 24, "extra_body": NO_THINKING, **settings}
    return client.chat.completions.create(model=model.id, messages=messages, **settings)


def joined(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def test_models_are_listed_and_found(client, model):
    assert model.object == "model" and model.id
    assert client.models.retrieve(model.id).id == model.id
    # The only model answers to any name, and has its own.
    assert client.models.retrieve("any-other").id == model.id


def test_chat_answers_with_usage(client, model):
    answer = ask(client, model)
    choice = answer.choices[0]
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage.prompt_tokens > 0
    assert 0 < answer.usage.completion_tokens <= 24
    parts = answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.total_tokens == parts
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0
    assert answer.usage.completion_tokens_details.reasoning_tokens == 0


def test_limit_is_kept_and_told(client, model):
    answer = ask(client, model, max_tokens=1, extra_body={**NO_THINKING, "ignore_eos": True})
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 1


def test_stream_says_what_the_whole_answer_says(client, model):
    whole = ask(client, model)
    options = {"include_usage": True}
    chunks = list(ask(client, model, stream=True, stream_options=options))
    assert joined(chunks) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens
    assert len({chunk.id for chunk in chunks}) == 1


def test_logprobs_tell_every_token(client, model):
    # Log probabilities ignore penalties, so that the chosen token may not be the best.
    unpenalised = {**NO_THINKING, "repetition_penalty": 1.0}
    answer = ask(
        client, model, max_tokens=6, logprobs=True, top_logprobs=3, extra_body=unpenalised
    )
    tokens = answer.choices[0].logprobs.content
    assert 0 < len(tokens) <= 6
    text = b"".join(bytes(token.bytes) for token in tokens).decode("utf-8", "replace")
    assert text.strip() == answer.choices[0].message.content.strip()
    for token in tokens:
        assert token.logprob <= 0
        best = [top.logprob for top in token.top_logprobs]
        assert len(best) == 3 and best == sorted(best, reverse=True)
        # Greedy: the chosen token is the most likely one.
        assert token.logprob == pytest.approx(best[0])


def test_stop_string_ends_the_answer_and_is_not_in_it(client, model):
    whole = ask(client, model).choices[0].message.content
    middle = len(whole) // 2
    stop = whole[middle : middle + 3]
    answer = ask(client, model, stop=[stop, "never to be seen"])
    assert answer.choices[0].message.content == whole[: whole.find(stop)]
    assert answer.choices[0].finish_reason == "stop"


def test_same_seed_same_text(client, model):
    def text(seed):
        answer = ask(client, model, OPEN_QUESTION, temperature=1.5, seed=seed, max_tokens=16)
        return answer.choices[0].message.content

    assert text(7) == text(7)
    assert len({text(seed) for seed in range(8)}) > 1


def test_choices_of_one_seed_are_its_successors(client, model):
    settings = {"temperature": 1.5, "max_tokens": 12}
    both = ask(client, model, OPEN_QUESTION, seed=3, n=2, **settings).choices
    assert [choice.index for choice in both] == [0, 1]
    alone = ask(client, model, OPEN_QUESTION, seed=4, **settings).choices[0]
    assert both[1].message.content == alone.message.content != both[0].message.content


def test_logit_bias_forces_a_token(client, model):
    def forced(id):
        answer = client.completions.create(
            model=model.id,
            prompt="The",
            temperature=0,
            max_tokens=3,
            logprobs=0,
            logit_bias={id: 100},
            extra_body={"ignore_eos": True},
        )
        return answer.choices[0].logprobs.tokens

    first, second = forced("300"), forced("301")
    assert len(first) == 3 and len(set(first)) == 1
    assert first[0] != second[0]


def test_reasoning_is_apart_from_content(client, model):
    answer = ask(client, model, max_tokens=200, extra_body={})
    message = answer.choices[0].message
    assert "<think>" not in message.content and "</think>" not in message.content
    details = answer.usage.completion_tokens_details
    assert 0 <= details.reasoning_tokens <= answer.usage.completion_tokens
    if getattr(message, "reasoning_content", None):
        assert details.reasoning_tokens > 0


def test_text_completion_continues_and_echoes(client, model):
    settings = {"model": model.id, "temperature": 0, "max_tokens": 5}
    plain = client.completions.create(prompt="The capital", **settings)
    echoed = client.completions.create(prompt="The capital", echo=True, **settings)
    assert plain.object == "text_completion"
    assert echoed.choices[0].text == "The capital" + plain.choices[0].text
    chunks = client.completions.create(prompt="The capital", stream=True, **settings)
    assert "".join(chunk.choices[0].text for chunk in chunks) == plain.choices[0].text


def test_several_prompts_have_answers_in_order(client, model):
    settings = {"model": model.id, "temperature": 0, "max_tokens": 3}
    both = client.completions.create(prompt=["One", "Two"], echo=True, **settings)
    assert [choice.index for choice in both.choices] == [0, 1]
    assert both.choices[0].text.startswith("One") and both.choices[1].text.startswith("Two")


def test_text_logprobs_are_parallel_lists(client, model):
    answer = client.completions.create(
        model=model.id, prompt="The", temperature=0, max_tokens=4, logprobs=2
    )
    lists = answer.choices[0].logprobs
    count = len(lists.tokens)
    assert 0 < count <= 4
    assert len(lists.token_logprobs) == len(lists.top_logprobs) == len(lists.text_offset) == count
    assert lists.text_offset[0] == 0


TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "capital": {"type": "boolean"}},
    "required": ["city", "capital"],
    "additionalProperties": False,
}


def test_required_tools_are_called(client, model):
    settings = {"tools": [TOOL], "tool_choice": "required", "max_tokens": 200}
    choice = ask(client, model, **settings).choices[0]
    assert choice.finish_reason == "tool_calls"
    call = choice.message.tool_calls[0]
    assert call.type == "function" and call.id
    assert call.function.name == "get_weather"
    assert set(json.loads(call.function.arguments)) == {"city"}
    name, arguments = "", ""
    for chunk in ask(client, model, stream=True, **settings):
        for piece in chunk.choices[0].delta.tool_calls or []:
            if piece.index == 0:
                name += piece.function.name or ""
                arguments += piece.function.arguments or ""
    assert (name, arguments) == (call.function.name, call.function.arguments)


def test_results_of_tools_are_read(client, model):
    call = {"id": "c1", "type": "function"}
    call["function"] = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    messages = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ]
    answer = ask(client, model, messages, tools=[TOOL])
    assert answer.choices[0].finish_reason in ("stop", "length", "tool_calls")


@pytest.mark.parametrize("stream", [False, True])
def test_answers_are_valid_against_their_schema(client, model, stream):
    form = {"name": "city", "schema": SCHEMA, "strict": True}
    form = {"type": "json_schema", "json_schema": form}
    settings = {"response_format": form, "max_tokens": 200, "extra_body": NO_THINKING}
    answer = ask(client, model, stream=stream, **settings)
    text = joined(list(answer)) if stream else answer.choices[0].message.content
    found = json.loads(text)
    assert set(found) == {"city", "capital"}
    assert isinstance(found["city"], str) and isinstance(found["capital"], bool)


def test_answers_are_among_the_choices(client, model):
    body = {**NO_THINKING, "guided_choice": ["violet", "orange"]}
    answer = ask(client, model, extra_body=body)
    assert answer.choices[0].message.content in ("violet", "orange")


def test_streams_tell_their_usage_once(client, model):
    chunks = list(ask(client, model, stream=True, stream_options={"include_usage": True}))
    assert [chunk for chunk in chunks if chunk.usage] == chunks[-1:]
    usage = chunks[-1].usage
    details = usage.prompt_tokens_details
    written = details.to_dict()["cache_write_tokens"]
    assert details.cached_tokens + written == usage.prompt_tokens
    assert not any(chunk.usage for chunk in ask(client, model, stream=True))


def test_echoed_prompts_have_log_probabilities(client, model):
    prompt = "The capital of France"
    settings = {"model": model.id, "prompt": prompt, "echo": True, "logprobs": 1}
    choice = client.completions.create(max_tokens=0, **settings).choices[0]
    assert choice.text == prompt and choice.finish_reason == "length"
    lists = choice.logprobs
    assert lists.token_logprobs[0] is None and lists.top_logprobs[0] is None
    assert len(lists.tokens) == len(lists.token_logprobs) == len(lists.text_offset)
    for token, logprob, offset in zip(lists.tokens[1:], lists.token_logprobs[1:], lists.text_offset[1:]):
        assert logprob <= 0
        assert prompt[offset:].startswith(token)
    more = client.completions.create(max_tokens=2, temperature=0, **settings).choices[0]
    count = len(lists.tokens)
    assert more.logprobs.token_logprobs[1:count] == pytest.approx(lists.token_logprobs[1:], abs=1e-3)
    assert more.logprobs.text_offset[count:][:1] in ([len(prompt)], [])


def test_embeddings_are_unit_vectors_of_their_texts(client, model):
    texts = ["a cat", "a dog", "a cat"]
    found = client.embeddings.create(model=model.id, input=texts, encoding_format="float")
    vectors = [item.embedding for item in found.data]
    assert [item.index for item in found.data] == [0, 1, 2]
    for vector in vectors:
        assert sum(value * value for value in vector) == pytest.approx(1, abs=1e-3)
    assert vectors[0] == vectors[2] != vectors[1]
    assert found.usage.prompt_tokens == found.usage.total_tokens > 0
    # The client requests base64 by default.
    plain = client.embeddings.create(model=model.id, input=texts[0], dimensions=len(vectors[0]))
    assert plain.data[0].embedding == pytest.approx(vectors[0], abs=1e-6)
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model=model.id, input="a", dimensions=len(vectors[0]) + 1)
    assert caught.value.param == "dimensions"


def test_context_overflow_is_a_coded_bad_request(client, model):
    context = model.model_extra["context_length"]
    messages = [{"role": "user", "content": "a b " * context}]
    started = time.monotonic()
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, model, messages)
    assert time.monotonic() - started < 30
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.param == "messages"
    assert caught.value.body["n_ctx"] == context
    assert caught.value.body["n_prompt_tokens"] > context


@pytest.mark.parametrize(
    "settings, param",
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"top_logprobs": 30, "logprobs": True}, "top_logprobs"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"extra_body": {"guided_regex": "a", "guided_choice": ["b"]}}, "guided_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
    ],
)
def test_wrong_fields_are_named(client, model, settings, param):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, model, **settings)
    assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"


def test_unknown_routes_are_not_found(client):
    with pytest.raises(openai.NotFoundError):
        client.post("/nothing", body={}, cast_to=object)


def test_two_clients_are_both_answered(server, client, model):
    expected = ask(client, model).choices[0].message.content
    answers = []

    def one():
        answers.append(joined(ask(server.client(), model, stream=True)))

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert answers == [expected, expected]


def test_leaving_a_stream_frees_the_server(client, model):
    endless = {**NO_THINKING, "ignore_eos": True}
    stream = ask(client, model, stream=True, max_tokens=None, extra_body=endless)
    next(iter(stream))
    stream.close()
    started = time.monotonic()
    ask(client, model, max_tokens=1)
    assert time.monotonic() - started < 20


def test_async_client_streams(server, model):
    import asyncio

    async def text():
        settings = {"base_url": server.address + "/v1", "api_key": "none"}
        async with openai.AsyncOpenAI(**settings) as client:
            stream = await client.chat.completions.create(
                model=model.id,
                messages=QUESTION,
                temperature=0,
                max_tokens=24,
                stream=True,
                extra_body=NO_THINKING,
            )
            return joined([chunk async for chunk in stream])

    assert asyncio.run(text()) == ask(server.client(), model).choices[0].message.content


def test_health_and_version(server):
    def get(path):
        with urllib.request.urlopen(server.address + path) as response:
            return json.load(response)

    assert get("/health") == {"status": "ok"}
    assert get("/version")["name"] == "gannet"


def test_keys_and_shutdown():
    server = Server("--api-key", "secret")
    with pytest.raises(openai.AuthenticationError):
        server.client(api_key="wrong").models.list()
    assert server.client(api_key="secret").models.list().data
    assert server.stop() == 0
