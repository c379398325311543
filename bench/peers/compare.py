"""Gannet beside llama.cpp, mistral.rs and OpenVINO GenAI, on the same GGUF files.

    python compare.py --gannet PATH --models FILE...
    python compare.py --gannet PATH --synth DIR --json
    python compare.py --gannet PATH --synth DIR --dry-run

Every measurement runs in its own process, which ends before the next begins, so that no measurement shares the machine
with another's spinning threads; the sides take turns, each round in another order. Figures are medians over the rounds,
ratios medians of the ratios within the rounds: what slows the machine for a while slows both sides of a ratio.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from chart import chart
from sides import SIDES

SHAPES = "qwen3-0.6b,llama-3.2-1b"
TYPES = ["bf16", "q8_0", "q4_0", "q4_k_m", "q6_k"]
MODULES = {"llama.cpp": "llama_cpp", "mistral.rs": "mistralrs", "openvino": "openvino_genai"}
AVX2 = "-DGGML_NATIVE=OFF -DGGML_AVX512=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DLLAVA_BUILD=OFF"
"""How llama.cpp is built for `--peer-isa avx2`."""
LOAD_PROMPT = "1 2 3 4 "
"""Eight tokens where a vocabulary has no merges, as those of `gannet synth`."""
HOPELESS = 0.8
"""A variant of a peer whose best run of two reaches less than this share of the peer's best is measured no further."""
DRY_RUN = {"shapes": "tiny-qwen3", "types": "q8_0", "prompt": [16, 32], "depth": [0, 32], "gen": 4, "runs": 1}
"""What `--dry-run` measures: enough to run every part of the script but the peers."""


@dataclass(frozen=True)
class Case:
    """`prefill` of `tokens`, `decode` behind `tokens`, both in tokens a second, or `load` in seconds."""

    phase: str
    tokens: int
    batch: int = 1

    def __str__(self):
        if self.phase == "load":
            return "first token"
        return f"{self.phase} {self.tokens}" + (f" x{self.batch}" if self.batch > 1 else "")


@dataclass(frozen=True)
class Side:
    """One side of the comparison: Gannet, or a peer in one of its variants."""

    name: str
    variant: str = ""

    def command(self, args, model, case):
        if self.name != "gannet":
            script = str(Path(__file__).with_name("sides.py"))
            command = [sys.executable, script, self.name, model, "--variant", self.variant, "--gen", str(args.gen)]
            command += ["--threads", str(args.threads), "--batch", str(case.batch)]
            return command + ["--phase", case.phase, "--tokens", str(case.tokens)]
        if case.phase == "load":
            return [args.gannet, "run", "-m", model, "--raw", "-n", "1", "--temp", "0", LOAD_PROMPT]
        command = [args.gannet, "bench", "-m", model, "--json", "--runs", "1"]
        if case.phase == "prefill":
            return command + ["--prompt", str(case.tokens), "--gen", "1"]
        command += ["--depth", str(case.tokens), "--batch", str(case.batch)]
        return command + ["--prompt", "1", "--gen", str(args.gen)]

    def measure(self, args, model, case):
        """One run: its value, its peak resident memory in bytes, and the version that the side reports."""
        environment = {**os.environ, "GANNET_THREADS": str(args.threads), "RAYON_NUM_THREADS": str(args.threads)}
        if args.peer_isa:
            environment |= {"GANNET_ISA": args.peer_isa, "PYTHONPATH": str(args.peer_folder)}
        started = time.perf_counter()
        output, peak = run(self.command(args, model, case), environment)
        seconds = time.perf_counter() - started
        if self.name != "gannet":
            answer = json.loads(output.splitlines()[-1])
            return answer["value"], peak, answer["version"]
        if case.phase == "load":
            return seconds, peak, None
        report = json.loads(output)
        found = next(r for r in report["results"] if (r["phase"], r["tokens"]) == (case.phase, case.tokens))
        return found["tokens_per_second"]["median"], peak, report["machine"]["isa"]


def run(command, environment):
    """Standard output of a command, and its peak resident memory in bytes."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            last = (errors.read().strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"{command[0]} ended with {process.returncode}: {last}")
    return output, usage.ru_maxrss * 1024


def compare(args, model, case, sides):
    """All rounds of one case: for each side its values in order of the rounds."""
    sides, values, peaks, notes = list(sides), {}, {}, {}
    for turn in range(args.runs):
        at = turn % max(len(sides), 1)
        for side in sides[at:] + sides[:at]:
            try:
                value, peak, notes[side] = side.measure(args, model, case)
            except RuntimeError as problem:
                print(f"{model}: {case}: {side.name} {side.variant}: {problem}", file=sys.stderr)
                if args.dry_run:
                    sys.exit(1)
                sides.remove(side)
                values.pop(side, None)
                continue
            values.setdefault(side, []).append(value)
            peaks[side] = max(peak, peaks.get(side, 0))
        if turn > 0:
            sides = [side for side in sides if not hopeless(case, side, values)]
    return [
        {"side": side.name, "variant": side.variant, "values": found, "peak_bytes": peaks[side], "says": notes[side]}
        for side, found in values.items()
    ]


def hopeless(case, side, values):
    """Whether a variant is far behind another of the same side. The best runs count: a disturbance only slows a run."""
    fastest = {other: max(speed(case, value) for value in found) for other, found in values.items()}
    return fastest[side] < HOPELESS * max(rate for other, rate in fastest.items() if other.name == side.name)


def speed(case, value):
    return 1 / value if case.phase == "load" else value


def best(case, results, name):
    """The variant of a side with the best median, among those that ran to the end."""
    own = [result for result in results if result["side"] == name]
    rounds = max((len(result["values"]) for result in own), default=0)
    own = [result for result in own if len(result["values"]) == rounds]
    return max(own, key=lambda result: speed(case, statistics.median(result["values"])), default=None)


def row(model, case, results, peers):
    """A line of the table as a dictionary."""
    gannet = best(case, results, "gannet")
    line = {"model": Path(model).stem, "case": str(case), **asdict(case), "results": results}
    for name in ["gannet", *peers]:
        found = best(case, results, name)
        if found is None or gannet is None:
            continue
        pairs = zip(gannet["values"], found["values"])
        ratio = statistics.median(speed(case, ours) / speed(case, theirs) for ours, theirs in pairs)
        line[name] = {
            "median": statistics.median(found["values"]),
            "min": min(found["values"]),
            "max": max(found["values"]),
            "variant": found["variant"],
            "peak_bytes": found["peak_bytes"],
            "gannet_ratio": ratio,
        }
    return line


def print_head(facts, peers, runs):
    for key, value in facts.items():
        print(f"{key + ':':14}{value}")
    print(f"\ntokens per second, time to first token in seconds: medians of {runs} rounds; ratio: Gannet's speed over the peer's")
    titles = "".join(f"{name:>12}{'ratio':>8}  {'variant':14}" for name in peers)
    print(f"{'model':22}{'case':16}{'gannet':>10}{titles}", flush=True)


def print_row(line, peers):
    digits = 3 if line["phase"] == "load" else 1
    names = [name for name in ["gannet", *peers] if name in line]
    text = f"{line['model']:22}{line['case']:16}"
    text += f"{line['gannet']['median']:10.{digits}f}" if "gannet" in line else f"{'-':>10}"
    for name in peers:
        found = line.get(name)
        if found:
            text += f"{found['median']:12.{digits}f}{found['gannet_ratio']:8.2f}  {found['variant']:14}"
        else:
            text += f"{'-':>12}{'-':>8}  {'':14}"
    print(text.rstrip(), flush=True)
    if line["phase"] == "load":
        peaks = (f"{name} {line[name]['peak_bytes'] / 1e6:.0f}" for name in names)
        print(f"{line['model']:22}peak resident memory, MB: {', '.join(peaks)}", flush=True)


def synthesise(args):
    """Makes the missing files of random weights and returns the paths of all."""
    folder = Path(args.synth)
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for shape in args.shapes.split(","):
        plain = folder / f"{shape}-{TYPES[0]}.gguf"
        if not plain.exists():
            subprocess.run([args.gannet, "synth", shape, "-o", plain, "--type", TYPES[0]], check=True)
        made.append(str(plain))
        for kind in args.types.split(","):
            if kind == TYPES[0]:
                continue
            small = folder / f"{shape}-{kind}.gguf"
            if not small.exists():
                command = [args.gannet, "quantize", plain, small, "--type", kind]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            made.append(str(small))
    return made


def build_peer(args):
    """Builds llama.cpp for AVX2 in the folder of `--peer-folder`, unless it is there."""
    if not (Path(args.peer_folder) / "llama_cpp").exists():
        wanted = Path(__file__).with_name("requirements.txt").read_text().splitlines()
        llama = next(line for line in wanted if line.startswith("llama-cpp-python"))
        command = [sys.executable, "-m", "pip", "install", "--no-binary", "llama-cpp-python", "--no-cache-dir"]
        command += ["--target", args.peer_folder, llama]
        subprocess.run(command, env={**os.environ, "CMAKE_ARGS": AVX2}, check=True, stdout=sys.stderr)


def draw(folder, report):
    """A chart of the rates of each model."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for model in dict.fromkeys(line["model"] for line in report["lines"]):
        Path(folder, f"{model}.svg").write_text(chart(report, model))


def machine(args):
    """The facts that belong beside every quoted figure."""
    cpu = platform.processor()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), cpu)
    version = subprocess.run([args.gannet, "--version"], capture_output=True, text=True, check=True)
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "threads": args.threads,
        "system": platform.platform(),
        "load_average": os.getloadavg()[0],
        "gannet": version.stdout.strip(),
        "commit": commit(),
    }


def commit():
    """The commit of the repository that holds this script, with `-dirty` where files differ from it."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude", "*"]
    found = subprocess.run(command, capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def numbers(text):
    return [int(part) for part in text.split(",") if part]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gannet", required=True, help="the program to measure")
    parser.add_argument("--models", nargs="+", default=[], help="GGUF files")
    parser.add_argument("--synth", metavar="DIR", help="measure files of random weights, made in this folder")
    parser.add_argument("--shapes", default=SHAPES, help="shapes of those files, as `gannet synth --list` has them")
    parser.add_argument("--types", default=",".join(TYPES), help="storage types of those files beside bf16")
    parser.add_argument("--peers", default=",".join(MODULES), help="peers, where installed")
    parser.add_argument("--variants", help="only these variants of peers, separated by spaces, such as 'flash plain'")
    parser.add_argument("--peer-isa", choices=["avx2"], help="build llama.cpp for AVX2 alone, and measure Gannet with it")
    parser.add_argument("--peer-folder", default="llama.cpp-avx2", help="where that llama.cpp is, or is built")
    parser.add_argument("--no-load", action="store_true", help="do not measure the time to first token")
    parser.add_argument("--prompt", type=numbers, default=[512, 2048], help="prompt lengths")
    parser.add_argument("--depth", type=numbers, default=[0, 4096], help="tokens in the cache before decoding")
    parser.add_argument("--gen", type=int, default=32, help="steps of decoding")
    parser.add_argument("--sequences", type=numbers, default=[1, 8], help="sequences decoded together")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5, help="rounds")
    parser.add_argument("--svg", metavar="DIR", help="draw the rates of each model by length in this folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object behind the table")
    parser.add_argument("--dry-run", action="store_true", help="try the script: a tiny file of --synth, Gannet alone")
    args = parser.parse_args()
    if args.dry_run:
        vars(args).update(DRY_RUN, peers="")
    elif args.peer_isa:
        # The others choose their instructions by the CPU.
        vars(args).update(peers="llama.cpp")
    return args


def main():
    args = arguments()
    models = args.models + (synthesise(args) if args.synth and not args.models else [])
    peers = [name for name in args.peers.split(",") if name and (args.peer_isa or find_spec(MODULES[name]))]
    if args.peer_isa and peers:
        build_peer(args)
    chosen = args.variants.split(" ") if args.variants else None
    sides = [Side("gannet")] + [
        Side(name, variant)
        for name in peers
        for variant in SIDES[name].VARIANTS
        if chosen is None or variant in chosen
    ]
    cases = [Case("prefill", length) for length in args.prompt]
    cases += [Case("decode", depth, batch) for depth in args.depth for batch in args.sequences]
    if not args.no_load:
        cases.append(Case("load", len(LOAD_PROMPT)))
    facts = machine(args)
    print_head(facts, peers, args.runs)
    lines = []
    for model in models:
        for case in cases:
            lines.append(row(model, case, compare(args, model, case, sides), peers))
            print_row(lines[-1], peers)
    said = {result["says"] for line in lines for result in line["results"] if result["says"]}
    print("\n".join(sorted(said)))
    report = {"machine": facts, "arguments": vars(args), "says": sorted(said), "lines": lines}
    if args.svg:
        draw(args.svg, report)
    if args.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
