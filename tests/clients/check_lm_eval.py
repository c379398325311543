"""lm-evaluation-harness against `gannet serve`: its log likelihoods equal the server's.

    python -m venv target/venv-clients
    target/venv-clients/bin/pip install -r tests/clients/requirements.txt
    GANNET_BIN=target/release/gannet target/venv-clients/bin/python tests/clients/check_lm_eval.py

The harness requests whole texts with log probabilities (`echo`, one request per choice). The script computes the
same numbers one token at a time, from answers of one token to prompts that grow, which take another path through
the engine. `.ci/run` runs it.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from serving import TINY, Server  # noqa: E402

TOP = 5
CLOSE = 2e-3


def harness(server, folder):
    """The score of the harness, and its samples with the log likelihood of each choice."""
    tasks = Path(folder) / "tasks"
    tasks.mkdir()
    data = HERE / "lm_eval_tasks"
    task = (data / "capitals.yaml").read_text()
    (tasks / "capitals.yaml").write_text(task.replace("CAPITALS", str(data / "capitals.jsonl")))
    settings = {
        "model": "gannet",
        "base_url": f"{server.address}/v1/completions",
        "tokenizer_backend": "huggingface",
        "tokenizer": str(TINY),
        "num_concurrent": "4",
        "max_length": "2048",
    }
    command = [Path(sys.executable).parent / "lm_eval", "run", "--model", "local-completions"]
    command += ["--model_args", ",".join(f"{key}={value}" for key, value in settings.items())]
    command += ["--tasks", "gannet_capitals", "--include_path", tasks]
    command += ["--output_path", folder, "--log_samples"]
    quiet = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": f"{folder}/cache", "OPENAI_API_KEY": "x"}
    subprocess.run([str(part) for part in command], check=True, env={**os.environ, **quiet})
    [results] = Path(folder).rglob("results_*.json")
    [samples] = Path(folder).rglob("samples_*.jsonl")
    score = json.loads(results.read_text())["results"]["gannet_capitals"]["acc,none"]
    return score, [json.loads(line) for line in samples.read_text().splitlines()]


def tokens(server, text):
    return server.post("/tokenize", {"content": text}).json["tokens"]


def stepwise(server, context, continuation):
    """Log probabilities of the continuation's tokens; None for a token that is not among the best."""
    ids, start = tokens(server, context + continuation), len(tokens(server, context))
    found = []
    for at in range(start, len(ids)):
        body = {"prompt": ids[:at], "max_tokens": 1, "logprobs": TOP, "temperature": 0}
        [choice] = server.post("/v1/completions", body).json["choices"]
        word = server.post("/detokenize", {"tokens": [ids[at]]}).json["content"]
        found.append(choice["logprobs"]["top_logprobs"][0].get(word))
    return found


def echoed(server, context, continuation):
    """The same log probabilities from one request, as the harness makes it."""
    ids, start = tokens(server, context + continuation), len(tokens(server, context))
    body = {"prompt": ids, "max_tokens": 1, "logprobs": 1, "echo": True, "temperature": 0}
    [choice] = server.post("/v1/completions", body).json["choices"]
    values = choice["logprobs"]["token_logprobs"]
    assert values[0] is None and len(values) == len(ids) + 1
    return values[start:-1]


def check_sample(server, sample):
    """Compares each choice; returns the number of tokens compared both ways."""
    compared = 0
    context = f"The capital of {sample['doc']['country']} is"
    for choice, response in zip(sample["doc"]["choices"], sample["filtered_resps"]):
        harness = float(response[0])
        own = echoed(server, context, " " + choice)
        assert abs(harness - sum(own)) < CLOSE, (context, choice, harness, own)
        for once, step in zip(own, stepwise(server, context, " " + choice)):
            assert step is None or abs(once - step) < CLOSE, (context, choice, once, step)
            compared += step is not None
    return compared


def main():
    server = Server()
    try:
        with tempfile.TemporaryDirectory() as folder:
            score, samples = harness(server, folder)
        compared = sum(check_sample(server, sample) for sample in samples)
    finally:
        server.stop()
    assert len(samples) == 6 and compared >= len(samples), compared
    assert score >= 0.8, score
    print(f"accuracy {score}; {compared} tokens agree with answers of one token")


if __name__ == "__main__":
    main()
