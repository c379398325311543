"""The numpy program for DeepSeek V4 follows the published definitions, and its record is its own.

Tests that need the fixtures are skipped where GANNET_SHARED does not name their folder.
"""

import json
import os
from pathlib import Path

import deepseek_v4_native as native
import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
SHARED = Path(os.environ.get("GANNET_SHARED", HERE.parents[2] / "shared"))
CHECKPOINTS = SHARED / "fixtures/models"
RECORDED = json.loads((HERE / "deepseek_v4_native.json").read_text())["checkpoints"]


def checkpoint(name):
    folder = CHECKPOINTS / name
    if not folder.exists():
        assert os.environ.get("GANNET_REQUIRE_SHARED") != "1", f"{folder} is absent"
        pytest.skip(f"{folder} is absent")
    return folder


@pytest.mark.parametrize(
    "value, rounded",
    [(0.3, 0.3125), (1.0625, 1.0), (17, 16), (447.9, 448), (2.0**-10, 0), (-0.3, -0.3125)],
)
def test_e4m3_rounds_to_nearest_and_ties_to_even(value, rounded):
    # The largest value of the block makes the scale 1.
    row = np.array([[448.0, value] + [0.0] * 6])
    assert native.fp8_sim(row, 4)[0, 1] == rounded


def test_the_scale_of_a_block_is_a_power_of_two_above_its_largest_value():
    assert native.power_of_two_above(np.array([3.0 / 448]))[0] == 2.0**-7
    assert native.power_of_two_above(np.array([1.0]))[0] == 1.0
    row = np.zeros((1, 160))
    row[0, :128] = np.repeat([3.0, 300.0], 64)
    row[0, [1, 65, 130]] = 0.01
    rounded = native.fp8_sim(row, 32)[0]
    # Eighths of 1 times 2^-7; the smallest step, 2^-9, times 1; rotated channels as they were.
    assert rounded[1] == np.rint(0.01 * 2**10) / 2**10
    assert rounded[65] == np.rint(0.01 * 2**9) / 2**9
    assert rounded[130] == 0.01


def test_e2m1_rounds_ties_to_the_even_code():
    halves = np.array([[0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0]])
    rounded = native.to_codes(halves, 32, 7.05e-38, 6.0, 1, 0)
    assert rounded.tolist() == [[0, 1, 1, 2, 2, 4, 4, 6]]


def test_the_transform_is_that_of_the_hadamard_matrix():
    matrix = np.array([[1.0]])
    while len(matrix) < 32:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    row = np.random.default_rng(1).standard_normal((1, 32))
    got = native.hadamard_fp4(row)
    want = native.to_codes(row @ matrix / np.sqrt(32), 32, 7.05e-38, 6.0, 1, 0)
    assert (got == want).all()
    with pytest.raises(SystemExit, match="24 values"):
        native.hadamard_fp4(np.zeros((1, 24)))


def test_bf16_ties_to_even():
    values = np.array([1 + 2**-8, 1 + 3 * 2**-8, -1.0, 1 + 2**-8 + 2**-20])
    assert native.to_bf16(values).tolist() == [1.0, 1 + 2**-6, -1.0, 1 + 2**-7]


def config(**changes):
    tiny = {
        "num_hidden_layers": 1, "compress_ratios": [4], "num_attention_heads": 64, "head_dim": 512,
        "qk_rope_head_dim": 64, "sliding_window": 128, "rms_norm_eps": 1e-6, "hc_mult": 4,
        "hc_eps": 1e-6, "hc_sinkhorn_iters": 20, "o_groups": 8, "index_n_heads": 64,
        "index_head_dim": 128, "index_topk": 512, "num_experts_per_tok": 6, "n_routed_experts": 256,
        "routed_scaling_factor": 1.5, "swiglu_limit": 10.0, "rope_theta": 10000,
        "compress_rope_theta": 160000, "num_hash_layers": 0,
        "rope_scaling": {"factor": 16, "original_max_position_embeddings": 65536, "beta_fast": 32,
                         "beta_slow": 1},
    }  # fmt: skip
    return {**tiny, **changes}


def test_frequencies_of_compressed_layers_are_those_of_yarn():
    got = native.Sizes(config()).frequencies(True)
    want = {15: 3.635538583622384e-3, 16: 2.265625e-3, 20: 2.96977778e-4, 24: 1.953125e-5,
            25: 5.37231e-6, 31: 5.68053e-7}  # fmt: skip
    for pair, frequency in want.items():
        assert got[pair] == pytest.approx(frequency, rel=1e-6), pair


def test_streams_are_mixed_by_sinkhorns_matrix():
    class Weights(native.Model):
        def __init__(self):
            self.sizes, self.dtype = native.Sizes(config()), np.float64

        def linear(self, name, x):
            return 0.1 * (np.arange(24.0)[None] - 12)

        def weight(self, name):
            k = np.arange(24)
            return np.array([1, 0.5, 2]) if name.endswith("scale") else 0.05 * ((7 * k) % 5 - 2)

    x, post, mix = Weights().read_streams("hc", np.eye(4)[None])
    assert x[0] == pytest.approx([0.2141660, 0.2497409, 0.2890515, 0.2788858], abs=1e-6)
    assert post[0] == pytest.approx([0.8267648, 0.7787215, 0.8511150, 0.9251403], abs=1e-6)
    first = [0.2457284, 0.2618242, 0.2306221, 0.2618242]
    want = [first, [0.2779200, 0.2306222, 0.2608347, 0.2306221], first,
            [0.2306222, 0.2457284, 0.2779200, 0.2457284]]  # fmt: skip
    assert mix[0] == pytest.approx(np.array(want), abs=1e-6)


@pytest.mark.parametrize("name", ["deepseek_v4", "deepseek_v4_scaled", "deepseek_v4_fp8_fp4"])
def test_without_rounding_logits_are_those_of_transformers(name):
    assert len(list(native.check(checkpoint(name)))) == 3


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded["name"])
def test_the_record_is_what_the_program_computes(recorded):
    model = native.Model(native.Checkpoint(checkpoint(recorded["name"])), native=True)
    for prompt in recorded["prompts"][:2]:
        logits, tokens, _ = model.answer(prompt["input_ids"])
        assert np.abs(logits[-1] - prompt["last_logits"]).max() < prompt["tolerance"]
        assert tokens == prompt["greedy_ids"]
        # Without rounding the same prompt has other logits, far outside the tolerance.
        assert prompt["change_by_rounding"] > 20 * prompt["tolerance"]
