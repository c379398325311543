"""The corpus: an endless, deterministic stream of conversations with their answers.

A generator of a skill makes a `Case`; `draw` gives each case to exactly one side
of the split, by a hash of what the case asks, so nothing held out is ever trained
on. The published chat template renders the prompt; the completion is what the
model must write after it.

    python corpus.py --skill arithmetic --count 5 --held-out
"""

import argparse
import hashlib
import json
import random
import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from jinja2.sandbox import ImmutableSandboxedEnvironment

import pools

TEMPLATE_FILE = Path(__file__).resolve().parents[2] / "crates/tiny/model/chat_template.jinja"
HELD_OUT_OF = 12
END = "<|im_end|>"
TEXT_END = "<|endoftext|>"


@dataclass
class Case:
    """One thing asked. `key` says what is held out; `ask` may be reworded."""

    skill: str
    key: str
    ask: str
    answer: str
    thought: str = "This is simple."
    history: list = field(default_factory=list)
    after: list = field(default_factory=list)
    tools: list | None = None
    exact: bool = False  # the wording of `ask` must stay as it is
    raw: bool = False  # plain text, no chat: `ask` continued by `answer`


@dataclass
class Sample:
    """A rendered case: the model sees `prompt` and must write `completion`."""

    skill: str
    prompt: str
    completion: str
    thinking: bool
    sums: bool = False  # only what follows each equals sign is to be learned


def is_held_out(key):
    return hashlib.blake2s(key.encode()).digest()[0] % HELD_OUT_OF == 0


def draw(make, rng, held_out):
    """The first case of a generator that belongs to the wanted side."""
    while True:
        case = make(rng)
        if is_held_out(case.key) == held_out:
            return case


def _template():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return env.from_string(TEMPLATE_FILE.read_text())


TEMPLATE = _template()


def reword(text, rng):
    """The same request as another hand would type it."""
    roll = rng.random()
    if roll < 0.55:
        return text
    if roll < 0.67:
        text = text[:1].lower() + text[1:]
    if roll < 0.73:
        text = text.lower()
    if 0.62 < roll < 0.82:
        text = text.rstrip("?.!")
    if roll > 0.80:
        small = text if text.startswith("I ") else text[:1].lower() + text[1:]
        start = ("Please tell me: ", "Hi! ", "Hello. ", "Hello, ", "Can you tell me: ", "Now, ")
        text = rng.choice(start) + (text if roll > 0.93 else small)
    if roll > 0.97:
        text = text + rng.choice((" Thanks!", " Thank you.", " Please."))
    return text


def render(case, rng, thinking, system=None):
    """A sample of a case, after earlier turns some of the time.

    `system` is the system prompt, empty for none; left out, one is drawn.
    """
    if case.raw:
        return Sample(case.skill, case.ask, case.answer + TEXT_END, thinking)
    ask = case.ask if case.exact else reword(case.ask, rng)
    messages = case.history + [{"role": "user", "content": ask}] + case.after
    if rng.random() < 0.08:
        messages = _earlier_turns(rng) + messages
    system = draw_system(rng) if system is None else system
    if system:
        messages = [{"role": "system", "content": system}] + messages
    prompt = TEMPLATE.render(
        messages=messages, tools=case.tools, add_generation_prompt=True, enable_thinking=thinking
    )
    start = f"<think>\n{case.thought}\n</think>\n\n" if thinking else ""
    return Sample(case.skill, prompt, start + case.answer + END, thinking)


def draw_system(rng):
    """A system prompt, or nothing, which is the most common."""
    roll = rng.random()
    if roll < 0.78:
        return ""
    if roll < 0.97:
        return rng.choice(pools.SYSTEMS)
    return " ".join(rng.choices(pools.WORDS, k=rng.randint(3, 12))) + "."


def _earlier_turns(rng):
    from skills import PLAIN

    turns = []
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        case = draw(PLAIN[rng.choice(list(PLAIN))], rng, False)
        ask = case.ask if case.exact else reword(case.ask, rng)
        turns.append({"role": "user", "content": ask})
        turns.append({"role": "assistant", "content": case.answer})
    return turns


def batch(seed, step, count, mixture):
    """The training samples of one step, in groups; `mixture` gives each skill's weight.

    Samples with tools come in groups that share their definitions, so that the long
    common start is computed once.
    """
    from skills import PRACTICE, SKILLS, TOOL_SKILLS

    rng = random.Random(f"{seed}/{step}")
    names, weights = list(mixture), list(mixture.values())
    groups = []
    for skill in rng.choices(names, weights, k=count):
        if skill in TOOL_SKILLS:
            groups.append(_tool_group(rng))
        elif skill == "sums":
            groups.append([_sums(rng)])
        else:
            case = draw((SKILLS | PRACTICE)[skill], rng, False)
            groups.append([render(case, rng, rng.random() < 0.5)])
    return groups


def _sums(rng, count=12):
    """Many sums one after the other: plain practice of the results."""
    from skill_work import arithmetic

    lines = [draw(arithmetic, rng, False).answer for _ in range(count)]
    return Sample("sums", "", TEXT_END.join(lines) + TEXT_END, False, sums=True)


def _tool_group(rng, size=5):
    from skill_tools import make_box, tool_call, tool_result, without_tools

    if rng.random() < 0.12:
        return [render(draw(without_tools, rng, False), rng, rng.random() < 0.5)]
    box, system = make_box(rng), draw_system(rng)
    return [
        render(draw(partial(make, box=box), rng, False), rng, rng.random() < 0.5, system)
        for make in rng.choices((tool_call, tool_result), (6, 4), k=size)
    ]


def held_out_samples(skill, count, seed, thinking):
    """Distinct held-out samples of one skill, for evaluation."""
    from skills import SKILLS

    rng = random.Random(f"{seed}/{skill}")
    seen, samples = set(), []
    for _ in range(count * 20):
        sample = render(draw(SKILLS[skill], rng, True), rng, thinking)
        if sample.prompt not in seen:
            seen.add(sample.prompt)
            samples.append(sample)
        if len(samples) == count:
            break
    return samples


def answer_of(completion):
    """What the user sees of a completion: the text after the thought."""
    text = completion.split("</think>")[-1]
    return re.sub(r"<\|(im_end|endoftext)\|>$", "", text).strip("\n")


def main():
    parser = argparse.ArgumentParser(description="Print samples of the corpus.")
    parser.add_argument("--skill", required=True)
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--held-out", action="store_true")
    args = parser.parse_args()
    from skills import SKILLS

    rng = random.Random(args.seed)
    for i in range(args.count):
        case = draw(SKILLS[args.skill], rng, args.held_out)
        sample = render(case, rng, thinking=i % 2 == 0)
        print(sample.prompt + "\x1b[1m" + sample.completion + "\x1b[0m\n" + "-" * 60)


if __name__ == "__main__":
    main()
