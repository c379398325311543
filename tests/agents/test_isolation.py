"""A tenant finds nothing of another: not in the cache of prompts, nor among the stored responses,
nor in the statistics.

Run like tests/openai.
"""

import pytest
from protocols import PROTOCOLS
from serving import Server

TEXT = "Name the capital of France and of every country beside it, please."


def bearer(key):
    return {"authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def server():
    server = Server("--api-key", "one,two")
    yield server
    server.stop()


def stats(server):
    return server.call("GET", "/v1/stats?format=json", headers=bearer("two")).json["kv_cache"]


def ask(server, protocol, key, body):
    reply = server.post(protocol.path, body, headers=bearer(key))
    assert reply.status == 200, reply
    return protocol.whole(reply.json)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=repr)
def test_a_tenant_finds_nothing_of_another(server, protocol):
    # Each protocol has a text of its own: they share a cache.
    body = protocol.body(f"{protocol!r}: {TEXT}", 5, False, False)
    ask(server, protocol, "one", body)
    again = ask(server, protocol, "one", body)
    before = stats(server)
    other = ask(server, protocol, "two", body)
    after = stats(server)
    assert other.prompt == again.prompt
    if again.cached is not None:
        assert again.cached == again.prompt - 1
        # The template's own beginning may be known from the tenant's other requests.
        assert other.cached < again.cached / 2
    hits = after["hit_tokens"] - before["hit_tokens"]
    assert hits < again.prompt / 2
    assert after["queried_tokens"] - before["queried_tokens"] == other.prompt


def test_a_response_is_not_there_for_another_tenant(server):
    reply = server.post("/v1/responses", {"input": TEXT}, headers=bearer("one"))
    response = reply.json["id"]
    for method, path in [
        ("GET", ""),
        ("GET", "/input_items"),
        ("POST", "/cancel"),
        ("DELETE", ""),
    ]:
        reply = server.call(method, f"/v1/responses/{response}{path}", headers=bearer("two"))
        missing = server.call(method, f"/v1/responses/resp_none{path}", headers=bearer("two"))
        assert reply.status == missing.status == 404
        assert reply.body.replace(response.encode(), b"resp_none") == missing.body
    body = {"input": "Go on.", "previous_response_id": response}
    assert server.post("/v1/responses", body, headers=bearer("two")).status == 400
    assert server.post("/v1/responses", body, headers=bearer("one")).status == 200


def test_a_salt_parts_the_requests_of_a_key(server):
    def cached(salt):
        body = {"prompt": f"Salted: {TEXT}", "max_tokens": 2, "cache_salt": salt}
        usage = server.post("/v1/completions", body, headers=bearer("one")).json["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert [cached("a"), cached("b"), cached(None)] == [0, 0, 0]
    assert all(cached(salt) > 0 for salt in ["a", "b", None])


@pytest.mark.parametrize("options", [["--cache-isolation", "off"], []])
def test_without_isolation_all_share(options):
    keys = "one,two" if options else "one"
    server = Server("--api-key", keys, *options)
    try:
        usages = [
            server.post("/v1/completions", {"prompt": TEXT, "max_tokens": 2}, headers=bearer(key))
            for key in ["one", keys.split(",")[-1]]
        ]
        cached = [it.json["usage"]["prompt_tokens_details"]["cached_tokens"] for it in usages]
        assert cached[0] == 0 and cached[1] > 0
    finally:
        server.stop()
