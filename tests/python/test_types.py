"""Stubs and types."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import gannet

ROOT = Path(__file__).resolve().parents[2]


def tool(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", *map(str, arguments)], capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_stubs_are_the_module(tmp_path):
    # The types of other modules are in their sources, and cannot be others than theirs.
    allowed = tmp_path / "allowed"
    allowed.write_text(r"gannet\.(_(?!gannet)|vllm|llama_cpp|llm_plugin|lm_eval).*")
    settings = ["--mypy-config-file", ROOT / "python/pyproject.toml", "--allowlist", allowed]
    settings += ["--ignore-unused-allowlist", "--ignore-missing-stub", "--concise"]
    tool("mypy.stubtest", "gannet", *settings)
    package = Path(gannet.__file__).parent
    assert (package / "py.typed").exists() and (package / "__init__.pyi").exists()
    # Every name that is public is there, and no other.
    stub = (package / "__init__.pyi").read_text()
    assert set(re.findall(r'^    "(\w+)",$', stub, re.M)) == set(gannet.__all__)
    for name in gannet.__all__:
        assert getattr(gannet, name).__doc__ or name == "__version__"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        gannet.nothing


def test_the_package_passes_mypy_strict():
    tool("mypy", "--config-file", ROOT / "python/pyproject.toml", "-p", "gannet")


EXAMPLE = '''
import asyncio
from typing import reveal_type

import gannet
from gannet.llama_cpp import Llama
from gannet.vllm import LLM, SamplingParams


def main() -> None:
    with gannet.Engine("builtin", kv_memory="64MiB", threads=2) as llm:
        text: str = llm.chat("Hello", temperature=0).text
        for delta in llm.chat([{"role": "user", "content": text}], stream=True, max_tokens=3):
            print(delta.text, end="")
        for finished in llm.batch(["a", {"prompt": "b"}], max_tokens=2):
            print(finished.index, finished.answer.text)
        vectors = llm.embed(["a", "b"])
        print(vectors.shape[0], vectors.dtype)
        sequence = llm.sequence(llm.tokenizer.encode("Hello"))
        row = sequence.push([1])
        print(float(row[0]))
        asyncio.run(asked(llm))
    outputs = LLM("builtin").generate(["a"], SamplingParams(max_tokens=3))
    print(outputs[0].outputs[0].text)
    print(Llama("builtin")("a", max_tokens=1))


async def asked(llm: gannet.Engine) -> None:
    answer = await llm.achat("Hello")
    print(answer.text)
    async for delta in llm.achat("Hello", max_tokens=2):
        print(delta.text)
'''


def test_examples_pass_mypy_strict_and_mistakes_do_not(tmp_path):
    example = tmp_path / "example.py"
    example.write_text(EXAMPLE.replace("from typing import reveal_type\n", ""))
    tool("mypy", "--strict", example)
    for right, wrong in [
        ("temperature=0", "temprature=0"),
        ('kv_memory="64MiB"', "kv_memory=1.5"),
        ("text: str", "text: int"),
        ('{"prompt": "b"}], max_tokens=2', '{"prompt": "b"}], max_tokens=[]'),
    ]:
        assert right in EXAMPLE
        example.write_text(EXAMPLE.replace(right, wrong, 1))
        with pytest.raises(AssertionError):
            tool("mypy", "--strict", example)
