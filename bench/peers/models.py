"""Two models of one server at a time: what each gets of the processors, and how long a prompt of one delays the other.

    python models.py --gannet PATH --models FILE FILE [--tokens 128] [--prompt 3000] [--runs 3]

Each run loads both models, lets each generate alone, then both at once, and last one beside a long prompt of the other.
"""

import argparse
import json
import os
import random
import statistics
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from serving import Server, free_port


def generate(server, model, prompt, tokens):
    """Tokens per second behind the first, seconds to the first, and the longest gap but 1 %."""
    body = {"model": model, "prompt": prompt, "max_tokens": tokens, "stream": True, "ignore_eos": True, "temperature": 0}
    request = urllib.request.Request(f"{server.url}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"})
    start, times = time.monotonic(), []
    with urllib.request.urlopen(request, timeout=3600) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                times.append(time.monotonic())
    gaps = sorted(later - earlier for earlier, later in zip(times, times[1:]))
    return {
        "rate": (len(times) - 1) / (times[-1] - times[0]),
        "first": times[0] - start,
        "gap": gaps[int(len(gaps) * 0.99)],
    }


def at_once(*calls):
    """The results of calls of `generate` in threads of their own."""
    results = [None] * len(calls)

    def run(at):
        results[at] = generate(*calls[at])

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def measure(args, folder, run):
    """One run with a new server."""
    names = [path.stem for path in args.models]
    command = [args.gannet, "serve", "--models", folder, "--port", str(free_port())]
    random.seed(run)
    long = [random.randrange(100, 10000) for _ in range(2 * args.prompt)]
    with Server(command) as server:
        loads = [generate(server, name, [1, 2, 3], 2)["first"] for name in names]
        # The first answers pack what products read.
        for name in names:
            generate(server, name, [1, 2, 3], args.tokens)
        alone = [generate(server, name, [1, 2, 3], args.tokens) for name in names]
        both = at_once(*((server, name, [1, 2, 3], args.tokens) for name in names))
        prompt = generate(server, names[0], long[: args.prompt], 2)
        beside = at_once((server, names[0], long[args.prompt :], 2), (server, names[1], [1, 2, 3], 2 * args.tokens))
    shares = [together["rate"] / single["rate"] for together, single in zip(both, alone)]
    return [*loads, alone[0]["rate"], alone[1]["rate"], *shares, prompt["first"], beside[0]["first"], alone[1]["gap"], beside[1]["gap"]]


ROWS = [
    "first token of a model that is not loaded, s (1st)",
    "first token of a model that is not loaded, s (2nd)",
    "alone, tokens/s (1st)",
    "alone, tokens/s (2nd)",
    "both at once, share of its speed alone (1st)",
    "both at once, share of its speed alone (2nd)",
    "long prompt alone, s (1st)",
    "long prompt beside answers of the 2nd, s (1st)",
    "99 % of gaps alone, s (2nd)",
    "99 % of gaps beside the long prompt, s (2nd)",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gannet", required=True)
    parser.add_argument("--models", type=Path, nargs=2, required=True)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompt", type=int, default=3000)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for path in args.models:
            os.symlink(path.resolve(), Path(folder) / path.name)
        runs = [measure(args, folder, run) for run in range(args.runs)]
    for row, values in zip(ROWS, zip(*runs)):
        print(f"{row:55} {statistics.median(values):8.3f}")


if __name__ == "__main__":
    main()
