from __future__ import annotations

import functools
import logging
import operator
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.errors import StateError
from graphrt.messages import ToolCall
from graphrt.plugins import (
    GateDecision,
    MergeStrategy,
    Phase,
    PhaseContext,
    PhaseRuntime,
    PluginRegistrar,
    StateCommand,
    StateKey,
)
from graphrt.tools.base import ToolResult
from tests.plugins.runs import BACKENDS, FakeRun, Made, pause, request_of, runtime_of

pytestmark = pytest.mark.anyio

CALL = ToolCall("c1", "look", {"at": "sky"})
LOG = StateKey("log", list, MergeStrategy.COMMUTATIVE)
EXCLUSIVE = [StateKey("x", ()), StateKey("y", ())]
FAILED = "runtime.failed_actions"


def hooked(phase: Phase, *hooks: Callable[[PhaseContext], Any], id: str = "p") -> Made:
    """Make a plugin with hooks at one phase, and keys to write."""

    def register(registrar: PluginRegistrar) -> None:
        for key in (LOG, *EXCLUSIVE):
            registrar.state_key(key)
        for each in hooks:
            registrar.phase_hook(phase, each)

    return Made(id, register)


def acting(phase: Phase, /, **handlers: Callable[[PhaseContext, Any], Any]) -> Made:
    """Make a plugin that carries out actions at one phase, by keyword `a_<key>`, and effects, `e_<key>`."""

    def register(registrar: PluginRegistrar) -> None:
        registrar.state_key(LOG)
        for name, handler in handlers.items():
            if name.startswith("a_"):
                registrar.scheduled_action(name[2:], phase, handler)
            else:
                registrar.effect(name[2:], handler)

    return Made("acts", register)


async def end_round(*plugins: Made, **options: Any) -> tuple[PhaseRuntime, FakeRun]:
    """Run one phase, `STEP_END`, with plugins."""
    run = FakeRun()
    runtime = runtime_of(*plugins, **options)
    async with runtime.opened(run):
        await runtime.end_round()
    return runtime, run


# --- hooks and the state


async def test_hooks_of_a_phase_see_the_state_as_it_was_when_it_began() -> None:
    """X-02"""
    seen: list[Any] = []

    def write(ctx: PhaseContext) -> StateCommand:
        seen.append(ctx.state["log"])
        return StateCommand().update(LOG, [len(seen)])

    runtime, _ = await end_round(hooked(Phase.STEP_END, write, write), hooked(Phase.STEP_END, write, id="q"))
    assert seen == [[], [], []]
    assert runtime.state["log"] == [1, 2, 3]


WRITES = st.lists(st.tuples(st.sets(st.sampled_from(["x", "y"])), st.booleans()), max_size=6)


@settings(max_examples=60)
@given(WRITES)
def test_no_exclusive_update_is_lost_and_late_hooks_are_called_again(writes: list[tuple[set[str], bool]]) -> None:
    """X-03: the earlier commits, the later is made again from what it left; commutative updates are folded."""
    calls: list[int] = []

    def hook_number(number: int, exclusive: set[str], logs: bool) -> Callable[[PhaseContext], StateCommand]:
        def hook(ctx: PhaseContext) -> StateCommand:
            calls.append(number)
            command = StateCommand()
            for name in sorted(exclusive):
                command.update(name, (*ctx.state[name], number))
            return command.update(LOG, [number]) if logs else command

        return hook

    hooks = [hook_number(number, *each) for number, each in enumerate(writes)]
    runtime, _ = anyio.run(end_round, hooked(Phase.STEP_END, *hooks))
    expected, order, times = _by_hand(writes)
    assert {name: runtime.state[name] for name in ("x", "y")} == expected
    assert runtime.state["log"] == functools.reduce(operator.add, ([n] for n in order if writes[n][1]), [])
    assert [calls.count(number) for number in range(len(writes))] == times


def _by_hand(writes: list[tuple[set[str], bool]]) -> tuple[dict[str, tuple[int, ...]], list[int], list[int]]:
    """Say what each key ends as, the order of the commits, and how often each hook is called."""
    values: dict[str, tuple[int, ...]] = {"x": (), "y": ()}
    order: list[int] = []
    times = [0] * len(writes)
    todo = list(range(len(writes)))
    while todo:
        taken: set[str] = set()
        late = []
        for number in todo:
            times[number] += 1
            if writes[number][0] & taken:
                late.append(number)
                continue
            taken |= writes[number][0]
            order.append(number)
            for name in writes[number][0]:
                values[name] = (*values[name], number)
        todo = late
    return values, order, times


STEPS = st.tuples(st.integers(0, 3), st.booleans())


@settings(max_examples=40)
@given(
    tools=st.lists(st.lists(STEPS, min_size=1, max_size=3), min_size=2, max_size=4),
    backend=st.sampled_from(BACKENDS),
)
def test_parallel_tools_lose_no_update_and_see_no_torn_state(tools: list[list[tuple[int, bool]]], backend: str) -> None:
    torn: list[Any] = []
    ran: list[Any] = []

    def registered(registrar: PluginRegistrar) -> None:
        for key in (LOG, *EXCLUSIVE):
            registrar.state_key(key)
        registrar.scheduled_action("more", Phase.AFTER_TOOL_EXECUTE, both)
        for place in range(3):
            registrar.phase_hook(Phase.AFTER_TOOL_EXECUTE, functools.partial(hook, place))

    async def both(ctx: PhaseContext, payload: Any) -> StateCommand:
        seen = ctx.state["x"], ctx.state["y"]
        if seen[0] != seen[1]:
            torn.append(seen)
        ran.append(payload)
        await pause(payload[1])
        return StateCommand().update("x", (*seen[0], payload)).update("y", (*seen[1], payload))

    async def hook(place: int, ctx: PhaseContext) -> StateCommand | None:
        assert ctx.tool_call is not None
        steps = ctx.tool_call.arguments["steps"]
        if place >= len(steps):
            return None
        waits, by_action = steps[place]
        tag = (f"{ctx.tool_call.id}.{place}", waits)
        if by_action:
            return StateCommand().schedule("more", tag)
        return await both(ctx, tag)

    async def use_tools() -> PhaseRuntime:
        runtime = runtime_of(Made("p", registered))
        async with runtime.opened(FakeRun()), anyio.create_task_group() as tasks:
            for number, steps in enumerate(tools):
                call = ToolCall(f"c{number}", "look", {"steps": steps})
                tasks.start_soon(runtime.after_tool, call, ToolResult.success("ok"))
        return runtime

    runtime = anyio.run(use_tools, backend=backend)
    wanted = {(f"c{number}.{place}", step[0]) for number, steps in enumerate(tools) for place, step in enumerate(steps)}
    assert torn == []
    assert runtime.state["x"] == runtime.state["y"]
    assert len(runtime.state["x"]) == len(wanted)
    assert set(runtime.state["x"]) == wanted
    scheduled = [step for steps in tools for step in steps if step[1]]
    assert len([tag for tag in ran if tag in wanted]) >= len(scheduled)


async def test_hook_that_waits_for_another_tool_is_not_held_up() -> None:
    done = anyio.Event()

    async def hook(ctx: PhaseContext) -> StateCommand:
        assert ctx.tool_call is not None
        if ctx.tool_call.id == "first":
            await done.wait()
        else:
            done.set()
        return StateCommand().update("x", (*ctx.state["x"], ctx.tool_call.id))

    runtime = runtime_of(hooked(Phase.BEFORE_TOOL_EXECUTE, hook))
    with anyio.fail_after(5):
        async with runtime.opened(FakeRun()), anyio.create_task_group() as tasks:
            tasks.start_soon(runtime.before_tool, ToolCall("first", "look"))
            await pause(3)
            tasks.start_soon(runtime.before_tool, ToolCall("second", "look"))
    assert sorted(runtime.state["x"]) == ["first", "second"]


async def test_error_of_a_hook_ends_the_phase_and_commits_nothing() -> None:
    """D-37"""

    def write(ctx: PhaseContext) -> StateCommand:
        return StateCommand().update(LOG, ["written"])

    def fail(ctx: PhaseContext) -> None:
        raise ValueError("no such luck")

    runtime = runtime_of(hooked(Phase.STEP_END, write, fail))
    async with runtime.opened(FakeRun()):
        with pytest.raises(ValueError, match="no such luck") as caught:
            await runtime.end_round()
        assert runtime.state["log"] == []
    assert any("of plugin 'p' at step_end" in note for note in caught.value.__notes__)


async def test_what_a_hook_reads_is_its_own() -> None:
    seen: list[Any] = []

    def spoil(ctx: PhaseContext) -> None:
        ctx.state["log"].append("spoilt")

    def read(ctx: PhaseContext) -> None:
        seen.append(ctx.state["log"])

    await end_round(hooked(Phase.STEP_END, spoil, read))
    assert seen == [[]]


@pytest.mark.parametrize(
    "answer",
    [
        StateCommand().update(LOG, ["x"]).schedule("nobody"),
        StateCommand().update(LOG, ["x"]).emit("nobody"),
        StateCommand().update(LOG, ["x"]).update("nothing", 1),
        StateCommand().update(LOG, ["x"]).update(FAILED, []),
        {"log": ["x"]},
    ],
    ids=["unknown action", "unknown effect", "unknown key", "key of the runtime", "no command"],
)
async def test_command_that_asks_for_what_is_not_there_changes_nothing(answer: Any) -> None:
    """X-04: nothing of the whole phase is committed, the hook before included."""
    runtime = runtime_of(hooked(Phase.STEP_END, lambda ctx: StateCommand().update(LOG, ["before"]), lambda ctx: answer))
    async with runtime.opened(FakeRun()):
        with pytest.raises(StateError, match="of plugin 'p'") as caught:
            await runtime.end_round()
        assert caught.value.hint is not None
        assert (runtime.state["log"], runtime.state[FAILED]) == ([], [])


# --- actions


@given(st.integers(0, 20))
@settings(max_examples=21)
def test_actions_lead_to_actions_sixteen_times_at_most(length: int) -> None:
    """X-02"""

    def act(ctx: PhaseContext, left: int) -> StateCommand:
        command = StateCommand().update(LOG, [left])
        return command.schedule("act", left - 1) if left > 1 else command

    def begin(ctx: PhaseContext) -> StateCommand:
        return StateCommand().schedule("act", length)

    plugins = [acting(Phase.STEP_END, a_act=act), *([hooked(Phase.STEP_END, begin)] if length else [])]
    if length <= 16:
        runtime, _ = anyio.run(end_round, *plugins)
        assert runtime.state["log"] == list(range(length, 0, -1))
    else:
        with pytest.raises(StateError, match="'step_end' led to more 16 times over, and 'act' still waits"):
            anyio.run(end_round, *plugins)


async def test_many_actions_scheduled_at_once_count_as_one_loop() -> None:
    def begin(ctx: PhaseContext) -> StateCommand:
        return functools.reduce(lambda command, n: command.schedule("act", n), range(40), StateCommand())

    def act(ctx: PhaseContext, n: int) -> StateCommand:
        return StateCommand().update(LOG, [n])

    runtime, _ = await end_round(acting(Phase.STEP_END, a_act=act), hooked(Phase.STEP_END, begin), max_actions=1)
    assert runtime.state["log"] == list(range(40))


async def test_action_waits_for_its_phase_and_is_carried_out_once() -> None:
    def act(ctx: PhaseContext, payload: Any) -> StateCommand:
        return StateCommand().update(LOG, [(ctx.phase.value, payload)])

    def ask(ctx: PhaseContext) -> StateCommand | None:
        return StateCommand().schedule("act", "now") if ctx.round == 1 else None

    runtime = runtime_of(acting(Phase.STEP_END, a_act=act), hooked(Phase.STEP_START, ask))
    async with runtime.opened(FakeRun()):
        assert not runtime.needs(Phase.STEP_END)
        await runtime.prepare(request_of(), round=1)
        assert runtime.needs(Phase.STEP_END)
        assert runtime.state["log"] == []
        await runtime.end_round()
        await runtime.prepare(request_of(), round=2)
        await runtime.end_round()
    assert runtime.state["log"] == [("step_end", "now")]


async def test_each_action_sees_what_the_one_before_has_written() -> None:
    async def act(ctx: PhaseContext, payload: int) -> StateCommand:
        await pause(1)
        return StateCommand().update(LOG, [sum(ctx.state["log"]) + payload])

    def ask(ctx: PhaseContext) -> StateCommand:
        return StateCommand().schedule("act", 1).schedule("act", 1).schedule("act", 1)

    runtime, _ = await end_round(acting(Phase.STEP_END, a_act=act), hooked(Phase.STEP_END, ask))
    assert runtime.state["log"] == [1, 2, 4]


async def test_failing_action_is_put_on_a_list_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    """X-06"""
    calls: list[Any] = []

    def act(ctx: PhaseContext, payload: Any) -> StateCommand:
        calls.append(payload)
        if payload == "bad":
            raise ValueError("disk full")
        if payload == "lost":
            return StateCommand().update(LOG, ["half"]).schedule("nobody")
        return StateCommand().update(LOG, [payload])

    def ask(ctx: PhaseContext) -> StateCommand:
        return StateCommand().schedule("act", "bad").schedule("act", "lost").schedule("act", "good")

    runtime, _ = await end_round(acting(Phase.STEP_END, a_act=act), hooked(Phase.STEP_END, ask))
    assert calls == ["bad", "lost", "good"]
    assert runtime.state["log"] == ["good"]
    failed = runtime.state[FAILED]
    assert [(each["key"], each["payload"]) for each in failed] == [("act", "bad"), ("act", "lost")]
    assert failed[0]["error"] == "ValueError: disk full"
    assert "'nobody', which no plugin carries out" in failed[1]["error"]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


async def test_payload_that_cannot_be_copied_is_shown_on_the_list_as_text() -> None:
    def act(ctx: PhaseContext, payload: Any) -> None:
        raise ValueError("no")

    ask = hooked(Phase.STEP_END, lambda ctx: StateCommand().schedule("act", (n for n in range(1))))
    runtime, _ = await end_round(acting(Phase.STEP_END, a_act=act), ask)
    assert runtime.state[FAILED][0]["payload"].startswith("<generator")


async def test_action_that_never_gets_its_phase_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def act(ctx: PhaseContext, payload: Any) -> None:
        raise AssertionError("its phase is over")

    ask = hooked(Phase.STEP_END, lambda ctx: StateCommand().schedule("act"))
    await end_round(acting(Phase.STEP_START, a_act=act), ask)
    assert "ended before actions could be carried out: ['act']" in caplog.text


# --- effects


async def test_effects_follow_the_commit_in_order_and_a_failing_one_undoes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """X-05"""
    seen: list[Any] = []

    async def tell(ctx: PhaseContext, payload: Any) -> None:
        await pause(1)
        seen.append((payload, ctx.state["log"]))
        if payload == "bad":
            raise ValueError("line is down")

    def ask(ctx: PhaseContext) -> StateCommand:
        return StateCommand().emit("tell", "bad").update(LOG, ["x"]).emit("tell", "good")

    runtime, _ = await end_round(acting(Phase.STEP_END, e_tell=tell), hooked(Phase.STEP_END, ask))
    assert seen == [("bad", ["x"]), ("good", ["x"])]
    assert runtime.state["log"] == ["x"]
    assert runtime.failed_effects == {"tell": 1}
    assert "effect 'tell' of plugin 'acts' failed" in caplog.text


async def test_effect_can_ask_for_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    """X-05"""
    effect: Any = lambda ctx, payload: StateCommand().update(LOG, ["sneaked in"])  # noqa: E731  # of a wrong type
    ask = hooked(Phase.STEP_END, lambda ctx: StateCommand().emit("tell"))
    runtime, _ = await end_round(acting(Phase.STEP_END, e_tell=effect), ask)
    assert runtime.state["log"] == []
    assert runtime.failed_effects == {"tell": 1}


async def test_effects_of_an_action_follow_its_own_commit() -> None:
    seen: list[Any] = []

    def act(ctx: PhaseContext, payload: Any) -> StateCommand:
        return StateCommand().update(LOG, [payload]).emit("tell", payload)

    effect = lambda ctx, payload: seen.append((payload, ctx.state["log"]))  # noqa: E731  # two lines for one
    ask = hooked(Phase.STEP_END, lambda ctx: StateCommand().schedule("act", 1).schedule("act", 2))
    await end_round(acting(Phase.STEP_END, a_act=act, e_tell=effect), ask)
    assert seen == [(1, [1]), (2, [1, 2])]


# --- the filter


async def test_filter_silences_hooks_but_not_structure() -> None:
    """AC-W31"""
    heard: list[Any] = []
    called: list[str] = []

    def structure(registrar: PluginRegistrar) -> None:
        registrar.state_key(LOG)
        registrar.effect("tell", lambda ctx, payload: heard.append(payload))
        registrar.scheduled_action("act", Phase.STEP_END, lambda ctx, n: StateCommand().update(LOG, [n]))
        registrar.phase_hook(Phase.STEP_END, lambda ctx: called.append("p2"))
        registrar.tool_gate(lambda ctx: GateDecision.block("p2"))
        registrar.request_transform(lambda request: request.replace(model="p2"))

    def ask(ctx: PhaseContext) -> StateCommand:
        called.append("p1")
        return StateCommand().emit("tell", "hello").schedule("act", 3)

    plugins = [Made("p1", lambda registrar: registrar.phase_hook(Phase.STEP_END, ask)), Made("p2", structure)]
    runtime = runtime_of(*plugins, active={"p1"})
    async with runtime.opened(FakeRun()):
        assert (await runtime.prepare(request_of(), round=1)).model == "m"
        assert await runtime.gate(CALL) is None
        await runtime.end_round()
    assert called == ["p1"]
    assert heard == ["hello"]
    assert runtime.state["log"] == [3]


async def test_empty_filter_lets_all_act() -> None:
    called: list[str] = []
    plugins = [hooked(Phase.STEP_END, lambda ctx, id=id: called.append(id), id=id) for id in ("p1", "p2")]  # type: ignore[misc]  # a hook takes one argument
    await end_round(*plugins, active=frozenset())
    assert called == ["p1", "p2"]


# --- gates


GATES = st.lists(st.sampled_from(["block", "result", "none"]), max_size=5)


@given(GATES)
@settings(max_examples=40)
def test_block_comes_before_a_result_and_the_first_of_a_kind_wins(answers: list[str]) -> None:
    """D-46"""
    asked: list[int] = []

    def gate(number: int, ctx: PhaseContext) -> GateDecision | None:
        asked.append(number)
        if answers[number] == "block":
            return GateDecision.block(str(number))
        return GateDecision.set_result(ToolResult.success(number)) if answers[number] == "result" else None

    def register(number: int, registrar: PluginRegistrar) -> None:
        registrar.tool_gate(functools.partial(gate, number))

    async def ask() -> GateDecision | None:
        runtime = runtime_of(*(Made(f"p{n}", functools.partial(register, n)) for n in range(len(answers))))
        async with runtime.opened(FakeRun()):
            assert runtime.has_gates is bool(answers)
            return await runtime.gate(CALL)

    decision = anyio.run(ask)
    kind = "block" if "block" in answers else "result" if "result" in answers else None
    if kind is None:
        assert decision is None
        return
    first = answers.index(kind)
    assert decision is not None
    assert decision.plugin_id == f"p{first}"
    assert (decision.reason if kind == "block" else decision.result and decision.result.data) in (first, str(first))
    assert asked == list(range(first + 1 if kind == "block" else len(answers)))


async def test_gate_is_told_of_the_call_and_changes_nothing() -> None:
    told: list[Any] = []

    async def gate(ctx: PhaseContext) -> None:
        told.append((ctx.phase, ctx.tool_call, ctx.round))

    runtime = runtime_of(Made("p", lambda registrar: registrar.phase_hook(Phase.TOOL_GATE, gate)))
    async with runtime.opened(FakeRun()):
        await runtime.prepare(request_of(), round=4)
        assert await runtime.gate(CALL) is None
    assert told == [(Phase.TOOL_GATE, CALL, 4)]


async def test_gate_that_answers_with_something_else_is_an_error() -> None:
    gate: Any = lambda ctx: StateCommand()  # noqa: E731  # of a wrong type
    runtime = runtime_of(Made("p", lambda registrar: registrar.tool_gate(gate)))
    async with runtime.opened(FakeRun()):
        with pytest.raises(StateError, match="of plugin 'p' gave StateCommand"):
            await runtime.gate(CALL)
    with pytest.raises(TypeError, match="takes a ToolResult"):
        GateDecision.set_result("cached")  # type: ignore[arg-type]  # a mistake that is refused where it is made


# --- spans


async def test_each_call_of_a_hook_or_gate_has_one_span() -> None:
    """W-039"""

    def step_hook(ctx: PhaseContext) -> StateCommand:
        return StateCommand().update("x", 1)

    def my_gate(ctx: PhaseContext) -> None: ...

    run = FakeRun()
    runtime = runtime_of(
        hooked(Phase.STEP_END, step_hook, step_hook, id="p"), Made("g", lambda registrar: registrar.tool_gate(my_gate))
    )
    async with runtime.opened(run):
        await runtime.gate(CALL)
        await runtime.end_round()
    assert [(name.rpartition(".")[2], event, plugin) for name, event, plugin in run.spans] == [
        ("my_gate", "tool_gate", "g"),
        ("step_hook", "step_end", "p"),
        ("step_hook", "step_end", "p"),
        ("step_hook", "step_end", "p"),  # the second came too late, and was called again
    ]
