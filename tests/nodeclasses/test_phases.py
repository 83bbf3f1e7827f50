"""Plugins act at the boundaries inside an agent's nodes, each once, in order, and whatever they do is the run's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from graphrt import AgentNode, HookExecutor, LlmError, RetryPolicy, RunResult
from graphrt.graph import TerminationKind
from graphrt.hooks import HookContext, HookEvent, HookResult
from graphrt.llm import InferenceRequest, ScriptedProvider
from graphrt.messages import LLMResponse, Message, Role, TokenUsage, ToolCall
from graphrt.nodes import AgentParts, compile_agent
from graphrt.plugins import (
    ExecutionEnv,
    GateDecision,
    HookBridgePlugin,
    LoopActionHandlersPlugin,
    Phase,
    PhaseContext,
    PhaseRuntime,
    Plugin,
    PluginDescriptor,
    PluginRegistrar,
    StateCommand,
    StateKey,
)
from graphrt.testing import SpanRecorder
from graphrt.tools import ToolResult, function_tool
from tests.nodeclasses.helpers import Events, add, answers, asks, call, unanswered

pytestmark = pytest.mark.anyio

SETTLED_PHASES = [
    "run_start",
    "step_start 1",
    "before_inference 1",
    "after_inference 1",
    "tool_gate 1",
    "before_tool_execute 1",
    "after_tool_execute 1",
    "step_end 1",
    "step_start 2",
    "before_inference 2",
    "after_inference 2",
    "step_end 2",
    "run_end 2",
]


class Watcher(Plugin):
    """Writes down what it is called for; may do something at one phase."""

    def __init__(self, id: str = "watcher", **hooks: Callable[[PhaseContext], Any]) -> None:
        self.seen: list[str] = []
        self.life: list[str] = []
        self.contexts: list[PhaseContext] = []
        self._id = id
        self._hooks = hooks

    @property
    def descriptor(self) -> PluginDescriptor:
        return PluginDescriptor(self._id)

    def register(self, registrar: PluginRegistrar) -> None:
        for phase in Phase:
            if phase is not Phase.TOOL_GATE:
                registrar.phase_hook(phase, self._hook)
        registrar.tool_gate(self._hook)

    def _hook(self, ctx: PhaseContext) -> Any:
        self.seen.append(str(ctx.phase) + (f" {ctx.round}" if ctx.round is not None else ""))
        self.contexts.append(ctx)
        act = self._hooks.get(str(ctx.phase))
        return None if act is None else act(ctx)

    def on_activate(self, spec: Any, cmd: StateCommand) -> None:
        self.life.append("activate")

    def on_deactivate(self, cmd: StateCommand) -> None:
        self.life.append("deactivate")


def agent(script: list[Any], *plugins: Plugin, **parts: Any) -> tuple[Any, ScriptedProvider]:
    """Compile an agent with these plugins; each activation has a runtime of its own."""
    provider = ScriptedProvider(script)
    env = ExecutionEnv.from_plugins([*plugins, LoopActionHandlersPlugin()])
    parts.setdefault("tools", [function_tool(add)])
    resolved = AgentParts("agent", provider, phases=lambda: PhaseRuntime(env, agent_id="agent"), **parts)
    return compile_agent(resolved), provider


TWO_ROUNDS = [asks(call("c-1", a=1, b=2)), "3"]


async def test_phases_come_in_order_once_in_a_round() -> None:
    watcher = Watcher()
    graph, _ = agent(TWO_ROUNDS, watcher)

    assert (await graph.run("1 + 2?")).output == "3"
    assert watcher.seen == SETTLED_PHASES
    assert watcher.life == ["activate", "deactivate"]


async def test_contexts_tell_what_belongs_to_the_phase() -> None:
    watcher = Watcher()
    graph, _ = agent(TWO_ROUNDS, watcher)
    result = await graph.run("1 + 2?", run_id="r-1")
    by_phase = {ctx.phase: ctx for ctx in watcher.contexts}

    assert {(ctx.run_id, ctx.agent_id) for ctx in watcher.contexts} == {("r-1", "agent")}
    before = by_phase[Phase.BEFORE_INFERENCE]
    assert before.request is not None
    assert [each.role for each in before.messages] == [Role.USER, Role.ASSISTANT, Role.TOOL]
    after = by_phase[Phase.AFTER_TOOL_EXECUTE]
    assert after.tool_call == ToolCall("c-1", "add", {"a": 1, "b": 2})
    assert after.tool_result is not None
    assert after.tool_result.data == 3
    assert by_phase[Phase.AFTER_INFERENCE].response == LLMResponse("3")
    assert result.messages[-1].content == "3"


@pytest.mark.parametrize("phase", [str(phase) for phase in Phase])
async def test_error_of_a_hook_ends_the_run_and_plugins_are_deactivated(phase: str) -> None:
    def fail(ctx: PhaseContext) -> None:
        raise OSError(f"broken at {ctx.phase}")

    hooks: dict[str, Any] = {phase: fail}
    watcher = Watcher(**hooks)
    graph, _ = agent(TWO_ROUNDS, watcher)
    result: RunResult = await graph.run("1 + 2?", check=False)

    assert result.termination.kind is TerminationKind.ERROR
    assert isinstance(result.error, OSError)
    assert watcher.life == ["activate", "deactivate"]
    assert watcher.seen.count(f"{phase} 2") + watcher.seen.count(f"{phase} 1") + watcher.seen.count(phase) == 1


async def test_run_end_and_deactivation_come_in_every_ending() -> None:
    """AC-W21: also when the provider fails, and when the run is out of rounds or cancelled."""
    for script, options in (
        ([LlmError("down", "unauthorized")], {}),
        ([asks(call("c-1", a=1, b=2))], {"max_rounds": 1}),
    ):
        watcher = Watcher()
        graph, _ = agent(script, watcher, **options)
        result = await graph.run("hi", check=False)
        assert result.error is not None
        assert watcher.life == ["activate", "deactivate"]
        assert [each for each in watcher.seen if each.startswith("run_end")] == ["run_end 1"]

    watcher = Watcher(before_inference=lambda ctx: anyio.sleep_forever())
    graph, _ = agent(["never"], watcher)
    with anyio.move_on_after(0.05):
        await graph.run("hi")
    assert watcher.life == ["activate", "deactivate"]


async def test_retries_and_fallbacks_prepare_and_answer_once() -> None:
    watcher = Watcher()
    second = ScriptedProvider(["from the second"])
    down = LlmError("down", "overloaded")
    graph, first = agent(
        [down, down],
        watcher,
        fallbacks=[(second, "b")],
        retry=RetryPolicy(attempts=2, wait_initial=0),
    )

    assert (await graph.run("hi")).output == "from the second"
    assert (len(first.calls), len(second.calls)) == (2, 1)
    assert second.calls[0].kwargs["model"] == "b"
    assert [each for each in watcher.seen if "inference" in each] == ["before_inference 1", "after_inference 1"]


async def test_what_transforms_make_of_a_request_is_sent_and_not_kept() -> None:
    """AC-W19: transforms see one another's work, in order; the conversation sees none of it."""

    class Appends(Watcher):
        def register(self, registrar: PluginRegistrar) -> None:
            def append(request: InferenceRequest) -> InferenceRequest:
                system, *rest = request.messages
                return request.replace(messages=[Message.system(system.content + self._id), *rest])

            registrar.request_transform(append)

    graph, provider = agent(["done"], Appends("A"), Appends("B"), system_prompt="Be brief.")
    result = await graph.run("hi")

    assert provider.calls[0].messages[0].content == "Be brief.AB"
    assert [each.role for each in result.messages] == [Role.USER, Role.ASSISTANT]


async def test_gate_that_blocks_ends_the_run_and_the_tool_is_not_called() -> None:
    called = []

    async def delete(path: str) -> str:
        called.append(path)
        return "gone"

    watcher = Watcher(tool_gate=lambda ctx: GateDecision.block("not on my watch"))
    graph, _ = agent([asks(call("c-1", "delete", path="x"))], watcher, tools=[function_tool(delete)])
    result: RunResult = await graph.run("go", check=False)

    assert result.termination.kind is TerminationKind.BLOCKED
    assert "not on my watch" in str(result.error)
    assert called == []
    assert watcher.life == ["activate", "deactivate"]


async def test_result_that_a_gate_sets_stands_in_for_the_tool() -> None:
    watcher = Watcher(tool_gate=lambda ctx: GateDecision.set_result(ToolResult.success({"sum": 42})))
    graph, provider = agent([asks(call("c-1", a=1, b=2)), "fine"], watcher)
    events = Events()
    result = await graph.run("go", on_event=events)

    assert answers(provider.calls[1].messages) == [("c-1", '{"sum":42}')]
    assert result.output == "fine"
    assert not [each for each in watcher.seen if "tool_execute" in each]
    assert [each.data["result"] for each in events.of("tool.call.completed")] == ['{"sum":42}']
    assert not unanswered(result.messages)


async def test_gate_comes_before_the_question_to_a_person() -> None:
    async def buy(item: str) -> str:
        raise AssertionError("not called")

    watcher = Watcher(tool_gate=lambda ctx: GateDecision.set_result(ToolResult.error("out of stock")))
    graph, provider = agent(
        [asks(call("c-1", "buy", item="x")), "sorry"], watcher, tools=[function_tool(buy, requires_approval=True)]
    )

    async def never(question: Any) -> Any:
        raise AssertionError("nobody is asked")

    assert (await graph.run("buy", on_ask=never)).output == "sorry"
    assert answers(provider.calls[1].messages) == [("c-1", "out of stock")]


async def test_tool_left_out_of_a_round_is_unknown_in_it() -> None:
    """A-045 in one round: what is not offered is not called."""
    called = []

    async def delete(path: str) -> str:
        called.append(path)
        return "gone"

    def without(ctx: PhaseContext) -> StateCommand | None:
        return StateCommand().schedule("loop.exclude_tool", "delete") if ctx.round == 1 else None

    watcher = Watcher(before_inference=without)
    script = [asks(call("c-1", "delete", path="x")), asks(call("c-2", "delete", path="y")), "done"]
    graph, provider = agent(script, watcher, tools=[function_tool(delete), function_tool(add)])

    assert (await graph.run("go")).output == "done"
    assert called == ["y"]
    assert [[getattr(each, "name", "?") for each in recorded.tools or ()] for recorded in provider.calls[:2]] == [
        ["add"],
        ["delete", "add"],
    ]
    assert "unknown tool 'delete'" in answers(provider.calls[1].messages)[0][1]


async def test_state_goes_from_phase_to_phase_and_activations_share_nothing() -> None:
    class Counts(Watcher):
        def register(self, registrar: PluginRegistrar) -> None:
            registrar.state_key(StateKey("calls", 0))
            registrar.phase_hook(Phase.AFTER_TOOL_EXECUTE, self._count)
            registrar.phase_hook(Phase.RUN_END, self._hook)

        async def _count(self, ctx: PhaseContext) -> StateCommand:
            await anyio.lowlevel.checkpoint()
            return StateCommand().update("calls", ctx.state["calls"] + 1)

    counts = Counts()
    calls = [call(f"c-{n}", a=n, b=n) for n in range(8)]

    def reply(messages: list[Message], tools: Any, params: Any) -> LLMResponse | str:
        return "done" if messages[-1].role is Role.TOOL else asks(*calls)

    graph, _ = agent([reply] * 6, counts)
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(graph.run, "go")

    assert [ctx.state["calls"] for ctx in counts.contexts] == [8, 8, 8]


async def test_bridge_tells_hooks_of_requests_and_lets_them_block() -> None:
    told = []
    hooks = HookExecutor()
    hooks.register(HookEvent.PRE_REQUEST, lambda ctx: told.append(ctx.event))
    hooks.register(HookEvent.POST_REQUEST, lambda ctx: told.append(ctx.event))
    graph, provider = agent(TWO_ROUNDS, HookBridgePlugin(hooks))

    await graph.run("hi")
    assert told == [HookEvent.PRE_REQUEST, HookEvent.POST_REQUEST] * 2

    hooks.register(HookEvent.PRE_REQUEST, lambda ctx: HookResult.block("no"))
    graph, provider = agent(["never"], HookBridgePlugin(hooks), retry=RetryPolicy(attempts=3, wait_initial=0))
    result: RunResult = await graph.run("hi", check=False)
    assert result.termination.kind is TerminationKind.BLOCKED
    assert provider.calls == []


async def test_each_call_of_a_hook_has_one_span_under_what_it_belongs_to() -> None:
    hooks = HookExecutor()
    hooks.register(HookEvent.PRE_REQUEST, lambda ctx: None, name="pre")
    watcher = Watcher()
    graph, _ = agent(TWO_ROUNDS, watcher, HookBridgePlugin(hooks))
    spans = SpanRecorder()
    await graph.run("hi", telemetry=spans.telemetry)

    assert len(spans.of_kind("hook")) == len(watcher.seen) + 2
    assert len(spans.roots()) == 1
    kinds = {
        (each.attributes or {}).get("graphrt.hook.event"): (parent.attributes or {}).get("graphrt.kind")
        for parent in spans.spans
        for each in spans.children(parent)
        if each in spans.of_kind("hook")
    }
    assert kinds["run_start"] == "run"
    assert kinds["before_inference"] == kinds["pre_request"] == "inference"
    assert kinds["after_tool_execute"] == "tool"


async def test_hooks_are_told_of_a_retry_in_a_span_of_its_own() -> None:
    told: list[HookContext] = []
    hooks = HookExecutor()
    hooks.register(HookEvent.ON_RETRY, told.append)
    spans = SpanRecorder()
    graph, _ = agent(
        [LlmError("down", "overloaded"), "up"],
        hooks=hooks,
        session_id="s-1",
        retry=RetryPolicy(attempts=2, wait_initial=0),
    )

    assert (await graph.run("hi", telemetry=spans.telemetry)).output == "up"
    assert [(each.session_id, each.data["attempt"]) for each in told] == [("s-1", 1)]
    assert len(spans.of_kind("hook")) == 1


async def test_usage_of_each_reply_is_told_once_known_or_not() -> None:
    used: list[TokenUsage | None] = []
    script = [asks(call("c-1", a=1, b=2), usage=TokenUsage(10, 5)), "3"]
    graph, _ = agent(script, on_usage=used.append)

    await graph.run("hi")
    assert used == [TokenUsage(10, 5), None]


async def test_agent_without_plugins_has_no_settled_node() -> None:
    """AC-C01: what is not asked for is not in the graph."""
    assert "settled" not in AgentNode("agent", model=ScriptedProvider(), tools=[add]).graph.nx.nodes
