"""A grammar, step by step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence as SequenceOf
from typing import TYPE_CHECKING, Any

from gannet._sequence import Sampler

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gannet import _gannet
    from gannet._engine import Engine
    from gannet._processors import LogitsProcessor


class Guide:
    """The tokens that a grammar allows next.

    Exactly one of the keywords says what the text is held to: a JSON schema, a regular expression
    that matches the whole text, one of several texts, or a grammar in GBNF or Lark.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        json_schema: Mapping[str, Any] | str | None = None,
        regex: str | None = None,
        choice: SequenceOf[str] | None = None,
        grammar: str | None = None,
    ) -> None:
        if isinstance(json_schema, str):
            json_schema = json.loads(json_schema)
        sources = {
            "json_schema": json_schema,
            "regex": regex,
            "choice": None if choice is None else list(choice),
            "grammar": grammar,
        }
        given = {kind: source for kind, source in sources.items() if source is not None}
        if len(given) != 1:
            found = ", ".join(given) or "none"
            raise ValueError(f"expected one of {', '.join(sources)}, found {found}")
        self._state: _gannet.Guide = engine._server.guide(json.dumps(given))
        self._stop_ids = Sampler(engine).stop_ids
        self._size: int = engine.info["vocab_size"]

    def mask(self) -> NDArray[np.bool_]:
        """Returns which tokens may come next, `[vocab]`.

        The tokens that end an answer are among them exactly where the text may end.
        """
        import numpy as np

        words, may_end = self._state.mask()
        bits = np.unpackbits(np.frombuffer(words, dtype=np.uint8), bitorder="little")
        mask = np.zeros(self._size, dtype=np.bool_)
        known = min(bits.size, self._size)
        mask[:known] = bits[:known]
        mask[self._stop_ids] = may_end
        return mask

    def accept(self, token: int) -> None:
        """Takes the next token. A token that is not allowed is a `ValueError`."""
        if token in self._stop_ids and self.may_end:
            return
        self._state.accept(token)

    def rollback(self, tokens: int) -> None:
        """Takes back the last `tokens` accepted tokens."""
        self._state.rollback(tokens)

    @property
    def may_end(self) -> bool:
        """Whether the text may end here."""
        return self._state.mask()[1]

    @property
    def is_complete(self) -> bool:
        """Whether the text ends here and nothing may follow."""
        return self._state.is_complete()

    def fork(self) -> Guide:
        """Returns a guide in the same state."""
        other = object.__new__(Guide)
        other._state, other._stop_ids, other._size = self._state.fork(), self._stop_ids, self._size
        return other

    def processor(self) -> LogitsProcessor:
        """Returns a logits processor for one answer, which begins in the state of this guide."""
        import numpy as np

        state, seen = self.fork(), -1

        def masked(ids: SequenceOf[int], logits: NDArray[np.float32]) -> NDArray[np.float32]:
            nonlocal seen
            for token in ids[seen:] if seen >= 0 else ():
                state.accept(token)
            seen = len(ids)
            return np.where(state.mask(), logits, np.float32(-np.inf))

        return masked
