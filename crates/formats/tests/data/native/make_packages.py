"""Makes `package_*` beside this file: matrices packed by the packages themselves, with the values that they restore.

Needs torch, numpy, compressed-tensors 0.20 and nvidia-modelopt 0.47: `python3 make_packages.py`. Values are restored in float32,
before the packages round them to the type of the model, and Gannet's have to equal them bit for bit.
"""

import json

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from safetensors.torch import save_file

from make import HERE, NAME

torch.manual_seed(11)
ROWS = 16


def checkpoint(folder, files, tensors, values):
    folder = HERE / folder
    folder.mkdir(exist_ok=True)
    for name, contents in {"config.json": {}, **files}.items():
        (folder / name).write_text(json.dumps(contents, indent=1) + "\n")
    save_file({f"{NAME}.{name}": value.contiguous() for name, value in tensors.items()}, folder / "model.safetensors")
    # Minus zero is zero here.
    values = (values + 0.0).contiguous()
    assert values.dtype == torch.float32
    save_file({f"{NAME}.weight": values}, folder / "reference.safetensors")


def compressed(folder, format, **settings):
    args = QuantizationArgs(**settings)
    scheme = QuantizationScheme(targets=["Linear"], weights=args, format=format)
    weight = torch.randn(ROWS, 128) * 0.05
    size = args.group_size if (args.group_size or -1) > 0 else 128
    groups = weight.unflatten(1, (-1, size))
    low, high = groups.amin(2), groups.amax(2)
    outer = generate_gparam(weight.min(), weight.max()) if args.strategy == "tensor_group" else None
    scale, zero = calculate_qparams(low, high, args, outer)
    state = {"weight": weight, "weight_scale": scale.float(), "weight_zero_point": zero}
    if outer is not None:
        state["weight_global_scale"] = outer
    compressor = BaseCompressor.get_value_from_registry(format)
    packed = compressor.compress(state, scheme)
    if outer is not None:
        codes = unpack_fp4_from_uint8(packed["weight_packed"], ROWS, 128, torch.float32)
        scale = packed["weight_scale"].float()
        values = dequantize(codes, scale, args=args, global_scale=outer, dtype=torch.float32)
    else:
        values = compressor.decompress(dict(packed), scheme)["weight"].float()
    group = {"targets": ["Linear"], "weights": json.loads(args.model_dump_json()), "format": format}
    config = {"quant_method": "compressed-tensors", "format": format, "config_groups": {"group_0": group}, "version": "0.20.0"}
    checkpoint(folder, {"config.json": {"quantization_config": config}}, packed, values)


def modelopt():
    from modelopt.torch.quantization.qtensor import NVFP4QTensor

    weight = torch.randn(ROWS, 128) * 0.05
    packed, scale, outer = NVFP4QTensor.quantize(weight, 16)
    values = packed.dequantize(torch.float32, scale=scale, double_scale=outer, block_sizes={-1: 16})
    tensors = {"weight": packed._quantized_data, "weight_scale": scale, "weight_scale_2": outer}
    quantization = {"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": None, "exclude_modules": ["lm_head"]}
    files = {"hf_quant_config.json": {"producer": {"name": "modelopt", "version": "0.47.0"}, "quantization": quantization}}
    checkpoint("package_modelopt", files, tensors, values)


if __name__ == "__main__":
    four = {"num_bits": 4, "strategy": "group", "group_size": 32}
    compressed("package_nvfp4", "nvfp4-pack-quantized", num_bits=4, type="float", strategy="tensor_group", group_size=16)
    compressed("package_packed", "pack-quantized", type="int", symmetric=True, **four)
    compressed("package_packed_zeros", "pack-quantized", type="int", symmetric=False, **four)
    compressed("package_int8", "int-quantized", num_bits=8, type="int", strategy="channel")
    compressed("package_float8", "float-quantized", num_bits=8, type="float", strategy="channel")
    modelopt()
