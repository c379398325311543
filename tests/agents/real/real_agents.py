"""The agents: how each is set up without the network, started and continued, and what it reports.

Each has a home of its own, with the settings of docs/agents.md.
"""

import json
import os
from pathlib import Path

from forcing import Call, Counts, Say

ROOT = Path(__file__).parents[3]
NODE = ROOT / os.environ.get("AGENTS", "target/agents") / "node_modules/.bin"
PYTHON = ROOT / "target/venv-aider/bin"
DONE = "Done."
COPY = "cp notes.txt copy.txt"
CONTEXT, ANSWER = 65536, 8192


class Agent:
    """An agent with its home and its working folder."""

    folder = NODE
    program = None
    continues = True  # whether it can take up the last conversation
    # In which of the loop of tools and the continued conversation its prompts only grow.
    grows = ("loop", "later")
    sums_up = False  # whether it reports the usage of the whole conversation
    reports_cached = True

    def __init__(self, home, work, address):
        self.home, self.work, self.address = home, work, address
        for path, text in self.files().items():
            path = home / path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text if isinstance(text, str) else json.dumps(text))

    @classmethod
    def binary(cls):
        return cls.folder / cls.program

    def files(self):
        """Settings in the home."""
        return {}

    def environment(self):
        return {}

    def plan(self):
        """The calls of the first prompt, and the answer."""
        raise NotImplementedError

    def command(self, prompt, later):
        """The command line of a prompt, which may continue the last conversation."""
        raise NotImplementedError

    def reported(self, output):
        """The usage that the agent reports for a prompt."""
        raise NotImplementedError


def events(output):
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


class Codex(Agent):
    program = "codex"
    sums_up = True

    def files(self):
        settings = f"""
            model = "any"
            model_provider = "gannet"
            model_context_window = {CONTEXT}
            check_for_update_on_startup = false
            analytics.enabled = false
            features = {{ plugins = false, apps = false }}
            [model_providers.gannet]
            name = "Gannet"
            base_url = "{self.address}/v1"
            wire_api = "responses"
        """
        return {".codex/config.toml": settings}

    def plan(self):
        patch = ["*** Begin Patch", "*** Update File: notes.txt", "@@", " alpha", "-beta", "+gamma"]
        patch = "\n".join(["apply_patch <<'EOF'", *patch, "*** End Patch", "EOF", ""])
        commands = zip((10000, 20000, 30000), ("cat notes.txt", patch, COPY))
        calls = [{"yield_time_ms": time, "cmd": command} for time, command in commands]
        return [*(Call("exec_command", arguments) for arguments in calls), Say(DONE)]

    def command(self, prompt, later):
        flags = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        return ["exec", *(["resume", "--last"] if later else []), *flags, prompt]

    def reported(self, output):
        [usage] = [event["usage"] for event in events(output) if event["type"] == "turn.completed"]
        cached = usage["cached_input_tokens"]
        return Counts(usage["input_tokens"], cached, usage["output_tokens"])


class ClaudeCode(Agent):
    program = "claude"
    sums_up = True

    def environment(self):
        return {
            "ANTHROPIC_BASE_URL": self.address,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def plan(self):
        file = str(self.work / "notes.txt")
        change = {"file_path": file, "old_string": "beta", "new_string": "gamma"}
        calls = [Call("Read", {"file_path": file}), Call("Edit", change)]
        return [*calls, Call("Bash", {"command": COPY}), Say(DONE)]

    def command(self, prompt, later):
        flags = ["--model", "any", "--output-format", "json", "--allowedTools", "Read,Edit,Bash"]
        return [*(["--continue"] if later else []), "-p", prompt, *flags]

    def reported(self, output):
        [result] = events(output)
        [usage] = result["modelUsage"].values()
        cached, written = usage["cacheReadInputTokens"], usage["cacheCreationInputTokens"]
        return Counts(usage["inputTokens"] + cached + written, cached, usage["outputTokens"])


class OpenCode(Agent):
    program = "opencode"

    def files(self):
        model = {"name": "any", "limit": {"context": CONTEXT, "output": ANSWER}}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{self.address}/v1", "apiKey": "none"},
            "models": {"any": model},
        }
        settings = {"autoupdate": False, "share": "disabled", "provider": {"gannet": provider}}
        return {".config/opencode/opencode.json": settings}

    def environment(self):
        return {"OPENCODE_DISABLE_MODELS_FETCH": "1", "NPM_CONFIG_OFFLINE": "true"}

    def plan(self):
        file = str(self.work / "notes.txt")
        change = {"filePath": file, "oldString": "beta", "newString": "gamma"}
        command = {"command": COPY, "description": "Copies the notes"}
        calls = [Call("read", {"filePath": file}), Call("edit", change), Call("bash", command)]
        return [*calls, Say(DONE)]

    def command(self, prompt, later):
        flags = ["--format", "json", "--auto", "--title", "notes", "--model", "gannet/any"]
        return ["run", *(["--continue"] if later else []), *flags, prompt]

    def reported(self, output):
        steps = [event["part"] for event in events(output) if event["type"] == "step_finish"]
        return sum(map(self.counts, (step["tokens"] for step in steps)), Counts())

    def counts(self, tokens):
        cached, written = tokens["cache"]["read"], tokens["cache"]["write"]
        output = tokens["output"] + tokens["reasoning"]
        return Counts(tokens["input"] + cached + written, cached, output)


class QwenCode(Agent):
    program = "qwen"
    grows = ("loop",)  # a reminder of the date is gone later
    sums_up = True

    def files(self):
        settings = {
            "general": {"enableAutoUpdate": False},
            "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
        }
        return {".qwen/settings.json": settings}

    def environment(self):
        return {"OPENAI_BASE_URL": f"{self.address}/v1", "OPENAI_API_KEY": "none"}

    def plan(self):
        file = str(self.work / "notes.txt")
        change = {"file_path": file, "old_string": "beta", "new_string": "gamma"}
        command = {"command": COPY, "is_background": False}
        calls = [Call("read_file", {"file_path": file}), Call("edit", change)]
        return [*calls, Call("run_shell_command", command), Say(DONE)]

    def command(self, prompt, later):
        flags = ["--auth-type", "openai", "--model", "any", "--output-format", "json", "--yolo"]
        return [*(["--continue"] if later else []), *flags, prompt]

    def reported(self, output):
        usage = json.loads(output)[-1]["usage"]
        cached = usage["cache_read_input_tokens"]
        return Counts(usage["input_tokens"], cached, usage["output_tokens"])


class Pi(Agent):
    """pi, over chat completions; its subclasses use the other protocols. In chat completions it
    takes the tokens that were written to the cache for a part of the cached ones, as OpenRouter
    counts, and reports fewer as cached than were."""

    program = "pi"
    reports_cached = False
    api = "openai-completions"
    base = "/v1"

    def files(self):
        provider = {
            "api": self.api,
            "baseUrl": self.address + self.base,
            "apiKey": "none",
            "models": [{"id": "any", "contextWindow": CONTEXT, "maxTokens": ANSWER}],
        }
        return {".pi/agent/models.json": {"providers": {"gannet": provider}}}

    def environment(self):
        return {"PI_OFFLINE": "1"}

    def plan(self):
        change = {"path": "notes.txt", "edits": [{"oldText": "beta", "newText": "gamma"}]}
        calls = [Call("read", {"path": "notes.txt"}), Call("edit", change)]
        return [*calls, Call("bash", {"command": COPY}), Say(DONE)]

    def command(self, prompt, later):
        flags = ["--mode", "json", "--provider", "gannet", "--model", "any"]
        return [*(["--continue"] if later else []), *flags, "-p", prompt]

    def reported(self, output):
        [end] = [event for event in events(output) if event["type"] == "agent_end"]
        answers = [message for message in end["messages"] if message["role"] == "assistant"]
        return sum(map(self.counts, (answer["usage"] for answer in answers)), Counts())

    def counts(self, usage):
        cached, written = usage["cacheRead"], usage["cacheWrite"]
        return Counts(usage["input"] + cached + written, cached, usage["output"])


class PiResponses(Pi):
    reports_cached = True
    api = "openai-responses"


class PiMessages(Pi):
    reports_cached = True
    api = "anthropic-messages"
    base = ""


class Aider(Agent):
    """aider's edits are text, and its command is the one that tests them: the command fails after
    the first edit, and its output leads to the second. The text of the file moves to the end of
    the conversation with every prompt, so that prompts agree up to there alone."""

    folder = PYTHON
    program = "aider"
    continues = False
    grows = ()
    reports_cached = False

    def files(self):
        model = {"max_input_tokens": CONTEXT, "litellm_provider": "openai", "mode": "chat"}
        return {"models.json": {"openai/any": model}}

    def environment(self):
        address = f"{self.address}/v1"
        local = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        return {"OPENAI_API_BASE": address, "OPENAI_API_KEY": "none", **local}

    def plan(self):
        return [Say(replacement("beta", "gama")), Say(replacement("gama", "gamma"))]

    def command(self, prompt, later):
        on = ["--auto-test", "--yes-always", "--edit-format", "diff", "--model", "openai/any"]
        off = ["stream", "git", "pretty", "check-update", "show-model-warnings", "analytics"]
        settings = {
            "--model-metadata-file": self.home / "models.json",
            "--analytics-log": self.home / "events",  # of events that are sent nowhere
            "--test-cmd": f"{COPY} && grep gamma notes.txt",
            "--message": prompt,
        }
        off = [f"--no-{name}" for name in off]
        return [*on, *off, *(str(word) for pair in settings.items() for word in pair), "notes.txt"]

    def reported(self, output):
        log = events((self.home / "events").read_text())
        sent = [event["properties"] for event in log if event["event"] == "message_send"]
        counts = (Counts(it["prompt_tokens"], 0, it["completion_tokens"]) for it in sent)
        return sum(counts, Counts())


def replacement(old, new):
    """An edit in aider's form."""
    lines = ["<<<<<<< SEARCH", old, "=======", new, ">>>>>>> REPLACE"]
    return "\n".join(["notes.txt", "```", *lines, "```", ""])


AGENTS = [Codex, ClaudeCode, OpenCode, QwenCode, Pi, PiResponses, PiMessages, Aider]
