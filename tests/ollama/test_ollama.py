"""The official Ollama client against a running `gannet serve`.

GANNET_BIN names the binary; GANNET_MODEL, if set, the model (the built-in one by default). Run with

    python -m venv .venv && .venv/bin/pip install -r tests/ollama/requirements.txt
    GANNET_BIN=target/release/gannet .venv/bin/python -m pytest tests/ollama

The tests check the shapes and laws of the protocol rather than the words of an answer, so that
they hold for any model.
"""

import datetime

import ollama
import pytest
from serving import Server

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
SHORT = {"temperature": 0, "num_predict": 24}


@pytest.fixture(scope="session")
def client():
    server = Server()
    yield ollama.Client(host=server.address, timeout=120)
    server.stop()


@pytest.fixture(scope="session")
def model(client):
    return client.list().models[0].model


def chat(client, model, **settings):
    settings = {"messages": QUESTION, "options": SHORT, "think": False, **settings}
    return client.chat(model=model, **settings)


def check_totals(answer, most=24):
    assert answer.done and answer.done_reason in ("stop", "length")
    assert answer.prompt_eval_count > 0 and 0 < answer.eval_count <= most
    parts = (answer.load_duration, answer.prompt_eval_duration, answer.eval_duration)
    assert min(parts) >= 0 and max(parts) <= answer.total_duration
    assert datetime.datetime.fromisoformat(answer.created_at).utcoffset().total_seconds() == 0


def test_the_model_is_listed_loaded_and_shown(client, model):
    listed = client.list().models
    assert len(listed) == 1 and listed[0].size > 0 and listed[0].digest
    assert listed[0].details.format in ("gguf", "safetensors")
    assert listed[0].details.parameter_size and listed[0].details.quantization_level
    running = client.ps().models[0]
    assert running.model == model and running.digest == listed[0].digest
    assert running.context_length > 0
    assert running.expires_at > datetime.datetime.now(datetime.timezone.utc)
    shown = client.show(model)
    assert "completion" in shown.capabilities and shown.template
    family = shown.modelinfo["general.architecture"]
    assert family == listed[0].details.family
    assert shown.modelinfo[f"{family}.context_length"] > 0
    assert shown.modelinfo["general.parameter_count"] > 0


def test_chat_answers_with_totals(client, model):
    answer = chat(client, model)
    assert answer.message.role == "assistant" and answer.message.content
    assert answer.model == model
    check_totals(answer)


def test_any_name_with_a_tag_will_do(client, model):
    assert chat(client, model + ":latest").model == model


def test_stream_says_what_the_whole_answer_says(client, model):
    whole = chat(client, model)
    parts = list(chat(client, model, stream=True))
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    check_totals(parts[-1])
    assert parts[-1].eval_count == whole.eval_count
    assert parts[-1].prompt_eval_count == whole.prompt_eval_count


def test_limit_and_stop_string_end_the_answer(client, model):
    answer = chat(client, model, options={**SHORT, "num_predict": 1})
    assert answer.eval_count == 1
    whole = chat(client, model).message.content
    stop = whole[len(whole) // 2 :][:3]
    cut = chat(client, model, options={**SHORT, "stop": [stop]})
    assert cut.message.content == whole[: whole.index(stop)]
    assert cut.done_reason == "stop"


def test_a_seed_gives_one_answer(client, model):
    options = {"temperature": 1.5, "seed": 7, "num_predict": 12}
    answers = {chat(client, model, options=options).message.content for _ in range(3)}
    assert len(answers) == 1


def test_generation_goes_on_from_its_context(client, model):
    settings = {"options": SHORT, "think": False}
    first = client.generate(model=model, prompt="Name a colour.", **settings)
    assert first.response and first.context
    check_totals(first)
    assert len(first.context) >= first.prompt_eval_count + first.eval_count
    second = client.generate(
        model=model, prompt="Another one?", context=first.context, **settings
    )
    assert second.context[: len(first.context)] == first.context
    assert second.prompt_eval_count > len(first.context)


def test_generation_streams(client, model):
    settings = {"prompt": "Name a colour.", "options": SHORT, "think": False}
    whole = client.generate(model=model, **settings)
    parts = list(client.generate(model=model, stream=True, **settings))
    assert "".join(part.response for part in parts) == whole.response
    assert parts[-1].done and parts[-1].context == whole.context


def test_raw_generation_goes_without_a_template(client, model):
    raw = client.generate(model=model, prompt="The capital of", raw=True, options=SHORT)
    assert raw.context is None
    told = client.generate(model=model, prompt="The capital of", options=SHORT, think=False)
    assert raw.prompt_eval_count < told.prompt_eval_count


def test_log_probabilities_tell_every_token(client, model):
    answer = chat(client, model, options={**SHORT, "num_predict": 4}, logprobs=True, top_logprobs=3)
    assert 0 < len(answer.logprobs) <= 4
    for token in answer.logprobs:
        assert token.logprob <= 0 and len(token.top_logprobs) == 3


def test_tools_are_told_to_the_model(client, model):
    def weather(city: str) -> str:
        """The weather in a city.

        Args:
            city: The city.
        """
        return city

    plain = chat(client, model)
    told = chat(client, model, tools=[weather])
    assert told.prompt_eval_count > plain.prompt_eval_count
    call = {"function": {"name": "weather", "arguments": {"city": "Paris"}}}
    messages = QUESTION + [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "sunny", "tool_name": "weather"},
    ]
    answered = chat(client, model, messages=messages, tools=[weather])
    assert answered.prompt_eval_count > told.prompt_eval_count


def test_loading_and_unloading_are_answered(client, model):
    assert client.generate(model=model).done_reason == "load"
    assert client.chat(model=model, keep_alive="10m").done_reason == "load"
    assert client.generate(model=model, keep_alive=0).done_reason == "unload"
    assert chat(client, model).message.content


def check_error(status, ask):
    with pytest.raises(ollama.ResponseError) as caught:
        ask()
    assert caught.value.status_code == status
    return caught.value.error


def test_errors_have_a_status_and_a_message(client, model):
    assert "temperature" in check_error(
        400, lambda: chat(client, model, options={"temperature": -1})
    )
    context = client.ps().models[0].context_length
    long = [{"role": "user", "content": "word " * (context + 1)}]
    assert str(context) in check_error(400, lambda: chat(client, model, messages=long))
    stream = chat(client, model, stream=True, options={"top_p": 2})
    assert "top_p" in check_error(400, lambda: list(stream))
    assert "one model" in check_error(501, lambda: client.pull("llama3"))
    assert "one model" in check_error(501, lambda: client.copy(model, "other"))
