"""A model of lm-evaluation-harness: `--model gannet --model_args model=owner/name`.

`python -m gannet.lm_eval` is the harness's program with this model added to it. Log likelihoods are
those of `/v1/completions` with `echo`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

from gannet._batch import bar, in_order, run
from gannet._engine import COMPLETIONS, Engine

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

    from gannet import _gannet

#: The most tokens of an answer where the task names none.
MAX_TOKENS = 256


@register_model("gannet")  # type: ignore[untyped-decorator, unused-ignore]
class Gannet(LM):  # type: ignore[misc, unused-ignore]
    """A loaded model. Arguments are those of `gannet.Engine`."""

    def __init__(self, model: str = "builtin", **options: Any) -> None:
        super().__init__()
        # What the harness passes to every model.
        for name in ("batch_size", "max_batch_size", "device"):
            options.pop(name, None)
        self.engine = Engine(model, **options)
        self._name = self.engine.info["name"]

    @property
    def tokenizer_name(self) -> str:
        """The name under which prompts of the chat template are cached."""
        return str(self._name)

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Returns the text of a conversation."""
        return self.engine.tokenizer.apply_chat_template(
            chat_history, tokenize=False, add_generation_prompt=add_generation_prompt
        )

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Returns how likely each continuation is, and whether greedy decoding gives it."""
        pairs = [self._pair(*request.args) for request in requests]
        prompts = [context + continuation for context, continuation in pairs]
        lists = self._logprobs(prompts, disable_tqdm)
        return [
            _sum(one, len(context), len(context) + len(continuation))
            for one, (context, continuation) in zip(lists, pairs)
        ]

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        """Returns how likely each text is.

        A text that is longer than the context is taken in parts that do not overlap.
        """
        windows, owners = [], []
        for owner, request in enumerate(requests):
            for window in self._windows(self._encode(request.args[0])):
                windows.append(window)
                owners.append(owner)
        sums = [0.0] * len(requests)
        lists = self._logprobs([first + rest for first, rest in windows], disable_tqdm)
        for owner, (first, rest), one in zip(owners, windows, lists):
            sums[owner] += _sum(one, len(first), len(first) + len(rest))[0]
        return sums

    def generate_until(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[str]:
        """Returns the continuation of each text."""
        return [
            choices[0]["text"]
            for choices in self._choices(
                [_generation(*request.args) for request in requests], disable_tqdm
            )
        ]

    def _encode(self, text: str) -> list[int]:
        return self.engine.tokenizer.encode(text, parse_special=True)

    def _first(self) -> int:
        """Returns the token before a text without a context."""
        special = self.engine.tokenizer.special_ids
        first = special.get("bos", special.get("eos"))
        if first is None:
            raise ValueError("the model has no token that texts begin with: expected a context")
        return first

    def _pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Returns the tokens of a context and of what follows it.

        Spaces at the end of the context are tokenized with the continuation.
        """
        spaces = len(context) - len(context.rstrip())
        if spaces:
            context, continuation = context[:-spaces], context[-spaces:] + continuation
        if not context:
            return [self._first()], self._encode(continuation)
        before = self.engine.tokenizer.encode(context, add_special=True)
        whole = self.engine.tokenizer.encode(context + continuation, add_special=True)
        return whole[: len(before)], whole[len(before) :]

    def _windows(self, ids: list[int]) -> Iterator[tuple[list[int], list[int]]]:
        """Returns parts of a text, each with the token before it."""
        size = self.engine.info["context_length"] - 1
        for start in range(0, len(ids), size):
            before = ids[start - 1] if start else self._first()
            yield [before], ids[start : start + size]

    def _logprobs(self, prompts: list[list[int]], quiet: bool) -> list[dict[str, Any]]:
        asked = {
            "echo": True,
            "max_tokens": 0,
            "logprobs": 1,
            "return_tokens_as_token_ids": True,
        }
        bodies = [{**asked, "prompt": prompt} for prompt in prompts]
        return [choices[0]["logprobs"] for choices in self._choices(bodies, quiet)]

    def _choices(self, bodies: list[dict[str, Any]], quiet: bool) -> Iterable[Any]:
        def send(body: dict[str, Any]) -> _gannet.Call:
            return self.engine._send(COMPLETIONS, body)

        progress = bar(not quiet, len(bodies))
        answers = in_order(run(bodies, send, 2 * self.engine.parallel, progress))
        return [answer.body["choices"] for answer in answers]


def _sum(lists: dict[str, Any], start: int, end: int) -> tuple[float, bool]:
    """Returns the sum of log probabilities, and whether each token was the likeliest."""
    logprobs = lists["token_logprobs"][start:end]
    tops, tokens = lists["top_logprobs"][start:end], lists["tokens"][start:end]
    greedy = all(max(top, key=top.get) == token for top, token in zip(tops, tokens))
    return sum(logprobs), greedy


def _generation(context: str, terms: dict[str, Any]) -> dict[str, Any]:
    terms = dict(terms)
    until = terms.pop("until", [])
    most = terms.pop("max_gen_toks", terms.pop("max_tokens", MAX_TOKENS))
    sampled = terms.pop("do_sample", None)
    temperature = terms.pop("temperature", 1.0 if sampled else 0.0)
    stops = [until] if isinstance(until, str) else list(until)
    return {
        **{name: terms[name] for name in ("top_p", "top_k", "min_p", "seed") if name in terms},
        "prompt": context,
        "stop": [stop for stop in stops if stop],
        "max_tokens": most,
        "temperature": temperature,
    }


def main() -> None:
    """Runs the harness's program."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    # The program finds the class by the name of this module, not by that of the script.
    from gannet.lm_eval import main as program

    program()
