"""What ranks of one machine cost: the rates of a server whose model stages or slices share, over
those of one process with as many threads, in turns.

GANNET_ISA chooses the instruction set.

    python bench/ranks/ranks.py --gannet target/release/gannet --model FILE [--mpirun PATH]

Ranks are threads of one process, or, with `--mpirun`, processes that it starts. Each has one
thread, and the process they are compared with has two. Ratios are medians over `--runs`.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

RANKS = 2


class Server:
    """A server on a free port."""

    def __init__(self, args, launcher, *options):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        port = self.url.rsplit(":", 1)[1]
        command = [*launcher, args.gannet, "serve", "-m", args.model, "--port", port, "--ctx", "8192"]
        command += ["--kv-memory", "2GiB", "--speculate", "off", "--parallel", "16", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)

    def __enter__(self):
        for _ in range(1200):
            try:
                urllib.request.urlopen(self.url + "/ready", timeout=5).read()
                return self
            except OSError:
                if self.process.poll() is not None:
                    raise SystemExit(f"the server ended: {self.process.args}") from None
                time.sleep(0.1)
        raise SystemExit("the server does not become ready")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def answer(self, prompt, tokens):
        """The times of the tokens of a streamed answer."""
        body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True}
        body |= {"temperature": 0, "seed": 1}
        data = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + "/v1/completions", data, headers)
        times = []
        with urllib.request.urlopen(request) as response:
            for line in response:
                if line.startswith(b"data: {"):
                    times.append(time.monotonic())
        return times

    def decode(self, sequences, tokens, seed):
        """Tokens a second while all of so many answers are under way."""
        prompts = [[(7 * seed + 11 * at) % 900 + 10] * 4 for at in range(sequences)]
        with ThreadPoolExecutor(sequences) as pool:
            answers = list(pool.map(lambda prompt: self.answer(prompt, tokens), prompts))
        begin, end = max(times[0] for times in answers), min(times[-1] for times in answers)
        return sum(begin < at <= end for times in answers for at in times) / (end - begin)

    def prefill(self, tokens, seed):
        """Tokens of a prompt a second."""
        prompt = [(at * 31 + seed * 77) % 900 + 10 for at in range(tokens)]
        begin = time.monotonic()
        return tokens / (self.answer(prompt, 1)[0] - begin)


def launch(args, options):
    """What starts ranks with these options, and the options of each."""
    ranked = ["--threads", "1", *options]
    if args.mpirun:
        return [args.mpirun, *args.mpirun_options.split(), "-n", str(RANKS)], ranked
    return [], [*ranked, "--ranks", "local"]


def shown(ratios):
    low, high = min(ratios), max(ratios)
    return f"{statistics.median(ratios):.3f} ({low:.3f} to {high:.3f})"


def compared(args, options, measure):
    """The ratio of the rate of ranks to that of one process."""
    launcher, ranked = launch(args, options)
    ratios = []
    with Server(args, [], "--threads", str(RANKS)) as alone, Server(args, launcher, *ranked) as ranks:
        for run in range(-1, args.runs):
            rates = [measure(server, run + 1) for server in (alone, ranks)]
            # The first warms up.
            if run >= 0:
                ratios.append(rates[1] / rates[0])
    return shown(ratios)


def from_disk(args, options):
    """The ratio of the times to the first token of ranks and of one process, of prompts that
    servers before them have stored."""
    launcher, ranked = launch(args, options)
    sides = [([], ["--threads", str(RANKS)]), (launcher, ranked)]
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        stored = [["--kv-dir", folder, "--kv-dir-write", "all"] for folder in (one, other)]
        times = [[], []]
        for is_stored in (False, True):
            for (launcher, options), kv_dir, found in zip(sides, stored, times):
                with Server(args, launcher, *options, *kv_dir) as server:
                    rates = [server.prefill(args.prompt, seed) for seed in range(args.runs + 1)]
                    if is_stored:
                        # The first waits for the folder to be read.
                        found += [args.prompt / rate for rate in rates[1:]]
        ratios = [ranks / alone for alone, ranks in zip(*times)]
        print(f"    one process {statistics.median(times[0]):.3f} s", flush=True)
    return shown(ratios)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--gannet", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--mpirun")
    parser.add_argument("--mpirun-options", default="")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=4096)
    parser.add_argument("--disk", action="store_true", help="measure the cache on disk alone")
    args = parser.parse_args()
    for name, options in (("--pipeline 2", ["--pipeline", "2"]), ("--tensor 2", ["--tensor", "2"])):
        for sequences in () if args.disk else (1, 8, 16):
            measure = lambda server, seed: server.decode(sequences, args.tokens, seed)
            print(f"{name}, {sequences} answers: {compared(args, options, measure)}", flush=True)
        measure = lambda server, seed: server.prefill(args.prompt, seed)
        if not args.disk:
            found = compared(args, options, measure)
            print(f"{name}, a prompt of {args.prompt}: {found}", flush=True)
        found = from_disk(args, options)
        print(f"{name}, time to the first token of {args.prompt} from disk: {found}", flush=True)


if __name__ == "__main__":
    main()
