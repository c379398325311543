"""Any input of a client gets an answer or a client error, never a server error, and the server
keeps serving others."""

import copy
import json
import re
import socket
import time

import pytest
from protocols import PROTOCOLS
from serving import Server

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def server():
    server = Server("--header-timeout", "2", "--body-timeout", "2")
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def alive(server):
    yield
    assert server.get("/health").status == 200
    assert server.process.poll() is None
    server.idle()


CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "enum": ["x"]}}}
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA, "strict": False}

# The fullest recorded requests of clients; each answer is short.
RECORDED = {
    "/v1/chat/completions": {
        "model": "m",
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            {"role": "user", "content": "Hello!", "name": "someone"},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "So.",
                "tool_calls": [CALL],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "nothing"},
        ],
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 2,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 20,
        "min_p": 0.1,
        "seed": 1,
        "stop": ["\n\n"],
        "logit_bias": {"1": -1},
        "logprobs": True,
        "top_logprobs": 1,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.1,
        "n": 1,
        "user": "u",
        "metadata": {"a": "b"},
        "reasoning_effort": "low",
        "chat_template_kwargs": {"enable_thinking": True},
    },
    "/v1/completions": {
        "model": "m",
        "prompt": ["Hello!", "Bye!"],
        "max_tokens": 2,
        "suffix": None,
        "echo": True,
        "best_of": 1,
        "n": 1,
        "logprobs": 1,
        "stop": "\n",
        "stream": False,
        "logit_bias": {"1": 1},
        "seed": 1,
    },
    "/v1/responses": {
        "model": "m",
        "instructions": "Be brief.",
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "Hello!"}],
            },
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "So."}],
                "encrypted_content": "aGVsbG8=",
            },
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "call_1",
                "name": "f",
                "arguments": "{}",
            },
            {"type": "function_call_output", "call_id": "call_1", "output": "nothing"},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Well.", "annotations": []}],
            },
            {"role": "user", "content": "Go on."},
        ],
        "tools": [{"type": "function", **FUNCTION}, {"type": "custom", "name": "c"}],
        "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": True,
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 2,
        "store": False,
        "stream": True,
        "metadata": {"a": "b"},
        "truncation": "disabled",
        "prompt_cache_key": "k",
    },
    "/v1/messages": {
        "model": "m",
        "max_tokens": 2,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hello!"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "So.", "signature": "x"},
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "text", "text": "Well."},
                    {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": "x"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "content": [{"type": "text", "text": "nothing"}],
                        "is_error": False,
                    }
                ],
            },
        ],
        "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "metadata": {"user_id": "u"},
        "stop_sequences": ["\n\n"],
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 20,
        "stream": True,
        "output_config": {"effort": "low"},
    },
    "/api/chat": {
        "model": "m",
        "messages": [
            {"role": "user", "content": "Hello!", "images": []},
            {
                "role": "assistant",
                "content": "",
                "thinking": "So.",
                "tool_calls": [{"function": {"name": "f", "arguments": {"a": "x"}}}],
            },
            {"role": "tool", "tool_name": "f", "content": "nothing"},
        ],
        "tools": [{"type": "function", "function": FUNCTION}],
        "format": SCHEMA,
        "think": True,
        "keep_alive": "5m",
        "stream": False,
        "options": {"num_predict": 2, "temperature": 0.5, "stop": ["x"], "seed": 1, "num_ctx": 9},
    },
    "/api/generate": {
        "model": "m",
        "prompt": "Hello!",
        "system": "Be brief.",
        "context": [1, 2, 3],
        "raw": False,
        "keep_alive": 0,
        "options": {"num_predict": 2},
    },
    "/completion": {
        "prompt": ["Hello!", [1, 2]],
        "n_predict": 2,
        "stop": ["x"],
        "logit_bias": [[1, 1.0]],
        "n_probs": 1,
        "stream": False,
        "temperature": 0.5,
    },
    "/v1/embeddings": {"model": "m", "input": ["Hello!"], "encoding_format": "float"},
    "/tokenize": {"content": "Hello!", "add_special": True, "with_pieces": True},
    "/detokenize": {"tokens": [1, 2]},
    "/apply-template": {"messages": [{"role": "user", "content": "Hello!"}]},
    "/infill": {"input_prefix": "a", "input_suffix": "b", "input_extra": [], "n_predict": 2},
    "/api/embed": {"model": "m", "input": ["Hello!"], "truncate": True},
    "/api/show": {"model": "m"},
    "/v1/messages/count_tokens": {"model": "m", "messages": [{"role": "user", "content": "x"}]},
    "/v1/responses/input_tokens": {"model": "m", "input": "x"},
}
STRANGE = [
    None,
    True,
    -1,
    1.5,
    1e300,
    2**64,
    "",
    "strange\u0000",
    [],
    [[]],
    ["x", 3, None],
    {},
    {"type": "unknown", "strange": {"x": [1]}},
]


def places(value, path=()):
    """Paths of all members and items."""
    members = {dict: dict.items, list: enumerate}.get(type(value))
    for key, inner in members(value) if members else ():
        yield (*path, key)
        yield from places(inner, (*path, key))


def mutated(body, path, value):
    body = copy.deepcopy(body)
    inner = body
    for key in path[:-1]:
        inner = inner[key]
    if value is DROPPED:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return body


DROPPED = object()
# Messages about abilities that this model lacks, for any request.
UNABLE = 501


@pytest.mark.parametrize("path", RECORDED)
def test_recorded_requests_are_answered(server, path):
    if not server.has(path):
        pytest.skip(f"this build does not serve {path}")
    reply = server.post(path, RECORDED[path])
    # The answer names an ability that the built-in model lacks.
    assert reply.status == (UNABLE if path == "/infill" else 200), reply


@pytest.mark.parametrize("path", RECORDED)
def test_no_member_of_the_wrong_kind_is_a_failure_of_the_server(server, path):
    if not server.has(path):
        pytest.skip(f"this build does not serve {path}")
    failed = []
    for place in places(RECORDED[path]):
        for value in [DROPPED, *STRANGE]:
            body = mutated(RECORDED[path], place, value)
            reply = server.post(path, body)
            told = reply.json if reply.status >= 400 else None
            if reply.status >= 500 and reply.status != UNABLE or told is not None and not told.get("error"):
                failed.append((place, None if value is DROPPED else value, reply))
            elif reply.status == 200 and "server_error" in reply.body.decode():
                failed.append((place, value, reply))
    assert not failed, failed[:5]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=repr)
@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"nonsense", b"[]", b"3", b"null", b'"x"', b"\xff\xfe{}", b'{"a":}', b"{}" * 2],
)
def test_a_body_that_is_no_object_is_refused(server, protocol, body):
    reply = server.post(protocol.path, body)
    assert reply.status == 400, reply
    assert protocol.error(reply.json)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=repr)
def test_deep_nesting_is_refused(server, protocol):
    for deep in (b"[" * 100_000, b'{"a":' * 100_000, b'{"x":' + b"[" * 200 + b"]" * 200 + b"}"):
        reply = server.post(protocol.path, deep)
        assert reply.status == 400 and protocol.error(reply.json), reply


def broken_histories(arguments):
    function = {"name": "f", "arguments": arguments}
    yield (
        "/v1/chat/completions",
        {
            "messages": [
                {"role": "user", "content": "x"},
                {"role": "assistant", "tool_calls": [{**CALL, "function": function}]},
                {"role": "tool", "tool_call_id": "call_1", "content": "x"},
            ],
            "max_tokens": 2,
        },
    )
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}
    output = {"type": "function_call_output", "call_id": "c", "output": "x"}
    items = [{"role": "user", "content": "x"}, call, output]
    yield "/v1/responses", {"input": items, "max_output_tokens": 2}


@pytest.mark.parametrize(
    "arguments", ["", "{", '{"a": ', "nonsense", "[1]", "3", "null", '{"a":1}}', "{" * 500, "\u0000"]
)
def test_broken_arguments_in_the_history_are_rendered(server, arguments):
    for path, body in broken_histories(arguments):
        reply = server.post(path, body)
        assert reply.status == 200, (path, reply)


def test_roles_blocks_and_items_that_nobody_knows_are_no_failure(server):
    user = {"role": "user", "content": "x"}
    for path, body in [
        ("/v1/chat/completions", {"messages": [{"role": "critic", "content": "x"}, user]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "odd"}]}]}),
        ("/v1/messages", {"messages": [{"role": "critic", "content": "x"}], "max_tokens": 2}),
        ("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "odd"}]}], "max_tokens": 2}),
        ("/v1/responses", {"input": [{"type": "odd", "x": 1}, user], "max_output_tokens": 2}),
        ("/v1/responses", {"input": [{"role": "critic", "content": "x"}], "max_output_tokens": 2}),
        ("/v1/responses", {"input": "x", "tools": [{"type": "odd"}], "max_output_tokens": 2}),
        ("/api/chat", {"messages": [{"role": "critic", "content": "x"}], "stream": False}),
    ]:
        reply = server.post(path, body | {"max_tokens": 2})
        assert reply.status in (200, 400), (path, body, reply)


def raw(server, data, timeout=20):
    """The server's whole response to these bytes."""
    received = bytearray()
    with server.socket(timeout) as sock:
        try:
            sock.sendall(data)
            while part := sock.recv(65536):
                received += part
        except (ConnectionResetError, BrokenPipeError):
            pass
    return bytes(received)


def request(body, path="/v1/chat/completions", more=b"", length=None):
    length = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n"
    return head.encode() + b"content-type: application/json\r\n" + more + b"\r\n" + body


SMALL = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}).encode()


def test_huge_heads_are_refused(server):
    said = raw(server, request(SMALL, more=b"x-big: " + b"x" * 1_000_000 + b"\r\n"))
    assert said.startswith(b"HTTP/1.1 431") or said == b"", said[:200]
    many = b"".join(b"x-%d: y\r\n" % at for at in range(5000))
    said = raw(server, request(SMALL, more=many))
    assert said.startswith(b"HTTP/1.1 431") or said == b"", said[:200]
    said = raw(server, b"GET /" + b"x" * 1_000_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert said[:12] in (b"HTTP/1.1 414", b"HTTP/1.1 431", b""), said[:200]


def test_pipelined_requests_are_answered_in_order(server):
    requests = [request(SMALL), request(b"{"), request(SMALL, "/nowhere")]
    last = request(SMALL, more=b"connection: close\r\n")
    said = raw(server, b"".join(requests) + last)
    statuses = re.findall(rb"HTTP/1\.1 ([0-9]+)", said)
    assert statuses == [b"200", b"400", b"404", b"200"], said


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"POST",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n",
        request(SMALL)[:-5],
        request(SMALL, length=10**12),
        request(b"", more=b"transfer-encoding: chunked\r\n", length=0),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 512,
        b"\r\n" * 1000,
        request(SMALL, length=-1),
    ],
    ids=lambda data: repr(data[:16]),
)
def test_half_a_request_is_closed_in_time(server, data):
    raw(server, data)


def test_a_body_in_drops_is_given_up(server):
    started = time.monotonic()
    with server.socket() as sock:
        sock.sendall(request(b"", length=1000))
        try:
            while time.monotonic() - started < 20:
                sock.sendall(b" ")
                time.sleep(0.2)
        except (ConnectionResetError, BrokenPipeError):
            pass
    assert time.monotonic() - started < 10


def test_a_body_in_chunks_is_read(server):
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in SMALL) + b"0\r\n\r\n"
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    head += b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    assert raw(server, head + chunks).startswith(b"HTTP/1.1 200")


def test_methods_and_routes_that_are_none_are_said_so(server):
    for protocol in PROTOCOLS:
        if not server.has(protocol.path):
            continue
        for method in ("GET", "PUT", "PATCH", "DELETE", "TRACE", "BREW"):
            reply = server.call(method, protocol.path)
            assert reply.status == 405 and protocol.error(reply.json), (protocol, method, reply)
    for path in ("/v1", "/v1/chat/completions/x", "/v1/messages/x", "/api/x", "/%2e%2e/x", "/v1//"):
        reply = server.post(path, {})
        assert reply.status in (404, 405), (path, reply)
        assert reply.json["error"]


def test_half_open_connections_do_not_keep_others_out(server):
    sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
    assert server.get("/health").status == 200
    for sock in sockets:
        sock.close()
