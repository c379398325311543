"""DeepSeek V4 in numpy, with the cache rounded as the model was trained for.

    python -m venv target/venv-references
    target/venv-references/bin/pip install -r tests/references/requirements.txt
    program="target/venv-references/bin/python tests/references/deepseek_v4_native.py"
    $program check FOLDER ...
    $program write tests/references/deepseek_v4_native.json FOLDER ...

FOLDER is a small checkpoint with `config.json`, safetensors and a `reference.json`, which has
prompts and their logits by transformers. `check` computes these prompts without rounding and
compares. `write` computes prompts with rounding, which transformers does not have.
`deepseek_v4_native.json` holds those of `deepseek_v4_scaled` and `deepseek_v4_fp8_fp4`.

Weights have the values that are stored; everything is computed in f64. Rows enter the cache as
BF16: the rotated channels are rounded to it, the others are codes of E4M3 times a power of two,
which BF16 holds exactly. Rows and queries of the index are codes of E2M1 times a power of two,
after a Walsh-Hadamard transform. Inputs of compressors are not rounded.

Rounding is a step: a value near the middle of two codes takes the other code in an engine that adds
in another order, and logits move by far more than the noise of f32. `spread` is the largest change
of logits at the end of the prompt and after each greedy token, over a run in f32 and runs whose
values are disturbed by a relative `disturbance` before they are rounded; `tolerance` is a multiple
of it. Prompts are chosen so that the spread is small there, and the tolerance below the gaps of
greedy tokens. At the positions `top5_unsteady` the five best tokens of these runs differ.
`smallest_margins` are those of the choice of rows and of experts, in scores.
"""

import argparse
import json
import struct
import sys
from pathlib import Path

import numpy as np

GREEDY_TOKENS = 16
# Relative noise of a value of an engine that computes in f32.
DISTURBANCE = 1e-6
DISTURBED_RUNS = 8
# The largest change of logits by disturbances that a prompt may have.
MAX_SPREAD = 0.05
# A tolerance is this many times the largest change, and at least the last number.
SAFETY = 4
MIN_TOLERANCE = 2e-3
# Tokens of the prompts: no row is chosen yet; rows are chosen; rows of 128 positions too.
LENGTHS = [9, 61, 155]
MAX_CANDIDATES = 40

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


# Files


def e4m3_values():
    """The values of all 256 codes of E4M3FN."""
    codes = np.arange(256)
    exponent, fraction = codes >> 3 & 15, codes & 7
    normal = (8 + fraction) * 2.0 ** (exponent - 10.0)
    values = np.where(exponent == 0, fraction * 2.0**-9, normal)
    values[codes & 127 == 127] = np.nan
    return np.where(codes >= 128, -values, values)


def decode(kind, data, shape):
    """A tensor of a safetensors file, in f64 or as integers; codes of FP4 stay bytes."""
    if kind == "BF16":
        bits = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        return bits.view(np.float32).astype(np.float64).reshape(shape)
    if kind == "F8_E4M3":
        return e4m3_values()[np.frombuffer(data, np.uint8)].reshape(shape)
    if kind == "F8_E8M0":
        return 2.0 ** (np.frombuffer(data, np.uint8).astype(np.float64) - 127).reshape(shape)
    kinds = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I8": "u1"}
    if kind not in kinds:
        sys.exit(f"type {kind} of a tensor is unknown")
    values = np.frombuffer(data, kinds[kind]).reshape(shape)
    return values.astype(np.float64) if kind.startswith("F") else values


class Checkpoint:
    """Tensors by the names of the release, without `.weight`, and config.json."""

    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.tensors = {}
        for path in sorted(folder.glob("*.safetensors")):
            data = path.read_bytes()
            (length,) = struct.unpack("<Q", data[:8])
            for name, entry in json.loads(data[8 : 8 + length]).items():
                if name != "__metadata__":
                    begin, end = (8 + length + at for at in entry["data_offsets"])
                    tensor = decode(entry["dtype"], data[begin:end], entry["shape"])
                    self.tensors[released_name(name)] = tensor

    def __contains__(self, name):
        return name in self.tensors

    def get(self, name):
        """Values of a tensor; codes with a scale are multiplied with it."""
        if name not in self.tensors:
            sys.exit(f"the checkpoint has no tensor {name}")
        values, scale = self.tensors[name], self.tensors.get(f"{name}.scale")
        if scale is None:
            return values
        rows, columns = values.shape
        if values.dtype == np.uint8:
            # Two codes of FP4 in a byte, the lower half first; a scale for 32 inputs.
            values = E2M1[np.stack([values & 15, values >> 4], axis=-1).reshape(rows, 2 * columns)]
            return values * np.repeat(scale, 32, axis=1)
        # A scale for a tile of 128 by 128.
        return values * np.repeat(np.repeat(scale, 128, 0)[:rows], 128, 1)[:, :columns]


def released_name(name):
    """The name of the release for one that `save_pretrained` writes."""
    name = name.removeprefix("model.").removesuffix(".weight").replace("hc_head.hc_", "hc_head_")
    if name.endswith(".attn.norm"):
        name = name.removesuffix("norm") + "kv_norm"
    name = name.removesuffix(".weight")
    return {"embed_tokens": "embed", "lm_head": "head"}.get(name, name)


class Sizes:
    """What config.json says, in either spelling."""

    def __init__(self, config):
        layers = config["num_hidden_layers"]
        rates = config.get("compress_rates", {})
        if "compress_ratios" in config:
            self.ratios = config["compress_ratios"][:layers]
            self.indexed = [ratio == 4 for ratio in self.ratios]
        else:
            self.ratios = [rates.get(kind, 0) for kind in config["layer_types"]]
            sparse = "compressed_sparse_attention"
            self.indexed = [kind == sparse for kind in config["layer_types"]]
        hashed = config.get("num_hash_layers", config.get("mlp_layer_types", []).count("hash_moe"))
        self.by_token = [layer < hashed for layer in range(layers)]
        ropes = config.get("rope_parameters", {})
        self.theta = ropes.get("main", config)["rope_theta"]
        self.yarn = ropes.get("compress", config.get("rope_scaling"))
        self.compress_theta = config["compress_rope_theta"]
        self.layers, self.heads = layers, config["num_attention_heads"]
        self.dim, self.rotated = config["head_dim"], config["qk_rope_head_dim"]
        self.window, self.eps = config["sliding_window"], config["rms_norm_eps"]
        self.streams, self.hc_eps = config["hc_mult"], config["hc_eps"]
        self.iterations, self.groups = config["hc_sinkhorn_iters"], config["o_groups"]
        self.index_heads, self.index_dim = config["index_n_heads"], config["index_head_dim"]
        self.top, self.chosen = config["index_topk"], config["num_experts_per_tok"]
        self.experts = config["n_routed_experts"]
        self.scale, self.limit = config["routed_scaling_factor"], config["swiglu_limit"]

    def frequencies(self, compressed):
        """Radians per position for each rotated pair."""
        pairs = np.arange(0, self.rotated, 2) / self.rotated
        if not compressed:
            return self.theta**-pairs
        plain, yarn, base = self.compress_theta**-pairs, self.yarn, self.compress_theta

        def dimension(turns):
            length = yarn["original_max_position_embeddings"]
            return self.rotated * np.log(length / (turns * 2 * np.pi)) / (2 * np.log(base))

        low = max(np.floor(dimension(yarn["beta_fast"])), 0)
        high = min(np.ceil(dimension(yarn["beta_slow"])), self.rotated - 1)
        high += 0.001 if low == high else 0
        ramp = np.clip((np.arange(len(plain)) - low) / (high - low), 0, 1)
        return plain * (1 - ramp) + plain / yarn["factor"] * ramp


# Rounding


def to_bf16(x):
    """Nearest BF16 values, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32).astype(x.dtype)


def power_of_two_above(x):
    """2^ceil(log2(x))."""
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.ones_like(x), np.where(fraction == 0.5, exponent - 1, exponent))


def to_codes(x, block, least, most, bits, lowest):
    """Blocks of the last axis as codes with `bits` of fraction, each times a power of two."""
    out = np.empty_like(x)
    for start in range(0, x.shape[-1], block):
        part = x[..., start : start + block]
        largest = np.maximum(np.abs(part).max(-1, keepdims=True), least)
        scale = power_of_two_above(largest / most)
        scaled = np.clip(part / scale, -most, most)
        exponent = np.frexp(np.abs(scaled))[1] - 1
        step = np.ldexp(np.ones_like(x[:1, :1]), np.maximum(exponent, lowest) - bits)
        out[..., start : start + block] = np.rint(scaled / step) * step * scale
    return out


def fp8_sim(x, rotated):
    """E4M3 in blocks of 64 channels; the last `rotated` channels stay."""
    first = x.shape[-1] - rotated
    codes = to_codes(x[..., :first], 64, 1e-4, 448.0, 3, -6)
    return np.concatenate([codes, x[..., first:]], axis=-1)


def hadamard_fp4(x):
    """Walsh-Hadamard transform of the last axis, then E2M1 in blocks of 32."""
    width, y = x.shape[-1], x
    if width & (width - 1):
        sys.exit(f"rows of the index have {width} values, which is no power of two")
    stride = 1
    while stride < width:
        pairs = y.reshape(*x.shape[:-1], -1, 2, stride)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        y = np.stack([a + b, a - b], axis=-2).reshape(x.shape)
        stride *= 2
    y = y * x.dtype.type(1 / np.sqrt(width))
    return to_codes(y, 32, 7.05e-38, 6.0, 1, 0)


# Model


def rms_norm(x, eps, weight=1.0):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax_to_weights(x, axis):
    weights = np.exp(x - x.max(axis, keepdims=True))
    return weights / weights.sum(axis, keepdims=True)


class Model:
    """The forward pass over whole sequences. `native` rounds what the cache holds; `disturbance`
    is a generator that disturbs values before they are rounded."""

    def __init__(self, checkpoint, dtype=np.float64, native=False, disturbance=None):
        self.checkpoint, self.sizes = checkpoint, Sizes(checkpoint.config)
        self.dtype, self.native, self.disturbance = dtype, native, disturbance
        self.weights, self.margins = {}, {}

    def weight(self, name):
        if name not in self.weights:
            values = self.checkpoint.get(name)
            integers = values.dtype.kind in "iu"
            self.weights[name] = values if integers else values.astype(self.dtype)
        return self.weights[name]

    def linear(self, name, x):
        return x @ self.weight(name).T

    def margin(self, kind, values):
        """Keeps the smallest margin of a kind of choice."""
        if values.size:
            self.margins[kind] = min(self.margins.get(kind, np.inf), float(values.min()))

    def stored(self, x, rounding):
        """Values as the cache holds them, rounded by `rounding` first."""
        if not self.native:
            return x
        if self.disturbance is not None:
            x = x * (1 + DISTURBANCE * self.disturbance.standard_normal(x.shape)).astype(x.dtype)
        return to_bf16(rounding(x))

    def rotate(self, x, positions, compressed, sign=1):
        """Rotates pairs of the last channels of `x`, `[positions, ..., channels]`."""
        frequencies = self.sizes.frequencies(compressed).astype(np.float32)
        angles = positions.astype(np.float32)[:, None] * frequencies
        angles = angles.reshape(len(positions), *[1] * (x.ndim - 2), -1).astype(np.float64)
        cos, sin = np.cos(angles).astype(x.dtype), (sign * np.sin(angles)).astype(x.dtype)
        out, first = x.copy(), x.shape[-1] - self.sizes.rotated
        a, b = x[..., first::2], x[..., first + 1 :: 2]
        out[..., first::2], out[..., first + 1 :: 2] = a * cos - b * sin, a * sin + b * cos
        return out

    def logits(self, ids):
        """`[tokens, vocabulary]` logits of a sequence."""
        sizes, ids = self.sizes, np.asarray(ids)
        rows = self.weight("embed")[ids]
        streams = np.repeat(rows[:, None, :], sizes.streams, axis=1)
        for layer in range(sizes.layers):
            name = f"layers.{layer}"
            x, post, mix = self.read_streams(f"{name}.hc_attn", streams)
            x = rms_norm(x, sizes.eps, self.weight(f"{name}.attn_norm"))
            streams = write_streams(streams, self.attention(layer, x), post, mix)
            x, post, mix = self.read_streams(f"{name}.hc_ffn", streams)
            x = rms_norm(x, sizes.eps, self.weight(f"{name}.ffn_norm"))
            streams = write_streams(streams, self.experts(layer, x, ids), post, mix)
        flat = rms_norm(streams.reshape(len(ids), -1), sizes.eps)
        z = self.linear("hc_head_fn", flat) * self.weight("hc_head_scale")
        weights = sigmoid(z + self.weight("hc_head_base")) + self.dtype(sizes.hc_eps)
        x = (weights[:, :, None] * streams).sum(1)
        return self.linear("head", rms_norm(x, sizes.eps, self.weight("norm")))

    def read_streams(self, name, streams):
        """The input of a sublayer, how its output enters the streams, and how streams are mixed."""
        n, eps = self.sizes.streams, self.dtype(self.sizes.hc_eps)
        flat = rms_norm(streams.reshape(len(streams), -1), self.sizes.eps)
        z, scale = self.linear(f"{name}_fn", flat), self.weight(f"{name}_scale")
        base = self.weight(f"{name}_base")
        pre = sigmoid(z[:, :n] * scale[0] + base[:n]) + eps
        post = 2 * sigmoid(z[:, n : 2 * n] * scale[1] + base[n : 2 * n])
        mix = (z[:, 2 * n :] * scale[2] + base[2 * n :]).reshape(-1, n, n)
        mix = softmax_to_weights(mix, 2) + eps
        mix = mix / (mix.sum(1, keepdims=True) + eps)
        for _ in range(self.sizes.iterations - 1):
            mix = mix / (mix.sum(2, keepdims=True) + eps)
            mix = mix / (mix.sum(1, keepdims=True) + eps)
        return (pre[:, :, None] * streams).sum(1), post, mix

    def attention(self, layer, x):
        sizes, name, count = self.sizes, f"layers.{layer}.attn", len(x)
        ratio, positions = sizes.ratios[layer], np.arange(len(x))
        compressed = ratio > 0
        low = rms_norm(self.linear(f"{name}.wq_a", x), sizes.eps, self.weight(f"{name}.q_norm"))
        q = self.linear(f"{name}.wq_b", low).reshape(count, sizes.heads, sizes.dim)
        q = self.rotate(rms_norm(q, sizes.eps), positions, compressed)
        rows = rms_norm(self.linear(f"{name}.wkv", x), sizes.eps, self.weight(f"{name}.kv_norm"))
        rows = self.rotate(rows, positions, compressed)
        rows = self.stored(rows, lambda row: fp8_sim(row, sizes.rotated))
        ages = positions[:, None] - positions
        seen = (ages >= 0) & (ages < sizes.window)
        if compressed:
            more = self.compressed(f"{name}.compressor", x, (layer, sizes.dim))
            more = self.stored(more, lambda row: fp8_sim(row, sizes.rotated))
            visible = np.arange(len(more)) < ((positions + 1) // ratio)[:, None]
            if sizes.indexed[layer]:
                visible = self.choose(layer, x, low, visible)
            rows, seen = np.concatenate([more, rows]), np.concatenate([visible, seen], axis=1)
        scores = np.einsum("thd,rd->thr", q, rows) * self.dtype(sizes.dim**-0.5)
        scores = np.where(seen[:, None, :], scores, -np.inf)
        sinks = np.broadcast_to(self.weight(f"{name}.attn_sink")[:, None], (*q.shape[:2], 1))
        weights = softmax_to_weights(np.concatenate([scores, sinks], axis=2), 2)[..., :-1]
        mixed = np.einsum("thr,rd->thd", weights, rows)
        mixed = self.rotate(mixed, positions, compressed, sign=-1)
        groups = mixed.reshape(count, sizes.groups, -1)
        wo_a = self.weight(f"{name}.wo_a").reshape(sizes.groups, -1, groups.shape[2])
        out = np.einsum("tgi,goi->tgo", groups, wo_a).reshape(count, -1)
        return self.linear(f"{name}.wo_b", out)

    def compressed(self, name, x, layer_and_dim):
        """Compressed rows, `[complete windows, dim]`, before they are rounded."""
        layer, dim = layer_and_dim
        ratio, overlap = self.sizes.ratios[layer], self.sizes.indexed[layer]
        count = len(x) // ratio
        if count == 0:
            return np.zeros((0, dim), self.dtype)
        shape = (count, ratio, -1)
        values = self.linear(f"{name}.wkv", x)[: count * ratio].reshape(shape)
        gates = self.linear(f"{name}.wgate", x)[: count * ratio].reshape(shape)
        gates = gates + self.weight(f"{name}.ape")
        if overlap:
            # The first halves of the window before, then the second halves of this one.
            before = np.zeros((1, ratio, dim), self.dtype)
            values = [np.concatenate([before, values[:-1, :, :dim]]), values[:, :, dim:]]
            gates = [np.concatenate([before - np.inf, gates[:-1, :, :dim]]), gates[:, :, dim:]]
            values, gates = np.concatenate(values, axis=1), np.concatenate(gates, axis=1)
        rows = (softmax_to_weights(gates, 1) * values).sum(1)
        rows = rms_norm(rows, self.sizes.eps, self.weight(f"{name}.norm"))
        return self.rotate(rows, np.arange(count) * ratio, True)

    def choose(self, layer, x, low, visible):
        """Which of the visible compressed rows the index chooses for each position."""
        sizes, name = self.sizes, f"layers.{layer}.attn.indexer"
        q = self.linear(f"{name}.wq_b", low).reshape(len(x), sizes.index_heads, sizes.index_dim)
        q = self.stored(self.rotate(q, np.arange(len(x)), True), hadamard_fp4)
        rows = self.compressed(f"{name}.compressor", x, (layer, sizes.index_dim))
        rows = self.stored(rows, hadamard_fp4)
        weights = self.linear(f"{name}.weights_proj", x)
        weights = weights * self.dtype((sizes.index_dim * sizes.index_heads) ** -0.5)
        each = np.maximum(np.einsum("thd,rd->thr", q, rows), 0)
        scores = np.where(visible, (each * weights[:, :, None]).sum(1), -np.inf)
        if scores.shape[1] <= sizes.top:
            return visible
        order = np.argsort(-scores, axis=1, kind="stable")
        ranked = np.take_along_axis(scores, order, axis=1)[visible.sum(1) > sizes.top]
        self.margin("index", ranked[:, sizes.top - 1] - ranked[:, sizes.top])
        chosen = np.zeros_like(visible)
        np.put_along_axis(chosen, order[:, : sizes.top], True, axis=1)
        return chosen & visible

    def experts(self, layer, x, ids):
        sizes, name = self.sizes, f"layers.{layer}.ffn"
        scores = np.sqrt(np.logaddexp(self.linear(f"{name}.gate", x), 0))
        if sizes.by_token[layer]:
            chosen = self.weight(f"{name}.gate.tid2eid")[ids]
        else:
            biased = scores + self.weight(f"{name}.gate.bias")
            order = np.argsort(-biased, axis=1, kind="stable")
            ranked = np.take_along_axis(biased, order, axis=1)
            if sizes.chosen < sizes.experts:
                self.margin("experts", ranked[:, sizes.chosen - 1] - ranked[:, sizes.chosen])
            chosen = order[:, : sizes.chosen]
        weights = np.take_along_axis(scores, chosen, axis=1)
        weights = weights / weights.sum(1, keepdims=True) * self.dtype(sizes.scale)
        out = self.mlp(f"{name}.shared_experts", x)
        for expert in np.unique(chosen):
            rows, places = np.nonzero(chosen == expert)
            y = self.mlp(f"{name}.experts.{expert}", x[rows]) * weights[rows, places][:, None]
            np.add.at(out, rows, y)
        return out

    def mlp(self, name, x):
        limit = self.sizes.limit
        gate = np.minimum(self.linear(f"{name}.w1", x), limit)
        up = np.clip(self.linear(f"{name}.w3", x), -limit, limit)
        return self.linear(f"{name}.w2", gate * sigmoid(gate) * up)

    def answer(self, ids):
        """Logits of a prompt, then the most likely tokens one after another with their logits."""
        prompt = self.logits(ids)
        tokens, steps = [], []
        last = prompt[-1]
        for _ in range(GREEDY_TOKENS):
            tokens.append(int(best(last, 1)[0]))
            steps.append(last)
            last = self.logits([*ids, *tokens])[-1]
        return prompt, tokens, np.array(steps)


def write_streams(streams, y, post, mix):
    return post[:, :, None] * y[:, None, :] + np.einsum("tsd,tsh->tdh", mix, streams)


def best(logits, count):
    """Ids of the largest logits, the lower id first of equal ones."""
    return np.argsort(-logits, kind="stable")[:count]


# Commands


def check(folder):
    """Compares the forward pass without rounding with what transformers computed."""
    checkpoint = Checkpoint(folder)
    reference = json.loads((folder / "reference.json").read_text())
    tolerance = reference["tolerance"]["f32_max_abs"]
    for prompt in reference["prompts"]:
        logits, tokens, _ = Model(checkpoint).answer(prompt["input_ids"])
        error = np.abs(logits[-1] - np.array(prompt["last_logits"])).max()
        wrong = 0
        for row, want in zip(logits, prompt["top5_ids"], strict=True):
            top = best(row, 6)
            close = (-np.diff(row[top])).min() < tolerance
            wrong += not close and list(top[:5]) != want
        if error > tolerance or wrong or tokens != prompt["greedy_ids"]:
            sys.exit(f"{folder}: logits differ by {error:.1e}, {wrong} positions have other top 5,"
                     f" greedy tokens are {tokens}")
        yield f"{folder.name}: {len(logits)} tokens, within {error:.1e} of {tolerance:.1e}"


def candidates(prompt, length):
    """Prompts of a length with the first token of `prompt`; the others are turned."""
    first, rest = prompt[:1], prompt[1:]
    for turn in range(0, 7 * MAX_CANDIDATES, 7):
        yield first + np.roll(rest, -turn).tolist()[: length - 1]


def others(checkpoint):
    """The model in f32, and with values that are disturbed before they are rounded."""
    yield Model(checkpoint, np.float32, native=True)
    for seed in range(DISTURBED_RUNS):
        yield Model(checkpoint, native=True, disturbance=np.random.default_rng(seed))


def compute(checkpoint, ids, others):
    """What the file says of a prompt, or `None` if a flip of a code changes too much."""
    model = Model(checkpoint, native=True)
    if np.abs(others[1].logits(ids)[-1] - model.logits(ids)[-1]).max() > MAX_SPREAD:
        return None
    logits, tokens, steps = model.answer(ids)
    spread, top_spread = np.zeros(len(steps)), np.zeros(len(ids), bool)
    for other in others:
        got = other.logits([*ids, *tokens[:-1]])
        spread = np.maximum(spread, np.abs(got[len(ids) - 1 :] - steps).max(1))
        for at, row in enumerate(logits):
            top_spread[at] |= list(best(got[at], 5)) != list(best(row, 5))
    ranked = -np.sort(-steps, axis=1)
    gaps = ranked[:, 0] - ranked[:, 1]
    tolerance = max(SAFETY * spread.max(), MIN_TOLERANCE)
    if spread.max() > MAX_SPREAD or gaps.min() < tolerance:
        return None
    plain = Model(checkpoint).logits(ids)[-1]
    return {
        "input_ids": ids,
        "last_logits": [round(float(value), 5) for value in logits[-1]],
        "top5_ids": [best(row, 5).tolist() for row in logits],
        "top5_unsteady": np.nonzero(top_spread)[0].tolist(),
        "greedy_ids": tokens,
        "greedy_gaps": [round(float(gap), 4) for gap in gaps],
        "smallest_margins": {kind: float(f"{m:.2e}") for kind, m in sorted(model.margins.items())},
        "change_by_rounding": round(float(np.abs(plain - logits[-1]).max()), 3),
        "spread": [float(f"{value:.2e}") for value in spread],
        "tolerance": float(f"{tolerance:.2e}"),
    }


def computed(folder):
    """Prompts of a checkpoint, whose last logits and greedy tokens bear the noise of f32."""
    checkpoint = Checkpoint(folder)
    reference = json.loads((folder / "reference.json").read_text())
    longest = max((prompt["input_ids"] for prompt in reference["prompts"]), key=len)
    models, prompts = list(others(checkpoint)), []
    for length in LENGTHS:
        found = (compute(checkpoint, ids, models) for ids in candidates(longest, length))
        prompt = next((prompt for prompt in found if prompt), None)
        if prompt is None:
            sys.exit(f"{folder}: no prompt of {length} tokens bears the noise")
        print(f"{folder.name}: {length} tokens, tolerance {prompt['tolerance']}, smallest gap "
              f"{min(prompt['greedy_gaps'])}, rounding changes {prompt['change_by_rounding']}")
        prompts.append(prompt)
    return {"name": folder.name, "prompts": prompts}


def write(file, checkpoints):
    """Writes one line for each field of a prompt."""
    head = {
        "made_by": "tests/references/deepseek_v4_native.py write",
        "computed_in": "float64, rows of the cache in BF16",
        "disturbance": DISTURBANCE,
    }
    lines = ["{"] + [f' "{key}": {json.dumps(value)},' for key, value in head.items()]
    listed = []
    for checkpoint in checkpoints:
        prompts = []
        for prompt in checkpoint["prompts"]:
            fields = [f'    "{key}": {json.dumps(value)}' for key, value in prompt.items()]
            prompts.append("   {\n" + ",\n".join(fields) + "\n   }")
        name, prompts = json.dumps(checkpoint["name"]), ",\n".join(prompts)
        listed.append(f'  {{\n   "name": {name},\n   "prompts": [\n{prompts}\n   ]\n  }}')
    lines += [' "checkpoints": [', ",\n".join(listed), " ]", "}"]
    file.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    checked = commands.add_parser("check", help="compare with reference.json, without rounding")
    checked.add_argument("folders", nargs="+", type=Path)
    written = commands.add_parser("write", help="compute with rounding")
    written.add_argument("file", type=Path)
    written.add_argument("folders", nargs="+", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "check":
        for folder in arguments.folders:
            for line in check(folder):
                print(line)
    else:
        write(arguments.file, [computed(folder) for folder in arguments.folders])


if __name__ == "__main__":
    main()
