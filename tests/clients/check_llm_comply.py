"""The suite of llm-comply against `gannet serve`: chat completions, Open Responses and Messages.

    python -m venv target/venv-clients
    target/venv-clients/bin/pip install -r tests/clients/requirements.txt
    GANNET_BIN=target/release/gannet target/venv-clients/bin/python tests/clients/check_llm_comply.py

Its failures are compared with `llm_comply_failures.toml`, which gives the reason of each.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from serving import Server  # noqa: E402

FORMATS = {
    "openai-chat": [],
    "open-responses": [],
    "anthropic": ["-H", "anthropic-version:2026-10-21"],
}


def failures(server, form, options):
    """The tests of a format that fail, with what they say."""
    command = [sys.executable, "-m", "llm_comply.cli", "--format", form, "-u", f"{server.address}/v1"]
    command += ["-k", "none", "-m", "any", "--json", *options]
    told = subprocess.run(command, capture_output=True, text=True, timeout=300)
    results = json.loads(told.stdout)["results"]
    assert results, told
    return {
        result["id"]: result.get("errors") for result in results if result["status"] == "failed"
    }


def main():
    known = tomllib.loads(Path(__file__).with_name("llm_comply_failures.toml").read_text())
    server = Server()
    try:
        found = {}
        for form, options in FORMATS.items():
            found |= failures(server, form, options)
    finally:
        server.stop()
    for name, errors in found.items():
        print(f"{name}: {known.get(name) or errors}")
    assert found.keys() == known.keys(), (found, known)


if __name__ == "__main__":
    main()
