"""The server against its own description: Schemathesis makes valid and invalid requests from
/openapi.json. No answer is a server error, none has a status, a type or a shape that is not
described, and the server accepts no request that the description forbids.

    python -m venv .venv && .venv/bin/pip install -r tests/described/requirements.txt
    GANNET_BIN=target/release/gannet .venv/bin/python tests/described/check_described.py

The server may refuse a valid request: a schema cannot express that messages must fit a template, or
that one field needs another.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from serving import Server  # noqa: E402

CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
]
EXAMPLES = "40"


def main():
    with tempfile.TemporaryDirectory() as folder:
        return check(Path(folder))


def check(folder):
    """Runs Schemathesis against a server with all optional stores in `folder`."""
    stores = ["--kv-dir", folder / "kv", "--slot-save-path", folder / "slots"]
    stores += ["--state-dir", folder / "state"]
    (folder / "slots").mkdir()
    server = Server("--request-timeout", "20", *map(str, stores))
    command = [Path(sys.executable).parent / "schemathesis", "--config-file"]
    command += [HERE / "schemathesis.toml", "run", f"{server.address}/openapi.json"]
    command += ["--checks", ",".join(CHECKS), "--phases", "coverage,fuzzing"]
    command += ["--max-examples", EXAMPLES, "--generation-deterministic"]
    command += ["--continue-on-failure", "--request-timeout", "30", *sys.argv[1:]]
    try:
        return subprocess.run([str(part) for part in command]).returncode
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
