"""What the cache on disk saves and costs, as ratios within one run.

    python kv_dir.py --gannet PATH --model FILE --folder DIR [--tokens 4096] [--runs 5] [--json]

`--folder` is on the disk that is measured; it is filled and emptied again. The figures:

- `first token`: seconds to the first token of a prompt after a restart of the server, over computing it.
- `restore`: bytes per second at which the prompt is restored, over what four threads read of the same files, past the page cache
  and in the same sizes.
- `throughput` and `p99 between tokens`: of a closed loop of requests with the folder, over without.
- `others`: mean time between the tokens of a running answer while another request's prompt is restored, over before.
- `second turn`, with `--llama-server`: seconds to the first token of a prompt that continues the first one, after a restart, over those
  of llama.cpp's server, whose slot was saved before and is restored by a request of its own, which counts.

Sides take turns in each run; figures are medians over the runs, ratios medians of the ratios within the runs.
"""

import argparse
import json
import mmap
import os
import random
import shutil
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compare import machine
from serving import Server, free_port

READ = 4 << 20
"""Bytes that are read at once."""


def post(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"content-type": "application/json"})
    return urllib.request.urlopen(request, timeout=3600)


def get(server, path):
    return json.load(urllib.request.urlopen(server.url + path, timeout=60))


def tokens(server, body):
    """Times at which the tokens of an answer came, from its request on; the last event is its usage."""
    start, times, usage = time.perf_counter(), [], None
    body = {"temperature": 0, "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True, **body}
    for line in post(server.url, "/v1/completions", body):
        data = line.removeprefix(b"data: ").strip()
        if line.startswith(b"data: ") and data != b"[DONE]":
            chunk = json.loads(data)
            usage = chunk.get("usage") or usage
            if chunk["choices"]:
                times.append(time.perf_counter() - start)
    return times, usage


def serve(args, folder, *options):
    command = [args.gannet, "serve", "-m", args.model, "--threads", str(args.threads), "--port", str(free_port())]
    command += ["--ctx", str(args.tokens + 1024), "--parallel", "4", *options]
    if folder:
        command += ["--kv-dir", str(folder), "--kv-dir-size", str(args.size), "--kv-dir-write", "all"]
    return Server(command)


def prompt(args, seed):
    draw = random.Random(seed)
    return [draw.randrange(100, args.vocabulary) for _ in range(args.tokens)]


def wait_until_stored(server, least):
    """Waits until the server has written what it computed."""
    last, same, end = -1, 0, time.monotonic() + 120
    while same < 5:
        if time.monotonic() > end:
            sys.exit("nothing was stored within two minutes")
        written = get(server, "/v1/stats")["kv_disk"]["written_bytes"]
        same = same + 1 if written == last and written >= least else 0
        last = written
        time.sleep(0.2)


def first_token(args, folder, seed):
    """Seconds to the first token, computed and restored, and bytes per second while it was restored."""
    body = {"prompt": prompt(args, seed), "max_tokens": 8}
    with serve(args, None) as server:
        computed = tokens(server, body)[0][0]
    with serve(args, folder) as server:
        tokens(server, body)
        wait_until_stored(server, 1)
    drop_page_cache(folder)
    with serve(args, folder) as server:
        times, usage = tokens(server, body)
        found = usage["prompt_tokens_details"]["cached_tokens"]
        if found < args.tokens * 0.9:
            sys.exit(f"{found} of {args.tokens} tokens were restored")
        disk = get(server, "/v1/stats")["kv_disk"]
    rate = disk["read_bytes"] / disk["restore_s"]["mean"]
    return computed, times[0], rate, direct_rate(folder)


def drop_page_cache(folder, names="*.gkv"):
    """Has the system forget what it holds of the folder's files."""
    os.sync()
    for path in folder.rglob(names):
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def direct_rate(folder):
    """Bytes per second at which four threads read all files, past the page cache."""
    pieces = []
    for path in folder.rglob("*.gkv"):
        size = path.stat().st_size
        pieces += [(path, at, min(READ, size - at)) for at in range(0, size, READ)]

    def read(piece):
        path, at, size = piece
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            return os.preadv(file, [memoryview(buffers.area)[:size]], at)
        finally:
            os.close(file)

    buffers = threading.local()

    def begin():
        buffers.area = mmap.mmap(-1, READ)

    start = time.perf_counter()
    with ThreadPoolExecutor(4, initializer=begin) as pool:
        total = sum(pool.map(read, pieces))
    return total / (time.perf_counter() - start)


def load(args, folder, seed):
    """Requests per second and the 99th percentile of the time between tokens, of a closed loop."""
    with serve(args, folder) as server:
        command = [args.gannet, "bench-serve", server.url, "-n", str(args.requests), "-c", "4", "--seed", str(seed), "--json"]
        command += ["--prompt", str(args.tokens // 4), "--output", "64", "--warmup", "4"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            sys.exit(ended.stderr)
        report = json.loads(ended.stdout)
        return report["requests_per_second"], report["itl_ms"]["p99"]


def others(args, folder, seed):
    """Mean time between tokens of an answer while another prompt is restored, over before."""
    body = {"prompt": prompt(args, seed), "max_tokens": 2}
    with serve(args, folder) as server:
        tokens(server, body)
        wait_until_stored(server, 1)
    drop_page_cache(folder)
    with serve(args, folder) as server:
        tokens(server, {"prompt": [5] * 40, "max_tokens": 4})
        start, long = time.perf_counter(), []
        running = threading.Thread(
            target=lambda: long.extend(tokens(server, {"prompt": [7] * 40, "max_tokens": 600})[0])
        )
        running.start()
        time.sleep(args.before)
        asked = time.perf_counter() - start
        tokens(server, body)
        running.join()
        # The steps that compute the prompt's last tokens are none of restoring.
        restored = asked + get(server, "/v1/stats")["kv_disk"]["restore_s"]["mean"]
    gaps = [(at, at - before) for before, at in zip(long, long[1:])]
    before = [gap for at, gap in gaps if 0.5 < at < asked]
    during = [gap for at, gap in gaps if asked < at < restored]
    # Small models restore within a step.
    return statistics.mean(during) / statistics.mean(before) if during and before else float("nan")


def continued(args, server, seed, more):
    """Seconds to the first token of a prompt with `more` tokens behind it, by llama.cpp's native route."""
    draw = random.Random(-1 - seed)
    tail = [draw.randrange(100, args.vocabulary) for _ in range(more)]
    body = {"prompt": prompt(args, seed) + tail, "n_predict": 8, "stream": True, "cache_prompt": True, "id_slot": 0}
    start = time.perf_counter()
    lines = post(server.url, "/completion", {**body, "temperature": 0, "ignore_eos": True})
    next(line for line in lines if line.startswith(b"data: "))
    first = time.perf_counter() - start
    for _ in lines:
        pass
    return first


def second_turn(args, folder, seed):
    """Seconds to the first token of a second turn after a restart, here and in llama.cpp's server."""
    with serve(args, folder) as server:
        continued(args, server, seed, 0)
        wait_until_stored(server, 1)
    drop_page_cache(folder)
    with serve(args, folder) as server:
        own = continued(args, server, seed, 40)
    slots = folder / "slots"
    slots.mkdir()
    command = [args.llama_server, "-m", args.model, "--threads", str(args.threads), "--port", str(free_port())]
    command += ["--ctx-size", str(args.tokens + 1024), "--parallel", "1", "--slot-save-path", f"{slots}/"]
    with Server(command) as server:
        continued(args, server, seed, 0)
        post(server.url, "/slots/0?action=save", {"filename": "turn.bin"}).read()
    drop_page_cache(slots, "turn.bin")
    with Server(command) as server:
        start = time.perf_counter()
        post(server.url, "/slots/0?action=restore", {"filename": "turn.bin"}).read()
        restoring = time.perf_counter() - start
        return own, restoring, continued(args, server, seed, 40)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gannet", required=True, help="the binary")
    parser.add_argument("--model", required=True, help="a model file")
    parser.add_argument("--folder", required=True, type=Path, help="a folder on the disk that is measured")
    parser.add_argument("--llama-server", help="llama.cpp's server, which is compared where it is given")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of the prompt")
    parser.add_argument("--vocabulary", type=int, default=50_000, help="ids of prompts are below this")
    parser.add_argument("--size", default="8GiB", help="most bytes of the folder")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--requests", type=int, default=24, help="requests of the closed loop")
    parser.add_argument("--before", type=float, default=4, help="seconds of decoding before the other prompt is restored")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    folder, values = args.folder / "kv-dir-bench", {}

    def add(name, value):
        values.setdefault(name, []).append(value)

    for run in range(args.runs):
        computed, restored, rate, direct = first_token(args, folder, run)
        add("first token computed, s", computed)
        add("first token restored, s", restored)
        add("first token, ratio", restored / computed)
        add("restore, MiB/s", rate / 2**20)
        add("direct reading, MiB/s", direct / 2**20)
        add("restore, ratio", rate / direct)
        shutil.rmtree(folder)
        sides = [None, folder] if run % 2 else [folder, None]
        loads = {side: load(args, side, run) for side in sides}
        add("throughput, ratio", loads[folder][0] / loads[None][0])
        add("p99 between tokens, ratio", loads[folder][1] / loads[None][1])
        shutil.rmtree(folder)
        add("others, ratio", others(args, folder, run))
        shutil.rmtree(folder)
        if args.llama_server:
            own, restoring, turn = second_turn(args, folder, run)
            add("second turn, s", own)
            add("llama-server: restoring, s", restoring)
            add("llama-server: second turn, s", turn)
            add("second turn, ratio", own / (restoring + turn))
            shutil.rmtree(folder)
        newest = {name: round(all[-1], 3) for name, all in values.items()}
        print(f"run {run + 1} of {args.runs}: {newest}", file=sys.stderr)
    medians = {name: statistics.median(all) for name, all in values.items()}
    if args.json:
        return print(json.dumps({"machine": machine(args), "medians": medians, "values": values}))
    for name, all in values.items():
        print(f"{name:28} {medians[name]:10.3f}   {min(all):.3f} to {max(all):.3f}")


if __name__ == "__main__":
    main()
