"""Write `reference.json`: what another engine must compute from the checkpoint.

    python reference.py --models ../../crates/tiny/model

Computed by `transformers` in F32 on the CPU from the stored BF16 weights; a second
run in F64 and one without a cache give the noise, from which the tolerances follow.
Prompts are plain text, chosen among candidates for the clearest greedy choices.
"""

import argparse
import json
import random
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from corpus import TEMPLATE_FILE, draw
from skill_chat import plain_text
from skill_work import story

STEPS = 16
LENGTHS = ((4, 12), (30, 48), (90, 140))
CHATS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 47 + 38?"}],
    [
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": "Nice to meet you, Ada!"},
        {"role": "user", "content": "What is my name?"},
    ],
    [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "<think>\nThe user greets me.\n</think>\n\nHello!"},
        {"role": "user", "content": "  Naïve café 🙂,\n two lines "},
    ],
]
TEXTS = [
    "",
    " ",
    "Hello, world!",
    "What is 47 + 38?",
    "I'm here, you're there; they'll see.",
    "  spaces   and\ttabs\n\n\nlines  ",
    "Reykjavik Ouagadougou",
    "naïve café",
    "nai\u0308ve",
    "日本語とEnglish",
    "🙂🚀",
    '{"name": "Ada", "age": 36}',
    "1234567890",
    "fn main() { loop {} }",
    "<|im_start|>user\nHi<|im_end|>",
    "<think>\nyes\n</think>",
    "no <tool_call> here",
]


def floats(values):
    """The shortest decimals that give back each F32 value."""
    return [float(str(np.float32(x))) for x in np.asarray(values, dtype=np.float32).reshape(-1)]


def cosine(a, b):
    return torch.nn.functional.cosine_similarity(a.double(), b.double(), dim=-1).item()


@torch.no_grad()
def all_logits(model, ids):
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


@torch.no_grad()
def greedy(model, ids):
    """Sixteen greedy tokens with a cache, ends ignored, and the logits of each step."""
    out, tokens, rows = model(input_ids=torch.tensor([ids]), use_cache=True), [], []
    for _ in range(STEPS):
        rows.append(out.logits[0, -1].float())
        tokens.append(int(rows[-1].argmax()))
        step = torch.tensor([[tokens[-1]]])
        out = model(input_ids=step, past_key_values=out.past_key_values, use_cache=True)
    return tokens, torch.stack(rows)


def smallest_gap(rows):
    best = rows.topk(2, dim=-1).values
    return (best[..., 0] - best[..., 1]).min().item()


def candidates(tokenizer, low, high, count=24):
    """Starts of stories and sentences with a number of tokens in the wanted range."""
    rng = random.Random(f"reference/{low}")
    while count:
        make = plain_text if high < 20 else story
        cases = [draw(make, rng, True) for _ in range(1 if high < 80 else 3)]
        text = " ".join(c.ask if c.raw else c.answer for c in cases)
        ids = tokenizer.encode(text).ids[: rng.randint(low, high)]
        text = tokenizer.decode(ids)
        if low <= len(ids) and tokenizer.encode(text).ids == ids:
            count -= 1
            yield text, ids


def prompt_record(models, tokenizer, low, high):
    """The clearest candidate with its numbers, and the noise seen on it."""
    f32, f64, bf16 = models
    runs = ((text, ids, *greedy(f32, ids)) for text, ids in candidates(tokenizer, low, high))
    text, ids, tokens, rows = max(runs, key=lambda run: smallest_gap(run[3]))
    logits, exact, coarse = (all_logits(m, ids) for m in (f32, f64, bf16))
    whole = all_logits(f32, ids + tokens)[len(ids) - 1 : -1]
    assert whole.argmax(-1).tolist() == tokens, "greedy tokens depend on the cache"
    best = logits.topk(5, dim=-1)
    noise = {
        "f64": (logits.double() - exact).abs().max().item(),
        "cache": (whole - rows).abs().max().item(),
        "cosine": cosine(logits[-1], exact[-1]),
        "bf16": (logits - coarse.float())[-1].abs().max().item(),
        "bf16 cosine": cosine(logits[-1], coarse[-1]),
    }
    nll = torch.nn.functional.cross_entropy(logits[:-1].double(), torch.tensor(ids[1:]))
    return noise, {
        "text": text,
        "add_special_tokens": True,
        "input_ids": ids,
        "mean_nll": nll.item(),
        "last_logits": floats(logits[-1]),
        "top5_ids": best.indices.tolist(),
        "greedy_ids": tokens,
        "greedy_text": tokenizer.decode(tokens, skip_special_tokens=True),
        "greedy_top5": [
            {"ids": row.topk(5).indices.tolist(), "logits": floats(row.topk(5).values)}
            for row in rows
        ],
        "greedy_min_gap": smallest_gap(rows),
        "min_top5_gap_last": (best.values[-1, :-1] - best.values[-1, 1:]).min().item(),
        "min_router_margin": None,
        "min_index_margin": None,
    }


def chat_records(folder, tokenizer):
    published = AutoTokenizer.from_pretrained(folder)
    for messages in CHATS:
        for add in (True, False):
            text = published.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=add
            )
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            yield {"messages": messages, "add_generation_prompt": add, "rendered": text, "ids": ids}


def tokenizer_records(tokenizer):
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        yield {
            "text": text,
            "ids": ids,
            "ids_with_special": tokenizer.encode(text).ids,
            "decoded": tokenizer.decode(ids, skip_special_tokens=False),
            "decoded_skip_special": tokenizer.decode(ids),
        }


def load(folder, dtype):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    return model.eval()


def reference(folder):
    f32, bf16 = load(folder, torch.float32), load(folder, torch.bfloat16)
    models = (f32, load(folder, torch.float32).double(), bf16)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    noises, prompts = zip(*(prompt_record(models, tokenizer, *span) for span in LENGTHS))
    worst = {key: max(n[key] for n in noises) for key in ("f64", "cache", "bf16")}
    low = {key: min(n[key] for n in noises) for key in ("cosine", "bf16 cosine")}
    return {
        "name": "tiny",
        "architecture": "Qwen3ForCausalLM",
        "stored_dtype": "bfloat16",
        "stored_quantization": None,
        "tensor_naming": "published",
        "computed_with": "transformers, float32, eager attention, CPU",
        "greedy_ignores_eos": True,
        "noise": {
            "max_abs_f32_vs_f64": worst["f64"],
            "max_abs_cached_vs_uncached": worst["cache"],
            "min_cosine_f32_vs_f64": low["cosine"],
            "max_abs_bf16_compute": worst["bf16"],
            "min_cosine_bf16_compute": low["bf16 cosine"],
        },
        "tolerance": {
            "f32_max_abs": max(1e-3, 20 * worst["f64"], 20 * worst["cache"]),
            "f32_min_cosine": 0.999999,
            "bf16_max_abs": max(0.1, 3 * worst["bf16"]),
            "bf16_min_cosine": max(0.5, 1 - 4 * (1 - low["bf16 cosine"])),
        },
        "prompts": list(prompts),
        "chat": list(chat_records(folder, tokenizer)),
        "tokenizer_cases": list(tokenizer_records(tokenizer)),
    }


def main():
    parser = argparse.ArgumentParser(description="Write the reference of the model.")
    parser.add_argument("--models", type=Path, default=TEMPLATE_FILE.parent)
    args = parser.parse_args()
    torch.set_num_threads(1)
    text = json.dumps(reference(args.models), ensure_ascii=False, separators=(",", ":"))
    (args.models / "reference.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
