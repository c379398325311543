"""Write the trained model as a Hugging Face checkpoint and as a Q8_0 GGUF file.

    python export.py --out build --models ../../crates/tiny/model

Norm weights stay F32 in the GGUF file, as is the custom there; everything else is
Q8_0. The output head is tied, so neither file has a tensor for it.
"""

import argparse
import json
import shutil
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from corpus import END, TEMPLATE_FILE, TEXT_END

NAME = "Gannet Tiny"
CONTEXT = 2048


def load_average(path):
    """The averaged weights, rounded to BF16, and the shape."""
    state = torch.load(path, weights_only=True)
    weights = {name: t.bfloat16().contiguous() for name, t in state["average"].items()}
    return weights, state["shape"]


def token_id(tokenizer, text):
    found = tokenizer.token_to_id(text)
    assert found is not None, text
    return found


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def config_of(shape, end, pad):
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": end,
        "pad_token_id": pad,
        "head_dim": shape["head_dim"],
        "hidden_act": "silu",
        "hidden_size": shape["hidden_size"],
        "initializer_range": 0.02,
        "intermediate_size": shape["intermediate_size"],
        "max_position_embeddings": CONTEXT,
        "max_window_layers": shape["num_hidden_layers"],
        "model_type": "qwen3",
        "num_attention_heads": shape["num_attention_heads"],
        "num_hidden_layers": shape["num_hidden_layers"],
        "num_key_value_heads": shape["num_key_value_heads"],
        "rms_norm_eps": shape["rms_norm_eps"],
        "rope_scaling": None,
        "rope_theta": shape["rope_theta"],
        "sliding_window": None,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": shape["vocab_size"],
    }


def write_checkpoint(folder, weights, shape, tokenizer, built):
    end, pad = token_id(tokenizer, END), token_id(tokenizer, TEXT_END)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    write_json(folder / "config.json", config_of(shape, end, pad))
    generation = {"do_sample": False, "eos_token_id": [end, pad], "pad_token_id": pad}
    write_json(folder / "generation_config.json", generation)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(built / name, folder / name)


# Published name: name in GGUF files.
LAYER_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def gguf_name(name):
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{LAYER_NAMES[rest.removesuffix('.weight')]}.weight"


def add_metadata(writer, shape):
    writer.add_name(NAME)
    writer.add_license("MIT OR Apache-2.0")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape["hidden_size"])
    writer.add_block_count(shape["num_hidden_layers"])
    writer.add_feed_forward_length(shape["intermediate_size"])
    writer.add_head_count(shape["num_attention_heads"])
    writer.add_head_count_kv(shape["num_key_value_heads"])
    writer.add_key_length(shape["head_dim"])
    writer.add_value_length(shape["head_dim"])
    writer.add_rope_freq_base(shape["rope_theta"])
    writer.add_layer_norm_rms_eps(shape["rms_norm_eps"])
    writer.add_vocab_size(shape["vocab_size"])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)


def add_vocabulary(writer, tokenizer):
    stored = json.loads(tokenizer.to_str())
    added = {token["content"]: token for token in stored["added_tokens"]}
    tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    kinds = [gguf.TokenType.NORMAL] * len(tokens)
    for token in added.values():
        special = token["special"]
        kinds[token["id"]] = gguf.TokenType.CONTROL if special else gguf.TokenType.USER_DEFINED
    merges = [m if isinstance(m, str) else " ".join(m) for m in stored["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(token_id(tokenizer, END))
    writer.add_pad_token_id(token_id(tokenizer, TEXT_END))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE_FILE.read_text())


def write_gguf(path, weights, shape, tokenizer):
    writer = gguf.GGUFWriter(path, "qwen3")
    add_metadata(writer, shape)
    add_vocabulary(writer, tokenizer)
    kind = gguf.GGMLQuantizationType.Q8_0
    for name, tensor in weights.items():
        values = tensor.float().numpy().astype(np.float32)
        if values.ndim == 1:
            writer.add_tensor(gguf_name(name), values)
        else:
            writer.add_tensor(gguf_name(name), gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description="Export the trained model.")
    parser.add_argument("--out", type=Path, default=Path("build"), help="where training wrote")
    parser.add_argument("--models", type=Path, default=TEMPLATE_FILE.parent)
    args = parser.parse_args()
    weights, shape = load_average(args.out / "checkpoint.pt")
    tokenizer = Tokenizer.from_file(str(args.out / "tokenizer.json"))
    write_checkpoint(args.models, weights, shape, tokenizer, args.out)
    write_gguf(args.models / "tiny-q8_0.gguf", weights, shape, tokenizer)
    total = sum(f.stat().st_size for f in args.models.iterdir())
    print(f"{args.models}: {total} bytes")


if __name__ == "__main__":
    main()
