"""Arguments of other libraries that have no meaning here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gannet import _options


def refuse(
    method: str,
    given: Mapping[str, Any],
    neutral: Mapping[str, tuple[Any, ...]],
    known: Iterable[str],
) -> None:
    """Accepts arguments at their neutral values, and refuses others by name."""
    for name, value in given.items():
        if name not in neutral:
            raise TypeError(_options.unknown(method, name, [*known, *neutral]))
        if value is not None and not any(_same(value, one) for one in neutral[name]):
            values = " or ".join(repr(one) for one in neutral[name]) or "None"
            problem = f"has no meaning in Gannet, expected {values}, found {value!r}"
            raise ValueError(f"{name}: {problem}")


def _same(value: Any, other: Any) -> bool:
    # True equals 1, and is another value.
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)
