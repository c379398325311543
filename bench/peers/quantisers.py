"""Gannet's quantiser beside llama.cpp's own, from the same GGUF file of plain weights.

    python quantisers.py --gannet PATH --source model-bf16.gguf --work DIR [--types q4_k_m,q6_k] [--importance]

For every mixture both write a file. For every tensor the script compares the types and, where both files have the same
one, the errors: the root mean square difference from the source's weights, weighted by the importance of the columns
where there is one. A ratio below 1 means that Gannet's file is closer to the source. Each side writes its file `--runs`
times, in turns; the medians of the seconds are compared. `--dry-run` needs no llama.cpp: both files are Gannet's, and every
ratio of errors must be 1.
"""

import argparse
import ctypes
import json
import subprocess
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

import gguf
import numpy as np

MIXTURES = {
    "q2_k": 10, "q3_k_s": 11, "q3_k_m": 12, "q3_k_l": 13, "q4_k_s": 14, "q4_k_m": 15, "q5_k_s": 16, "q5_k_m": 17,
    "q6_k": 18, "q8_0": 7, "q4_0": 2, "q4_1": 3, "q5_0": 8, "q5_1": 9, "iq4_xs": 30, "iq4_nl": 25, "iq3_m": 27,
    "iq3_s": 26, "iq3_xs": 22, "iq3_xxs": 23, "iq2_m": 29, "iq2_s": 28, "iq2_xs": 20, "iq2_xxs": 19, "iq1_m": 31,
    "iq1_s": 24, "tq2_0": 37, "tq1_0": 36, "mxfp4_moe": 38, "f16": 1, "bf16": 32,
}  # fmt: skip
"""`general.file_type` by the name of the mixture."""
TOLERANCE = 1.0005
"""Ratios up to this count as equal, because sums are rounded."""


class Weights:
    """The tensors of a GGUF file; of each, `rows` rows at equal distances are read."""

    def __init__(self, path, rows):
        self.tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
        self.rows = rows

    def type(self, name):
        return self.tensors[name].tensor_type.name

    def values(self, name):
        tensor = self.tensors[name]
        data = tensor.data.reshape(-1, tensor.data.shape[-1])
        step = max(1, data.shape[0] // self.rows)
        return gguf.quants.dequantize(data[::step], tensor.tensor_type).astype(np.float32)


def importance(source, seed=0):
    """Invented means of squared activations by matrix: some columns matter much more than others."""
    random = np.random.default_rng(seed)
    matrices = [t for t in source.tensors.values() if t.name.startswith("blk.") and len(t.shape) == 2]
    return {t.name: random.lognormal(0, 1.5, int(t.shape[0])).astype(np.float32) for t in matrices}


def write_importance(path, means):
    writer = gguf.GGUFWriter(path, "")
    writer.add_type("imatrix")
    for name, values in means.items():
        writer.add_tensor(f"{name}.in_sum2", values[None, :])
        writer.add_tensor(f"{name}.counts", np.ones((1, 1), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def by_gannet(args, mixture, target, importance_file):
    command = [args.gannet, "quantize", args.source, target, "--type", mixture, "--force", "--threads", str(args.threads)]
    command += ["--imatrix", importance_file] if importance_file else []
    subprocess.run(command, check=True, capture_output=True)


def seconds(write, *arguments):
    start = time.perf_counter()
    write(*arguments)
    return time.perf_counter() - start


def by_llama_cpp(args, mixture, target, means):
    import llama_cpp

    # Kept, or the callback would be collected while llama.cpp holds it.
    silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(silent, None)
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = MIXTURES[mixture]
    params.nthread = args.threads
    if means:
        entry = params._fields_[[name for name, _ in params._fields_].index("imatrix")][1]._type_
        entries = (entry * (len(means) + 1))()
        for at, (name, values) in enumerate(means.items()):
            entries[at].name = name.encode()
            entries[at].data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            entries[at].size = len(values)
        params.imatrix = entries
    if llama_cpp.llama_model_quantize(args.source.encode(), str(target).encode(), params) != 0:
        sys.exit(f"{args.source}: llama.cpp does not quantise it to {mixture}")


def compare(source, ours, theirs, means):
    """The tensors whose types differ, and for each type the ratios of errors by tensor."""
    differ, ratios = [], {}
    for name in source.tensors:
        types = ours.type(name), theirs.type(name)
        if types[0] != types[1]:
            differ.append({"tensor": name, "gannet": types[0], "llama.cpp": types[1]})
        if types[0] == source.type(name) == types[1]:
            continue
        exact, weights = source.values(name), means.get(name, 1.0)
        error = [np.sqrt(np.mean(weights * (file.values(name) - exact) ** 2, dtype=np.float64)) for file in (ours, theirs)]
        key = types[0] if types[0] == types[1] else "/".join(types)
        ratio = error[0] / error[1] if error[1] else float(error[0] > 0) or 1.0
        ratios.setdefault(key, {})[name] = ratio
    return differ, ratios


def summary(mixture, differ, ratios):
    """One line for the mixture, and one for each pair of types that differ."""
    parts = []
    for kind, found in sorted(ratios.items()):
        values = list(found.values())
        worse = sum(value > TOLERANCE for value in values)
        text = f"{kind} {len(values)}: {min(values):.3f} {np.median(values):.3f} {max(values):.3f}"
        parts.append(text + (f" ({worse} WORSE)" if worse else ""))
    lines = [f"{mixture:8} {'; '.join(parts) or 'same'}"]
    counts = Counter((found["gannet"], found["llama.cpp"]) for found in differ)
    for (ours, theirs), count in counts.items():
        first = next(found["tensor"] for found in differ if (found["gannet"], found["llama.cpp"]) == (ours, theirs))
        lines.append(f"{'':8} {count} tensors are {ours}, llama.cpp: {theirs}, such as {first}")
    return "\n".join(lines)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gannet", required=True)
    parser.add_argument("--source", required=True, help="GGUF file of F32, F16 or BF16 weights")
    parser.add_argument("--work", required=True, help="folder for the files, which are removed afterwards")
    parser.add_argument("--types", default=",".join(MIXTURES))
    parser.add_argument("--importance", action="store_true", help="with an invented importance of columns")
    parser.add_argument("--rows", type=int, default=1024, help="rows read of each tensor")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=1, help="how often each side writes each file")
    parser.add_argument("--json", action="store_true", help="print one JSON object behind the table")
    parser.add_argument("--dry-run", action="store_true", help="try the script without llama.cpp")
    return parser.parse_args()


def main():
    args = arguments()
    work = Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    source = Weights(args.source, args.rows)
    means = importance(source) if args.importance else {}
    importance_file = work / "importance.gguf" if means else None
    if means:
        write_importance(importance_file, means)
    print("mixture  type, tensors: least, median and greatest error of gannet over that of llama.cpp")
    results = {}
    for mixture in args.types.split(","):
        paths = [work / f"gannet-{mixture}.gguf", work / f"llama-cpp-{mixture}.gguf"]
        peer, given = (by_gannet, importance_file) if args.dry_run else (by_llama_cpp, means)
        times = [
            (
                seconds(by_gannet, args, mixture, paths[0], importance_file),
                seconds(peer, args, mixture, paths[1], given),
            )
            for _ in range(args.runs)
        ]
        medians = [statistics.median(side) for side in zip(*times)]
        differ, ratios = compare(source, *(Weights(path, args.rows) for path in paths), means)
        print(summary(mixture, differ, ratios))
        print(f"{'':8} {medians[0]:.1f} s, llama.cpp {medians[1]:.1f} s: {medians[0] / medians[1]:.2f}", flush=True)
        if args.dry_run and (differ or any(ratio != 1 for found in ratios.values() for ratio in found.values())):
            sys.exit(f"{mixture}: the same file differs from itself: {differ} {ratios}")
        results[mixture] = {"differ": differ, "ratios": ratios, "seconds": medians}
        for path in paths:
            path.unlink()
    if args.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
