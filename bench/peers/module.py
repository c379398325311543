"""The module for Python and the C interface beside the engine below them, and beside llama-cpp-python.

    pip install gannet_llm-*.whl llama-cpp-python
    python module.py --gannet PATH --model FILE [--before PATH] [--library libgannet.so] [--peer] [--runs 5] [--json]

`module` and `library` are built from the same commit as the program. The sides take turns; figures are medians over the rounds, ratios
medians of the ratios within the rounds. `bench` is `gannet bench`, the engine without requests; `bench x32` the rate of 128 prompts of 64
tokens with 64 generated for each that its rates of prefill and decoding give. Prompts are random token ids.
"""

import argparse
import asyncio
import ctypes
import json
import random
import statistics
import subprocess
import sys
import time

from compare import machine
from serving import Load, Server, free_port

PROMPT, GENERATED, PROMPTS, TOGETHER = 64, 64, 128, 32
KV_MEMORY = "2GiB"


class Bench:
    """Rates of `gannet bench`."""

    def __init__(self, args):
        self.args = args

    def rates(self, batch, depth):
        """Tokens per second of prefill and of decoding."""
        command = [self.args.gannet, "bench", "-m", self.args.model, "--threads", str(self.args.threads), "--batch", str(batch)]
        command += ["--prompt", str(PROMPT), "--depth", str(depth), "--gen", str(GENERATED), "--runs", "1", "--json"]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        rates = {one["phase"]: one["tokens_per_second"]["median"] for one in found["results"]}
        return rates["prefill"], rates["decode"]


def seconds(function, *arguments):
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


class Module:
    """The module for Python."""

    def __init__(self, args):
        import gannet.vllm

        self.llm = gannet.vllm.LLM(args.model, threads=args.threads, max_num_seqs=TOGETHER, kv_memory=KV_MEMORY)
        self.engine = self.llm.engine
        self.params = gannet.vllm.SamplingParams(temperature=0, max_tokens=GENERATED, ignore_eos=True)
        self.random = random.Random(0)

    def ids(self):
        return [self.random.randrange(1000, 100_000) for _ in range(PROMPT)]

    def generate(self, count=PROMPTS):
        prompts = [{"prompt_token_ids": self.ids()} for _ in range(count)]
        return seconds(lambda: self.llm.generate(prompts, self.params, use_tqdm=False))

    def push(self):
        """Tokens per second of a loop that pushes one and gets the logits after it."""
        with self.engine.sequence(self.ids()) as sequence:
            sequence.push([1000])
            return GENERATED / seconds(lambda: [sequence.push([id]) for id in self.ids()])

    def processed(self):
        """Tokens per second of a greedy answer whose logits go through a function."""
        asked = {"temperature": 0, "max_tokens": GENERATED, "ignore_eos": True, "logits_processors": [lambda ids, logits: logits]}
        parts = self.engine.complete(self.ids(), stream=True, **asked)
        next(parts)
        return (GENERATED - 1) / seconds(lambda: list(parts))

    def streams(self):
        """Tokens per second of 32 async streams together."""

        async def one():
            asked = {"temperature": 0, "max_tokens": GENERATED, "ignore_eos": True}
            return [delta async for delta in self.engine.acomplete(self.ids(), **asked)]

        async def together():
            return await asyncio.gather(*[one() for _ in range(TOGETHER)])

        return TOGETHER * GENERATED / seconds(lambda: asyncio.run(together()))


class Greedy(ctypes.Structure):
    """The options of a sampler in gannet.h."""

    _fields_ = [("size", ctypes.c_size_t)]
    _fields_ += [(name, ctypes.c_float) for name in ("temperature", "top_p", "min_p", "typical_p", "repeat")]
    _fields_ += [("presence", ctypes.c_float), ("frequency", ctypes.c_float), ("has_seed", ctypes.c_int32)]
    _fields_ += [("top_k", ctypes.c_size_t), ("window", ctypes.c_size_t), ("seed", ctypes.c_uint64)]


class Library:
    """The C interface, through ctypes."""

    WIDTH = 8
    # A few rounds: what follows the first has memory that the system has provided, as that of `bench`.
    KV_MEMORY = "256MiB"

    def __init__(self, args):
        self.lib = lib = ctypes.CDLL(args.library)
        options = json.dumps({"model": args.model, "threads": args.threads, "kv_memory": self.KV_MEMORY}).encode()
        self.engine, version = ctypes.c_void_p(), ctypes.c_uint32(1)
        self.check(lib.gannet_open(version, options, ctypes.c_size_t(len(options)), ctypes.byref(self.engine)))
        lib.gannet_last_error.restype = ctypes.c_char_p
        self.random = random.Random(0)

    def check(self, status):
        if status:
            sys.exit(self.lib.gannet_last_error().decode())

    def push_batch(self):
        """Tokens per second of eight sequences that are pushed to together, with greedy samplers."""
        lib, width, size = self.lib, self.WIDTH, ctypes.c_size_t
        sequences = (ctypes.c_void_p * width)()
        for at in range(width):
            place = ctypes.byref(sequences, at * ctypes.sizeof(ctypes.c_void_p))
            self.check(lib.gannet_sequence_new(self.engine, None, place))
        samplers, chosen = (ctypes.c_void_p * width)(), (ctypes.c_uint32 * width)()
        greedy = Greedy(ctypes.sizeof(Greedy), 0, 1, 0, 1, 1)
        for at in range(width):
            place = ctypes.byref(samplers, at * ctypes.sizeof(ctypes.c_void_p))
            self.check(lib.gannet_sampler_new(self.engine, ctypes.byref(greedy), place))

        def push(several):
            arrays = [(ctypes.c_uint32 * len(ids))(*ids) for ids in several]
            places = (ctypes.c_void_p * width)(*[ctypes.addressof(one) for one in arrays])
            lengths = (ctypes.c_size_t * width)(*map(len, several))
            self.check(lib.gannet_push_batch(size(width), sequences, places, lengths, samplers, chosen, None))

        push([[self.random.randrange(1000, 100_000) for _ in range(PROMPT)] for _ in range(width)])
        taken = seconds(lambda: [push([[id] for id in chosen]) for _ in range(GENERATED)])
        for sequence, sampler in zip(sequences, samplers):
            self.check(lib.gannet_sequence_free(ctypes.c_void_p(sequence)))
            self.check(lib.gannet_sampler_free(ctypes.c_void_p(sampler)))
        return width * GENERATED / taken


class Peer:
    """llama-cpp-python, whose calls take one prompt."""

    def __init__(self, args):
        import llama_cpp

        options = {"n_ctx": 2 * (PROMPT + GENERATED), "n_threads": args.threads, "n_threads_batch": args.threads}
        self.llama = llama_cpp.Llama(args.model, verbose=False, flash_attn=True, **options)
        self.random = random.Random(0)

    def loop(self, count):
        """Seconds of answers to `count` prompts, one after another."""

        def all():
            for _ in range(count):
                ids = [self.random.randrange(1000, 100_000) for _ in range(PROMPT)]
                answer = self.llama.create_completion(ids, max_tokens=GENERATED, temperature=0)
                assert answer["usage"]["completion_tokens"] == GENERATED, answer

        return seconds(all)


def served(args, program):
    """Tokens per second of 32 streams of a server together."""
    command = [program, "serve", "-m", args.model, "--threads", str(args.threads), "--parallel", str(TOGETHER), "--kv-dir", "off"]
    with Server([*command, "--port", str(free_port())]) as server:
        Load(args, server, prompt=PROMPT, output=8, requests=2).report()
        report = Load(args, server, prompt=PROMPT, output=GENERATED, requests=TOGETHER, concurrency=TOGETHER).report()
        return report["output_tokens_per_second"]


def fresh(code):
    """What a new process of Python prints."""
    return float(subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout)


IMPORT = """
import resource, time
resident = lambda: int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20
before, start = resident(), time.perf_counter()
import gannet
after = resident()
print({})
"""
FIRST_WORD = """
import time
start = time.perf_counter()
import gannet
llm = gannet.Engine("builtin")
next(delta for delta in llm.chat("What is the capital of France?", stream=True) if delta.text)
print(time.perf_counter() - start)
"""


def round_of(args, module, library, peer):
    """The figures of one round by their names: rates in tokens per second, and others."""
    figures = {"import, s": fresh(IMPORT.format("time.perf_counter() - start"))}
    figures["import, MiB"] = fresh(IMPORT.format("after - before"))
    figures["first word, s"] = fresh(FIRST_WORD)
    bench = Bench(args)
    _, figures["bench"] = bench.rates(1, PROMPT)
    figures["push"] = module.push()
    figures["processor"] = module.processed()
    prefill, decode = bench.rates(TOGETHER, PROMPT)
    figures["bench x32"] = PROMPTS * GENERATED / (PROMPTS * PROMPT / prefill + PROMPTS * GENERATED / decode)
    figures["generate"] = PROMPTS * GENERATED / module.generate()
    figures["streams"] = module.streams()
    figures["server"] = served(args, args.gannet)
    if args.before:
        figures["server before"] = served(args, args.before)
    if library:
        _, figures["bench x8"] = bench.rates(library.WIDTH, PROMPT)
        figures["push_batch"] = library.push_batch()
    if peer:
        figures["llama-cpp-python"] = 4 * GENERATED / peer.loop(4)
    return figures


RATIOS = {
    "push": "bench",
    "processor": "bench",
    "generate": "bench x32",
    "streams": "server",
    "server": "server before",
    "push_batch": "bench x8",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gannet", required=True, help="the program")
    parser.add_argument("--model", required=True, help="a .gguf file")
    parser.add_argument("--before", help="an earlier program, whose server is measured too")
    parser.add_argument("--library", help="libgannet.so, to measure the C interface")
    parser.add_argument("--peer", action="store_true", help="measure llama-cpp-python")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print all values")
    args = parser.parse_args()
    module, library = Module(args), Library(args) if args.library else None
    peer = Peer(args) if args.peer else None
    module.generate(2)
    for _ in range(3 if library else 0):
        library.push_batch()
    rounds = [round_of(args, module, library, peer) for _ in range(args.runs)]
    ratios = {f"{one} / {other}": [found[one] / found[other] for found in rounds] for one, other in RATIOS.items() if other in rounds[0]}
    if peer:
        ratios["generate / llama-cpp-python"] = [found["generate"] / found["llama-cpp-python"] for found in rounds]
    values = {name: [found[name] for found in rounds] for name in rounds[0]}
    if args.json:
        print(json.dumps({"machine": machine(args), "values": values, "ratios": ratios}, indent=1))
        return
    print(machine(args))
    for title, table in [("", values), ("ratios", ratios)]:
        print(title)
        for name, found in table.items():
            print(f"{name:32} {statistics.median(found):10.3f}   {min(found):.3f} to {max(found):.3f}")


if __name__ == "__main__":
    main()
