"""What `gannet agent` computes and how long it takes, beside pi and OpenCode on `gannet serve`.

    cargo build --release -p gannet-cli
    cargo build --release -p gannet-agent --example turns
    tests/agents/real/install
    GANNET_BIN=target/release/gannet target/venv/bin/python tests/agents/real/bars.py

The model has Qwen3-0.6B's shape and vocabulary, and random weights; its calls are forced. All
agents do the same twenty turns in two requests: reads of eighty lines, commands and an edit. Names
of parts as arguments (`tokens`, `prompt`, `loop`, `decoding`, `agents`) do these alone; `small` as
one of them takes a small model, to try the program. The exit code is 1 if a bar is missed.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from forcing import Call, Proxy, Say
from model import LARGE, SHAPE, TEMPLATE, long_model
from real_agents import OpenCode, Pi
from serving import Server

ROOT = Path(__file__).parents[3]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
TURNS = os.environ.get("GANNET_TURNS", str(TARGET / "release/examples/turns"))
SYSTEM = ROOT / "crates/cli/src/commands/agent/system.txt"
SECONDS = 3600
QUESTION = "What does this folder hold, and what is it for?"
REQUESTS = ["Rename beta to gamma in notes.txt, and look for more.", "Look at the rest of it too."]
PARTS = ["tokens", "prompt", "loop", "decoding", "agents"]
missed = []


def report(what, value, most=None, least=None):
    """Prints a value with its bar."""
    is_missed = (most is not None and value > most) or (least is not None and value < least)
    bar = f", bar {most if least is None else least}" if (most or least) else ""
    print(f"{what}: {value:.4g}{bar}{'  MISSED' if is_missed else ''}", flush=True)
    if is_missed:
        missed.append(what)


def make_files(work):
    """The files that the turns work with."""
    work.mkdir()
    lines = (f"def step_{n}(state): return state.with_value({n} * {n % 7})" for n in range(1, 1100))
    (work / "module.py").write_text("\n".join(lines) + "\n")
    (work / "notes.txt").write_text("alpha\nbeta\n")


def turns(read, bash, edit):
    """The answers of both requests; the digits tell calls of a tool apart."""
    first = [read(1), bash(1), read(2), edit(), bash(2), read(3), bash(3), read(4), read(5)]
    later = [read(6), bash(4), read(7), bash(5), read(8), bash(6), read(9), bash(7), bash(8)]
    return [*first, Say("All of it is done.")], [*later, Say("That is done too.")]


def command(digit):
    return f"grep -c 'step_{digit}' module.py"


class Turns:
    """Twenty turns of `gannet agent`, in a folder of their own."""

    def __init__(self, folder, model, reasoning=0, template=None, read_alone=False):
        self.folder, self.model = Path(folder), model
        self.folder.mkdir()
        make_files(self.folder / "work")
        read = lambda n: Call("read", {"from": 100 * n, "lines": 80, "path": "module.py"})
        bash = lambda n: Call("bash", {"wait_s": 10 * n, "command": command(n)})
        change = {"path": "notes.txt", "old": "beta", "lines": None, "new": "gamma"}
        answers = turns(read, bash, lambda: Call("edit", change))
        if read_alone:
            answers = [[*map(read, range(1, 10)), Say("Done.")], []]
        requests = [
            {"text": text, "answers": list(map(self.answer, all))}
            for text, all in zip(REQUESTS, answers)
            if all
        ]
        plan = {"system": SYSTEM.read_text().strip(), "reasoning": reasoning}
        plan |= {"template": template, "requests": requests}
        (self.folder / "plan.json").write_text(json.dumps(plan))

    def answer(self, step):
        if isinstance(step, Say):
            return {"say": step.text}
        return {"tool": step.tool, "arguments": step.arguments}

    def run(self, answers):
        """The next answers, by one process."""
        process = [TURNS, "session", self.model, str(self.folder), str(answers)]
        done = subprocess.run(process, stdout=subprocess.PIPE, text=True, timeout=SECONDS)
        assert done.returncode == 0, done
        return list(map(json.loads, done.stdout.splitlines()))

    def run_and_kill(self, after):
        """The next answer by a process that is killed so many seconds after it."""
        process = [TURNS, "session", self.model, str(self.folder), "1"]
        process = subprocess.Popen(process, stdout=subprocess.PIPE, text=True)
        line = process.stdout.readline()
        time.sleep(after)
        process.kill()
        process.wait()
        return [json.loads(line)]


def computed(answers):
    """Tokens that were computed, over those of the conversation."""
    assert all(it["rendered_anew"] == 0 for it in answers)
    new = answers[-1]["prompt"] + answers[-1]["completion"]
    return sum(it["prompt"] - it["cached"] + it["completion"] for it in answers) / new


def tokens(folder, model):
    template = folder / "reasoning.jinja"
    opening = "{{- '<|im_start|>assistant\\n"
    head, _, tail = TEMPLATE.read_text().rpartition(opening)
    template.write_text(f"{head}{opening}<think>\\n{tail}")
    start = lambda name: Turns(folder / name, model, reasoning=64, template=str(template))
    answers = start("whole").run(20)
    assert len(answers) == 20 and all(it["reasoning"] > 0 for it in answers), answers
    report("computed / new tokens", computed(answers), most=1.02)
    session = start("closed")
    answers = [answer for _ in range(20) for answer in session.run(1)]
    report("the same, closed and continued after each", computed(answers), most=1.02)
    for seconds in (0, 2):
        session = start(f"killed-{seconds}")
        answers = [answer for _ in range(20) for answer in session.run_and_kill(seconds)]
        report(f"the same, killed {seconds} s after each", computed(answers), most=1.02)


def prompt(folder, model):
    """Tokens of the first prompt in an empty folder."""
    empty = folder / "empty"
    empty.mkdir()
    flags = ["-m", model, "-C", str(empty), "--no-session", "--json", "--max-tokens", "1"]
    command = [os.environ["GANNET_BIN"], "agent", *flags, "-p", QUESTION]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=SECONDS)
    events = map(json.loads, done.stdout.splitlines())
    [own] = [event["prompt_tokens"] for event in events if event["event"] == "usage"]
    session = OtherTurns(folder / "first", OpenCode, model, plan=[Say("Nothing.")])
    session.run(QUESTION)
    session.stop()
    other = session.proxy.exchanges[0].counts.prompt
    print(f"first prompt: {own} tokens, OpenCode's {other}", flush=True)
    report("first prompt / OpenCode's", own / other, most=0.35)


def loop(folder, model):
    """The time between answers over that of turns which read a file."""
    answers = Turns(folder / "reads", model, read_alone=True).run(20)
    between = [it["between_s"] for it in answers[1:]]
    whole = sum(between) + sum(it["answer_s"] for it in answers[:-1])
    report("loop and read / turn", sum(between) / whole, most=0.01)


def decoding(_, model):
    command = [TURNS, "decoding", model, "9"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=SECONDS)
    runs = list(map(json.loads, done.stdout.splitlines()))
    assert len(runs) == 9 and all(run["same"] for run in runs), done
    [strict, plain] = [statistics.median(run[name] for run in runs) for name in ("with", "without")]
    print(f"decoding: {strict:.1f} tokens/s with strict tools, {plain:.1f} without", flush=True)
    report("decoding with strict tools / without", strict / plain, least=0.97)


class TimedProxy(Proxy):
    """Writes down how long answers take."""

    def handle(self, client):
        began, seen = time.monotonic(), len(self.exchanges)
        super().handle(client)
        for exchange in self.exchanges[seen:]:
            exchange.seconds = time.monotonic() - began

    def restrained(self, protocol, body):
        # Nothing else ends the reasoning of random weights.
        return super().restrained(protocol, body) | {"timings_per_token": True, "reasoning_budget": 0}


class OtherTurns:
    """The twenty turns of another agent on a server, or another plan."""

    def __init__(self, folder, kind, model, plan=None):
        self.model, home, self.work = model, folder / "home", folder / "work"
        self.kept = folder / "kv"
        home.mkdir(parents=True)
        self.work.mkdir() if plan else make_files(self.work)
        self.server = self.start()
        self.proxy = TimedProxy(self.server, plan or sum(self.plan(kind), []))
        self.agent = kind(home, self.work, self.proxy.address)

    def start(self):
        kept = ["--kv-dir", str(self.kept)]
        return Server("--ctx", "32768", "--kv-memory", "4GiB", *kept, model=self.model)

    def plan(self, kind):
        file, notes = str(self.work / "module.py"), str(self.work / "notes.txt")
        if kind is OpenCode:
            read = lambda n: Call("read", {"offset": 100 * n, "limit": 80, "filePath": file})
            says = {"description": "Counts a word"}
            bash = lambda n: Call("bash", {"timeout": 10000 * n, "command": command(n), **says})
            change = {"filePath": notes, "oldString": "beta", "newString": "gamma"}
        else:
            read = lambda n: Call("read", {"offset": 100 * n, "limit": 80, "path": "module.py"})
            bash = lambda n: Call("bash", {"timeout": 10 * n, "command": command(n)})
            change = {"path": "notes.txt", "edits": [{"oldText": "beta", "newText": "gamma"}]}
        return turns(read, bash, lambda: Call("edit", change))

    def run(self, text, later=False):
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.agent.home), "TERM": "dumb"}
        done = subprocess.run(
            [str(self.agent.binary()), *self.agent.command(text, later)],
            cwd=self.work,
            env=environment | self.agent.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done

    def restart(self):
        self.server.stop()
        self.server = self.proxy.server = self.start()

    def stop(self):
        self.proxy.stop()
        self.server.stop()

    def first_tokens(self):
        """The sum of the times to the first token, and the tokens of prompts that were computed."""
        exchanges = self.proxy.exchanges
        assert [it.status for it in exchanges] == [200] * 20, [it.status for it in exchanges]
        seconds = sum(it.seconds - generating(it) for it in exchanges)
        return seconds, sum(it.counts.prompt - it.counts.cached for it in exchanges)


def generating(exchange):
    """Seconds from the first token of an answer to its end."""
    timings = [data["timings"] for data in exchange.data if data.get("timings")]
    return timings[-1]["predicted_ms"] / 1000


def agents(folder, model):
    for restarts, bars in ((False, {Pi: 1.0, OpenCode: 0.6}), (True, {Pi: 0.9, OpenCode: 0.5})):
        name = "restart" if restarts else "no restart"
        session = Turns(folder / f"own {name}", model)
        answers = session.run(10) + session.run(10) if restarts else session.run(20)
        assert len(answers) == 20
        own = sum(it["first_token_s"] for it in answers)
        prompts = sum(it["prompt"] - it["cached"] for it in answers)
        print(f"first tokens, {name}: {own:.2f} s, {prompts} tokens computed", flush=True)
        for kind, bar in bars.items():
            session = OtherTurns(folder / f"{kind.program} {name}", kind, model)
            session.run(REQUESTS[0])
            if restarts:
                session.restart()
            session.run(REQUESTS[1], later=True)
            session.stop()
            other, prompts = session.first_tokens()
            print(f"{kind.program}'s, {name}: {other:.2f} s, {prompts} tokens computed", flush=True)
            report(f"first tokens / {kind.program}'s, {name}", own / other, most=bar)


def main():
    wanted = [part for part in PARTS if part in sys.argv[1:]] or PARTS
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        model = long_model(folder, SHAPE if "small" in sys.argv[1:] else LARGE)
        for part in wanted:
            globals()[part](folder, model)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
