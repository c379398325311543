"""Logits, greedy text and vectors of real models are those of transformers, and fast mode costs little."""

import gzip
import json
import os
import subprocess
from pathlib import Path

from real_models import minilm, smollm2

HERE = Path(__file__).parent
DOCUMENTS = HERE.parents[1] / "docs"
# About 8,000 tokens.
TEXT_BYTES = 27_000


def gannet(*arguments):
    command = [os.environ["GANNET_BIN"], *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def verified(*arguments):
    done = gannet("verify", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def unpacked(folder):
    path = folder / "smollm2.json"
    path.write_bytes(gzip.decompress((HERE / "smollm2.json.gz").read_bytes()))
    return path


def test_exact_mode_has_the_logits_and_greedy_text_of_transformers(tmp_path):
    reference = unpacked(tmp_path)
    assert json.loads(reference.read_text())["tolerance"]["f32_max_abs"] == 1e-4
    report = verified(smollm2(), "--mode", "exact", "--reference", reference)
    assert report.count("greedy tokens") == 3, report


def test_vectors_are_those_of_transformers():
    verified(minilm(), "--mode", "exact", "--reference", HERE / "minilm.json")
    verified(minilm(), "--mode", "fast", "--reference", HERE / "minilm.json")


def perplexity(mode, text):
    done = gannet("perplexity", "-m", smollm2(), "--mode", mode, "--ctx", 2048, "--json", "-f", text)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_fast_mode_raises_the_perplexity_by_half_a_percent_at_most(tmp_path):
    text = tmp_path / "text.txt"
    pages = b"".join(page.read_bytes() for page in sorted(DOCUMENTS.glob("*.md")))
    text.write_text(pages[:TEXT_BYTES].decode(errors="ignore"))
    exact, fast = perplexity("exact", text), perplexity("fast", text)
    assert exact["tokens"] == fast["tokens"] > 7_000
    assert fast["perplexity"] <= 1.005 * exact["perplexity"], (exact, fast)
