"""Every stream ends with its protocol's last event: after an answer, and after an error in the
middle of one."""

import pytest
from protocols import PROTOCOLS
from serving import Server, wide_model


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """A server that ends every answer after one second."""
    model = wide_model(tmp_path_factory.mktemp("wide"))
    server = Server("--request-timeout", "1", model=model)
    # The first request for each kind of grammar compiles it, which may take a second.
    for protocol in PROTOCOLS:
        for _ in range(5):
            server.post(protocol.path, protocol.body("Hello!", 1, False, True))
    yield server
    server.stop()


def served(server, protocol):
    if not server.has(protocol.path):
        pytest.skip(f"this build does not serve {protocol.path}")


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=repr)
@pytest.mark.parametrize("limit", [1, 7, 200])
def test_a_stream_ends_with_the_last_event_of_its_protocol(server, protocol, limit):
    served(server, protocol)
    stream = server.stream(protocol.path, protocol.body("Tell me a story.", limit, True, False))
    events = list(stream)
    assert stream.status == 200 and protocol.ended(events), events[-3:]
    told = protocol.streamed(events)
    assert told.output <= limit


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=repr)
def test_a_stream_that_breaks_off_ends_so_too_and_tells_of_the_error(hasty, protocol):
    served(hasty, protocol)
    stream = hasty.stream(protocol.path, protocol.body("Tell me a story.", 12_000, True, True))
    events = list(stream)
    assert stream.status == 200 and len(events) > 3, events
    assert protocol.ended(events), events[-3:]
    assert "error" in str(events[-3:]), events[-3:]
    assert hasty.requests()["finished"]["timeout"] > 0
    hasty.idle()


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=repr)
def test_a_whole_answer_that_breaks_off_is_an_error_and_no_half_answer(hasty, protocol):
    served(hasty, protocol)
    reply = hasty.post(protocol.path, protocol.body("Tell me a story.", 12_000, False, True))
    assert reply.status == 504, reply
    assert protocol.error(reply.json)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=repr)
def test_a_server_that_ends_lets_streams_come_to_their_last_event(protocol, tmp_path):
    server = Server("--grace", "1", model=wide_model(tmp_path))
    try:
        served(server, protocol)
        body = protocol.body("Tell me a story.", 12_000, True, True)
        stream = iter(server.stream(protocol.path, body))
        events = [next(stream), next(stream)]
        server.process.terminate()
        events += stream
        assert protocol.ended(events), events[-3:]
        assert server.process.wait(30) == 0
    finally:
        server.process.kill()
