"""A model larger than memory: Gannet, which reads weights as they are needed, beside llama.cpp, which leaves that to the system.

    python streaming.py --gannet PATH --model FILE [--pack FILE] --limit 1850 --weights 1000 [--prompt 512,2048] [--json]

Each side runs in a new process in a control group of `--limit` MiB, which page cache counts to, after the page cache was dropped;
this needs root. Gannet keeps `--weights` MiB of weights in memory. Every process computes one prompt and then `--gen` tokens, both for
the first time. The sides take turns; figures are medians over the runs, ratios medians of the ratios within the runs. `raw` is the rate at
which `gannet bench --disk` reads the file, `read` what Gannet read per second from the prompt's beginning to the last token.
"""

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from compare import machine

GROUP = "gannet-streaming"
BATCHES = {"llama.cpp": 512, "llama.cpp, batches of 2048": 2048}
"""Variants of llama.cpp: rows that are computed together. With more rows a prompt reads the file less often."""


class Limit:
    """A control group with a limit of memory; `command` runs within it."""

    def __init__(self, mebibytes):
        first = Path("/sys/fs/cgroup/memory")
        self.path = (first if first.is_dir() else Path("/sys/fs/cgroup")) / GROUP
        self.path.mkdir(exist_ok=True)
        name = "memory.limit_in_bytes" if first.is_dir() else "memory.max"
        (self.path / name).write_text(str(mebibytes << 20))

    def run(self, command):
        """The output of a command after the page cache was dropped."""
        subprocess.run(["sync"], check=True)
        Path("/proc/sys/vm/drop_caches").write_text("3")
        enter = f'echo $$ > {self.path}/cgroup.procs && exec "$@"'
        found = subprocess.run(["sh", "-c", enter, "sh", *command], capture_output=True, text=True)
        if found.returncode:
            sys.exit(f"{' '.join(command)}: {found.returncode}: {found.stderr[-2000:]}")
        return found

    def close(self):
        # The group is empty soon after its last process has ended.
        for _ in range(50):
            try:
                return self.path.rmdir()
            except OSError:
                time.sleep(0.1)


def gannet(args, limit, prompt, pack):
    """Rates of a prompt and of decoding, and MiB read per second."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=prompt)))
        file.flush()
        memory = ["--weights-memory", f"{args.weights}MiB", "--weights-preload", "off", "--weights-pack", pack]
        command = [args.gannet, "run", "-m", args.model, "--raw", "-f", file.name, "-n", str(args.gen), "--temp", "0"]
        command += ["--ignore-eos", "--json", "--stats", "--ctx", str(prompt + args.gen + 16), "--threads", str(args.threads)]
        found = limit.run([*command, *memory])
    answer = json.loads(found.stdout)
    timings = answer["timings"]
    read = re.search(r"(\d+) MiB read", found.stderr)
    if not read:
        sys.exit(f"no weights were streamed: {found.stderr}")
    return {
        "prompt": timings["prefill_tokens_per_second"],
        "decode": timings["decode_tokens_per_second"],
        "read": int(read[1]) / (timings["prefill_s"] + timings["decode_s"]),
        "tokens": answer["usage"]["prompt_tokens"],
    }


def llama_cpp(args, limit, prompt, rows):
    """The same of llama.cpp."""
    command = [sys.executable, str(Path(__file__).with_name("sides.py")), "llama.cpp", args.model, "--phase", "cold"]
    command += ["--tokens", str(prompt), "--gen", str(args.gen), "--threads", str(args.threads), "--rows", str(rows)]
    return json.loads(limit.run([*command, "--variant", "flash"]).stdout)["value"]


def raw_rate(args):
    """MiB per second of raw reads."""
    command = [args.gannet, "bench", "--disk", args.model, "--json"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(found.stdout)["random_gbs"] * 1e9 / (1 << 20)


def sides(args):
    """Each side as a function of the limit and the length of a prompt."""
    found = {"Gannet": lambda limit, prompt: gannet(args, limit, prompt, "off")}
    if args.pack:
        found["Gannet, packed"] = lambda limit, prompt: gannet(args, limit, prompt, args.pack)
    if not args.alone:
        for name, rows in BATCHES.items():
            found[name] = lambda limit, prompt, rows=rows: llama_cpp(args, limit, prompt, rows)
    return found


def measure(args, limit, prompt):
    """The runs of each side with a prompt, and their table."""
    runs = {name: [] for name in sides(args)}
    for run in range(args.runs):
        order = list(sides(args).items())
        for name, side in order[run % len(order) :] + order[: run % len(order)]:
            runs[name].append(side(limit, prompt))
    for name, found in runs.items():
        middle = {key: statistics.median(run[key] for run in found) for key in found[0]}
        line = f"{prompt:6}  {name:28}{middle['prompt']:9.1f}{middle['decode']:9.2f}{middle.get('read', 0):9.0f}"
        for phase in ("prompt", "decode"):
            ratios = [ours[phase] / theirs[phase] for ours, theirs in zip(runs["Gannet"], found)]
            line += f"{statistics.median(ratios):9.2f}"
        print(line, flush=True)
    return runs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gannet", required=True, help="the program to measure")
    parser.add_argument("--model", required=True, help="a GGUF file larger than --limit")
    parser.add_argument("--pack", default="", help="its packed weights, from `gannet pack`")
    parser.add_argument("--limit", type=int, required=True, help="MiB of the control group")
    parser.add_argument("--weights", type=int, required=True, help="MiB of weights in Gannet's memory")
    parser.add_argument("--prompt", default="512,2048", help="tokens of the prompts")
    parser.add_argument("--gen", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--alone", action="store_true", help="without llama.cpp")
    parser.add_argument("--json", action="store_true", help="print one JSON object behind the table")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("control groups and dropping the page cache need root")
    random.seed(0)
    limit, results = Limit(args.limit), {"machine": machine(args), "raw": raw_rate(args)}
    print(f"{args.model}: {os.path.getsize(args.model) >> 20} MiB in {args.limit} MiB; raw {results['raw']:.0f} MiB/s")
    print(f"{'prompt':8}{'':28}{'prompt/s':>9}{'decode/s':>9}{'read':>9}{'Gannet/':>9}{'decode':>9}")
    try:
        results["runs"] = {prompt: measure(args, limit, int(prompt)) for prompt in args.prompt.split(",")}
    finally:
        limit.close()
    if args.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
