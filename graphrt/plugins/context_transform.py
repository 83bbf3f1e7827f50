"""What of a conversation is sent: it has to fit what the model takes, whatever has been said."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, ClassVar, Final

from graphrt.llm.wire import request_tools
from graphrt.plugins.checkpoint import stored_checkpoint
from graphrt.plugins.plugin import Plugin, PluginDescriptor
from graphrt.plugins.tokens import counter, input_budget, tool_tokens, total
from graphrt.plugins.units import last_cut, mended, prefix_length, unit_starts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphrt.config import ContextPolicy
    from graphrt.llm.executor import InferenceRequest
    from graphrt.llm.provider import Tools
    from graphrt.messages import Message
    from graphrt.plugins.phases import PhaseContext
    from graphrt.plugins.registrar import PluginRegistrar
    from graphrt.plugins.tokens import Count

CACHE_PARAM: Final = "prompt_cache_key"
"""Request parameter that is the same for requests that begin alike, by the name that OpenAI gives it."""


class ContextTransformPlugin(Plugin):
    """Send what fits: the oldest messages are left out of a request that is too large for the model.

    Kept are the system messages at the beginning, at least the last `min_recent_messages` messages, and of the
    rest as much as there is room for. Tool calls and their answers stay together, and neither is ever sent without
    the other. A summary that stands at the beginning of the conversation is the last thing to be left out. What
    must be kept is sent even if it does not fit. The conversation itself never changes.

    With `enable_prompt_cache`, a request gets a `prompt_cache_key` made of its system messages and tools, unless
    it has one.
    """

    always_active: ClassVar[bool] = True

    def __init__(self, policy: ContextPolicy) -> None:
        self.policy = policy
        self._count = counter(policy)

    @property
    def descriptor(self) -> PluginDescriptor:
        """Id `context_transform`."""
        return PluginDescriptor("context_transform", "Leave the oldest messages out of requests that are too large.")

    def register(self, registrar: PluginRegistrar) -> None:
        """Ask for every request."""
        registrar.request_transform(self.transform)

    def transform(self, request: InferenceRequest, ctx: PhaseContext) -> InferenceRequest:
        """Give the request as it fits the policy, and with the mark for the cache."""
        policy = self.policy
        checkpoint = stored_checkpoint(ctx.state)
        messages = fit(
            request.messages,
            budget=input_budget(policy) - tool_tokens(request.tools),
            keep=policy.min_recent_messages,
            count=self._count,
            summary=None if checkpoint is None else checkpoint.message,
        )
        params = request.params
        if policy.enable_prompt_cache and params.get(CACHE_PARAM) is None:
            prefix = messages[: prefix_length(messages)]
            params = {**params, CACHE_PARAM: cache_key(prefix, request.tools)}
        return request.replace(messages=messages, params=params)


def fit(
    messages: Sequence[Message], *, budget: int, keep: int, count: Count, summary: Message | None = None
) -> list[Message]:
    """Leave out the oldest units of a conversation until the rest takes no more than *budget* tokens.

    Args:
        messages: System messages, then the conversation.
        budget: Tokens for all of them.
        keep: Messages at the end that are kept whatever they take; the last unit always is.
        count: Gives the tokens of a message.
        summary: If the conversation begins with this message, everything else is left out before it.
    """
    start = prefix_length(messages)
    kept, conversation = list(messages[:start]), mended(messages[start:])
    left = budget - total(kept, count)
    head = conversation[:1] if len(conversation) > 1 and conversation[0] == summary else []
    del conversation[: len(head)]
    sizes = [count(each) for each in conversation]
    first = last_cut(conversation, keep)
    taken = sum(sizes[first:]) + total(head, count)
    if head and taken > left:
        taken -= total(head, count)
        head = []
    for at in reversed([each for each in unit_starts(conversation) if each < first]):
        taken += sum(sizes[at:first])
        if taken > left:
            break
        first = at
    return kept + head + conversation[first:]


def cache_key(prefix: Sequence[Message], tools: Tools) -> str:
    """Give a short text that is the same for requests with the same system messages and tools."""
    alike = [[each.content for each in prefix], request_tools(tools)]
    return f"graphrt-{hashlib.sha256(json.dumps(alike, default=str).encode()).hexdigest()[:32]}"
