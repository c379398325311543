"""What tests of the module share: one engine with the built-in model."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))

import gannet  # noqa: E402

# The wheel is tested, not the folder next to the tests.
assert not Path(gannet.__file__).is_relative_to(ROOT / "python"), gannet.__file__


@pytest.fixture(scope="session")
def llm():
    with gannet.Engine("builtin", threads=2, kv_memory="64MiB") as engine:
        yield engine


def resident():
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
