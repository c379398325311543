"""The real binary accepts every `gannet` command line in the documents.

GANNET_BIN names the binary. A command line is compared with the help of its command, not run. The
chart of speeds is compared with the recorded figures.
"""

import functools
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "models/tiny/README.md"]
DOCUMENTS += sorted((ROOT / "docs").glob("**/*.md"))
PREFIXES = ("gannet ", "cargo run --release -- ")


def command_lines():
    """(document, words) of every command line in a code block."""
    for document in DOCUMENTS:
        fenced = False
        for line in document.read_text().splitlines():
            if line.startswith("```"):
                fenced = not fenced
            elif fenced:
                # Commands behind a pipe count too.
                for part in line.split(" | "):
                    prefix = next((p for p in PREFIXES if part.startswith(p)), None)
                    if prefix:
                        words = shlex.split(part[len(prefix) :], comments=True)
                        yield document.relative_to(ROOT), words


@functools.cache
def help_of(*command):
    asked = [os.environ["GANNET_BIN"], *command, "--help"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout


def takes(command, flag):
    return re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", help_of(*command)) is not None


def test_there_are_command_lines_to_check():
    assert len(list(command_lines())) > 15


@pytest.mark.parametrize("document, words", list(command_lines()), ids=lambda value: str(value)[:60])
def test_command_lines_are_taken(document, words):
    command, *rest = words
    command = [command]
    # A command may have commands of its own.
    while rest and "\nCommands:" in help_of(*command):
        command.append(rest.pop(0))
    flags = [word.split("=")[0] for word in rest if re.match(r"--?[a-z]", word)]
    missing = [flag for flag in flags if not takes(command, flag)]
    assert not missing, f"{document}: gannet {' '.join(command)} has no {', '.join(missing)}"


def test_every_command_is_in_the_readme():
    asked = [os.environ["GANNET_BIN"], "--help"]
    text = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    listing = text.split("Commands:")[1].split("Options:")[0]
    commands = re.findall(r"^  ([a-z]+)", listing, re.MULTILINE)
    readme = (ROOT / "README.md").read_text()
    missing = [c for c in commands if c != "help" and f"gannet {c}" not in readme]
    assert len(commands) > 5 and not missing


def test_the_chart_shows_the_recorded_figures():
    peers = ROOT / "bench/peers"
    command = [sys.executable, peers / "chart.py", peers / "recorded/qwen3-0.6b-q4_k_m.json"]
    drawn = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert drawn == (ROOT / "docs/images/speed.svg").read_text()
