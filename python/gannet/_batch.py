"""Many requests at a time, on the caller's thread."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from gannet import _errors
from gannet._answers import Answer
from gannet._gannet import Call, Pending, Ready


class Finished:
    """A request of a batch that has ended."""

    __slots__ = ("index", "error", "_answer")

    def __init__(self, index: int, answer: Answer | None, error: Exception | None) -> None:
        #: The place of the request among the requests.
        self.index = index
        #: Why it has no answer.
        self.error = error
        self._answer = answer

    @property
    def answer(self) -> Answer:
        """The answer. Raises the error of a request that has none."""
        if self._answer is None:
            raise self.error or RuntimeError("a request without an answer")
        return self._answer

    @property
    def text(self) -> str:
        """The text of the answer."""
        return self.answer.text

    def __repr__(self) -> str:
        return f"Finished({self.index}, {self._answer or self.error!r})"


class Progress(Protocol):
    """What shows how many requests have ended, such as a bar of tqdm."""

    def update(self, n: int) -> Any:
        """Adds ended requests."""

    def close(self) -> Any:
        """Ends the display."""


class _Running:
    """A call whose body is being read."""

    def __init__(self, index: int, call: Call) -> None:
        self.index, self.call = index, call
        self.parts: list[bytes] = []

    def finished(self) -> Finished | None:
        """Reads what is there; returns the end of the request, if this is it."""
        while not isinstance(part := self.call.next_now(), Pending):
            if part is None:
                return self._end()
            self.parts.append(part)
        return None

    def _end(self) -> Finished:
        status, body = self.call.status(), b"".join(self.parts)
        if status >= 400:
            return Finished(self.index, None, _errors.of_answer(status, body))
        return Finished(self.index, Answer(json.loads(body)), None)


def run(
    requests: Iterable[Any],
    send: Callable[[Any], Call],
    most: int,
    progress: Progress | None,
) -> Iterator[Finished]:
    """Answers requests, `most` at a time, in the order in which they end.

    Requests are taken from the iterator as earlier ones end. To drop the iterator ends those that
    run.
    """
    ready, running = Ready(), dict[int, _Running]()
    waiting = enumerate(requests)
    try:
        while True:
            while len(running) < most and (asked := next(waiting, None)) is not None:
                index, request = asked
                try:
                    call = send(request)
                except (ValueError, TypeError) as error:
                    yield _told(Finished(index, None, error), progress)
                    continue
                running[index] = _Running(index, call)
                call.on_ready(ready, index)
            if not running:
                return
            for index in ready.wait():
                if index in running and (ended := running[index].finished()) is not None:
                    del running[index]
                    yield _told(ended, progress)
    finally:
        for request in running.values():
            request.call.cancel()
        if progress is not None:
            progress.close()


def _told(finished: Finished, progress: Progress | None) -> Finished:
    if progress is not None:
        progress.update(1)
    return finished


def bar(progress: bool | Progress, total: int | None) -> Progress | None:
    """Returns a bar of tqdm, if it is wanted and installed."""
    if not isinstance(progress, bool):
        return progress
    if not progress:
        return None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    shown: Progress = tqdm(total=total, unit="request")
    return shown


def in_order(finished: Iterable[Finished]) -> list[Answer]:
    """Returns all answers in the order of their requests. Raises the first error."""
    ended = sorted(finished, key=lambda one: one.index)
    return [one.answer for one in ended]


__all__ = ["Finished", "Progress", "bar", "in_order", "run"]
