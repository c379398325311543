"""The class of llama-cpp-python, over an engine of this process.

Programs change their import: `from gannet.llama_cpp import Llama`. Answers are dictionaries in
OpenAI's form. All threads may use an object at the same time, except `eval`, `sample` and the
states, which are those of one sequence.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence as SequenceOf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from gannet import _neutral
from gannet._closing import Closing
from gannet._engine import CHAT, COMPLETIONS, Engine
from gannet._sequence import Sampler, Sequence

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    LogitsProcessor = Callable[[NDArray[np.intc], NDArray[np.float32]], NDArray[np.floating[Any]]]
    StoppingCriteria = Callable[[NDArray[np.intc], NDArray[np.float32]], bool]

__all__ = [
    "Llama",
    "LlamaGrammar",
    "LlamaState",
    "LlamaTokenizer",
    "LogitsProcessorList",
    "StoppingCriteriaList",
    "llama_model_get_vocab",
    "llama_token_to_piece",
]

#: Arguments of `Llama` without meaning here, with their neutral values.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n_gpu_layers": (0,),
    "split_mode": (0, 1),
    "main_gpu": (0,),
    "tensor_split": (),
    "vocab_only": (False,),
    "use_mmap": (True,),
    "use_mlock": (False,),
    "kv_overrides": (),
    "n_ubatch": (512,),
    "rope_scaling_type": (-1,),
    "pooling_type": (-1,),
    # LangChain's classes give these two where their users give nothing.
    "rope_freq_base": (0.0, 10000.0),
    "rope_freq_scale": (0.0, 1.0),
    "yarn_ext_factor": (-1.0,),
    "yarn_attn_factor": (1.0,),
    "yarn_beta_fast": (32.0,),
    "yarn_beta_slow": (1.0,),
    "yarn_orig_ctx": (0,),
    "logits_all": (False, True),
    "embedding": (False, True),
    "offload_kqv": (True, False),
    "flash_attn": (False, True),
    "op_offload": (),
    "swa_full": (),
    "no_perf": (False, True),
    "last_n_tokens_size": (64,),
    "lora_base": (),
    "lora_scale": (1.0,),
    "lora_path": (),
    "numa": (False,),
    "chat_format": (),
    "chat_handler": (),
    "draft_model": (),
    "tokenizer": (),
    "type_k": (),
    "type_v": (),
    "spm_infill": (False,),
    "n_threads_batch": (),
    # Arguments of old versions, which LangChain's classes still give.
    "n_parts": (-1,),
    "f16_kv": (True, False),
    "device": (),
}

#: Arguments of completions without meaning here, with their neutral values.
NEUTRAL_SAMPLING: dict[str, tuple[Any, ...]] = {
    "tfs_z": (1.0,),
    "mirostat_mode": (0,),
    "mirostat_tau": (5.0,),
    "mirostat_eta": (0.1,),
    "top_n_sigma": (-1.0,),
    "xtc_probability": (0.0,),
    "dry_multiplier": (0.0,),
    "dynatemp_range": (0.0,),
}

#: The sampling defaults of llama-cpp-python.
SAMPLING = {
    "temperature": 0.8,
    "top_p": 0.95,
    "min_p": 0.05,
    "typical_p": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repeat_penalty": 1.0,
    "top_k": 40,
}
CHAT_SAMPLING = {**SAMPLING, "temperature": 0.2}

COMPLETION_NAMES = frozenset(
    [*SAMPLING, "suffix", "max_tokens", "logprobs", "echo", "stop", "seed", "model", "logit_bias"]
)
CHAT_NAMES = frozenset(
    [*SAMPLING, "functions", "function_call", "tools", "tool_choice", "stop", "seed", "max_tokens"]
    + ["response_format", "logit_bias", "logprobs", "top_logprobs", "model"]
)


class LogitsProcessorList(list["LogitsProcessor"]):
    """Functions `f(ids, logits) -> logits`, one after the other."""

    def __call__(
        self, input_ids: NDArray[np.intc], scores: NDArray[np.float32]
    ) -> NDArray[np.floating[Any]]:
        row: Any = scores
        for processor in self:
            row = processor(input_ids, row)
        changed: NDArray[np.floating[Any]] = row
        return changed


class StoppingCriteriaList(list["StoppingCriteria"]):
    """Functions `f(ids, logits) -> bool`, any of which ends an answer."""

    def __call__(self, input_ids: NDArray[np.intc], logits: NDArray[np.float32]) -> bool:
        return any(criterion(input_ids, logits) for criterion in self)


def _with_arrays(function: Callable[..., Any]) -> Callable[[list[int], Any], Any]:
    """Gives a function arrays of its own, which it may change as with llama-cpp-python."""
    import numpy as np

    @functools.wraps(function)
    def called(ids: list[int], logits: NDArray[np.float32]) -> Any:
        return function(np.array(ids, dtype=np.intc), np.array(logits))

    return called


class LlamaGrammar:
    """A grammar in GBNF, or the one of a JSON schema."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> LlamaGrammar:
        """Returns a grammar in GBNF."""
        return cls({"grammar": grammar})

    @classmethod
    def from_file(cls, file: str | os.PathLike[str], verbose: bool = True) -> LlamaGrammar:
        """Reads a grammar in GBNF."""
        with open(file, encoding="utf-8") as opened:
            return cls.from_string(opened.read())

    @classmethod
    def from_json_schema(cls, json_schema: str, verbose: bool = True) -> LlamaGrammar:
        """Returns the grammar of a JSON schema."""
        import json

        return cls({"json_schema": json.loads(json_schema)})


class LlamaState:
    """The tokens of an object, and what was computed of them."""

    def __init__(self, sequence: Sequence, logits: NDArray[np.float32] | None) -> None:
        self._sequence, self._logits = sequence, logits

    @property
    def input_ids(self) -> list[int]:
        """The tokens."""
        return self._sequence.tokens

    @property
    def n_tokens(self) -> int:
        """The number of tokens."""
        return len(self._sequence)


class LlamaTokenizer:
    """The tokenizer of a model."""

    def __init__(self, llama: Llama) -> None:
        self._llama = llama

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> list[int]:
        """Returns the tokens of a text."""
        return self._llama.tokenize(text, add_bos, special)

    def detokenize(
        self, tokens: list[int], prev_tokens: list[int] | None = None, special: bool = False
    ) -> bytes:
        """Returns the bytes of tokens."""
        return self._llama.detokenize(tokens, prev_tokens, special)

    def encode(self, text: str, add_bos: bool = True, special: bool = True) -> list[int]:
        """Returns the tokens of a text."""
        return self.tokenize(text.encode("utf-8", errors="ignore"), add_bos, special)

    def decode(self, tokens: list[int]) -> str:
        """Returns the text of tokens."""
        return self.detokenize(tokens).decode("utf-8", errors="ignore")


def llama_model_get_vocab(model: Llama) -> Llama:
    """Returns what `llama_token_to_piece` takes."""
    return model


def llama_token_to_piece(
    vocab: Llama,
    token: int,
    buf: ctypes.Array[ctypes.c_char],
    length: int,
    lstrip: int,
    special: bool,
) -> int:
    """Writes the bytes of a token; returns their number, negative where `buf` is too short."""
    piece = vocab.detokenize([token], special=special)
    spaces = len(piece) - len(piece.lstrip(b" "))
    piece = piece[min(lstrip, spaces) :]
    if len(piece) > length:
        return -len(piece)
    ctypes.memmove(buf, piece, len(piece))
    return len(piece)


class Llama(Closing):
    """A loaded model, with the methods of llama-cpp-python's class."""

    def __init__(
        self,
        model_path: str | os.PathLike[str],
        *,
        n_ctx: int = 512,
        n_batch: int = 512,
        n_threads: int | None = None,
        seed: int = 0xFFFFFFFF,
        verbose: bool = True,
        **others: Any,
    ) -> None:
        known = ("n_ctx", "n_batch", "n_threads", "seed", "verbose")
        _neutral.refuse("Llama", others, NEUTRAL, known)
        options: dict[str, Any] = {"chunk": n_batch}
        if n_ctx:
            options["context"] = n_ctx
        if n_threads is not None:
            options["threads"] = n_threads
        #: The engine below.
        self.engine = Engine(model_path, **options)
        self.model_path = os.fspath(model_path)
        self._seed = None if seed in (-1, 0xFFFFFFFF) else seed
        self._sequence: Sequence | None = None
        self._logits: NDArray[np.float32] | None = None

    @classmethod
    def from_pretrained(
        cls,
        repo_id: str,
        filename: str | None = None,
        *,
        local_dir: str | None = None,
        local_dir_use_symlinks: bool | str = "auto",
        cache_dir: str | None = None,
        **kwargs: Any,
    ) -> Llama:
        """Loads `owner/name` of a hub; of several GGUF files the one named `filename`.

        A pattern such as `*Q8_0.gguf` names a file by its type.
        """
        for name, value in (("local_dir", local_dir), ("cache_dir", cache_dir)):
            if value is not None:
                raise ValueError(f"{name}: has no meaning in Gannet; HF_HOME sets the cache")
        if filename is None:
            return cls(repo_id, **kwargs)
        return cls(f"{repo_id}:{filename.strip('*').removesuffix('.gguf')}", **kwargs)

    @property
    def model(self) -> Llama:
        """What functions of this module take for a model."""
        return self

    @property
    def context_params(self) -> SimpleNamespace:
        """The context length in tokens, as `n_ctx`."""
        return SimpleNamespace(n_ctx=self.n_ctx())

    def n_ctx(self) -> int:
        """Returns the context length in tokens."""
        return int(self.engine.info["context_length"])

    def n_vocab(self) -> int:
        """Returns the number of tokens that the model knows."""
        return int(self.engine.info["vocab_size"])

    def n_embd(self) -> int:
        """Returns the width of vectors."""
        return int(self.engine.embed("a").shape[0])

    def token_bos(self) -> int:
        """Returns the token with which texts begin, or -1."""
        return self.engine.tokenizer.special_ids.get("bos", -1)

    def token_eos(self) -> int:
        """Returns the token with which answers end, or -1."""
        return self.engine.tokenizer.special_ids.get("eos", -1)

    def tokenizer(self) -> LlamaTokenizer:
        """Returns the tokenizer of the model."""
        return LlamaTokenizer(self)

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """Returns the tokens of a text."""
        encode = self.engine.tokenizer.encode
        return encode(text.decode("utf-8"), add_special=add_bos, parse_special=special)

    def detokenize(
        self, tokens: list[int], prev_tokens: list[int] | None = None, special: bool = False
    ) -> bytes:
        """Returns the bytes of tokens."""
        tokenizer = self.engine.tokenizer
        shown = [token for token in tokens if special or not tokenizer.is_special(token)]
        return b"".join(tokenizer.token_bytes(token) for token in shown)

    def create_completion(
        self,
        prompt: str | list[int],
        *,
        stream: bool = False,
        max_tokens: int | None = 16,
        logits_processor: LogitsProcessorList | None = None,
        stopping_criteria: StoppingCriteriaList | None = None,
        grammar: LlamaGrammar | None = None,
        **options: Any,
    ) -> Any:
        """Continues a text: a dictionary, or with `stream` an iterator over them."""
        body = self._body("create_completion", SAMPLING, COMPLETION_NAMES, options, grammar)
        # llama-cpp-python has 0, a negative number and None for as many as the context holds.
        body |= {"prompt": prompt, "max_tokens": max_tokens if (max_tokens or 0) > 0 else -1}
        if logits_processor or stopping_criteria:
            return self._led(body, False, stream, logits_processor, stopping_criteria)
        return self.engine.call(COMPLETIONS, {**body, "stream": True} if stream else body)

    __call__ = create_completion

    def create_chat_completion(
        self,
        messages: SequenceOf[Mapping[str, Any]],
        *,
        stream: bool = False,
        max_tokens: int | None = None,
        logits_processor: LogitsProcessorList | None = None,
        grammar: LlamaGrammar | None = None,
        **options: Any,
    ) -> Any:
        """Answers a conversation: a dictionary, or with `stream` an iterator over them."""
        names = CHAT_NAMES
        body = self._body("create_chat_completion", CHAT_SAMPLING, names, options, grammar)
        body |= {"messages": list(messages)}
        if max_tokens is not None and max_tokens > 0:
            body["max_tokens"] = max_tokens
        if logits_processor:
            return self._led(body, True, stream, logits_processor, None)
        return self.engine.call(CHAT, {**body, "stream": True} if stream else body)

    def create_embedding(self, input: str | list[str], model: str | None = None) -> dict[str, Any]:
        """Returns the vectors of texts in a dictionary."""
        body = {"input": input, "normalize": False}
        answer: dict[str, Any] = self.engine.call("/v1/embeddings", body)
        return answer

    def embed(self, input: str | list[str], normalize: bool = False) -> Any:
        """Returns the vector of a text, or those of several."""
        return self.engine.embed(input, normalize=normalize).tolist()

    def reset(self) -> None:
        """Forgets the tokens of `eval`."""
        if self._sequence is not None:
            self._sequence.close()
        self._sequence, self._logits = None, None

    def eval(self, tokens: SequenceOf[int]) -> None:
        """Computes tokens after those of earlier calls."""
        if self._sequence is None:
            self._sequence = self.engine.sequence()
        self._logits = self._sequence.push(list(tokens))

    def sample(
        self,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        temp: float = 0.80,
        repeat_penalty: float = 1.0,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        logits_processor: LogitsProcessorList | None = None,
        **others: Any,
    ) -> int:
        """Returns the next token after those of `eval`."""
        _neutral.refuse("sample", others, NEUTRAL_SAMPLING, ("temp", "top_k", "top_p", "min_p"))
        if self._sequence is None or self._logits is None:
            raise ValueError("sample: expected tokens of eval, found none")
        ids = self._sequence.tokens
        row: Any = self._logits
        if logits_processor:
            row = _with_arrays(logits_processor)(ids, row)
        sampler = Sampler(
            self.engine,
            seed=-1 if self._seed is None else self._seed,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            temperature=temp,
            repeat_penalty=repeat_penalty,
            frequency_penalty=frequency_penalty,
            presence_penalty=presence_penalty,
        )
        return sampler.choose(ids, row)

    def generate(
        self,
        tokens: SequenceOf[int],
        *,
        reset: bool = True,
        stopping_criteria: StoppingCriteriaList | None = None,
        **options: Any,
    ) -> Iterator[int]:
        """Gives tokens after `tokens`, until the caller has enough."""
        if reset:
            self.reset()
        given: SequenceOf[int] = tokens
        while True:
            self.eval(given)
            token = self.sample(**options)
            if stopping_criteria is not None:
                assert self._sequence is not None and self._logits is not None
                ids = [*self._sequence.tokens, token]
                if _with_arrays(stopping_criteria)(ids, self._logits):
                    return
            sent = yield token
            given = [token] if sent is None else [token, *sent]

    @property
    def n_tokens(self) -> int:
        """The number of tokens that were evaluated."""
        return 0 if self._sequence is None else len(self._sequence)

    @property
    def eval_tokens(self) -> list[int]:
        """The tokens that were evaluated."""
        return [] if self._sequence is None else self._sequence.tokens

    @property
    def scores(self) -> NDArray[np.float32]:
        """The logits after the last token, `[vocab]`."""
        if self._logits is None:
            raise ValueError("scores: expected tokens of eval, found none")
        return self._logits

    def save_state(self) -> LlamaState:
        """Returns the tokens of `eval` and what was computed of them."""
        sequence = self.engine.sequence() if self._sequence is None else self._sequence.fork()
        return LlamaState(sequence, self._logits)

    def load_state(self, state: LlamaState) -> None:
        """Goes back to a state, which stays as it is."""
        self.reset()
        self._sequence, self._logits = state._sequence.fork(), state._logits

    def set_seed(self, seed: int) -> None:
        """Sets the seed of later answers."""
        self._seed = seed

    def close(self) -> None:
        """Ends the engine and frees its memory."""
        self.reset()
        self.engine.close()

    def _body(
        self,
        method: str,
        defaults: Mapping[str, Any],
        known: frozenset[str],
        options: Mapping[str, Any],
        grammar: LlamaGrammar | None,
    ) -> dict[str, Any]:
        others = {name: value for name, value in options.items() if name not in known}
        _neutral.refuse(method, others, NEUTRAL_SAMPLING, known)
        given = {name: value for name, value in options.items() if name in known}
        given = {name: value for name, value in given.items() if value is not None}
        if self._seed is not None:
            given.setdefault("seed", self._seed)
        if grammar is not None:
            given |= grammar.body
        return {**defaults, **given}

    def _led(
        self,
        body: dict[str, Any],
        chat: bool,
        stream: bool,
        processors: LogitsProcessorList | None,
        criteria: StoppingCriteriaList | None,
    ) -> Any:
        """Answers through a sequence, with functions of the caller."""
        from gannet import _processors

        asked = {name: value for name, value in body.items() if value not in (None, False)}
        changes = [_with_arrays(processor) for processor in processors or ()]
        ends = _with_arrays(criteria) if criteria else None
        answer: Any = (_processors.chat if chat else _processors.complete)(
            self.engine, asked, changes, stream, ends
        )
        return (part.body for part in answer) if stream else answer.body
