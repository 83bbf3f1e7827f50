"""Which declared types can be stored: what pydantic writes but could never read again is found before a run (E25)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_NEVER: Final = {
    "callable": "a function",
    "is-subclass": "a class",
    "generator": "an iterator",
    "is-instance": "a {}, of which pydantic knows nothing",
}
"""Schemas of values that are in no JSON."""
_CONVERTS: Final = frozenset({"function-before", "function-wrap", "chain"})
"""Schemas that may make of JSON what the schema inside them looks for."""
_ASIDE: Final = frozenset({"serialization", "metadata", "config", "python_schema", "strict_schema", "cls", "default"})
"""Parts of a schema that reading JSON does not use."""


def unstorable_part(schema: Mapping[str, Any]) -> str | None:
    """Name the part of a pydantic core schema that no JSON is read as; None when there is none."""
    todo: list[tuple[Any, bool]] = [(schema, False)]
    seen: set[int] = set()
    while todo:
        part, converted = todo.pop()
        if isinstance(part, (list, tuple)):
            todo.extend((each, converted) for each in part)
        elif isinstance(part, dict) and id(part) not in seen:
            seen.add(id(part))
            kind = part.get("type")
            if isinstance(kind, str):
                if kind in _NEVER and not converted:
                    return _NEVER[kind].format(getattr(part.get("cls"), "__qualname__", "value"))
                converted = kind in _CONVERTS
            todo.extend((each, converted) for key, each in part.items() if key not in _ASIDE)
    return None


__all__ = ["unstorable_part"]
