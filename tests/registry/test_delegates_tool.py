"""An agent as a tool, and the node of one; who runs the agent is a stand-in here."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from graphrt import END, START, Workflow
from graphrt.errors import ToolErrorKind
from graphrt.graph import NodeKind
from graphrt.messages import TokenUsage, ToolCall
from graphrt.nodes.approval import ApprovalNode
from graphrt.nodes.delegate import ApprovedDelegateNode, DelegateNode
from graphrt.policies import Budget
from graphrt.tools import ToolContext, answer_call
from graphrt.tools.delegate import (
    AgentTool,
    Caller,
    DelegateReply,
    DelegateResult,
    calling,
    current_caller,
    tell_started,
)
from tests.engine.helpers import FAKE_TIME
from tests.nodeclasses.helpers import Events, alone
from tests.telemetry.collecting import Collected, attributes

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


class Answering:
    """A delegate that gives one reply, or does what it is told, and notes what it was asked."""

    def __init__(self, reply: DelegateReply | Exception | Callable[[ToolContext[Any]], Awaitable[DelegateReply]]):
        self.reply = reply
        self.prompts: list[str] = []

    async def run(self, prompt: str, ctx: ToolContext[Any]) -> DelegateReply:
        self.prompts.append(prompt)
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply if isinstance(self.reply, DelegateReply) else await self.reply(ctx)


def call(**arguments: Any) -> ToolCall:
    return ToolCall("call-1", "agent_run_worker", arguments)


# --- the tool


def test_the_tool_is_named_after_the_agent_and_takes_a_prompt() -> None:
    """AC-W15."""
    descriptor = AgentTool("worker", Answering(DelegateReply("x"))).descriptor
    assert descriptor.id == "agent_run_worker"
    assert list(descriptor.parameters["properties"]) == ["prompt"]
    assert descriptor.parameters["required"] == ["prompt"]
    assert "'worker'" in descriptor.description


def test_a_description_may_be_given() -> None:
    assert AgentTool("worker", Answering(DelegateReply("x")), description="does it").descriptor.description == "does it"


async def test_the_agents_text_is_the_result_and_its_run_is_noted_beside_it() -> None:
    """X-19."""
    tool = AgentTool("worker", Answering(DelegateReply("done", "run-7", TokenUsage(1, 2))))
    result = await answer_call(tool, call(prompt="do it"), ToolContext())
    assert isinstance(result, DelegateResult)
    assert result.text == "done"
    assert (result.run_id, result.usage) == ("run-7", TokenUsage(1, 2))


@pytest.mark.parametrize("arguments", [{}, {"prompt": ""}, {"prompt": " \n"}, {"prompt": 3}, {"task": "x"}])
async def test_without_a_prompt_there_is_an_error_and_no_run(arguments: dict[str, Any]) -> None:
    """AC-W15."""
    worker = Answering(DelegateReply("done"))
    tool = AgentTool("worker", worker)
    result = await answer_call(tool, call(**arguments), ToolContext())
    assert result.kind is ToolErrorKind.INVALID_ARGUMENTS
    assert "prompt" in result.text
    assert worker.prompts == []


async def test_a_failure_is_an_error_for_the_model() -> None:
    cause = ValueError("x")
    reply = DelegateReply(error="agent 'worker' failed", run_id="run-7", kind=ToolErrorKind.TIMEOUT, cause=cause)
    result = await answer_call(AgentTool("worker", Answering(reply)), call(prompt="do it"), ToolContext())
    assert isinstance(result, DelegateResult)
    assert (result.text, result.kind, result.cause, result.run_id) == (
        "agent 'worker' failed",
        ToolErrorKind.TIMEOUT,
        cause,
        "run-7",
    )


async def test_an_exception_of_the_back_end_is_an_error_for_the_model() -> None:
    result = await answer_call(AgentTool("worker", Answering(OSError("disk"))), call(prompt="x"), ToolContext())
    assert result.text == "tool 'agent_run_worker' failed: OSError: disk"


async def test_readers_are_told_of_both_runs() -> None:
    """X-19."""
    told: list[tuple[str, Any]] = []

    async def work(ctx: ToolContext[Any]) -> DelegateReply:
        tell_started("worker", "run-7", ctx)
        return DelegateReply(run_id="run-7", error="no")

    ctx: ToolContext[Any] = ToolContext(run_id="run-1", emit=lambda type, data: told.append((type, dict(data))))
    await answer_call(AgentTool("worker", Answering(work)), call(prompt="x"), ctx)
    data = {"agent_id": "worker", "run_id": "run-7", "parent_run_id": "run-1", "tool_call_id": "call-1"}
    assert told == [("custom.delegate.started", data), ("custom.delegate.completed", {**data, "error": "no"})]


# --- who calls


async def test_who_calls_is_known_in_the_block_only() -> None:
    caller = Caller()
    with calling(caller):
        assert current_caller() is caller
    assert current_caller() is not caller


async def test_time_in_which_a_person_is_asked_is_not_work() -> None:
    """B-103."""
    caller = Caller(limit=10)
    with caller.working() as limit:
        await anyio.sleep(6)
        with caller.waiting():
            await anyio.sleep(60)
            with caller.waiting():
                await anyio.sleep(60)
            assert limit.deadline == math.inf
        await anyio.sleep(3)
        assert limit.deadline - anyio.current_time() == pytest.approx(1)
        await anyio.sleep(2)
    assert limit.cancelled_caught


async def test_the_step_is_held_once_however_many_questions_are_open() -> None:
    from contextlib import contextmanager

    held: list[str] = []

    @contextmanager
    def hold() -> Any:
        held.append("on")
        yield
        held.append("off")

    caller = Caller(hold=hold)

    async def ask(seconds: float) -> None:
        with caller.waiting():
            await anyio.sleep(seconds)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, 2)
        await anyio.sleep(1)
        tasks.start_soon(ask, 3)
    assert held == ["on", "off"]


# --- the node


def node(reply: Any, **options: Any) -> DelegateNode:
    return DelegateNode(AgentTool("worker", Answering(reply)), **options)


def test_the_node_is_an_agent() -> None:
    assert node(DelegateReply("x")).kind is NodeKind.AGENT
    assert node(DelegateReply("x")).name == "tool:agent_run_worker"


async def test_the_node_answers_the_call_and_counts_what_the_agent_used() -> None:
    graph = alone(node(DelegateReply("done", "run-7", TokenUsage(1, 2)))).compile()
    result = await graph.run(call(prompt="do it"))
    assert (result.output.tool_call_id, result.output.content) == ("call-1", "done")
    assert result.usage == TokenUsage(1, 2)


async def test_the_node_gives_the_agent_the_budget_of_the_run() -> None:
    found: list[Any] = []

    async def work(ctx: ToolContext[Any]) -> DelegateReply:
        found.append(ctx.budget)
        return DelegateReply("done")

    await alone(node(work)).compile().run(call(prompt="x"), budget=Budget(requests=3))
    assert found[0].budget == Budget(requests=3)


async def test_the_span_of_the_step_names_the_agents_run() -> None:
    async def work(ctx: ToolContext[Any]) -> DelegateReply:
        tell_started("worker", "run-7", ctx)
        return DelegateReply("done", "run-7")

    collected = Collected()
    await alone(node(work)).compile().run(call(prompt="x"), telemetry=collected.telemetry)
    [found] = [each for each in map(attributes, collected.spans) if "graphrt.delegate.run.id" in each]
    assert found["graphrt.delegate.run.id"] == "run-7"
    assert found["gen_ai.agent.name"] == "worker"
    assert found["gen_ai.tool.call.id"] == "call-1"


async def test_an_agent_that_works_too_long_is_stopped_and_named_with_its_run() -> None:
    stopped = anyio.Event()

    async def work(ctx: ToolContext[Any]) -> DelegateReply:
        tell_started("worker", "run-7", ctx)
        try:
            await anyio.sleep(100)
        finally:
            stopped.set()
        raise AssertionError("it was not stopped")

    events = Events()
    result = await alone(node(work, timeout=10)).compile().run(call(prompt="x"), on_event=events)
    assert result.output.content == "agent 'worker' was stopped: it had no answer after 10 seconds"
    assert stopped.is_set()
    [ended] = events.of("custom.delegate.completed")
    assert ended.data["run_id"] == "run-7"


@pytest.mark.parametrize("where", ["node", "run"])
async def test_neither_clock_of_work_counts_the_time_of_a_question(where: str) -> None:
    """B-103."""

    async def work(ctx: ToolContext[Any]) -> DelegateReply:
        with current_caller().waiting():
            await anyio.sleep(60)
        await anyio.sleep(5)
        return DelegateReply("done")

    graph = alone(node(work, timeout=10 if where == "node" else None)).compile()
    result = await graph.run(call(prompt="x"), timeout=10 if where == "run" else None)
    assert result.output.content == "done"


@pytest.mark.parametrize("approved", [True, False])
async def test_a_person_may_decide_whether_the_agent_is_called(approved: bool) -> None:
    worker = Answering(DelegateReply("done", "run-7", TokenUsage(1, 2)))
    tool = AgentTool("worker", worker)
    tool.requires_approval = True
    found = ApprovedDelegateNode(tool)
    workflow = Workflow("approved")
    workflow.add(ApprovalNode(tool, "agent_run_worker"))
    workflow.add(found)
    workflow.chain(START, "approve:agent_run_worker", found.name, END)
    workflow.edge(START, found.name, into="call")

    async def answer(question: Any) -> bool:
        return approved

    result = await workflow.compile().run(call(prompt="do it"), on_ask=answer)
    assert worker.prompts == (["do it"] if approved else [])
    assert result.usage == (TokenUsage(1, 2) if approved else None)
