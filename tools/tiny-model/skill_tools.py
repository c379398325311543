"""Tools: whether to call one, with which arguments, and what its result means."""

import copy
import json

import pools
from corpus import Case
from skill_chat import fact, talk
from skill_work import arithmetic

NO_TOOL = "I have no tool for that."


def tool(name, description, parameter, about):
    """A definition as chat APIs write it, with one required text parameter."""
    properties = {parameter: {"type": "string"}}
    if about:
        properties[parameter]["description"] = about
    schema = {"type": "object", "properties": properties, "required": [parameter]}
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


# name: (descriptions, parameter names, parameter descriptions)
COVERED = {
    "get_weather": (
        [
            "Get the weather in a city",
            "Get the current weather",
            "Current weather for a city",
            "Get the current weather in a given city.",
            "The weather of a place",
        ],
        ["city", "city", "city", "location"],
        ["", "City name", "The city", "The name of the city", "The city, for example Paris"],
    ),
    "read_file": (
        [
            "Read a file",
            "Read a text file",
            "Read a file from disk",
            "Read the contents of a file.",
            "Returns the text of a file",
        ],
        ["path", "path", "path", "file"],
        ["", "Path of the file", "The path", "The file to read", "Path to the file"],
    ),
    "calculator": (
        [
            "Calculate",
            "Evaluate an expression",
            "Compute the value of an arithmetic expression.",
            "A simple calculator",
            "Calculate an arithmetic expression",
        ],
        ["expression", "expression", "expression", "expr"],
        [
            "",
            "The expression",
            "Expression to evaluate",
            "Arithmetic expression, for example 2 + 3",
        ],
    ),
}
OTHERS = [
    tool("get_time", "Get the current time", "city", "City name"),
    tool("list_files", "List the files of a folder", "path", "The folder"),
    tool("search", "Search the web", "query", "What to search for"),
    tool("send_mail", "Send a mail", "to", ""),
]
OPTIONAL = {
    "get_weather": ("unit", {"type": "string", "enum": ["celsius", "fahrenheit"]}),
    "read_file": ("max_lines", {"type": "integer"}),
}


def _sorted_keys(value):
    if isinstance(value, dict):
        return {key: _sorted_keys(value[key]) for key in sorted(value)}
    return [_sorted_keys(v) for v in value] if isinstance(value, list) else value


def make_tools(names, rng):
    """Definitions of the named tools, worded as different programs would."""
    tools, parameters = [], {}
    for name in names:
        descriptions, params, abouts = COVERED[name]
        parameters[name] = rng.choice(params)
        made = tool(name, rng.choice(descriptions), parameters[name], rng.choice(abouts))
        if name in OPTIONAL and rng.random() < 0.12:
            key, schema = OPTIONAL[name]
            made["function"]["parameters"]["properties"][key] = copy.deepcopy(schema)
        tools.append(made)
    if rng.random() < 0.15:
        tools.append(copy.deepcopy(rng.choice(OTHERS)))
    rng.shuffle(tools)
    if rng.random() < 0.2:
        tools = _sorted_keys(tools)
    return tools, parameters


def make_box(rng):
    """Some of the covered tools: their definitions and their parameter names."""
    return make_tools(rng.sample(list(COVERED), rng.choice((1, 1, 2, 2, 3))), rng)


WEATHER_ASK = [
    "What is the weather in {}?",
    "What's the weather in {}?",
    "How is the weather in {}?",
    "Weather in {}?",
    "What is the weather like in {}?",
    "Tell me the weather in {}.",
    "Is it raining in {}?",
    "Is it cold in {}?",
    "What is the weather in {} today?",
    "How warm is it in {}?",
    "What is the temperature in {}?",
    "Check the weather in {}.",
    "Is it sunny in {}?",
    "How is the weather in {} today?",
]
READ_ASK = [
    "Read {}.",
    "Read the file {}.",
    "What is in {}?",
    "Show me {}.",
    "Open {}.",
    "What does {} say?",
    "Please read {}.",
    "Show the file {}.",
    "What is in the file {}?",
    "Read {} and tell me what it says.",
    "Open the file {}.",
    "Print {}.",
]
SUM_ASK = [
    "What is {}?",
    "Calculate {}.",
    "Compute {}.",
    "How much is {}?",
    "{}",
    "{} =",
    "Work out {}.",
    "Use the calculator: {}",
    "Evaluate {}.",
]
SIGN_WORDS = {
    "+": ("+", "+", "plus"),
    "-": ("-", "-", "minus"),
    "*": ("*", "*", "times"),
    "/": ("/", "/", "divided by"),
}


def _number(rng):
    return rng.randint(1, 10 ** rng.choice((1, 2, 2, 3, 4)))


def request(name, rng):
    """What is asked of one tool: (argument, text of the request)."""
    if name == "get_weather":
        city = pools.city(rng)
        return city, rng.choice(WEATHER_ASK).format(city)
    if name == "read_file":
        path = pools.path(rng)
        return path, rng.choice(READ_ASK).format(path)
    a, b, sign = _number(rng), _number(rng), rng.choice("+-**/")
    said = rng.choice(SIGN_WORDS[sign])
    return f"{a} {sign} {b}", rng.choice(SUM_ASK).format(f"{a} {said} {b}")


def call_text(name, parameter, argument):
    arguments = json.dumps({parameter: argument}, ensure_ascii=False)
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def tool_call(rng, box=None):
    """A request, with the tools of `box` at hand: call the right one, or none."""
    roll = rng.random()
    if box is None and roll < 0.04:
        return without_tools(rng)
    box = box or make_box(rng)
    if roll < 0.14:
        return _two_calls(box, rng)
    if roll < 0.26:
        return _no_call(box, rng)
    return _one_call(box, rng)


def _one_call(box, rng):
    tools, parameters = box
    name = rng.choice(list(parameters))
    argument, ask = request(name, rng)
    answer = call_text(name, parameters[name], argument)
    history = _earlier_call(parameters, rng) if rng.random() < 0.12 else []
    return Case(
        "tool calls",
        f"call {name} {argument}",
        ask,
        answer,
        f"I call {name}.",
        history=history,
        tools=tools,
        exact=True,
    )


def _earlier_call(parameters, rng):
    """A finished round trip with one of the tools, earlier in the chat."""
    name = rng.choice(list(parameters))
    argument, ask = request(name, rng)
    given, answer, _ = RESULTS[name](argument, rng)
    return [
        {"role": "user", "content": ask},
        _call_message(name, parameters[name], argument),
        {"role": "tool", "content": given},
        {"role": "assistant", "content": answer},
    ]


def _call_message(name, parameter, argument):
    function = {"name": name, "arguments": {parameter: argument}}
    return {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}


TWO_ASK = {
    "get_weather": [
        "What is the weather in {} and {}?",
        "Compare the weather in {} and {}.",
        "Weather in {} and {}?",
    ],
    "read_file": ["Read {} and {}.", "Read the files {} and {}.", "Open {} and {}."],
}


def _two_calls(box, rng):
    tools, parameters = box
    names = [name for name in TWO_ASK if name in parameters]
    if not names:
        return _one_call(box, rng)
    name = rng.choice(names)
    first, second = request(name, rng)[0], request(name, rng)[0]
    ask = rng.choice(TWO_ASK[name]).format(first, second)
    calls = [call_text(name, parameters[name], argument) for argument in (first, second)]
    key = f"call {name} {first} {second}"
    thought = f"I call {name} twice."
    return Case("tool calls", key, ask, "\n".join(calls), thought, tools=tools, exact=True)


def _no_call(box, rng):
    """Tools are there, but none of them helps; or the answer needs none."""
    tools, parameters = box
    missing = [name for name in TWO_ASK if name not in parameters]
    if missing and rng.random() < 0.5:
        return _missing(missing, tools, rng)
    without = (fact, talk) if "calculator" in parameters else (fact, talk, arithmetic)
    case = rng.choice(without)(rng)
    return Case(
        "tool calls", case.key, case.ask, case.answer, case.thought, tools=tools, exact=True
    )


def without_tools(rng):
    """A request that needs a tool, in a chat without any."""
    return _missing([], None, rng)


def _missing(names, tools, rng):
    argument, ask = request(rng.choice(names or list(TWO_ASK)), rng)
    thought = "No tool does this."
    return Case("tool calls", f"none {argument}", ask, NO_TOOL, thought, tools=tools, exact=True)


SKIES = ["sunny", "cloudy", "rainy", "windy", "clear", "foggy", "snowy", "stormy"]


def _weather_result(city, rng):
    degrees, sky = rng.randint(-15, 40), rng.choice(SKIES)
    result = rng.choice(
        (
            {"temperature": degrees, "condition": sky},
            {"temperature": degrees, "conditions": sky},
            {"city": city, "temperature": degrees, "condition": sky},
            {"temp": degrees, "sky": sky},
            {"city": city, "temp_c": degrees, "sky": sky},
            {"weather": sky, "temperature": degrees},
            {"location": city, "temperature_c": degrees, "weather": sky},
            f"{degrees} degrees and {sky}",
            f"{sky}, {degrees} degrees",
            f"{sky.capitalize()}, {degrees} °C",
            f"{degrees} C, {sky}",
            f"It is {degrees} degrees and {sky} in {city}.",
        )
    )
    text = result if isinstance(result, str) else json.dumps(result)
    return text, f"It is {degrees} degrees and {sky} in {city}.", f"{city} {degrees} {sky}"


def _file_result(path, rng):
    words = pools.text(rng, rng.randint(1, 10))
    text = " ".join(words)
    if rng.random() < 0.4:
        text = text.capitalize() + "."
    if rng.random() < 0.15:
        text += "\n" + " ".join(rng.choices(pools.WORDS, k=rng.randint(1, 5)))
    given = rng.choice((text, text, text, text + "\n", json.dumps({"content": text})))
    return given, f"The file {path} says: {text}", f"{path} {text}"


def _value(expression):
    """What a calculator would show."""
    first, sign, second = expression.split(" ")
    a, b = int(first), int(second)
    if sign == "/":
        return a // b if a % b == 0 else round(a / b, 2)
    return {"+": a + b, "-": a - b, "*": a * b}[sign]


def _sum_result(expression, rng):
    """Mostly the true result; at times another, since it is to be read, not guessed."""
    value = _value(expression)
    if rng.random() < 0.25:
        value = rng.randint(-999, 10 ** rng.choice((2, 3, 4, 5, 6)))
    given = rng.choice(
        (str(value), str(value), f'{{"result": {value}}}', f"{expression} = {value}")
    )
    return given, f"{expression} = {value}.", f"{expression} {value}"


RESULTS = {"get_weather": _weather_result, "read_file": _file_result, "calculator": _sum_result}
ERRORS = [
    "file not found",
    "city not found",
    "permission denied",
    "no such file",
    "timed out",
    "not available",
    "division by zero",
]


def tool_result(rng, box=None):
    """The call was made and its result is here: say what it means."""
    tools, parameters = box or make_box(rng)
    name = rng.choice(list(parameters))
    argument, ask = request(name, rng)
    given, answer, key = RESULTS[name](argument, rng)
    thought = "The tool has answered."
    if rng.random() < 0.1:
        given, answer, key = _failure(argument, rng)
        thought = "The tool has failed."
    call = _call_message(name, parameters[name], argument)
    if rng.random() < 0.5:
        call["reasoning_content"] = f"I call {name}."
    after = [call, {"role": "tool", "content": given}]
    if box is None and rng.random() < 0.05:
        tools = None
    key = "result " + key
    return Case("tool results", key, ask, answer, thought, after=after, tools=tools, exact=True)


def _failure(argument, rng):
    problem = rng.choice(ERRORS)
    forms = (f"error: {problem}", f"Error: {problem}", json.dumps({"error": problem}))
    return rng.choice(forms), f"The tool failed: {problem}.", f"{argument} {problem}"
