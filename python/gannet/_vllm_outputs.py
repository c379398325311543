"""The outputs of `gannet.vllm`, with vLLM's names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Logprob:
    """How likely a token was."""

    logprob: float
    rank: int
    decoded_token: str


@dataclass(frozen=True)
class CompletionOutput:
    """An answer."""

    index: int
    text: str
    token_ids: list[int]
    #: The sum of log probabilities, where they were asked for.
    cumulative_logprob: float | None
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str | None
    stop_reason: str | int | None = None

    def finished(self) -> bool:
        """Whether the answer is whole."""
        return self.finish_reason is not None


@dataclass(frozen=True)
class RequestOutput:
    """The answers to a prompt."""

    request_id: str
    #: The text of the prompt, if it was a text.
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool = True


@dataclass(frozen=True)
class EmbeddingOutput:
    """A vector."""

    embedding: list[float]


@dataclass(frozen=True)
class EmbeddingRequestOutput:
    """The vector of a text."""

    request_id: str
    outputs: EmbeddingOutput
    prompt_token_ids: list[int]
    finished: bool = True


@dataclass(frozen=True)
class ScoringOutput:
    """How relevant a text is for another."""

    score: float


@dataclass(frozen=True)
class ScoringRequestOutput:
    """The score of a pair of texts."""

    request_id: str
    outputs: ScoringOutput
    finished: bool = True


@dataclass(frozen=True)
class BeamSearchSequence:
    """A continuation that a beam search found."""

    #: The tokens, those of the prompt included.
    tokens: list[int]
    cum_logprob: float
    text: str
    finish_reason: str


@dataclass(frozen=True)
class BeamSearchOutput:
    """The continuations of a prompt, the best first."""

    sequences: list[BeamSearchSequence]
