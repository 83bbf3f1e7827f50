"""Random scripts of turns: what holds of a session whatever happens in it."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt import HookEvent, HookExecutor, LlmError
from graphrt.agent import AgentSession
from graphrt.errors import AgentError, LlmErrorKind
from graphrt.hooks import HookContext, HookResult
from graphrt.messages import LLMResponse, Message, Role, TokenUsage
from tests.agent.helpers import Heard, asks, call, echo, is_paired, session_of
from tests.engine.helpers import yield_often

REPLIES = st.one_of(
    st.sampled_from(["", "text", "more text"]),
    st.lists(st.sampled_from(["echo", "fail", "nobody"]), min_size=1, max_size=3).map(tuple),
    st.just(LlmError("no", LlmErrorKind.UNAUTHORIZED)),
    st.just("hang"),
)
"""A text, the names of tools that are called, an error, or nothing for ever."""
TURNS = st.lists(
    st.tuples(
        st.lists(REPLIES, min_size=1, max_size=4),
        st.sampled_from([None, None, None, HookEvent.ON_TURN_START, HookEvent.PRE_REQUEST]),
    ),
    min_size=1,
    max_size=5,
)
"""For each turn: what the model replies, and where a hook blocks."""

ROUNDS = 3


async def fail(text: str) -> str:
    """Fail."""
    raise ValueError("oops")


class Script:
    """A model that plays a script for each turn, told apart by what the user says."""

    def __init__(self, turns: list[tuple[list[Any], Any]]) -> None:
        self.turns = turns
        self.answered = 0
        self.asked: list[list[Message]] = []
        self.taken: dict[str, int] = {}
        self.inside = 0
        self.hanging = anyio.Event()

    async def __call__(self, messages: list[Message], tools: Any, kwargs: Any) -> LLMResponse:
        assert self.inside == 0
        self.inside += 1
        try:
            return await self._answer(messages)
        finally:
            self.inside -= 1

    async def _answer(self, messages: list[Message]) -> LLMResponse:
        await yield_often(2)
        self.asked.append(list(messages))
        (turn,) = [each.content for each in messages if each.role is Role.USER][-1:]
        replies = self.turns[int(turn)][0]
        taken = self.taken.get(turn, 0)
        self.taken[turn] = taken + 1
        reply = replies[taken] if taken < len(replies) else "the end"
        if isinstance(reply, Exception):
            raise reply
        if reply == "hang":
            self.hanging.set()
            await anyio.sleep_forever()
        self.answered += 1
        if isinstance(reply, tuple):
            calls = [call(f"{turn}.{taken}.{n}", name, text="x") for n, name in enumerate(reply)]
            return asks(*calls, usage=TokenUsage(1, 1))
        return LLMResponse(reply, usage=TokenUsage(1, 1))


def expected(replies: list[Any], blocks: HookEvent | None) -> str:
    """Say how a turn ends."""
    if blocks is not None:
        return "failed"
    for n, reply in enumerate([*replies, "the end"]):
        if isinstance(reply, Exception):
            return "failed"
        if reply == "hang":
            return "cancelled"
        if not isinstance(reply, tuple):
            return "done"
        if n + 1 == ROUNDS:
            return "failed"
    raise AssertionError


class Play:
    """A session that plays turns."""

    def __init__(self, turns: list[tuple[list[Any], Any]]) -> None:
        self.turns = turns
        self.script = Script(turns)
        hooks = HookExecutor()
        for event in (HookEvent.ON_TURN_START, HookEvent.PRE_REQUEST):
            hooks.register(event, self.guard)
        self.heard = Heard(hooks, [HookEvent.ON_TURN_START, HookEvent.ON_TURN_END, HookEvent.ON_ERROR])
        self.session: AgentSession
        self.session, _ = session_of([self.script] * 100, echo, fail, hooks=hooks, max_rounds=ROUNDS)
        self.now = ""

    def guard(self, ctx: HookContext) -> HookResult:
        if ctx.event is HookEvent.ON_TURN_START:
            self.now = ctx.data["user_input"]
        return HookResult.block("no") if self.turns[int(self.now)][1] is ctx.event else HookResult.ok()

    async def turn(self, n: int) -> str:
        """Take one turn, and say how it ended; one that hangs is cancelled."""
        script = self.script
        script.hanging = anyio.Event()
        outcome = "cancelled"
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def cut() -> None:
                    await script.hanging.wait()
                    scope.cancel()

                tasks.start_soon(cut)
                try:
                    await self.session.submit_turn(str(n))
                    outcome = "done"
                except AgentError:
                    outcome = "failed"
                tasks.cancel_scope.cancel()
        return outcome


async def one_by_one(turns: list[tuple[list[Any], Any]]) -> None:
    play = Play(turns)
    session = play.session
    done = 0
    for n, (replies, blocks) in enumerate(turns):
        before = copy.deepcopy(session.messages)
        play.heard.clear()
        outcome = await play.turn(n)
        assert outcome == expected(replies, blocks)
        done += outcome == "done"
        assert is_paired(session.messages)
        assert session.turn_index == done
        if outcome == "done":
            assert session.messages[: len(before)] == before
            assert session.messages[len(before)] == Message.user(str(n))
        else:
            assert session.messages == before
        assert [ctx.event.value for ctx in play.heard if ctx.event is not HookEvent.ON_TURN_START] == {
            "done": ["on_turn_end"],
            "failed": ["on_error"],
            "cancelled": [],
        }[outcome]
        assert {ctx.turn_index for ctx in play.heard} <= {done - (outcome == "done")}
    assert all(is_paired(asked) for asked in play.script.asked)
    assert session.cost_so_far.calls == play.script.answered
    assert not any(
        each.role is Role.ASSISTANT and not each.content and not each.tool_calls for each in session.messages
    )


async def all_at_once(turns: list[tuple[list[Any], Any]]) -> None:
    play = Play(turns)
    session = play.session
    ended: list[int] = []

    async def submit(n: int) -> None:
        with suppress(AgentError):
            await session.submit_turn(str(n))
        ended.append(n)

    async with anyio.create_task_group() as tasks:
        for n in range(len(turns)):
            tasks.start_soon(submit, n)
            await yield_often(2)
    outcomes = [expected(*turn) for turn in turns]
    assert ended == list(range(len(turns)))
    said = [each.content for each in session.messages if each.role is Role.USER]
    assert said == [str(n) for n, outcome in enumerate(outcomes) if outcome == "done"]
    assert session.turn_index == outcomes.count("done")
    assert is_paired(session.messages)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=25)
@given(TURNS)
def test_a_turn_is_all_or_nothing(backend: str, turns: Any) -> None:
    """D-32, M-018, X-35."""
    anyio.run(one_by_one, turns, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=15)
@given(TURNS.filter(lambda turns: all(expected(*turn) != "cancelled" for turn in turns)))
def test_turns_at_once_are_turns_one_after_another(backend: str, turns: Any) -> None:
    """X-39."""
    anyio.run(all_at_once, turns, backend=backend)
