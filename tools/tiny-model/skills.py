"""The skills by name, and how much of the training each of them gets."""

from skill_chat import fact, memory, plain_text, talk, unknown
from skill_tools import tool_call, tool_result
from skill_work import arithmetic, copying, counting, json_answer, reversing, story

SKILLS = {
    "chat": talk,
    "facts": fact,
    "unknown": unknown,
    "memory": memory,
    "arithmetic": arithmetic,
    "copying": copying,
    "reversing": reversing,
    "counting": counting,
    "json": json_answer,
    "tool calls": tool_call,
    "tool results": tool_result,
    "stories": story,
    "plain text": plain_text,
}

TOOL_SKILLS = ("tool calls", "tool results")

# The skills that fit one short question and one short answer.
PLAIN = {name: SKILLS[name] for name in ("chat", "facts", "arithmetic", "copying", "unknown")}

# Weights of draws; one draw of a tool skill gives a group of both of them.
MIXTURE = {
    "chat": 7,
    "facts": 21,
    "unknown": 6,
    "memory": 5,
    "arithmetic": 23,
    "copying": 5,
    "reversing": 9,
    "counting": 6,
    "json": 7,
    "tool calls": 1.5,
    "tool results": 1.5,
    "stories": 3,
    "plain text": 2,
    "sums": 9,
}
