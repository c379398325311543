#!/usr/bin/env python3
"""Writes the reference outputs of the real models: `smollm2.json.gz` and `minilm.json`.

    pip install torch transformers accelerate gguf
    python make_references.py SmolLM2-135M-Instruct.Q4_1.gguf all-MiniLM-L6-v2/

Both are computed by transformers in float32 on the CPU, from the weights as the files store them:
transformers dequantises the GGUF file. The logits of a whole vocabulary compress to a quarter.
"""

import gzip
import json
import sys
from pathlib import Path

import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

FOLDER = Path(__file__).parent
STEPS = 48
PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "Once upon a time, in a village between two mountains, there lived an old clockmaker who",
]
TEXTS = [
    "The cat sits on the mat.",
    "A feline rests upon a rug.",
    "Stock markets fell sharply on Monday.",
    "Grüße aus München: naïve café, 東京, and 12,345.67 words",
]


def rounded(values):
    return [round(value, 5) for value in values]


def measured(model, tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    nll = torch.nn.functional.cross_entropy(logits[:-1].double(), torch.tensor(ids[1:]))
    greedy, steps, known = [], [], list(ids)
    for _ in range(STEPS):
        with torch.no_grad():
            best = model(torch.tensor([known])).logits[0, -1].topk(5)
        steps.append({"ids": best.indices.tolist(), "logits": rounded(best.values.tolist())})
        greedy.append(steps[-1]["ids"][0])
        known.append(greedy[-1])
    return {
        "text": text,
        "input_ids": ids,
        "last_logits": rounded(logits[-1].tolist()),
        "top5_ids": logits.topk(5).indices.tolist(),
        "greedy_ids": greedy,
        "greedy_text": tokenizer.decode(greedy),
        "greedy_top5": steps,
        "mean_nll": nll.item(),
    }


def smollm2(path):
    folder, file = str(path.parent), path.name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=file, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    return {
        "name": "SmolLM2-135M-Instruct, Q4_1",
        "tolerance": {"f32_max_abs": 1e-4},
        "prompts": [measured(model, tokenizer, text) for text in PROMPTS],
    }


def minilm(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()

    def vector(text):
        ids = tokenizer(text)["input_ids"]
        with torch.no_grad():
            states = model(torch.tensor([ids])).last_hidden_state[0]
        mean = torch.nn.functional.normalize(states.double().mean(0), dim=0)
        return {"text": text, "input_ids": ids, "embedding": [round(v, 8) for v in mean.tolist()]}

    return {
        "name": "all-MiniLM-L6-v2",
        "pooling": "mean",
        "normalize": True,
        "texts": [vector(text) for text in TEXTS],
    }


def main():
    gguf, embedder = map(Path, sys.argv[1:])
    reference = json.dumps(smollm2(gguf), separators=(",", ":"))
    (FOLDER / "smollm2.json.gz").write_bytes(gzip.compress(reference.encode(), 9, mtime=0))
    (FOLDER / "minilm.json").write_text(json.dumps(minilm(embedder), separators=(",", ":")) + "\n")


main()
