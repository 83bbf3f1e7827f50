"""What JSON has: values that it gives back as they are, and the declared types that have no others."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from json.encoder import encode_basestring
from math import isfinite
from types import NoneType
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin

from graphrt.graph.annotations import members_of

_PLAIN: Final = frozenset({str, int, float, bool, NoneType})
_KINDS: Final[dict[Any, frozenset[type]]] = {
    str: frozenset({str}),
    int: frozenset({int, bool}),
    float: frozenset({float, int, bool}),
    bool: frozenset({bool}),
    NoneType: frozenset({NoneType}),
    None: frozenset({NoneType}),
}
"""Classes whose values pass for a plain declared type, and come back as they are."""
_KEYS: Final = frozenset({str})
DEEPEST: Final = 100
"""Nesting of JSON values: deeper ones do not come back on every reader."""

_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

Test: TypeAlias = Callable[[Any], bool]
"""Says of a value that JSON gives it back as it is, and as it is declared."""


def is_json(value: Any, depth: int = 0) -> bool:
    """Tell whether JSON gives *value* back as it is: lists, dicts with texts as keys, and plain values in them."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is dict:
        if not _KEYS.issuperset(map(type, value)):
            return False
        value = value.values()
    elif kind is not list:
        return False
    if _PLAIN.issuperset(map(type, value)):
        return True
    return depth < DEEPEST and all(is_json(each, depth + 1) for each in value)


def write_json(value: Any) -> str:
    """Write a JSON value as compact text.

    Raises:
        ValueError: It holds a number that is not finite, or a text that is no Unicode.
    """
    kind = type(value)
    if kind is str:
        text: str = encode_basestring(value)
        return text if text.isascii() else _whole(text)
    if kind is int:
        return int.__repr__(value)
    if kind is float and isfinite(value):
        return float.__repr__(value)
    text = _ENCODE(value)
    return text if text.isascii() else _whole(text)


def _whole(text: str) -> str:
    text.encode()
    return text


def plain_test(declared: Any) -> Test | None:
    """Give the test of a type all of whose values JSON has; None for any other type."""
    while True:
        if hasattr(declared, "__supertype__"):
            declared = declared.__supertype__
        elif get_origin(declared) is Annotated and not any(
            hasattr(each, "__get_pydantic_core_schema__") for each in declared.__metadata__
        ):
            declared = declared.__origin__
        else:
            break
    if declared is Any or declared is object:
        return is_json
    if _is_hashable(declared) and declared in _KINDS:
        return _one_of_kinds(_KINDS[declared])
    if get_origin(declared) is Literal:
        return _test_of_literal(get_args(declared))
    if members := members_of(declared):
        return _test_of_union(members)
    if declared is list or declared is dict:
        return lambda value: type(value) is declared and is_json(value)
    return _test_of_collection(get_origin(declared), get_args(declared))


def _test_of_collection(origin: Any, args: tuple[Any, ...]) -> Test | None:
    if origin is not list and (origin is not dict or args[0] is not str):
        return None
    inner = args[-1]
    kinds = _KINDS.get(inner) if _is_hashable(inner) else None
    test = plain_test(inner)
    if test is None:
        return None
    if origin is list:
        if kinds is not None:
            return lambda value: type(value) is list and kinds.issuperset(map(type, value))
        return lambda value: type(value) is list and all(map(test, value))
    if kinds is not None:
        return lambda value: (
            type(value) is dict and _KEYS.issuperset(map(type, value)) and kinds.issuperset(map(type, value.values()))
        )
    return lambda value: type(value) is dict and _KEYS.issuperset(map(type, value)) and all(map(test, value.values()))


def _test_of_literal(values: tuple[Any, ...]) -> Test | None:
    kinds = frozenset(map(type, values))
    if not kinds <= _PLAIN:
        return None
    pairs = frozenset((type(value), value) for value in values)
    return lambda value: type(value) in kinds and (type(value), value) in pairs


def _test_of_union(members: tuple[Any, ...]) -> Test | None:
    if all(_is_hashable(member) and member in _KINDS for member in members):
        return _one_of_kinds(frozenset().union(*(_KINDS[member] for member in members)))
    tests = [test for member in members if (test := plain_test(member)) is not None]
    if len(tests) < len(members):
        return None
    return lambda value: any(test(value) for test in tests)


def _one_of_kinds(kinds: frozenset[type]) -> Test:
    return lambda value: type(value) in kinds


def _is_hashable(declared: Any) -> bool:
    return isinstance(declared, Hashable)


__all__ = ["DEEPEST", "Test", "is_json", "plain_test", "write_json"]
