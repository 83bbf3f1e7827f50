"""Agents that are called, in a ledger: runs of their own, found again when the caller goes on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrt.agent import AgentRuntime, AgentRuntimeBuilder, RunRequest, Session
from graphrt.graph import RunStatus
from graphrt.ledger import AgentRun, AgentRunStatus, RunChange, RunFilter, RunLedgerStore
from graphrt.llm import ScriptedProvider
from graphrt.messages import LLMResponse, Role, TokenUsage
from graphrt.plugins import Phase, PhaseContext, Plugin, PluginDescriptor, PluginRegistrar
from graphrt.registry import AgentSpec, ModelSpec
from graphrt.registry.backends import local_delegate
from graphrt.registry.recording import child_run_id
from graphrt.tools import AgentTool, Tool, ToolContext, ToolDescriptor, function_tool
from tests.agent.helpers import asks, call
from tests.agent.test_ledger import Bank, Slow, check_whole, cut_off, row_of, until_asked
from tests.durable.helpers import store_of

pytestmark = pytest.mark.anyio

CALLS_WORKER = asks(call("c1", "agent_run_worker", prompt="dig"))


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    async with store_of(request.param, tmp_path) as made:
        yield made


class Late(Plugin):
    """Hangs after a tool has answered, before its step ends, as long as it is told to."""

    def __init__(self) -> None:
        self.hangs = True
        self.reached = anyio.Event()

    @property
    def descriptor(self) -> PluginDescriptor:
        return PluginDescriptor("late")

    def register(self, registrar: PluginRegistrar) -> None:
        async def wait(ctx: PhaseContext) -> None:
            self.reached.set()
            if self.hangs:
                await anyio.sleep_forever()

        registrar.phase_hook(Phase.AFTER_TOOL_EXECUTE, wait)


class Team:
    """A boss who may call a worker; each runtime is of another process, as far as the ledger knows."""

    def __init__(self, store: RunLedgerStore, *tools: Tool | Any) -> None:
        self.store = store
        self.late = Late()
        self.late.hangs = False
        self.tools = tools
        self.worker = ScriptedProvider([])

    def runtime(self, boss: Sequence[Any], worker: Sequence[Any]) -> AgentRuntime:
        self.boss, self.worker = ScriptedProvider(boss), ScriptedProvider(worker)
        builder = AgentRuntimeBuilder().with_ledger(self.store).with_plugin("late", self.late)
        builder.with_model(ModelSpec("big", "boss", "b")).with_provider("boss", self.boss)
        builder.with_model(ModelSpec("small", "worker", "w")).with_provider("worker", self.worker)
        names = [getattr(tool, "__name__", None) or tool.descriptor.id for tool in self.tools]
        for name, tool in zip(names, self.tools, strict=True):
            builder.with_tool(name, tool)
        boss_tools = ["twice", "agent_run_worker"]
        builder.with_agent_spec(
            AgentSpec("boss", "big", delegates=["worker"], plugin_ids=["late"], allowed_tools=boss_tools)
        )
        builder.with_agent_spec(AgentSpec("worker", "small", excluded_tools=["twice"]))
        return builder.build()

    async def children(self) -> list[AgentRun]:
        """Give the runs of the worker, the oldest first."""
        return list(reversed((await self.store.list_runs(RunFilter(agent_id="worker"))).items))

    def told(self) -> list[Any]:
        """Give what the boss was told by tools."""
        return [each.content for each in self.boss.calls[-1].messages if each.role is Role.TOOL]


async def test_the_run_of_an_agent_that_is_called_has_a_row_of_its_own(store: RunLedgerStore) -> None:
    team = Team(store)
    runtime = team.runtime([CALLS_WORKER, "all done"], [LLMResponse("a hole", usage=TokenUsage(7, 3))])
    session = Session("s-1")
    assert await runtime.process("go", session, agent_id="boss") == "all done"
    [child] = await team.children()
    [parent] = (await store.list_runs(RunFilter(agent_id="boss"))).items
    assert (child.metadata["parent_run_id"], child.metadata["tool_call_id"]) == (parent.run_id, "c1")
    assert (child.runner_id, child.status) == ("agent:worker", AgentRunStatus.COMPLETED)
    assert child.usage == parent.usage == TokenUsage(7, 3)
    assert child.conversation_id == parent.conversation_id == "s-1"
    assert child.authorization.conversation_id is None
    assert "parent_run_id" not in parent.metadata
    await check_whole(store, child.run_id)


async def test_one_that_had_ended_is_not_run_again_when_its_caller_goes_on(store: RunLedgerStore) -> None:
    team = Team(store)
    team.late.hangs = True
    runtime = team.runtime([CALLS_WORKER], [LLMResponse("a hole", usage=TokenUsage(7, 3))])
    await cut_off(lambda: runtime.run(RunRequest("boss", "go", run_id="r")), team.late.reached)
    [child] = await team.children()
    assert (child.status, (await row_of(store, "r")).status) == (AgentRunStatus.COMPLETED, AgentRunStatus.CANCELLED)
    team.late.hangs = False
    result = await team.runtime(["all done"], []).resume("r")
    assert (result.output, team.told()) == ("all done", ["a hole"])
    assert team.worker.calls == []
    assert [each.run_id for each in await team.children()] == [child.run_id]
    await check_whole(store, "r")


async def test_one_that_was_cut_off_with_its_caller_goes_on_where_it_was(store: RunLedgerStore) -> None:
    """B-073."""
    dug: list[int] = []

    async def dig() -> str:
        """Dig."""
        dug.append(1)
        return "dug"

    slow = Slow()
    team = Team(store, dig, slow.slow)
    runtime = team.runtime([CALLS_WORKER], [asks(call("1", "dig"), call("2", "slow"))])
    await cut_off(lambda: runtime.run(RunRequest("boss", "go", run_id="r")), slow.called)
    [child] = await team.children()
    assert child.status is AgentRunStatus.CANCELLED
    slow.hangs = False
    result = await team.runtime(["all done"], ["a hole"]).resume("r")
    assert (result.output, team.told()) == ("all done", ["a hole"])
    assert (dug, len(set(slow.keys)), len(slow.keys)) == ([1], 1, 2)
    assert [each.status for each in await team.children()] == [AgentRunStatus.COMPLETED]
    await check_whole(store, child.run_id)


async def test_one_that_a_person_has_cancelled_is_not_begun_again(store: RunLedgerStore) -> None:
    slow = Slow()
    team = Team(store, slow.slow)
    team.late.hangs = True
    runtime = team.runtime([CALLS_WORKER], [asks(call("1", "slow"))])
    reached = team.late.reached

    async def cancel_child() -> None:
        await slow.called.wait()
        [child] = await team.children()
        change = RunChange(cancel_requested_at=datetime.now(UTC), cancel_reason="enough")
        await store.change_run(child.run_id, change, now=datetime.now(UTC))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel_child)
        await cut_off(lambda: runtime.run(RunRequest("boss", "go", run_id="r")), reached)
    team.late.hangs = slow.hangs = False
    result = await team.runtime(["all done"], []).resume("r")
    assert result.output == "all done"
    assert "was cancelled" in team.told()[0]
    assert (len(slow.keys), team.worker.calls) == (1, [])


async def test_the_same_call_in_a_later_round_is_a_run_of_its_own(store: RunLedgerStore) -> None:
    """B-072."""
    team = Team(store)
    team.late.hangs = True
    runtime = team.runtime([CALLS_WORKER], ["first"])
    await cut_off(lambda: runtime.run(RunRequest("boss", "go", run_id="r")), team.late.reached)
    team.late.hangs = False
    runtime = team.runtime([CALLS_WORKER, "all done"], ["second"])
    assert (await runtime.resume("r")).output == "all done"
    assert team.told() == ["first", "second"]
    assert len({each.run_id for each in await team.children()}) == 2
    again = Team(store).runtime([CALLS_WORKER, "all done"], ["third"])
    await again.run(RunRequest("boss", "go", run_id="r2"))
    assert len(await team.children()) == 3


class Step:
    """A step of a run, as far as a tool sees it; its run keeps what is opened."""

    def __init__(self) -> None:
        self.open: dict[Any, Any] = {}
        self.stack = AsyncExitStack()

    async def resource(self, key: Any, opening: Any) -> Any:
        if key not in self.open:
            self.open[key] = await self.stack.enter_async_context(opening(None))
        return self.open[key]


CALL = st.tuples(st.text(max_size=3), st.sampled_from(["worker", "other"]), st.text(max_size=3))


@given(st.lists(CALL, max_size=8))
def test_each_call_has_a_name_of_its_own_which_it_has_again_when_it_is_repeated(calls: list[Any]) -> None:
    """B-072, B-077."""

    async def names() -> list[str | None]:
        run = Step()
        async with run.stack:
            return [
                await child_run_id(agent, prompt, ToolContext(idempotency_key=key, resource=run.resource))
                for key, agent, prompt in calls
            ]

    first = anyio.run(names)
    assert len(set(first)) == len(calls)
    assert anyio.run(names) == first


async def test_a_call_from_outside_of_any_step_has_no_name_that_could_be_found_again() -> None:
    assert await child_run_id("worker", "dig", ToolContext()) is None


class Twice(Tool):
    """Calls an agent twice in one step, with the same prompt."""

    def __init__(self, agent: AgentTool) -> None:
        self.agent = agent

    @property
    def descriptor(self) -> ToolDescriptor:
        return ToolDescriptor("twice", "Ask twice.")

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> str:
        return " ".join([str((await self.agent.execute({"prompt": "dig"}, ctx)).data) for _ in range(2)])


async def test_two_calls_of_one_step_are_two_runs_each_found_again(store: RunLedgerStore) -> None:
    """B-072."""
    team = Team(store)
    registries = team.runtime([], []).registries
    team.tools = (Twice(AgentTool("worker", local_delegate(registries, "worker"))),)
    team.late.hangs = True
    runtime = team.runtime([asks(call("t", "twice"))], ["one", "two"])
    await cut_off(lambda: runtime.run(RunRequest("boss", "go", run_id="r")), team.late.reached)
    assert len(await team.children()) == 2
    team.late.hangs = False
    assert (await team.runtime(["all done"], []).resume("r")).output == "all done"
    assert team.told() == ["one two"]
    assert team.worker.calls == []


async def test_its_question_waits_in_this_process_and_again_where_the_caller_goes_on(store: RunLedgerStore) -> None:
    bank = Bank()
    team = Team(store, bank.tool())
    runtime = team.runtime([CALLS_WORKER], [asks(call("p", "pay", amount=5))])
    asked = anyio.Event()

    async def wait_for_question() -> None:
        await until_asked(runtime)
        asked.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait_for_question)
        await cut_off(lambda: runtime.run(RunRequest("boss", "go", run_id="r")), asked)
    assert bank.paid == []
    runtime = team.runtime(["all done"], ["paid for"])
    results = []

    async def go_on() -> None:
        results.append(await runtime.resume("r"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(go_on)
        await until_asked(runtime)
        await runtime.answer(runtime.questions[0].id, True)
    [result] = results
    assert (result.status, result.output, bank.amounts) == (RunStatus.SUCCEEDED, "all done", [5])
    assert team.told() == ["paid for"]
    assert len(await team.children()) == 1


async def test_it_can_be_resumed_by_itself_and_its_caller_finds_its_result(store: RunLedgerStore) -> None:
    slow = Slow()
    team = Team(store, slow.slow)
    runtime = team.runtime([CALLS_WORKER], [asks(call("1", "slow"))])
    await cut_off(lambda: runtime.run(RunRequest("boss", "go", run_id="r")), slow.called)
    slow.hangs = False
    [child] = await team.children()
    assert (await team.runtime([], ["a hole"]).resume(child.run_id)).output == "a hole"
    assert (await team.runtime(["all done"], []).resume("r")).output == "all done"
    assert team.told() == ["a hole"]


async def test_without_a_ledger_runs_of_one_name_do_not_share_those_of_whom_they_call() -> None:
    """B-072."""

    @function_tool
    async def nothing() -> str:
        """Do nothing."""
        return ""

    boss, worker = ScriptedProvider([CALLS_WORKER, "x", CALLS_WORKER, "y"]), ScriptedProvider(["one", "two"])
    builder = AgentRuntimeBuilder().with_tool("nothing", nothing)
    builder.with_model(ModelSpec("big", "boss", "b")).with_provider("boss", boss)
    builder.with_model(ModelSpec("small", "worker", "w")).with_provider("worker", worker)
    builder.with_agent_specs([AgentSpec("boss", "big", delegates=["worker"]), AgentSpec("worker", "small")])
    runtime = builder.build()
    for _ in range(2):
        await runtime.run(RunRequest("boss", "go", run_id="r"))
    assert [each.messages[-1].content for each in boss.calls[1::2]] == ["one", "two"]
