"""Sequences that the caller leads, and samplers for their logits."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Sequence as SequenceOf
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, overload

from gannet import _gannet, _options
from gannet._closing import Closing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from gannet._engine import Engine
    from gannet._options import SamplingOptions

#: Token ids: a list, or an array of integers.
TokenIds: TypeAlias = "SequenceOf[int] | array[int] | NDArray[np.integer[Any]]"

#: What `Sequence.push` returns: the logits after the last token, those after every token, the
#: last hidden state of every token, or nothing.
Want: TypeAlias = 'Literal["last", "all", "hidden"] | None'


class SequenceOptions(TypedDict, total=False):
    """The options of `Engine.sequence`."""

    max_tokens: int
    idle_seconds: float
    priority: int
    cache_salt: str
    adapters: SequenceOf[tuple[int, float]]


def ids_of(ids: TokenIds) -> array[int]:
    """Returns ids as an array of 32-bit numbers."""
    if isinstance(ids, array) and ids.typecode == "I":
        return ids
    try:
        # An array of numpy gives numbers of Python much faster at once than one by one.
        return array("I", ids.tolist() if hasattr(ids, "tolist") else ids)
    except (TypeError, OverflowError) as error:
        expected = "expected integers from 0 to 2**32 - 1"
        raise ValueError(f"token ids: {expected}, found {error}") from None


def _array(rows: _gannet.Rows) -> NDArray[np.float32]:
    import numpy as np

    values: NDArray[np.float32] = np.asarray(rows)
    return values


class Sequence(Closing):
    """A sequence of tokens that the caller leads: tokens in, logits out.

    Logits are those of the model, before any sampler, with the bits that they have when the
    sequence is computed alone. Arrays are read-only and share the engine's memory of the row.
    """

    def __init__(self, server: _gannet.Server, **options: Unpack[SequenceOptions]) -> None:
        _options.check("sequence", options, _options.names(SequenceOptions))
        # Not freed while the sequence is used, even if the caller holds nothing else of it.
        self._server, self._led = server, server.sequence(json.dumps(options))
        self._ahead = array("I")

    def append(self, ids: TokenIds) -> None:
        """Adds tokens that the next `push` computes with its own."""
        self._ahead.extend(ids_of(ids))

    @overload
    def push(self, ids: TokenIds, want: Literal["last"] = "last") -> NDArray[np.float32]: ...

    @overload
    def push(self, ids: TokenIds, want: Literal["all", "hidden"]) -> NDArray[np.float32]: ...

    @overload
    def push(self, ids: TokenIds, want: None) -> None: ...

    def push(self, ids: TokenIds, want: Want = "last") -> NDArray[np.float32] | None:
        """Adds tokens and waits until they are computed.

        Returns the logits after the last of them, `[vocab]`; with `"all"` those after each,
        `[n, vocab]`; with `"hidden"` the last hidden state of each, `[n, width]`; with `None`
        nothing.
        """
        self.start(ids, want)
        return self.wait()

    def start(self, ids: TokenIds, want: Want = "last") -> None:
        """Adds tokens without waiting."""
        self.start_together([(self, ids)], want)

    @staticmethod
    def start_together(
        pushes: Iterable[tuple[Sequence, TokenIds]], want: Want = "last"
    ) -> None:
        """Adds tokens to sequences of one engine without waiting.

        No step computes some of them without the others, as long as all fit into one. If one
        cannot be added to, none is.
        """
        pushes = list(pushes)
        pushed = [(one._ahead + ids_of(ids)).tobytes() for one, ids in pushes]
        _gannet.Sequence.start_together([one._led for one, _ in pushes], pushed, want)
        for one, _ in pushes:
            one._ahead = array("I")

    def wait(self) -> NDArray[np.float32] | None:
        """Waits until the tokens of the last `start` are computed; returns as `push` does."""
        rows = self._led.wait()
        return None if rows is None else _array(rows)

    def fork(self) -> Sequence:
        """Returns a sequence with the same tokens, which shares what was computed of them."""
        other = object.__new__(Sequence)
        other._server, other._led = self._server, self._led.fork()
        other._ahead = array("I", self._ahead)
        return other

    def truncate(self, length: int) -> None:
        """Removes all tokens but the first `length`."""
        if length < 0:
            raise ValueError(f"length: expected 0 or more, found {length}")
        pushed = self._led.length()
        if length < pushed:
            self._led.truncate(length)
        del self._ahead[max(length - pushed, 0) :]

    @property
    def tokens(self) -> list[int]:
        """The tokens of the sequence."""
        return self._led.tokens() + self._ahead.tolist()

    def __len__(self) -> int:
        return self._led.length() + len(self._ahead)

    def close(self) -> None:
        """Ends the sequence; its blocks stay in the cache for others."""
        self._led.close()

    def __repr__(self) -> str:
        return f"Sequence({len(self)} tokens)"


class Sampler:
    """The engine's sampler, for logits of the caller.

    Options are those of requests; what is not given is as the model's makers want it. Without a
    `seed` one is drawn.
    """

    def __init__(self, engine: Engine, **options: Unpack[SamplingOptions]) -> None:
        _options.check("Sampler", options, _options.names(_options.SamplingOptions))
        self._sampler = engine._server.sampler(json.dumps(options))

    def choose(self, ids: TokenIds, logits: NDArray[np.floating[Any]], prompt: int = 0) -> int:
        """Returns the next token of the sequence `ids`, whose first `prompt` are the prompt."""
        import numpy as np

        values = np.ascontiguousarray(logits, dtype="<f4")
        if values.ndim != 1:
            found = f"an array of {values.ndim} dimensions"
            raise ValueError(f"logits: expected one row, found {found}")
        return self._sampler.choose(ids_of(ids).tobytes(), prompt, values.tobytes())

    @property
    def stop_ids(self) -> list[int]:
        """The tokens that end an answer."""
        ids: list[int] = self.terms["stop_ids"]
        return ids

    @property
    def terms(self) -> dict[str, Any]:
        """When an answer ends: `stop_ids`, `stop`, `include_stop`, `min_tokens`, `max_tokens`."""
        terms: dict[str, Any] = json.loads(self._sampler.terms())
        return terms
