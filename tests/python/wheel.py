"""Packs a module that cargo has built into a wheel, without compiling anything.

    python tests/python/wheel.py target/debug/deps/lib_gannet.so target/wheels

What is in it is what `python/pyproject.toml` says and the files of `python/gannet`, as in the wheel
of maturin, which compiles all crates again with other features. Needs Python 3.11.
"""

import base64
import hashlib
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2] / "python"


def version():
    workspace = tomllib.loads((PROJECT.parent / "Cargo.toml").read_text())
    return workspace["workspace"]["package"]["version"]


def metadata(project):
    lines = ["Metadata-Version: 2.4", f"Name: {project['name']}", f"Version: {version()}"]
    lines += [f"Requires-Python: {project['requires-python']}"]
    lines += [f"Requires-Dist: {one}" for one in project["dependencies"]]
    for extra, needed in project["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}"]
        lines += [f"Requires-Dist: {one}; extra == '{extra}'" for one in needed]
    return "\n".join(lines) + "\n"


def entry_points(project):
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    parts = []
    for group, entries in groups.items():
        parts.append("\n".join([f"[{group}]", *(f"{k} = {v}" for k, v in entries.items())]))
    return "\n\n".join(parts) + "\n"


def contents(library):
    """The files of the wheel by their names."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    info = f"{project['name'].replace('-', '_')}-{version()}.dist-info"
    tag = f"cp310-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
    files = {"gannet/_gannet.abi3.so": Path(library).read_bytes()}
    for path in sorted((PROJECT / "gannet").rglob("*")):
        if path.is_file() and (path.suffix in (".py", ".pyi") or path.name == "py.typed"):
            files[str(path.relative_to(PROJECT))] = path.read_bytes()
    wheel = f"Wheel-Version: 1.0\nGenerator: wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n"
    for name, text in [
        ("METADATA", metadata(project)),
        ("WHEEL", wheel),
        ("entry_points.txt", entry_points(project)),
    ]:
        files[f"{info}/{name}"] = text.encode()
    return f"{info.removesuffix('.dist-info')}-{tag}.whl", info, files


def record(info, files):
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    return "\n".join([*lines, f"{info}/RECORD,,"]) + "\n"


def main():
    library, folder = sys.argv[1:]
    name, info, files = contents(library)
    files[f"{info}/RECORD"] = record(info, files).encode()
    Path(folder).mkdir(parents=True, exist_ok=True)
    # Not compressed: it is installed at once.
    with zipfile.ZipFile(Path(folder) / name, "w", zipfile.ZIP_STORED) as wheel:
        for path, data in files.items():
            wheel.writestr(path, data)
    print(Path(folder) / name)


if __name__ == "__main__":
    main()
