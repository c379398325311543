"""The time to the first token of a conversation's second turn, beside that of its first.

    python turns.py --gannet PATH --models FILE... [--template FILE] [--tokens 8192] [--runs 3]
    python turns.py --gannet PATH --models FILE --serve "" --serve "--state-memory 64MiB"

The first turn is a question of about `--tokens` tokens, different in each run, whose answer is cut after 16 tokens. The second
turn sends that answer back, whose reasoning the template leaves out, and asks again. With several `--serve`, the runs alternate between
servers with these arguments, and the last column has the first turn's speed relative to the first of them.
"""

import argparse
import json
import random
import shlex
import statistics
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from serving import Server, free_port

DROPS_REASONING = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}"""
"""A template that opens the reasoning of an answer and drops that of earlier turns."""


def post(server, path, body):
    """The answer to a request."""
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        return urllib.request.urlopen(request, timeout=3600)
    except urllib.error.HTTPError as error:
        sys.exit(f"{path}: {error.code}: {error.read().decode()}")


def count(server, text):
    """Tokens of a text."""
    return len(json.load(post(server, "/tokenize", {"content": text}))["tokens"])


def turn(server, messages):
    """Seconds to the first token of an answer, its message, and the usage."""
    body = {"messages": messages, "max_tokens": 16, "temperature": 0, "stream": True}
    body["stream_options"] = {"include_usage": True}
    # Without it DeepSeek V4 does not think.
    body["reasoning_effort"] = "high"
    started, first, usage = time.perf_counter(), None, None
    parts = {"reasoning_content": "", "content": ""}
    for line in post(server, "/v1/chat/completions", body):
        data = line.removeprefix(b"data: ").strip()
        if not line.startswith(b"data: ") or data == b"[DONE]":
            continue
        chunk = json.loads(data)
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            for name in parts:
                text = choice["delta"].get(name)
                if text and first is None:
                    first = time.perf_counter() - started
                parts[name] += text or ""
    return first or time.perf_counter() - started, parts, usage


def command(args, model, template):
    """The command of a server whose context holds both turns."""
    context = args.tokens * 5 // 4 + 1024
    common = ["--threads", str(args.threads), "--port", str(free_port()), "--ctx", str(context)]
    return [args.gannet, "serve", "-m", model, "--chat-template", template, *common]


def question(server, tokens):
    """Random words of about `tokens` tokens."""
    words = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(256)]
    each = count(server, " ".join(words)) / len(words)
    return " ".join(random.choices(words, k=int(tokens / each)))


def measure(server, tokens):
    """Both turns of a new conversation."""
    messages = [{"role": "user", "content": question(server, tokens)}]
    cold, parts, first = turn(server, messages)
    parts["content"] = parts["content"] or "Yes."
    messages += [{"role": "assistant", **parts}, {"role": "user", "content": "And then?"}]
    warm, _, second = turn(server, messages)
    cached = second["prompt_tokens_details"]["cached_tokens"]
    own = second["prompt_tokens"] - cached
    return {"cold": cold, "warm": warm, "prompt": first["prompt_tokens"], "computed": own}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gannet", required=True, help="the program to measure")
    parser.add_argument("--models", nargs="+", required=True, help="GGUF files")
    parser.add_argument("--template", default="", help="chat template; by default one that drops earlier reasoning")
    parser.add_argument("--serve", action="append", help="arguments of the server; may be repeated")
    parser.add_argument("--tokens", type=int, default=8192, help="tokens of the first turn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print one JSON object behind the table")
    return parser.parse_args()


def main():
    args = arguments()
    random.seed(0)
    results = []
    print(f"{'model':26}{'server':34}{'prompt':>8}{'cold':>9}{'computed':>10}{'warm':>9}{'cold/warm':>11}{'speed':>8}")
    with tempfile.TemporaryDirectory() as folder:
        template = args.template or str(Path(folder) / "template.jinja")
        if not args.template:
            Path(template).write_text(DROPS_REASONING)
        for model in args.models:
            variants = args.serve or [""]
            found = {more: [] for more in variants}
            for run in range(args.runs):
                for more in variants[run % len(variants) :] + variants[: run % len(variants)]:
                    with Server([*command(args, model, template), *shlex.split(more)]) as server:
                        measure(server, min(args.tokens, 256))  # warms up
                        found[more].append(measure(server, args.tokens))
            base = found[variants[0]]
            for more, runs in found.items():
                middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
                gain = statistics.median(run["cold"] / run["warm"] for run in runs)
                speed = statistics.median(a["cold"] / b["cold"] for a, b in zip(base, runs))
                line = f"{Path(model).stem:26}{more:34}{middle['prompt']:8.0f}{middle['cold']:9.3f}{middle['computed']:10.0f}"
                print(f"{line}{middle['warm']:9.3f}{gain:11.1f}{speed:8.3f}", flush=True)
                results.append({"model": model, "serve": more, "runs": runs, "gain": gain, "speed": speed})
    if args.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
