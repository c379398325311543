"""The classes of vLLM's offline interface, over an engine of this process.

Programs change their import: `from gannet.vllm import LLM, SamplingParams`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence as SequenceOf
from typing import TYPE_CHECKING, Any

from gannet import _neutral
from gannet._batch import bar, in_order, run
from gannet._closing import Closing
from gannet._engine import COMPLETIONS, Engine
from gannet._vllm_outputs import (
    BeamSearchOutput,
    BeamSearchSequence,
    CompletionOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    Logprob,
    RequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
)

if TYPE_CHECKING:
    from gannet import _gannet
    from gannet._answers import Answer

__all__ = [
    "LLM",
    "BeamSearchOutput",
    "BeamSearchParams",
    "BeamSearchSequence",
    "CompletionOutput",
    "EmbeddingOutput",
    "EmbeddingRequestOutput",
    "Logprob",
    "RequestOutput",
    "SamplingParams",
    "ScoringOutput",
    "ScoringRequestOutput",
    "StructuredOutputsParams",
]

#: Arguments of `LLM` without meaning here, with their neutral values.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "tokenizer": (),
    "tokenizer_mode": ("auto",),
    "skip_tokenizer_init": (False,),
    "trust_remote_code": (False, True),
    "tensor_parallel_size": (1,),
    "pipeline_parallel_size": (1,),
    "data_parallel_size": (1,),
    "dtype": ("auto",),
    "quantization": (),
    "revision": (),
    "tokenizer_revision": (),
    "seed": (0,),
    "gpu_memory_utilization": (0.9,),
    "swap_space": (4, 0),
    "cpu_offload_gb": (0,),
    "enforce_eager": (False, True),
    "disable_log_stats": (False, True),
    "enable_prefix_caching": (True,),
    "enable_chunked_prefill": (True,),
    "task": ("auto", "generate"),
    "runner": ("auto", "generate"),
    "load_format": ("auto",),
}

#: Parameters of sampling without meaning here.
NEUTRAL_SAMPLING: dict[str, tuple[Any, ...]] = {
    "detokenize": (True,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True, False),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "prompt_logprobs": (),
    "truncate_prompt_tokens": (),
    "output_kind": (),
    "extra_args": (),
    "logits_processors": ([],),
}

Prompt = str | SequenceOf[int] | Mapping[str, Any]


class StructuredOutputsParams:
    """What an answer is held to: one of a schema, an expression, texts, a grammar or any object."""

    def __init__(
        self,
        json: str | Mapping[str, Any] | None = None,
        regex: str | None = None,
        choice: list[str] | None = None,
        grammar: str | None = None,
        json_object: bool | None = None,
    ) -> None:
        self.json, self.regex, self.choice = json, regex, choice
        self.grammar, self.json_object = grammar, json_object

    def body(self) -> dict[str, Any]:
        """Returns the member of a request."""
        return {name: value for name, value in vars(self).items() if value is not None}


class SamplingParams:
    """How tokens are chosen, with vLLM's names and defaults."""

    def __init__(
        self,
        n: int = 1,
        *,
        best_of: int | None = None,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        repetition_penalty: float = 1.0,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        seed: int | None = None,
        stop: str | list[str] | None = None,
        stop_token_ids: list[int] | None = None,
        include_stop_str_in_output: bool = False,
        ignore_eos: bool = False,
        max_tokens: int | None = 16,
        min_tokens: int = 0,
        logprobs: int | None = None,
        logit_bias: Mapping[int, float] | None = None,
        structured_outputs: StructuredOutputsParams | None = None,
        guided_decoding: StructuredOutputsParams | None = None,
        **others: Any,
    ) -> None:
        _neutral.refuse("SamplingParams", others, NEUTRAL_SAMPLING, _parameters())
        self.n, self.best_of = n, best_of
        self.presence_penalty, self.frequency_penalty = presence_penalty, frequency_penalty
        self.repetition_penalty, self.temperature = repetition_penalty, temperature
        self.top_p, self.top_k, self.min_p, self.seed = top_p, top_k, min_p, seed
        self.stop, self.stop_token_ids = stop, stop_token_ids
        self.include_stop_str_in_output, self.ignore_eos = include_stop_str_in_output, ignore_eos
        self.max_tokens, self.min_tokens = max_tokens, min_tokens
        self.logprobs, self.logit_bias = logprobs, logit_bias
        self.structured_outputs = structured_outputs or guided_decoding

    def body(self) -> dict[str, Any]:
        """Returns the members of a request."""
        body = {name: value for name, value in vars(self).items() if value is not None}
        if self.structured_outputs is not None:
            body["structured_outputs"] = self.structured_outputs.body()
        if self.logit_bias is not None:
            body["logit_bias"] = {str(id): bias for id, bias in self.logit_bias.items()}
        return body

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.body().items())
        return f"SamplingParams({given})"


def _parameters() -> tuple[str, ...]:
    code = SamplingParams.__init__.__code__
    return code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]


class BeamSearchParams:
    """How a beam search goes."""

    def __init__(
        self,
        beam_width: int,
        max_tokens: int,
        ignore_eos: bool = False,
        temperature: float = 0.0,
        length_penalty: float = 1.0,
    ) -> None:
        if beam_width < 1 or max_tokens < 1:
            raise ValueError(
                f"expected a beam_width and max_tokens of 1 or more, found {beam_width} and "
                f"{max_tokens}"
            )
        if temperature < 0:
            raise ValueError(f"temperature: expected 0 or more, found {temperature}")
        self.beam_width, self.max_tokens, self.ignore_eos = beam_width, max_tokens, ignore_eos
        self.temperature, self.length_penalty = temperature, length_penalty


class LLM(Closing):
    """A loaded model, with the methods of vLLM's class.

    Options that are vLLM's alone are accepted at their neutral values; those of `gannet.Engine` are
    accepted too.
    """

    def __init__(
        self,
        model: str,
        *,
        max_model_len: int | None = None,
        max_num_seqs: int | None = None,
        **options: Any,
    ) -> None:
        from gannet import _options

        known = _options.names(_options.EngineOptions)
        others = {name: value for name, value in options.items() if name not in known}
        _neutral.refuse("LLM", others, NEUTRAL, [*known, "max_model_len", "max_num_seqs"])
        own = {name: value for name, value in options.items() if name in known}
        if max_model_len is not None:
            own["context"] = max_model_len
        if max_num_seqs is not None:
            own["parallel"] = max_num_seqs
        #: The engine below.
        self.engine = Engine(model, **own)
        self._requests = 0

    def get_tokenizer(self) -> Any:
        """Returns the tokenizer of the engine."""
        return self.engine.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """Returns the parameters that the model's makers want."""
        terms = self.engine.call("/props")["default_generation_settings"]["params"]
        names = ("temperature", "top_p", "top_k", "min_p")
        given = {name: terms[name] for name in names if terms.get(name) is not None}
        return SamplingParams(repetition_penalty=terms.get("repeat_penalty", 1.0), **given)

    def generate(
        self,
        prompts: Prompt | SequenceOf[Prompt],
        sampling_params: SamplingParams | SequenceOf[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        priority: list[int] | None = None,
    ) -> list[RequestOutput]:
        """Continues texts or token ids; the outputs are in the order of the prompts."""
        several = _several(prompts)
        ids = [self._ids(prompt) for prompt in several]
        texts = [_text(prompt) for prompt in several]
        return self._generate(texts, ids, sampling_params, use_tqdm, priority)

    def chat(
        self,
        messages: SequenceOf[Mapping[str, Any]] | SequenceOf[SequenceOf[Mapping[str, Any]]],
        sampling_params: SamplingParams | SequenceOf[SamplingParams] | None = None,
        use_tqdm: bool = True,
        *,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        tools: list[Mapping[str, Any]] | None = None,
    ) -> list[RequestOutput]:
        """Answers one conversation or several; texts are as the model writes them."""
        one = not messages or isinstance(messages[0], Mapping)
        conversations: Any = [messages] if one else messages
        ids = [
            self.engine.tokenizer.apply_chat_template(
                conversation,
                tools=tools,
                add_generation_prompt=add_generation_prompt,
                **(chat_template_kwargs or {}),
            )
            for conversation in conversations
        ]
        return self._generate([None] * len(ids), ids, sampling_params, use_tqdm, None)

    def embed(
        self, prompts: Prompt | SequenceOf[Prompt], *, use_tqdm: bool = True
    ) -> list[EmbeddingRequestOutput]:
        """Returns the vectors of texts."""
        several = _several(prompts)
        inputs = [text if (text := _text(it)) is not None else self._ids(it) for it in several]
        vectors = self.engine.embed(inputs)
        ids = [self._ids(prompt) for prompt in several]
        return [
            EmbeddingRequestOutput(self._next(), EmbeddingOutput(vector.tolist()), its)
            for vector, its in zip(vectors, ids)
        ]

    def score(
        self, data_1: str | list[str], data_2: str | list[str], *, use_tqdm: bool = True
    ) -> list[ScoringRequestOutput]:
        """Returns how relevant the second texts are for the first."""
        scores = self.engine.score(data_1, data_2)
        return [ScoringRequestOutput(self._next(), ScoringOutput(float(it))) for it in scores]

    def beam_search(
        self, prompts: SequenceOf[Prompt], params: BeamSearchParams, *, use_tqdm: bool = False
    ) -> list[BeamSearchOutput]:
        """Returns the likeliest continuations of each prompt, the best first."""
        from gannet import _beams

        return [
            BeamSearchOutput(_beams.search(self.engine, self._ids(prompt), params))
            for prompt in _several(prompts)
        ]

    def close(self) -> None:
        """Ends the engine and frees its memory."""
        self.engine.close()

    def shutdown(self) -> None:
        """Ends the engine, as `close` does."""
        self.close()

    def _generate(
        self,
        texts: list[str | None],
        ids: list[list[int]],
        params: SamplingParams | SequenceOf[SamplingParams] | None,
        use_tqdm: bool,
        priority: list[int] | None,
    ) -> list[RequestOutput]:
        each = _each(params or self.get_default_sampling_params(), len(ids))
        bodies = [
            {**one.body(), "prompt": its, "return_token_ids": True}
            | {"return_tokens_as_token_ids": True}
            | ({} if priority is None else {"priority": priority[at]})
            for at, (one, its) in enumerate(zip(each, ids))
        ]

        def send(body: dict[str, Any]) -> _gannet.Call:
            return self.engine._send(COMPLETIONS, body)

        progress = bar(use_tqdm, len(bodies))
        finished = run(bodies, send, 2 * self.engine.parallel, progress)
        answers = in_order(finished)
        return [
            RequestOutput(self._next(), text, its, self._outputs(answer))
            for text, its, answer in zip(texts, ids, answers)
        ]

    def _outputs(self, answer: Answer) -> list[CompletionOutput]:
        choices = sorted(answer.body["choices"], key=lambda choice: choice["index"])
        return [self._output(choice) for choice in choices]

    def _output(self, choice: dict[str, Any]) -> CompletionOutput:
        logprobs, total = None, None
        if (lists := choice.get("logprobs")) is not None:
            total = math.fsum(lists["token_logprobs"])
            logprobs = [self._logprobs(top) for top in lists["top_logprobs"]]
        return CompletionOutput(
            choice["index"],
            choice["text"],
            choice["token_ids"],
            total,
            logprobs,
            choice["finish_reason"],
        )

    def _logprobs(self, named: dict[str, float]) -> dict[int, Logprob]:
        ranked = sorted(named.items(), key=lambda item: -item[1])
        decode = self.engine.tokenizer.decode
        found = {}
        for rank, (name, logprob) in enumerate(ranked, start=1):
            id = int(name.removeprefix("token_id:"))
            found[id] = Logprob(logprob, rank, decode([id]))
        return found

    def _ids(self, prompt: Prompt) -> list[int]:
        text = _text(prompt)
        if text is not None:
            return self.engine.tokenizer.encode(text, add_special=True)
        ids = prompt["prompt_token_ids"] if isinstance(prompt, Mapping) else prompt
        return [int(id) for id in ids]

    def _next(self) -> str:
        self._requests += 1
        return str(self._requests - 1)


def _text(prompt: Prompt) -> str | None:
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, Mapping):
        text: str | None = prompt.get("prompt")
        if text is None and "prompt_token_ids" not in prompt:
            raise ValueError("expected prompt or prompt_token_ids in a prompt")
        return None if "prompt_token_ids" in prompt else text
    return None


def _several(prompts: Any) -> list[Prompt]:
    """Returns the prompts of a list, or the one that is not in a list."""
    if isinstance(prompts, (str, Mapping)):
        return [prompts]
    several = list(prompts)
    return [several] if several and isinstance(several[0], int) else several


def _each(
    params: SamplingParams | SequenceOf[SamplingParams], count: int
) -> SequenceOf[SamplingParams]:
    if isinstance(params, SamplingParams):
        return [params] * count
    if len(params) != count:
        raise ValueError(f"expected {count} sampling_params, found {len(params)}")
    return params
