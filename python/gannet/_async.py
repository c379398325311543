"""Answers for `asyncio`. One descriptor for each event loop says which calls have something new.

The threads of the runtime write to the descriptor and never wait for the interpreter, and no
request has a thread.
"""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any

from gannet import _errors
from gannet._answers import Answer, Delta
from gannet._calls import event
from gannet._gannet import Call, Pending, Ready


class _LoopReady:
    """Wakes the tasks of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ready = Ready()
        self._events: dict[int, asyncio.Event] = {}
        self._last = 0
        loop.add_reader(self._ready.fileno(), self._wake)

    def watch(self, call: Call) -> _Watch:
        self._last += 1
        changed = self._events[self._last] = asyncio.Event()
        call.on_ready(self._ready, self._last)
        return _Watch(self._events, self._last, changed)

    def _wake(self) -> None:
        for key in self._ready.take():
            if (changed := self._events.get(key)) is not None:
                changed.set()


class _Watch:
    """Tells a task that its call has something new."""

    def __init__(self, events: dict[int, asyncio.Event], key: int, changed: asyncio.Event) -> None:
        self._events, self._key, self._changed = events, key, changed

    async def changed(self) -> None:
        await self._changed.wait()

    def clear(self) -> None:
        self._changed.clear()

    def close(self) -> None:
        self._events.pop(self._key, None)


_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopReady] = (
    weakref.WeakKeyDictionary()
)


def _watch(call: Call) -> _Watch:
    loop = asyncio.get_running_loop()
    ready = _loops.get(loop)
    if ready is None:
        ready = _loops[loop] = _LoopReady(loop)
    return ready.watch(call)


class _AsyncCall:
    """A call whose chunks are awaited. To drop it ends the computation."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._watch = _watch(call)
        self._first: bytes | None = None

    async def next(self) -> bytes | None:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        while True:
            # Cleared before the look: what comes in between sets it again.
            self._watch.clear()
            chunk = self._call.next_now()
            if not isinstance(chunk, Pending):
                return chunk
            await self._changed()

    async def whole(self) -> bytes:
        parts = []
        while (part := await self.next()) is not None:
            parts.append(part)
        return b"".join(parts)

    async def checked(self) -> None:
        # The status is known when the first chunk is there.
        self._first = await self.next()
        if (status := self._call.status()) >= 400:
            raise _errors.of_answer(status, await self.whole())

    async def _changed(self) -> None:
        try:
            await self._watch.changed()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._call.cancel()
        self._watch.close()

    def __del__(self) -> None:
        self._watch.close()


class AsyncAnswer(AsyncIterator[Delta]):
    """An answer that is awaited as a whole, or iterated over part by part with `async for`.

    The request is sent when the answer is first waited for. To cancel the task, to drop the
    iterator or to call `aclose` ends the computation.
    """

    def __init__(self, send: Callable[[bool], Call]) -> None:
        self._send = send
        self._call: _AsyncCall | None = None
        self._ended = False

    def __await__(self) -> Generator[Any, None, Answer]:
        return self._answer().__await__()

    async def _answer(self) -> Answer:
        call = _AsyncCall(self._send(False))
        await call.checked()
        return Answer(json.loads(await call.whole()))

    def __aiter__(self) -> AsyncAnswer:
        return self

    async def __anext__(self) -> Delta:
        if self._ended:
            raise StopAsyncIteration
        try:
            if self._call is None:
                self._call = _AsyncCall(self._send(True))
                await self._call.checked()
            data = await self._call.next()
            if data is None:
                raise StopAsyncIteration
            return Delta(event(data))
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Ends the computation, if it has not ended yet."""
        self._ended = True
        if self._call is not None:
            self._call.close()
            self._call = None


async def called(call: Call) -> bytes:
    """Waits for the body of a call. Raises the error that the answer tells."""
    waiting = _AsyncCall(call)
    await waiting.checked()
    return await waiting.whole()
