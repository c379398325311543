"""Agents in each protocol: their requests, and what they take from the answers.

An agent stores a conversation and sends all of it each time. Agents differ in how they send earlier
answers back, even between turns; `Habits` are the observed variants.
"""

import copy
import json
from dataclasses import dataclass, field

RULES = """You are an agent that helps with a small repository of notes. Work in small steps. Call
one tool at a time unless several are independent of each other. Never make up what a file says:
read it first. When you change a file, say in one sentence what you changed and why. Prefer plain
words. Do not run anything that touches the network. The repository holds notes.txt, todo.txt and
plan.txt; the first is a diary, the second a list of things to do, the third what comes next."""

FILES = ["notes.txt", "todo.txt", "plan.txt"]
TOOLS = [
    (
        "read_file",
        "Read a file.",
        {
            "type": "object",
            "properties": {
                "path": {"type": "string", "enum": FILES},
                "lines": {"type": "string", "enum": ["all", "first", "last"]},
            },
            "required": ["path", "lines"],
            "additionalProperties": False,
        },
    ),
    (
        "get_weather",
        "Get the weather of a city.",
        {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    ),
]
LIMIT = 160


@dataclass
class Habits:
    """The form in which a turn is sent back."""

    reasoning: bool = True  # or dropped
    content: str = "as it came"  # beside calls also: null, empty, absent
    reserialised: bool = False  # arguments with other spaces and another order of members


@dataclass
class Turn:
    """An answer."""

    prompt: int
    cached: int
    text: str = ""
    calls: list = field(default_factory=list)  # of (id, name, arguments as an object)
    reasoning: object = None
    raw: object = None


def again(arguments):
    """The same JSON value as other text."""
    return json.dumps(dict(reversed(arguments.items())), indent=1)


class Agent:
    """A conversation over one protocol, which a subclass implements."""

    path = None
    tools = True
    parallel = False

    def __init__(self, server):
        self.server = server
        self.history = []
        self.sent = 0

    def body(self, force):
        raise NotImplementedError

    def read(self, reply):
        raise NotImplementedError

    def ask(self, force=False):
        """The next answer; `force` makes it call a tool."""
        return self.send(self.body(force))

    def send(self, body):
        self.sent += 1
        reply = self.server.post(self.path, body)
        assert reply.status == 200, reply
        return self.read(reply.json)

    def branch(self, length):
        """The agent with its history cut to this number of entries."""
        other = type(self)(self.server)
        other.history = copy.deepcopy(self.history[:length])
        other.sent = self.sent
        return other


class OpenCode(Agent):
    """Chat completions with tools."""

    path = "/v1/chat/completions"

    def body(self, force):
        body = {
            "model": "any",
            "messages": [{"role": "system", "content": RULES}, *self.history],
            "temperature": 0,
            "max_tokens": LIMIT,
        }
        if self.tools:
            body["tools"] = [
                {"type": "function", "function": dict(zip(NAMES, tool))} for tool in TOOLS
            ]
            body["tool_choice"] = "required" if force else "auto"
            body["parallel_tool_calls"] = self.parallel
        return body

    def read(self, answer):
        usage, message = answer["usage"], answer["choices"][0]["message"]
        calls = [
            (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in message.get("tool_calls") or []
        ]
        return Turn(
            usage["prompt_tokens"],
            usage["prompt_tokens_details"]["cached_tokens"],
            message["content"] or "",
            calls,
            message.get("reasoning_content"),
            message,
        )

    def user(self, text):
        self.history.append({"role": "user", "content": text})

    def assistant(self, turn, habits):
        message = {"role": "assistant", "content": turn.text}
        if turn.calls:
            shape = json.dumps if not habits.reserialised else again
            message["tool_calls"] = [
                {
                    "id": id,
                    "type": "function",
                    "function": {"name": name, "arguments": shape(arguments)},
                }
                for id, name, arguments in turn.calls
            ]
            if habits.content == "null":
                message["content"] = None
            elif habits.content == "empty":
                message["content"] = ""
            elif habits.content == "absent":
                del message["content"]
        if habits.reasoning and turn.reasoning:
            message["reasoning_content"] = turn.reasoning
        self.history.append(message)

    def results(self, turn, texts):
        for (id, _, _), text in zip(turn.calls, texts):
            self.history.append({"role": "tool", "tool_call_id": id, "content": text})


NAMES = ("name", "description", "parameters")


class Aider(OpenCode):
    """Chat completions without tools: edits are text."""

    tools = False


class ClaudeCode(Agent):
    """Anthropic's messages, with a billing header that changes and cache marks that move."""

    path = "/v1/messages"

    def body(self, force):
        mark = {"cache_control": {"type": "ephemeral"}}
        billing = f"x-anthropic-billing-header: cc_version=2.1.{self.sent}; cch={self.sent:05x};"
        messages = copy.deepcopy(self.history)
        if isinstance(messages[-1]["content"], list):
            messages[-1]["content"][-1].update(mark)
        names = ("name", "description", "input_schema")
        return {
            "model": "any",
            "max_tokens": LIMIT,
            "temperature": 0,
            "thinking": {"type": "enabled", "budget_tokens": 64},
            "system": [
                {"type": "text", "text": billing},
                {"type": "text", "text": RULES, **mark},
            ],
            "messages": messages,
            "tools": [dict(zip(names, tool)) for tool in TOOLS],
            "tool_choice": {
                "type": "any" if force else "auto",
                "disable_parallel_tool_use": not self.parallel,
            },
            "metadata": {"user_id": "someone"},
        }

    def read(self, answer):
        usage, blocks = answer["usage"], answer["content"]
        kinds = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        return Turn(
            sum(usage[kind] for kind in kinds),
            usage["cache_read_input_tokens"],
            "".join(block["text"] for block in blocks if block["type"] == "text"),
            [
                (block["id"], block["name"], block["input"])
                for block in blocks
                if block["type"] == "tool_use"
            ],
            [block for block in blocks if block["type"] == "thinking"],
            blocks,
        )

    def user(self, text):
        self.history.append({"role": "user", "content": [{"type": "text", "text": text}]})

    def assistant(self, turn, habits):
        blocks = [*turn.reasoning] if habits.reasoning else []
        if turn.text and (not turn.calls or habits.content == "as it came"):
            blocks.append({"type": "text", "text": turn.text})
        for id, name, arguments in turn.calls:
            if habits.reserialised:
                arguments = dict(reversed(arguments.items()))
            blocks.append({"type": "tool_use", "id": id, "name": name, "input": arguments})
        self.history.append({"role": "assistant", "content": blocks or ""})

    def results(self, turn, texts):
        blocks = [
            {"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": text}]}
            for (id, _, _), text in zip(turn.calls, texts)
        ]
        self.history.append({"role": "user", "content": blocks})


class Codex(Agent):
    """Responses that are not stored: items are sent back, reasoning encrypted."""

    path = "/v1/responses"

    def body(self, force):
        functions = [
            {"type": "function", **dict(zip(NAMES, tool)), "strict": False} for tool in TOOLS
        ]
        return {
            "model": "any",
            "instructions": RULES,
            "input": self.history,
            "tools": [*functions, {"type": "web_search"}],
            "tool_choice": "required" if force else "auto",
            "parallel_tool_calls": self.parallel,
            "reasoning": {"summary": "auto"},
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "a-session",
            "max_output_tokens": LIMIT,
            "temperature": 0,
        }

    def read(self, answer):
        usage, items = answer["usage"], answer["output"]
        texts = [
            part["text"]
            for item in items
            if item["type"] == "message"
            for part in item["content"]
        ]
        return Turn(
            usage["input_tokens"],
            usage["input_tokens_details"]["cached_tokens"],
            "".join(texts),
            [
                (item["call_id"], item["name"], json.loads(item["arguments"]))
                for item in items
                if item["type"] == "function_call"
            ],
            [item for item in items if item["type"] == "reasoning"],
            items,
        )

    def user(self, text):
        content = [{"type": "input_text", "text": text}]
        self.history.append({"type": "message", "role": "user", "content": content})

    def assistant(self, turn, habits):
        for item in turn.raw:
            item = copy.deepcopy(item)
            if item["type"] == "reasoning":
                if not habits.reasoning:
                    continue
                # Codex sends the summary and the encrypted text, never the plain text.
                item.pop("content", None)
            if item["type"] == "message" and turn.calls and habits.content != "as it came":
                continue
            if item["type"] == "function_call" and habits.reserialised:
                item["arguments"] = again(json.loads(item["arguments"]))
            item.pop("status", None)
            self.history.append(item)

    def results(self, turn, texts):
        for (id, _, _), text in zip(turn.calls, texts):
            self.history.append({"type": "function_call_output", "call_id": id, "output": text})


class OllamaChat(Agent):
    """Ollama's chat, which does not report cached tokens; the server's counts do."""

    path = "/api/chat"
    tools = False

    def body(self, force):
        return {
            "model": "any",
            "messages": [{"role": "system", "content": RULES}, *self.history],
            "options": {"temperature": 0, "num_predict": LIMIT},
            "stream": False,
        }

    def send(self, body):
        before = self.server.stats()["kv_cache"]["hit_tokens"]
        turn = super().send(body)
        turn.cached = self.server.stats()["kv_cache"]["hit_tokens"] - before
        return turn

    def read(self, answer):
        message = answer["message"]
        return Turn(
            answer["prompt_eval_count"], 0, message["content"], [], message.get("thinking"), message
        )

    def user(self, text):
        self.history.append({"role": "user", "content": text})

    def assistant(self, turn, habits):
        message = {"role": "assistant", "content": turn.text}
        if habits.reasoning and turn.reasoning:
            message["thinking"] = turn.reasoning
        self.history.append(message)


AGENTS = [ClaudeCode, Codex, OpenCode, Aider, OllamaChat]
