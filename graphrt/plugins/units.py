"""Where a conversation may be cut: an assistant's tool calls and their answers stay together or go together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphrt.messages import Message, Role

if TYPE_CHECKING:
    from collections.abc import Sequence


def prefix_length(messages: Sequence[Message]) -> int:
    """Count the system messages at the beginning."""
    length = 0
    while length < len(messages) and messages[length].role is Role.SYSTEM:
        length += 1
    return length


def unit_starts(messages: Sequence[Message]) -> list[int]:
    """Give where the units begin, in order: each one ends where the next begins.

    A unit is one message, or all from an assistant's tool calls to the last of their answers.
    """
    return _pair(messages).starts


def last_cut(messages: Sequence[Message], keep: int) -> int:
    """Give the last place for a cut that leaves *keep* messages after it, and one unit at least; 0 for none.

    Messages that `mended` leaves out do not count. A call whose answer may still come stays after the cut.
    """
    pairs = _pair(messages)
    left, found = 0, {}
    for index in reversed(range(len(messages))):
        left += _stays(messages[index], index, pairs)
        found[index] = left
    open_call = min(pairs.unanswered, default=len(messages))
    return max((start for start in pairs.starts if start <= open_call and found[start] >= keep), default=0)


def awaits_answers(messages: Sequence[Message]) -> bool:
    """Say whether the conversation ends in tool calls that have not all been answered."""
    pairs = _pair(messages)
    return bool(pairs.starts) and bool(pairs.unanswered.get(pairs.starts[-1]))


def mended(messages: Sequence[Message]) -> list[Message]:
    """Leave out answers without a call, calls without an answer, and messages that are empty without their calls.

    What is left is the same messages; an assistant's message that loses calls is replaced by a copy.
    """
    pairs = _pair(messages)
    if not pairs.orphans and not pairs.unanswered:
        return list(messages)
    kept = []
    for index, message in enumerate(messages):
        if index in pairs.unanswered:
            answered = _without_calls(message, pairs.unanswered[index])
            if answered.content or answered.tool_calls:
                kept.append(answered)
        elif index not in pairs.orphans:
            kept.append(message)
    return kept


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Which answer belongs to which call."""

    starts: list[int]
    """Where units begin."""
    unanswered: dict[int, list[str]]
    """Ids of calls without an answer, by the message that has them."""
    orphans: set[int]
    """Answers without a call."""


def _pair(messages: Sequence[Message]) -> _Pairs:
    starts: list[int] = []
    orphans: set[int] = set()
    waiting: dict[int, list[str]] = {}
    caller: dict[str, int] = {}  # the latest message with a call of that id: some servers give the same ids again
    for index, message in enumerate(messages):
        starts.append(index)
        if message.role is Role.TOOL:
            call_id = message.tool_call_id or ""
            home = caller.get(call_id)
            if home is None or call_id not in waiting[home]:
                orphans.add(index)
                continue
            waiting[home].remove(call_id)
            while starts[-1] > home:
                starts.pop()
        elif message.tool_calls:
            waiting[index] = [call.id for call in message.tool_calls]
            caller.update(dict.fromkeys(waiting[index], index))
    return _Pairs(starts, {index: ids for index, ids in waiting.items() if ids}, orphans)


def _stays(message: Message, index: int, pairs: _Pairs) -> bool:
    """Say whether `mended` leaves something of a message."""
    if index in pairs.orphans:
        return False
    if index not in pairs.unanswered:
        return True
    answered = _without_calls(message, pairs.unanswered[index])
    return bool(answered.content or answered.tool_calls)


def _without_calls(message: Message, unanswered: Sequence[str]) -> Message:
    left = Counter(unanswered)
    kept = []
    for call in reversed(message.tool_calls):  # of calls with one id the first ones have been answered
        if left[call.id]:
            left[call.id] -= 1
        else:
            kept.append(call)
    return message.model_copy(update={"tool_calls": kept[::-1]})
