"""A small Qwen3 in plain PyTorch, with the module names of published checkpoints.

Only what training needs is here: whole sequences, right padding, no cache. The
exported weights are checked against the `transformers` implementation by
`evaluate.py`, which never imports this file.
"""

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Shape:
    """The numbers that fix the network; every width is a multiple of 256 so that
    all quantised types, the 256-wide ones included, hold whole blocks per row."""

    vocab_size: int = 2048
    hidden_size: int = 256
    intermediate_size: int = 256
    num_hidden_layers: int = 5
    num_attention_heads: int = 8
    num_key_value_heads: int = 2
    head_dim: int = 32
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 2048

    def as_dict(self):
        return asdict(self)


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        x32 = x.float()
        scale = torch.rsqrt(x32.square().mean(-1, keepdim=True) + self.eps)
        return (x32 * scale * self.weight).to(x.dtype)


def rotary_tables(shape, length):
    """Cosines and sines, [length, head_dim], in the half-split layout of Qwen3."""
    half = torch.arange(0, shape.head_dim, 2).float() / shape.head_dim
    angle = torch.outer(torch.arange(length).float(), shape.rope_theta**-half)
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return (x * cos + turned * sin).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.s = s
        q_width = s.num_attention_heads * s.head_dim
        kv_width = s.num_key_value_heads * s.head_dim
        self.q_proj = nn.Linear(s.hidden_size, q_width, bias=False)
        self.k_proj = nn.Linear(s.hidden_size, kv_width, bias=False)
        self.v_proj = nn.Linear(s.hidden_size, kv_width, bias=False)
        self.o_proj = nn.Linear(q_width, s.hidden_size, bias=False)
        self.q_norm = RMSNorm(s.head_dim, s.rms_norm_eps)
        self.k_norm = RMSNorm(s.head_dim, s.rms_norm_eps)

    def forward(self, x, cos, sin, mask, past, keep):
        s = self.s
        rows, length, _ = x.shape
        q = self.q_proj(x).view(rows, length, -1, s.head_dim)
        k = self.k_proj(x).view(rows, length, -1, s.head_dim)
        v = self.v_proj(x).view(rows, length, -1, s.head_dim).transpose(1, 2)
        q = rotate(self.q_norm(q).transpose(1, 2), cos, sin)
        k = rotate(self.k_norm(k).transpose(1, 2), cos, sin)
        if keep is not None:
            keep.append((k, v))
        if past is not None:
            k, v = (torch.cat([a.expand(rows, -1, -1, -1), b], 2) for a, b in zip(past, (k, v)))
        share = s.num_attention_heads // s.num_key_value_heads
        k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
        # The backward pass of this operator is ten times slower in BF16 on CPUs.
        with torch.autocast("cpu", enabled=False):
            q, k, v = q.float(), k.float(), v.float()
            out = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None)
        return self.o_proj(out.transpose(1, 2).reshape(rows, length, -1).to(x.dtype))


class Mlp(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.gate_proj = nn.Linear(s.hidden_size, s.intermediate_size, bias=False)
        self.up_proj = nn.Linear(s.hidden_size, s.intermediate_size, bias=False)
        self.down_proj = nn.Linear(s.intermediate_size, s.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.self_attn = Attention(s)
        self.mlp = Mlp(s)
        self.input_layernorm = RMSNorm(s.hidden_size, s.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(s.hidden_size, s.rms_norm_eps)

    def forward(self, x, cos, sin, mask, past, keep):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask, past, keep)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embed_tokens = nn.Embedding(s.vocab_size, s.hidden_size)
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.num_hidden_layers))
        self.norm = RMSNorm(s.hidden_size, s.rms_norm_eps)


class Tiny(nn.Module):
    """The language model; the output head is the embedding table."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        cos, sin = rotary_tables(shape, shape.max_position_embeddings)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.apply(self._init)
        for layer in self.model.layers:
            # Residual branches start small so that depth does not inflate the stream.
            layer.self_attn.o_proj.weight.data.mul_(0.3)
            layer.mlp.down_proj.weight.data.mul_(0.3)

    @staticmethod
    def _init(module):
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)

    def hidden(self, ids, past=None, keep=None):
        """Final normalised states, [rows, length, hidden].

        `keep` collects the keys and values of each layer; given as `past` later,
        every row goes on from there.
        """
        begin = past[0][0].shape[2] if past else 0
        end = begin + ids.shape[1]
        cos, sin, mask = self.cos[begin:end], self.sin[begin:end], None
        if past:
            mask = torch.full((ids.shape[1], end), -1e9).triu(begin + 1)
        x = self.model.embed_tokens(ids)
        if torch.is_autocast_enabled("cpu"):
            x, cos, sin = x.bfloat16(), cos.bfloat16(), sin.bfloat16()
        for i, layer in enumerate(self.model.layers):
            x = layer(x, cos, sin, mask, past[i] if past else None, keep)
        return self.model.norm(x)

    def logits(self, states):
        return F.linear(states, self.model.embed_tokens.weight)
