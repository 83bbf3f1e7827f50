"""graphrt's own graphs and agents as runners."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from graphrt.config import AgentConfig
from graphrt.graph import END, START, CompiledGraph, RunContext, Workflow
from graphrt.ledger.control import RunControl
from graphrt.ledger.memory import InMemoryRunLedgerStore
from graphrt.messages import LLMResponse, TokenUsage, ToolCall
from graphrt.nodes.agent_graph import AgentParts
from graphrt.platform import AgentRunContext, AgentRunner, AgentRunOrchestrator, GraphAgentRunner
from graphrt.platform.graph_runner import default_input
from graphrt.registry import (
    AgentSpec,
    MapAgentSpecRegistry,
    MapModelRegistry,
    MapPluginSource,
    MapProviderRegistry,
    ModelSpec,
    RegistrySet,
    resolve,
)
from graphrt.registry.running import RunScope
from graphrt.testing import ScriptedProvider
from graphrt.tools import ToolRegistry, function_tool
from tests.platform.helpers import GUARD, binding, event, events_of, orchestrate, rights

pytestmark = pytest.mark.anyio


@pytest.fixture
def control() -> RunControl:
    return RunControl(InMemoryRunLedgerStore())


@function_tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def agent(*replies: Any, **parts: Any) -> AgentParts:
    return AgentParts(name="adder", executor=ScriptedProvider(list(replies)), tools=[add], **parts)


async def test_an_agent_answers_an_event(control: RunControl) -> None:
    asks = LLMResponse("", [ToolCall("1", "add", {"a": 1, "b": 2})], TokenUsage(5, 1))
    runner: AgentRunner = GraphAgentRunner(agent(asks, LLMResponse("three", usage=TokenUsage(7, 2))))
    on = event(conversation_id="c", input={"message": {"role": "user", "content": "1 + 2?"}})
    run, _ = await orchestrate(control, runner, on=on)
    events = await events_of(control)
    assert [each.type for each in events if each.type != "message.delta"] == [
        "tool.call.started",
        "tool.call.completed",
        "message.completed",
        "run.completed",
    ]
    assert (run.status, run.usage) == ("completed", TokenUsage(12, 3))
    assert "".join(each.data["chunk"]["content"] for each in events if each.type == "message.delta") == "three"
    assert events[-1].data == {"finish_reason": "natural_end", "message": {"role": "assistant", "content": "three"}}
    said = await control.transcript.messages(conversation_id="c")
    assert [(each.role, each.content) for each in said] == [("user", "1 + 2?"), ("assistant", "three")]


async def test_an_agent_of_a_registry_may_call_others(control: RunControl) -> None:
    calls = LLMResponse("", [ToolCall("1", "agent_run_helper", {"prompt": "help"})])
    provider = ScriptedProvider([calls, LLMResponse("helped"), LLMResponse("all done"), LLMResponse("once more")])
    registries = RegistrySet(
        agents=MapAgentSpecRegistry([AgentSpec(id="boss", delegates=["helper"]), AgentSpec(id="helper")]),
        tools=ToolRegistry(),
        models=MapModelRegistry([ModelSpec("default", "p", "m")]),
        providers=MapProviderRegistry({"p": provider}),
        plugins=MapPluginSource(),
    )
    runner = GraphAgentRunner(resolve(registries, "boss"), scope=RunScope(AgentConfig(), registries))
    for answer in ("all done", "once more"):
        orchestrator = AgentRunOrchestrator({"r": runner}, control)
        results = [each async for each in orchestrator.run(event(input={"text": "go"}), binding(), run_id=answer)]
        assert (await control.get_run(answer)).status == "completed"
        assert results[-1].data["message"]["content"] == answer


async def test_an_agent_that_its_limit_stopped_has_completed(control: RunControl) -> None:
    """D-04, D-18."""
    asks = LLMResponse("", [ToolCall("1", "add", {"a": 1, "b": 2})])
    run, _ = await orchestrate(control, GraphAgentRunner(agent(asks, max_rounds=1)), on=event(input={"text": "go"}))
    assert (run.status, run.status_reason) == ("completed", "stopped:max_rounds")


def graph_of(fn: Any, **settings: Any) -> CompiledGraph:
    workflow = Workflow("w", **settings)
    workflow.add_node("work", fn)
    workflow.chain(START, "work", END)
    return workflow.compile()


async def test_what_a_node_makes_and_keeps_is_made_and_kept(control: RunControl) -> None:
    async def work(text: str, ctx: RunContext[Any]) -> int:
        ctx.emit("artifact.created", {"name": "a", "mime_type": "text/plain", "content": text})
        ctx.emit("state.updated", {"scope": "run", "key": "k", "value": 1})
        ctx.emit("custom.note", {"n": 2})
        return 3

    by = binding(authorization=rights(state_scopes=("run",)))
    run, results = await orchestrate(
        control, GraphAgentRunner(graph_of(work, input=str)), by=by, on=event(input={"text": "hi"})
    )
    assert [each.type for each in results] == ["artifact.created", "state.updated", "custom.note", "run.completed"]
    assert results[-1].data == {"finish_reason": "natural_end", "output": 3}
    assert (await control.read_artifact((await events_of(control))[0].artifact_refs[0]))[1] == b"hi"
    assert (run.status, run.usage) == ("completed", None)


async def test_a_failure_of_the_graph_is_the_runs(control: RunControl) -> None:
    async def work(text: str) -> None:
        raise ValueError("no luck")

    run, results = await orchestrate(control, GraphAgentRunner(graph_of(work)), on=event(input={"input": "x"}))
    assert (run.status, run.status_reason) == ("failed", "no luck")
    assert [each.type for each in results] == ["run.failed"]


async def test_a_graph_that_is_out_of_its_own_time_is_out_of_time(control: RunControl) -> None:
    async def work(text: str) -> None:
        await anyio.sleep_forever()

    with anyio.fail_after(GUARD):
        run, _ = await orchestrate(
            control, GraphAgentRunner(graph_of(work, timeout=0.02)), on=event(input={"input": "x"})
        )
    assert run.status == "timeout"


@pytest.mark.parametrize("by_deadline", [True, False])
async def test_deadline_and_cancel_reach_the_graph(control: RunControl, by_deadline: bool) -> None:
    ended: list[str] = []

    async def work(text: str) -> None:
        try:
            if not by_deadline:
                await control.cancel_run("run", "enough")
            await anyio.sleep_forever()
        finally:
            ended.append("work")

    with anyio.fail_after(GUARD):
        run, _ = await orchestrate(
            control,
            GraphAgentRunner(graph_of(work)),
            on=event(input={"input": "x"}),
            deadline=0.1 if by_deadline else None,
        )
    assert (run.status, ended) == ("timeout" if by_deadline else "cancelled", ["work"])


class Order(BaseModel):
    item: str


@pytest.mark.parametrize(
    ("declared", "given", "value"),
    [
        (str, {"text": "a"}, "a"),
        (str, {"message": {"content": "a"}}, "a"),
        (str, {"n": 1}, '{"n": 1}'),
        (Order, {"item": "a"}, {"item": "a"}),
        ({"item": str}, {"item": "a"}, {"item": "a"}),
        (Any, {"input": [1]}, [1]),
        (Any, {"input": 1, "n": 2}, {"input": 1, "n": 2}),
    ],
)
async def test_a_graph_is_given_what_it_declares(declared: Any, given: dict[str, Any], value: Any) -> None:
    async def work(item: Any = None) -> None: ...

    graph = graph_of(work, input=declared)
    assert default_input(AgentRunContext(run_id="r", trigger={}, event=event(), input=given), graph) == value


async def test_a_context_can_be_read_into_an_input_by_hand(control: RunControl) -> None:
    async def work(text: str) -> str:
        return text.upper()

    runner = GraphAgentRunner(graph_of(work, input=str), input_of=lambda ctx: ctx.event.event_id)
    _, results = await orchestrate(control, runner)
    assert results[-1].data["output"] == "E-1"
