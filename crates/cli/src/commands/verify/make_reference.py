#!/usr/bin/env python3
"""Writes reference outputs of a checkpoint for `gannet verify`.

    pip install torch transformers
    python make_reference.py MODEL reference.json ["prompt text" ...]

MODEL is a folder or a Hugging Face name. Everything is computed in float32 on the CPU.
"""
import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPTS = ["Hello", "The capital of France is", "def fibonacci(n):\n    if n < 2:\n        return n\n"]
STEPS = 16

name, out, texts = sys.argv[1], sys.argv[2], sys.argv[3:] or PROMPTS
tokenizer = AutoTokenizer.from_pretrained(name)
model = AutoModelForCausalLM.from_pretrained(
    name, dtype=torch.float32, attn_implementation="eager"
).eval()


def measure(text):
    ids = tokenizer(text)["input_ids"]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    nll = torch.nn.functional.cross_entropy(logits[:-1].double(), torch.tensor(ids[1:]))
    greedy, steps, known = [], [], list(ids)
    with torch.no_grad():
        for _ in range(STEPS):
            row = model(torch.tensor([known])).logits[0, -1]
            best = row.topk(5)
            steps.append({"ids": best.indices.tolist(), "logits": best.values.tolist()})
            greedy.append(best.indices[0].item())
            known.append(greedy[-1])
    return {
        "text": text,
        "add_special_tokens": True,
        "input_ids": ids,
        "last_logits": logits[-1].tolist(),
        "top5_ids": logits.topk(5).indices.tolist(),
        "greedy_ids": greedy,
        "greedy_top5": steps,
        "mean_nll": nll.item() if len(ids) > 1 else None,
    }


with open(out, "w") as file:
    json.dump({"name": name, "prompts": [measure(text) for text in texts]}, file)
print(f"wrote {out}", file=sys.stderr)
