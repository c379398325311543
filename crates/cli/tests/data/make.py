#!/usr/bin/env python3
"""Writes the checkpoints of random weights in this folder, with their reference outputs.

    pip install torch transformers
    python make.py [name ...]
"""
import copy
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    Lfm2Config,
    Lfm2ForCausalLM,
    Mistral4Config,
    Mistral4ForCausalLM,
    NemotronHConfig,
    NemotronHForCausalLM,
)

FOLDER = Path(__file__).parent
STEPS = 8
COMMON = dict(
    vocab_size=96, hidden_size=32, num_attention_heads=4, intermediate_size=64,
    max_position_embeddings=256, bos_token_id=None, eos_token_id=None, pad_token_id=None,
)
MODELS = {
    # Convolutions with biases, and a layer that attends.
    "lfm2_biased": (Lfm2ForCausalLM, Lfm2Config(
        layer_types=["conv", "full_attention", "conv"], num_hidden_layers=3, num_key_value_heads=2,
        conv_bias=True, conv_L_cache=3, block_auto_adjust_ff_dim=False, **COMMON,
    )),
    # A state space, experts, a state space, attention, experts, an MLP and a state space. Experts
    # are chosen from groups and read fewer values than the residual stream has.
    "nemotron_3": (NemotronHForCausalLM, NemotronHConfig(
        hybrid_override_pattern="MEM*E-M", num_key_value_heads=2, head_dim=8, ssm_state_size=8,
        mamba_num_heads=4, mamba_head_dim=8, n_groups=2, n_routed_experts=6,
        num_experts_per_tok=2, n_group=2, topk_group=1, moe_intermediate_size=24,
        moe_shared_expert_intermediate_size=40, moe_latent_size=20, routed_scaling_factor=2.5,
        **COMMON,
    )),
    # A state space, experts and attention, and a layer of multi-token prediction, which has
    # attention and experts.
    "nemotron_3_mtp": (NemotronHForCausalLM, NemotronHConfig(
        hybrid_override_pattern="ME*", mtp_hybrid_override_pattern="*E",
        num_nextn_predict_layers=1, num_key_value_heads=2, head_dim=8, ssm_state_size=8,
        mamba_num_heads=4, mamba_head_dim=8, n_groups=2, n_routed_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=24, moe_shared_expert_intermediate_size=40,
        moe_latent_size=20, routed_scaling_factor=2.5, **COMMON,
    )),
    # A dense layer and two of experts from groups; queries grow every 16 positions.
    "mistral_4": (Mistral4ForCausalLM, Mistral4Config(
        num_hidden_layers=3, first_k_dense_replace=1, n_routed_experts=6, num_experts_per_tok=2,
        n_group=2, topk_group=1, moe_intermediate_size=24, routed_scaling_factor=1.5,
        num_key_value_heads=4, kv_lora_rank=16, q_lora_rank=24, qk_nope_head_dim=8,
        qk_rope_head_dim=8, v_head_dim=12,
        rope_parameters={
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 16.0, "beta_fast": 32.0,
            "beta_slow": 1.0, "original_max_position_embeddings": 16, "mscale": 1.0,
            "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1, "partial_rotary_factor": 0.5,
        },
        **COMMON,
    )),
}


class Drafts(nn.Module):
    """The layer of multi-token prediction of Nemotron 3, which transformers does not compute, from
    its blocks and norms. The names are those of published checkpoints, after `mtp.`."""

    def __init__(self, model):
        super().__init__()
        config = copy.deepcopy(model.config)
        config.layer_types = config.mtp_layers_block_type
        config._attn_implementation = config._experts_implementation = "eager"
        block, norm = type(model.model.layers[0]), type(model.model.norm_f)
        hidden, eps = config.hidden_size, config.layer_norm_epsilon
        self.layers = nn.ModuleList([block(config, at) for at in range(len(config.layer_types))])
        self.layers[0].enorm, self.layers[0].hnorm = norm(hidden, eps=eps), norm(hidden, eps=eps)
        self.layers[0].eh_proj = nn.Linear(2 * hidden, hidden, bias=False)
        self.layers[-1].final_layernorm = norm(hidden, eps=eps)

    def forward(self, embedding, states):
        first, rows = self.layers[0], states.shape[1]
        mask = torch.full((rows, rows), float("-inf")).triu(1)[None, None]
        x = first.eh_proj(torch.cat([first.enorm(embedding), first.hnorm(states)], -1))
        for block in self.layers:
            x = block(x, attention_mask=mask, position_ids=torch.arange(rows)[None])
        return self.layers[-1].final_layernorm(x)

    def drafted(self, model, ids):
        """Logits of further tokens after the next one, from the states of the last norm."""
        with torch.no_grad():
            states = model.model(torch.tensor([ids])).last_hidden_state
            known, steps = [*ids[1:], model.lm_head(states)[0, -1].argmax().item()], []
            for _ in range(3):
                given = self(model.get_input_embeddings()(torch.tensor([known])), states)[:, -1:]
                logits = model.lm_head(given)[0, -1]
                steps.append({"input_token": known[-1], "logits": logits.tolist()})
                known.append(logits.argmax().item())
                states = torch.cat([states, given], 1)
        return {"f32_max_abs": 1e-3, "steps": steps}


def with_drafts(model, folder):
    """Adds the tensors of drafts to the files of a model, and computes them in F32."""
    drafts = Drafts(model).float()
    fill(drafts)
    drafts.to(torch.bfloat16)
    path = folder / "model.safetensors"
    own = {f"mtp.{name}": tensor for name, tensor in drafts.state_dict().items()}
    save_file({**load_file(path), **own}, path, metadata={"format": "pt"})
    return drafts.float().eval()


def measure(model, ids):
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
        nll = torch.nn.functional.cross_entropy(logits[:-1].double(), torch.tensor(ids[1:]))
        known = list(ids)
        for _ in range(STEPS):
            known.append(model(torch.tensor([known])).logits[0, -1].argmax().item())
    return {
        "input_ids": ids,
        "last_logits": logits[-1].tolist(),
        "top5_ids": logits.topk(5).indices.tolist(),
        "greedy_ids": known[len(ids):],
        "mean_nll": nll.item(),
    }


def fill(model):
    with torch.no_grad():
        for name, values in [*model.named_parameters(), *model.named_buffers()]:
            noise = torch.randn_like(values)
            if "norm" in name:
                values.copy_(1 + 0.1 * noise)
            elif name.endswith(("A_log", "dt_bias", ".D", "e_score_correction_bias")):
                values.copy_(0.5 * noise)
            elif "inv_freq" not in name:
                values.copy_(0.15 * noise)


def make(name):
    folder = FOLDER / name
    torch.manual_seed(3)
    kind, config = MODELS[name]
    model = kind(config).float()
    fill(model)
    # Weights that BF16 holds, computed in F32.
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    drafts = with_drafts(model, folder) if getattr(config, "num_nextn_predict_layers", 0) else None
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    prompts = [torch.randint(0, 96, (length,)).tolist() for length in (5, 40)]
    reference = {"name": name, "prompts": [measure(model, ids) for ids in prompts]}
    for prompt in reference["prompts"] if drafts else []:
        prompt["draft"] = drafts.drafted(model, prompt["input_ids"])
    (folder / "reference.json").write_text(json.dumps(reference))


for name in sys.argv[1:] or MODELS:
    make(name)
