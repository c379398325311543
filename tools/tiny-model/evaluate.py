"""Greedy accuracy of the exported checkpoint on held-out samples, per skill.

    python evaluate.py --count 200 --write

The weights are the BF16 ones of `crates/tiny/model`, computed in F32 by `transformers`.
An answer counts when its text after the thought is exactly the wanted one and the
model ends its turn itself; a story counts when it is whole, about the hero asked
for and follows one plot from start to end. `--write` puts the table into the card.
"""

import argparse
import re
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from corpus import END, TEMPLATE_FILE, TEXT_END, answer_of, held_out_samples
from skill_work import same_story
from skills import SKILLS

MARKS = ("<!-- accuracy -->", "<!-- end of accuracy -->")


def load(folder):
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return tokenizer, model.eval()


@torch.no_grad()
def complete(model, tokenizer, prompts, longest=160, rows=64):
    """The greedy completion of each prompt, special tokens included."""
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    texts = [""] * len(prompts)
    for start in range(0, len(order), rows):
        part = order[start : start + rows]
        inputs = tokenizer([prompts[i] for i in part], return_tensors="pt", padding=True)
        out = model.generate(**inputs, max_new_tokens=longest, do_sample=False)
        for i, ids in zip(part, out[:, inputs["input_ids"].shape[1] :]):
            texts[i] = first_turn(tokenizer.decode(ids, skip_special_tokens=False))
    return texts


def first_turn(text):
    """The text up to and including the first end mark; padding follows it."""
    ended = re.search(re.escape(END) + "|" + re.escape(TEXT_END), text)
    return text[: ended.end()] if ended else text


def is_right(sample, text):
    if not text.endswith((END, TEXT_END)):
        return False
    wanted, told = answer_of(sample.completion), answer_of(text)
    if sample.skill != "stories":
        return told == wanted
    asked = sample.prompt.rsplit("<|im_start|>user\n", 1)[-1]
    return same_story(wanted, told, keep_name=" named " in asked)


def examine(model, tokenizer, skill, count, thinking, show):
    samples = held_out_samples(skill, count, "final exam", thinking)
    texts = complete(model, tokenizer, [s.prompt for s in samples])
    wrong = [(s, t) for s, t in zip(samples, texts) if not is_right(s, t)]
    for sample, text in wrong[:show]:
        print(
            f"  asked  {sample.prompt[-160:]!r}\n  wanted {sample.completion!r}\n  told   {text!r}"
        )
    return 1 - len(wrong) / len(samples), len(samples)


def table(model, tokenizer, count, show):
    lines = ["| skill | thinking | direct | samples |", "|---|---|---|---|"]
    for skill in SKILLS:
        cells, total = [], 0
        for thinking in (True, False):
            if skill == "plain text" and thinking:
                cells.append("")
                continue
            share, seen = examine(model, tokenizer, skill, count, thinking, show)
            total += seen
            cells.append(f"{100 * share:.1f} %")
        lines.append(f"| {skill} | {cells[0]} | {cells[1]} | {total} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def write_card(card, text):
    start, end = MARKS
    before, rest = card.read_text().split(start)
    card.write_text(f"{before}{start}\n{text}\n{end}{rest.split(end)[1]}")


def main():
    parser = argparse.ArgumentParser(description="Examine the exported model.")
    parser.add_argument("--models", type=Path, default=TEMPLATE_FILE.parent)
    parser.add_argument("--count", type=int, default=200, help="samples per skill and mode")
    parser.add_argument("--show", type=int, default=0, help="wrong answers to print per skill")
    parser.add_argument("--write", action="store_true", help="put the table into the card")
    args = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer, model = load(args.models)
    text = table(model, tokenizer, args.count, args.show)
    if args.write:
        write_card(args.models.parent / "README.md", text)


if __name__ == "__main__":
    main()
