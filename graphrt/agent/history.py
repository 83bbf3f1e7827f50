"""What of a conversation may be sent, and kept."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from graphrt.messages import Message, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def without_dangling(messages: Iterable[Message]) -> list[Message]:
    """Give *messages* less what no model takes: calls without an answer, and answers without their call.

    An answer stands right after the message that calls, among the answers to its other calls. A message that has
    neither text nor calls left is left out.
    """
    found: list[Message] = []
    given = list(messages)
    place = 0
    while place < len(given):
        message = given[place]
        place += 1
        if message.role is Role.TOOL:
            continue
        if not message.tool_calls:
            found.append(message)
            continue
        end = place
        while end < len(given) and given[end].role is Role.TOOL:
            end += 1
        found.extend(_paired(message, given[place:end]))
        place = end
    return found


def _paired(message: Message, following: Sequence[Message]) -> list[Message]:
    """Give a message that calls tools, and the answers to its calls; each call is answered once."""
    open_calls = Counter(call.id for call in message.tool_calls)
    answered: Counter[str] = Counter()
    answers: list[Message] = []
    for each in following:
        id = each.tool_call_id
        if id is not None and answered[id] < open_calls[id]:
            answered[id] += 1
            answers.append(each)
    calls = []
    for call in message.tool_calls:
        if answered[call.id]:
            answered[call.id] -= 1
            calls.append(call)
    if len(calls) < len(message.tool_calls):
        message = message.model_copy(update={"tool_calls": calls})
    return [*([] if says_nothing(message) else [message]), *answers]


def says_nothing(message: Message) -> bool:
    """Tell whether an assistant's message has neither text nor calls: it is not kept."""
    return message.role is Role.ASSISTANT and not message.content.strip() and not message.tool_calls
