"""What `--state-dir` keeps survives the end of a server, whichever way it ends.

Run like test_openai.py.
"""

import itertools
import os
import random
import signal
import subprocess
import threading
import time

import httpx
import openai
import pytest
from serving import Server

NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
QUESTION = "What is the capital of France?"
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
}


class Restarting:
    """A server that is ended and started again over the same folder, and a client of it."""

    def __init__(self, folder, *options):
        self.options = ("--state-dir", str(folder), *options)
        self.start()

    def start(self, *options):
        self.server = Server(*self.options, *options)
        self.client = openai.OpenAI(
            base_url=self.server.address + "/v1", api_key="any", max_retries=0
        )

    def restart(self, *options, kill=False):
        if kill:
            self.server.process.send_signal(signal.SIGKILL)
            self.server.process.wait()
        else:
            self.server.stop()
        self.start(*options)

    def ask(self, input=QUESTION, **settings):
        settings = {
            "temperature": 0,
            "max_output_tokens": 24,
            "extra_body": NO_THINKING,
            **settings,
        }
        return self.client.responses.create(model="any", input=input, **settings)

    def finished(self, id, seconds=60):
        """A background response once it has ended."""
        limit = time.monotonic() + seconds
        while True:
            response = self.client.responses.retrieve(id)
            if response.status not in ("queued", "in_progress"):
                return response
            assert time.monotonic() < limit, response
            time.sleep(0.02)


@pytest.fixture
def served(tmp_path):
    served = Restarting(tmp_path / "state")
    yield served
    served.server.stop()


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_responses_survive_between_turns(served, kill):
    first = served.ask(metadata={"a": "b"})
    served.restart(kill=kill)
    assert served.client.responses.retrieve(first.id).to_dict() == first.to_dict()
    second = served.ask("And of Italy?", previous_response_id=first.id)
    served.restart(kill=kill)
    items = served.client.responses.input_items.list(second.id, order="asc").data
    assert [item.content[0].text for item in items] == [QUESTION, first.output_text, "And of Italy?"]
    history = [{"role": "user", "content": QUESTION}, *first.output]
    replayed = served.ask([*history, {"role": "user", "content": "And of Italy?"}])
    assert replayed.output_text == second.output_text
    reference = {"type": "item_reference", "id": first.output[-1].id}
    served.ask([{"role": "user", "content": QUESTION}, reference, {"role": "user", "content": "?"}])
    served.client.responses.delete(first.id)
    served.restart(kill=kill)
    with pytest.raises(openai.NotFoundError):
        served.client.responses.retrieve(first.id)
    # What continues a deleted response keeps its history.
    third = served.ask("And?", previous_response_id=second.id)
    assert len(served.client.responses.input_items.list(third.id).data) == 5


def test_a_response_is_on_disk_when_its_last_event_arrives(served):
    for _ in range(5):
        *_, last = served.ask(stream=True)
        assert last.type in ("response.completed", "response.incomplete")
        served.restart(kill=True)
        kept = served.client.responses.retrieve(last.response.id)
        assert kept.output_text == last.response.output_text


def test_limits_hold_for_the_file(served):
    ids = [served.ask(str(number), max_output_tokens=1).id for number in range(4)]
    served.restart("--stored-responses", "2")
    kept = []
    for id in ids:
        try:
            kept.append(served.client.responses.retrieve(id).id)
        except openai.NotFoundError:
            pass
    assert kept == ids[2:]
    time.sleep(2.1)
    served.restart("--stored-response-age", "1s")
    for id in ids:
        with pytest.raises(openai.NotFoundError):
            served.client.responses.retrieve(id)


def test_a_folder_serves_one_server_and_is_named(tmp_path, served):
    command = [os.environ["GANNET_BIN"], "serve", "--port", "0", *served.options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert str(tmp_path / "state") in ended.stderr and "another server" in ended.stderr
    taken = tmp_path / "file"
    taken.write_text("")
    ended = subprocess.run(
        [*command[:-1], str(taken)], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode != 0 and str(taken) in ended.stderr


LONG = 1500


def background(served, **settings):
    """Starts a long background response with a stream, and waits for some of its events."""
    stream = served.ask(
        background=True,
        stream=True,
        temperature=1.3,
        max_output_tokens=LONG,
        extra_body={**NO_THINKING, "ignore_eos": True},
        **settings,
    )
    events = list(itertools.islice(stream, 60))
    stream.close()
    return events


def test_background_responses_are_left_where_no_connection_is_open(served):
    # Whether the end of the engine reaches the response before the end of the process varies.
    for _ in range(6):
        served.restart("--grace", "600")
        id = background(served)[0].response.id
        served.client.close()
        served.restart()
        assert served.client.responses.cancel(id).status == "cancelled"


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_background_responses_are_computed_again(served, kill):
    # A server that is stopped ends what runs at once.
    served.restart("--grace", "0")
    events = background(served, instructions="Be brief.")
    id = events[0].response.id
    served.restart(kill=kill)
    rest = list(served.client.responses.retrieve(id, stream=True, starting_after=39))
    # The events that both streams have are the same, but for the response's times and counts.
    for before, after in zip(events[40:], rest):
        assert before.to_dict() == after.to_dict()
    assert [event.sequence_number for event in rest] == list(range(40, 40 + len(rest)))
    done = served.finished(id)
    assert done.id == id and done.status == "incomplete" and done.usage.output_tokens == LONG
    said = "".join(
        event.delta for event in events + rest[20:] if event.type == "response.output_text.delta"
    )
    assert said == done.output_text
    # It is kept with its events, and not computed again.
    served.restart(kill=kill)
    assert served.client.responses.retrieve(id).to_dict() == done.to_dict()
    again = list(served.client.responses.retrieve(id, stream=True))
    assert [event.to_dict() for event in again[40:]] == [event.to_dict() for event in rest]


def test_background_responses_fail_where_they_are_not_resumed(served):
    id = background(served)[0].response.id
    served.restart("--resume-background", "off", kill=True)
    failed = served.client.responses.retrieve(id)
    assert failed.status == "failed" and failed.error.code == "server_error"
    served.restart(kill=True)
    assert served.client.responses.retrieve(id).to_dict() == failed.to_dict()


def test_a_background_response_that_was_cancelled_stays_so(served):
    # Without a stream, whose first events take a part of the time that the answer takes.
    id = served.client.responses.create(
        model="any",
        input="Tell me a story.",
        background=True,
        max_output_tokens=LONG,
        extra_body={**NO_THINKING, "ignore_eos": True},
    ).id
    assert served.client.responses.cancel(id).status == "cancelled"
    served.restart(kill=True)
    assert served.client.responses.retrieve(id).status == "cancelled"


def called(served):
    """A turn that called a tool, with the number of tokens up to its end, and what follows it."""
    settings = {"tools": [TOOL], "max_output_tokens": 100, "store": False}
    question = {"role": "user", "content": "What is the weather in Paris?"}
    first = served.ask([question], tool_choice="required", **settings)
    calls = [item for item in first.output if item.type == "function_call"]
    output = {"type": "function_call_output", "call_id": calls[0].call_id, "output": "sunny"}
    # As a client that parses arguments sends them back: with other spaces, without reasoning.
    call = calls[0].to_dict()
    call["arguments"] = call["arguments"].replace(" ", "").replace(":", " :  ")
    return [question, call, output], settings


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_turns_with_calls_continue_from_their_tokens(served, kill):
    items, settings = called(served)
    before = served.ask(items, **settings)
    served.restart(kill=kill)
    after = served.ask(items, **settings)
    assert after.usage.input_tokens == before.usage.input_tokens
    assert after.output_text == before.output_text
    # Without the turn, the prompt is rendered from the call.
    forgetful = Server()
    client = openai.OpenAI(base_url=forgetful.address + "/v1", api_key="any", max_retries=0)
    served.client = client
    other = served.ask(items, **settings)
    forgetful.stop()
    assert other.usage.input_tokens != before.usage.input_tokens


def texts(items):
    return [item.content[0].text for item in items]


def test_conversations_survive_between_turns(served):
    conversation = served.client.conversations.create(
        metadata={"topic": "capitals"},
        items=[{"type": "message", "role": "user", "content": "Hello."}],
    )
    answers = []
    for question in [QUESTION, "And of Italy?", "And of Spain?"]:
        response = served.ask(question, conversation=conversation.id)
        assert response.conversation.id == conversation.id
        answers += [question, response.output_text]
        served.restart(kill=True)
    conversations = served.client.conversations
    kept = conversations.retrieve(conversation.id)
    assert kept.to_dict() == conversation.to_dict() and kept.metadata == {"topic": "capitals"}
    items = list(conversations.items.list(conversation.id, order="asc", limit=3))
    assert texts(items) == ["Hello.", *answers]
    conversations.items.delete(items[1].id, conversation_id=conversation.id)
    served.restart(kill=True)
    conversations = served.client.conversations
    items = list(conversations.items.list(conversation.id, order="asc"))
    assert texts(items) == ["Hello.", *answers[1:]]
    conversations.delete(conversation.id)
    served.restart(kill=True)
    with pytest.raises(openai.NotFoundError):
        served.client.conversations.retrieve(conversation.id)
    # A response keeps what it continued.
    kept = served.client.responses.input_items.list(response.id, order="asc").data
    assert texts(kept) == ["Hello.", *answers[:-1]]


def test_a_background_response_that_is_computed_again_is_added_to_its_conversation(served):
    conversation = served.client.conversations.create()
    id = background(served, conversation=conversation.id)[0].response.id
    served.restart(kill=True)
    with pytest.raises(openai.ConflictError):
        served.ask("And?", conversation=conversation.id)
    done = served.finished(id)
    items = list(served.client.conversations.items.list(conversation.id, order="asc"))
    assert texts(items) == [QUESTION, done.output_text]


@pytest.fixture(scope="module")
def memory():
    """A server that keeps nothing."""
    served = Restarting.__new__(Restarting)
    served.options = ()
    served.start()
    yield served
    served.server.stop()


def test_a_conversation_is_what_the_model_reads(memory):
    conversation = memory.client.conversations.create()
    first = memory.ask(conversation={"id": conversation.id})
    second = memory.ask("And of Italy?", conversation=conversation.id)
    history = [{"role": "user", "content": QUESTION}, *first.output]
    replayed = memory.ask([*history, {"role": "user", "content": "And of Italy?"}])
    assert replayed.output_text == second.output_text
    assert replayed.usage.input_tokens == second.usage.input_tokens
    assert second.usage.input_tokens_details.cached_tokens > 0
    # A response that is not stored is added too, and one that is streamed.
    memory.ask("And of Spain?", conversation=conversation.id, store=False)
    *_, last = memory.ask("And of Peru?", conversation=conversation.id, stream=True)
    third = memory.ask("Thanks.", previous_response_id=last.response.id)
    asked = memory.client.responses.input_items.list(third.id, order="asc", limit=50).data
    assert texts(asked)[::2] == [
        QUESTION, "And of Italy?", "And of Spain?", "And of Peru?", "Thanks."
    ]
    counted = memory.client.responses.input_tokens.count(
        model="any", input="And?", conversation=conversation.id, extra_body=NO_THINKING
    )
    answered = memory.ask("And?", conversation=conversation.id)
    assert counted.input_tokens == answered.usage.input_tokens


def test_items_are_added_listed_read_and_removed(memory):
    conversations = memory.client.conversations
    conversation = conversations.create()
    assert conversation.object == "conversation" and conversation.id.startswith("conv_")
    messages = [{"type": "message", "role": "user", "content": str(n)} for n in range(7)]
    added = conversations.items.create(conversation.id, items=messages)
    assert texts(added.data) == list("0123456")
    assert texts(conversations.items.list(conversation.id)) == list("6543210")
    page = conversations.items.list(
        conversation.id, order="asc", limit=2, after=added.data[2].id,
        include=["reasoning.encrypted_content"],
    )
    assert texts(page.data) == list("34") and page.has_more
    item = conversations.items.retrieve(added.data[5].id, conversation_id=conversation.id)
    assert texts([item]) == ["5"]
    left = conversations.items.delete(item.id, conversation_id=conversation.id)
    assert left.id == conversation.id
    for missing in (conversations.items.retrieve, conversations.items.delete):
        with pytest.raises(openai.NotFoundError):
            missing(item.id, conversation_id=conversation.id)
    updated = conversations.update(conversation.id, metadata={"a": "b"})
    assert updated.metadata == {"a": "b"}
    assert conversations.retrieve(conversation.id).metadata == {"a": "b"}
    deleted = conversations.delete(conversation.id)
    assert deleted.deleted and deleted.object == "conversation.deleted"


def test_what_cannot_be_is_refused(memory):
    conversations = memory.client.conversations
    conversation = conversations.create()
    message = {"type": "message", "role": "user", "content": "x"}
    for settings in (
        {"items": [message] * 21},
        {"items": [{"type": "message", "role": "user"}]},
        {"metadata": {str(n): "x" for n in range(17)}},
        {"metadata": {"a": "x" * 513}},
    ):
        with pytest.raises(openai.BadRequestError):
            conversations.create(**settings)
    with pytest.raises(openai.BadRequestError):
        conversations.items.create(conversation.id, items=[message] * 21)
    first = memory.ask()
    with pytest.raises(openai.BadRequestError) as caught:
        memory.ask("x", conversation=conversation.id, previous_response_id=first.id)
    assert caught.value.param == "conversation"
    with pytest.raises(openai.NotFoundError) as caught:
        memory.ask("x", conversation="conv_none")
    assert caught.value.code == "conversation_not_found"
    other = openai.OpenAI(base_url=memory.client.base_url, api_key="other", max_retries=0)
    with pytest.raises(openai.NotFoundError):
        other.conversations.retrieve(conversation.id)


def test_two_responses_at_once_on_one_conversation_are_a_conflict(memory):
    conversation = memory.client.conversations.create()
    endless = {**NO_THINKING, "ignore_eos": True}
    running = memory.ask(
        conversation=conversation.id, stream=True, max_output_tokens=500, extra_body=endless
    )
    next(iter(running))
    message = {"type": "message", "role": "user", "content": "x"}
    for change in (
        lambda: memory.ask("x", conversation=conversation.id),
        lambda: memory.client.conversations.items.create(conversation.id, items=[message]),
    ):
        with pytest.raises(openai.ConflictError) as caught:
            change()
        assert caught.value.code == "conversation_locked"
    # What the client leaves is not added, and the conversation is free again.
    running.close()
    limit = time.monotonic() + 20
    while True:
        try:
            memory.ask("y", conversation=conversation.id)
            break
        except openai.ConflictError:
            assert time.monotonic() < limit
            time.sleep(0.05)
    items = list(memory.client.conversations.items.list(conversation.id, order="asc"))
    assert texts(items)[0] == "y" and len(items) == 2


def test_a_damaged_file_is_named(tmp_path, served):
    served.server.stop()
    path = tmp_path / "state" / "state.redb"
    sound = path.read_bytes()
    path.write_bytes(b"x" * len(sound))
    command = [os.environ["GANNET_BIN"], "serve", "--port", "0", *served.options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert str(path) in ended.stderr and "cannot read" in ended.stderr
    path.write_bytes(sound)
    served.start()


def test_killed_at_any_moment_it_loses_no_answer_that_was_given(served):
    """Four clients are answered when the server is killed; whatever one of them has seen the end
    of is there afterwards."""
    moments, ended, cut = random.Random(7), [], 0

    def client():
        nonlocal cut
        try:
            while True:
                *_, last = served.ask(stream=True, max_output_tokens=4)
                ended.append(last.response)
        except (openai.APIError, httpx.HTTPError, ValueError):
            cut += 1

    for _ in range(5):
        clients = [threading.Thread(target=client) for _ in range(4)]
        [one.start() for one in clients]
        time.sleep(0.2 + moments.random() * 0.3)
        served.server.process.send_signal(signal.SIGKILL)
        [one.join() for one in clients]
        served.server.process.wait()
        served.start()
    assert len(ended) > 10 and cut == 20
    for response in ended:
        assert served.client.responses.retrieve(response.id).to_dict() == response.to_dict()
