"""The Responses API of the official OpenAI client against a running `gannet serve`.

Run like test_openai.py. The tests check the shapes and laws of the protocol rather than the words
of an answer, so that they hold for any model.
"""

import asyncio
import time

import openai
import pytest
from test_openai import NO_THINKING, Server, client, model, server  # noqa: F401

QUESTION = "What is the capital of France? Answer in a few words and say nothing else, please."
TOOL = {
    "type": "function",
    "name": "weather",
    "description": "Weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
ENDLESS = {**NO_THINKING, "ignore_eos": True}


def ask(client, model, **settings):
    settings = {
        "input": QUESTION,
        "temperature": 0,
        "max_output_tokens": 24,
        "extra_body": NO_THINKING,
        **settings,
    }
    return client.responses.create(model=model.id, **settings)


def without(client, response, *statuses, seconds=60):
    """A background response once its status is none of these."""
    limit = time.monotonic() + seconds
    while response.status in statuses:
        assert time.monotonic() < limit, f"still {response.status} after {seconds} s"
        time.sleep(0.02)
        response = client.responses.retrieve(response.id)
    return response


def finished(client, response):
    """A background response once it has ended."""
    return without(client, client.responses.retrieve(response.id), "queued", "in_progress")


def test_response_has_items_and_usage(client, model):
    response = ask(client, model, metadata={"a": "b"}, instructions="Be brief.")
    assert response.object == "response" and response.id.startswith("resp_")
    assert response.status in ("completed", "incomplete")
    assert response.output_text
    message = response.output[-1]
    assert message.type == "message" and message.role == "assistant"
    assert message.id.startswith("msg_") and message.content[0].annotations == []
    assert response.metadata == {"a": "b"} and response.instructions == "Be brief."
    assert response.temperature == 0 and response.tools == []
    assert response.tool_choice == "auto" and response.error is None
    usage = response.usage
    assert usage.input_tokens > 0 and 0 < usage.output_tokens <= 24
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert usage.output_tokens_details.reasoning_tokens == 0


def test_limit_makes_the_response_incomplete(client, model):
    response = ask(client, model, max_output_tokens=1, extra_body=ENDLESS)
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.output_tokens == 1


def test_stream_says_what_the_whole_response_says(client, model):
    whole = ask(client, model)
    events = list(ask(client, model, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[2:4] == ["response.output_item.added", "response.content_part.added"]
    assert kinds[-4:-1] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    ]
    assert kinds[-1] == f"response.{whole.status}"
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    last = events[-1].response
    assert "".join(deltas) == last.output_text == whole.output_text
    assert last.usage.output_tokens == whole.usage.output_tokens
    assert len({event.response.id for event in events if hasattr(event, "response")}) == 1


def test_stream_helper_builds_the_final_response(client, model):
    settings = {"model": model.id, "input": QUESTION, "temperature": 0, "extra_body": NO_THINKING}
    with client.responses.stream(**settings) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert final.status == "completed" and final.output_text == text


def test_reasoning_is_an_item_of_its_own(client, model):
    response = ask(client, model, max_output_tokens=300, extra_body={})
    assert "<think>" not in response.output_text and "</think>" not in response.output_text
    for item in response.output:
        if item.type == "reasoning":
            assert item.summary == [] and item.content[0].type == "reasoning_text"
            assert response.usage.output_tokens_details.reasoning_tokens > 0
    summed = ask(
        client,
        model,
        max_output_tokens=300,
        extra_body={},
        reasoning={"summary": "auto"},
        include=["reasoning.encrypted_content"],
    )
    assert summed.output_text == response.output_text
    for item in summed.output:
        if item.type == "reasoning":
            assert item.summary[0].text and item.encrypted_content


def test_logprobs_are_included(client, model):
    response = ask(
        client, model, include=["message.output_text.logprobs"], top_logprobs=2
    )
    tokens = response.output[-1].content[0].logprobs
    assert "".join(token.token for token in tokens).strip() == response.output_text.strip()
    assert all(len(token.top_logprobs) == 2 for token in tokens)


def test_next_turn_goes_on_and_is_found_in_the_cache(client, model):
    first = ask(client, model)
    second = ask(client, model, previous_response_id=first.id, input="And of Italy?")
    assert second.previous_response_id == first.id
    assert second.usage.input_tokens > first.usage.input_tokens
    replayed = ask(
        client,
        model,
        input=[{"role": "user", "content": QUESTION}, *first.output]
        + [{"role": "user", "content": "And of Italy?"}],
    )
    assert replayed.output_text == second.output_text
    assert replayed.usage.input_tokens == second.usage.input_tokens
    assert replayed.usage.input_tokens_details.cached_tokens > 0


def test_stored_responses_are_read_listed_and_deleted(client, model):
    response = ask(client, model)
    assert client.responses.retrieve(response.id).to_dict() == response.to_dict()
    items = client.responses.input_items.list(response.id).data
    assert len(items) == 1 and items[0].role == "user"
    assert items[0].content[0].text == QUESTION
    several = ask(client, model, input=[{"role": "user", "content": str(n)} for n in range(5)])
    pages = client.responses.input_items.list(several.id, limit=2, order="asc")
    assert [item.content[0].text for item in pages] == list("01234")
    client.responses.delete(response.id)
    for missing in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(openai.NotFoundError):
            missing(response.id)


def test_unstored_responses_are_forgotten(client, model):
    response = ask(client, model, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, model, previous_response_id=response.id)
    assert caught.value.code == "previous_response_not_found"


def test_items_are_referred_to_by_id(client, model):
    first = ask(client, model)
    reference = {"type": "item_reference", "id": first.output[-1].id}
    items = [{"role": "user", "content": QUESTION}, reference, {"role": "user", "content": "And?"}]
    replayed = [{"role": "user", "content": QUESTION}, first.output[-1]]
    replayed.append({"role": "user", "content": "And?"})
    by_id = ask(client, model, input=items)
    assert by_id.usage.input_tokens == ask(client, model, input=replayed).usage.input_tokens


def test_background_responses_are_polled(client, model):
    queued = ask(client, model, background=True)
    assert queued.status == "queued" and queued.background
    done = finished(client, queued)
    assert done.output_text == ask(client, model).output_text


def test_background_responses_are_cancelled(client, model):
    running = ask(client, model, background=True, max_output_tokens=None, extra_body=ENDLESS)
    assert without(client, running, "queued").status == "in_progress"
    cancelled = client.responses.cancel(running.id)
    assert cancelled.status == "cancelled"
    assert client.responses.retrieve(running.id).status == "cancelled"
    started = time.monotonic()
    ask(client, model, max_output_tokens=1)
    assert time.monotonic() - started < 20
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(ask(client, model, max_output_tokens=1).id)


def test_background_streams_are_taken_up_again(client, model):
    stream = ask(client, model, background=True, stream=True)
    first = next(iter(stream))
    stream.close()
    id = first.response.id
    events = list(client.responses.retrieve(id, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    rest = list(client.responses.retrieve(id, stream=True, starting_after=4))
    assert [event.type for event in rest] == [event.type for event in events[5:]]
    assert events[-1].response.output_text == finished(client, first.response).output_text


def test_tokens_are_counted(client, model):
    counted = client.responses.input_tokens.count(
        model=model.id, input=QUESTION, extra_body=NO_THINKING
    )
    assert counted.object == "response.input_tokens"
    assert counted.input_tokens == ask(client, model).usage.input_tokens


def test_hosted_tools_are_left_out_with_a_warning(client, model):
    tools = [{"type": "web_search"}, {"type": "image_generation"}]
    response = ask(client, model, tools=tools)
    assert response.output_text == ask(client, model).output_text
    warnings = " ".join(response.model_extra["warnings"])
    assert "web_search" in warnings and "image_generation" in warnings


def test_required_tool_is_called_and_its_result_is_used(client, model):
    settings = {"tools": [TOOL], "max_output_tokens": 100}
    response = ask(client, model, tool_choice="required", **settings)
    calls = [item for item in response.output if item.type == "function_call"]
    assert calls and calls[0].name == "weather"
    assert calls[0].id.startswith("fc_") and calls[0].call_id.startswith("call_")
    output = {"type": "function_call_output", "call_id": calls[0].call_id, "output": "sunny"}
    answer = ask(
        client, model, previous_response_id=response.id, input=[output], **settings
    )
    assert answer.status in ("completed", "incomplete")
    assert answer.usage.input_tokens_details.cached_tokens > 0


def test_calls_stream_their_arguments(client, model):
    choice = {"type": "function", "name": "weather"}
    settings = {"tools": [TOOL], "tool_choice": choice, "parallel_tool_calls": False}
    events = list(ask(client, model, stream=True, max_output_tokens=100, **settings))
    kind = "response.function_call_arguments."
    deltas = "".join(event.delta for event in events if event.type == kind + "delta")
    done = [event for event in events if event.type == kind + "done"]
    assert done and done[0].arguments == deltas


def test_summaries_are_streamed_as_parts(client, model):
    settings = {"max_output_tokens": 300, "extra_body": {}, "reasoning": {"summary": "detailed"}}
    events = list(ask(client, model, input="What is 47 + 38?", stream=True, **settings))
    response = events[-1].response
    for item in response.output:
        if item.type == "reasoning":
            assert item.content[0].text == item.summary[0].text
            kind = "response.reasoning_summary_"
            of = lambda name: [event for event in events if event.type == kind + name]
            deltas = "".join(event.delta for event in of("text.delta"))
            assert deltas == of("text.done")[0].text == item.summary[0].text
            assert of("part.added")[0].part.text == "" and of("part.done")[0].part.text == deltas
    reasoned = [item.type == "reasoning" for item in response.output]
    assert any(reasoned) or not any("reasoning" in event.type for event in events)


def test_responses_over_a_websocket_go_on_though_they_are_not_stored(client, model):
    ends = ("response.completed", "response.incomplete")
    settings = {"model": model.id, "store": False, "temperature": 0, "max_output_tokens": 24}
    with client.responses.connect() as connection:
        connection.response.create(input=QUESTION, **settings)
        first = next(event for event in connection if event.type in ends).response
        assert first.output
        more = {"input": "And of Italy?", "previous_response_id": first.id}
        connection.response.create(**more, **settings)
        second = next(event for event in connection if event.type in ends).response
        assert second.usage.input_tokens > first.usage.input_tokens
    with client.responses.connect() as connection:
        connection.response.create(**more, **settings)
        error = next(iter(connection))
        assert error.type == "error" and error.error.code == "previous_response_not_found"


def test_a_conversation_is_compacted(client, model):
    items = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": "Paris."}]
    compacted = client.responses.compact(model=model.id, input=items)
    assert compacted.object == "response.compaction" and compacted.usage.output_tokens > 0
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    output = [item.to_dict() for item in compacted.output]
    answer = ask(client, model, input=[*output, {"role": "user", "content": "And of Italy?"}])
    assert answer.status in ("completed", "incomplete")


def test_custom_tools_are_called_with_text(client, model):
    tools = [{"type": "custom", "name": "note", "description": "Writes a note down"}]
    choice = {"type": "custom", "name": "note"}
    response = ask(client, model, tools=tools, tool_choice=choice, max_output_tokens=100)
    calls = [item for item in response.output if item.type == "custom_tool_call"]
    assert calls and calls[0].name == "note" and isinstance(calls[0].input, str)


@pytest.mark.parametrize(
    "settings, param",
    [
        ({"input": []}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
         "input[0].content[0].type"),
        ({"temperature": -1}, "temperature"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"previous_response_id": "resp_none"}, "previous_response_id"),
        ({"conversation": {"name": "x"}}, "conversation"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"background": True, "store": False}, "background"),
    ],
)
def test_wrong_fields_are_named(client, model, settings, param):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, model, **settings)
    assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"


def test_context_overflow_is_a_coded_bad_request(client, model):
    context = model.model_extra["context_length"]
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, model, input="a b " * context)
    assert caught.value.code == "context_length_exceeded" and caught.value.param == "input"
    assert caught.value.body["n_ctx"] == context


def test_keys_keep_responses_apart(client, server, model):
    mine, yours = server.client(api_key="mine"), server.client(api_key="yours")
    response = ask(mine, model)
    assert mine.responses.retrieve(response.id).id == response.id
    with pytest.raises(openai.NotFoundError):
        yours.responses.retrieve(response.id)


def test_async_client_streams(server, client, model):
    async def text():
        settings = {"base_url": server.address + "/v1", "api_key": "none"}
        async with openai.AsyncOpenAI(**settings) as client:
            stream = await ask(client, model, stream=True)
            deltas = [e.delta async for e in stream if e.type == "response.output_text.delta"]
            return "".join(deltas)

    assert asyncio.run(text()) == ask(client, model).output_text
