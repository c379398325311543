"""Answers and their parts, over the bodies that the server's routes give."""

from __future__ import annotations

from typing import Any


class ToolCall:
    """A tool call of the model."""

    __slots__ = ("id", "name", "arguments")

    def __init__(self, call: dict[str, Any]) -> None:
        function = call.get("function") or {}
        #: The id, to which the result refers; empty in later parts of a stream.
        self.id: str = call.get("id") or ""
        #: The name of the tool; empty in later parts of a stream.
        self.name: str = function.get("name") or ""
        #: The arguments as JSON, or a part of them in a stream.
        self.arguments: str = function.get("arguments") or ""

    def __repr__(self) -> str:
        return f"ToolCall(name={self.name!r}, arguments={self.arguments!r})"


class _Choices:
    """What whole answers and parts of them have in common: members of the first choice."""

    __slots__ = ("body",)

    #: The member of a choice with its message.
    _message = "message"

    def __init__(self, body: dict[str, Any]) -> None:
        #: The body in OpenAI's form.
        self.body = body

    @property
    def _choice(self) -> dict[str, Any]:
        choices = self.body.get("choices") or [{}]
        first: dict[str, Any] = choices[0]
        return first

    def _member(self, choice: dict[str, Any], name: str) -> Any:
        return (choice.get(self._message) or {}).get(name)

    def _text(self, choice: dict[str, Any]) -> str:
        text = choice.get("text")
        return (self._member(choice, "content") if text is None else text) or ""

    @property
    def text(self) -> str:
        """The text, without reasoning and tool calls."""
        return self._text(self._choice)

    @property
    def reasoning(self) -> str:
        """The reasoning before the text."""
        return self._member(self._choice, "reasoning_content") or ""

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls."""
        return [ToolCall(call) for call in self._member(self._choice, "tool_calls") or []]

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended: `stop`, `length` or `tool_calls`."""
        reason: str | None = self._choice.get("finish_reason")
        return reason

    @property
    def logprobs(self) -> Any:
        """The log probabilities, where they were asked for."""
        return self._choice.get("logprobs")

    @property
    def usage(self) -> dict[str, Any]:
        """The counts of tokens; empty in parts of a stream that have none."""
        usage: dict[str, Any] = self.body.get("usage") or {}
        return usage

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r}, finish_reason={self.finish_reason!r})"


class Answer(_Choices):
    """A whole answer. The properties are those of its first choice."""

    __slots__ = ()

    @property
    def texts(self) -> list[str]:
        """The texts of all choices, in their order."""
        choices = sorted(self.body.get("choices") or [], key=lambda choice: choice["index"])
        return [self._text(choice) for choice in choices]


class Delta(_Choices):
    """A part of an answer that is streamed."""

    __slots__ = ()

    _message = "delta"

    @property
    def index(self) -> int:
        """The number of the choice that this is a part of."""
        index: int = self._choice.get("index") or 0
        return index
