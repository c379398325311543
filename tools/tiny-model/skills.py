"""The skills by name, and how much of the training each of them gets."""

from skill_chat import fact, memory, plain_text, talk, unknown
from skill_tools import tool_call, tool_result
from skill_work import (
    arithmetic,
    copying,
    counting,
    json_answer,
    open_story,
    reversing,
    story,
    told_story,
)

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

# Only practised, never examined.
PRACTICE = {"open stories": open_story, "told stories": told_story}
TOOL_SKILLS = ("tool calls", "tool results")

# The skills that fit one short question and one short answer.
PLAIN = {name: SKILLS[name] for name in ("chat", "facts", "arithmetic", "copying", "unknown")}

# Weights of draws; one draw of a tool skill gives a group of both of them.
MIXTURE = {
    "chat": 7,
    "facts": 21,
    "unknown": 6,
    "memory": 5,
    "arithmetic": 24,
    "copying": 6,
    "reversing": 12,
    "counting": 6,
    "json": 7,
    "tool calls": 3,
    "tool results": 3,
    "stories": 3,
    "plain text": 3,
    "sums": 7,
    "told stories": 1.5,
    "open stories": 1,
}
