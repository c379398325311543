"""Clients of three protocols that switch between the models of one server.

GANNET_BIN names the binary. Needs the clients of tests/openai, tests/anthropic and tests/ollama. Run with

    GANNET_BIN=target/release/gannet .venv/bin/python -m pytest tests/openai/test_many_models.py
"""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import anthropic
import ollama
import openai
import pytest
from serving import TINY, Server

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    shutil.copytree(TINY, folder / "one", ignore=shutil.ignore_patterns("*.gguf"))
    shutil.copy(TINY / "tiny-q8_0.gguf", folder / "two.gguf")
    (folder / "broken.gguf").write_bytes(b"GGUF\x03\0\0\0")
    server = Server("--models", str(folder))
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def llama(server):
    return ollama.Client(host=server.address)


def answer(client, model):
    made = client.chat.completions.create(model=model, messages=QUESTION, temperature=0, seed=1)
    assert made.model == model
    return made.choices[0].message.content


def test_models_are_listed_and_switched(client):
    assert [model.id for model in client.models.list()] == ["broken", "one", "two"]
    for model in ["one", "two", "one", "two"]:
        assert "Paris" in answer(client, model)


def test_a_model_that_is_not_there_is_not_found_by_any_client(server, client):
    claude = anthropic.Anthropic(base_url=server.address, api_key="none", max_retries=0)
    assert claude.models.retrieve("one").id == "one"
    with pytest.raises(anthropic.NotFoundError) as refused:
        claude.models.retrieve("three")
    assert refused.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(openai.NotFoundError) as refused:
        client.models.retrieve("three")
    assert refused.value.code == "model_not_found"


def test_models_answer_at_the_same_time(client):
    alone = {model: answer(client, model) for model in ["one", "two"]}
    with ThreadPoolExecutor(8) as threads:
        models = ["one", "two"] * 8
        for model, text in zip(models, threads.map(lambda model: answer(client, model), models)):
            assert text == alone[model]


def test_a_broken_model_is_an_error_and_others_go_on(client):
    with pytest.raises(openai.InternalServerError, match="broken.gguf") as refused:
        answer(client, "broken")
    assert refused.value.code == "model_load_failed"
    with pytest.raises(openai.NotFoundError) as refused:
        answer(client, "three")
    assert refused.value.code == "model_not_found"
    assert "Paris" in answer(client, "one")


def test_anthropics_client_names_a_model(server):
    client = anthropic.Anthropic(base_url=server.address, api_key="none", max_retries=0)
    for model in ["two", "one"]:
        made = client.messages.create(model=model, messages=QUESTION, max_tokens=64)
        assert made.model == model and "Paris" in made.content[-1].text
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="three", messages=QUESTION, max_tokens=64)


def test_ollamas_client_loads_and_unloads(llama):
    assert [model.model for model in llama.list().models] == ["broken", "one", "two"]
    made = llama.chat(model="two:latest", messages=QUESTION, keep_alive="1h")
    assert "Paris" in made.message.content
    loaded = {model.model: model.expires_at.timestamp() - time.time() for model in llama.ps().models}
    assert 3500 < loaded["two"] < 3700
    assert llama.show("one").details.format == "safetensors"
    for _ in range(2):
        assert llama.generate(model="two", keep_alive=0).done_reason == "unload"
        until_gone(llama, "two")
    with pytest.raises(ollama.ResponseError) as refused:
        llama.chat(model="three", messages=QUESTION)
    assert refused.value.status_code == 404


def until_gone(llama, name):
    limit = time.monotonic() + 10
    while name in [model.model for model in llama.ps().models]:
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_models_are_loaded_and_unloaded_by_name(server, client):
    state = lambda name: client.models.retrieve(name).status["value"]
    assert server.post("/models/load", {"model": "one"}).json == {"success": True}
    assert state("one") == "loaded"
    assert server.post("/models/unload", {"model": "one"}).json == {"success": True}
    assert state("one") == "unloaded"


def test_a_model_that_is_not_used_is_unloaded(client, tmp_path):
    shutil.copy(TINY / "tiny-q8_0.gguf", tmp_path / "two.gguf")
    server = Server("--models", str(tmp_path), "--keep-alive", "300ms")
    with_it = openai.OpenAI(base_url=f"{server.address}/v1", api_key="none")
    assert "Paris" in answer(with_it, "two")
    limit = time.monotonic() + 10
    while with_it.models.retrieve("two").status["value"] != "unloaded":
        assert time.monotonic() < limit
        time.sleep(0.02)
    assert "Paris" in answer(with_it, "two")
    assert server.stop() == 0
