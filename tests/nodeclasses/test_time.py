"""Time limits of tools and agents, with clocks that jump."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from graphrt import END, START, AgentNode, Workflow, function_tool
from graphrt.errors import HookBlockedError
from graphrt.graph import Question, RunStatus
from graphrt.llm import ScriptedProvider
from graphrt.nodes import ToolNode
from tests.engine.helpers import FAKE_TIME
from tests.nodeclasses.helpers import alone, answers, asks, call

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run every test on both event loops, with fake time."""
    return request.param


async def test_tools_time_out_becomes_text() -> None:
    """D-39: the nearest limit wins."""

    @function_tool(timeout=5)
    async def wait() -> None:
        await anyio.sleep(60)

    result = await alone(ToolNode(wait, timeout=2)).run(call("c-1", "wait"))

    assert "no result after 2 seconds" in result.output.content


async def test_runs_deadline_does_not() -> None:
    """D-12, B-053."""

    async def wait() -> None:
        await anyio.sleep(60)

    with pytest.raises(TimeoutError, match="did not finish within 3 s"):
        await alone(ToolNode(wait)).run(call("c-1", "wait"), timeout=3)


async def test_exclusive_tool_runs_alone() -> None:
    """D-30."""
    spans: list[tuple[str, float, float]] = []

    def tool(name: str, *, exclusive: bool) -> Any:
        async def work() -> None:
            began = anyio.current_time()
            await anyio.sleep(1)
            spans.append((name, began, anyio.current_time()))

        return function_tool(work, id=name, exclusive=exclusive)

    workflow = Workflow("w")
    for name, exclusive in (("a", False), ("b", True), ("c", False), ("d", False)):
        workflow.add(ToolNode(tool(name, exclusive=exclusive), gated=True))
        workflow.chain(START, f"tool:{name}", END)
    await workflow.run(call("c-1", "any"))

    alone_from, alone_to = next((began, ended) for name, began, ended in spans if name == "b")
    assert all(ended <= alone_from or began >= alone_to for name, began, ended in spans if name != "b")
    assert max(ended for _, _, ended in spans) - min(began for _, began, _ in spans) < 4


async def test_run_limit_ends_an_agent_with_the_work_so_far() -> None:
    """B-053: over several rounds, and its tools included."""
    stopped: list[str] = []

    async def slow() -> str:
        try:
            await anyio.sleep(10)
        finally:
            stopped.append("tool")
        return "slow"

    async def quick() -> str:
        await anyio.sleep(1)
        return "quick"

    provider = ScriptedProvider([asks(call("c-1", "quick")), asks(call("c-2", "slow"))])
    result = await AgentNode("a", model=provider, tools=[slow, quick]).graph.run("go", timeout=5, check=False)

    assert result.status is RunStatus.TIMED_OUT
    assert stopped == ["tool"]
    assert answers(result.messages) == [("c-1", "quick")]


async def test_agents_tools_have_a_time_limit_of_their_own() -> None:
    async def wait() -> None:
        await anyio.sleep(60)

    provider = ScriptedProvider([asks(call("c-1", "wait")), "went on"])
    result = await AgentNode("a", model=provider, tools=[wait], tool_timeout=2).graph.run("go")

    assert "no result after 2 seconds" in answers(result.messages)[0][1]
    assert result.output == "went on"


async def test_input_check_that_fails_late_comes_before_every_tool() -> None:
    """B-104: the check takes 0.2 s, the model asks for a tool at 0.1 s."""
    ran: list[str] = []

    async def work() -> None:
        ran.append("tool")

    async def check(given: object) -> bool:
        await anyio.sleep(0.2)
        return False

    for mode in ("block", "parallel"):
        provider = ScriptedProvider([asks(call("c-1", "work")), "never"], delay=0.1)
        agent = AgentNode("a", model=provider, tools=[work], input_check=check, input_check_mode=mode)
        with pytest.raises(HookBlockedError):
            await agent.graph.run("go")
        assert ran == []


async def test_waiting_for_approval_counts_in_no_time_limit_of_work() -> None:
    """B-103."""

    @function_tool(requires_approval=True)
    async def work() -> str:
        await anyio.sleep(1)
        return "worked"

    async def reply(question: Question) -> bool:
        await anyio.sleep(60)
        return True

    provider = ScriptedProvider([asks(call("c-1", "work")), "done"])
    result = await AgentNode("a", model=provider, tools=[work]).graph.run("go", timeout=10, on_ask=reply)

    assert answers(result.messages) == [("c-1", "worked")]
