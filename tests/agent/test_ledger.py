"""Runs and turns of agents in a ledger: recorded, suspended, and gone on with by another runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from graphrt import END, START, AgentConfig, ConfigError, HookEvent, HookExecutor, LlmError, Workflow
from graphrt.agent import AgentRuntime, AgentRuntimeBuilder, AgentSession, RunRequest, Session, SimpleAgent
from graphrt.errors import BuildError, GraphChangedError, GraphError, GraphTypeError, LlmErrorKind, RunControlError
from graphrt.graph import RunEvent, RunStatus, TerminationKind
from graphrt.graph.durable.work import Ledger
from graphrt.ledger import AgentRun, AgentRunStatus, RunFilter, RunLedgerStore
from graphrt.llm import ScriptedProvider
from graphrt.messages import Role, TokenUsage
from graphrt.plugins import GateDecision, Phase, PhaseContext, Plugin, PluginDescriptor, PluginRegistrar, StateCommand
from graphrt.registry import AgentSpec, ModelSpec
from graphrt.tools import ToolContext, ToolResult, function_tool
from tests.agent.helpers import Heard, add, asks, bundle_of, call, echo, is_paired, offered, texts
from tests.durable.helpers import check_numbers, ended_keys, store_of, stored_events

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    async with store_of(request.param, tmp_path) as made:
        yield made


class Bank:
    """A tool that needs approval, and what it was called with."""

    def __init__(self) -> None:
        self.paid: list[tuple[int, str | None]] = []

    def tool(self) -> Any:
        @function_tool(requires_approval=True)
        async def pay(amount: int, ctx: ToolContext[Any]) -> str:
            """Pay."""
            self.paid.append((amount, ctx.idempotency_key))
            return f"paid {amount}"

        return pay

    @property
    def amounts(self) -> list[int]:
        return [amount for amount, _ in self.paid]


class Slow:
    """A tool that does not end while it is told to hang."""

    def __init__(self) -> None:
        self.keys: list[str | None] = []
        self.hangs = True
        self.called = anyio.Event()

    async def slow(self, ctx: ToolContext[Any]) -> str:
        """Take long."""
        self.keys.append(ctx.idempotency_key)
        self.called.set()
        if self.hangs:
            await anyio.sleep_forever()
        return "at last"


def builder_of(
    provider: ScriptedProvider, *tools: Any, ledger: Any = None, spec: AgentSpec | None = None
) -> AgentRuntimeBuilder:
    builder = AgentRuntimeBuilder().with_agent_spec(spec or AgentSpec("helper", system_prompt="be brief"))
    builder.with_model(ModelSpec("default", "main", "gpt")).with_provider("main", provider)
    for tool in tools:
        builder.with_tool(getattr(tool, "__name__", None) or tool.descriptor.id, tool)
    return builder if ledger is None else builder.with_ledger(ledger)


def runtime_of(script: Any, *tools: Any, ledger: Any) -> tuple[AgentRuntime, ScriptedProvider]:
    provider = ScriptedProvider(script)
    return builder_of(provider, *tools, ledger=ledger).build(), provider


async def row_of(store: RunLedgerStore, run_id: str) -> AgentRun:
    stored = await store.get_run(run_id)
    assert stored is not None
    return stored


async def only_row(store: RunLedgerStore) -> AgentRun:
    [stored] = (await store.list_runs(RunFilter())).items
    return stored


async def check_whole(store: RunLedgerStore, run_id: str) -> None:
    """Assert that events are numbered without a gap, and that no step has ended twice."""
    events = await stored_events(store, run_id)
    check_numbers(events)
    assert not [key for key, times in ended_keys(events).items() if times > 1]


async def cut_off(work: Callable[[], Any], when: anyio.Event) -> None:
    """Begin something, and cancel it at the event."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await when.wait()
        await anyio.sleep(0.1)  # what has ended is stored meanwhile
        tasks.cancel_scope.cancel()


async def until_asked(runtime: AgentRuntime) -> None:
    """Wait until somebody is asked something."""
    with anyio.fail_after(5):
        while not runtime.questions:  # noqa: ASYNC110 - nobody is told when a question comes up
            await anyio.sleep(0.01)


PAYS: list[Any] = [asks(call("c1", "pay", amount=5)), "done"]


# --- what is recorded --------------------------------------------------------------------------------------


async def test_a_run_has_a_row_with_the_agent_and_its_rights(store: RunLedgerStore) -> None:
    used = TokenUsage(10, 2)
    runtime, _ = runtime_of([asks(call("1", a=1, b=2), usage=used), "three"], add, ledger=store)
    result = await runtime.run(RunRequest("helper", "add", run_id="r"))
    stored = await row_of(store, "r")
    assert (result.output, stored.status) == ("three", AgentRunStatus.COMPLETED)
    assert (stored.agent_id, stored.runner_id, stored.conversation_id) == ("helper", "agent:helper", None)
    rights = stored.authorization
    assert (rights.runner_id, rights.allowed_tools, rights.allowed_models) == ("agent:helper", ("add",), ("default",))
    assert stored.usage == used
    await check_whole(store, "r")


async def test_models_that_stand_in_are_among_the_rights(store: RunLedgerStore) -> None:
    spec = AgentSpec("helper", sections={"retry": {"fallback_models": ["other"]}})
    builder = builder_of(ScriptedProvider(["fine"]), ledger=store, spec=spec)
    await builder.with_model(ModelSpec("other", "main", "gpt-2")).build().run(RunRequest("helper", "hi", run_id="r"))
    assert (await row_of(store, "r")).authorization.allowed_models == ("default", "other")


async def test_a_run_that_exists_gives_its_result_and_is_not_run_again(store: RunLedgerStore) -> None:
    script = [asks(call("1", a=1, b=2), usage=TokenUsage(10, 2)), "three"]
    first, _ = runtime_of(script, add, ledger=store)
    before = await first.run(RunRequest("helper", "add", run_id="r"))
    again, provider = runtime_of([], add, ledger=store)
    after = await again.run(RunRequest("helper", "add", run_id="r"))
    assert (after.output, after.status, after.messages) == (before.output, before.status, before.messages)
    assert after.usage == before.usage == TokenUsage(10, 2)
    assert after.response == before.response
    assert provider.calls == []


@pytest.mark.parametrize(("agent", "input"), [("helper", "subtract"), ("other", "add")])
async def test_a_run_that_exists_with_another_input_or_agent_is_a_conflict(
    store: RunLedgerStore, agent: str, input: str
) -> None:
    provider = ScriptedProvider(["fine"])
    runtime = builder_of(provider, ledger=store).with_agent_spec(AgentSpec("other")).build()
    await runtime.run(RunRequest("helper", "add", run_id="r"))
    with pytest.raises(RunControlError, match="exists") as caught:
        await runtime.run(RunRequest(agent, input, run_id="r"))
    assert caught.value.code == "conflict"
    assert len(provider.calls) == 1


async def test_two_who_ask_for_one_run_at_once_get_one(store: RunLedgerStore) -> None:
    runtime, provider = runtime_of(["fine"], ledger=store)
    outputs: list[str] = []

    async def ask() -> None:
        outputs.append((await runtime.run(RunRequest("helper", "hi", run_id="r"))).output)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        tasks.start_soon(ask)
    assert outputs == ["fine", "fine"]
    assert len(provider.calls) == 1


async def test_a_runtime_from_a_provider_takes_a_ledger_with_its_settings(store: RunLedgerStore) -> None:
    ledger = Ledger(store, durability="sync")
    runtime = AgentRuntime.from_provider(ScriptedProvider(["fine"]), ledger=ledger)
    await runtime.run(RunRequest("default", "hi", run_id="r"))
    assert (await row_of(store, "r")).status is AgentRunStatus.COMPLETED


@pytest.mark.parametrize("wrong", [object(), RunLedgerStore, "ledger.db"])
def test_what_is_no_ledger_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="ledger"):
        AgentRuntime.from_provider(ScriptedProvider(), ledger=wrong)
    with pytest.raises(BuildError, match="ledger"):
        builder_of(ScriptedProvider(), ledger=wrong).build()
    with pytest.raises(ConfigError, match="ledger"):
        AgentSession("s", SimpleAgent("helper"), bundle_of(ScriptedProvider()), ledger=wrong)


# --- runs that wait for a person ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "paid", "told"),
    [
        (True, [5], "paid 5"),
        ({"approved": False, "reason": "too much"}, [], "too much"),
        ({"approved": True, "arguments": {"amount": 3}}, [3], "paid 3"),
    ],
)
async def test_a_run_is_suspended_and_goes_on_elsewhere(
    store: RunLedgerStore, answer: Any, paid: list[int], told: str
) -> None:
    bank, hooks = Bank(), HookExecutor()
    heard = Heard(hooks, [HookEvent.ON_ERROR])
    provider = ScriptedProvider(PAYS[:1])
    runtime = builder_of(provider, bank.tool(), ledger=store).with_hook_executor(hooks).build()
    result = await runtime.run(RunRequest("helper", "pay", run_id="r"))
    assert (result.status, result.termination.kind) == (RunStatus.WAITING, TerminationKind.SUSPENDED)
    assert (await row_of(store, "r")).status is AgentRunStatus.WAITING
    assert (heard, runtime.questions, bank.paid) == ([], [], [])
    [question] = result.questions
    assert question.question["arguments"] == {"amount": 5}
    elsewhere, provider = runtime_of(PAYS[1:], bank.tool(), ledger=store)
    result = await elsewhere.resume("r", answers={question.id: answer})
    assert (result.status, result.output) == (RunStatus.SUCCEEDED, "done")
    assert bank.amounts == paid
    assert told in str(provider.calls[0].messages[-1].content)
    assert texts(provider.calls[0].messages)[:2] == ["system: be brief", "user: pay"]
    assert is_paired(result.messages)
    await check_whole(store, "r")


async def test_a_run_that_waits_gives_its_questions_to_whoever_asks_for_it(store: RunLedgerStore) -> None:
    runtime, _ = runtime_of(PAYS, Bank().tool(), ledger=store)
    first = await runtime.run(RunRequest("helper", "pay", run_id="r"))
    second = await runtime.run(RunRequest("helper", "pay", run_id="r"))
    assert second.status is RunStatus.WAITING
    assert [each.id for each in second.questions] == [each.id for each in first.questions]


async def test_answers_may_come_one_by_one(store: RunLedgerStore) -> None:
    bank = Bank()
    script = [asks(call("c1", "pay", amount=1), call("c2", "pay", amount=2)), "done"]
    runtime, _ = runtime_of(script, bank.tool(), ledger=store)
    result = await runtime.run(RunRequest("helper", "pay", run_id="r"))
    first, second = result.questions
    with pytest.raises(GraphError, match="2 questions"):
        await runtime.resume("r", answers=True)
    with pytest.raises(GraphTypeError):
        await runtime.resume("r", answers={first.id: "maybe"})
    result = await runtime.resume("r", answers={first.id: True})
    assert (result.status, bank.amounts) == (RunStatus.WAITING, [1])
    assert [each.id for each in result.questions] == [second.id]
    result = await runtime.resume("r", answers=True)
    assert (result.output, bank.amounts) == ("done", [1, 2])
    assert len({key for _, key in bank.paid}) == 2
    await check_whole(store, "r")


async def test_who_is_given_to_ask_is_asked_and_nothing_is_suspended(store: RunLedgerStore) -> None:
    bank = Bank()
    script = [asks(call("c1", "pay", amount=1)), asks(call("c2", "pay", amount=2)), "done"]
    runtime, _ = runtime_of(script, bank.tool(), ledger=store)

    async def yes(question: Any) -> bool:
        return True

    await runtime.run(RunRequest("helper", "pay", run_id="r"))
    result = await runtime.resume("r", answers=True, on_ask=yes)
    assert (result.output, bank.amounts) == ("done", [1, 2])
    runtime, _ = runtime_of(script, bank.tool(), ledger=store)
    assert (await runtime.run(RunRequest("helper", "pay"), on_ask=yes)).output == "done"


async def test_a_stream_ends_when_its_run_is_suspended(store: RunLedgerStore) -> None:
    runtime, _ = runtime_of(PAYS, Bank().tool(), ledger=store)
    async with runtime.stream(RunRequest("helper", "pay", run_id="r")) as run:
        seen = [event.type async for event in run]
        assert run.result.status is RunStatus.WAITING
    assert "tool.call.completed" not in seen
    further: list[RunEvent] = []
    result = await runtime.resume("r", answers=True, on_event=further.append)
    assert result.output == "done"
    assert "tool.call.completed" in [event.type for event in further]
    assert further[0].sequence > len(seen)


# --- going on ----------------------------------------------------------------------------------------------


async def test_tools_that_have_answered_are_not_called_again_and_keys_stay_the_same(store: RunLedgerStore) -> None:
    """B-073."""
    added: list[int] = []

    async def count(n: int) -> int:
        """Count."""
        added.append(n)
        return n

    slow = Slow()
    script = [asks(call("1", "count", n=1), call("2", "slow"), call("3", "count", n=3)), "done"]
    runtime, _ = runtime_of(script[:1], count, slow.slow, ledger=store)
    await cut_off(lambda: runtime.run(RunRequest("helper", "go", run_id="r")), slow.called)
    assert (await row_of(store, "r")).status is AgentRunStatus.CANCELLED
    slow.hangs = False
    elsewhere, provider = runtime_of(script[1:], count, slow.slow, ledger=store)
    result = await elsewhere.resume("r")
    assert (result.output, sorted(added)) == ("done", [1, 3])
    assert len(slow.keys) == 2
    assert len(set(slow.keys)) == 1
    answers = [each.content for each in provider.calls[0].messages if each.role is Role.TOOL]
    assert answers == ["1", "at last", "3"]


async def test_a_run_that_failed_asks_its_model_again(store: RunLedgerStore) -> None:
    hooks = HookExecutor()
    heard = Heard(hooks, [HookEvent.ON_ERROR])
    down: list[Any] = [LlmError("down", LlmErrorKind.UNAUTHORIZED) for _ in range(2)]
    provider = ScriptedProvider([asks(call("1", a=1, b=2)), *down, "3"])
    runtime = builder_of(provider, add, ledger=store).with_hook_executor(hooks).build()
    for _ in range(2):
        assert (await runtime.run(RunRequest("helper", "add", run_id="r"))).status is RunStatus.FAILED
    assert len(heard) == 1
    assert (await runtime.resume("r")).status is RunStatus.FAILED
    assert len(heard) == 2
    assert (await runtime.resume("r")).output == "3"
    assert len(provider.calls) == 4


async def test_what_cannot_be_resumed_is_refused(store: RunLedgerStore) -> None:
    runtime, _ = runtime_of(["fine"], ledger=store)
    await runtime.run(RunRequest("helper", "hi", run_id="r"))
    graph = Workflow("plain", input=int, output=int)
    graph.add_node("n", lambda x: x)
    graph.chain(START, "n", END)
    await graph.compile().run(1, ledger=store, run_id="g")
    for run_id, code in (("r", "conflict"), ("g", "invalid_argument"), ("nobody", "not_found")):
        with pytest.raises(RunControlError) as caught:
            await runtime.resume(run_id)
        assert caught.value.code == code
    with pytest.raises(ConfigError, match="ledger"):
        await builder_of(ScriptedProvider()).build().resume("r")


async def test_an_agent_with_other_tools_goes_on_only_when_that_is_wanted(store: RunLedgerStore) -> None:
    runtime, _ = runtime_of([LlmError("down", LlmErrorKind.UNAUTHORIZED)], echo, ledger=store)
    await runtime.run(RunRequest("helper", "add", run_id="r"))
    changed, provider = runtime_of(["done"], echo, add, ledger=store)
    with pytest.raises(GraphChangedError, match="tool:add"):
        await changed.resume("r")
    result = await changed.resume("r", on_change="ignore")
    assert result.output == "done"
    assert offered(provider.calls[0]) == ["echo", "add"]


class Watching(Plugin):
    """Notes its activations and starts, and blocks a tool."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    @property
    def descriptor(self) -> PluginDescriptor:
        return PluginDescriptor("watching")

    def register(self, registrar: PluginRegistrar) -> None:
        def started(ctx: PhaseContext) -> None:
            self.noted.append("run_start")

        def gate(ctx: PhaseContext) -> GateDecision | None:
            assert ctx.tool_call is not None
            return GateDecision.set_result(ToolResult.success("no adding")) if ctx.tool_call.name == "add" else None

        registrar.phase_hook(Phase.RUN_START, started)
        registrar.tool_gate(gate)

    def on_activate(self, spec: AgentSpec, cmd: StateCommand) -> None:
        self.noted.append("activated")


async def test_plugins_are_activated_and_told_of_a_start_anew(store: RunLedgerStore) -> None:
    plugin, bank = Watching(), Bank()
    spec = AgentSpec("helper", plugin_ids=["watching"])
    provider = ScriptedProvider([asks(call("c1", "pay", amount=5)), asks(call("c2", a=1, b=2)), "done"])
    runtime = builder_of(provider, bank.tool(), add, ledger=store, spec=spec).with_plugin("watching", plugin).build()
    await runtime.run(RunRequest("helper", "pay", run_id="r"))
    assert plugin.noted == ["activated", "run_start"]
    assert (await runtime.resume("r", answers=True)).output == "done"
    assert plugin.noted == ["activated", "run_start"] * 2
    assert bank.amounts == [5]
    assert provider.calls[2].messages[-1].content == "no adding"


# --- turns -------------------------------------------------------------------------------------------------


async def test_every_turn_of_a_conversation_is_a_run_of_it(store: RunLedgerStore) -> None:
    runtime, _ = runtime_of(["one", "two", "three"], ledger=store)
    session = Session("s-1")
    await runtime.process("a", session)
    await runtime.process("b", session)
    opened = runtime.open_session(session=session)
    async with opened.stream_turn("c") as turn:
        assert (await turn.wait()).content == "three"
    rows = (await store.list_runs(RunFilter(conversation_id="s-1"))).items
    assert [each.metadata["turn_index"] for each in rows] == [2, 1, 0]
    assert {(each.status, each.authorization.conversation_id) for each in rows} == {("completed", "s-1")}
    assert {each.agent_id for each in rows} == {"helper"}


async def test_a_session_by_itself_takes_a_ledger(store: RunLedgerStore) -> None:
    bundle = bundle_of(ScriptedProvider([asks(call("1", a=1, b=2)), "three"]), add)
    session = AgentSession("s-1", SimpleAgent("helper"), bundle, ledger=store)
    assert (await session.submit_turn("add")).content == "three"
    stored = await only_row(store)
    assert (stored.agent_id, stored.conversation_id, stored.status) == ("helper", "s-1", "completed")


async def test_a_turn_waits_for_a_person_where_its_session_is(store: RunLedgerStore) -> None:
    bank = Bank()
    runtime, _ = runtime_of(PAYS, bank.tool(), ledger=store)
    session, replies = Session("s-1"), []

    async def take() -> None:
        replies.append(await runtime.process("pay", session))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        await until_asked(runtime)
        await runtime.answer(runtime.questions[0].id, True)
    assert (replies, bank.amounts) == (["done"], [5])
    assert (await only_row(store)).status is AgentRunStatus.COMPLETED


async def test_a_turn_whose_session_is_gone_can_be_gone_on_with(store: RunLedgerStore) -> None:
    slow, prompts = Slow(), []

    class Telling:
        def build(self, config: AgentConfig, session: Any) -> str:
            prompts.append((session.id, session.turn_index, texts(session.messages)))
            return f"turn {session.turn_index}"

    def made(script: Any) -> tuple[AgentRuntime, ScriptedProvider]:
        provider = ScriptedProvider(script)
        return AgentRuntime.from_provider(
            provider, tools=[slow.slow], ledger=store, system_prompt_builder=Telling()
        ), provider

    runtime, _ = made(["hello", asks(call("1", "slow"))])
    session = Session("s-1")
    await runtime.process("hi", session)
    await cut_off(lambda: runtime.process("go", session), slow.called)
    assert texts(session.messages) == ["user: hi", "assistant: hello"]
    slow.hangs = False
    elsewhere, provider = made(["done"])
    [stored] = (await store.list_runs(RunFilter(status=AgentRunStatus.CANCELLED))).items
    result = await elsewhere.resume(stored.run_id)
    assert result.output == "done"
    assert [each for each in texts(result.messages) if each != "assistant: "][:3] == [
        "user: hi",
        "assistant: hello",
        "user: go",
    ]
    assert provider.calls[0].messages[0].content == "turn 1"
    assert prompts[-1] == prompts[-2] == ("s-1", 1, ["user: hi", "assistant: hello"])
