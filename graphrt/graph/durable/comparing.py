"""Whether a value that was written and read back is what was given, the types of its parts included."""

from __future__ import annotations

import dataclasses
from collections import abc, deque
from collections.abc import Callable
from functools import lru_cache
from types import NoneType
from typing import Any, Final, TypeAlias

Comparison: TypeAlias = Callable[[Any, Any], "str | None"]
"""Says where the second value, which is of the same class, differs from the first."""

_LEAVES: Final = frozenset({str, int, float, bool, bytes, NoneType})
"""Classes whose values are the same when they are equal."""
_KEYS: Final = frozenset({str})


def difference(given: Any, back: Any) -> str | None:
    """Say where *back* differs from *given*, such as `.items[2].price: a Decimal would come back as a float`.

    None when nothing does. Two times are equal when they are the same moment, written with the same offset.
    """
    if given is back:
        return None
    kind = type(given)
    if kind is not type(back):
        return f": a {kind.__qualname__} would come back as a {type(back).__qualname__}"
    if kind in _LEAVES and given == back:
        return None
    return _comparison(kind)(given, back)  # type: ignore[arg-type]  # a class has a hash


@lru_cache(maxsize=512)
def _comparison(kind: type) -> Comparison:
    """Choose how values of a class are compared: by what they hold, where that can be seen."""
    if (names := _fields_of(kind)) is not None:
        return lambda given, back: _records(given, back, names)
    for base, comparison in _BY_BASE.items():
        if issubclass(kind, base):
            return comparison
    if kind.__dictoffset__ and not any("__eq__" in vars(each) for each in kind.__mro__[:-1]):
        return lambda given, back: _mappings(vars(given), vars(back))
    return _values


def shown(value: Any, most: int = 200) -> str:
    """Give *value* as messages show it: *most* characters of its `repr`."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a class of the user's, whose repr may fail
        text = f"<{type(value).__qualname__}>"
    return text if len(text) <= most else f"{text[:most]}..."


def _values(given: Any, back: Any) -> str | None:
    try:
        if given == back or (given != given and back != back):  # noqa: PLR0124 - true of NaN alone
            return None
    except Exception:  # noqa: BLE001, S110 - a class of the user's, whose comparison may fail: it counts as different
        pass
    return _changed(given, back)


def _changed(given: Any, back: Any) -> str:
    return f": {shown(given)} would come back as {shown(back)}"


def _rows(given: Any, back: Any) -> str | None:
    if len(given) != len(back):
        return f": {len(given)} items would come back as {len(back)}"
    for index, (one, other) in enumerate(zip(given, back, strict=True)):
        if one is not other and (found := difference(one, other)) is not None:
            return f"[{index}]{found}"
    return None


def _mappings(given: Any, back: Any) -> str | None:
    if len(given) != len(back):
        return _changed(given, back)
    own = back if _KEYS.issuperset(map(type, back)) else {key: key for key in back}
    for key, one in given.items():
        if key not in own:
            return f": key {shown(key)} would not come back"
        text = type(key) is str
        if (own is back and not text) or (own is not back and difference(key, own[key]) is not None):
            return f": key {shown(key)} would come back as something else"
        other = back[key]
        if one is not other and (found := difference(one, other)) is not None:
            return f".{key}{found}" if text else f"[{shown(key)}]{found}"
    return None


def _sets(given: Any, back: Any) -> str | None:
    own = {each: each for each in back}
    if len(given) != len(own) or not all(each in own for each in given):
        return _changed(given, back)
    return next((found for each in given if (found := difference(each, own[each])) is not None), None)


def _fields_of(kind: type) -> tuple[str, ...] | None:
    """Give the names of the fields of a pydantic model or a dataclass; None for any other class."""
    if hasattr(kind, "__pydantic_root_model__"):
        names = getattr(kind, "__pydantic_fields__", None) or kind.model_fields  # type: ignore[attr-defined]  # a model
        return (*names, "__pydantic_extra__", "__pydantic_private__")
    return tuple(each.name for each in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


def _records(given: Any, back: Any, names: tuple[str, ...]) -> str | None:
    for name in names:
        one, other = getattr(given, name, None), getattr(back, name, None)
        if one is not other and (found := difference(one, other)) is not None:
            return found if name.startswith("__") else f".{name}{found}"
    return None


_BY_BASE: Final[dict[type, Comparison]] = {
    str: _values,
    bytes: _values,
    abc.Mapping: _mappings,
    abc.Set: _sets,
    abc.Sequence: _rows,
    deque: _rows,
}

__all__ = ["difference", "shown"]
