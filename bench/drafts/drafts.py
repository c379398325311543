"""What drafts gain: tokens a second with each setting of `speculate`, in turns.

GANNET_ISA chooses the instruction set.

    python bench/drafts/drafts.py --gannet target/release/gannet --model FILE WORKLOAD...

Workloads:

- `rewrite`: an answer of which an earlier request had all but ten tokens, as when a file is written
  back with ten changes. For models with random weights too. Every setting must give the same tokens.
- `random`: an answer at temperature 1, one and eight together, in which nothing repeats itself.
- `repeat`: an instruction to repeat a text.
- `json`: an answer that a schema is given for, with an earlier program (`--before`) in turns.
- `loaded`: what a drafter costs that gains nothing, in a server with it and one without it in turns:
  a model or head of random weights (`--draft-model`), or layers of multi-token prediction.
"""

import argparse
import json
import socket
import statistics
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

TEXT = (
    "The old harbour was quiet when Mara reached the end of the pier. She counted the boats, nine "
    "of them, and wrote each name into the small green book that her father had left her. The "
    "wind smelled of salt and diesel, and somewhere behind the warehouses a dog was barking."
)
TEXT_MEMBER = {"type": "string", "maxLength": 20}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": TEXT_MEMBER,
        "year_of_birth": {"type": "integer", "minimum": 1900, "maximum": 2020},
        "address": {
            "type": "object",
            "properties": {"street": TEXT_MEMBER, "city": TEXT_MEMBER},
            "required": ["street", "city"],
            "additionalProperties": False,
        },
        "skills": {"type": "array", "items": TEXT_MEMBER, "maxItems": 4},
    },
    "required": ["name", "year_of_birth", "address", "skills"],
    "additionalProperties": False,
}


class Server:
    """A server on a free port, after its first measurements."""

    def __init__(self, gannet, model, parallel=1, *arguments):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [gannet, "serve", "-m", model, "--port", str(self.port), "--ctx", "4096"]
        command += ["--kv-memory", "2GiB", "--parallel", str(parallel), *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while self.process.poll() is None:
            try:
                urllib.request.urlopen(self.url("/ready")).read()
                break
            except OSError:
                time.sleep(0.1)
        if self.process.poll() is not None:
            raise SystemExit(f"{gannet} serve ended with {self.process.returncode}")
        time.sleep(2)

    def url(self, path):
        return f"http://127.0.0.1:{self.port}{path}"

    def post(self, path, body):
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self.url(path), json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def rate(answer):
    return answer["timings"]["predicted_per_second"]


def report(workload, rates, base):
    for name, values in rates.items():
        ratios = [value / before for value, before in zip(values, rates[base])]
        middle, ratio = statistics.median(values), statistics.median(ratios)
        print(f"{workload}  {name:10} {middle:8.1f} tokens/s  {ratio:5.2f}", flush=True)


def in_turns(runs, names, measure):
    rates = {name: [] for name in names}
    for run in range(runs):
        for name in names:
            rates[name].append(measure(name, run))
    return rates


def rewrite(args):
    prompt, tokens = list(range(100, 140)), 400
    settings = ["off", "auto", *(f"suffix:{number}" for number in (1, 2, 4, 8, 16))]
    with Server(args.gannet, args.model) as server:

        def ask(speculate, salt, prompt, tokens):
            body = {"prompt": prompt, "max_tokens": tokens, "temperature": 1, "seed": 3}
            body |= {"speculate": speculate, "cache_salt": salt, "ignore_eos": True}
            answer = server.post("/v1/completions", body | {"return_token_ids": True})
            return answer["choices"][0]["token_ids"], rate(answer)

        new, _ = ask("off", "first", prompt, tokens)
        old = list(new)
        for change in range(10):
            old[(2 * change + 1) * tokens // 20] = 77

        def measure(speculate, run):
            # What others wrote with this salt is all that is remembered.
            salt = f"{speculate}-{run}"
            ask("auto", salt, prompt + old, 1)
            written, speed = ask(speculate, salt, prompt, tokens)
            assert written == new, speculate
            return speed

        report("rewrite", in_turns(args.runs, settings, measure), "off")


def random(args):
    for together in (1, 8):
        with Server(args.gannet, args.model, together) as server:

            def measure(speculate, run):
                def ask(number):
                    body = {"prompt": "Once upon a time", "n_predict": 128, "temperature": 1}
                    body |= {"ignore_eos": True, "seed": 100 * run + number}
                    return server.post("/completion", body | {"speculate": speculate})

                start = time.monotonic()
                with ThreadPoolExecutor(together) as pool:
                    answers = list(pool.map(ask, range(together)))
                seconds = time.monotonic() - start
                return sum(it["timings"]["predicted_n"] for it in answers) / seconds

            report(f"random x{together}", in_turns(args.runs, ["off", "auto"], measure), "off")


def repeat(args):
    settings = ["off", "auto", "suffix", *(f"ngram:{number}" for number in (1, 2, 4, 8, 16))]
    with Server(args.gannet, args.model, 1, "--draft-memory", "0") as server:

        def measure(speculate, _):
            content = "Repeat this text exactly, word by word:\n\n" + TEXT
            body = {"messages": [{"role": "user", "content": content}], "max_tokens": 120}
            return rate(
                server.post(
                    "/v1/chat/completions", body | {"temperature": 0, "speculate": speculate}
                )
            )

        report("repeat", in_turns(args.runs, settings, measure), "off")


def schema(args):
    servers = {
        "before": Server(args.before or args.gannet, args.model),
        "off": Server(args.gannet, args.model, 1, "--speculate", "off"),
        "auto": Server(args.gannet, args.model),
    }

    def measure(name, run):
        content = f"Describe an imaginary person number {run} as JSON."
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 300}
        form = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
        body |= {"temperature": 0.7, "seed": run, "response_format": form}
        return rate(servers[name].post("/v1/chat/completions", body))

    try:
        report("json", in_turns(args.runs, list(servers), measure), "before")
    finally:
        for server in servers.values():
            server.__exit__()


def loaded(args):
    drafter, how = ["--speculate", "mtp"], "mtp"
    if args.draft_model:
        drafter, how = ["--draft-model", args.draft_model], "model"
    bare = Server(args.gannet, args.model, 1, "--speculate", "off")
    having = Server(args.gannet, args.model, 1, *drafter)
    settings = {"without": (bare, "off"), "with, off": (having, "off"), how: (having, how)}

    def measure(name, run):
        server, speculate = settings[name]
        body = {"prompt": "The quick brown fox", "n_predict": 120, "temperature": 1, "seed": run}
        body |= {"ignore_eos": True, "speculate": speculate}
        return rate(server.post("/completion", body))

    with bare, having:
        report("loaded", in_turns(args.runs, list(settings), measure), "without")


WORKLOADS = {
    "rewrite": rewrite,
    "random": random,
    "repeat": repeat,
    "json": schema,
    "loaded": loaded,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gannet", required=True, help="the program")
    parser.add_argument("--before", help="an earlier program, for json")
    parser.add_argument("--model", required=True, help="a model file")
    parser.add_argument("--draft-model", help="a model or head that drafts, for loaded")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("workloads", nargs="+", choices=list(WORKLOADS), metavar="WORKLOAD")
    args = parser.parse_args()
    for name in args.workloads:
        WORKLOADS[name](args)


if __name__ == "__main__":
    main()
