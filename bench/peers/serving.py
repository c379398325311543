"""Gannet's server beside llama.cpp's, on the same GGUF files, under the same load.

    python serving.py --gannet PATH --llama-server PATH --models FILE...
    python serving.py --gannet PATH --models FILE... --scenarios nano --json
    python serving.py --gannet PATH --models FILE... --dry-run

Every measurement starts its own server, which ends before the next begins, so that no measurement shares the machine with
another's spinning threads or finds a warm cache. The load comes from `gannet bench-serve` for all sides. The sides take
turns, each round in another order. Figures are medians over the rounds, ratios medians of the ratios within the rounds.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from compare import machine

READY = 300
"""Longest wait in seconds until a server answers; it loads the model first."""
HOPELESS = 0.8
"""A variant of a peer that reaches less than this share of the peer's best after two rounds is measured no further."""
CHUNK = 256
"""llama.cpp rounds the context of a sequence up to a multiple of this."""


@dataclass(frozen=True)
class Side:
    """One side of the comparison: Gannet, or llama.cpp's server in one of its variants."""

    name: str
    variant: str = ""

    def __str__(self):
        return f"{self.name} {self.variant}".strip()

    def command(self, args, model, scenario, port):
        context = -(-scenario.positions // CHUNK) * CHUNK
        common = ["-m", model, "--threads", str(args.threads), "--port", str(port), "--host", "127.0.0.1"]
        common += ["--parallel", str(scenario.sequences)]
        if self.name == "gannet":
            return [args.gannet, "serve", *common, "--ctx", str(context), *args.gannet_args.split()]
        # llama-server's context is shared by all sequences.
        total = ["--ctx-size", str(scenario.sequences * context)]
        command = [args.llama_server, *common, "--threads-batch", str(args.threads), *total]
        return command + (["--no-repack"] if self.variant == "plain" else []) + args.llama_args.split()


class Server:
    """A server that runs within a `with`."""

    def __init__(self, command):
        self.command = command
        self.peak_bytes = None

    def __enter__(self):
        self.log = tempfile.TemporaryFile("w+", errors="replace")
        port = self.command[self.command.index("--port") + 1]
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        try:
            self.wait_until_ready()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_):
        self.end()

    def wait_until_ready(self):
        limit = time.monotonic() + READY
        while not answers(self.url + "/health"):
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.command[0]} ended with {self.process.returncode}: {self.last_line()}")
            if time.monotonic() > limit:
                raise RuntimeError(f"{self.command[0]} is not ready after {READY} s")
            time.sleep(0.1)

    def last_line(self):
        self.log.seek(0)
        return (self.log.read().strip().splitlines() or ["no message"])[-1]

    def end(self):
        """Stops the server, by force after 20 s, and records its peak resident memory."""
        if self.process.returncode is None:
            self.process.terminate()
            limit = time.monotonic() + 20
            ended, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            while not ended:
                if time.monotonic() > limit:
                    self.process.send_signal(signal.SIGKILL)
                time.sleep(0.05)
                ended, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            self.process.returncode = os.waitstatus_to_exitcode(status)
            self.peak_bytes = usage.ru_maxrss * 1024
        self.log.close()


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Load:
    """A load on a server: starts when constructed, its report is read later."""

    def __init__(self, args, server, *options, **numbers):
        options = [*options, *(part for name, value in numbers.items() for part in (flag(name), str(value)))]
        command = [args.gannet, "bench-serve", server.url, "--json", *options, "--timeout", "1800", "--duration", "3600"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def report(self):
        output, errors = self.process.communicate()
        if self.process.returncode != 0:
            raise RuntimeError((errors.strip().splitlines() or ["no message"])[-1])
        report = json.loads(output)
        if report["failed"] or report["short_answers"]:
            raise RuntimeError(f"{report['failed']} failed, {report['short_answers']} short: {report['errors']}")
        return report


def flag(name):
    return "--" + name.replace("_", "-")


def streams(args, server):
    """Eight concurrent streams whose prompts share nothing."""
    count, prompt, output = args.scaled(8), args.scaled(512), args.scaled(64)
    load = Load(args, server, requests=count, concurrency=count, prompt=prompt, output=output, seed=1)
    report = load.report()
    return {
        "tokens/s": report["output_tokens_per_second"],
        "first token, ms": report["ttft_ms"]["p50"],
        "p99 gap, ms": report["itl_ms"]["p99"],
    }


def prefix(args, server):
    """Prompts with a shared prefix, on a server without it in its cache and on one with it."""
    shape = {"requests": args.scaled(16), "concurrency": args.scaled(8), "output": 8, "prompt": 64}
    shape |= {"shared_prefix": args.scaled(1024), "prefix_seed": 1}
    cold = Load(args, server, **shape, seed=1).report()
    warm = Load(args, server, **shape, seed=2).report()
    return {
        "cold, s": cold["duration_s"],
        "warm, s": warm["duration_s"],
        "cold cached, %": cached(cold),
        "warm cached, %": cached(warm),
    }


def cached(report):
    return 100 * (report["cached_tokens"] or 0) / report["prompt_tokens"]


def nano(args, server):
    """Many short concurrent requests, then some of them one after another."""
    count, few = args.scaled(64), args.scaled(8)
    most = args.scaled(256)
    shape = {"prompt": f"{most * 100 // 256}-{most}", "output": f"{most * 100 // 256}-{most}"}
    together = Load(args, server, requests=count, concurrency=count, seed=1, **shape).report()
    alone = Load(args, server, requests=few, concurrency=1, seed=2, **shape).report()
    together, alone = together["output_tokens_per_second"], alone["output_tokens_per_second"]
    return {"tokens/s": together, "alone, tokens/s": alone, "together / alone": together / alone}


def stall(args, server):
    """A stream that is decoding while a long prompt arrives."""
    # A tiny model in a dry run would end a short stream before the long prompt is sent.
    output = 4000 if args.dry_run else args.scaled(256)
    stream = Load(args, server, requests=1, concurrency=1, prompt=32, output=output, seed=1)
    time.sleep(max(0.2, args.scale))
    if stream.process.poll() is not None:
        raise RuntimeError("the stream ended before the long prompt came")
    prompt = Load(args, server, requests=1, concurrency=1, prompt=args.scaled(4096), output=1, seed=2)
    stream, prompt = stream.report(), prompt.report()
    return {
        "longest gap, ms": stream["itl_ms"]["max"],
        "p99 gap, ms": stream["itl_ms"]["p99"],
        "median gap, ms": stream["itl_ms"]["p50"],
        "long prompt, s": prompt["ttft_ms"]["p50"] / 1e3,
    }


@dataclass(frozen=True)
class Scenario:
    """A load on a server and the context it needs. The first measure decides between variants."""

    run: callable
    sequences: int
    positions: int
    """Context of one sequence, in tokens."""
    measures: dict
    """For each measure 1 where more is better, -1 where less is, 0 where neither."""


SCENARIOS = {
    "streams": Scenario(streams, 8, 512 + 64, {"tokens/s": 1, "first token, ms": -1, "p99 gap, ms": -1}),
    "prefix": Scenario(
        prefix, 8, 1024 + 64 + 8, {"cold, s": -1, "warm, s": -1, "cold cached, %": 0, "warm cached, %": 0}
    ),
    "nano": Scenario(nano, 64, 512, {"tokens/s": 1, "alone, tokens/s": 1, "together / alone": 0}),
    "stall": Scenario(
        stall,
        2,
        4096 + 32,
        {"longest gap, ms": -1, "p99 gap, ms": -1, "median gap, ms": -1, "long prompt, s": -1},
    ),
}


def measure(args, side, model, scenario):
    """One round of one side: its measures, and the peak memory of its server."""
    with Server(side.command(args, model, scenario, free_port())) as server:
        # Warm up: touch memory and wake threads.
        Load(args, server, requests=2, concurrency=1, prompt=64, output=8, seed=99).report()
        values = scenario.run(args, server)
    return {**values, "peak, MB": server.peak_bytes / 1e6}


def compare(args, model, scenario, sides):
    """All rounds of one scenario: for each side its measures in order of the rounds."""
    sides, rounds = list(sides), {}
    for turn in range(args.runs):
        at = turn % max(len(sides), 1)
        for side in sides[at:] + sides[:at]:
            try:
                rounds.setdefault(side, []).append(measure(args, side, model, scenario))
            except RuntimeError as problem:
                print(f"{model}: {side}: {problem}", file=sys.stderr)
                if args.dry_run:
                    sys.exit(1)
                sides.remove(side)
                rounds.pop(side, None)
        if turn > 0:
            sides = [side for side in sides if not hopeless(scenario, side, rounds)]
    return rounds


def hopeless(scenario, side, rounds):
    """Whether a variant is far behind another of the same side. The best rounds count: a disturbance only slows a round."""
    own = {other: best_round(scenario, found) for other, found in rounds.items() if other.name == side.name}
    return own[side] < HOPELESS * max(own.values())


def best_round(scenario, found):
    return max(speed(scenario, measures) for measures in found)


def speed(scenario, measures):
    name, sense = next(iter(scenario.measures.items()))
    return measures[name] ** sense


def best(scenario, rounds, name):
    """The variant of a side with the best median, among those that ran to the end."""
    own = [side for side in rounds if side.name == name]
    most = max((len(rounds[side]) for side in own), default=0)
    own = [side for side in own if len(rounds[side]) == most]
    return max(own, key=lambda side: statistics.median(map(lambda m: speed(scenario, m), rounds[side])), default=None)


def lines_of(model, name, scenario, rounds):
    """The lines of the table for one scenario, as dictionaries."""
    ours, theirs = (best(scenario, rounds, side) for side in ("gannet", "llama-server"))
    lines = []
    for measure, sense in {**scenario.measures, "peak, MB": -1}.items():
        line = {"model": Path(model).stem, "scenario": name, "measure": measure}
        for side in filter(None, (ours, theirs)):
            values = [found[measure] for found in rounds[side]]
            line[side.name] = {
                "median": statistics.median(values),
                "min": min(values),
                "max": max(values),
                "values": values,
                "variant": side.variant,
            }
        if ours and theirs and sense:
            pairs = zip(rounds[ours], rounds[theirs])
            line["gannet_ratio"] = statistics.median((our[measure] / their[measure]) ** sense for our, their in pairs)
        lines.append(line)
    return lines


def print_head(facts, runs):
    for key, value in facts.items():
        print(f"{key + ':':14}{value}")
    print(f"\nmedians of {runs} rounds; ratio: how many times better Gannet is")
    print(f"{'model':22}{'scenario':10}{'measure':18}{'gannet':>10}{'llama-server':>14}{'ratio':>8}  variant", flush=True)


def print_line(line):
    def value(side):
        return f"{line[side]['median']:.1f}" if side in line else "-"

    ratio = f"{line['gannet_ratio']:.2f}" if "gannet_ratio" in line else ""
    variant = line.get("llama-server", {}).get("variant", "")
    text = f"{line['model']:22}{line['scenario']:10}{line['measure']:18}{value('gannet'):>10}"
    print(f"{text}{value('llama-server'):>14}{ratio:>8}  {variant}".rstrip(), flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gannet", required=True, help="the program to measure, which also generates the load")
    parser.add_argument("--llama-server", help="llama.cpp's server; without it, Gannet alone is measured")
    parser.add_argument("--models", nargs="+", required=True, help="GGUF files")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help=", ".join(SCENARIOS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5, help="rounds")
    parser.add_argument("--scale", type=float, default=1.0, help="share of all counts and lengths, to try the script")
    parser.add_argument("--gannet-args", default="", help="further arguments of gannet serve, in one word")
    parser.add_argument("--llama-args", default="", help="further arguments of llama-server, in one word")
    parser.add_argument("--json", action="store_true", help="print one JSON object behind the table")
    parser.add_argument("--dry-run", action="store_true", help="try the script: a tenth of the load, one round, no peer")
    args = parser.parse_args()
    if args.dry_run:
        args.scale, args.runs, args.llama_server = 0.1, 1, None
    unknown = set(args.scenarios.split(",")) - set(SCENARIOS)
    if unknown:
        parser.error(f"no such scenario: {', '.join(unknown)}")
    args.scaled = lambda number: max(1, round(number * args.scale))
    return args


def main():
    args = arguments()
    sides = [Side("gannet")]
    if args.llama_server:
        sides += [Side("llama-server", "repack"), Side("llama-server", "plain")]
    facts = machine(args)
    if args.llama_server:
        said = subprocess.run([args.llama_server, "--version"], capture_output=True, text=True, check=True)
        facts["llama-server"] = (said.stdout + said.stderr).strip().splitlines()[0]
    print_head(facts, args.runs)
    lines = []
    for model in args.models:
        for name in args.scenarios.split(","):
            scenario = SCENARIOS[name]
            for line in lines_of(model, name, scenario, compare(args, model, scenario, sides)):
                print_line(line)
                lines.append(line)
    if args.json:
        given = {key: value for key, value in vars(args).items() if not callable(value)}
        print(json.dumps({"machine": facts, "arguments": given, "lines": lines}))


if __name__ == "__main__":
    main()
