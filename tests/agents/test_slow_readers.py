"""A client that does not read delays no other, and is disconnected after the stall timeout."""

import json
import threading
import time

import pytest
from protocols import PROTOCOLS
from serving import Server, wide_model

STALL = 3


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    model = wide_model(tmp_path_factory.mktemp("wide"), 65536)
    server = Server("--stall-timeout", str(STALL), "--parallel", "4", model=model)
    yield server
    server.stop()


def unread(server, protocol):
    """A stream without a reader, over sockets with small buffers."""
    import socket

    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    sock.connect(("127.0.0.1", server.port))
    body = protocol.body("Tell me a story.", 60_000, True, True)
    if protocol.name == "chat":
        # Many bytes per token, so that the buffers between fill up.
        body |= {"logprobs": True, "top_logprobs": 20}
    body = json.dumps(body).encode()
    head = f"POST {protocol.path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    sock.sendall(head.encode() + f"content-length: {len(body)}\r\n\r\n".encode() + body)
    return sock


@pytest.mark.parametrize("protocol", PROTOCOLS[:1], ids=repr)
def test_a_reader_that_sleeps_delays_no_other_and_is_disconnected(server, protocol):
    server.idle()
    alone = [ask(server) for _ in range(3)]
    before = server.requests()
    sleepers = [unread(server, protocol) for _ in range(3)]
    server.wait(lambda counts: counts["running"] == 3, what="not begun")
    beside = [ask(server) for _ in range(3)]
    assert {text for text, _ in alone} == {text for text, _ in beside}
    # The streams share the machine; a reader that blocks others would cost the whole timeout.
    assert min(seconds for _, seconds in beside) < min(s for _, s in alone) * 8 + 0.5
    dropped = lambda counts: counts["running"] == 0
    server.wait(dropped, STALL * 4 + 30, "sleepers are still there")
    after = server.requests()
    assert after["finished"]["cancelled"] == before["finished"]["cancelled"] + 3
    assert after["finished"]["failed"] == before["finished"]["failed"]
    for sock in sleepers:
        sock.close()


def ask(server):
    body = {
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "max_tokens": 100,
        "ignore_eos": True,
        "temperature": 0,
    }
    started = time.monotonic()
    reply = server.post("/v1/chat/completions", body)
    assert reply.status == 200, reply
    return reply.json["choices"][0]["message"]["content"], time.monotonic() - started


def test_a_reader_that_takes_its_time_gets_everything(server):
    """A reader that is slower than the model, but never silent for as long as the timeout."""
    server.idle()
    body = {
        "messages": [{"role": "user", "content": "Tell me a story."}],
        "max_tokens": 1500,
        "ignore_eos": True,
        "stream": True,
        "logprobs": True,
        "top_logprobs": 20,
        "temperature": 0,
    }
    sock = server.socket(60)
    text = json.dumps(body).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
    sock.sendall(head.encode() + text)
    received, started = bytearray(), time.monotonic()
    while part := sock.recv(65536):
        received += part
        if time.monotonic() - started < STALL * 3:
            time.sleep(STALL / 10)
    assert b"data: [DONE]" in received
    assert received.count(b'"delta"') > 1000
    assert b'"finish_reason":"length"' in received


def test_many_sleepers_leave_capacity_for_a_reader(server):
    server.idle()
    [chat] = PROTOCOLS[:1]
    sleepers = [unread(server, chat) for _ in range(8)]
    replies = []
    threads = [threading.Thread(target=lambda: replies.append(ask(server))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(STALL * 10 + 60)
    assert len(replies) == 2
    server.wait(lambda counts: not counts["running"] + counts["waiting"], STALL * 10 + 60)
    for sock in sleepers:
        sock.close()
