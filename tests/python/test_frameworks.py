"""Plugins of other programs. Each test is skipped where the program is not installed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


def test_llm_answers_streams_and_embeds(tmp_path):
    pytest.importorskip("llm")
    program = str(Path(sys.executable).parent / "llm")
    environment = {"LLM_USER_PATH": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}

    def llm(*arguments):
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, env=environment, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    question = "What is the capital of France?"
    for flags in ([], ["--no-stream"]):
        answer = llm("-m", "gannet/builtin", "-o", "temperature", "0", *flags, question)
        assert answer.strip() == "The capital of France is Paris."
    more = llm("-c", "-o", "temperature", "0", "What is the capital of Italy?")
    assert "Rome" in more
    schema = '{"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}, '
    schema += '"required": ["a"], "additionalProperties": false}'
    held = llm("-m", "gannet/builtin", "--schema", schema, "-o", "temperature", "0", "JSON!")
    assert list(json.loads(held)) == ["a"]
    vector = json.loads(llm("embed", "-m", "gannet/builtin", "-c", "a"))
    assert len(vector) == 256


def test_llm_calls_tools():
    llm = pytest.importorskip("llm")

    def get_weather(city: str) -> str:
        """The weather of a city."""
        return f"sunny in {city}"

    model = llm.get_model("gannet/builtin")
    for stream in (True, False):
        response = model.prompt(
            "What is the weather in Paris?", tools=[get_weather], stream=stream, temperature=0
        )
        (call,) = response.tool_calls()
        assert (call.name, call.arguments) == ("get_weather", {"city": "Paris"})


@pytest.fixture(scope="module")
def harness():
    pytest.importorskip("lm_eval")
    from gannet.lm_eval import Gannet

    model = Gannet("builtin", threads=2, kv_memory="64MiB")
    yield model
    model.engine.close()


def instances(kind, *arguments):
    from lm_eval.api.instance import Instance

    return [
        Instance(request_type=kind, doc={}, arguments=one, idx=at)
        for at, one in enumerate(arguments)
    ]


def test_lm_eval_has_the_likelihoods_of_the_logits(harness):
    import numpy as np

    pairs = [
        ("The capital of France is", " Paris."),
        ("The capital of France is ", "Rome."),
        ("", "Hello"),
        ("The opposite of hot is", " cold"),
    ]
    found = harness.loglikelihood(instances("loglikelihood", *pairs), disable_tqdm=True)
    tokenizer = harness.engine.tokenizer
    for (context, continuation), (logprob, greedy) in zip(pairs, found):
        before = tokenizer.encode(context.rstrip()) or [tokenizer.special_ids["eos"]]
        ids = tokenizer.encode(context + continuation)
        ids = ids if context else before + ids
        rows = harness.engine.sequence().push(ids, "all").astype(np.float64)
        rows -= rows.max(axis=1, keepdims=True)
        rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
        start = len(before)
        own = [rows[at - 1][ids[at]] for at in range(start, len(ids))]
        assert logprob == pytest.approx(sum(own), abs=1e-4), context
        assert greedy == all(rows[at - 1].argmax() == ids[at] for at in range(start, len(ids)))
    assert found[0][1] and not found[1][1]


def test_lm_eval_takes_long_texts_in_parts(harness):
    text = "The opposite of hot is cold. " * 500
    (long,) = harness.loglikelihood_rolling(instances("", (text,)), disable_tqdm=True)
    (short,) = harness.loglikelihood_rolling(instances("", (text[:29],)), disable_tqdm=True)
    assert long < short < 0


def test_lm_eval_generates_until_a_text(harness):
    terms = {"until": ["."], "max_gen_toks": 20, "do_sample": False}
    asked = [("The capital of France is", terms), ("The capital of Italy is", terms)]
    texts = harness.generate_until(instances("generate_until", *asked), disable_tqdm=True)
    assert texts == [" Paris", " Rome"]


def test_lm_eval_evaluates_a_task(harness, tmp_path):
    import lm_eval
    from lm_eval.tasks import TaskManager

    tasks, name = Path(__file__).parents[1] / "clients" / "lm_eval_tasks", "gannet_capitals"
    task = (tasks / "capitals.yaml").read_text()
    task = task.replace("CAPITALS", str(tasks / "capitals.jsonl"))
    (tmp_path / "capitals.yaml").write_text(task)
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    results = lm_eval.simple_evaluate(model=harness, tasks=[name], task_manager=manager)
    scores = [value for key, value in results["results"][name].items() if key.startswith("acc,")]
    assert scores and scores[0] >= 0.8, results["results"]
