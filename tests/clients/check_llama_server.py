#!/usr/bin/env python3
"""The test suite of llama.cpp's server against `gannet serve`, where the suite is at hand.

    python -m venv target/venv-clients
    target/venv-clients/bin/pip install -r tests/clients/requirements.txt
    GANNET_BIN=target/release/gannet target/venv-clients/bin/python \
        tests/clients/check_llama_server.py --fetch

The suite is the folder tools/server/tests of llama.cpp, which LLAMA_SERVER_TESTS names. `--fetch` takes it from the
source package of `llama-cpp-python` on PyPI and keeps it in target/llama-server-tests, where later runs find it.
Without a suite the script prints `skipped` and succeeds.

The suite starts its server through a launcher (`--launch`), which translates llama-server's flags and runs
`gannet serve` with a model made from the built-in one: a GGUF file with a BOS token, whose answers do not end by
themselves. The results are compared with llama_server_failures.toml, which names each test that fails, and why. A
test that fails without being listed, or passes although it is listed, is an error.

    check_llama_server.py [--fetch] [--report FILE] [-- ARGUMENTS OF PYTEST]
"""

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TINY = ROOT / "crates" / "tiny" / "model"
KEPT = ROOT / "target" / "llama-server-tests"
FAILURES = HERE / "llama_server_failures.toml"
PACKAGE = "llama-cpp-python==0.3.36"
# What the suite reads: its own folder, and the chat templates two folders above it.
WANTED = ("tools/server/tests/", "models/templates/")

TEMPLATE = """
{%- if tools %}<turn>tools
{{ tools | tojson }}
Write a call as <tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call></turn>
{% endif %}
{%- for message in messages %}<turn>{{ message.role }}
{{ message.content or '' }}</turn>
{% endfor %}
{%- if add_generation_prompt %}<turn>assistant
{% endif %}""".lstrip()

# llama-server's flags with a value, and the flags of `gannet serve` with the same meaning.
VALUES = {
    "--port": "--port",
    "--host": "--host",
    "--threads": "--threads",
    "--batch-size": "--chunk",
    "--parallel": "--parallel",
    "--api-key": "--api-key",
    "--alias": "--alias",
    "--temp": "--temp",
    "--seed": "--seed",
    "--n-predict": "--max-tokens",
    "--chat-template-file": "--chat-template",
    "--cors-origins": "--cors",
    "--slot-save-path": "--slot-save-path",
    "--ctx-size": None,
}
SWITCHES = {
    "--slots": "--slots",
    "--no-slots": "--no-slots",
    "--metrics": "--metrics",
    "--no-metrics": "--no-metrics",
    "--no-ui": "--no-ui",
}
# Flags that change nothing for a client of Gannet; True where a value follows.
IGNORED = {
    "--offline": False,
    "--hf-repo": True,
    "--hf-file": True,
    "--ubatch-size": True,
    "--n-gpu-layers": True,
    "--cont-batching": False,
    "--embedding": False,
    "--kv-unified": False,
    "--swa-full": False,
    "--jinja": False,
    "--no-jinja": False,
    "--verbose": False,
    "--cache-ram": True,
    "--no-cache-idle-slots": False,
    "--no-models-autoload": False,
    "-fa": True,
    "--pooling": True,
    "--reranking": False,
    "--backend_sampling": False,
    "--reasoning-format": True,
    "--tags": True,
    "--reasoning": True,
}


def launch(arguments):
    """Replaces this process by `gannet serve` with the translated flags."""
    binary = os.environ["GANNET_BIN"]
    known = subprocess.run([binary, "serve", "--help"], capture_output=True, text=True).stdout
    given, at = {}, 0
    while at < len(arguments):
        flag = arguments[at]
        takes = flag in VALUES or IGNORED.get(flag, False)
        if not (takes or flag in SWITCHES or flag in IGNORED):
            sys.exit(f"gannet serve has no counterpart of {flag}")
        given[flag] = arguments[at + 1] if takes else None
        at += 2 if takes else 1
    command = [binary, "serve", "-m", os.environ["SUITE_MODEL"]]
    if given.pop("--reasoning", "auto") == "off":
        sys.exit("gannet serve has no counterpart of --reasoning off")
    # llama-server admits every origin, and serves no metrics, unless it is told otherwise.
    given.setdefault("--cors-origins", "*")
    if "--metrics" not in given:
        given["--no-metrics"] = None
    for flag, value in given.items():
        translated = VALUES.get(flag, SWITCHES.get(flag))
        # An older binary is tested without the flags that it lacks.
        if translated is None or not re.search(rf"{translated}\b", known):
            continue
        command += [translated] if value is None else [f"{translated}={value}"]
    if context := given.get("--ctx-size"):
        # llama-server divides the context among its slots, unless they share it.
        slots = 1 if "--kv-unified" in given else int(given.get("--parallel") or 1)
        command += ["--ctx", str(int(context) // slots)]
    os.execv(binary, command)


def suite():
    """The suite's folder, or None."""
    named = os.environ.get("LLAMA_SERVER_TESTS")
    for folder in [Path(named)] if named else [KEPT / "tools" / "server" / "tests"]:
        if (folder / "utils.py").is_file():
            return folder
    return None


def fetch():
    """Takes the suite from the source package on PyPI."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--no-binary", "llama-cpp-python"]
        subprocess.run([*command, "-d", folder, PACKAGE], check=True)
        [package] = Path(folder).glob("*.tar.gz")
        shutil.rmtree(KEPT, ignore_errors=True)
        with tarfile.open(package) as archive:
            for member in archive:
                inside = member.name.partition("/vendor/llama.cpp/")[2]
                if member.isfile() and inside.startswith(WANTED):
                    member.name = inside
                    archive.extract(member, KEPT, filter="data")


def model(folder):
    """A GGUF file of the built-in model with a BOS token, without reasoning, with a long context, and without the
    tokens that would end its answers: the suite counts tokens and looks for `length`."""
    source = folder / "source"
    shutil.copytree(TINY, source, ignore=shutil.ignore_patterns("*.gguf"))

    def edit(name, change):
        path = source / name
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    # A token called <|im_end|> or <|endoftext|> would end answers by its name alone.
    renamed = {
        "<|endoftext|>": "<pad>",
        "<|im_start|>": "<turn>",
        "<|im_end|>": "</turn>",
        "<think>": "<s>",
        "</think>": "<unused>",
        "</tool_response>": "</s>",
    }

    def tokenizer(content):
        ids = {token["content"]: token["id"] for token in content["added_tokens"]}
        for token in content["added_tokens"]:
            special = token["content"] in renamed
            token["content"] = renamed.get(token["content"], token["content"])
            token["special"] = token["special"] or special
        bos = {"SpecialToken": {"id": "<s>", "type_id": 0}}
        text = {"Sequence": {"id": "A", "type_id": 0}}
        content["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [bos, text],
            "pair": [bos, text, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [ids["<think>"]], "tokens": ["<s>"]}},
        }

    def tokenizer_config(content):
        for token in content["added_tokens_decoder"].values():
            special = token["content"] in renamed
            token["content"] = renamed.get(token["content"], token["content"])
            token["special"] = token["special"] or special
        ends = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
        content.update(ends, add_bos_token=True)

    edit("tokenizer.json", tokenizer)
    edit("tokenizer_config.json", tokenizer_config)
    ends = {"eos_token_id": 2047, "bos_token_id": 2042}
    edit("config.json", lambda content: content.update(ends, max_position_embeddings=16384))
    edit("generation_config.json", lambda content: content.update(ends, do_sample=True))
    (source / "chat_template.jinja").write_text(TEMPLATE)
    file = folder / "suite-model.gguf"
    command = [os.environ["GANNET_BIN"], "quantize", source, file, "--type", "q8_0"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return file


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def outcomes(report):
    """The outcome of each test: passed, failed or skipped."""
    found = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        # An interrupted run has a case without a class.
        name = f"{(case.get('classname') or '').rpartition('.')[2]}::{case.get('name')}"
        kinds = {child.tag for child in case}
        failed = kinds & {"failure", "error"}
        found[name] = "failed" if failed else "skipped" if "skipped" in kinds else "passed"
    return found


def run(tests, kept, arguments, report):
    """Runs the suite but for the files that are left out."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        launcher = folder / "llama-server"
        launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__)}" --launch "$@"\n')
        launcher.chmod(0o755)
        environment = {
            **os.environ,
            "GANNET_BIN": str(Path(os.environ["GANNET_BIN"]).resolve()),
            "LLAMA_SERVER_BIN_PATH": str(launcher),
            "SUITE_MODEL": str(model(folder)),
            "PORT": str(free_port()),
            "LLAMA_CACHE": str(folder / "cache"),
            # Slots are saved through the cache on disk, by default in the user's folder.
            "XDG_CACHE_HOME": str(folder / "home"),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"]
        command += [f"--junitxml={report}", "-m", "not slow"]
        command += [f"--ignore=unit/{name}.py" for name in kept["left_out"]]
        command += arguments or ["unit"]
        subprocess.run(command, cwd=tests, env=environment, check=False)
    return outcomes(report)


def matches(name, listed):
    """Whether the entry `listed` is for the test: by its full name, or for all its parameters."""
    return listed in (name, name.partition("[")[0])


def judge(found, kept, everything):
    """Prints what differs from the list; returns whether nothing does."""
    listed = [test for entry in kept["failure"] for test in entry["tests"]]
    failed = {name for name, outcome in found.items() if outcome == "failed"}
    surprising = sorted(name for name in failed if not any(matches(name, it) for it in listed))
    healed = sorted(
        name
        for name, outcome in found.items()
        if outcome == "passed" and any(matches(name, it) for it in listed)
    )
    unknown = [it for it in listed if everything and not any(matches(name, it) for name in found)]
    for name in surprising:
        print(f"fails, and is not listed: {name}")
    for name in healed:
        print(f"passes, but is listed as failing: {name}")
    for name in unknown:
        print(f"listed, but not in the suite: {name}")
    counts = {kind: list(found.values()).count(kind) for kind in ("passed", "failed", "skipped")}
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return not (surprising or healed or unknown)


def main():
    if sys.argv[1:2] == ["--launch"]:
        return launch(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fetch", action="store_true", help="take the suite from PyPI first")
    parser.add_argument("--report", type=Path, help="keep the results here, as JUnit's XML")
    parser.add_argument("arguments", nargs="*", help="arguments of pytest, such as files")
    asked = parser.parse_args()
    if asked.fetch and suite() is None:
        fetch()
    tests = suite()
    if tests is None:
        print("skipped: llama-server's suite is not at hand (LLAMA_SERVER_TESTS, or --fetch)")
        return 0
    kept = tomllib.loads(FAILURES.read_text())
    with tempfile.TemporaryDirectory() as folder:
        report = (asked.report or Path(folder) / "report.xml").resolve()
        found = run(tests, kept, asked.arguments, report)
    return 0 if judge(found, kept, not asked.arguments) else 1


if __name__ == "__main__":
    sys.exit(main())
