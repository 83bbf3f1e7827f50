"""The form of requests and replies on the wire of chat completions, and the way back.

Replies are read with care: a compatible server may leave out, repeat or empty any field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn
from uuid import uuid4

from graphrt.llm.provider import ToolCallPart, Tools
from graphrt.messages import Message, Role, TokenUsage, ToolCall, clean_value

_EXCERPT = 200  # characters of broken arguments that the model gets to see again


def request_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Give *messages* as the wire wants them, every text in them clean."""
    return [_message(each) for each in messages]


def request_tools(tools: Tools) -> list[dict[str, Any]]:
    """Give *tools* as function definitions; a mapping is passed on as it is."""
    return [clean_value(_tool(each)) for each in tools or ()]


def dump_arguments(arguments: Mapping[str, Any]) -> str:
    """Give the arguments of a call as JSON."""
    return json.dumps(clean_value(arguments), ensure_ascii=False, default=str)


def _message(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role.value, "content": message.content}
    if message.tool_calls:
        wire["tool_calls"] = [_call(call) for call in message.tool_calls]
        wire["content"] = message.content or None
    if message.role is Role.TOOL:
        wire["tool_call_id"] = message.tool_call_id or ""
    elif message.name is not None:
        wire["name"] = message.name
    cleaned: dict[str, Any] = clean_value(wire)
    return cleaned


def _call(call: ToolCall) -> dict[str, Any]:
    # Always valid JSON: servers parse it. What the model wrote instead is in the error that answers the call.
    function = {"name": call.name, "arguments": dump_arguments(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _tool(tool: Any) -> Any:
    if isinstance(tool, Mapping):
        return tool
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def read_usage(usage: Any) -> TokenUsage | None:
    """Read token counts; None when nothing is known, and None for each count that is not."""
    counts = [_count(field(usage, name)) for name in ("prompt_tokens", "completion_tokens", "total_tokens")]
    return None if counts == [None, None, None] else TokenUsage(*counts)


def read_tool_call(call: Any, finish_reason: str | None) -> ToolCall:
    """Read a tool call of a whole reply."""
    function = field(call, "function")
    return tool_call(field(call, "id"), field(function, "name"), field(function, "arguments"), finish_reason)


def tool_call(call_id: Any, name: Any, arguments: Any, finish_reason: str | None) -> ToolCall:
    """Make a tool call; arguments that cannot be read give one with ``error`` set, never one to execute."""
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments) if arguments else ""
    call_id = str(call_id or f"call_{uuid4().hex}")
    try:
        parsed = _read_arguments(raw, cut_off=finish_reason == "length")
    except (ValueError, RecursionError) as error:
        excerpt = raw if len(raw) <= _EXCERPT else f"{raw[:_EXCERPT]}..."
        problem = f"the arguments cannot be read: {error}; they were: {excerpt}"
        return ToolCall(call_id, str(name or ""), error=problem, raw_arguments=raw)
    return ToolCall(call_id, str(name or ""), parsed)


def _read_arguments(raw: str, *, cut_off: bool) -> dict[str, Any]:
    if not raw.strip():
        if cut_off:
            raise ValueError("the reply was cut off before them")
        return {}
    parsed = json.loads(raw, parse_constant=_refuse_constant)
    if not isinstance(parsed, dict):
        raise ValueError("they are JSON, but not an object")
    return parsed


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


class ToolCallBuffer:
    """Puts the pieces of streamed tool calls together.

    The first piece of a call brings its id and name, later ones more of the arguments. Pieces of several
    calls may come in any mixture; which call a piece belongs to is told by its index, else by its id, else it
    is the call that the piece before it belongs to.
    """

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._names: list[str] = []
        self._arguments: list[str] = []
        self._slots: dict[int, int] = {}
        self._last = -1

    def add(self, piece: Any) -> ToolCallPart:
        """Take in one piece as the server sent it."""
        function = field(piece, "function")
        call_id, name = str(field(piece, "id") or ""), str(field(function, "name") or "")
        arguments = field(function, "arguments")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments) if arguments else ""
        slot = self._last = self._slot(field(piece, "index"), call_id, name)
        first_id = call_id if not self._ids[slot] else ""
        self._ids[slot] = self._ids[slot] or call_id
        if name and name != self._names[slot]:
            self._names[slot] += name
        self._arguments[slot] += text
        return ToolCallPart(slot, first_id or None, name or None, text)

    def finish(self, finish_reason: str | None) -> list[ToolCall]:
        """Give the calls in the order in which they began."""
        parts = zip(self._ids, self._names, self._arguments, strict=True)
        return [tool_call(call_id, name, text, finish_reason) for call_id, name, text in parts]

    def _slot(self, index: Any, call_id: str, name: str) -> int:
        if isinstance(index, int):
            slot = self._slots.get(index)
            if slot is None or self._is_another(slot, call_id):
                slot = self._slots[index] = self._open()
            return slot
        if call_id:
            return self._ids.index(call_id) if call_id in self._ids else self._open()
        begins = self._last < 0 or (name and self._names[self._last] and self._arguments[self._last])
        return self._open() if begins else self._last

    def _is_another(self, slot: int, call_id: str) -> bool:
        """Say whether the piece starts a call of its own: some servers number every call 0."""
        return bool(call_id and self._ids[slot] and call_id != self._ids[slot])

    def _open(self) -> int:
        self._ids.append("")
        self._names.append("")
        self._arguments.append("")
        return len(self._ids) - 1


def field(of: Any, name: str) -> Any:
    """Read a field of an object or a mapping; None when it is not there."""
    return of.get(name) if isinstance(of, Mapping) else getattr(of, name, None)


def text_field(of: Any, name: str) -> str | None:
    """Read a field that is a text; None when it is not."""
    value = field(of, name)
    return value if isinstance(value, str) else None


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        return None
    return int(value) if isinstance(value, int) or value.is_integer() else None
