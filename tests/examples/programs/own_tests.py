"""Tests of an agent, as its authors write them: a script for the model, faults on purpose, time that jumps, recorders.

`pytest` runs them on both event loops, without a network and without waiting. A script that is at its end, or has
entries left, says that the agent asked for something else than the test expected.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from graphrt import AgentBuilder, AgentConfig, AgentSession, HookExecutor, LLMProvider, SimpleAgent, ToolRegistry
from graphrt.errors import LimitExceededError
from graphrt.messages import LLMResponse, ToolCall
from graphrt.testing import FaultyProvider, ScriptedProvider, SpanRecorder, delay, fail, fake_time

pytestmark = pytest.mark.anyio

ASK = LLMResponse(tool_calls=[ToolCall("1", "stock", {"item": "lamp"})])


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Run every test on an event loop whose time jumps; tools are async, since trio's does not wait for threads."""
    return fake_time(request.param)


async def stock(item: str) -> int:
    """Tell how many of an item are in stock, after a while."""
    await anyio.sleep(2)
    return 3


def clerk(model: LLMProvider, spans: SpanRecorder | None = None) -> AgentSession:
    """Make what is tested."""
    tools = ToolRegistry()
    tools.register(stock)
    builder = AgentBuilder().provider(model).tool_registry(tools).hook_executor(HookExecutor())
    bundle = builder.config(AgentConfig(timeout_seconds=60)).build()
    return AgentSession("s-1", SimpleAgent("clerk"), bundle, telemetry=None if spans is None else spans.telemetry)


async def test_stock_is_looked_up_and_told() -> None:
    """The model was given what the tool said, and the script is used up."""
    model, spans = ScriptedProvider([ASK, "Three."]), SpanRecorder()
    turn = await clerk(model, spans).submit_turn("How many lamps?")
    assert (turn.content, turn.rounds, model.remaining) == ("Three.", 2, 0)
    assert model.calls[1].messages[-1].content == "3"
    assert [span.name for span in spans.of_kind("tool")] == ["execute_tool stock"]


async def test_turn_is_cut_off_where_the_model_hangs() -> None:
    """A minute of waiting takes no time, and the session is as it was."""
    session = clerk(FaultyProvider(ScriptedProvider(["late"]), delay(1, 3600)))
    with pytest.raises(LimitExceededError, match="60 s"):
        await session.submit_turn("Hello?")
    assert session.turn_index == 0


async def test_failure_of_the_model_is_the_turn_s() -> None:
    """The next turn goes on."""
    session = clerk(FaultyProvider(ScriptedProvider(["Hello!"]), fail(1, OSError("no network"))))
    with pytest.raises(Exception, match="no network"):
        await session.submit_turn("Hello?")
    assert (await session.submit_turn("Hello?")).content == "Hello!"


def main() -> int:
    """Run them without pytest, and count them."""
    tests = (
        test_stock_is_looked_up_and_told,
        test_turn_is_cut_off_where_the_model_hangs,
        test_failure_of_the_model_is_the_turn_s,
    )
    for backend, options in (fake_time("asyncio"), fake_time("trio")):
        for test in tests:
            anyio.run(test, backend=backend, backend_options=options)
    return len(tests)
