"""docs/agents.md has the settings with which the agents are tested."""

import json
import re
import tomllib

import pytest
from real_agents import ROOT, Aider, ClaudeCode, Codex, OpenCode, Pi, QwenCode

ADDRESS = "http://127.0.0.1:8080"
PAGE = (ROOT / "docs/agents.md").read_text()
READERS = {"json": json.loads, "toml": tomllib.loads}
PACKAGES = json.loads((ROOT / "tests/agents/real/package.json").read_text())["dependencies"]
REQUIRED = (ROOT / "tests/agents/real/requirements.txt").read_text()


def blocks(kind):
    return [READERS[kind](text) for text in re.findall(rf"```{kind}\n(.*?)```", PAGE, re.S)]


@pytest.mark.parametrize("kind", [Codex, ClaudeCode, OpenCode, QwenCode, Pi, Aider])
def test_settings_are_on_the_page(kind, tmp_path):
    agent = kind(tmp_path, tmp_path, ADDRESS)
    for path, settings in agent.files().items():
        if isinstance(settings, str):
            assert tomllib.loads(settings) in blocks("toml"), path
        else:
            assert settings in blocks("json"), path
    exported = " ".join(re.findall(r"^export (.*)$", PAGE, re.M)).split()
    for name, value in agent.environment().items():
        assert f"{name}={value}" in exported


def test_versions_are_on_the_page():
    versions = re.findall(r"^\| [\w ]+ \| ([\d.]+) \|", PAGE, re.M)
    [aider] = re.findall(r"^aider-chat==(.*)$", REQUIRED, re.M)
    assert sorted(versions) == sorted([*PACKAGES.values(), aider])
