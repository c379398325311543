"""Answers whose logits functions of the caller change, through sequences of the caller.

The functions run on the caller's thread and never within a step, so that other requests do not
wait for them. The bits of the logits are those of the sequence alone, whatever else is computed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence as SequenceOf
from typing import TYPE_CHECKING, Any

from gannet import _gannet, _options
from gannet._answers import Answer
from gannet._calls import Stream
from gannet._errors import RequestError
from gannet._sequence import Sampler

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gannet._engine import Engine

    #: A function of all tokens so far, those of the prompt included, and of the logits of the next
    #: one, which are read-only. It returns logits of the same shape.
    LogitsProcessor = Callable[[list[int], NDArray[np.float32]], NDArray[np.floating[Any]]]
    #: A function of all tokens so far, and of the logits of the last one; whether this is the end.
    StoppingCriterion = Callable[[list[int], NDArray[np.float32]], bool]

#: Options of a conversation that say what its prompt is.
OF_PROMPT = ("add_generation_prompt", "chat_template_kwargs", "enable_thinking", "reasoning_effort")


def chat(
    engine: Engine,
    body: dict[str, Any],
    processors: SequenceOf[LogitsProcessor],
    stream: bool,
    ends: StoppingCriterion | None = None,
) -> Answer | Stream:
    """Answers a conversation. The text holds the reasoning as the model writes it."""
    sampling = _sampling(body, ("messages", *OF_PROMPT))
    variables = dict(body.get("chat_template_kwargs") or {})
    variables.update({key: body[key] for key in OF_PROMPT[2:] if key in body})
    ids = engine.tokenizer.apply_chat_template(
        body["messages"],
        add_generation_prompt=body.get("add_generation_prompt", True),
        **variables,
    )
    parts = _generate(engine, ids, processors, sampling, ends)
    return _given(engine, parts, stream, "chat.completion")


def complete(
    engine: Engine,
    body: dict[str, Any],
    processors: SequenceOf[LogitsProcessor],
    stream: bool,
    ends: StoppingCriterion | None = None,
) -> Answer | Stream:
    """Continues a text or token ids."""
    sampling = _sampling(body, ("prompt", "add_special_tokens"))
    ids = body["prompt"]
    if isinstance(ids, str):
        special = body.get("add_special_tokens", True)
        ids = engine.tokenizer.encode(ids, add_special=special)
    parts = _generate(engine, ids, processors, sampling, ends)
    return _given(engine, parts, stream, "text_completion")


def _sampling(body: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """Returns the options of sampling. Others have no meaning here."""
    sampling = _options.names(_options.SamplingOptions)
    for name, value in body.items():
        neutral = name == "model" or (name == "n" and value == 1) or value is None
        if name not in sampling and name not in known and not neutral:
            raise RequestError(f"{name}: cannot be combined with logits_processors")
    return {name: value for name, value in body.items() if name in sampling}


class _Part:
    """Text of an answer, or its end."""

    __slots__ = ("text", "finish_reason", "usage")

    def __init__(self, text: str, reason: str | None = None, usage: Any = None) -> None:
        self.text, self.finish_reason, self.usage = text, reason, usage


def _generate(
    engine: Engine,
    prompt: list[int],
    processors: SequenceOf[LogitsProcessor],
    sampling: dict[str, Any],
    ends: StoppingCriterion | None,
) -> Generator[_Part, None, None]:
    sampler = Sampler(engine, **sampling)
    terms = sampler.terms
    stops = _Stops(terms["stop"], terms["include_stop"])
    room = engine.info["context_length"] - len(prompt)
    most = room if terms["max_tokens"] is None else min(room, terms["max_tokens"])
    least = terms["min_tokens"] or 0
    stop_ids, decoder = sampler.stop_ids, _gannet.Decoder(engine._server)
    ids, reason, generated = list(prompt), "length", 0
    with engine.sequence() as sequence:
        logits = sequence.push(prompt)
        while generated < most:
            row = _processed(ids, logits, processors)
            if generated < least:
                row = _without(row, stop_ids)
            token = sampler.choose(ids, row, len(prompt))
            if token in stop_ids:
                reason = "stop"
                break
            ids.append(token)
            generated += 1
            text = stops.push(decoder.push(token))
            if text:
                yield _Part(text)
            if stops.found or (ends is not None and ends(list(ids), logits)):
                reason = "stop"
                break
            if generated < most:
                logits = sequence.push([token])
    usage = {
        "prompt_tokens": len(prompt),
        "completion_tokens": generated,
        "total_tokens": len(prompt) + generated,
    }
    yield _Part(stops.rest(decoder.finish()), reason, usage)


def _processed(
    ids: list[int], logits: NDArray[np.float32], processors: SequenceOf[LogitsProcessor]
) -> NDArray[np.floating[Any]]:
    import numpy as np

    row: NDArray[np.floating[Any]] = logits
    for processor in processors:
        # A list of its own, so that a function cannot change the sequence.
        row = np.asarray(processor(list(ids), row))
        if row.shape != logits.shape:
            name = getattr(processor, "__name__", repr(processor))
            raise ValueError(
                f"logits processor {name}: expected logits of shape {logits.shape}, "
                f"found {row.shape}"
            )
    return row


def _without(row: NDArray[np.floating[Any]], ids: list[int]) -> NDArray[np.floating[Any]]:
    import numpy as np

    row = np.array(row)
    row[ids] = -np.inf
    return row


class _Stops:
    """Ends a text at one of some strings, as answers of requests end."""

    def __init__(self, stops: list[str], included: bool) -> None:
        self._strings, self._included = stops, included
        self._stops = _gannet.Stops(stops)
        #: Whether one of the strings was found.
        self.found = False

    def push(self, text: str) -> str:
        """Takes more text; returns what is certain to be part of the answer."""
        given, at = self._stops.push(text)
        if at is None or self.found:
            return given
        self.found = True
        return given + self._strings[at] if self._included else given

    def rest(self, text: str) -> str:
        """Takes the last text; returns what is left of the answer."""
        return self.push(text) + self._stops.finish()


def _given(
    engine: Engine, parts: Generator[_Part, None, None], stream: bool, kind: str
) -> Answer | Stream:
    head = {"model": engine.info["name"], "created": int(time.time())}
    chat = kind == "chat.completion"
    if stream:
        object_ = f"{kind}.chunk" if chat else kind
        return Stream(_bodies(parts, {**head, "object": object_}, chat))
    text, last = "", _Part("")
    for last in parts:
        text += last.text
    message = {"role": "assistant", "content": text}
    content: dict[str, Any] = {"message": message} if chat else {"text": text}
    choice = {"index": 0, **content, "finish_reason": last.finish_reason}
    return Answer({**head, "object": kind, "choices": [choice], "usage": last.usage})


def _bodies(
    parts: Generator[_Part, None, None], head: dict[str, Any], chat: bool
) -> Generator[dict[str, Any], None, None]:
    for part in parts:
        content = {"delta": {"content": part.text}} if chat else {"text": part.text}
        choice = {"index": 0, **content, "finish_reason": part.finish_reason}
        body = {**head, "choices": [choice]}
        yield body if part.usage is None else {**body, "usage": part.usage}
