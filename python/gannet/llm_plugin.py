"""A plugin of the program `llm`: `llm -m gannet/builtin "Hello"`.

A model is named `gannet/` and what `gannet.Engine` takes: `gannet/builtin`, `gannet/owner/name`,
`gannet/path/model.gguf`. Those that `GANNET_MODELS` lists, separated by spaces or commas, and the
built-in one are registered; each is loaded when it is first used.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import llm

from gannet._engine import Engine

if TYPE_CHECKING:
    from numpy.typing import NDArray

_engines: dict[str, Engine] = {}


def _engine(model: str) -> Engine:
    if model not in _engines:
        _engines[model] = Engine(model)
    return _engines[model]


def _names() -> list[str]:
    listed = re.split(r"[\s,]+", os.environ.get("GANNET_MODELS", ""))
    return list(dict.fromkeys(["builtin", *filter(None, listed)]))


class GannetModel(llm.Model):  # type: ignore[misc, unused-ignore]
    """A model for `llm`."""

    can_stream = True
    supports_schema = True
    supports_tools = True

    class Options(llm.Options):  # type: ignore[misc, unused-ignore]
        """Options of requests, with OpenAI's names."""

        temperature: float | None = None
        top_p: float | None = None
        top_k: int | None = None
        min_p: float | None = None
        max_tokens: int | None = None
        seed: int | None = None

    def __init__(self, model: str) -> None:
        self.model_id = f"gannet/{model}"
        self._model = model

    def execute(
        self, prompt: Any, stream: bool, response: Any, conversation: Any
    ) -> Iterator[str]:
        """Answers a prompt."""
        messages = _messages(prompt, conversation)
        options = _options(prompt)
        engine = _engine(self._model)
        if not stream:
            answer = engine.chat(messages, **options)
            _add_calls(response, answer.tool_calls)
            response.set_usage(
                input=answer.usage.get("prompt_tokens"),
                output=answer.usage.get("completion_tokens"),
            )
            yield answer.text
            return
        calls: dict[int, dict[str, Any]] = {}
        for delta in engine.chat(
            messages, stream=True, stream_options={"include_usage": True}, **options
        ):
            _gather(calls, delta.body)
            if delta.usage:
                response.set_usage(
                    input=delta.usage.get("prompt_tokens"),
                    output=delta.usage.get("completion_tokens"),
                )
            if delta.text:
                yield delta.text
        for call in calls.values():
            response.add_tool_call(
                llm.ToolCall(
                    name=call["name"],
                    arguments=_arguments(call["arguments"]),
                    tool_call_id=call["id"],
                )
            )

    def __str__(self) -> str:
        return f"Gannet: {self.model_id}"


class GannetEmbedding(llm.EmbeddingModel):  # type: ignore[misc, unused-ignore]
    """A model of embeddings for `llm`."""

    def __init__(self, model: str) -> None:
        self.model_id = f"gannet/{model}"
        self._model = model

    def embed_batch(
        self, items: Iterable[str | bytes], *, key: str | None = None
    ) -> Iterator[list[float]]:
        """Returns the vectors of texts."""
        texts = [item.decode() if isinstance(item, bytes) else item for item in items]
        vectors: NDArray[Any] = _engine(self._model).embed(texts)
        yield from vectors.tolist()


def _options(prompt: Any) -> dict[str, Any]:
    options = {name: value for name, value in prompt.options if value is not None}
    if prompt.schema:
        schema = {"name": "schema", "schema": prompt.schema}
        options["response_format"] = {"type": "json_schema", "json_schema": schema}
    if prompt.tools:
        options["tools"] = [_tool(tool) for tool in prompt.tools]
    return options


def _tool(tool: Any) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description or "",
        "parameters": tool.input_schema or {"type": "object", "properties": {}},
    }
    return {"type": "function", "function": function}


def _messages(prompt: Any, conversation: Any) -> list[dict[str, Any]]:
    """Returns the conversation so far, in OpenAI's form."""
    messages: list[dict[str, Any]] = []
    system = None
    for earlier in conversation.responses if conversation is not None else ():
        if earlier.prompt.system and earlier.prompt.system != system:
            system = earlier.prompt.system
            messages.append({"role": "system", "content": system})
        messages += _asked(earlier.prompt)
        said: dict[str, Any] = {"role": "assistant", "content": earlier.text_or_raise()}
        if calls := earlier.tool_calls_or_raise():
            said["tool_calls"] = [_call(call) for call in calls]
        messages.append(said)
    if prompt.system and prompt.system != system:
        messages.append({"role": "system", "content": prompt.system})
    return messages + _asked(prompt)


def _asked(prompt: Any) -> list[dict[str, Any]]:
    results = [
        {"role": "tool", "tool_call_id": result.tool_call_id, "content": result.output}
        for result in prompt.tool_results
    ]
    text = [{"role": "user", "content": prompt.prompt}] if prompt.prompt else []
    return results + text


def _call(call: Any) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": call.tool_call_id, "type": "function", "function": function}


def _add_calls(response: Any, calls: Iterable[Any]) -> None:
    for call in calls:
        arguments = _arguments(call.arguments)
        response.add_tool_call(
            llm.ToolCall(name=call.name, arguments=arguments, tool_call_id=call.id)
        )


def _gather(calls: dict[int, dict[str, Any]], body: dict[str, Any]) -> None:
    """Adds the parts of tool calls of a chunk to those that came before."""
    for choice in body.get("choices") or ():
        for part in choice["delta"].get("tool_calls") or ():
            call = calls.setdefault(part["index"], {"id": None, "name": "", "arguments": ""})
            call["id"] = part.get("id") or call["id"]
            function = part.get("function") or {}
            call["name"] += function.get("name") or ""
            call["arguments"] += function.get("arguments") or ""


def _arguments(text: str) -> dict[str, Any]:
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        arguments = {}
    return arguments if isinstance(arguments, dict) else {}


@llm.hookimpl  # type: ignore[untyped-decorator, unused-ignore]
def register_models(register: Callable[..., None]) -> None:
    """Registers the models of `GANNET_MODELS`."""
    for name in _names():
        register(GannetModel(name))


@llm.hookimpl  # type: ignore[untyped-decorator, unused-ignore]
def register_embedding_models(register: Callable[..., None]) -> None:
    """Registers the same models for embeddings."""
    for name in _names():
        register(GannetEmbedding(name))
