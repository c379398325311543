"""Work on what is given: sums, lists of words, JSON, stories."""

import json
import re
from dataclasses import replace

import facts
import pools
from corpus import Case

ADD = [
    "What is {a} + {b}?",
    "{a} + {b}",
    "{a} + {b} =",
    "Calculate {a} + {b}.",
    "What is {a} plus {b}?",
    "Add {a} and {b}.",
    "How much is {a} + {b}?",
    "What is the sum of {a} and {b}?",
    "{a} plus {b}",
    "Compute {a} + {b}.",
    "{a}+{b}",
    "What is {a}+{b}?",
    "Solve {a} + {b}.",
]
SUBTRACT = [
    "What is {a} - {b}?",
    "{a} - {b}",
    "{a} - {b} =",
    "Calculate {a} - {b}.",
    "What is {a} minus {b}?",
    "Subtract {b} from {a}.",
    "How much is {a} - {b}?",
    "Take {b} from {a}.",
    "{a} minus {b}",
    "Compute {a} - {b}.",
    "{a}-{b}",
    "What is {a}-{b}?",
    "Solve {a} - {b}.",
]


def add_working(a, b):
    ones = a % 10 + b % 10
    steps = f"{a % 10} + {b % 10} = {ones}"
    if a < 10 and b < 10:
        return steps
    tens = a // 10 + b // 10
    carried = f" + 1 = {tens + 1}" if ones > 9 else f" = {tens}"
    carry = ", carry 1" if ones > 9 else ""
    return f"Ones: {steps}{carry}. Tens: {a // 10} + {b // 10}{carried}."


def subtract_working(a, b):
    if a < b:
        return f"{a} is less than {b}. {b} - {a}: {subtract_working(b, a)}"
    borrow = a % 10 < b % 10
    top = a % 10 + (10 if borrow else 0)
    steps = f"{top} - {b % 10} = {top - b % 10}"
    if a < 10:
        return steps
    tens = a // 10 - b // 10
    taken = f" - 1 = {tens - 1}" if borrow else f" = {tens}"
    note = ", borrow 1" if borrow else ""
    return f"Ones: {steps}{note}. Tens: {a // 10} - {b // 10}{taken}."


def arithmetic(rng):
    a, b = rng.randint(0, 99), rng.randint(0, 99)
    if rng.random() < 0.15:
        a, b = rng.randint(0, 12), rng.randint(0, 12)
    if rng.random() < 0.5:
        forms, sign, result, working = ADD, "+", a + b, add_working(a, b)
    else:
        if a < b and rng.random() < 0.5:
            a, b = b, a
        forms, sign, result, working = SUBTRACT, "-", a - b, subtract_working(a, b)
    ask = rng.choice(forms[:3] + forms).format(a=a, b=b)
    answer = f"{a} {sign} {b} = {result}."
    return Case("arithmetic", f"{a} {sign} {b}", ask, answer, working)


COPY = [
    "Repeat: {}",
    "Copy: {}",
    "Repeat after me: {}",
    "Copy these words: {}",
    "Repeat these words: {}",
    "Say: {}",
    "Write these words again: {}",
    "Echo: {}",
    "Repeat the words: {}",
    "Say {}",
    "Copy the words {}",
]
REVERSE = [
    "Reverse: {}",
    "Reverse the words: {}",
    "Reverse these words: {}",
    "Say backwards: {}",
    "Write these words in reverse order: {}",
    "Reverse the order of these words: {}",
    "Reverse the words {}",
    "Put these words in reverse order: {}",
]
COUNT = [
    "Count: {}",
    "Count the words: {}",
    "Count these words: {}",
    "How many words: {}",
    "How many words are here: {}",
    "How many words are in this list: {}",
    "Count the words in this list: {}",
    "How many words are there: {}",
]


def _words(rng, least, most):
    """Some words and the text that lists them."""
    words = pools.words(rng, rng.randint(least, most))
    joint = rng.choice((" ", " ", ", "))
    return words, joint


def _numbered(words):
    return ", ".join(f"{i} {word}" for i, word in enumerate(words, 1))


def copying(rng):
    words, joint = _words(rng, 1, 8)
    if joint == " ":
        words = pools.text(rng, len(words))
    text = joint.join(words)
    ask = rng.choice(COPY).format(text)
    return Case("copying", "copy " + text, ask, text, "I repeat the words.", exact=True)


def reversing(rng):
    words, joint = _words(rng, 2, 6)
    # Common words only: the order is the task, not the spelling.
    words = rng.choices(pools.WORDS, k=len(words))
    ask = rng.choice(REVERSE).format(joint.join(words))
    backwards = words[::-1]
    numbered = [f"{i} {word}" for i, word in enumerate(words, 1)]
    thought = f"Forwards: {', '.join(numbered)}. Backwards: {', '.join(numbered[::-1])}."
    return Case(
        "reversing", "reverse " + " ".join(words), ask, joint.join(backwards), thought, exact=True
    )


def counting(rng):
    words, joint = _words(rng, 1, 10)
    ask = rng.choice(COUNT).format(joint.join(words))
    answer = "There is 1 word." if len(words) == 1 else f"There are {len(words)} words."
    return Case(
        "counting", "count " + " ".join(words), ask, answer, _numbered(words) + ".", exact=True
    )


def _json_value(key, rng):
    if key in pools.NUMBER_KEYS:
        return rng.randint(1, 99) if key != "year" else rng.randint(1900, 2030)
    if key in pools.BOOL_KEYS:
        return rng.random() < 0.5
    if key == "name":
        return pools.name(rng)
    if key == "city":
        return pools.city(rng)
    return rng.choice(pools.KEY_WORDS[key])


def _listed(parts):
    if len(parts) == 1:
        return parts[0]
    return ", ".join(parts[:-1]) + " and " + parts[-1]


JSON_OBJECT = [
    "Give me a JSON object with {}.",
    "Write a JSON object with {}.",
    "Make a JSON object with {}.",
    "Return JSON with {}.",
    "I need a JSON object with {}.",
    "Write JSON for {}.",
    "Create JSON with {}.",
    "Answer in JSON: {}",
    "JSON with {}",
]
JSON_LIST = [
    "Give me a JSON array of {}.",
    "Write a JSON array of {}.",
    "Make a JSON list of {}.",
    "Return a JSON array with {}.",
    "Write a JSON list with {}.",
]


def json_answer(rng):
    if rng.random() < 0.22:
        words = rng.sample(pools.WORDS, rng.randint(2, 5))
        ask, value = rng.choice(JSON_LIST).format(_listed(words)), words
    else:
        value = _json_object(rng)
        joint = rng.choice((" ", " ", " ", "=", ": ", " is ", " set to "))
        parts = [
            f"{k}{joint}{v if not isinstance(v, bool) else str(v).lower()}"
            for k, v in value.items()
        ]
        ask = rng.choice(JSON_OBJECT).format(_listed(parts))
    text = json.dumps(value)
    return Case("json", text, ask, text, "I write JSON.", exact=True)


def _json_object(rng):
    if rng.random() < 0.3:
        keys = rng.choice((["name", "age"], ["name", "city"], ["name", "age", "city"]))
    else:
        keys = rng.sample(pools.KEYS + pools.BOOL_KEYS, rng.randint(1, 4))
    return {key: _json_value(key, rng) for key in keys}


STORY_ASK = [
    "Tell me a story about {}.",
    "Tell me a short story about {}.",
    "Write a story about {}.",
    "Write a short story about {}.",
    "I want a story about {}.",
    "Tell a story about {}.",
    "Please write a short story about {}.",
    "Make up a story about {}.",
]
PLOTS = [
    "One day {name} found {a_find} near the {home}. {name} showed the {find} to {a_friend}."
    " They shared {food} and became good friends.",
    "One day {name} lost {a_find}. {a_friend_cap} helped to look for it."
    " They found the {find} {place} and were very glad.",
    "One night {name} heard a strange sound. It was {a_friend} with {a_find}."
    " {name} laughed, and they ate {food} together.",
]


STORY_START = re.compile(r"Once upon a time there was (an? [a-z ]+) named ([A-Z][a-z]*)\. ")


def story(rng):
    row = rng.choice(pools.STORY_ANIMALS)
    trait, name = rng.choice(pools.STORY_TRAITS), rng.choice(pools.NAMES)
    hero = facts.with_article(f"{trait} {row[0]}" if rng.random() < 0.5 else row[0])
    named = rng.random() < 0.5
    ask = rng.choice(STORY_ASK).format(f"{hero} named {name}" if named else hero)
    text = story_text(hero, row, name, rng.choice(pools.STORY_FINDS), rng.choice(PLOTS))
    return Case("stories", f"story {hero} {name}", ask, text, "I tell a short story.")


OPEN_STORY_ASK = [
    "Tell me a story.",
    "Tell me a short story.",
    "Tell me a story!",
    "Write a story.",
    "Write a short story.",
    "I want a story.",
    "Tell a story",
    "Can you tell me a story?",
]


def open_story(rng):
    """A story about anyone."""
    case = story(rng)
    return replace(case, ask=rng.choice(OPEN_STORY_ASK))


def told_story(rng):
    """A story without a chat, to be continued from anywhere."""
    case = story(rng)
    words = case.answer.split(" ")
    cut = rng.choice((4, 4, rng.randint(2, len(words) - 2)))
    start, rest = " ".join(words[:cut]), " " + " ".join(words[cut:])
    return Case("stories", case.key, start, rest, raw=True)


def story_text(hero, row, name, find, plot):
    _, home, food, friend = row
    place = ("on the " if home in pools.HOMES_ON else "in the ") + home
    a_friend = facts.with_article(friend)
    first = (
        f"Once upon a time there was {hero} named {name}. {name} lived {place} and liked {food}. "
    )
    return first + plot.format(
        name=name,
        find=find,
        a_find=facts.with_article(find),
        home=home,
        place=place,
        food=food,
        a_friend=a_friend,
        a_friend_cap=facts.capitalised(a_friend),
    )


def same_story(wanted, told, keep_name):
    """Whether `told` is a whole story about the hero of `wanted`, whatever its plot."""
    start, begun = STORY_START.match(wanted), STORY_START.match(told)
    if not begun or begun[1] != start[1] or (keep_name and begun[2] != start[2]):
        return False
    row = next(r for r in pools.STORY_ANIMALS if r[0] == start[1].split(" ")[-1])
    return any(
        told == story_text(begun[1], row, begun[2], find, plot)
        for find in pools.STORY_FINDS
        for plot in PLOTS
    )
