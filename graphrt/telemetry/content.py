"""Messages in the shape that the GenAI conventions give them: a role, and parts of several types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def by_convention(value: Any, finish_reasons: Sequence[str] | None = None) -> Any:
    """Give messages as the conventions want them; what is no list of messages stays as it is.

    *finish_reasons* are given for what a model has answered, one for each message as far as they are known.
    """
    if isinstance(value, str) or not isinstance(value, Sequence):
        return value
    shaped = [_message(each) for each in value]
    if finish_reasons is not None:
        for place, message in enumerate(shaped):
            if isinstance(message, dict) and "parts" in message:
                reason = finish_reasons[place] if place < len(finish_reasons) else ""
                message.setdefault("finish_reason", reason)
    return shaped


def _message(message: Any) -> Any:
    dump = getattr(message, "model_dump", None)
    found = dump(mode="json") if dump is not None else message
    if not isinstance(found, Mapping) or "role" not in found or "parts" in found:
        return found
    content = found.get("content")
    parts: list[dict[str, Any]] = []
    if found.get("tool_call_id") is not None:
        parts.append({"type": "tool_call_response", "id": found["tool_call_id"], "response": content})
    elif content:
        parts.append({"type": "text", "content": content})
    parts.extend(
        {"type": "tool_call", "id": call.get("id"), "name": call.get("name"), "arguments": call.get("arguments")}
        for call in found.get("tool_calls") or ()
    )
    shaped: dict[str, Any] = {"role": found["role"], "parts": parts}
    if found.get("name") is not None:
        shaped["name"] = found["name"]
    return shaped
