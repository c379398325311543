"""Plugins of other programs, and frameworks over the module and the server.

Each test is skipped where the program is not installed.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

import gannet

ROOT = Path(__file__).resolve().parents[2]
QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."
WEATHER = "What is the weather in Paris?"
START = "The capital of France is"


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


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

    for flags in ([], ["--no-stream"]):
        answer = llm("-m", "gannet/builtin", "-o", "temperature", "0", *flags, QUESTION)
        assert answer.strip() == ANSWER
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
    model = llm.get_model("gannet/builtin")
    for stream in (True, False):
        response = model.prompt(WEATHER, tools=[get_weather], stream=stream, temperature=0)
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


@pytest.fixture
def llama_cpp(monkeypatch):
    """The module, which is what programs get that import `llama_cpp`."""
    import gannet.llama_cpp

    monkeypatch.setitem(sys.modules, "llama_cpp", gannet.llama_cpp)
    return gannet.llama_cpp


@pytest.fixture(scope="module")
def server():
    with gannet.serve("builtin", port=0, threads=2, kv_memory="64MiB") as server:
        yield server.url + "/v1"


@pytest.fixture(scope="module")
def colour():
    """A schema of which every object is short."""
    pydantic = pytest.importorskip("pydantic")

    class Colour(pydantic.BaseModel):
        """A colour."""

        name: Literal["red", "blue"]

    return Colour


def test_langchain_chats_over_llama_cpp(llama_cpp, colour):
    models = pytest.importorskip("langchain_community.chat_models")
    options = {"model_path": "builtin", "temperature": 0, "n_threads": 2, "verbose": False}
    model = models.ChatLlamaCpp(**options)
    assert model.invoke(QUESTION).content == ANSWER
    parts = [part.content for part in model.stream(QUESTION)]
    assert "".join(parts) == ANSWER and len(parts) > 3
    (call,) = model.bind_tools([get_weather]).invoke(WEATHER).tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"})
    (call,) = model.bind_tools([get_weather], tool_choice=True).invoke("Rome?").tool_calls
    assert call["name"] == "get_weather" and list(call["args"]) == ["city"]
    assert isinstance(model.with_structured_output(colour).invoke("A colour?"), colour)
    model = models.ChatLlamaCpp(grammar='root ::= "yes" | "no"', **options)
    assert model.invoke("Is it?").content in ("yes", "no")


def test_langchain_completes_and_embeds_over_llama_cpp(llama_cpp):
    llms = pytest.importorskip("langchain_community.llms")
    embeddings = pytest.importorskip("langchain_community.embeddings")
    options = {"model_path": "builtin", "n_threads": 2, "verbose": False}
    model = llms.LlamaCpp(temperature=0, max_tokens=8, **options)
    assert model.invoke(START) == " Paris."
    assert "".join(model.stream(START)) == " Paris."
    assert model.get_num_tokens(START) == 5
    model = embeddings.LlamaCppEmbeddings(**options)
    vectors = model.embed_documents(["a", "b"])
    assert [len(vector) for vector in vectors] == [256, 256]
    assert model.embed_query("a") == pytest.approx(vectors[0])


def test_langchain_chats_with_the_server(server, colour):
    openai = pytest.importorskip("langchain_openai")
    options = {"model": "builtin", "base_url": server, "api_key": "none"}
    model = openai.ChatOpenAI(temperature=0, **options)
    assert model.invoke(QUESTION).content == ANSWER
    assert "".join(part.content for part in model.stream(QUESTION)) == ANSWER
    (call,) = model.bind_tools([get_weather]).invoke(WEATHER).tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"})
    for method in ("json_schema", "function_calling"):
        asked = model.with_structured_output(colour, method=method)
        assert isinstance(asked.invoke("A colour?"), colour)
    model = openai.OpenAIEmbeddings(check_embedding_ctx_length=False, **options)
    assert len(model.embed_query("a")) == 256


def test_llama_index_answers_over_llama_cpp(llama_cpp):
    index = pytest.importorskip("llama_index.llms.llama_cpp")
    from llama_index.core.llms import ChatMessage

    def prompt(messages):
        messages = [{"role": one.role.value, "content": one.content} for one in messages]
        return model._model.engine.tokenizer.apply_chat_template(
            messages, tokenize=False, enable_thinking=False
        )

    model = index.LlamaCPP(
        model_path=str(ROOT / "crates/tiny/model/tiny-q8_0.gguf"),
        temperature=0,
        max_new_tokens=40,
        context_window=512,
        model_kwargs={"n_threads": 2},
        messages_to_prompt=prompt,
        verbose=False,
    )
    assert model.complete(START).text == " Paris."
    assert "".join(part.delta for part in model.stream_complete(START)) == " Paris."
    messages = [ChatMessage(role="user", content=QUESTION)]
    assert model.chat(messages).message.content == ANSWER
    assert "".join(part.delta for part in model.stream_chat(messages)) == ANSWER
    assert model.metadata.context_window == 512


def test_llama_index_chats_with_the_server(server):
    index = pytest.importorskip("llama_index.llms.openai_like")
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool

    kind = {"is_chat_model": True, "is_function_calling_model": True}
    options = {"model": "builtin", "api_base": server, "api_key": "none", "temperature": 0}
    model = index.OpenAILike(**options, **kind)
    messages = [ChatMessage(role="user", content=QUESTION)]
    assert model.chat(messages).message.content == ANSWER
    assert "".join(part.delta for part in model.stream_chat(messages)) == ANSWER
    tools = [FunctionTool.from_defaults(get_weather)]
    response = model.chat_with_tools(tools, user_msg=WEATHER)
    (call,) = model.get_tool_calls_from_response(response)
    assert (call.tool_name, call.tool_kwargs) == ("get_weather", {"city": "Paris"})
    model = index.OpenAILike(**options, is_chat_model=False, max_tokens=8)
    assert model.complete(START).text == " Paris."


def test_outlines_holds_answers_over_llama_cpp(llama_cpp, colour):
    outlines = pytest.importorskip("outlines")
    with llama_cpp.Llama("builtin", n_ctx=512, n_threads=2, verbose=False) as llama:
        asked = {"temperature": 0, "max_tokens": 40}
        for chat in (True, False):
            model = outlines.from_llamacpp(llama, chat_mode=chat)
            assert colour.model_validate_json(model("A colour?", colour, **asked))
            held = outlines.Generator(model, outlines.regex("[0-9]{3}-[a-c]{2}"))
            for text in (held(START, **asked), "".join(held.stream(START, **asked))):
                assert re.fullmatch("[0-9]{3}-[a-c]{2}", text), text
        assert model(START, **asked) == " Paris."


def test_outlines_holds_answers_of_the_server(server, colour):
    outlines = pytest.importorskip("outlines")
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=server, api_key="none")
    model = outlines.from_openai(client, "builtin")
    assert model(QUESTION, temperature=0) == ANSWER
    assert colour.model_validate_json(model("A colour?", colour, temperature=0))
    assert colour.model_validate_json("".join(model.stream("A colour?", colour, temperature=0)))
