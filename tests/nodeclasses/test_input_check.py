"""Nothing of a tool runs when the input check has failed (B-104)."""

from __future__ import annotations

from typing import Any, Literal

import anyio
import pytest

from graphrt import END, START, AgentNode, HookEvent, Workflow
from graphrt.errors import HookBlockedError
from graphrt.graph import TerminationKind
from graphrt.llm import ScriptedProvider
from graphrt.messages import LLMResponse, Message
from tests.nodeclasses.helpers import Events, asks, call

pytestmark = pytest.mark.anyio

MODES: list[Literal["block", "parallel"]] = ["block", "parallel"]
both_modes = pytest.mark.parametrize("mode", MODES)


def agent(check: Any, mode: Literal["block", "parallel"], ran: list[str], *, script: list[Any] | None = None) -> Any:
    async def work() -> str:
        ran.append("tool")
        return "worked"

    script = script or [asks(call("c-1", "work")), "answered"]
    return AgentNode("a", model=ScriptedProvider(script), tools=[work], input_check=check, input_check_mode=mode).graph


@both_modes
@pytest.mark.parametrize(
    ("verdict", "says"),
    [(False, "no reason given"), ("too rude", "too rude"), ("", "no reason given"), (3, "returned int")],
)
async def test_failed_check_ends_the_agent(mode: Any, verdict: Any, says: str) -> None:
    ran: list[str] = []
    with pytest.raises(HookBlockedError, match=says):
        await agent(lambda given: verdict, mode, ran).run("go")
    assert ran == []


@both_modes
async def test_check_that_raises_has_failed(mode: Any) -> None:
    async def check(given: Any) -> bool:
        raise ValueError("cannot read it")

    ran: list[str] = []
    with pytest.raises(HookBlockedError, match="ValueError: cannot read it") as caught:
        await agent(check, mode, ran).run("go")
    assert isinstance(caught.value.cause, ValueError)
    assert ran == []


@both_modes
@pytest.mark.parametrize("verdict", [True, None])
async def test_passed_check_changes_nothing(mode: Any, verdict: Any) -> None:
    given: list[Any] = []

    async def check(value: Any) -> Any:
        given.append(value)
        return verdict

    ran: list[str] = []
    messages = [Message.user("go")]
    result = await agent(check, mode, ran).run(messages)

    assert given == [messages]
    assert (result.output, ran) == ("answered", ["tool"])
    assert result.messages[0] == Message.user("go")


async def test_blocking_check_comes_before_the_first_inference() -> None:
    provider = ScriptedProvider(["never"])
    node = AgentNode("a", model=provider, input_check=lambda given: "no")

    result = await node.graph.run("go", check=False)

    assert provider.calls == []
    assert result.termination.kind is TerminationKind.BLOCKED
    assert isinstance(result.error, HookBlockedError)


async def test_parallel_check_runs_beside_the_first_inference() -> None:
    asked, checked = anyio.Event(), anyio.Event()

    async def check(given: Any) -> bool:
        with anyio.fail_after(10):
            await asked.wait()
        checked.set()
        return True

    async def reply(messages: Any, tools: Any, kwargs: Any) -> LLMResponse:
        asked.set()
        with anyio.fail_after(10):
            await checked.wait()
        return LLMResponse("answered")

    result = await agent(check, "parallel", [], script=[reply]).run("go")

    assert result.output == "answered"


@pytest.mark.parametrize("passes", [True, False])
async def test_no_tool_starts_before_the_verdict(passes: bool) -> None:
    replied = anyio.Event()
    seen: list[int] = []
    ran: list[str] = []

    async def check(given: Any) -> bool:
        with anyio.fail_after(10):
            await replied.wait()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        seen.append(len(ran))
        return passes

    def reply(messages: Any, tools: Any, kwargs: Any) -> LLMResponse:
        replied.set()
        return asks(call("c-1", "work"), call("c-2", "work"))

    result = await agent(check, "parallel", ran, script=[reply, "answered"]).run("go", check=False)

    assert seen == [0]
    assert ran == (["tool", "tool"] if passes else [])
    assert isinstance(result.error, HookBlockedError) is not passes


async def test_answer_waits_for_the_verdict_too() -> None:
    replied = anyio.Event()

    async def check(given: Any) -> str:
        with anyio.fail_after(10):
            await replied.wait()
        return "after all, no"

    def reply(messages: Any, tools: Any, kwargs: Any) -> LLMResponse:
        replied.set()
        return LLMResponse("answered")

    with pytest.raises(HookBlockedError, match="after all, no"):
        await agent(check, "parallel", [], script=[reply]).run("go")


async def test_verdict_ends_the_inference_in_progress() -> None:
    stopped: list[str] = []

    async def reply(messages: Any, tools: Any, kwargs: Any) -> LLMResponse:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append("model")
        raise AssertionError("unreachable")

    with anyio.fail_after(10), pytest.raises(HookBlockedError):
        await agent(lambda given: False, "parallel", [], script=[reply]).run("go")
    assert stopped == ["model"]


async def test_check_of_an_agent_in_a_graph_is_the_failure_of_its_node() -> None:
    async def instead(error: HookBlockedError) -> str:
        return f"refused: {error.reason}"

    workflow = Workflow("w", input=str, output=str)
    workflow.add(AgentNode("a", model=ScriptedProvider(["never"]), input_check=lambda given: "no"))
    workflow.node(instead)
    workflow.chain(START, "a", END)
    workflow.edge("a", instead, on_error=HookBlockedError)
    workflow.edge(instead, END)

    assert (await workflow.run("go")).output == "refused: no"


async def test_synchronous_check_does_not_hold_up_the_loop() -> None:
    """It runs in a thread, as a synchronous node does."""
    started = anyio.Event()
    token = anyio.lowlevel.current_token()

    def check(given: Any) -> bool:
        anyio.from_thread.run_sync(started.set, token=token)
        return True

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(started.wait)
            assert (await agent(check, "block", []).run("go")).output == "answered"


async def test_events_show_the_check() -> None:
    events = Events()
    with pytest.raises(HookBlockedError):
        await agent(lambda given: False, "block", []).run("go", on_event=events)

    assert [event.step.node for event in events.of("step.failed") if event.step] == ["check"]
    assert HookEvent.PRE_REQUEST not in events.types()
