"""Writing to a span: attributes that can be exported, content within its limit, and how its work ended."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from opentelemetry.trace import StatusCode

from graphrt.telemetry import conventions as names
from graphrt.telemetry.content import by_convention

if TYPE_CHECKING:
    from opentelemetry.trace import Span


def set_attribute(span: Span, key: str, value: Any, *, capture_content: bool) -> None:
    """Set one attribute; `None` is unknown and sets none, and content is kept back unless it is wanted."""
    if value is None:
        return
    if key not in names.CONTENT:
        span.set_attribute(key, attribute_value(value))
    elif capture_content:
        set_content(span, key, value)


def set_content(span: Span, key: str, value: Any) -> None:
    """Set what somebody wrote as text: a text as it is, all else as JSON."""
    if key == names.INPUT_MESSAGES:
        value = by_convention(value)
    elif key == names.OUTPUT_MESSAGES:
        value = by_convention(value, _known(span, names.FINISH_REASONS))
    text = clean(value if isinstance(value, str) else _as_json(value))
    if len(text) > names.CONTENT_LIMIT:
        text = text[: names.CONTENT_LIMIT]
        span.set_attribute(names.TRUNCATED, [*_known(span, names.TRUNCATED), key])
    span.set_attribute(key, text)


def _known(span: Span, key: str) -> Sequence[str]:
    """Give the texts that an attribute holds already, as far as the span tells."""
    found: Sequence[str] = getattr(span, "attributes", {}).get(key, ())
    return found


def attribute_value(value: Any) -> Any:
    """Give *value* as an attribute can hold it: numbers, truth values, texts, and lists of those."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [clean(item) if isinstance(item, str) else item for item in value]
    return clean(_as_json(value))


def clean(text: str) -> str:
    """Give *text* as every exporter can send it: lone surrogates and NULs become U+FFFD."""
    if text.isascii() and "\0" not in text:
        return text if type(text) is str else str.__str__(text)
    from graphrt.messages import clean_text

    return clean_text(text)


def _as_json(value: Any) -> str:
    # Not by pydantic: it reads iterators to their end, and those belong to the run.
    try:
        return json.dumps(value, ensure_ascii=False, skipkeys=True, default=_parts)
    except (TypeError, ValueError, RecursionError):  # a value that holds itself
        return str(value)


def _parts(value: Any) -> Any:
    """Give what JSON does not know as something it does."""
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Set):
        return list(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if dump is not None and not isinstance(value, type) else str(value)


# ---------------------------------------------------------------- how it ended


def error_type(error: BaseException) -> str:
    """Name the class of *error* with its module, builtins without."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def record_exception(span: Span, error: BaseException, *, at: int | None = None) -> None:
    """Add *error* as an event; *at* is in nanoseconds since the epoch."""
    # Span.record_exception() calls str() on any error, and keeps a text that cannot be sent.
    attributes = {
        names.EXCEPTION_TYPE: error_type(error),
        names.EXCEPTION_MESSAGE: message_of(error),
        names.EXCEPTION_STACKTRACE: clean("".join(traceback.format_exception(error))),
    }
    span.add_event(names.EXCEPTION, attributes, timestamp=at)


def message_of(error: BaseException) -> str:
    """Give an error's own text, or what can be said of one that has none to give."""
    try:
        return clean(str(error))
    except Exception:  # noqa: BLE001 - a class of the user's, whose text may fail as well
        return f"<{type(error).__name__} without a text>"


def mark_failed(span: Span, error: BaseException, *, record: bool = True, at: int | None = None) -> None:
    """Say that what the span stands for ended with *error*."""
    if not span.is_recording():
        return
    span.set_attribute(names.ERROR_TYPE, error_type(error))
    span.set_status(StatusCode.ERROR, message_of(error))
    if record:
        record_exception(span, error, at=at)


def mark_timed_out(span: Span, error: BaseException | None, *, at: int | None = None) -> None:
    """Say that what the span stands for was out of time."""
    if not span.is_recording():
        return
    span.set_attribute(names.ERROR_TYPE, "TimeoutError" if error is None else error_type(error))
    span.set_status(StatusCode.ERROR, "timed out")
    if error is not None:
        record_exception(span, error, at=at)


def mark_cancelled(span: Span) -> None:
    """Say that what the span stands for was cancelled."""
    span.set_attribute(names.ERROR_TYPE, "cancelled")
    span.set_status(StatusCode.ERROR, "cancelled")
