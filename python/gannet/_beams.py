"""Beam search over forks of a sequence.

In every step all beams are computed together. A search has the same bits in an idle engine and in a
busy one, so that it repeats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gannet._sequence import Sampler, Sequence
from gannet._vllm_outputs import BeamSearchSequence

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gannet._engine import Engine
    from gannet.vllm import BeamSearchParams


class _Beam:
    """A continuation that goes on."""

    def __init__(self, sequence: Sequence, tokens: list[int], logprob: float) -> None:
        self.sequence, self.tokens, self.logprob = sequence, tokens, logprob
        self.logits: NDArray[np.float32] | None = None


def search(
    engine: Engine, prompt: list[int], params: BeamSearchParams
) -> list[BeamSearchSequence]:
    """Returns the likeliest continuations of a prompt, at most as many as there are beams."""
    stop_ids = frozenset(() if params.ignore_eos else Sampler(engine).stop_ids)
    room = engine.info["context_length"] - len(prompt)
    most = min(params.max_tokens, room)
    first = _Beam(engine.sequence(), prompt, 0.0)
    first.logits = first.sequence.push(prompt)
    beams, ended = [first], list[_Beam]()
    for step in range(most):
        beams, stopped = _step(beams, params, stop_ids, last=step + 1 == most)
        ended += stopped
        if not beams:
            break
    found = [(beam, "stop") for beam in ended] + [(beam, "length") for beam in beams]
    found.sort(key=lambda one: _score(one[0], len(prompt), stop_ids, params), reverse=True)
    decode = engine.tokenizer.decode
    return [
        BeamSearchSequence(
            beam.tokens,
            beam.logprob,
            decode(beam.tokens[len(prompt) :], skip_special=True),
            reason,
        )
        for beam, reason in found[: params.beam_width]
    ]


def _step(
    beams: list[_Beam], params: BeamSearchParams, stop_ids: frozenset[int], last: bool
) -> tuple[list[_Beam], list[_Beam]]:
    """Returns the likeliest beams with one more token, and those that end with it."""
    candidates = []
    for at, beam in enumerate(beams):
        logprobs = _logprobs(beam.logits, params.temperature)
        # Twice as many, since some of them end.
        for token in _likeliest(logprobs, 2 * params.beam_width):
            candidates.append((beam.logprob + float(logprobs[token]), at, token))
    # Of equal ones the first beam and the first token, so that a search repeats.
    candidates.sort(key=lambda one: (-one[0], one[1], one[2]))
    live, ended = list[_Beam](), list[_Beam]()
    for logprob, at, token in candidates:
        if len(live) == params.beam_width:
            break
        beam = beams[at]
        longer = _Beam(beam.sequence, [*beam.tokens, token], logprob)
        (ended if token in stop_ids else live).append(longer)
    if last:
        return live, ended
    _compute(live)
    return live, ended


def _compute(live: list[_Beam]) -> None:
    """Computes the last token of each beam, all in the same steps."""
    taken = set[int]()
    for beam in live:
        # The first beam of a sequence goes on with it, the others with forks.
        own = id(beam.sequence)
        if own in taken:
            beam.sequence = beam.sequence.fork()
        taken.add(own)
    Sequence.start_together((beam.sequence, beam.tokens[-1:]) for beam in live)
    for beam in live:
        beam.logits = beam.sequence.wait()


def _logprobs(logits: Any, temperature: float) -> NDArray[np.float64]:
    import numpy as np

    row = logits.astype(np.float64)
    if temperature > 0:
        row /= temperature
    row -= row.max()
    logprobs: NDArray[np.float64] = row - np.log(np.exp(row).sum())
    return logprobs


def _likeliest(logprobs: NDArray[np.float64], count: int) -> list[int]:
    import numpy as np

    count = min(count, logprobs.size)
    top = np.argpartition(-logprobs, count - 1)[:count]
    return [int(token) for token in top[np.lexsort((top, -logprobs[top]))]]


def _score(
    beam: _Beam, prompt: int, stop_ids: frozenset[int], params: BeamSearchParams
) -> float:
    length = len(beam.tokens) - (beam.tokens[-1] in stop_ids and len(beam.tokens) > prompt)
    score: float = beam.logprob / max(length, 1) ** params.length_penalty
    return score
