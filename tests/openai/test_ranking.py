"""Embedding models and rerankers, through the binary: vectors and scores are those of the references."""

import base64
import json
import os
import struct
from pathlib import Path

import pytest
from serving import Server

SHARED = Path(os.environ.get("GANNET_SHARED", Path(__file__).parents[3] / "shared"))
MODELS = SHARED / "fixtures" / "embeddings"
EMBEDDERS = ["bert", "modernbert", "xlmr_embedding", "qwen3_embedding"]
RERANKERS = ["bert_reranker", "xlmr_reranker"]

pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason="no reference files")


@pytest.fixture(scope="module")
def serve():
    """Starts a server of a model, once."""
    servers = {}

    def start(name):
        if name not in servers:
            servers[name] = Server("--mode", "exact", model=str(MODELS / name))
        return servers[name]

    yield start
    for server in servers.values():
        server.stop()


def reference(name):
    return json.loads((MODELS / name / "reference.json").read_text())


def post(server, path, body, status=200):
    reply = server.post(path, body)
    assert reply.status == status, reply
    return reply.json


def close(found, expected, tolerance):
    assert len(found) == len(expected)
    assert max(abs(a - b) for a, b in zip(found, expected)) <= tolerance


@pytest.mark.parametrize("name", EMBEDDERS)
def test_vectors_are_those_of_the_reference_as_text_ids_numbers_and_base64(serve, name):
    server, wanted = serve(name), reference(name)
    tolerance = wanted["tolerance"]["f32_max_abs"]
    inputs = [text["text"] for text in wanted["texts"]]
    ids = [text["input_ids"] for text in wanted["texts"]]
    for body in ({"input": inputs}, {"input": ids}):
        answer = post(server, "/v1/embeddings", body)
        assert answer["usage"]["prompt_tokens"] == sum(map(len, ids))
        for item, text in zip(answer["data"], wanted["texts"]):
            close(item["embedding"], text["embedding"], tolerance)
    answer = post(server, "/v1/embeddings", {"input": inputs[1], "encoding_format": "base64"})
    raw = base64.b64decode(answer["data"][0]["embedding"])
    close(struct.unpack(f"<{len(raw) // 4}f", raw), wanted["texts"][1]["embedding"], tolerance)
    answer = post(server, "/api/embed", {"input": inputs})
    for vector, text in zip(answer["embeddings"], wanted["texts"]):
        close(vector, text["embedding"], tolerance)


@pytest.mark.parametrize("name", EMBEDDERS)
def test_a_text_has_the_same_vector_in_any_company(serve, name):
    server = serve(name)
    inputs = [text["text"] for text in reference(name)["texts"]] + ["word " * n for n in (1, 30, 60)]
    together = post(server, "/v1/embeddings", {"input": inputs})["data"]
    for item, text in zip(together, inputs):
        assert post(server, "/v1/embeddings", {"input": text})["data"][0]["embedding"] == item["embedding"]


@pytest.mark.parametrize("name", RERANKERS)
def test_scores_are_those_of_the_reference(serve, name):
    server, wanted = serve(name), reference(name)
    tolerance = wanted["tolerance"]["f32_max_abs"]
    for pair in wanted["pairs"]:
        texts = {"query": pair["query"], "documents": [pair["document"]]}
        raw = post(server, "/v1/rerank", {**texts, "raw_scores": True})
        close([raw["results"][0]["relevance_score"]], [pair["score"]], tolerance)
        relevance = post(server, "/v1/rerank", texts)["results"][0]["relevance_score"]
        close([relevance], [pair["sigmoid"]], tolerance)
        assert raw["usage"]["prompt_tokens"] == len(pair["input_ids"])
    queries = [pair["query"] for pair in wanted["pairs"]]
    documents = [pair["document"] for pair in wanted["pairs"]]
    body = {"text_1": queries, "text_2": documents, "use_activation": False}
    scores = [item["score"] for item in post(server, "/v1/score", body)["data"]]
    close(scores, [pair["score"] for pair in wanted["pairs"]], tolerance)


def test_documents_are_ordered_by_their_relevance(serve):
    server = serve("bert_reranker")
    documents = [pair["document"] for pair in reference("bert_reranker")["pairs"]] * 3
    body = {"query": "comparison of numbers", "documents": documents, "return_documents": True}
    results = post(server, "/v1/rerank", body)["results"]
    scores = [result["relevance_score"] for result in results]
    assert scores == sorted(scores, reverse=True)
    assert sorted(result["index"] for result in results) == list(range(9))
    assert all(result["document"]["text"] == documents[result["index"]] for result in results)
    assert post(server, "/v1/rerank", {**body, "top_n": 2})["results"] == results[:2]
    tei = post(server, "/rerank", {"query": body["query"], "texts": documents})
    assert [item["score"] for item in tei] == scores


def test_vectors_are_cut_and_normalised_again(serve):
    whole = post(serve("bert"), "/v1/embeddings", {"input": "a text"})["data"][0]["embedding"]
    cut = post(serve("bert"), "/v1/embeddings", {"input": "a text", "dimensions": 8})
    length = sum(value * value for value in whole[:8]) ** 0.5
    close(cut["data"][0]["embedding"], [value / length for value in whole[:8]], 1e-6)
    for dimensions in (0, len(whole) + 1):
        body = {"input": "a", "dimensions": dimensions}
        assert post(serve("bert"), "/v1/embeddings", body, 400)["error"]["param"] == "dimensions"


def test_texts_that_are_too_long_are_refused_or_cut(serve):
    long = "word " * 400
    post(serve("bert"), "/v1/embeddings", {"input": long}, 400)
    post(serve("bert"), "/v1/embeddings", {"input": long, "truncate": True})
    post(serve("bert"), "/api/embed", {"input": long, "truncate": False}, 400)
    post(serve("bert"), "/api/embed", {"input": long})
    body = {"query": "a", "documents": ["b", long]}
    error = post(serve("bert_reranker"), "/v1/rerank", body, 400)["error"]
    assert error["param"] == "documents[1]"
    post(serve("bert_reranker"), "/v1/rerank", {**body, "truncate": True})


def test_models_refuse_what_they_cannot_do(serve):
    chat = {"messages": [{"role": "user", "content": "Hello"}]}
    for name in ("bert", "bert_reranker"):
        assert post(serve(name), "/v1/chat/completions", chat, 400)["error"]["param"] == "model"
        post(serve(name), "/v1/completions", {"prompt": "Hello"}, 400)
        post(serve(name), "/api/chat", {"model": name, **chat}, 400)
        post(serve(name), "/v1/messages", {"model": name, "max_tokens": 5, **chat}, 400)
    post(serve("bert_reranker"), "/v1/embeddings", {"input": "a"}, 400)
    post(serve("bert"), "/v1/rerank", {"query": "a", "documents": ["b"]}, 501)
    post(serve("bert"), "/v1/embeddings", {"input": [[9999]]}, 400)
    post(serve("bert"), "/v1/embeddings", {"input": "a", "prompt_name": "query"}, 400)
