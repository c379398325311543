"""Makes the checkpoints beside this file: one small matrix in each native format, with its values.

Every format is written from its definition: integers and scales are drawn, packed bit by bit, and
dequantised in float32 by the formula of the format. The loader's values have to equal
`reference.safetensors` bit for bit. Needs numpy only: `python3 make.py`.
"""

import json
import pathlib

import numpy as np

HERE = pathlib.Path(__file__).parent
RNG = np.random.default_rng(7)
NAME = "model.layers.0.mlp.up_proj"
TYPES = {"float32": "F32", "float16": "F16", "int32": "I32", "int64": "I64", "int8": "I8", "uint8": "U8"}


def save(path, tensors):
    """A safetensors file; a value may be (dtype, array of bytes, shape) where numpy lacks the type."""
    header, data = {}, b""
    for name, value in tensors.items():
        dtype, array, shape = value if isinstance(value, tuple) else (TYPES[value.dtype.name], value, value.shape)
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def checkpoint(folder, quantisation, tensors, values, name=NAME + ".weight", settings=None):
    """A checkpoint with `quantization_config` in config.json, or with `settings` in a file of their name."""
    folder = HERE / folder
    folder.mkdir(exist_ok=True)
    config = {} if quantisation is None else {"quantization_config": quantisation}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    if settings is not None:
        (folder / settings[0]).write_text(json.dumps(settings[1], indent=1) + "\n")
    # One that is stored as it is, as mixed checkpoints have them.
    norm = RNG.standard_normal(8).astype(np.float32)
    save(folder / "model.safetensors", {**tensors, "model.norm.weight": norm})
    assert values.dtype == np.float32
    save(folder / "reference.safetensors", {name: values, "model.norm.weight": norm})


def pack(integers, bits, axis, order=None):
    """int32 words of integers along an axis, lowest bits first; `order` is what each place holds."""
    integers = np.moveaxis(integers.astype(np.uint32), axis, -1)
    per = 32 // bits
    order = range(per) if order is None else order
    missing = -integers.shape[-1] % per
    integers = np.pad(integers, [(0, 0)] * (integers.ndim - 1) + [(0, missing)])
    parts = integers.reshape(*integers.shape[:-1], -1, per)
    words = np.zeros(parts.shape[:-1], np.uint32)
    for place, index in enumerate(order):
        words |= parts[..., index] << np.uint32(bits * place)
    return np.ascontiguousarray(np.moveaxis(words, -1, axis)).view(np.int32)


def unpack(words, bits):
    """The integers of int32 words along the last axis, lowest bits first."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    parts = words.view(np.uint32)[..., None] >> shifts & np.uint32((1 << bits) - 1)
    return parts.reshape(*words.shape[:-1], -1).astype(np.int64)


def ones(bits):
    """A word with 1 in each of its integers."""
    return np.uint32(0xFFFFFFFF // ((1 << bits) - 1))


def integers(bits, shape):
    return RNG.integers(0, 1 << bits, shape)


def scales(shape, dtype=np.float16):
    return (RNG.uniform(0.2, 1.0, shape) * RNG.choice([-0.02, 0.02, 0.02], shape)).astype(dtype)


def grouped(q, zeros, scale, index):
    """scale * (q - zero) of q [inputs, outputs], for [outputs, inputs]."""
    difference = (q - zeros[index]).astype(np.float32)
    return np.ascontiguousarray((scale.astype(np.float32)[index] * difference).T)


def gptq(folder, bits, inputs, group, format, shuffled):
    outputs = 16
    groups = -(-inputs // group)
    q, scale = integers(bits, (inputs, outputs)), scales((groups, outputs))
    # gptqmodel's first format: words less ones, each word as a whole.
    less = np.uint32(0) if format == "gptq_v2" else ones(bits)
    stored = pack(integers(bits, (groups, outputs)), bits, 1)
    zeros = unpack((stored.view(np.uint32) + less).view(np.int32), bits)
    index = np.arange(inputs) // group
    if shuffled:
        index = RNG.permutation(index)
    method = {"quant_method": "gptq", "bits": bits, "group_size": group if groups > 1 else -1, "desc_act": shuffled}
    if format is not None:
        method["checkpoint_format"] = format
    tensors = {
        f"{NAME}.qweight": pack(q, bits, 0),
        f"{NAME}.qzeros": stored,
        f"{NAME}.scales": scale,
        f"{NAME}.g_idx": index.astype(np.int32),
    }
    checkpoint(folder, method, tensors, grouped(q, zeros, scale, index))


def along_outputs(folder, method, group, order):
    inputs, outputs = 128, 16
    groups = inputs // group
    q, scale = integers(4, (inputs, outputs)), scales((groups, outputs))
    zeros = integers(4, (groups, outputs))
    tensors = {
        f"{NAME}.qweight": pack(q, 4, 1, order),
        f"{NAME}.qzeros": pack(zeros, 4, 1, order),
        f"{NAME}.scales": scale,
    }
    checkpoint(folder, method, tensors, grouped(q, zeros, scale, np.arange(inputs) // group))


def compressed(folder, bits, group, symmetric, shuffled=False):
    inputs, outputs = 96, 10
    groups = inputs // group
    half = 1 << (bits - 1)
    q, scale = integers(bits, (outputs, inputs)), scales((outputs, groups), np.float32)
    zeros = np.full((outputs, groups), half) if symmetric else integers(bits, (outputs, groups))
    index = np.arange(inputs) // group
    tensors = {
        f"{NAME}.weight_packed": pack(q, bits, 1),
        f"{NAME}.weight_scale": scale,
        f"{NAME}.weight_shape": np.array([outputs, inputs], np.int64),
    }
    if not symmetric:
        tensors[f"{NAME}.weight_zero_point"] = pack(zeros, bits, 0)
    if shuffled:
        index = RNG.permutation(index)
        tensors[f"{NAME}.weight_g_idx"] = index.astype(np.int32)
    method = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
    checkpoint(folder, method, tensors, grouped(q.T, zeros.T, scale.T, index))


def int8():
    q = RNG.integers(-128, 128, (6, 64)).astype(np.int8)
    scale, zeros = scales((6, 1), np.float32), RNG.integers(-128, 128, (6, 1)).astype(np.int8)
    tensors = {
        f"{NAME}.weight": q,
        f"{NAME}.weight_scale": scale,
        f"{NAME}.weight_zero_point": zeros,
        f"{NAME}.input_scale": np.array([0.5], np.float32),
    }
    method = {"quant_method": "compressed-tensors", "format": "int-quantized"}
    checkpoint("compressed_int8", method, tensors, scale * (q.astype(np.float32) - zeros))


def e4m3(codes):
    sign = np.where(codes & 128, np.float32(-1), np.float32(1))
    exponent, mantissa = (codes >> 3 & 15).astype(np.int32), (codes & 7).astype(np.float32)
    normal = np.ldexp(1 + mantissa / np.float32(8), exponent - 7)
    return (sign * np.where(exponent == 0, np.ldexp(mantissa, -9), normal)).astype(np.float32)


def fp8(folder, method, shape, tile, name, scale, as_f32):
    codes = RNG.integers(0, 127, shape).astype(np.uint8) | RNG.choice([0, 128], shape).astype(np.uint8)
    each = np.repeat(np.repeat(as_f32, tile[0], 0), tile[1], 1)[: shape[0], : shape[1]]
    tensors = {f"{NAME}.weight": ("F8_E4M3", codes, shape), f"{NAME}.{name}": scale}
    checkpoint(folder, method, tensors, e4m3(codes) * each)


def bf16(values):
    """BF16 by dropping bits, as a tensor and as float32."""
    bits = values.astype(np.float32).view(np.uint32) >> 16
    return ("BF16", bits.astype(np.uint16), values.shape), (bits << 16).view(np.float32)


def fp8_all():
    block = {"quant_method": "fp8", "weight_block_size": [8, 32]}
    scale = scales((2, 3), np.float32)
    fp8("fp8_blocks", block, (12, 80), (8, 32), "weight_scale_inv", scale, scale)
    stored, scale = bf16(scales((1, 1)))
    fp8("fp8_blocks_bf16", {"quant_method": "fp8"}, (4, 48), (128, 128), "weight_scale_inv", stored, scale)
    powers = RNG.integers(110, 125, (2, 2)).astype(np.uint8)
    value = np.ldexp(np.float32(1), powers.astype(np.int32) - 127)
    fp8("fp8_powers", block, (16, 64), (8, 32), "scale", ("F8_E8M0", powers, powers.shape), value)
    tensors = {"quant_method": "compressed-tensors", "format": "float-quantized"}
    scale = scales((6, 1), np.float32)
    fp8("fp8_rows", tensors, (6, 64), (1, 64), "weight_scale", scale, scale)
    scale = scales((1,), np.float32)
    fp8("fp8_tensor", tensors, (6, 24), (6, 24), "weight_scale", scale, scale.reshape(1, 1))


def mxfp4():
    levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    # As in ggml, minus zero is zero.
    levels = np.concatenate([levels, 0 - levels])
    codes = integers(4, (2, 4, 2, 32)).astype(np.uint8)
    powers = RNG.integers(100, 140, (2, 4, 2)).astype(np.uint8)
    values = np.ldexp(levels[codes], powers.astype(np.int32)[..., None] - 127)
    values = values.astype(np.float32).reshape(2, 4, 64)
    stored = (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)
    name = "model.layers.0.mlp.experts.gate_up_proj"
    tensors = {f"{name}_blocks": stored, f"{name}_scales": powers}
    checkpoint("mxfp4_blocks", {"quant_method": "mxfp4"}, tensors, values, name)
    tensors = {
        f"{NAME}.weight": stored[0].reshape(4, 32).view(np.int8),
        f"{NAME}.scale": ("F8_E8M0", powers[0], powers[0].shape),
    }
    checkpoint("mxfp4_pairs", {"quant_method": "fp8"}, tensors, values[0])


def nvfp4(folder, producer):
    """Values as the packages dequantise: the scale of a block is rounded before its codes are multiplied."""
    rows, cols = 6, 96
    levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    levels = np.concatenate([levels, 0 - levels])
    codes = integers(4, (rows, cols)).astype(np.uint8)
    scales = RNG.integers(1, 127, (rows, cols // 16)).astype(np.uint8)
    stored = (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8)
    scale = ("F8_E4M3", scales, scales.shape)
    settings = None
    if producer == "modelopt":
        outer = np.array(0.00123, np.float32)
        each = e4m3(scales) * outer
        tensors = {"weight": stored, "weight_scale": scale, "weight_scale_2": outer, "input_scale": outer}
        method, groups = None, {"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": None}
        settings = ("hf_quant_config.json", {"producer": {"name": "modelopt"}, "quantization": groups})
    else:
        outer = np.array([2345.6], np.float32)
        each = e4m3(scales) / outer
        tensors = {"weight_packed": stored, "weight_scale": scale, "weight_global_scale": outer, "input_global_scale": outer}
        weights = {"num_bits": 4, "type": "float", "symmetric": True, "group_size": 16, "strategy": "tensor_group"}
        method = {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}
        method["config_groups"] = {"group_0": {"targets": ["Linear"], "weights": weights}}
    assert each.dtype == np.float32
    tensors = {f"{NAME}.{name}": value for name, value in tensors.items()}
    checkpoint(folder, method, tensors, levels[codes] * np.repeat(each, 16, 1), settings=settings)


def mx_packed():
    """MXFP4 and MXFP8 of compressed-tensors: powers of two as bytes."""
    levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    levels = np.concatenate([levels, 0 - levels])
    codes = integers(4, (4, 64)).astype(np.uint8)
    powers = RNG.integers(100, 140, (4, 2)).astype(np.uint8)
    each = np.repeat(np.ldexp(np.float32(1), powers.astype(np.int32) - 127), 32, 1).astype(np.float32)
    tensors = {f"{NAME}.weight_packed": (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8), f"{NAME}.weight_scale": powers}
    method = {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}
    checkpoint("compressed_mxfp4", method, tensors, levels[codes] * each)
    codes = RNG.integers(0, 127, (4, 64)).astype(np.uint8)
    tensors = {f"{NAME}.weight": ("F8_E4M3", codes, codes.shape), f"{NAME}.weight_scale": powers}
    method = {"quant_method": "compressed-tensors", "format": "mxfp8-quantized"}
    checkpoint("compressed_mxfp8", method, tensors, e4m3(codes) * each)


def awq_by_file():
    """As AutoAWQ's first releases wrote it: settings under their own names, in a file of their own."""
    q, scale, zeros = integers(4, (64, 16)), scales((2, 16)), integers(4, (2, 16))
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    tensors = {f"{NAME}.qweight": pack(q, 4, 1, order), f"{NAME}.qzeros": pack(zeros, 4, 1, order), f"{NAME}.scales": scale}
    settings = ("quant_config.json", {"zero_point": True, "q_group_size": 32, "w_bit": 4, "version": "GEMM"})
    checkpoint("awq_by_file", None, tensors, grouped(q, zeros, scale, np.arange(64) // 32), settings=settings)


def gptq_by_file():
    """As AutoGPTQ's first releases wrote it; zero points of 0, less one as gptqmodel subtracts it."""
    q, scale = integers(4, (64, 16)), scales((2, 16))
    zeros = RNG.choice([0, 0, 1, 7, 8, 15], (2, 16))
    stored = (pack(zeros, 4, 1).view(np.uint32) - ones(4)).view(np.int32)
    tensors = {f"{NAME}.qweight": pack(q, 4, 0), f"{NAME}.qzeros": stored, f"{NAME}.scales": scale}
    settings = {"bits": 4, "group_size": 32, "damp_percent": 0.01, "desc_act": False, "sym": False}
    settings = ("quantize_config.json", settings)
    checkpoint("gptq_by_file", None, tensors, grouped(q, zeros, scale, np.arange(64) // 32), settings=settings)


def fp8_modelopt():
    """ModelOpt's FP8: one scale for a matrix."""
    codes = RNG.integers(0, 127, (6, 32)).astype(np.uint8)
    scale = np.array(0.0321, np.float32)
    tensors = {f"{NAME}.weight": ("F8_E4M3", codes, codes.shape), f"{NAME}.weight_scale": scale, f"{NAME}.input_scale": scale}
    weights = {"dynamic": False, "num_bits": 8, "type": "float"}
    method = {"quant_method": "modelopt", "quant_algo": "FP8", "config_groups": {"group_0": {"weights": weights}}}
    checkpoint("modelopt_fp8", method, tensors, e4m3(codes) * scale)


if __name__ == "__main__":
    gptq("gptq_4", 4, 128, 32, None, False)
    gptq("gptq_4_ordered", 4, 128, 32, "gptq_v2", True)
    gptq("gptq_8", 8, 96, 96, "gptq", False)
    gptq("gptq_2_uneven", 2, 96, 64, "gptq", False)
    along_outputs("awq", {"quant_method": "awq", "version": "gemm", "bits": 4, "group_size": 32}, 32, [0, 2, 4, 6, 1, 3, 5, 7])
    compressed("compressed_4", 4, 32, True)
    compressed("compressed_4_zeros", 4, 32, False)
    compressed("compressed_8_ordered", 8, 32, False, True)
    int8()
    fp8_all()
    mxfp4()
    nvfp4("nvfp4_compressed", "compressed-tensors")
    nvfp4("nvfp4_modelopt", "modelopt")
    mx_packed()
    awq_by_file()
    gptq_by_file()
    fp8_modelopt()
