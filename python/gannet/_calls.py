"""Calls of the server's routes: waiting for them in a thread, and reading their answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol

from gannet import _errors
from gannet._answers import Answer, Delta
from gannet._closing import Closing
from gannet._gannet import Call


def checked(call: Call) -> Call:
    """Waits for the status of an answer.

    Raises the error that the answer tells.
    """
    status = call.status()
    if status >= 400:
        raise _errors.of_answer(status, whole(call))
    return call


def whole(call: Call) -> bytes:
    """Waits for the whole body."""
    parts = []
    while (part := call.next()) is not None:
        parts.append(part)
    return b"".join(parts)


def event(data: bytes) -> Any:
    """Reads the data of an event. Raises the error that it tells."""
    body = json.loads(data)
    if isinstance(body, dict) and body.get("error"):
        raise _errors.EngineError(_errors.message_of(body) or data.decode(errors="replace"))
    return body


class Events(Iterator[Any], Closing):
    """The events of a streamed answer, as values of JSON. To drop them ends the computation."""

    def __init__(self, call: Call) -> None:
        self._call: Call | None = call

    def __iter__(self) -> Events:
        return self

    def __next__(self) -> Any:
        if self._call is None:
            raise StopIteration
        try:
            data = self._call.next()
            if data is None:
                raise StopIteration
            return event(data)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the computation, if it has not ended yet."""
        if self._call is not None:
            self._call.cancel()
            self._call = None


class _Source(Protocol):
    """Where the bodies of a stream come from."""

    def __next__(self) -> Any: ...

    def close(self) -> None: ...


class Stream(Iterator[Delta], Closing):
    """An answer, part by part. To drop it, or to close it, ends the computation."""

    def __init__(self, events: _Source) -> None:
        self._events = events

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Delta:
        return Delta(next(self._events))

    def close(self) -> None:
        """Ends the computation, if it has not ended yet."""
        self._events.close()


def answer(call: Call) -> Answer:
    """Waits for a whole answer."""
    return Answer(json.loads(whole(checked(call))))
