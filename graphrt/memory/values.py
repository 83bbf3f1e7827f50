"""What every store keeps, and how entries are told apart and found: one rule for all of them."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

from graphrt.errors import MemoryStoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_DEPTH: Final = 100
"""Lists and objects inside one another that a value may have."""
MAX_BITS: Final = 3_300
"""Size of an integer: nearly a thousand digits, well below what every reader of JSON text takes."""

_AS_JSON: Final = "store text, numbers, booleans, None, and lists and dicts of these; a model's model_dump(mode='json')"


def check_name(what: str, name: object) -> None:
    """Check a namespace or a key.

    Raises:
        MemoryStoreError: It is no string, or has a character that not every store can keep.
    """
    if not isinstance(name, str):
        raise MemoryStoreError(f"{what} {name!r} is a {type(name).__name__}", hint=f"a {what} is a string")
    if "\0" in name or not _is_text(name):
        raise MemoryStoreError(
            f"{what} {name!r} has a NUL or a lone surrogate in it", hint="clean it: graphrt.messages.clean_text"
        )


def check_limit(limit: int | None) -> None:
    """Check how many entries a search may give.

    Raises:
        MemoryStoreError: It is below 0.
    """
    if limit is not None and limit < 0:
        raise MemoryStoreError(f"the limit of a search is {limit}", hint="give 0 or more, or None for no limit")


def json_value(value: Any, key: str) -> Any:
    """Copy *value* as plain JSON: ``str``, ``int``, ``float``, ``bool``, None, ``list``, ``dict`` by ``str``.

    The copy equals *value*: what would come back as something else, such as a tuple, is refused.

    Raises:
        MemoryStoreError: JSON cannot hold it; the message names *key* and the part that is at fault.
    """
    return _json(value, key, "the value", 0)


def copied(value: Any) -> Any:
    """Copy what ``json_value`` made, so that a caller may change what it is given."""
    if isinstance(value, list):
        return [copied(item) for item in value]
    if isinstance(value, dict):
        return {name: copied(item) for name, item in value.items()}
    return value


def as_text(value: Any) -> str:
    """Give a stored value as text: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def matching(entries: Iterable[tuple[str, Any]], query: str, limit: int | None) -> list[tuple[str, Any]]:
    """Take the first *limit* entries with *query* in their key or their value's text, whatever its case.

    An empty query is in all of them. Reads no further than it has to.
    """
    wanted = query.casefold()
    found: list[tuple[str, Any]] = []
    if limit == 0:
        return found
    for key, value in entries:
        if not wanted or wanted in key.casefold() or wanted in as_text(value).casefold():
            found.append((key, value))
            if len(found) == limit:
                break
    return found


def _json(value: Any, key: str, where: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise _refused(key, f"it is nested more than {MAX_DEPTH} deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if not _is_text(value):
            raise _refused(key, f"{where} has a lone surrogate in it")
        return str.__str__(value)  # a member of an enum has its value in it, and another __str__
    if isinstance(value, (int, float)):
        return _number(value, key, where)
    if isinstance(value, list):
        return [_json(item, key, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {
            _name(name, key, where): _json(item, key, f"{where}[{name!r}]", depth + 1) for name, item in value.items()
        }
    raise _refused(key, f"{where} is of type {type(value).__name__}")


def _number(value: float, key: str, where: str) -> float:
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise _refused(key, f"{where} is an integer of {value.bit_length()} bits")
        return int(value)
    if not math.isfinite(value):
        raise _refused(key, f"{where} is {value!r}")
    return float(value)


def _name(name: Any, key: str, where: str) -> str:
    if not isinstance(name, str):
        raise _refused(key, f"{where} has the name {name!r}, which is no string")
    if not _is_text(name):
        raise _refused(key, f"{where} has the name {name!r}, with a lone surrogate in it")
    return str.__str__(name)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refused(key: str, reason: str) -> MemoryStoreError:
    return MemoryStoreError(f"the value for {key!r} cannot be stored as JSON: {reason}", hint=_AS_JSON)
