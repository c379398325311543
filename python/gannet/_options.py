"""The options of each method, and the check that a name is one of them.

The names are the members of the server's routes, as its `/openapi.json` lists them, without those
that are arguments. A test compares both.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from typing import Literal


class SamplingOptions(TypedDict, total=False):
    """How tokens are chosen, and when an answer ends."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    typical_p: float
    typ_p: float
    repetition_penalty: float
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    penalty_window: int
    repeat_last_n: int
    logit_bias: Mapping[str, float | None] | Mapping[int, float]
    seed: int
    max_completion_tokens: int
    max_tokens: int
    n_predict: int
    min_tokens: int
    stop: str | list[str]
    include_stop_str_in_output: bool
    stop_token_ids: list[int]
    ignore_eos: bool


class RequestOptions(SamplingOptions, total=False):
    """How answers are given, and what they are held to."""

    model: str
    n: int
    stream_options: Mapping[str, bool]
    user: str
    safety_identifier: str
    cache_salt: str
    priority: int
    timings_per_token: bool
    return_progress: bool
    receipt: bool
    speculate: str
    response_format: Mapping[str, Any]
    structured_outputs: Mapping[str, Any]
    guided_json: Mapping[str, Any] | str
    guided_regex: str
    guided_choice: list[str]
    guided_grammar: str
    json_schema: Mapping[str, Any]
    grammar: str


class ChatOptions(RequestOptions, total=False):
    """The options of `Engine.chat` and `Engine.achat`."""

    tools: Sequence[Mapping[str, Any]]
    tool_choice: str | Mapping[str, Any]
    parallel_tool_calls: bool
    functions: Sequence[Mapping[str, Any]]
    function_call: str | Mapping[str, Any]
    logprobs: bool
    top_logprobs: int
    chat_template_kwargs: Mapping[str, Any]
    add_generation_prompt: bool
    continue_final_message: bool
    reasoning_format: str
    modalities: list[Literal["text"]]
    audio: Mapping[str, Any]
    metadata: Mapping[str, Any]
    store: bool
    service_tier: str
    prediction: Mapping[str, Any]
    verbosity: str
    prompt_cache_key: str
    enable_thinking: bool
    thinking: Mapping[str, Any]
    thinking_budget: int
    thinking_token_budget: int
    thinking_budget_tokens: int
    reasoning_budget: int
    reasoning: bool | str | Mapping[str, Any]
    include_reasoning: bool
    reasoning_effort: str
    think: bool | str


class CompletionOptions(RequestOptions, total=False):
    """The options of `Engine.complete` and `Engine.acomplete`."""

    echo: bool
    logprobs: int | bool
    prompt_logprobs_from: int
    best_of: int
    suffix: str
    add_special_tokens: bool


class EmbedOptions(TypedDict, total=False):
    """The options of `Engine.embed`."""

    model: str
    dimensions: int
    user: str
    pooling: str
    normalize: bool
    prompt_name: str
    truncate: bool
    truncate_prompt_tokens: int


class ScoreOptions(TypedDict, total=False):
    """The options of `Engine.score`."""

    model: str
    use_activation: bool
    activation: bool
    truncate: bool
    truncate_prompt_tokens: int
    user: str


class RerankOptions(TypedDict, total=False):
    """The options of `Engine.rerank`."""

    model: str
    top_n: int
    return_documents: bool
    raw_scores: bool
    use_activation: bool
    activation: bool
    truncate: bool
    truncate_prompt_tokens: int
    user: str


class EngineOptions(TypedDict, total=False):
    """The options of `Engine`, named as the flags of the program."""

    hub_endpoint: str
    name: str
    device: str
    device_memory: int | str
    threads: int
    pin: bool
    numa: bool
    ctx: int
    context: int
    mode: Literal["exact", "fast"]
    bits: Literal["portable", "fastest"]
    kv_type: str
    kv_memory: int | str
    kv_block: int
    cache_rounding: str
    state_memory: int | str
    state_every: int
    chunk: int
    pooling: str
    placement: str
    lora: str | Sequence[str | Mapping[str, Any]]
    max_adapters: int
    weights_memory: int | str
    weights_pack: str
    weights_read_threads: int
    table_memory: int | str
    simulate_memory: int | str
    kv_dir: str
    kv_dir_size: int | str
    parallel: int
    queue: int
    itl_target_ms: int
    request_timeout: float
    speculate: str
    draft_memory: int | str
    draft_model: str
    draft_kv_memory: int | str
    chat_template: str
    tool_format: str
    greedy_structure: bool
    pre_fallback: str


def names(options: type) -> frozenset[str]:
    """Returns the names of a class of options, inherited ones included."""
    return frozenset(options.__annotations__)


def check(method: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises a `TypeError` with the nearest name for a name that is not known."""
    known = list(known)
    for name in given:
        if name not in known:
            raise TypeError(unknown(method, name, known))


def unknown(method: str, name: str, known: Iterable[str]) -> str:
    """Returns the message for an option that there is not."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{method}() got an unknown option {name!r}{hint}"
