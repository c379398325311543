"""Calls of tools in the four protocols that have them: beside a format of the answer, and cut by the
limit of tokens. Streamed and whole answers say the same.

Run like tests/openai.
"""

import json

import pytest
from serving import Server

PARAMETERS = {
    "type": "object",
    "properties": {"s": {"type": "string", "minLength": 200}, "n": {"type": "integer"}},
    "required": ["n", "s"],
}
TOOL = {"name": "w", "description": "Writes.", "parameters": PARAMETERS}
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
QUESTION = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.stop()


class Chat:
    path = "/v1/chat/completions"

    @staticmethod
    def body(limit, force, format):
        tools = [{"type": "function", "function": TOOL}]
        body = {"messages": QUESTION, "max_tokens": limit, "tools": tools, "seed": 3}
        body["chat_template_kwargs"] = {"enable_thinking": False}
        if force:
            body["tool_choice"] = "required"
        if format:
            schema = {"name": "c", "strict": True, "schema": SCHEMA}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    @staticmethod
    def whole(answer):
        [choice] = answer["choices"]
        calls = choice["message"].get("tool_calls") or []
        calls = [(it["function"]["name"], it["function"]["arguments"]) for it in calls]
        return choice["message"]["content"] or "", calls, choice["finish_reason"]

    @staticmethod
    def streamed(events):
        text, calls, end = "", [], None
        for _, data in events:
            if data == "[DONE]" or not data["choices"]:
                continue
            [choice] = data["choices"]
            text += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls") or []:
                if "id" in call:
                    assert call["index"] == len(calls)
                    calls.append((call["function"]["name"], ""))
                name, arguments = calls[call["index"]]
                calls[call["index"]] = name, arguments + call["function"]["arguments"]
            end = choice["finish_reason"] or end
        return text, calls, end

    cut = "length"


class Responses:
    path = "/v1/responses"

    @staticmethod
    def body(limit, force, format):
        body = {"input": "hi", "max_output_tokens": limit, "seed": 3, "store": False}
        body["tools"] = [{"type": "function", **TOOL}]
        body["reasoning"] = {"effort": "none"}
        if force:
            body["tool_choice"] = "required"
        if format:
            body["text"] = {"format": {"type": "json_schema", "name": "c", "schema": SCHEMA}}
        return body

    @staticmethod
    def whole(answer):
        items = answer["output"]
        texts = [it["content"] for it in items if it["type"] == "message"]
        text = "".join(part["text"] for content in texts for part in content)
        calls = [(it["name"], it["arguments"]) for it in items if it["type"] == "function_call"]
        return text, calls, (answer["incomplete_details"] or {}).get("reason")

    @staticmethod
    def streamed(events):
        deltas = lambda kind: "".join(
            data["delta"] for _, data in events if data["type"] == f"response.{kind}.delta"
        )
        told = Responses.whole(events[-1][1]["response"])
        assert told[0] == deltas("output_text")
        arguments = "".join(arguments for _, arguments in told[1])
        assert arguments == deltas("function_call_arguments")
        return told

    cut = "max_output_tokens"


class Messages:
    path = "/v1/messages"

    @staticmethod
    def body(limit, force, format):
        tool = {"name": "w", "description": "Writes.", "input_schema": PARAMETERS}
        body = {"messages": QUESTION, "max_tokens": limit, "tools": [tool]}
        body |= {"thinking": {"type": "disabled"}, "temperature": 0}
        if force:
            body["tool_choice"] = {"type": "any"}
        if format:
            body["output_config"] = {"format": {"type": "json_schema", "schema": SCHEMA}}
        return body

    @staticmethod
    def whole(answer):
        blocks = answer["content"]
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        calls = [(it["name"], json.dumps(it["input"])) for it in blocks if it["type"] == "tool_use"]
        return text, calls, answer["stop_reason"]

    @staticmethod
    def streamed(events):
        text, calls, end = "", [], None
        for name, data in events:
            if name == "content_block_start" and data["content_block"]["type"] == "tool_use":
                calls.append((data["content_block"]["name"], ""))
            elif name == "content_block_delta" and data["delta"]["type"] == "text_delta":
                text += data["delta"]["text"]
            elif name == "content_block_delta":
                called, arguments = calls[-1]
                calls[-1] = called, arguments + data["delta"]["partial_json"]
            elif name == "message_delta":
                end = data["delta"]["stop_reason"]
        return text, calls, end

    cut = "max_tokens"


class Ollama:
    path = "/api/chat"

    @staticmethod
    def body(limit, force, format):
        options = {"num_predict": limit, "seed": 3}
        tools = [{"type": "function", "function": TOOL}]
        body = {"messages": QUESTION, "options": options, "tools": tools, "think": False}
        return body | ({"format": SCHEMA} if format else {})

    @staticmethod
    def whole(answer):
        message = answer["message"]
        calls = [it["function"] for it in message.get("tool_calls") or []]
        calls = [(call["name"], json.dumps(call["arguments"])) for call in calls]
        return message["content"], calls, answer["done_reason"]

    @staticmethod
    def streamed(events):
        told = [Ollama.whole({"done_reason": None} | line) for _, line in events]
        text = "".join(text for text, _, _ in told)
        return text, [call for _, calls, _ in told for call in calls], told[-1][2]

    cut = "length"


PROTOCOLS = [Chat, Responses, Messages, Ollama]


def both(server, protocol, body):
    """What the whole answer and the streamed one say."""
    whole = server.post(protocol.path, body | {"stream": False})
    assert whole.status == 200, whole
    streamed = list(server.stream(protocol.path, body | {"stream": True}))
    return protocol.whole(whole.json), protocol.streamed(streamed)


@pytest.mark.parametrize("protocol", [Chat, Responses, Messages], ids=lambda it: it.__name__)
def test_a_call_that_is_cut_stays_a_call(server, protocol):
    begun = 0
    for limit in list(range(1, 40)) + [60]:
        whole, streamed = both(server, protocol, protocol.body(limit, True, False))
        assert whole[0] == streamed[0] == "", f"{limit}: markup in {whole} or {streamed}"
        assert whole[2] == streamed[2] == protocol.cut, limit
        assert [name for name, _ in whole[1]] == [name for name, _ in streamed[1]]
        if protocol is not Messages:  # whose whole answers have objects
            assert whole == streamed
        for (_, partial), (_, text) in zip(whole[1], streamed[1]):
            begun += 1
            json.loads(partial) if protocol is Messages else None
            assert text.startswith("{") or not text
    assert begun > 10


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda it: it.__name__)
def test_an_answer_beside_tools_is_a_call_or_has_its_format(server, protocol):
    (text, calls, _), streamed = both(server, protocol, protocol.body(400, False, True))
    assert (text == "") == bool(calls)
    if not calls:
        assert set(json.loads(text)) == {"n"}
    assert streamed[0] == text


@pytest.mark.parametrize("protocol", [Chat, Responses], ids=lambda it: it.__name__)
def test_a_call_is_possible_beside_a_format(server, protocol):
    """As langchain's provider strategy, openai-agents and pydantic-ai send it."""
    [start] = server.post("/tokenize", {"content": "<", "parse_special": True}).json["tokens"][:1]
    [marker] = server.post("/tokenize", {"content": "<tool_call>", "parse_special": True}).json[
        "tokens"
    ][:1]
    bias = {str(start): 100, str(marker): 100}
    body = protocol.body(400, False, True) | {"logit_bias": bias}
    (text, calls, _), _ = both(server, protocol, body)
    assert calls and text == ""


@pytest.mark.parametrize("protocol", [Chat, Responses, Messages], ids=lambda it: it.__name__)
def test_a_forced_call_wins_over_a_format(server, protocol):
    """As instructor's RESPONSES_TOOLS sends it."""
    (text, calls, _), streamed = both(server, protocol, protocol.body(400, True, True))
    assert [name for name, _ in calls] == ["w"] and text == ""
    assert [name for name, _ in streamed[1]] == ["w"] and streamed[0] == ""
