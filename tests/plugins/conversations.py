"""Conversations to test with: any messages at all, well-formed ones, and the run that a plugin sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hypothesis import strategies as st

from graphrt.graph.scheduler.limits import BudgetTracker
from graphrt.llm import InferenceRequest
from graphrt.messages import Message, Role, TokenUsage, ToolCall
from graphrt.plugins.phases import Phase, PhaseContext
from graphrt.policies import Budget

IDS = st.sampled_from(["a", "b", "c"])
TEXTS = st.text("xyz ", max_size=40)
CALLS = st.lists(st.builds(ToolCall, IDS, st.just("search"), st.just({"q": "x"})), max_size=3)
MESSAGES = st.one_of(
    st.builds(Message.system, TEXTS),
    st.builds(Message.user, TEXTS),
    st.builds(Message.assistant, TEXTS, CALLS),
    st.builds(Message.tool, IDS, TEXTS),
)
ANY_MESSAGES = st.lists(MESSAGES, max_size=14)
"""Anything, with answers to no call, calls without an answer, and ids that come again."""


@st.composite
def conversations(draw: st.DrawFn, max_turns: int = 6) -> list[Message]:
    """Draw a well-formed conversation: each call is answered right after it, ids are the same in each round."""
    messages = []
    for _ in range(draw(st.integers(0, max_turns))):
        messages.append(Message.user(draw(TEXTS)))
        for _ in range(draw(st.integers(0, 2))):
            ids = draw(st.lists(IDS, min_size=1, max_size=3, unique=True))
            messages.append(Message.assistant(draw(TEXTS), [ToolCall(each, "search", {"q": "x"}) for each in ids]))
            messages += [Message.tool(each, draw(TEXTS)) for each in draw(st.permutations(ids))]
        messages.append(Message.assistant(draw(TEXTS)))
    return messages


def talk(turns: int, *, words: int = 12, question: bool = True) -> list[Message]:
    """Make so many turns of a user and an assistant, and the question of the next one."""
    messages = []
    for turn in range(turns):
        messages.append(Message.user(f"question {turn}: " + "word " * words))
        messages.append(Message.assistant(f"answer {turn}: " + "word " * words))
    return [*messages, Message.user("what now?")] if question else messages


def assert_sound(messages: Sequence[Message]) -> None:
    """Find each answer after the message with its call, once, and each call answered."""
    due: dict[str, int] = {}
    for message in messages:
        if message.role is Role.TOOL:
            assert due.get(message.tool_call_id or "", 0) > 0, f"{message!r} answers no call"
            due[message.tool_call_id or ""] -= 1
        elif message.tool_calls:
            again = Counter(call.id for call in message.tool_calls)
            assert not any(due.get(each) for each in again), "a call was never answered"
            due.update(again)
    assert not any(due.values()), f"calls without an answer: {due}"


class FakeRun:
    """The run as a plugin sees it."""

    def __init__(self, budget: Budget | None = None) -> None:
        self.run_id = "r1"
        self.deps = None
        self.budget = None if budget is None else BudgetTracker(budget)
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.usage: TokenUsage | None = None

    def emit(self, type: str, data: Mapping[str, Any] | None = None) -> None:
        self.events.append((type, dict(data or {})))

    def record_usage(self, usage: TokenUsage | None) -> None:
        if usage is not None:
            self.usage = usage if self.usage is None else self.usage + usage

    def hook_span(self, name: str, **said: Any) -> AbstractContextManager[Any]:
        return nullcontext(print)


def context(
    messages: Sequence[Message] = (),
    *,
    state: Mapping[str, Any] | None = None,
    run: FakeRun | None = None,
    request: InferenceRequest | None = None,
) -> PhaseContext:
    """Make what a plugin is told before an inference."""
    run = run or FakeRun()
    state = {"compaction.checkpoint": None, "compaction.failure": None, **(state or {})}
    return PhaseContext(Phase.BEFORE_INFERENCE, run.run_id, state, messages=messages, request=request, run=run)
