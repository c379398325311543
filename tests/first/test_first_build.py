"""The program of the README's first command has the bits of the whole one, and says what it lacks.

GANNET_FIRST names the first, which `cargo first` builds, and GANNET_BIN the second.
"""

import json
import os
import pty
import subprocess

import pytest

LACKING = {
    "chat": ["chat", "sessions"],
    "serve": ["batch", "receipt", "serve"],
    "tools": ["bench", "cache", "perplexity", "quantize", "synth", "verify"],
}
QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def first():
    name = os.environ.get("GANNET_FIRST")
    if not name:
        pytest.skip("GANNET_FIRST names no program")
    return name


def run(program, *args, **options):
    return subprocess.run([program, *args], capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Small models of random weights in several types."""
    folder = tmp_path_factory.mktemp("models")
    made = []
    for shape, kind in [
        ("tiny-qwen3", "f32"),
        ("tiny-qwen3", "bf16"),
        ("tiny-qwen3", "q4_k_m"),
        ("tiny-qwen3", "q8_0"),
        ("tiny-qwen3", "iq4_xs"),
        ("tiny-qwen2-moe", "q4_k_m"),
    ]:
        path = folder / f"{shape}-{kind}.gguf"
        command = [os.environ["GANNET_BIN"], "synth", shape, "-o", path, "--type", kind]
        subprocess.run(command, check=True, capture_output=True)
        made.append(path)
    return made


def receipt(program, path, *args):
    """The receipt of an answer, with digests of its ids and the hashes of all logits."""
    done = run(program, "run", "--receipt", path, "--force", "--seed", "7", *args)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text())


def test_a_first_build_has_the_bits_of_a_whole_one(first, models, tmp_path):
    whole = os.environ["GANNET_BIN"]
    cases = [[QUESTION], [QUESTION, "--temp", "0.8", "--bits", "portable"]]
    for model in models:
        raw = ["-m", model, "--raw", "once upon a time " * 8, "-n", "12"]
        cases += [raw, [*raw, "--mode", "exact", "--kv-type", "q8_0"], [*raw, "--chunk", "5"]]
    for case in cases:
        case = [str(part) for part in case]
        found = receipt(first, tmp_path / "first.json", *case)
        expected = receipt(whole, tmp_path / "whole.json", *case)
        assert found == expected, case
        assert found["answer"]["ids"]["tokens"] > 1, found["answer"]


@pytest.mark.parametrize("feature", LACKING)
def test_every_command_that_is_not_built_names_its_feature(first, feature):
    help_text = run(first, "--help").stdout
    for command in LACKING[feature]:
        for args in [command], [command, "--help"], ["help", command]:
            done = run(first, *args)
            problem = f'this build has no command "{command}": build with --features {feature}'
            assert (done.returncode, done.stderr) == (2, f"error: {problem}\n"), args
        assert f"\n  {command} " not in help_text
    assert "\n  run " in help_text


def test_a_model_that_is_not_downloaded_names_the_feature(first):
    done = run(first, "run", "--hub-endpoint", "http://127.0.0.1:1", "-m", "owner/name", QUESTION)
    problem = "this build has no flag --hub-endpoint: build with --features hub"
    assert (done.returncode, done.stderr) == (2, f"error: {problem}\n")
    done = run(first, "run", "-m", "owner/name", QUESTION)
    assert done.returncode == 1 and "build with --features hub" in done.stderr


def test_an_instruction_set_that_is_not_built_is_refused(first):
    done = run(first, "run", QUESTION, env={**os.environ, "GANNET_ISA": "mmx"})
    assert done.returncode == 1
    assert "GANNET_ISA=mmx is not an instruction set of this CPU that this program is built for" in (
        done.stderr
    )
    portable = run(first, "run", QUESTION, env={**os.environ, "GANNET_ISA": "scalar"})
    assert "Paris" in portable.stdout


def test_a_terminal_is_told_of_a_better_model(first):
    assert run(first, "run", QUESTION).stderr == ""
    ours, theirs = pty.openpty()
    done = subprocess.run([first, "run", QUESTION], stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    told = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert b"Paris" in done.stdout and "gannet-tiny answers" in told
    assert told.count("gannet-tiny answers") == 1
