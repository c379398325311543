"""What the roundings of each engine cost: perplexities of one text with one GGUF file.

    python losses.py --gannet PATH --model model.gguf --text FILE [--context 2048] [--library libllama.so]

Gannet's exact mode computes with the weights of the file in single precision and agrees with transformers, so that
everything above its perplexity is the loss of an engine: of Gannet's fast mode, whose activations and cache are rounded,
and of llama.cpp's defaults. All score the same tokens in the same windows: every token of a window but the first. The
library is that of `llama-cpp-python`, unless another build of llama.cpp is named; `--dry-run` needs none.
"""

import argparse
import ctypes
import json
import math
import subprocess
import sys
from pathlib import Path


def gannet(binary, *arguments):
    command = [binary, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def perplexity(args, mode):
    """Gannet's mean negative log likelihood."""
    told = gannet(
        args.gannet, "perplexity", "-m", args.model, "-f", args.text, "--ctx", args.context, "--mode", mode, "--json"
    )
    return told["mean_nll"], told["tokens"]


class Params(ctypes.Structure):
    """Parameters of llama.cpp as its version has them. Those of contexts begin with the numbers of tokens of the context,
    a batch and a part of a batch."""

    _fields_ = [("context", ctypes.c_uint32), ("batch", ctypes.c_uint32), ("part", ctypes.c_uint32)]
    _fields_ += [("rest", ctypes.c_byte * 1012)]


class Batch(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.c_void_p),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("sequences", ctypes.POINTER(ctypes.c_int32)),
        ("sequence", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


def batch(ids):
    """A batch of the tokens of one sequence, all with logits."""
    count = len(ids)
    zero = (ctypes.c_int32 * 1)(0)
    pointer = ctypes.cast(zero, ctypes.POINTER(ctypes.c_int32))
    arrays = (
        (ctypes.c_int32 * count)(*ids),
        (ctypes.c_int32 * count)(*range(count)),
        (ctypes.c_int32 * count)(*[1] * count),
        (ctypes.POINTER(ctypes.c_int32) * count)(*[pointer] * count),
        (ctypes.c_int8 * count)(*[1] * count),
    )
    token, pos, sequences, sequence, logits = arrays
    return Batch(count, token, None, pos, sequences, sequence, logits), (zero, arrays)


def library(path):
    """The functions of llama.cpp."""
    if path is None:
        import llama_cpp

        path = llama_cpp.llama_cpp._lib._name
    lib = ctypes.CDLL(str(path))
    pointer = ctypes.c_void_p
    for name, result, arguments in [
        ("llama_backend_init", None, []),
        ("llama_log_set", None, [pointer, pointer]),
        ("llama_model_default_params", Params, []),
        ("llama_context_default_params", Params, []),
        ("llama_model_load_from_file", pointer, [ctypes.c_char_p, Params]),
        ("llama_init_from_model", pointer, [pointer, Params]),
        ("llama_free", None, [pointer]),
        ("llama_decode", ctypes.c_int32, [pointer, Batch]),
        ("llama_get_logits", ctypes.POINTER(ctypes.c_float), [pointer]),
    ]:
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


def peer(args, ids, vocabulary):
    """llama.cpp's mean negative log likelihood."""
    import numpy as np

    lib = library(args.library)
    log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    lib.llama_log_set(ctypes.cast(log, ctypes.c_void_p), None)
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(str(args.model).encode(), lib.llama_model_default_params())
    if not model:
        sys.exit(f"llama.cpp does not load {args.model}")
    total, scored = 0.0, 0
    for start in range(0, len(ids), args.context):
        window = ids[start : start + args.context]
        if len(window) < 2:
            continue
        params = lib.llama_context_default_params()
        params.context, params.batch = args.context, args.context
        context = lib.llama_init_from_model(model, params)
        given, kept = batch(window)
        if not context or lib.llama_decode(context, given) != 0:
            sys.exit("llama.cpp does not compute a window")
        del kept
        rows = np.ctypeslib.as_array(lib.llama_get_logits(context), (len(window), vocabulary)).astype(np.float64)
        rows, targets = rows[:-1], np.array(window[1:])
        top = rows.max(axis=1)
        total += float(np.sum(top + np.log(np.exp(rows - top[:, None]).sum(axis=1)) - rows[range(len(targets)), targets]))
        scored += len(targets)
        lib.llama_free(context)
    return total / scored, scored


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gannet", required=True)
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--text", required=True, type=Path)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--library", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="measure Gannet alone")
    args = parser.parse_args()
    sides = {"exact": perplexity(args, "exact"), "fast": perplexity(args, "fast")}
    if not args.dry_run:
        ids = gannet(args.gannet, "tokenize", args.model, "-f", args.text, "--special", "--json")["ids"]
        vocabulary = gannet(args.gannet, "inspect", args.model, "--json")["config"]["vocab_size"]
        sides["llama.cpp"] = peer(args, ids, vocabulary)
    least, tokens = sides["exact"]
    print(f"{tokens} tokens of {args.text.name}, {args.model.name}")
    for side, (nll, scored) in sides.items():
        if scored != tokens:
            sys.exit(f"{side} scored {scored} tokens, not {tokens}")
        print(f"{side:>10}  {math.exp(nll):9.4f}  {100 * (math.exp(nll - least) - 1):+.3f} %")


if __name__ == "__main__":
    main()
