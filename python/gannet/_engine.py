"""The engine: a loaded model with every route of the server, in this process."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence as SequenceOf
from typing import TYPE_CHECKING, Any, Literal, overload

from gannet import _batch, _calls, _gannet, _options
from gannet._answers import Answer
from gannet._calls import Events, Stream
from gannet._closing import Closing
from gannet._sequence import Sequence, SequenceOptions, TokenIds, ids_of
from gannet._tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from gannet._async import AsyncAnswer
    from gannet._options import (
        ChatOptions,
        CompletionOptions,
        EmbedOptions,
        EngineOptions,
        RerankOptions,
        ScoreOptions,
    )
    from gannet._processors import LogitsProcessor

#: A question, or a conversation in OpenAI's form.
Messages = str | SequenceOf[Mapping[str, Any]]
#: A request of a batch: a question, a conversation, or a body with `messages` or `prompt`.
Request = str | SequenceOf[Mapping[str, Any]] | Mapping[str, Any]

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
#: The most texts of one request for embeddings.
MAX_TEXTS = 2048


class Engine(Closing):
    """A loaded model.

    `model` is a folder, a file, `owner/name` on a hub, or `"builtin"`. Options are named as the
    flags of the program: `kv_memory="4GiB"`, `threads=2`. All threads may use an engine at the same
    time. `close`, the end of a `with` block, or the last reference frees its memory.
    """

    def __init__(self, model: str | os.PathLike[str], **options: Unpack[EngineOptions]) -> None:
        _options.check("Engine", options, _options.names(_options.EngineOptions))
        given = {"model": os.fspath(model), **options}
        self._server = _gannet.Server(_json("Engine", given))
        #: Encodes and decodes text.
        self.tokenizer = Tokenizer(self._server)

    @overload
    def chat(
        self,
        messages: Messages,
        *,
        stream: Literal[False] = False,
        logits_processors: SequenceOf[LogitsProcessor] | None = None,
        **options: Unpack[ChatOptions],
    ) -> Answer: ...

    @overload
    def chat(
        self,
        messages: Messages,
        *,
        stream: Literal[True],
        logits_processors: SequenceOf[LogitsProcessor] | None = None,
        **options: Unpack[ChatOptions],
    ) -> Stream: ...

    @overload
    def chat(
        self,
        messages: Messages,
        *,
        stream: bool,
        logits_processors: SequenceOf[LogitsProcessor] | None = None,
        **options: Unpack[ChatOptions],
    ) -> Answer | Stream: ...

    def chat(
        self,
        messages: Messages,
        *,
        stream: bool = False,
        logits_processors: SequenceOf[LogitsProcessor] | None = None,
        **options: Unpack[ChatOptions],
    ) -> Answer | Stream:
        """Answers a question or a conversation.

        With `stream`, returns the parts of the answer as they are generated. With
        `logits_processors`, functions `f(ids, logits) -> logits` change the logits of every token
        on the caller's thread.
        """
        body = _chat_body("chat", messages, options)
        if logits_processors:
            from gannet import _processors

            return _processors.chat(self, body, logits_processors, stream)
        return self._answer(CHAT, body, stream)

    def achat(self, messages: Messages, **options: Unpack[ChatOptions]) -> AsyncAnswer:
        """Answers a conversation for `await`, or part by part for `async for`."""
        return self._async(CHAT, _chat_body("achat", messages, options))

    @overload
    def complete(
        self,
        prompt: str | TokenIds,
        *,
        stream: Literal[False] = False,
        logits_processors: SequenceOf[LogitsProcessor] | None = None,
        **options: Unpack[CompletionOptions],
    ) -> Answer: ...

    @overload
    def complete(
        self,
        prompt: str | TokenIds,
        *,
        stream: Literal[True],
        logits_processors: SequenceOf[LogitsProcessor] | None = None,
        **options: Unpack[CompletionOptions],
    ) -> Stream: ...

    @overload
    def complete(
        self,
        prompt: str | TokenIds,
        *,
        stream: bool,
        logits_processors: SequenceOf[LogitsProcessor] | None = None,
        **options: Unpack[CompletionOptions],
    ) -> Answer | Stream: ...

    def complete(
        self,
        prompt: str | TokenIds,
        *,
        stream: bool = False,
        logits_processors: SequenceOf[LogitsProcessor] | None = None,
        **options: Unpack[CompletionOptions],
    ) -> Answer | Stream:
        """Continues a text or token ids, without a chat template; otherwise as `chat`."""
        body = _completion_body("complete", prompt, options)
        if logits_processors:
            from gannet import _processors

            return _processors.complete(self, body, logits_processors, stream)
        return self._answer(COMPLETIONS, body, stream)

    def acomplete(
        self, prompt: str | TokenIds, **options: Unpack[CompletionOptions]
    ) -> AsyncAnswer:
        """Continues a text for `await`, or part by part for `async for`."""
        return self._async(COMPLETIONS, _completion_body("acomplete", prompt, options))

    def batch(
        self,
        requests: Iterable[Request],
        *,
        progress: bool | _batch.Progress = False,
        parallel: int | None = None,
        **options: Unpack[ChatOptions],
    ) -> Iterator[_batch.Finished]:
        """Answers many requests, in the order in which they end.

        A request is a question, a conversation, or a dictionary with `messages` or `prompt` and
        options of its own; `options` are those of all others. A request that is refused is an
        error of its own and does not affect the others. `progress` shows a bar of tqdm, if tqdm is
        installed. `parallel` requests are under way at a time, by default twice as many as the
        engine computes.
        """
        _options.check("batch", options, _options.names(_options.ChatOptions))
        total = len(requests) if isinstance(requests, SequenceOf) else None
        most = max(parallel or 2 * self.parallel, 1)

        def send(request: Request) -> _gannet.Call:
            path, body = _request(request, options)
            return self._send(path, body)

        return _batch.run(requests, send, most, _batch.bar(progress, total))

    def embed(
        self, texts: str | SequenceOf[str | TokenIds], **options: Unpack[EmbedOptions]
    ) -> NDArray[np.float32]:
        """Returns the vectors of texts, `[n, d]`, or the vector of one text, `[d]`."""
        import numpy as np

        _options.check("embed", options, _options.names(_options.EmbedOptions))
        inputs: list[Any] = [texts] if isinstance(texts, str) else [_input(it) for it in texts]
        vectors: list[NDArray[np.float32]] = []
        for start in range(0, len(inputs), MAX_TEXTS):
            part = inputs[start : start + MAX_TEXTS]
            body = {**options, "input": part, "encoding_format": "base64"}
            for item in self.call("/v1/embeddings", body)["data"]:
                vectors.append(np.frombuffer(base64.b64decode(item["embedding"]), dtype="<f4"))
        if isinstance(texts, str):
            return vectors[0]
        return np.stack(vectors) if vectors else np.zeros((0, 0), np.float32)

    def score(
        self,
        query: str | SequenceOf[str],
        documents: str | SequenceOf[str],
        **options: Unpack[ScoreOptions],
    ) -> NDArray[np.float32]:
        """Returns how relevant each document is for the query, or for its own query, `[n]`."""
        import numpy as np

        _options.check("score", options, _options.names(_options.ScoreOptions))
        body = {**options, "text_1": query, "text_2": documents}
        scores = self.call("/v1/score", body)["data"]
        return np.array([item["score"] for item in scores], dtype=np.float32)

    def rerank(
        self, query: str, documents: SequenceOf[str], **options: Unpack[RerankOptions]
    ) -> list[tuple[int, float]]:
        """Returns the indices and scores of documents, the most relevant first."""
        _options.check("rerank", options, _options.names(_options.RerankOptions))
        body = {**options, "query": query, "documents": list(documents)}
        ranked = self.call("/v1/rerank", body)["results"]
        return [(item["index"], item["relevance_score"]) for item in ranked]

    def sequence(
        self, ids: TokenIds | None = None, **options: Unpack[SequenceOptions]
    ) -> Sequence:
        """Returns a sequence that the caller leads: tokens in, logits out.

        `ids` are its first tokens; nothing is computed of them before the first `push`. Options
        are `max_tokens`, `idle_seconds`, `priority`, `cache_salt`, and `adapters`: pairs of an
        adapter's number and its factor.
        """
        sequence = Sequence(self._server, **options)
        if ids is not None and len(ids) > 0:
            sequence.append(ids)
        return sequence

    def call(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        method: str | None = None,
    ) -> Any:
        """Calls a route of the server and returns its JSON, or the text of what is none.

        With `"stream": True` in the body, returns an iterator over the events.
        """
        call = self._send(path, body, method)
        if body is not None and body.get("stream"):
            return Events(_calls.checked(call))
        return _value(_calls.whole(_calls.checked(call)))

    async def acall(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        method: str | None = None,
    ) -> Any:
        """Calls a route of the server for `await`; the answer is whole."""
        from gannet import _async

        return _value(await _async.called(self._send(path, body, method)))

    @property
    def info(self) -> dict[str, Any]:
        """Facts about the model: `name`, `context_length`, `vocab_size` and others."""
        info: dict[str, Any] = json.loads(self._server.info())
        return info

    @property
    def parallel(self) -> int:
        """The number of answers computed at a time."""
        parallel: int = self.info["parallel"]
        return parallel

    @property
    def closed(self) -> bool:
        """Whether the engine was closed, or has ended."""
        return not self._server.is_alive()

    def close(self) -> None:
        """Ends the engine and frees its memory. Calls and sequences that are open end."""
        self._server.close()

    def __repr__(self) -> str:
        return "Engine(closed)" if self.closed else f"Engine({self.info['name']!r})"

    def _send(
        self, path: str, body: Mapping[str, Any] | None = None, method: str | None = None
    ) -> _gannet.Call:
        data = b"" if body is None else _json(path, body).encode()
        return self._server.call(method or ("GET" if body is None else "POST"), path, data)

    def _answer(self, path: str, body: dict[str, Any], stream: bool) -> Answer | Stream:
        if stream:
            return Stream(Events(_calls.checked(self._send(path, {**body, "stream": True}))))
        return _calls.answer(self._send(path, body))

    def _async(self, path: str, body: dict[str, Any]) -> AsyncAnswer:
        from gannet._async import AsyncAnswer

        def send(stream: bool) -> _gannet.Call:
            return self._send(path, {**body, "stream": True} if stream else body)

        return AsyncAnswer(send)


def _json(method: str, value: Mapping[str, Any]) -> str:
    try:
        return json.dumps(value, default=_plain)
    except TypeError as error:
        raise TypeError(f"{method}: {error}") from None


def _plain(value: Any) -> Any:
    """Returns scalars and arrays of numpy, paths and mappings as values of JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(f"expected a value of JSON, found {type(value).__name__}")


def _value(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")


def _input(text: str | TokenIds) -> Any:
    return text if isinstance(text, str) else list(text)


def _messages(messages: Messages) -> list[Any]:
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)


def _chat_body(method: str, messages: Messages, options: Mapping[str, Any]) -> dict[str, Any]:
    _options.check(method, options, _options.names(_options.ChatOptions))
    return {**options, "messages": _messages(messages)}


def _completion_body(
    method: str, prompt: str | TokenIds, options: Mapping[str, Any]
) -> dict[str, Any]:
    _options.check(method, options, _options.names(_options.CompletionOptions))
    return {**options, "prompt": prompt if isinstance(prompt, str) else ids_of(prompt).tolist()}


def _request(request: Request, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the route and the body of a request of a batch."""
    if not isinstance(request, Mapping):
        return CHAT, {**options, "messages": _messages(request)}
    own = {**options, **request}
    if ("messages" in own) == ("prompt" in own):
        raise ValueError("a request of a batch: expected either messages or prompt")
    if "stream" in own:
        raise ValueError("stream: expected a whole answer in a batch")
    if "messages" in own:
        return CHAT, _chat_body("batch", own.pop("messages"), own)
    return COMPLETIONS, _completion_body("batch", own.pop("prompt"), own)


