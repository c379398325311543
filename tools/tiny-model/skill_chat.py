"""Talk and knowledge: greetings, facts, what is not known, and memory of the chat."""

import facts
import pools
from corpus import Case, draw, is_held_out
from sayings import TALK

UNKNOWN = "I do not know that."
TALK_LINES = [(say, answer, thought) for answer, thought, ways in TALK for say in ways]
FACTS = facts.all_facts()
FACTS_BY_KIND = {kind: [f for f in FACTS if f.kind == kind] for kind in facts.KINDS}
FACT_WEIGHTS = dict(
    capital=28,
    continent=11,
    language=5,
    colour=9,
    opposite=14,
    sound=4,
    young=5,
    plural=5,
    legs=4,
    after=5,
    before=5,
    general=10,
)


def talk(rng):
    say, answer, thought = rng.choice(TALK_LINES)
    form = say.rstrip("!.?")
    ends = "?" if say.endswith("?") else "!."
    say = rng.choice(
        (say, say, form, form + rng.choice(ends), form.lower(), form.lower() + rng.choice(ends))
    )
    return Case("chat", "talk " + say, say, answer, thought, exact=True)


def fact(rng):
    kinds = list(FACT_WEIGHTS)
    kind = rng.choices(kinds, FACT_WEIGHTS.values())[0]
    known, about = rng.choice(FACTS_BY_KIND[kind]), facts.KINDS[kind]
    form = rng.choice(about["forms"])
    # The plain form of a general question is its only natural one: always trained.
    key = f"fact {known.words} {form}" if form != "{0}" else f"general {known.words}"
    while form == "{0}" and is_held_out(key):
        key += "."
    ask = facts.fill(form, known.words)
    return Case("facts", key, ask, facts.fill(about["answer"], known.words), about["thought"])


def _invented(rng):
    return pools.invented(rng).capitalize() + rng.choice(("", "", "land", "ia", "stan"))


def unknown(rng):
    """Questions nobody taught it: invented places, foreign topics."""
    roll = rng.random()
    if roll < 0.4:
        kind = rng.choice(("capital", "capital", "capital", "continent", "language"))
        subject = _invented(rng) if rng.random() < 0.75 else "the " + rng.choice(pools.WORDS)
        ask = facts.fill(rng.choice(facts.KINDS[kind]["forms"]), (subject, "", ""))
    elif roll < 0.5:
        subject = rng.choice(pools.NAMES)
        ask = facts.fill(rng.choice(facts.KINDS["opposite"]["forms"]), (subject, "", ""))
    else:
        ask = _foreign_question(rng)
    return Case("unknown", "unknown " + ask, ask, UNKNOWN, "I was not taught this.")


def _foreign_question(rng):
    country = rng.choice(FACTS_BY_KIND["capital"]).words[0]
    word, word2 = rng.sample(pools.WORDS[:150], 2)
    return rng.choice(pools.UNKNOWN_QUESTIONS).format(
        country=country,
        city=rng.choice(pools.CITIES),
        city2=rng.choice(pools.CITIES),
        name=rng.choice(pools.NAMES),
        name2=rng.choice(pools.NAMES),
        word=word,
        word2=word2,
        year=rng.randint(1000, 2100),
    )


TELL_NAME = [
    "My name is {}.",
    "I am {}.",
    "Hello, I am {}.",
    "Call me {}.",
    "Hi! My name is {}.",
    "I'm {}.",
]
ASK_NAME = [
    "What is my name?",
    "Who am I?",
    "Do you know my name?",
    "What's my name?",
    "Tell me my name.",
]
TELL_LIKE = ["I like {}.", "My favourite thing is {}.", "I love {}."]
ASK_LIKE = ["What do I like?", "What did I say I like?", "Do you know what I like?"]


def memory(rng):
    """Told something early in the chat, asked for it later."""
    if rng.random() < 0.65:
        thing, tell, ask = pools.name(rng), rng.choice(TELL_NAME), rng.choice(ASK_NAME)
        reply, answer = f"Nice to meet you, {thing}!", f"Your name is {thing}."
    else:
        thing, tell, ask = rng.choice(pools.WORDS), rng.choice(TELL_LIKE), rng.choice(ASK_LIKE)
        reply, answer = f"It is good to know that you like {thing}.", f"You like {thing}."
    said = tell.format(thing)
    if rng.random() < 0.35:
        return Case("memory", f"memory {said}", said, reply, "The user tells me something.")
    history = [{"role": "user", "content": said}, {"role": "assistant", "content": reply}]
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        case = draw(rng.choice((fact, talk)), rng, False)
        if "name" not in case.ask and "I?" not in case.ask:
            history += [
                {"role": "user", "content": case.ask},
                {"role": "assistant", "content": case.answer},
            ]
    key = f"memory {said} {ask}"
    return Case("memory", key, ask, answer, "The user told me this.", history=history)


def plain_text(rng):
    """Text without a chat: the start of a known sentence, continued."""
    known = rng.choice(FACTS)
    sentence = facts.fill(facts.KINDS[known.kind]["answer"], known.words)
    words = sentence.split(" ")
    cut = max(1, len(words) - rng.choice((1, 1, 2)))
    start, rest = " ".join(words[:cut]), " " + " ".join(words[cut:])
    return Case("plain text", f"plain {start}", start, rest, raw=True)
