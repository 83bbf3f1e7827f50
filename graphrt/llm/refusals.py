"""What a server's refusal means: from HTTP status, error code and text to a kind of ``LlmError``."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from graphrt.errors import LlmError, LlmErrorKind
from graphrt.llm.wire import field, text_field

if TYPE_CHECKING:
    from collections.abc import Mapping

_KIND_OF_STATUS: Final[Mapping[int, LlmErrorKind]] = {
    401: LlmErrorKind.UNAUTHORIZED,
    403: LlmErrorKind.UNAUTHORIZED,
    404: LlmErrorKind.MODEL_NOT_FOUND,
    408: LlmErrorKind.TIMEOUT,
    409: LlmErrorKind.PROVIDER,
    429: LlmErrorKind.RATE_LIMITED,
    503: LlmErrorKind.OVERLOADED,
    529: LlmErrorKind.OVERLOADED,
}

_IN_ANY_STATUS: Final = (
    (
        LlmErrorKind.CONTEXT_OVERFLOW,
        re.compile(
            r"context_(length|window)_exceeded|max(imum)? context length|context (window|size)"
            r"|(prompt|input|request) is too long|too many (input )?tokens",
            re.IGNORECASE,
        ),
    ),
    (
        LlmErrorKind.CONTENT_FILTERED,
        re.compile(r"content_(filter|policy_violation)|content_management_policy", re.IGNORECASE),
    ),
)
_IN_NO_CLIENT_FAULT: Final = (
    (LlmErrorKind.OVERLOADED, re.compile(r"overloaded", re.IGNORECASE)),
    (LlmErrorKind.RATE_LIMITED, re.compile(r"rate.?limit", re.IGNORECASE)),
)
"""What the words of a refusal mean, where its status says too little."""

_HINTS: Final[Mapping[LlmErrorKind, str]] = {
    LlmErrorKind.UNAUTHORIZED: "check the key, and that its account may use this model",
    LlmErrorKind.MODEL_NOT_FOUND: "check the model's name and base_url",
    LlmErrorKind.CONTEXT_OVERFLOW: "shorten the conversation: see CompactConfig and ContextPolicy",
}


def refusal(
    text: str, *, status: int | None = None, body: object = None, headers: Mapping[str, str] | None = None
) -> LlmError:
    """Make the error for a reply that is a refusal.

    *body* is the ``error`` of the reply, a text or an object whose ``code``, ``type`` and ``message`` count.
    """
    code = str(field(body, "code") or "")
    if status is None and code.isdigit():
        status = int(code)
    words = (str(field(body, name) or "") for name in ("code", "type", "message"))
    kind = _kind(status, " ".join((*words, text, body if isinstance(body, str) else "")))
    said = body if isinstance(body, str) else text_field(body, "message")
    message = f"the provider refused: {said or text}"
    return LlmError(message, kind, retry_after=retry_after(headers or {}), status=status, hint=_HINTS.get(kind))


def _kind(status: int | None, words: str) -> LlmErrorKind:
    if status is not None and status in _KIND_OF_STATUS:
        return _KIND_OF_STATUS[status]
    client_fault = status is not None and 400 <= status < 500  # noqa: PLR2004  # the class of status codes
    for kind, pattern in _IN_ANY_STATUS if client_fault else (*_IN_ANY_STATUS, *_IN_NO_CLIENT_FAULT):
        if pattern.search(words):
            return kind
    return LlmErrorKind.INVALID_REQUEST if client_fault else LlmErrorKind.PROVIDER


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Read the seconds a server asks to wait: ``retry-after-ms``, or ``retry-after`` as seconds or a date."""
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    text = headers.get("retry-after")
    seconds = _seconds(text)
    if seconds is not None or text is None:
        return seconds
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


def _seconds(text: Any) -> float | None:
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) and value >= 0 else None
