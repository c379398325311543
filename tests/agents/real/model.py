"""A checkpoint of random weights with a real vocabulary, a real template and a long context.

`gannet synth` writes the weights; the vocabulary is that of Qwen2 among the reference files, with
the tokens that Qwen3 added for calls and reasoning.
"""

import json
import os
import struct
import subprocess
from pathlib import Path

SHARED = Path(os.environ.get("GANNET_SHARED", Path(__file__).parents[4] / "shared"))
VOCABULARY = SHARED / "fixtures/vocab/ggml-vocab-qwen2.gguf"
TEMPLATE = SHARED / "fixtures/templates/Qwen-Qwen3-0.6B.jinja"

SHAPE = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_act": "silu",
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "tie_word_embeddings": True,
    "vocab_size": 151936,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "eos_token_id": 151645,
}
# Qwen3-0.6B's.
LARGE = SHAPE | {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
END = 151645
ADDED = {
    151657: b"<tool_call>",
    151658: b"</tool_call>",
    151665: b"<tool_response>",
    151666: b"</tool_response>",
    151667: b"<think>",
    151668: b"</think>",
}
USER_DEFINED = 4
# Tokens that are not sampled unless a grammar demands them, so that a random model neither calls
# tools nor reasons by its own choice.
RARE = [151657, 151667]

# Types of GGUF's values, with the bytes of those of a fixed size.
UINT32, STRING, ARRAY = 4, 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
ALIGNMENT = 32


class Gguf:
    """A GGUF file in parts: encoded values by key, and everything about tensors as it stands."""

    def __init__(self, path):
        self.data, self.at = Path(path).read_bytes(), 8
        self.tensors, count = self.read("QQ")
        self.values = {}
        for _ in range(count):
            key, start = self.string(), self.at
            self.skip(self.read("I")[0])
            self.values[key] = self.data[start : self.at]
        start, self.offsets = self.at, {}
        for _ in range(self.tensors):
            name, [rank] = self.string(), self.read("I")
            self.offsets[name] = self.read(f"{rank}QIQ")[-1]
        self.infos = self.data[start : self.at]
        self.weights = bytearray(self.data[self.at + -self.at % ALIGNMENT :])

    def read(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values

    def string(self):
        [size] = self.read("Q")
        self.at += size
        return self.data[self.at - size : self.at]

    def skip(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            inner, count = self.read("IQ")
            for _ in range(count):
                self.skip(inner)
        else:
            self.at += SIZES[kind]

    def write(self, path):
        head = [b"GGUF", struct.pack("<IQQ", 3, self.tensors, len(self.values))]
        head += [encoded(key) + value for key, value in self.values.items()]
        head = b"".join([*head, self.infos])
        Path(path).write_bytes(head + bytes(-len(head) % ALIGNMENT) + self.weights)


def encoded(text):
    return struct.pack("<Q", len(text)) + text


def strings(value):
    """The strings of an encoded array."""
    count, at, found = struct.unpack_from("<Q", value, 8)[0], 16, []
    for _ in range(count):
        [size] = struct.unpack_from("<Q", value, at)
        at += 8 + size
        found.append(value[at - size : at])
    return found


def vocabulary():
    """The values of the vocabulary, with the added tokens."""
    values = Gguf(VOCABULARY).values
    values = {key: value for key, value in values.items() if key.startswith(b"tokenizer.")}
    tokens = strings(values[b"tokenizer.ggml.tokens"])
    kinds = bytearray(values[b"tokenizer.ggml.token_type"])
    for id, text in ADDED.items():
        tokens[id] = text
        struct.pack_into("<i", kinds, 16 + 4 * id, USER_DEFINED)
    head = struct.pack("<IIQ", ARRAY, STRING, len(tokens))
    values[b"tokenizer.ggml.tokens"] = head + b"".join(encoded(text) for text in tokens)
    values[b"tokenizer.ggml.token_type"] = bytes(kinds)
    values[b"tokenizer.ggml.eos_token_id"] = struct.pack("<II", UINT32, END)
    values[b"tokenizer.chat_template"] = struct.pack("<I", STRING) + encoded(TEMPLATE.read_bytes())
    return values


def lean(weights, offset, width):
    """Makes `RARE` tokens improbable: the first component of all embeddings is large, so that it is
    in every hidden state, and of the other sign in theirs. The embeddings are the output's too."""
    row, end = 2 * width, offset + 2 * width * SHAPE["vocab_size"]
    low, high = struct.pack("<f", 0.3)[2:]
    weights[offset:end:row] = bytes([low]) * SHAPE["vocab_size"]
    weights[offset + 1 : end : row] = bytes([high]) * SHAPE["vocab_size"]
    for id in RARE:
        weights[offset + id * row + 1] = high ^ 0x80


def long_model(folder, shape=SHAPE):
    """Writes the checkpoint into `folder` and returns its path."""
    config, path = Path(folder) / "config.json", Path(folder) / "agents.gguf"
    config.write_text(json.dumps(shape))
    command = [os.environ["GANNET_BIN"], "synth", "--config", str(config), "-o", str(path)]
    subprocess.run([*command, "--force"], check=True, capture_output=True)
    file = Gguf(path)
    kept = {k: v for k, v in file.values.items() if not k.startswith(b"tokenizer.")}
    file.values = kept | vocabulary()
    lean(file.weights, file.offsets[b"token_embd.weight"], shape["hidden_size"])
    file.write(path)
    return str(path)
