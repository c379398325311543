"""From the second turn on, the prompt of the previous turn is found in the cache, in whatever form
an agent sends back earlier answers, and also after it rewinds or branches.

Run like tests/openai. The goal is 99 %; a failure reports what a conversation loses.
"""

import copy
import signal
import time

import pytest
from serving import Server, wide_model
from speakers import AGENTS, ClaudeCode, Codex, Habits, OpenCode

TURNS = 20
HIT = 0.99
HABITS = [
    Habits(),
    Habits(content="null"),
    Habits(reserialised=True),
    Habits(reasoning=False),
    Habits(content="absent", reserialised=True),
    Habits(reasoning=False, content="empty", reserialised=True),
]
QUESTIONS = ["Read todo.txt.", "What is the weather in Paris?", "And now?", "Go on, please."]


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    return wide_model(tmp_path_factory.mktemp("wide"))


@pytest.fixture(scope="module")
def server(wide):
    server = Server("--kv-memory", "1GiB", model=wide)
    yield server
    server.stop()


class Talk:
    """A conversation of twenty turns, with the body and the answer of each."""

    def __init__(self, agent):
        self.agent = agent
        self.bodies, self.turns, self.lengths = [], [], []
        agent.user(QUESTIONS[0])
        for number in range(TURNS):
            # Three forced calls, then the model's own choice.
            force = agent.tools and number % 4 < 3
            body = agent.body(force)
            turn = agent.send(body)
            if force:
                assert turn.calls, turn
            self.bodies.append(copy.deepcopy(body))
            self.turns.append(turn)
            self.lengths.append(len(agent.history))
            agent.assistant(turn, HABITS[number % len(HABITS)])
            if turn.calls:
                texts = [f"{number}.{at}: nothing of note" for at in range(len(turn.calls))]
                agent.results(turn, texts)
            else:
                agent.user(QUESTIONS[number // 4 % len(QUESTIONS)])


@pytest.fixture(scope="module", params=AGENTS, ids=lambda agent: agent.__name__)
def talk(request, server):
    return Talk(request.param(server))


def check_hit(turn, before, what):
    share = turn.cached / before.prompt
    assert share >= HIT, f"{what}: {turn.cached} cached of the {before.prompt} tokens before"


def test_every_turn_finds_the_prompt_of_the_turn_before(talk):
    lost = [
        f"turn {at + 2}: {turn.cached} cached of {before.prompt}"
        for at, (before, turn) in enumerate(zip(talk.turns, talk.turns[1:]))
        if turn.cached < HIT * before.prompt
    ]
    assert not lost, "\n".join(lost)
    assert all(a.prompt < b.prompt for a, b in zip(talk.turns, talk.turns[1:]))


def test_a_turn_that_is_sent_again_is_found_whole(talk):
    for at in (TURNS - 1, TURNS // 2, 0):
        turn = talk.agent.send(talk.bodies[at])
        assert turn.prompt == talk.turns[at].prompt
        assert turn.cached >= turn.prompt - 1, f"turn {at + 1}"


def test_a_conversation_that_goes_back_is_found_up_to_there(talk):
    for at in (15, 7, 3):
        agent = talk.agent.branch(talk.lengths[at])
        check_hit(agent.ask(), talk.turns[at], f"back to turn {at + 1}")


def test_a_branch_is_found_up_to_where_it_leaves(talk):
    for at in (11, 4):
        agent = talk.agent.branch(talk.lengths[at])
        agent.user("Stop. Something else: who are you?")
        first = agent.ask()
        check_hit(first, talk.turns[at - 1], f"branch at turn {at + 1}")
        agent.assistant(first, Habits())
        if first.calls:
            agent.results(first, ["nothing"] * len(first.calls))
        else:
            agent.user("Go on.")
        check_hit(agent.ask(), first, f"second turn of the branch at turn {at + 1}")
        # The other branch is still cached.
        resent = talk.agent.send(talk.bodies[-1])
        assert resent.cached >= resent.prompt - 1


@pytest.mark.parametrize("kind", [ClaudeCode, Codex, OpenCode], ids=lambda kind: kind.__name__)
def test_parallel_calls_are_found_again(kind, server, monkeypatch):
    monkeypatch.setattr("speakers.RULES", "Be brief.")
    agent = kind(server)
    agent.parallel = True
    agent.user("What is the weather in Paris and in Rome?")
    first = agent.ask(force=True)
    agent.assistant(first, Habits(reserialised=True))
    agent.results(first, ["rain"] * len(first.calls))
    second = agent.ask(force=True)
    check_hit(second, first, "after the first calls")
    agent.assistant(second, Habits(reasoning=False))
    agent.results(second, ["sun"] * len(second.calls))
    agent.user("And the other one?")
    check_hit(agent.ask(), second, "after the second calls")
    assert len(first.calls) > 1 or len(second.calls) > 1, (first, second)


class Restarted:
    """A server that ends before every request, by turns as asked and by SIGKILL, and starts again
    over the same folder."""

    def __init__(self, model, *options):
        self.model, self.options = model, ("--kv-memory", "1GiB", *options)
        self.server = Server(*self.options, model=self.model)
        self.requests = 0

    def post(self, path, body):
        self.requests += 1
        if self.requests % 2:
            self.server.stop()
        else:
            # Turns are written within milliseconds; answers do not wait for that.
            time.sleep(0.3)
            self.server.process.send_signal(signal.SIGKILL)
            self.server.process.wait()
        self.server = Server(*self.options, model=self.model)
        return self.server.post(path, body)

    def stats(self):
        return self.server.stats()


def shape(talk):
    """What the turns were, without the ids of their calls."""
    calls = lambda turn: [call[1:] for call in turn.calls]
    return [(turn.prompt, turn.text, calls(turn)) for turn in talk.turns]


@pytest.mark.parametrize("talk", [ClaudeCode, Codex, OpenCode], indirect=True)
def test_a_talk_with_a_restart_between_any_two_turns_is_the_same(talk, wide, tmp_path):
    restarted = Restarted(wide, "--state-dir", str(tmp_path))
    again = Talk(type(talk.agent)(restarted))
    restarted.server.stop()
    assert shape(again) == shape(talk)
