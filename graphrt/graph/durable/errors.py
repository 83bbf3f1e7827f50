"""Exceptions as JSON: type, message and arguments, and back as the class if it is known (E25)."""

from __future__ import annotations

import builtins
import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from graphrt import errors as own_errors
from graphrt.errors import LlmError, LlmErrorKind, RecordedError, ToolError, ToolErrorKind
from graphrt.graph.durable.comparing import difference
from graphrt.graph.durable.plain import write_json
from graphrt.messages import clean_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from graphrt.graph.compiled import Program

_KINDS: Final[Mapping[type[BaseException], Any]] = {LlmError: LlmErrorKind, ToolError: ToolErrorKind}
_SLOTS: Final[Mapping[type[BaseException], tuple[str, ...]]] = {
    OSError: ("filename", "filename2"),
    ImportError: ("name", "path"),
    AttributeError: ("name",),
    NameError: ("name",),
}
"""What builtin classes keep elsewhere than in their arguments and fields."""
_ROOTS: Final = frozenset({Exception, BaseException, object})
_ALWAYS_KNOWN: Final = frozenset({"builtins", own_errors.__name__})
_CAUSES: Final = 4
"""How many errors behind an error are stored with it."""


# --- written ------------------------------------------------------------------------------------------------


def dump_error(error: BaseException, *, causes: int = _CAUSES) -> dict[str, Any]:
    """Write an exception as a JSON object, whatever it holds.

    Always `type` and `message`; `args` and `fields` as far as JSON gives them back; the names of its `bases`; the
    `errors` of a group; the `cause` that it was raised from. What was read back as a `RecordedError` is written as
    what it stands for.
    """
    if isinstance(error, RecordedError):
        written = vars(error).get("_written")
        if isinstance(written, dict):
            return written
        args = _as_json(list(error.arguments)) or None
        return _present(type=error.type_name, message=clean_text(error.recorded_message), args=args)
    cls, message = type(error), clean_text(_text_of(error))
    args = _as_json([_bare(each) for each in error.args])
    group = error.exceptions if isinstance(error, BaseExceptionGroup) and causes else ()
    above = () if cls.__module__ in _ALWAYS_KNOWN else cls.__mro__[1:]
    behind = error.__cause__
    return _present(
        type=_name_of(cls),
        message=message,
        args=None if args == [message] else args,
        fields={name: _as_json(value) for name, value in _fields_of(error).items()} or None,
        bases=[_name_of(base) for base in above if base not in _ROOTS] or None,
        errors=[dump_error(each, causes=causes - 1) for each in group] or None,
        cause=dump_error(behind, causes=causes - 1) if behind is not None and causes else None,
    )


def _fields_of(error: BaseException) -> dict[str, Any]:
    fields = {name: value for name, value in getattr(error, "__dict__", {}).items() if not name.startswith("_")}
    for cls, names in _SLOTS.items():
        if isinstance(error, cls):
            fields.update((name, value) for name in names if (value := getattr(error, name, None)) is not None)
    return fields


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a class of the user's, whose text may fail
        return ""


def _as_json(value: Any) -> Any:
    """Give *value* as it comes back from JSON; None when it does not go in, or comes back as something else."""
    value = _bare(value)
    try:
        back = json.loads(write_json(value))
    except (TypeError, ValueError, RecursionError):
        return None
    return back if difference(value, back) is None else None


def _bare(value: Any) -> Any:
    """Give the text of a `StrEnum`'s member: what it is equal to."""
    return str(value) if isinstance(value, StrEnum) else value


def _present(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _name_of(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


# --- read ---------------------------------------------------------------------------------------------------


def load_error(written: Mapping[str, Any], known: Mapping[str, type[BaseException]]) -> BaseException:
    """Read an exception: of its own class if that is known, else a `RecordedError` that says which it was.

    A `RecordedError` is an instance of the nearest known class above the error's own too, so that an `on_error` edge
    that took the one takes the other.
    """
    cls = known.get(str(written.get("type", "")))
    error = None if cls is None else _made(cls, written, known)
    if error is None:
        error = _recorded(written, known)
    if isinstance(cause := written.get("cause"), dict):
        error.__cause__ = load_error(cause, known)
    return error


def _made(
    cls: type[BaseException], written: Mapping[str, Any], known: Mapping[str, type[BaseException]]
) -> BaseException | None:
    """Make an error of a known class; a constructor that is not Python's own may want what is not stored."""
    message = str(written.get("message", ""))
    args = written.get("args", [message])
    if "errors" in written:
        args = [message.rpartition(" (")[0], [load_error(each, known) for each in written["errors"]]]
    try:
        error: BaseException = cls(*args) if cls.__module__ == "builtins" else cls.__new__(cls, *args)
        for name, value in written.get("fields", {}).items():
            setattr(error, name, _of_kind(error, name, value))
        str(error)
    except Exception:  # noqa: BLE001 - a class that cannot be made of what it was made of before
        return None
    return error


def _of_kind(error: BaseException, name: str, value: Any) -> Any:
    kinds = next((kinds for cls, kinds in _KINDS.items() if isinstance(error, cls)), None)
    return kinds(value) if kinds is not None and name == "kind" else value


def _recorded(written: Mapping[str, Any], known: Mapping[str, type[BaseException]]) -> RecordedError:
    name, message = str(written.get("type", "")), str(written.get("message", ""))
    args = tuple(written.get("args", ()))
    plain = RecordedError(name, message, args)
    fields = {**written.get("fields", {}), **vars(plain)}
    classes = (known[base] for base in (name, *written.get("bases", ())) if base in known)
    error = next((made for each in classes if (made := _derived(each, fields)) is not None), plain)
    error.args = plain.args
    vars(error)["_written"] = dict(written)
    return error


def _derived(above: type[BaseException], fields: Mapping[str, Any]) -> RecordedError | None:
    """Make a `RecordedError` that is an instance of another class too; None where Python does not allow that."""
    try:
        cls: Any = type("RecordedError", (RecordedError, above), {"__module__": RecordedError.__module__})
        error: RecordedError = cls.__new__(cls)
        for name, value in fields.items():
            setattr(error, name, value)
        str(error)
    except Exception:  # noqa: BLE001 - a class that does not go beside another, or whose attributes are fixed
        return None
    return error


def known_errors(program: Program) -> dict[str, type[BaseException]]:
    """List the classes that come back as themselves: builtins, graphrt's own, and those that the graph names."""
    found: dict[str, type[BaseException]] = {}

    def add(classes: Iterable[Any]) -> None:
        for each in classes:
            if isinstance(each, type) and issubclass(each, BaseException):
                found[_name_of(each)] = each

    def look(part: Program) -> None:
        for edge in part.decl.edges:
            add(edge.errors or ())
        for node in part.decl.nodes.values():
            retry_on = node.retry.retry_on if node.retry is not None else ()
            add(retry_on if isinstance(retry_on, tuple) else (retry_on,))

    program.walk(look)
    add(vars(own_errors).values())
    add(vars(builtins).values())
    return found


__all__ = ["dump_error", "known_errors", "load_error"]
