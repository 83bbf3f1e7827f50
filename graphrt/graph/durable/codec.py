"""Values of a run as JSON, by the types that nodes declare: only what can be loaded is stored (E25).

A value of a type that JSON has is written as it is; any other is written and read by pydantic, as its type is
declared. Where no type is declared a value has to be a JSON value. What would not come back equal, and of the same
type, is refused when it is stored, not when it is missed.
"""

from __future__ import annotations

import json
from functools import lru_cache
from math import isfinite
from types import NoneType
from typing import Any, Final, Protocol

from graphrt.errors import GraphTypeError
from graphrt.graph import typecheck
from graphrt.graph.annotations import members_of, unresolved_names
from graphrt.graph.durable.comparing import difference, shown
from graphrt.graph.durable.plain import DEEPEST, Test, is_json, plain_test, write_json
from graphrt.graph.durable.storable import unstorable_part
from graphrt.graph.signature import MISSING

_MEMBER: Final = "$member"
"""Stands beside the value of a union that alone would be read as another member's: which member it is of."""


class ValueCodec(Protocol):
    """Writes values of one declared type as JSON, and reads them back."""

    def dump(self, value: Any) -> str:
        """Write *value*.

        Raises:
            GraphTypeError: It is not of the declared type, or would not come back equal.
        """
        ...

    def load(self, stored: Any) -> Any:
        """Read a value back from the JSON value that it was written as.

        Raises:
            GraphTypeError: That is not what a value of the declared type is written as.
        """
        ...


def codec_of(declared: Any, *, what: str) -> ValueCodec:
    """Give the codec of a declared type; *what* names the value in messages, such as "the value of node 'a'".

    Raises:
        GraphTypeError: Values of the type could not be loaded again.
    """
    if missing := unresolved_names(declared):
        raise GraphTypeError(
            f"{what} is declared {typecheck.describe(declared)}, and {', '.join(map(repr, missing))} "
            "is not found where that is written",
            hint="import it outside 'if TYPE_CHECKING:', or define it before the node is added",
        )
    if declared is MISSING or declared is Any or declared is object:
        return _JsonCodec(what)
    test = plain_test(declared)
    return _TypedCodec(declared, what) if test is None else _PlainCodec(declared, test, what)


class _JsonCodec:
    """JSON values, where nothing is declared."""

    def __init__(self, what: str) -> None:
        self._what = what

    def dump(self, value: Any) -> str:
        if is_json(value):
            return _write(value, self._what)
        raise _no_json(self._what, value)

    def load(self, stored: Any) -> Any:
        return stored


class _PlainCodec:
    """Values of a type that JSON has: texts, numbers, lists, dicts with texts as keys, and unions of those."""

    def __init__(self, declared: Any, test: Test, what: str) -> None:
        self._declared = declared
        self._test = test
        self._what = what
        self._typed: _TypedCodec | None = None

    def dump(self, value: Any) -> str:
        if self._test(value) and (type(value) is not float or isfinite(value)):
            try:
                return write_json(value)
            except UnicodeError as error:
                raise _no_unicode(self._what, error) from error
            except ValueError:  # it holds a number that JSON has not
                pass
        text = self._full().dump(value)
        found = difference(value, self.load(json.loads(text)))
        if found is not None:
            raise _lost(self._what, self._declared, found)
        return text

    def load(self, stored: Any) -> Any:
        return stored if self._test(stored) else self._full().load(stored)

    def _full(self) -> _TypedCodec:
        if self._typed is None:
            self._typed = _TypedCodec(self._declared, self._what)
        return self._typed


class _TypedCodec:
    """Values of any type that pydantic can write and read."""

    def __init__(self, declared: Any, what: str) -> None:
        self._declared = declared
        self._what = what
        members = [member for member in members_of(declared) if member is not NoneType]
        self._members = members if len(members) > 1 else []
        self._codecs: list[ValueCodec] | None = None
        try:
            make = _adapter if _is_hashable(declared) else _make_adapter
            self._wrapped, adapter, unstorable = make(declared, repr(declared))
        except Exception as error:
            raise _not_storable(what, declared, str(error).partition("\n")[0]) from error
        if unstorable is not None:
            raise _not_storable(what, declared, f"it holds {unstorable}")
        self._to_json = adapter.serializer.to_json
        self._read = adapter.validator.validate_json
        self._by_name = _reading_by_name()

    def dump(self, value: Any) -> str:
        cause: Exception | None = None
        try:
            text = self._to_text(value)
            found = difference(value, self._from_text(text))
            if found is None and not (self._members and _MEMBER in text):
                return text
        except Exception as error:  # noqa: BLE001 - pydantic's, or of the user's validators: the value does not fit
            found, cause = "", error
        if (tagged := self._dump_member(value)) is not None:
            return tagged
        if cause is not None:
            raise _misfit(self._what, self._declared, value, cause) from cause
        raise _lost(self._what, self._declared, found or "")

    def load(self, stored: Any) -> Any:
        if self._members and type(stored) is dict and _MEMBER in stored:
            codecs, member = self._of_members(), stored[_MEMBER]
            if type(member) is not int or not 0 <= member < len(codecs):
                raise _unreadable(self._what, f"the type has no member {member!r}")
            return codecs[member].load(stored.get("value"))
        try:
            return self._from_text(write_json(stored))
        except Exception as error:
            raise _unreadable(self._what, _reason(error)) from error

    def _to_text(self, value: Any) -> str:
        given = (value,) if self._wrapped else value
        text: str = self._to_json(given, round_trip=True, warnings="error", by_alias=not self._by_name).decode()
        return text[1:-1] if self._wrapped else text

    def _from_text(self, text: str) -> Any:
        value = self._read(f"[{text}]" if self._wrapped else text, **self._by_name)
        return value[0] if self._wrapped else value

    def _of_members(self) -> list[ValueCodec]:
        if self._codecs is None:
            self._codecs = [codec_of(member, what=self._what) for member in self._members]
        return self._codecs

    def _dump_member(self, value: Any) -> str | None:
        """Write a value that looks like one of another member's, with the member it is of."""
        for index, codec in enumerate(self._of_members()):
            try:
                text = codec.dump(value)
            except GraphTypeError:
                continue
            return f'{{"{_MEMBER}":{index},"value":{text}}}'
        return None


def _make_adapter(declared: Any, text: str) -> tuple[bool, Any, str | None]:
    """Make what writes and reads a type, and say what in it cannot be stored; *text* tells equal unions apart.

    True when values have to be put into a tuple of one: so can the configuration reach a dataclass and a `TypedDict`,
    which have none of their own.
    """
    from pydantic import BaseModel, ConfigDict, TypeAdapter
    from pydantic.errors import PydanticUserError

    config = ConfigDict(ser_json_inf_nan="strings", ser_json_bytes="base64", val_json_bytes="base64")
    wrapped = False
    if isinstance(declared, type) and issubclass(declared, BaseModel):
        adapter: Any = TypeAdapter(declared)
    else:
        try:
            adapter = TypeAdapter(declared, config=config)
        except PydanticUserError as error:
            if error.code != "type-adapter-config-unused":
                raise
            wrapped, adapter = True, TypeAdapter(tuple[declared], config=config)
    return wrapped, adapter, unstorable_part(adapter.core_schema)


_adapter = lru_cache(maxsize=256)(_make_adapter)


def _is_hashable(declared: Any) -> bool:
    try:
        hash(declared)
    except TypeError:  # an argument of it is a list or a dict
        return False
    return True


def _reading_by_name() -> dict[str, bool]:
    """Give the arguments with which fields are read by their names; pydantic before 2.11 goes by aliases alone."""
    from pydantic import VERSION

    new = tuple(map(int, VERSION.split(".")[:2])) >= (2, 11)
    return {"by_alias": False, "by_name": True} if new else {}


def _write(value: Any, what: str) -> str:
    try:
        return write_json(value)
    except UnicodeError as error:
        raise _no_unicode(what, error) from error
    except (ValueError, RecursionError) as error:
        hint = "declare the type, such as '-> float'"
        raise _refused(what, f"it is no JSON value: {error}", hint=hint) from error


# --- messages -----------------------------------------------------------------------------------------------


def _refused(what: str, why: str, *, hint: str | None = None) -> GraphTypeError:
    return GraphTypeError(f"{what} cannot be stored: {why}", hint=hint)


def _no_json(what: str, value: Any) -> GraphTypeError:
    where, why = _find_no_json(value, "", 0)
    at = f"at {where.lstrip('.')} " if where else ""
    hint = f"declare the type, such as '-> {type(value).__qualname__}'"
    if where or type(value) in (list, dict):
        hint = "declare the type of the whole value: a pydantic model, a dataclass, or such as 'list[tuple[int, str]]'"
    return _refused(what, f"{at}{why}, and without a declared type only JSON values can be loaded", hint=hint)


def _find_no_json(value: Any, where: str, depth: int) -> tuple[str, str]:
    if depth > DEEPEST:
        return "", f"it is nested more than {DEEPEST} deep"
    if type(value) is list:
        parts = [(f"{where}[{index}]", each) for index, each in enumerate(value)]
    elif type(value) is dict:
        odd = next((key for key in value if type(key) is not str), None)
        if odd is not None or None in value:
            return where, f"it has the key {shown(odd)}, which is a {type(odd).__qualname__} and no text"
        parts = [(f"{where}.{key}", each) for key, each in value.items()]
    else:
        return where, f"it is a {type(value).__qualname__}"
    place, part = next((place, each) for place, each in parts if not is_json(each, depth + 1))
    return _find_no_json(part, place, depth + 1)


def _no_unicode(what: str, error: UnicodeError) -> GraphTypeError:
    return _refused(
        what, f"it holds a text that is no Unicode: {error}", hint="graphrt.messages.clean_text() mends such a text"
    )


def _misfit(what: str, declared: Any, value: Any, error: Exception) -> GraphTypeError:
    return _refused(
        what,
        f"it is declared {typecheck.describe(declared)} and is {shown(value)}: {_reason(error)}",
        hint="give what is declared, or declare what is given",
    )


def _reason(error: Exception) -> str:
    """Give what pydantic says in one line."""
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        return f"{where}: {first['msg']}" if where else first["msg"]
    return str(error).strip().rpartition("\n")[2].strip()


def _lost(what: str, declared: Any, found: str) -> GraphTypeError:
    where, _, how = found.partition(": ")
    at = f"at {where.lstrip('.')} " if where else ""
    return _refused(
        what,
        f"{at}{how}",
        hint=f"give exactly what is declared, {typecheck.describe(declared)}, or declare what is given",
    )


def _not_storable(what: str, declared: Any, why: str) -> GraphTypeError:
    return GraphTypeError(
        f"{what} is declared {typecheck.describe(declared)}, whose values could not be loaded again: {why}",
        hint="declare a type that can be written as JSON: a pydantic model, a dataclass, an enumeration, plain values",
    )


def _unreadable(what: str, why: str) -> GraphTypeError:
    return GraphTypeError(
        f"what is stored for {what} cannot be read: {why}",
        hint="the type was changed after the run was stored: go on with the code that it was started with",
    )


__all__ = ["ValueCodec", "codec_of"]
