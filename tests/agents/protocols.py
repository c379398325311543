"""One plain request in every protocol, and its answer in common terms."""

from dataclasses import dataclass
from typing import Callable

# No model ends such an array by itself.
ENDLESS = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": {"enum": ["x"]}, "minItems": 4000}},
    "required": ["a"],
    "additionalProperties": False,
}


@dataclass
class Told:
    """The contents of an answer, whole or streamed."""

    text: str
    reasoning: str
    end: object
    prompt: int
    output: int
    cached: object = None  # where the protocol tells it


@dataclass
class Protocol:
    """The requests and answers of one API."""

    name: str
    path: str
    # Arguments: text, maximum tokens, whether to stream, whether the answer may end by itself.
    body: Callable
    whole: Callable  # of the JSON of a whole answer: Told
    streamed: Callable  # of the events of a stream: Told
    # Whether the last events end a stream, after success or an error.
    ended: Callable
    error: Callable  # of the JSON of an error: its message
    chat: bool = True

    def __repr__(self):
        return self.name


def chat_body(text, limit, stream, endless):
    body = {"model": "m", "messages": user(text), "max_tokens": limit, "temperature": 0}
    body |= {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    return body | ({"ignore_eos": True} if endless else {})


def user(text):
    return [{"role": "user", "content": text}]


def openai_usage(usage):
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    return usage["prompt_tokens"], usage["completion_tokens"], cached


def chat_whole(answer):
    [choice] = answer["choices"]
    message = choice["message"]
    said = message["content"] or "", message.get("reasoning_content") or ""
    return Told(*said, choice["finish_reason"], *openai_usage(answer["usage"]))


def chat_streamed(events):
    chunks = [data for _, data in events if isinstance(data, dict)]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    join = lambda key: "".join(choice["delta"].get(key) or "" for choice in choices)
    [end] = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    [usage] = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    return Told(join("content"), join("reasoning_content"), end, *openai_usage(usage))


def done_or_error(events):
    return bool(events) and events[-1][1] == "[DONE]"


def openai_error(body):
    return body["error"]["message"]


def text_body(text, limit, stream, endless):
    body = {"model": "m", "prompt": text, "max_tokens": limit, "temperature": 0}
    body |= {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    return body | ({"ignore_eos": True} if endless else {})


def text_whole(answer):
    [choice] = answer["choices"]
    return Told(choice["text"], "", choice["finish_reason"], *openai_usage(answer["usage"]))


def text_streamed(events):
    chunks = [data for _, data in events if isinstance(data, dict)]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    [end] = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    [usage] = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    return Told("".join(choice["text"] for choice in choices), "", end, *openai_usage(usage))


def responses_body(text, limit, stream, endless):
    body = {"model": "m", "input": text, "max_output_tokens": limit, "temperature": 0}
    body |= {"stream": True} if stream else {}
    return body | ({"ignore_eos": True} if endless else {})


def responses_whole(answer):
    usage = answer["usage"]
    join = lambda kind: "".join(
        part["text"]
        for item in answer["output"]
        if item["type"] == kind
        for part in item["content"]
    )
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    return Told(
        join("message"),
        join("reasoning"),
        (answer["status"], answer["incomplete_details"]),
        usage["input_tokens"],
        usage["output_tokens"],
        usage["input_tokens_details"]["cached_tokens"],
    )


def responses_streamed(events):
    assert events[-1][1]["type"] in RESPONSE_ENDS
    told = responses_whole(events[-1][1]["response"])
    join = lambda kind: "".join(data["delta"] for _, data in events if data["type"] == kind)
    assert join("response.output_text.delta") == told.text
    assert join("response.reasoning_text.delta") == told.reasoning
    return told


RESPONSE_ENDS = ("response.completed", "response.incomplete", "response.failed")


def messages_body(text, limit, stream, endless):
    body = {"model": "m", "messages": user(text), "max_tokens": limit, "temperature": 0}
    body |= {"stream": True} if stream else {}
    if endless:
        body["thinking"] = {"type": "disabled"}
        body["output_config"] = {"format": {"type": "json_schema", "schema": ENDLESS}}
    return body


def anthropic_usage(usage):
    kinds = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    prompt = sum(usage[kind] for kind in kinds)
    return prompt, usage["output_tokens"], usage["cache_read_input_tokens"]


def messages_whole(answer):
    join = lambda kind: "".join(b[kind] for b in answer["content"] if b["type"] == kind)
    end = (answer["stop_reason"], answer["stop_sequence"])
    return Told(join("text"), join("thinking"), end, *anthropic_usage(answer["usage"]))


def messages_streamed(events):
    for name, data in events:
        assert name == data["type"]
    deltas = [data["delta"] for name, data in events if name == "content_block_delta"]
    join = lambda kind: "".join(d[kind] for d in deltas if d["type"] == f"{kind}_delta")
    [end] = [data for name, data in events if name == "message_delta"]
    stop = (end["delta"]["stop_reason"], end["delta"]["stop_sequence"])
    start = events[0][1]["message"]["usage"]
    told = Told(join("text"), join("thinking"), stop, *anthropic_usage(end["usage"]))
    # Clients add both up where they differ.
    for kind in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
        assert start[kind] == end["usage"][kind]
    return told


def ollama_body(text, limit, stream, endless):
    options = {"temperature": 0, "num_predict": limit}
    body = {"model": "m", "messages": user(text), "options": options, "stream": stream}
    return body | ({"format": ENDLESS, "think": False} if endless else {})


def ollama_whole(answer):
    message = answer["message"]
    assert answer["done"]
    said = message["content"], message.get("thinking") or ""
    return Told(*said, answer["done_reason"], answer["prompt_eval_count"], answer["eval_count"])


def ollama_streamed(events):
    lines = [data for _, data in events]
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    join = lambda key: "".join(line["message"].get(key) or "" for line in lines)
    last = ollama_whole(lines[-1])
    last.text, last.reasoning = join("content"), join("thinking")
    return last


def generate_body(text, limit, stream, endless):
    options = {"temperature": 0, "num_predict": limit}
    body = {"model": "m", "prompt": text, "options": options, "stream": stream}
    return body | ({"format": ENDLESS, "think": False} if endless else {})


def generate_whole(answer):
    said = answer["response"], answer.get("thinking") or ""
    counts = answer["prompt_eval_count"], answer["eval_count"]
    assert answer["done"]
    return Told(*said, answer["done_reason"], *counts)


def generate_streamed(events):
    lines = [data for _, data in events]
    join = lambda key: "".join(line.get(key) or "" for line in lines)
    last = generate_whole(lines[-1])
    last.text, last.reasoning = join("response"), join("thinking")
    return last


def llama_body(text, limit, stream, endless):
    body = {"prompt": text, "n_predict": limit, "temperature": 0, "stream": stream}
    return body | ({"ignore_eos": True} if endless else {})


def llama_whole(answer):
    assert answer["stop"] is True and answer["truncated"] is False
    evaluated, predicted = answer["tokens_evaluated"], answer["tokens_predicted"]
    return Told(answer["content"], "", answer["stop_type"], evaluated, predicted)


def llama_streamed(events):
    parts = [data for _, data in events if isinstance(data, dict)]
    assert [part["stop"] for part in parts] == [False] * (len(parts) - 1) + [True]
    last = llama_whole(parts[-1])
    last.text = "".join(part["content"] for part in parts)
    return last


PROTOCOLS = [
    Protocol(
        "chat",
        "/v1/chat/completions",
        chat_body,
        chat_whole,
        chat_streamed,
        done_or_error,
        openai_error,
    ),
    Protocol(
        "completions",
        "/v1/completions",
        text_body,
        text_whole,
        text_streamed,
        done_or_error,
        openai_error,
        chat=False,
    ),
    Protocol(
        "responses",
        "/v1/responses",
        responses_body,
        responses_whole,
        responses_streamed,
        lambda events: events[-1][1]["type"] in RESPONSE_ENDS,
        openai_error,
    ),
    Protocol(
        "messages",
        "/v1/messages",
        messages_body,
        messages_whole,
        messages_streamed,
        lambda events: events[-1][0] in ("message_stop", "error"),
        openai_error,
    ),
    Protocol(
        "ollama chat",
        "/api/chat",
        ollama_body,
        ollama_whole,
        ollama_streamed,
        lambda events: events[-1][1].get("done") is True or "error" in events[-1][1],
        lambda body: body["error"],
    ),
    Protocol(
        "ollama generate",
        "/api/generate",
        generate_body,
        generate_whole,
        generate_streamed,
        lambda events: events[-1][1].get("done") is True or "error" in events[-1][1],
        lambda body: body["error"],
    ),
    Protocol(
        "llama",
        "/completion",
        llama_body,
        llama_whole,
        llama_streamed,
        lambda events: events[-1][1].get("stop") is True or "error" in events[-1][1],
        openai_error,
        chat=False,
    ),
]
