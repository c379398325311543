"""The real binary accepts every `gannet` command line in the documents.

GANNET_BIN names the binary. Every command line is compared with the help of its command. Those of the
README and of `docs/` are also typed, in the order of their document, in a folder where the files that
they name are the built-in model. A line `<!-- not typed: WORD, WORD -->` before a block excludes the
commands with one of these words, and `<!-- not typed: all -->` all of the block: what needs a larger
model, a hub, a GPU or a running server. Defaults that tables, comments and sentences state are those
of the help, and so are those of the description of the routes. The chart of speeds is compared
with the recorded figures.
"""

import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "crates/tiny/README.md"]
DOCUMENTS += sorted((ROOT / "docs").glob("**/*.md"))
PREFIXES = ("gannet ", "cargo run --release -- ")


def lines_of(document):
    """The lines of a document. A command that continues on the next line is one line."""
    return re.sub(r" \\\n\s*", " ", document.read_text()).splitlines()


def command_lines():
    """(document, words) of every command line in a code block."""
    for document in DOCUMENTS:
        fenced = False
        for line in lines_of(document):
            if line.startswith("```"):
                fenced = not fenced
            elif fenced:
                # Commands behind a pipe count too.
                for part in line.split(" | "):
                    prefix = next((p for p in PREFIXES if part.startswith(p)), None)
                    if prefix:
                        words = shlex.split(part[len(prefix) :], comments=True)
                        # Options before the command are those of the program.
                        while words[0].startswith("--"):
                            words = words[2:]
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
    while rest and re.search(rf"\nCommands:\n(  .*\n)*  {re.escape(rest[0])} ", help_of(*command)):
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


TYPED = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MARKER = re.compile(r"<!-- not typed: (.*) -->")
PLACEHOLDERS = {"MODEL": "builtin"}


def typed_lines(document):
    """The command lines of a document that can be typed as they stand."""
    fenced, excluded, lines = False, [], []
    for line in lines_of(document):
        marker = MARKER.match(line)
        if marker:
            excluded = [word.strip() for word in marker[1].split(",")]
        elif line.startswith("```"):
            fenced = not fenced
            excluded = excluded if fenced else []
        elif fenced and any(part.startswith("gannet ") for part in line.split(" | ")):
            if not any(word == "all" or word in line for word in excluded):
                lines.append(line)
    return lines


@pytest.fixture
def folder(tmp_path):
    """A folder with the files that documents name."""
    tiny = ROOT / "crates/tiny/model"
    for name in ("my-checkpoint", "my-embedding-model", "models/small"):
        shutil.copytree(tiny, tmp_path / name)
    for name in ("model.gguf", "model-Q4_K_M.gguf", "quantised.gguf"):
        shutil.copy(tiny / "tiny-q8_0.gguf", tmp_path / name)
    shutil.copy(tiny / "reference.json", tmp_path)
    (tmp_path / "text.txt").write_text((ROOT / "README.md").read_text()[:2000])
    (tmp_path / "case.json").write_text('{"messages": [{"role": "user", "content": "Hi"}]}')
    chat = [{"role": "user", "content": "Is water wet?"}, {"role": "assistant", "content": "Yes, it is."}]
    (tmp_path / "chats.jsonl").write_text((json.dumps({"messages": chat}) + "\n") * 40)
    (tmp_path / "models.yaml").write_text("models: [{name: small, model: my-checkpoint}]")
    (tmp_path / "receipt.key").write_bytes(bytes(range(32)))
    (tmp_path / "receipt.key").chmod(0o600)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/gannet").symlink_to(pathlib.Path(os.environ["GANNET_BIN"]).resolve())
    return tmp_path


def environment(folder):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GANNET_", "XDG_"))}
    return kept | {"HOME": str(folder), "PATH": f"{folder}/bin:{os.environ['PATH']}"}


def talk(address):
    """Asks a server something."""
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    with urllib.request.urlopen(f"{address}/v1/models", timeout=60) as answer:
        body["model"] = json.load(answer)["data"][0]["id"]
    request = urllib.request.Request(
        f"{address}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=60).read()


def serve(line, folder, ask=talk):
    """Starts a server as the line says, but at a free port, asks it something and ends it."""
    line = re.sub(r"--port \d+", "", line.split(" #")[0]) + " --port 0"
    process = subprocess.Popen(
        shlex.split(line), cwd=folder, env=environment(folder), stderr=subprocess.PIPE, text=True
    )
    said = []
    for text in process.stderr:
        said.append(text)
        if text.startswith("listening on http"):
            address = text.removeprefix("listening on ").strip()
            ask(address)
            process.terminate()
    assert process.wait(timeout=60) == 0, "".join(said)


@pytest.mark.parametrize("document", TYPED, ids=lambda document: document.name)
def test_command_lines_do_what_they_say(document, folder):
    for line in typed_lines(document):
        for word, value in PLACEHOLDERS.items():
            line = re.sub(rf"\b{word}\b", value, line)
        if re.search(r"gannet (--config \S+ )?serve", line) and "--print-config" not in line:
            serve(line, folder)
            continue
        ended = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=folder,
            env=environment(folder),
            input="Hello\n" if "echo" not in line else None,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert ended.returncode == 0, f"{document.name}: {line}\n{ended.stderr}"


def test_most_documents_have_commands_that_are_typed():
    assert sum(len(typed_lines(document)) for document in TYPED) > 40


def stated_defaults():
    """(document, flag, default) of the tables with a column of flags and one of defaults."""
    for document in TYPED:
        columns = None
        for line in document.read_text().splitlines():
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if not cells:
                columns = None
            elif columns is None:
                columns = [cell.lower() for cell in cells]
            elif columns[0] == "flag" and "default" in columns:
                flags = re.findall(r"`(--[a-z-]+)", cells[0])
                default = cells[columns.index("default")].replace("`", "")
                values = default.split(", ")
                if len(flags) == len(values):
                    yield from ((document.name, *pair) for pair in zip(flags, values))


def default_in_help(command, flag):
    """The default that the help of a command states for a flag; None where it states none."""
    text = re.sub(r"\s+", " ", help_of(*command.split()))
    section = re.search(rf" {flag}[ =\[](.*?)(?= --[a-z]|$)", text)
    assert section, f"{flag} is no flag of {command}"
    default = re.search(r"\[default: ([^\]]*)\]", section[1])
    return default and default[1]


def plain(stated):
    """A default without the marks of prose: `64 MiB` and `100 ms` as `64MiB` and `100`."""
    return re.sub(r"(?<=\d) (m?s\b|(?=[KMG]iB))", "", stated.replace("`", "").strip())


def test_defaults_in_tables_are_those_of_the_help():
    checked = 0
    for document, flag, stated in stated_defaults():
        default = default_in_help("serve", flag)
        if default and re.fullmatch(r"[\w.:-]+", default) and re.fullmatch(r"[\w.: -]+", stated):
            assert plain(stated) == default, f"{document}: {flag}: {stated}, but {default} in the help"
            checked += 1
    assert checked > 10


def test_defaults_in_comments_are_those_of_the_help():
    checked = 0
    for document in TYPED:
        for line in document.read_text().splitlines():
            command, comment = re.search(r"^gannet ([a-z]+)|$", line)[1], line.partition("# defaults: ")[2]
            if not command or not comment:
                continue
            flags, stated = re.findall(r" (--[a-z-]+)", line.partition("#")[0]), comment.split(", ")
            assert len(flags) == len(stated), f"{document.name}: {line}"
            for flag, value in zip(flags, stated):
                default = default_in_help(command, flag)
                assert plain(value) in default, f"{document.name}: {flag}: {value}, but {default}"
                checked += 1
    assert checked > 2


SENTENCES = [
    r"`(--[a-z-]+)` is `?([\w.:-]+)`?, the default",
    r"`(--[a-z-]+)[ =]([\w.:-]+)`, the default",
    r"`(--[a-z-]+)`, by default `([\w.:-]+)`",
]


def commands_with(flag):
    listing = help_of().split("Commands:")[1].split("Options:")[0]
    names = re.findall(r"^  ([a-z-]+)", listing, re.MULTILINE)
    return [name for name in (*names, "cache list") if name != "help" and takes(name.split(), flag)]


def test_defaults_in_sentences_are_those_of_the_help():
    checked = 0
    for document in TYPED:
        text = re.sub(r"\s+", " ", document.read_text())
        for flag, value in (found for pattern in SENTENCES for found in re.findall(pattern, text)):
            defaults = {default_in_help(command, flag) for command in commands_with(flag)}
            assert value in defaults, f"{document.name}: {flag}: {value}, but {defaults} in the help"
            checked += 1
    assert checked > 2


# Members of requests and the flags that give their defaults, where the names differ.
FLAGS = {"temperature": "temp", "repetition_penalty": "repeat_penalty", "repeat_last_n": "penalty_window"}


def test_defaults_in_the_description_are_those_of_the_help(folder):
    document = {}

    def read(address):
        with urllib.request.urlopen(f"{address}/openapi.json", timeout=60) as answer:
            document.update(json.load(answer))

    serve("gannet serve", folder, ask=read)
    checked = 0
    for schema, parts in document["components"]["schemas"].items():
        for name, member in parts.get("properties", {}).items():
            stated = re.search(r"Default: (.*)\.$", member.get("description", ""))
            if stated:
                default = default_in_help("serve", "--" + FLAGS.get(name, name).replace("_", "-"))
                assert stated[1] == default, f"{schema}.{name}: {stated[1]}, but {default} in the help"
                checked += 1
    assert checked > 25
