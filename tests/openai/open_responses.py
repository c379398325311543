"""What the specification of Open Responses (2026-04-24) says of its objects and events, as checks
that are as strict as its schemas: every member that is not optional must be there and have its
type, and an event must have a name that the specification knows.

A check is a function that returns the problems of a value, each with its path.
"""


def check(name, holds):
    return lambda value, at: [] if holds(value) else [f"{at}: {value!r:.80} is not {name}"]


TEXT = check("a string", lambda value: isinstance(value, str))
FLAG = check("a boolean", lambda value: isinstance(value, bool))
NULL = check("null", lambda value: value is None)
INTEGER = check("an integer", lambda value: type(value) is int)
NUMBER = check("a number", lambda value: type(value) in (int, float))
ANY = check("anything", lambda value: True)


def word(*words):
    return check(f"one of {words}", lambda value: value in words)


def either(*checks):
    def problems(value, at):
        found = [one(value, at) for one in checks]
        return min(found, key=len) if all(found) else []

    return problems


def nullable(one):
    return either(one, NULL)


def array(of):
    def problems(value, at):
        if not isinstance(value, list):
            return [f"{at}: {value!r:.80} is not an array"]
        return [p for place, one in enumerate(value) for p in of(one, f"{at}[{place}]")]

    return problems


def members(required, optional=None):
    def problems(value, at):
        if not isinstance(value, dict):
            return [f"{at}: {value!r:.80} is not an object"]
        found = [f"{at}.{name} is missing" for name in required if name not in value]
        for name, one in {**required, **(optional or {})}.items():
            found += one(value[name], f"{at}.{name}") if name in value else []
        return found

    return problems


def typed(table):
    """An object whose member `type` says what else it has."""

    def problems(value, at):
        kind = value.get("type") if isinstance(value, dict) else None
        if kind not in table:
            return [f"{at}: there is no type {kind!r}"]
        return table[kind](value, at)

    return problems


LOGPROB = {"token": TEXT, "logprob": NUMBER, "bytes": array(INTEGER)}
LOGPROBS = array(members({**LOGPROB, "top_logprobs": array(members(LOGPROB))}))
PART = typed(
    {
        "output_text": members(
            {"text": TEXT, "annotations": array(ANY)}, {"logprobs": LOGPROBS}
        ),
        "refusal": members({"refusal": TEXT}),
        **{
            kind: members({"text": TEXT})
            for kind in ("input_text", "text", "summary_text", "reasoning_text")
        },
    }
)
STATUS = word("in_progress", "completed", "incomplete")
ITEM = typed(
    {
        "message": members(
            {
                "id": TEXT,
                "status": STATUS,
                "role": word("user", "assistant", "system", "developer"),
                "content": array(PART),
            },
            {"phase": word("commentary", "final_answer")},
        ),
        "function_call": members(
            {"id": TEXT, "call_id": TEXT, "name": TEXT, "arguments": TEXT, "status": STATUS}
        ),
        "function_call_output": members(
            {"id": TEXT, "call_id": TEXT, "output": either(TEXT, array(PART)), "status": STATUS}
        ),
        "reasoning": members(
            {"id": TEXT, "summary": array(PART)},
            {"content": array(PART), "encrypted_content": TEXT},
        ),
        "compaction": members({"id": TEXT, "encrypted_content": TEXT}, {"created_by": TEXT}),
    }
)
TOOL = typed(
    {
        "function": members(
            {
                "name": TEXT,
                "description": nullable(TEXT),
                "parameters": nullable(members({})),
                "strict": nullable(FLAG),
            }
        )
    }
)
MODE = word("none", "auto", "required")
NAMED = members({"type": word("function")}, {"name": TEXT})
ALLOWED = members({"type": word("allowed_tools"), "tools": array(NAMED), "mode": MODE})
FORMAT = typed(
    {
        "text": members({}),
        "json_object": members({}),
        "json_schema": members(
            {"name": TEXT, "description": nullable(TEXT), "schema": ANY, "strict": FLAG}
        ),
    }
)
EFFORTS = nullable(word("none", "minimal", "low", "medium", "high", "xhigh"))
SUMMARIES = nullable(word("concise", "detailed", "auto"))
USAGE = members(
    {
        "input_tokens": INTEGER,
        "output_tokens": INTEGER,
        "total_tokens": INTEGER,
        "input_tokens_details": members({"cached_tokens": INTEGER}),
        "output_tokens_details": members({"reasoning_tokens": INTEGER}),
    }
)
RESPONSE = members(
    {
        "id": TEXT,
        "object": word("response"),
        "created_at": INTEGER,
        "completed_at": nullable(INTEGER),
        "status": TEXT,
        "incomplete_details": nullable(members({"reason": TEXT})),
        "model": TEXT,
        "previous_response_id": nullable(TEXT),
        "instructions": nullable(TEXT),
        "output": array(ITEM),
        "error": nullable(members({"code": TEXT, "message": TEXT})),
        "tools": array(TOOL),
        "tool_choice": either(MODE, NAMED, ALLOWED),
        "truncation": word("auto", "disabled"),
        "parallel_tool_calls": FLAG,
        "text": members({"format": FORMAT}, {"verbosity": word("low", "medium", "high")}),
        "top_p": NUMBER,
        "presence_penalty": NUMBER,
        "frequency_penalty": NUMBER,
        "top_logprobs": INTEGER,
        "temperature": NUMBER,
        "reasoning": nullable(members({"effort": EFFORTS, "summary": SUMMARIES})),
        "usage": nullable(USAGE),
        "max_output_tokens": nullable(INTEGER),
        "max_tool_calls": nullable(INTEGER),
        "store": FLAG,
        "background": FLAG,
        "service_tier": TEXT,
        "metadata": ANY,
        "safety_identifier": nullable(TEXT),
        "prompt_cache_key": nullable(TEXT),
    }
)
COMPACTION = members(
    {
        "id": TEXT,
        "object": word("response.compaction"),
        "output": array(ITEM),
        "created_at": INTEGER,
        "usage": USAGE,
    }
)

STATES = ("created", "queued", "in_progress", "completed", "failed", "incomplete")
PLACE = {"item_id": TEXT, "output_index": INTEGER}
CONTENT = {**PLACE, "content_index": INTEGER}
SUMMARY = {**PLACE, "summary_index": INTEGER}
SHAPES = {
    **{state: {"response": RESPONSE} for state in STATES},
    "output_item.added": {"output_index": INTEGER, "item": nullable(ITEM)},
    "output_item.done": {"output_index": INTEGER, "item": nullable(ITEM)},
    "content_part.added": {**CONTENT, "part": PART},
    "content_part.done": {**CONTENT, "part": PART},
    "output_text.delta": {**CONTENT, "delta": TEXT},
    "output_text.done": {**CONTENT, "text": TEXT},
    "function_call_arguments.delta": {**PLACE, "delta": TEXT},
    "function_call_arguments.done": {**PLACE, "arguments": TEXT},
    "reasoning_summary_part.added": {**SUMMARY, "part": PART},
    "reasoning_summary_part.done": {**SUMMARY, "part": PART},
    "reasoning_summary_text.delta": {**SUMMARY, "delta": TEXT},
    "reasoning_summary_text.done": {**SUMMARY, "text": TEXT},
    # The specification says "reasoning", OpenAI's API and its clients say "reasoning_text".
    "reasoning_text.delta": {**CONTENT, "delta": TEXT},
    "reasoning_text.done": {**CONTENT, "text": TEXT},
}
EVENT = typed(
    {
        f"response.{name}": members({**shape, "sequence_number": INTEGER}, {"logprobs": LOGPROBS})
        for name, shape in SHAPES.items()
    }
)
ERROR = members(
    {
        "type": word("error"),
        "status": INTEGER,
        "error": members({"code": TEXT, "message": TEXT}, {"type": TEXT, "param": nullable(TEXT)}),
    }
)


def valid(value, against):
    problems = against(value, "")
    assert not problems, "\n".join(problems)
    return value
