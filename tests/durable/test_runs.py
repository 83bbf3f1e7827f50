"""Runs with a ledger: started once whoever asks, and the same for everybody (E25, E26)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from graphrt import END, START, GraphTypeError, RunCancelledError, RunContext, Workflow
from graphrt.errors import ConfigError, GraphChangedError, LimitExceededError, RecordedError, RunControlError
from graphrt.graph import RunStatus
from graphrt.graph.durable.recorder import INLINE_BYTES
from graphrt.graph.durable.work import Ledger
from graphrt.ledger import AgentRun, AgentRunStatus, AuthorizationSnapshot, InMemoryRunLedgerStore, RunLedgerStore
from graphrt.ledger.records import Appended, NewEvent, RunChange
from graphrt.nodes import Ask
from graphrt.telemetry import Telemetry
from tests.durable.helpers import Calls, Wrapped, chain, check_numbers, free, store_of, stored_events

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    async with store_of(request.param, tmp_path) as made:
        yield made


async def status_of(store: RunLedgerStore, run_id: str = "r") -> AgentRunStatus:
    stored = await store.get_run(run_id)
    assert stored is not None
    return stored.status


# --- the same id again -------------------------------------------------------------------------------------


async def test_same_run_again_gives_the_same_result_and_runs_nothing(store: RunLedgerStore) -> None:
    calls = Calls()
    graph = chain(calls).compile()
    first = await graph.run(1, ledger=store, run_id="r")
    calls.taken()
    again = await graph.run(1, ledger=store, run_id="r")
    assert (again.status, again.output, again.outputs) == (first.status, first.output, first.outputs)
    assert [s.node for s in again.steps] == [s.node for s in first.steps]
    assert calls.taken() == []
    assert await status_of(store) == "completed"
    check_numbers(await stored_events(store, "r"))


async def test_same_id_with_another_input_is_a_conflict(store: RunLedgerStore) -> None:
    graph = chain(Calls()).compile()
    await graph.run(1, ledger=store, run_id="r")
    with pytest.raises(RunControlError, match="another input") as caught:
        await graph.run(2, ledger=store, run_id="r")
    assert caught.value.code == "conflict"
    assert caught.value.hint


async def test_many_starts_of_one_run_execute_it_once(store: RunLedgerStore) -> None:
    """B-081, in one process."""
    calls = Calls()
    graph = chain(calls, 3).compile()
    outputs: list[Any] = []

    async def start() -> None:
        outputs.append((await graph.run(1, ledger=store, run_id="r")).output)

    async with anyio.create_task_group() as tasks:
        for _ in range(25):
            tasks.start_soon(start)
    assert outputs == [4] * 25
    assert calls.taken() == ["n1", "n2", "n3"]


async def test_stream_of_a_run_that_exists_is_a_conflict(store: RunLedgerStore) -> None:
    graph = chain(Calls()).compile()
    async with graph.stream(1, ledger=store, run_id="r") as run:
        assert (await run.wait()).output == 6
    with pytest.raises(RunControlError, match="exists"):
        async with graph.stream(1, ledger=store, run_id="r"):
            pass


async def test_failed_run_asked_for_again_raises_what_it_failed_with(store: RunLedgerStore) -> None:
    calls = Calls()
    calls.fails = {"n3"}
    graph = chain(calls).compile()
    for _ in range(2):
        with pytest.raises(ValueError, match="n3 fails") as caught:
            await graph.run(1, ledger=store, run_id="r")
        assert "node 'n3', round 1, attempt 1, run 'r'" in "".join(caught.value.__notes__)
    assert calls.taken() == ["n1", "n2", "n3"]
    stored = await store.get_run("r")
    assert stored is not None
    assert (stored.status, stored.status_reason) == ("failed", "ValueError: n3 fails")


async def test_stopped_run_is_completed_in_the_ledger_with_its_limit(store: RunLedgerStore) -> None:
    loop = Workflow("loop", input=int, output=int, max_rounds=3)

    @loop.node
    async def add(x: int) -> int:
        return x + 1

    loop.edge(START, add)
    loop.edge(add, add, when=lambda x: x < 100)
    loop.edge(add, END, when=lambda x: x >= 100)
    graph = loop.compile()
    for _ in range(2):
        with pytest.raises(LimitExceededError):
            await graph.run(0, ledger=store, run_id="r")
    stored = await store.get_run("r")
    assert stored is not None
    assert (stored.status, stored.status_reason) == ("completed", "stopped:max_rounds")
    with pytest.raises(RunControlError, match="completed"):
        await graph.resume("r", ledger=store)


@pytest.mark.parametrize("limit", [1, 2, 4])
async def test_run_stopped_by_max_steps_gives_the_same_again(store: RunLedgerStore, limit: int) -> None:
    graph = chain(Calls(), max_steps=limit).compile()
    results = [await graph.run(1, ledger=store, run_id="r", check=False) for _ in range(2)]
    assert [r.status for r in results] == ["stopped", "stopped"]
    assert [len(r.steps) for r in results] == [len(results[0].steps)] * 2


async def test_run_cancelled_before_it_began_is_cancelled_for_who_asks(store: RunLedgerStore) -> None:
    from graphrt.graph.durable.runs import create

    calls = Calls()
    graph = chain(calls).compile()
    await create(graph, 1, store, "r")
    await store.change_run("r", RunChange(status=AgentRunStatus.CANCELLED), now=datetime.now(UTC))
    with pytest.raises(RunCancelledError):
        await graph.run(1, ledger=store, run_id="r")
    assert calls.taken() == []
    assert (await graph.resume("r", ledger=store)).output == 6


async def test_run_that_was_given_up_says_why(store: RunLedgerStore) -> None:
    from graphrt.graph.durable.runs import create

    graph = chain(Calls()).compile()
    await create(graph, 1, store, "r")
    change = RunChange(status=AgentRunStatus.FAILED, status_reason="WorkerError: lost three times")
    await store.change_run("r", change, now=datetime.now(UTC))
    with pytest.raises(RecordedError, match="WorkerError: lost three times"):
        await graph.run(1, ledger=store, run_id="r")


async def test_interrupt_of_a_stored_run_does_not_interrupt_who_asks_later(store: RunLedgerStore) -> None:
    stop = Workflow("stop", input=int, output=int)

    @stop.node
    async def leave(x: int) -> int:
        raise KeyboardInterrupt

    stop.chain(START, leave, END)
    graph = stop.compile()
    with pytest.raises(KeyboardInterrupt):
        await graph.run(1, ledger=store, run_id="r")
    assert await status_of(store) == "cancelled"
    with pytest.raises(RunCancelledError, match="KeyboardInterrupt"):
        await graph.run(1, ledger=store, run_id="r")


async def test_run_whose_end_is_stored_and_that_is_not_marked_as_ended_is_not_run_again() -> None:
    """The process died between storing the last event and marking the run."""
    calls = Calls()
    graph = chain(calls).compile()
    for left in (0, 1):  # the last event is stored, or follows from what is stored
        store = InMemoryRunLedgerStore()
        await graph.run(1, ledger=store, run_id="whole")
        events = await stored_events(store, "whole")
        from graphrt.graph.durable.runs import create

        await create(graph, 1, store, "r")
        again = [NewEvent(e.type, e.data, e.sequence, "graph") for e in events[: len(events) - left]]
        await store.append_events("r", again, now=datetime.now(UTC), change=RunChange(status=AgentRunStatus.RUNNING))
        calls.taken()
        result = await graph.resume("r", ledger=store) if left else await graph.run(1, ledger=store, run_id="r")
        assert (result.output, calls.taken()) == (6, [])
        assert await status_of(store) == "completed"
        check_numbers(await stored_events(store, "r"))


# --- how it is stored --------------------------------------------------------------------------------------


class Watched(Wrapped):
    """Notes in which order things are stored."""

    def __init__(self, inner: RunLedgerStore, log: list[str], slow: float = 0.0) -> None:
        super().__init__(inner)
        self.log = log
        self.slow = slow
        self.groups: list[int] = []

    async def append_events(self, run_id: str, events: Sequence[NewEvent], **options: Any) -> list[Appended]:
        await anyio.sleep(self.slow)
        answer = await self.inner.append_events(run_id, events, **options)
        self.groups.append(len(events))
        for event in answer:
            data = event.event.data
            if event.event.type == "step.completed" or (event.event.type == "map.item" and "value" in data):
                self.log.append(f"stored {data['step'].get('key', data['step']['node'])}")
        return answer


def diamond(log: list[str]) -> Workflow:
    """Make a graph with a fan-out, a map and a lazy map; every call is noted."""
    workflow = Workflow("diamond", input=int, output=int)

    @workflow.node
    async def first(x: int) -> list[int]:
        log.append("call first")
        return list(range(x))

    @workflow.node
    async def quick(xs: list[int]) -> int:
        log.append("call quick")
        return len(xs)

    @workflow.node
    async def item(x: int, ctx: RunContext[Any]) -> int:
        log.append(f"call {ctx.idempotency_key.partition(':')[2]}")
        await anyio.sleep(0.002 * (x % 3))
        return x

    @workflow.node
    async def total(items: list[int], quick: int) -> int:
        log.append("call total")
        return sum(items) + quick

    workflow.chain(START, first, quick, total, END)
    workflow.map(first, item)
    workflow.gather(item, total, into="items")
    return workflow


NEEDS = {"quick": ["first"], "total": ["quick", *(f"first[{i}]/item" for i in range(8))]} | {
    f"first[{i}]/item": ["first"] for i in range(8)
}


async def test_sync_stores_an_end_before_what_depends_on_it_starts() -> None:
    log: list[str] = []
    store = Watched(InMemoryRunLedgerStore(), log, slow=0.003)
    result = await diamond(log).run(8, ledger=store.as_store(), durability="sync")
    assert result.output == 36
    for name, needs in NEEDS.items():
        for need in needs:
            assert log.index(f"stored {need}") < log.index(f"call {name}"), (need, name)
    assert len(store.groups) < 20


async def test_async_groups_what_it_stores_and_exit_stores_once() -> None:
    log: list[str] = []
    store = Watched(InMemoryRunLedgerStore(), log)
    await chain(Calls(), 50).run(8, ledger=store.as_store(), durability="async")
    assert len(store.groups) <= 4
    store.groups.clear()
    await diamond(log).run(8, ledger=store.as_store(), durability="exit")
    assert [count for count in store.groups if count] == [sum(store.groups)]


async def test_async_is_at_most_fifty_milliseconds_behind() -> None:
    store = InMemoryRunLedgerStore()
    slow = Workflow("slow", input=int, output=int)

    @slow.node
    async def first(x: int) -> int:
        return x

    @slow.node
    async def second(x: int) -> int:
        await anyio.sleep(0.2)
        return len([e for e in await stored_events(store, "r") if e.type == "step.completed"])

    slow.chain(START, first, second, END)
    assert (await slow.run(1, ledger=store, run_id="r")).output == 1


async def test_run_is_running_while_it_runs_whatever_the_durability(store: RunLedgerStore) -> None:
    seen: list[str] = []
    look = Workflow("look", input=int, output=int)

    @look.node
    async def node(x: int, ctx: RunContext[Any]) -> int:
        await anyio.sleep(0.15)
        seen.append(await status_of(store, ctx.run_id))
        return x

    look.chain(START, node, END)
    for durability in ("sync", "async", "exit"):
        await look.run(1, ledger=store, durability=durability)
    assert seen == ["running"] * 3


async def test_large_values_stand_in_artifacts_and_come_back(store: RunLedgerStore) -> None:
    big = Workflow("big", input=int, output=str)

    @big.node
    async def make(x: int) -> str:
        return "ü" * (INLINE_BYTES // 2 + 1)

    @big.node
    async def end(text: str) -> str:
        if not fixed:
            raise ValueError(text[0])
        return text[:3]

    fixed = False
    big.chain(START, make, end, END)
    await big.run(1, ledger=store, run_id="r", check=False)
    event = next(e for e in await stored_events(store, "r") if e.type == "step.completed")
    assert event.data.keys() == {"step", "artifact"}
    assert len(event.artifact_refs) == 1
    fixed = True
    fork = await big.fork("r", event.sequence, ledger=store)
    assert (await big.resume("r", ledger=store)).output == "üüü"
    assert (await big.resume(fork, ledger=store)).output == "üüü"
    assert next(e for e in await stored_events(store, fork) if e.artifact_refs).artifact_refs != event.artifact_refs


# --- what cannot be stored ---------------------------------------------------------------------------------


async def test_type_that_cannot_be_stored_is_refused_before_anything_runs(store: RunLedgerStore) -> None:
    import threading

    calls = Calls()
    bad = Workflow("bad", input=int, output=int)

    @bad.node
    async def lock(x: int) -> threading.Lock:
        calls("lock")
        return threading.Lock()

    @bad.node
    async def end(x: Any) -> int:
        return 1

    bad.chain(START, lock, end, END)
    with pytest.raises(GraphTypeError, match="'lock'"):
        await bad.run(1, ledger=store, run_id="r")
    with pytest.raises(GraphTypeError, match="'lock'"):
        bad.compile(durable=True)
    assert calls.taken() == []
    assert await store.get_run("r") is None


async def test_value_that_cannot_be_stored_fails_its_step_and_the_run_can_be_resumed(store: RunLedgerStore) -> None:
    undeclared = Workflow("undeclared", input=int)
    value: Any = {1, 2}

    @undeclared.node
    async def give(x: int):  # type: ignore[no-untyped-def]  # no type is declared
        return value

    undeclared.chain(START, give, END)
    with pytest.raises(GraphTypeError, match="'give' cannot be stored"):
        await undeclared.run(1, ledger=store, run_id="r")
    value = [1, 2]
    assert (await undeclared.resume("r", ledger=store)).output == [1, 2]


async def test_item_that_cannot_be_stored_fails_its_source(store: RunLedgerStore) -> None:
    lazy = Workflow("lazy", input=int)

    @lazy.node
    async def items(x: int):  # type: ignore[no-untyped-def]  # no type is declared
        yield 1
        yield {2}

    @lazy.node
    async def body(x: Any) -> int:
        return 1

    lazy.chain(START, items)
    lazy.map(items, body)
    lazy.gather(body, END)
    with pytest.raises(GraphTypeError, match="cannot be stored") as caught:
        await lazy.run(1, ledger=store, run_id="r")
    assert "'items'" in str(caught.value)


async def test_output_of_a_graph_with_a_fallback_needs_no_storing_of_its_own(store: RunLedgerStore) -> None:
    inner = Workflow("inner", input=int, output=int)

    @inner.node
    async def one(x: int) -> int:
        if x < 0:
            raise ValueError(x)
        return x

    inner.chain(START, one, END)
    outer = Workflow("outer", input=int, output=int)
    outer.add(inner, name="held", fallback=7)

    @outer.node
    async def end(x: int) -> int:
        return x

    outer.chain(START, "held", end, END)
    for value, wanted in ((3, 3), (-1, 7)):
        run_id = f"r{value}"
        assert (await outer.run(value, ledger=store, run_id=run_id)).output == wanted
        assert (await outer.run(value, ledger=store, run_id=run_id)).output == wanted


# --- graphs that change ------------------------------------------------------------------------------------


async def test_changed_graph_is_refused_with_the_difference_and_can_be_made_to_go_on(store: RunLedgerStore) -> None:
    calls = Calls()
    calls.fails = {"n3"}
    with pytest.raises(ValueError, match="n3"):
        await chain(calls).run(1, ledger=store, run_id="r")
    calls.fails = set()
    longer = chain(calls, 6).compile()
    with pytest.raises(GraphChangedError, match=re.escape("+ node n6 function (x: int) -> int")) as caught:
        await longer.resume("r", ledger=store)
    assert "edge n5 -> n6" in str(caught.value)
    assert "edge n5 -> END" in str(caught.value)
    assert await status_of(store) == "failed"
    assert len(await stored_events(store, "r")) == 8
    calls.taken()
    assert (await longer.resume("r", ledger=store, on_change="ignore")).output == 7
    assert calls.taken() == ["n3", "n4", "n5", "n6"]


async def test_graph_that_does_something_else_is_refused_and_nothing_is_changed(store: RunLedgerStore) -> None:
    """The fingerprint is the same, and a condition is not."""
    limit = 3

    def make() -> Workflow:
        loop = Workflow("loop", input=int, output=int)

        async def add(x: int) -> int:
            if x == 4:
                raise ValueError("four")
            return x + 1

        loop.add_node("add", add)
        loop.edge(START, "add")
        loop.edge("add", "add", when=lambda x: x < limit)
        loop.edge("add", END, when=lambda x: x >= limit)
        return loop

    limit = 9
    with pytest.raises(ValueError, match="four"):
        await make().run(0, ledger=store, run_id="r")
    limit = 2
    before = await store.get_run("r")
    with pytest.raises(GraphChangedError):
        await make().resume("r", ledger=store)
    after = await store.get_run("r")
    assert before is not None
    assert after is not None
    assert (after.status, after.status_reason, after.attempt) == (before.status, before.status_reason, before.attempt)


# --- claims ------------------------------------------------------------------------------------------------


async def test_lease_and_renewal_can_be_set_and_keep_the_run(store: RunLedgerStore) -> None:
    """L-029b."""
    calls = Calls()
    slow = Workflow("slow", input=int, output=int)

    @slow.node
    async def wait(x: int) -> int:
        calls("wait")
        await anyio.sleep(0.8)
        return x

    slow.chain(START, wait, END)
    graph = slow.compile()
    ledger = Ledger(store, lease_seconds=0.3, renew_seconds=0.1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: graph.run(1, ledger=ledger, run_id="r"))
        await anyio.sleep(0.5)
        stored = await store.get_run("r")
        assert stored is not None
        assert stored.lease_until is not None
        assert stored.lease_until > datetime.now(UTC)
        with pytest.raises(RunControlError, match="being worked on") as caught:
            await graph.resume("r", ledger=ledger)
        assert (caught.value.code, caught.value.retryable) == ("conflict", True)
        assert (await graph.run(1, ledger=ledger, run_id="r")).output == 1
    assert calls.taken() == ["wait"]


async def test_times_with_which_no_claim_can_be_kept_are_refused() -> None:
    with pytest.raises(ConfigError, match="ends before"):
        Ledger(InMemoryRunLedgerStore(), lease_seconds=1, renew_seconds=2)


async def test_run_whose_claim_was_lost_writes_nothing_more_and_says_so(store: RunLedgerStore) -> None:
    started = anyio.Event()
    cleaned: list[str] = []
    slow = Workflow("slow", input=int, output=int)

    @slow.node
    async def wait(x: int) -> int:
        started.set()
        try:
            await anyio.sleep(30)
        finally:
            cleaned.append("yes")
        return x

    slow.chain(START, wait, END)
    ledger = Ledger(store, lease_seconds=0.9, renew_seconds=0.1)

    async def take() -> None:
        await started.wait()
        await anyio.sleep(0.1)
        await free(store, "r")
        assert await store.claim_run("other", 60, now=datetime.now(UTC), run_id="r")

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take)
            with pytest.raises(RunControlError, match="is lost") as caught:
                await slow.run(1, ledger=ledger, run_id="r")
    assert caught.value.code == "conflict"
    assert cleaned == ["yes"]
    assert [e.type for e in await stored_events(store, "r")] == ["run.started", "step.started"]
    stored = await store.get_run("r")
    assert stored is not None
    assert (stored.status, stored.claimed_by) == ("running", "other")


async def test_cancel_from_outside_reaches_the_run(store: RunLedgerStore) -> None:
    started = anyio.Event()
    slow = Workflow("slow", input=int, output=int)

    @slow.node
    async def wait(x: int) -> int:
        started.set()
        await anyio.sleep(30)
        return x

    slow.chain(START, wait, END)

    async def cancel() -> None:
        await started.wait()
        change = RunChange(cancel_requested_at=datetime.now(UTC), cancel_reason="enough")
        await store.change_run("r", change, now=datetime.now(UTC))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel)
            result = await slow.run(1, ledger=store, run_id="r", check=False)
    assert result.status is RunStatus.CANCELLED
    assert "enough" in str(result.error)
    assert await status_of(store) == "cancelled"


# --- stores that fail --------------------------------------------------------------------------------------


class Failing(Wrapped):
    """Fails some appends."""

    def __init__(self, inner: RunLedgerStore, fails: int, error: Exception, after: int = 0) -> None:
        super().__init__(inner)
        self.fails = fails
        self.after = after
        self.error = error

    async def append_events(self, run_id: str, events: Sequence[NewEvent], **options: Any) -> list[Appended]:
        if self.after:
            self.after -= 1
        elif self.fails:
            self.fails -= 1
            raise self.error
        return await self.inner.append_events(run_id, events, **options)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_store_that_is_out_of_reach_for_a_while_is_waited_for(durability: Any) -> None:
    inner = InMemoryRunLedgerStore()
    store = Failing(inner, 3, RunControlError("runtime_error", "busy", retryable=True))
    result = await chain(Calls()).run(1, ledger=store.as_store(), run_id="r", durability=durability)
    assert result.output == 6
    check_numbers(await stored_events(inner, "r"))
    assert await status_of(inner) == "completed"


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("error", [RunControlError("runtime_error", "the disk is gone"), OSError("the disk is gone")])
async def test_store_that_refuses_stops_the_run_with_its_error_and_the_run_can_go_on(
    durability: Any, error: Exception
) -> None:
    inner = InMemoryRunLedgerStore()
    store = Failing(inner, 10**6, error, after=1)
    calls = Calls()
    graph = chain(calls).compile()
    with pytest.raises(type(error), match="the disk is gone"):
        await graph.run(1, ledger=store.as_store(), run_id="r", durability=durability)
    events = await stored_events(inner, "r")
    check_numbers(events)
    stored = await inner.get_run("r")
    assert stored is not None
    assert (stored.status, stored.claimed_by) == ("running", None)
    ended = [e.data["step"]["node"] for e in events if e.type == "step.completed"]
    calls.taken()
    assert (await graph.resume("r", ledger=inner)).output == 6
    assert calls.taken() == [f"n{i}" for i in range(1, 6) if f"n{i}" not in ended]


async def test_stream_says_that_its_end_could_not_be_stored() -> None:
    store = Failing(InMemoryRunLedgerStore(), 10**6, RunControlError("runtime_error", "the disk is gone"))
    with pytest.raises(RunControlError, match="the disk is gone"):
        async with chain(Calls()).stream(1, ledger=store.as_store(), run_id="r") as run:
            await run.wait()


async def test_slow_store_holds_the_run_back_and_memory_stays_flat() -> None:
    """B-133."""
    from graphrt.graph.durable import recorder

    waiting: list[int] = []

    class Slow(Wrapped):
        async def append_events(self, run_id: str, events: Sequence[NewEvent], **options: Any) -> list[Appended]:
            waiting.append(len(events))
            await anyio.sleep(0.05)
            return await self.inner.append_events(run_id, events, **options)

    loop = Workflow("loop", input=int, output=int, max_rounds=10_001)

    @loop.node
    async def add(x: int) -> int:
        return x + 1

    loop.edge(START, add)
    loop.edge(add, add, when=lambda x: x < 10_000)
    loop.edge(add, END, when=lambda x: x >= 10_000)
    inner = InMemoryRunLedgerStore()
    result = await loop.run(0, ledger=Slow(inner).as_store(), run_id="r")
    assert result.output == 10_000
    assert max(waiting) <= recorder.MOST_WAITING + 10
    check_numbers(await stored_events(inner, "r"))


async def test_deadline_stands_in_the_ledger(store: RunLedgerStore) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=1)
    await chain(Calls()).run(1, ledger=store, run_id="r", deadline_at=at)
    stored = await store.get_run("r")
    assert stored is not None
    assert stored.deadline_at == at


async def test_arguments_that_are_none_are_refused(store: RunLedgerStore) -> None:
    graph = chain(Calls()).compile()
    await graph.run(1, ledger=store, run_id="r")
    wrong: Any = "runs.db"
    with pytest.raises(ConfigError, match="no ledger"):
        await graph.run(1, ledger=wrong)
    wrong = "never"
    with pytest.raises(ConfigError, match="durability"):
        await graph.run(1, ledger=store, durability=wrong)
    with pytest.raises(ConfigError, match="on_change"):
        await graph.resume("r", ledger=store, on_change=wrong)


async def test_run_that_is_none_of_a_graph_is_refused(store: RunLedgerStore) -> None:
    now = datetime.now(UTC)
    rights = AuthorizationSnapshot(runner_id="x")
    await store.create_run(AgentRun(run_id="r", runner_id="x", authorization=rights, created_at=now, updated_at=now))
    with pytest.raises(GraphChangedError, match="no run of a graph"):
        await chain(Calls()).resume("r", ledger=store, on_change="ignore")


async def test_waiting_run_that_was_to_be_cancelled_is_cancelled_when_it_is_taken_up(store: RunLedgerStore) -> None:
    calls = Calls()
    asks = Workflow("asks", input=int)
    asks.add(Ask("ask", question="?", answer=int))

    @asks.node
    async def end(x: int) -> int:
        calls("end")
        return x

    asks.chain(START, "ask", end, END)
    await asks.run(1, ledger=store, run_id="r")
    change = RunChange(cancel_requested_at=datetime.now(UTC), cancel_reason="enough")
    await store.change_run("r", change, now=datetime.now(UTC))
    result = await asks.resume("r", ledger=store, answers=3, check=False)
    assert (result.status, calls.taken()) == (RunStatus.CANCELLED, [])
    assert await status_of(store) == "cancelled"
    assert (await asks.resume("r", ledger=store)).output == 3  # the answer was taken


async def test_spans_of_a_resumed_run_are_made(store: RunLedgerStore) -> None:
    calls = Calls()
    calls.fails = {"n2"}
    graph = chain(calls, 3).compile()
    await graph.run(1, ledger=store, run_id="r", check=False)
    calls.fails = set()
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    await graph.resume("r", ledger=store, telemetry=Telemetry(tracer_provider=provider))
    names = [span.name for span in spans.get_finished_spans()]
    assert len(names) == 3, names
