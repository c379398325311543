"""LiteLLM against `gannet serve`, through three of its providers.

    python -m venv target/venv-clients
    target/venv-clients/bin/pip install -r tests/clients/requirements.txt
    GANNET_BIN=target/release/gannet target/venv-clients/bin/python tests/clients/check_litellm.py

`.ci/run` runs it in an environment of its own, because LiteLLM brings a hundred packages.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from serving import Server  # noqa: E402

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm  # noqa: E402

litellm.telemetry = False
CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def providers(address):
    """For each provider a model name and the base address."""
    yield "openai/any", f"{address}/v1"
    yield "anthropic/any", address
    yield "ollama_chat/any", address


def ask(model, base, messages, **settings):
    settings = {"temperature": 0, "max_tokens": 200, "api_key": "none", **settings}
    return litellm.completion(model=model, api_base=base, messages=messages, **settings)


def check_completion(model, base):
    answer = ask(model, base, CAPITAL)
    assert "Paris" in answer.choices[0].message.content, answer
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens > 0 and answer.usage.completion_tokens > 0
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    return answer


def check_stream(model, base, whole):
    chunks = list(ask(model, base, CAPITAL, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content, text
    assert any(chunk.choices and chunk.choices[0].finish_reason == "stop" for chunk in chunks)


def check_tools(model, base):
    answer = ask(model, base, WEATHER, tools=[TOOL])
    [call] = answer.choices[0].message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    assert answer.choices[0].finish_reason == "tool_calls"
    history = [
        *WEATHER,
        answer.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "name": "get_weather", "content": "sunny"},
    ]
    assert ask(model, base, history, tools=[TOOL]).choices[0].message
    chunks = list(ask(model, base, WEATHER, tools=[TOOL], stream=True))
    calls = [
        call
        for chunk in chunks
        if chunk.choices
        for call in chunk.choices[0].delta.tool_calls or []
    ]
    assert calls[0].function.name == "get_weather"
    arguments = "".join(call.function.arguments or "" for call in calls)
    assert json.loads(arguments) == {"city": "Paris"}, arguments


def check_overflow(model, base):
    try:
        ask(model, base, [{"role": "user", "content": " the" * 3000}])
    except litellm.BadRequestError as error:
        assert "2048" in str(error) or "2047" in str(error), error
        return isinstance(error, litellm.ContextWindowExceededError)
    except litellm.APIConnectionError as error:
        # The provider for Ollama turns every error into this one.
        assert "2048" in str(error), error
        return None
    raise AssertionError("nothing was refused")


def main():
    server = Server()
    try:
        for model, base in providers(server.address):
            whole = check_completion(model, base)
            check_stream(model, base, whole)
            check_tools(model, base)
            known = check_overflow(model, base)
            print(f"{model}: completion, stream, tools; known as an overflow: {known}")
    finally:
        server.stop()


if __name__ == "__main__":
    main()
