#!/usr/bin/env python3
"""Writes this folder's checkpoint of random weights and its reference outputs.

    pip install torch transformers
    python make.py

The layers are a state space, experts, a state space, attention, experts, an MLP and a state space;
experts are chosen from groups and read fewer values than the residual stream has.
"""
import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, NemotronHConfig

FOLDER = Path(__file__).parent
STEPS = 8
CONFIG = NemotronHConfig(
    vocab_size=96, hidden_size=32, hybrid_override_pattern="MEM*E-M", num_attention_heads=4,
    num_key_value_heads=2, head_dim=8, intermediate_size=64, ssm_state_size=8, mamba_num_heads=4,
    mamba_head_dim=8, n_groups=2, n_routed_experts=6, num_experts_per_tok=2, n_group=2,
    topk_group=1, moe_intermediate_size=24, moe_shared_expert_intermediate_size=40,
    moe_latent_size=20, routed_scaling_factor=2.5, max_position_embeddings=256,
    bos_token_id=None, eos_token_id=None, pad_token_id=None,
)


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


torch.manual_seed(3)
model = AutoModelForCausalLM.from_config(CONFIG, dtype=torch.float32).eval()
with torch.no_grad():
    for name, values in [*model.named_parameters(), *model.named_buffers()]:
        noise = torch.randn_like(values)
        if name.endswith("norm.weight") or name.endswith("norm_f.weight"):
            values.copy_(1 + 0.1 * noise)
        elif name.endswith(("A_log", "dt_bias", ".D", "e_score_correction_bias")):
            values.copy_(0.5 * noise)
        else:
            values.copy_(0.15 * noise)
# Weights that BF16 holds, computed in F32.
model.to(torch.bfloat16).save_pretrained(FOLDER)
(FOLDER / "generation_config.json").unlink(missing_ok=True)
model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()
prompts = [torch.randint(0, 96, (length,)).tolist() for length in (5, 40)]
reference = {"name": "nemotron_3", "prompts": [measure(model, ids) for ids in prompts]}
(FOLDER / "reference.json").write_text(json.dumps(reference))
