"""The size of the page with its libraries, and that it loads them from here."""

import gzip
from pathlib import Path

import pytest

ASSETS = Path(__file__).parents[2] / "crates" / "server" / "assets"
MAX_BYTES = 350_000


def test_the_page_is_small():
    files = [path for path in ASSETS.rglob("*") if path.is_file()]
    assert len(files) > 30
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) <= MAX_BYTES


@pytest.mark.parametrize("file", ["vendor/LICENSES.txt", "vendor/katex.css", "vendor/purify.js"])
def test_the_libraries_are_those_of_the_repository(server, file):
    served = server.get(f"/ui/{file}")
    assert served.status == 200 and served.body == (ASSETS / file).read_bytes()


def test_every_library_has_its_licence():
    text = (ASSETS / "vendor" / "LICENSES.txt").read_text()
    for name in ("@highlightjs/cdn-assets", "dompurify", "katex", "markdown-it", "linkify-it", "entities"):
        assert f"\n{name} " in text
