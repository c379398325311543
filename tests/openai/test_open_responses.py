"""The requests of the Open Responses compliance suite against a running `gannet serve`, one test
for each of its tests. Objects and events are checked by `open_responses`.
"""

import json
import os

import pytest
from open_responses import COMPACTION, ERROR, EVENT, RESPONSE, valid
from test_openai import Server, server  # noqa: F401
from websockets.sync.client import connect

ENDS = ("response.completed", "response.failed", "response.incomplete")
BUILT_IN = "GANNET_MODEL" not in os.environ
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {
            "location": {
                "type": "string",
                "description": "The city and state, e.g. San Francisco, CA",
            }
        },
        "required": ["location"],
    },
}


def message(role, content, **more):
    return {"type": "message", "role": role, "content": content, **more}


def user(text):
    return [message("user", text)]


def ask(server, input, **more):
    reply = server.post("/v1/responses", {"model": "any", "input": input, "stream": False, **more})
    assert reply.status == 200, reply
    return valid(reply.json, RESPONSE)


def completed(response):
    """A random model may not end by itself."""
    assert response["status"] == "completed" or (
        not BUILT_IN and response["status"] == "incomplete"
    )
    assert response["output"]
    return response


class Socket:
    """A WebSocket that sends one request at a time."""

    def __init__(self, server):
        url = f"ws://127.0.0.1:{server.port}/v1/responses"
        headers = {"authorization": "Bearer none", "content-type": "application/json"}
        self.socket = connect(url, additional_headers=headers, max_size=None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def turn(self, input, **more):
        """The terminal response to a request, or the event of an error."""
        body = {"type": "response.create", "model": "any", "input": input, **more}
        self.socket.send(json.dumps(body))
        number = 0
        for text in self.socket:
            event = json.loads(text)
            if event["type"] == "error":
                return valid(event, ERROR)
            valid(event, EVENT)
            assert event["sequence_number"] == number
            number += 1
            if event["type"] in ENDS:
                return event["response"]

    def unstored(self, input, **more):
        return self.turn(input, store=False, **more)


def missing(event):
    assert event["type"] == "error" and event["status"] == 400
    assert event["error"]["code"] == "previous_response_not_found"


def test_basic_response(server):
    completed(ask(server, user("Say hello in exactly 3 words.")))


def test_assistant_phase(server):
    items = [
        message("assistant", "I should answer with the saved number.", phase="commentary"),
        message("assistant", "The number is four.", phase="final_answer"),
        *user("Repeat only the number."),
    ]
    completed(ask(server, items))


def test_response_output_phase_schema(server):
    """The suite checks a response of its own; here the same members come from the server."""
    response = ask(server, user("Say hello."))
    for item in response["output"]:
        item["phase"] = "final_answer"
    valid(response, RESPONSE)


def test_streaming_response(server):
    body = {"model": "any", "input": user("Count from 1 to 5."), "stream": True}
    events = [event for _, event in server.stream("/v1/responses", body)]
    for number, event in enumerate(events):
        assert valid(event, EVENT)["sequence_number"] == number
    completed(events[-1]["response"])


def test_websocket_response(server):
    with Socket(server) as socket:
        completed(socket.turn(user("Count from 1 to 3.")))


def test_websocket_sequential_responses(server):
    with Socket(server) as socket:
        completed(socket.unstored("Reply with exactly: first"))
        completed(socket.unstored("Reply with exactly: second"))


def test_websocket_continuation(server):
    with Socket(server) as socket:
        first = socket.unstored("Remember the code word: cobalt. Reply with OK.")
        question = "What is the code word? Reply with only the code word."
        second = completed(socket.unstored(question, previous_response_id=first["id"]))
        assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]


def test_websocket_reconnect_store_false_recovery(server):
    with Socket(server) as socket:
        first = socket.unstored("Remember the code word: copper. Reply with OK.")
    with Socket(server) as socket:
        again = "Try to continue after reconnect. Reply with exactly: reconnected"
        missing(socket.unstored(again, previous_response_id=first["id"]))
        recovery = user(
            "The previous store:false chain could not continue after reconnect. Start a new "
            "response and reply with exactly: recovered"
        )
        completed(socket.unstored(recovery))


def test_websocket_previous_response_not_found(server):
    with Socket(server) as socket:
        text = "This should fail because the previous response is missing."
        missing(socket.unstored(text, previous_response_id="resp_openresponses_missing_1"))


def test_websocket_failed_continuation_evicts_cache(server):
    with Socket(server) as socket:
        first = socket.unstored("Remember the code word: ember. Reply with OK.")
        stray = {
            "type": "function_call_output",
            "call_id": "call_openresponses_missing",
            "output": "No matching tool call exists in the previous response.",
        }
        failed = socket.unstored([stray], previous_response_id=first["id"])
        assert failed["type"] == "error" and failed["status"] == 400
        retry = "Try to continue after the failed turn. Reply with exactly: stale"
        missing(socket.unstored(retry, previous_response_id=first["id"]))


def compact(server, input, **more):
    reply = server.post("/v1/responses/compact", {"model": "any", "input": input, **more})
    assert reply.status == 200, reply
    output = valid(reply.json, COMPACTION)["output"]
    assert "compaction" in [item["type"] for item in output]
    return output


def test_websocket_compact_new_chain(server):
    said = [
        ("user", "input_text", "Remember the compaction code word: slate."),
        ("assistant", "output_text", "OK."),
        ("user", "input_text", "Compress this conversation for later continuation."),
    ]
    items = [message(role, [{"type": kind, "text": text}]) for role, kind, text in said]
    output = compact(server, items)
    go_on = user("Continue from here. Reply with exactly: compacted")
    with Socket(server) as socket:
        completed(socket.unstored([*output, *go_on], tools=[]))


def test_system_prompt(server):
    pirate = message("system", "You are a pirate. Always respond in pirate speak.")
    completed(ask(server, [pirate, *user("Say hello.")]))


def test_tool_calling(server):
    question = user("What's the weather like in San Francisco?")
    response = ask(server, question, tools=[WEATHER])
    assert response["tools"] == [{**WEATHER, "strict": None}]
    if BUILT_IN:
        assert "function_call" in [item["type"] for item in response["output"]]


def test_image_input(server):
    """The built-in model reads text alone; what it cannot read is refused by its place."""
    content = [
        {"type": "input_text", "text": "What do you see in this image? Answer in one sentence."},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="},
    ]
    reply = server.post("/v1/responses", {"model": "any", "input": user(content)})
    assert reply.status == 400 and reply.json["error"]["param"] == "input[0].content[1].type"


def test_multi_turn(server):
    items = [
        *user("My name is Alice."),
        message("assistant", "Hello Alice! Nice to meet you. How can I help you today?"),
        *user("What is my name?"),
    ]
    completed(ask(server, items))


def test_compact_response(server):
    items = [
        *user("We agreed to launch on Tuesday and notify support first."),
        message(
            "assistant", "Understood. The launch is Tuesday, with support notified beforehand."
        ),
    ]
    output = compact(server, items, prompt_cache_key="openresponses-compact-test")
    assert [item["type"] for item in output] == ["message", "compaction"]


def test_compact_missing_model(server):
    reply = server.post("/v1/responses/compact", {"input": user("Compact this conversation.")})
    assert reply.status == 400 and reply.json["error"]["param"] == "model"


@pytest.mark.parametrize("member", ["stream", "stream_options"])
def test_members_of_http_alone_are_passed_over(server, member):
    with Socket(server) as socket:
        value = {"stream": False, "stream_options": {"include_obfuscation": False}}[member]
        completed(socket.turn("Say hello.", **{member: value}))
