"""How many tokens a request takes, roughly: no tokenizer, and never so exact as to be relied on to the last token."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from graphrt.llm.wire import dump_arguments, request_tools

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphrt.config import ContextPolicy
    from graphrt.llm.provider import Tools
    from graphrt.messages import Message

Count: TypeAlias = Callable[["Message"], int]
"""Gives the tokens of one message."""

_BYTES_PER_TOKEN: Final = 4  # of English prose; bytes, not characters, since other scripts take more tokens
_MESSAGE_OVERHEAD: Final = 4  # what chat formats put around each message


def text_tokens(text: str) -> int:
    """Estimate the tokens of a text: one for every four bytes of its UTF-8 form, rounded up."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return -(-size // _BYTES_PER_TOKEN)


def message_tokens(message: Message) -> int:
    """Estimate the tokens of a message, with its tool calls and what a chat format puts around it."""
    tokens = _MESSAGE_OVERHEAD + text_tokens(message.content)
    for call in message.tool_calls:
        tokens += text_tokens(call.id) + text_tokens(call.name) + text_tokens(dump_arguments(call.arguments))
    for label in (message.tool_call_id, message.name):
        if label is not None:
            tokens += text_tokens(label)
    return tokens


def tool_tokens(tools: Tools) -> int:
    """Estimate the tokens of the definitions of tools."""
    return sum(text_tokens(json.dumps(each, ensure_ascii=False, default=str)) for each in request_tools(tools))


def counter(policy: ContextPolicy | None) -> Count:
    """Give what counts the tokens of one message: the policy's estimator, or the estimate of this module."""
    return message_tokens if policy is None or policy.estimator is None else policy.estimator


def total(messages: Iterable[Message], count: Count) -> int:
    """Add up the tokens of messages."""
    return sum(map(count, messages))


def input_budget(policy: ContextPolicy) -> int:
    """Give the tokens that a policy leaves for a request, tools included; not below 0."""
    return max(0, policy.max_context_tokens - policy.max_output_tokens)
