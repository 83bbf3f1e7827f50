"""Workers: queued runs are worked on side by side, handed back when the worker stops, and taken over when it dies."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from graphrt import END, START, Ask, GraphError, GraphTypeError, RunContext, Workflow
from graphrt.errors import ConfigError, GraphChangedError, RunControlError
from graphrt.graph import CompiledGraph
from graphrt.graph.durable.queued import adopt, enqueue, known_run, put_back
from graphrt.graph.durable.worker import Worker, WorkReport
from graphrt.ledger import (
    AgentRunStatus,
    AuthorizationSnapshot,
    InMemoryRunLedgerStore,
    RunChange,
    RunLedgerStore,
    RuntimeRegistry,
    SqliteRunLedgerStore,
)
from graphrt.ledger.records import AgentRun

pytestmark = pytest.mark.anyio

GUARD = 30.0
_S = AgentRunStatus


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunLedgerStore]:
    """Give a ledger of each kind."""
    kind = InMemoryRunLedgerStore() if request.param == "memory" else SqliteRunLedgerStore(tmp_path / "runs.db")
    async with kind as opened:
        yield opened


class Steps:
    """A graph of three steps, the middle of which waits until it is let go."""

    def __init__(self, name: str = "three") -> None:
        self.log: list[str] = []
        self.open = False
        self.at_work = self.most = 0
        flow = Workflow(name, input=int, output=int)

        @flow.node
        async def first(number: int) -> int:
            self.log.append(f"first {number}")
            return number

        @flow.node
        async def wait(number: int) -> int:
            self.log.append(f"wait {number}")
            self.at_work += 1
            self.most = max(self.most, self.at_work)
            try:
                while not self.open:  # noqa: ASYNC110 - opened from another task, also of another event loop
                    await anyio.sleep(0.01)
            finally:
                self.at_work -= 1
            return number

        @flow.node
        async def last(number: int) -> int:
            self.log.append(f"last {number}")
            return number + 1

        flow.chain(START, first, wait, last, END)
        self.graph = flow.compile()


def approving(question: str = "Ship it?", *, more: bool = False) -> CompiledGraph:
    flow = Workflow("approving", input=int, output=str)
    flow.add(Ask("approve", question=question, answer=bool))

    @flow.node
    async def ship(approve: bool) -> str:
        return "shipped" if approve else "kept"

    async def loud(text: str) -> str:
        return f"{text}!"

    flow.chain(START, "approve", ship, *([flow.node(loud)] if more else []), END)
    return flow.compile()


async def until(condition: Callable[[], Any]) -> None:
    """Wait until something holds."""
    with anyio.fail_after(GUARD):
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
            await anyio.sleep(0.01)


async def types_of(store: RunLedgerStore, run_id: str) -> list[str]:
    return [event.type for event in (await store.page_events(run_id, limit=1000)).items]


async def all_of(graph: CompiledGraph, store: RunLedgerStore, **options: Any) -> list[WorkReport]:
    """Work until nothing is left."""
    reports: list[WorkReport] = []
    with anyio.fail_after(GUARD):
        await Worker([graph], store, on_report=reports.append, **options).run(once=True)
    return reports


# --- working


async def test_queued_runs_are_worked_on_and_end_in_the_ledger(store: RunLedgerStore) -> None:
    """L-055."""
    steps = Steps()
    steps.open = True
    for number in range(3):
        run, created = await enqueue(steps.graph, number, store, f"r{number}", target="flows:three")
        assert (run.status, created, run.metadata["target"]) == (_S.QUEUED, True, "flows:three")
    reports = await all_of(steps.graph, store)
    assert {report.run_id for report in reports if report.status is _S.COMPLETED} == {"r0", "r1", "r2"}
    assert [report.what for report in reports].count("claimed") == 3
    for number in range(3):
        assert (await known_run(store, f"r{number}")).status is _S.COMPLETED
        result = await steps.graph.run(number, run_id=f"r{number}", ledger=store)
        assert result.output == number + 1
    assert sorted(steps.log) == sorted(f"{name} {n}" for name in ("first", "wait", "last") for n in range(3))


async def test_no_more_runs_are_at_work_than_the_concurrency(store: RunLedgerStore) -> None:
    steps = Steps()
    for number in range(5):
        await enqueue(steps.graph, number, store, f"r{number}")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: all_of(steps.graph, store, concurrency=2))
        await until(lambda: steps.at_work == 2)
        await anyio.sleep(0.05)
        steps.open = True
    assert steps.most == 2
    assert [line for line in steps.log if line.startswith("last")].__len__() == 5


async def test_run_of_higher_priority_is_begun_first(store: RunLedgerStore) -> None:
    steps = Steps()
    steps.open = True
    await enqueue(steps.graph, 1, store, "plain")
    await enqueue(steps.graph, 2, store, "urgent", priority=5)
    await all_of(steps.graph, store, concurrency=1)
    assert steps.log[0] == "first 2"


async def test_enqueuing_twice_is_enqueuing_once(store: RunLedgerStore) -> None:
    steps = Steps()
    steps.open = True
    await enqueue(steps.graph, 1, store, "r")
    await all_of(steps.graph, store)
    again, created = await enqueue(steps.graph, 1, store, "r")
    assert (again.status, created) == (_S.COMPLETED, False)
    with pytest.raises(RunControlError, match="has another input"):
        await enqueue(steps.graph, 2, store, "r")
    assert steps.log.count("first 1") == 1


async def test_run_of_an_unknown_graph_is_left_queued_and_says_so(store: RunLedgerStore) -> None:
    """B-079: L-055."""
    mine, other = Steps("mine"), Steps("other")
    await enqueue(other.graph, 1, store, "r")
    assert await all_of(mine.graph, store) == []
    run = await known_run(store, "r")
    assert run.status is _S.QUEUED
    assert run.status_reason is not None
    assert other.graph.fingerprint in run.status_reason


async def test_run_of_something_else_than_a_graph_is_left_in_the_queue(store: RunLedgerStore) -> None:
    now = datetime.now(UTC)
    authorization = AuthorizationSnapshot(runner_id="bot")
    await store.create_run(
        AgentRun(run_id="r", runner_id="bot", authorization=authorization, created_at=now, updated_at=now)
    )
    await store.change_run("r", RunChange(status=_S.QUEUED), now=now)
    worker = Worker([Steps().graph], store, poll_seconds=0.05)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await anyio.sleep(0.2)
        worker.stop()
    assert (await known_run(store, "r")).status is _S.QUEUED


async def test_failed_run_ends_as_failed_and_goes_on_before_its_failure(store: RunLedgerStore) -> None:
    flow = Workflow("fragile", input=int, output=int)
    log: list[str] = []

    @flow.node
    async def before(number: int) -> int:
        log.append("before")
        return number

    @flow.node
    async def fragile(number: int) -> int:
        log.append("fragile")
        if len(log) < 3:
            raise ValueError("no luck")
        return number

    flow.chain(START, before, fragile, END)
    graph = flow.compile()
    await enqueue(graph, 1, store, "r")
    (_, report) = await all_of(graph, store)
    assert (report.status, report.reason) == (_S.FAILED, "ValueError: no luck")
    assert (await put_back(store, "r")).status is _S.QUEUED
    (_, report) = await all_of(graph, store)
    assert report.status is _S.COMPLETED
    assert log == ["before", "fragile", "fragile"]


async def test_cancelled_run_is_stopped_and_frees_its_place(store: RunLedgerStore) -> None:
    """L-055, L-027."""
    steps = Steps()
    await enqueue(steps.graph, 1, store, "r")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: all_of(steps.graph, store))
        await until(lambda: steps.at_work)
        change = RunChange(cancel_requested_at=datetime.now(UTC), cancel_reason="not needed")
        await store.change_run("r", change, now=datetime.now(UTC))
    run = await known_run(store, "r")
    assert run.status is _S.CANCELLED
    assert "not needed" in (run.status_reason or "")


async def test_run_whose_events_do_not_fit_fails_with_the_reason(store: RunLedgerStore) -> None:
    before, after = Steps(), Steps("four")
    await enqueue(before.graph, 1, store, "r")
    worker = Worker([before.graph], store, grace_seconds=0.01)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await until(lambda: before.at_work)
        worker.stop()
    flow = Workflow("two", input=int, output=int)

    @flow.node
    async def other(number: int) -> int:
        return number

    flow.chain(START, other, END)
    changed = flow.compile()
    await store.change_run("r", RunChange(graph_fingerprint=changed.fingerprint), now=datetime.now(UTC))
    (_, report) = await all_of(changed, store)
    assert report.status is _S.FAILED
    run = await known_run(store, "r")
    assert run.status is _S.FAILED
    assert (run.status_reason or "").startswith("GraphChangedError: ")
    assert after.log == []


# --- waiting and answers


async def test_waiting_run_holds_no_claim_and_goes_on_when_it_is_answered(store: RunLedgerStore) -> None:
    """L-055."""
    graph = approving()
    await enqueue(graph, 1, store, "r")
    (_, report) = await all_of(graph, store)
    assert report.status is _S.WAITING
    waiting = await known_run(store, "r")
    assert (waiting.status, waiting.claimed_by, waiting.lease_until) == (_S.WAITING, None, None)
    assert (await put_back(store, "r", graph=graph, answers={"approve": True})).status is _S.QUEUED
    (_, report) = await all_of(graph, store)
    assert report.status is _S.COMPLETED
    assert (await graph.run(1, run_id="r", ledger=store)).output == "shipped"


async def test_answer_is_kept_when_the_worker_that_has_it_dies(store: RunLedgerStore) -> None:
    graph = approving()
    await enqueue(graph, 1, store, "r")
    await all_of(graph, store)
    await put_back(store, "r", graph=graph, answers={"approve": False})
    claim = await store.claim_run("gone:1:x", 0.01, now=datetime.now(UTC) - timedelta(seconds=1))
    assert claim is not None  # and nothing is heard of it any more
    (_, report) = await all_of(graph, store)
    assert (report.status, report.attempt) == (_S.COMPLETED, 3)
    assert (await graph.run(1, run_id="r", ledger=store)).output == "kept"


@pytest.mark.parametrize(
    ("answers", "error", "problem"),
    [
        ({"approve": "perhaps"}, GraphTypeError, "takes bool"),
        ({"aprove": True}, GraphError, "has no question 'aprove' open"),
    ],
)
async def test_answer_that_cannot_be_changes_nothing(
    store: RunLedgerStore, answers: dict[str, Any], error: type[Exception], problem: str
) -> None:
    graph = approving()
    await enqueue(graph, 1, store, "r")
    await all_of(graph, store)
    events = await types_of(store, "r")
    with pytest.raises(error, match=problem):
        await put_back(store, "r", graph=graph, answers=answers)
    assert (await known_run(store, "r")).status is _S.WAITING
    assert await types_of(store, "r") == events


async def test_run_at_work_is_not_put_back(store: RunLedgerStore) -> None:
    steps = Steps()
    await enqueue(steps.graph, 1, store, "r")
    worker = Worker([steps.graph], store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await until(lambda: steps.at_work)
        with pytest.raises(RunControlError, match="is being worked on by"):
            await put_back(store, "r")
        steps.open = True
        worker.stop()


# --- another graph


async def test_waiting_run_moves_to_a_graph_that_its_events_fit(store: RunLedgerStore) -> None:
    before, after = approving(), approving(more=True)
    assert before.fingerprint != after.fingerprint
    await enqueue(before, 1, store, "r")
    await all_of(before, store)
    with pytest.raises(GraphChangedError):
        await put_back(store, "r", graph=after, answers={"approve": True})
    await adopt(after, store, "r")
    await put_back(store, "r", graph=after, answers={"approve": True})
    assert await all_of(before, store) == []
    (_, report) = await all_of(after, store)
    assert report.status is _S.COMPLETED


async def test_queued_run_that_waits_for_its_graph_moves_to_another(store: RunLedgerStore) -> None:
    """B-079: L-055."""
    before, after = Steps("before"), Steps("after")
    after.open = True
    await enqueue(before.graph, 1, store, "r")
    await all_of(after.graph, store)
    run = await adopt(after.graph, store, "r")
    assert (run.status, run.status_reason, run.graph_fingerprint) == (_S.QUEUED, None, after.graph.fingerprint)
    (_, report) = await all_of(after.graph, store)
    assert report.status is _S.COMPLETED


async def test_run_does_not_move_to_a_graph_that_takes_another_input(store: RunLedgerStore) -> None:
    await enqueue(approving(), 1, store, "r")
    flow = Workflow("approving", input=list[int], output=list[int])

    @flow.node
    async def same(value: list[int]) -> list[int]:
        return value

    flow.chain(START, same, END)
    with pytest.raises(GraphTypeError):
        await adopt(flow.compile(), store, "r")
    assert (await known_run(store, "r")).graph_fingerprint == approving().fingerprint


# --- stopping, and dying


async def test_stopped_worker_lets_steps_end_and_hands_runs_back(store: RunLedgerStore) -> None:
    """L-055."""
    steps = Steps()
    await enqueue(steps.graph, 1, store, "r")
    reports: list[WorkReport] = []
    worker = Worker([steps.graph], store, concurrency=1, on_report=reports.append)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await until(lambda: steps.at_work)
        await enqueue(steps.graph, 2, store, "late")
        worker.stop()
        steps.open = True
    assert [report.what for report in reports] == ["claimed", "handed_back"]
    run = await known_run(store, "r")
    assert (run.status, run.claimed_by) == (_S.QUEUED, None)
    assert (await types_of(store, "r"))[-1] == "step.completed"
    assert steps.log == ["first 1", "wait 1"]
    await all_of(steps.graph, store)
    assert steps.log.count("wait 1") == steps.log.count("last 1") == 1
    assert (await known_run(store, "late")).status is _S.COMPLETED


@pytest.mark.parametrize("how", ["grace", "now", "cancelled"])
async def test_steps_that_do_not_end_are_cancelled_and_start_again_elsewhere(store: RunLedgerStore, how: str) -> None:
    """L-055."""
    steps = Steps()
    await enqueue(steps.graph, 1, store, "r")
    worker = Worker([steps.graph], store, grace_seconds=0.05 if how == "grace" else 600)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await until(lambda: steps.at_work)
        if how == "cancelled":
            tasks.cancel_scope.cancel()
        else:
            worker.stop()
            worker.stop(now=how == "now")
    assert steps.at_work == 0
    run = await known_run(store, "r")
    assert (run.status, run.claimed_by, run.status_reason) == (_S.QUEUED, None, None)
    assert not any("cancel" in kind for kind in await types_of(store, "r"))
    steps.open = True
    (_, report) = await all_of(steps.graph, store)
    assert report.status is _S.COMPLETED
    assert steps.log == ["first 1", "wait 1", "wait 1", "last 1"]


@pytest.mark.parametrize("steps_before", [1, 4, 8])
async def test_worker_may_be_stopped_anywhere_and_no_step_that_ended_runs_again(
    store: RunLedgerStore, steps_before: int
) -> None:
    """L-055."""
    log: list[str] = []
    flow = Workflow("fan", input=int, output=int)

    @flow.node
    async def spread(number: int) -> list[int]:
        log.append("spread")
        return list(range(number))

    @flow.node
    async def work(item: int) -> int:
        await anyio.sleep(0.02)
        log.append(f"work {item}")
        return item

    @flow.node
    async def add(items: list[int]) -> int:
        log.append("add")
        return sum(items)

    flow.chain(START, spread)
    flow.map(spread, work, max_concurrency=2)
    flow.gather(work, add)
    flow.chain(add, END)
    graph = flow.compile()
    await enqueue(graph, 10, store, "r")
    worker = Worker([graph], store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await until(lambda: len(log) >= steps_before)
        worker.stop()
    assert (await known_run(store, "r")).status is _S.QUEUED
    (_, report) = await all_of(graph, store)
    assert report.status is _S.COMPLETED
    assert sorted(log) == sorted(["spread", "add", *(f"work {item}" for item in range(10))])
    assert (await graph.run(10, run_id="r", ledger=store)).output == 45


async def test_idle_worker_stops_at_once(store: RunLedgerStore) -> None:
    worker = Worker([Steps().graph], store, poll_seconds=600)
    with anyio.fail_after(GUARD):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await anyio.sleep(0.05)
            worker.stop()


async def test_run_of_a_dead_worker_is_taken_over_and_its_late_voice_not_heard(store: RunLedgerStore) -> None:
    """L-055: the lease of a worker that does not renew it ends."""
    steps = Steps()
    await enqueue(steps.graph, 1, store, "r")
    claim = await store.claim_run("elsewhere:1:x", 0.05, now=datetime.now(UTC))
    assert claim is not None
    await store.change_run("r", RunChange(status=_S.RUNNING), now=datetime.now(UTC), token=claim.token)
    await anyio.sleep(0.1)
    steps.open = True
    (_, report) = await all_of(steps.graph, store)
    assert (report.status, report.attempt) == (_S.COMPLETED, 2)
    with pytest.raises(RunControlError):
        await store.change_run("r", RunChange(status=_S.FAILED), now=datetime.now(UTC), token=claim.token)


async def test_worker_goes_on_at_once_with_what_a_dead_process_of_its_machine_holds(store: RunLedgerStore) -> None:
    """L-029b."""
    steps = Steps()
    steps.open = True
    await enqueue(steps.graph, 1, store, "r")
    mine = Worker([steps.graph], store).worker_id
    dead = mine.replace(f":{os.getpid()}:", f":{2**22 + 1}:")  # above the highest process id of a machine
    assert await store.claim_run(dead, 600, now=datetime.now(UTC)) is not None
    (_, report) = await all_of(steps.graph, store)
    assert report.status is _S.COMPLETED


async def test_worker_that_loses_a_run_stops_it_without_a_word_in_its_events(store: RunLedgerStore) -> None:
    """L-055: no result of a worker that was given up is stored."""
    steps = Steps()
    await enqueue(steps.graph, 1, store, "r")
    reports: list[WorkReport] = []
    worker = Worker([steps.graph], store, concurrency=1, lease_seconds=0.6, on_report=reports.append)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await until(lambda: steps.at_work)
        held = await known_run(store, "r")
        assert held.claimed_by == worker.worker_id
        later = datetime.now(UTC) + timedelta(seconds=60)
        assert [run.run_id for run in await store.expire_claims(now=later)] == ["r"]
        taken = await store.claim_run("another", 600, now=datetime.now(UTC), run_id="r")
        assert taken is not None
        await until(lambda: [report.what for report in reports] == ["claimed", "lost"])
        worker.stop()
    assert steps.at_work == 0
    run = await known_run(store, "r")
    assert (run.status, run.claimed_by) == (_S.CLAIMED, "another")
    assert not any("cancel" in kind for kind in await types_of(store, "r"))


async def test_lease_is_renewed_while_a_run_is_at_work(store: RunLedgerStore) -> None:
    """L-029b."""
    steps = Steps()
    await enqueue(steps.graph, 1, store, "r")
    worker = Worker([steps.graph], store, lease_seconds=0.6)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await until(lambda: steps.at_work)
        first = (await known_run(store, "r")).lease_until
        assert first is not None
        await anyio.sleep(1.5)
        assert await store.expire_claims(now=datetime.now(UTC)) == []
        later = (await known_run(store, "r")).lease_until
        assert later is not None
        assert later > first
        steps.open = True
        worker.stop()


async def test_two_workers_share_the_queue_and_no_run_is_done_twice(store: RunLedgerStore) -> None:
    """L-055: no double claim."""
    steps = Steps()
    steps.open = True
    for number in range(12):
        await enqueue(steps.graph, number, store, f"r{number}")
    found: list[WorkReport] = []
    with anyio.fail_after(GUARD):
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                worker = Worker([steps.graph], store, concurrency=3, on_report=found.append)
                tasks.start_soon(partial(worker.run, once=True))
    assert sorted(report.run_id for report in found if report.what == "claimed") == sorted(f"r{n}" for n in range(12))
    assert len(steps.log) == 36


# --- the worker itself


async def test_worker_is_registered_while_it_runs(store: RunLedgerStore) -> None:
    """L-056."""
    steps = Steps()
    worker = Worker([steps.graph], store, concurrency=3)
    registry = RuntimeRegistry(store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        with anyio.fail_after(GUARD):
            while not (known := await registry.list("online")):  # noqa: ASYNC110 - it tells nobody
                await anyio.sleep(0.01)
        worker.stop()
    assert known[0].runtime_id == worker.worker_id
    assert known[0].capabilities["graphs"] == {"three": steps.graph.fingerprint}
    assert known[0].metadata["pid"] == os.getpid()
    assert await registry.list() == []


async def test_deps_reach_the_nodes(store: RunLedgerStore) -> None:
    flow = Workflow("deps", input=int, output=int)

    @flow.node
    async def add(number: int, ctx: RunContext[int]) -> int:
        return number + ctx.deps

    flow.chain(START, add, END)
    graph = flow.compile()
    await enqueue(graph, 1, store, "r")
    await all_of(graph, store, deps=41)
    assert (await graph.run(1, run_id="r", ledger=store)).output == 42


async def test_run_out_of_time_before_it_was_begun_is_not_begun(store: RunLedgerStore) -> None:
    steps = Steps()
    await enqueue(steps.graph, 1, store, "r")
    run = await known_run(store, "r")
    await store.create_run(
        replace(run, run_id="late", deadline_at=datetime.now(UTC) - timedelta(seconds=1), status=_S.QUEUED)
    )
    steps.open = True
    await all_of(steps.graph, store)
    assert (await known_run(store, "late")).status is _S.TIMEOUT


async def test_listener_that_fails_does_not_harm_the_run(store: RunLedgerStore) -> None:
    steps = Steps()
    steps.open = True
    await enqueue(steps.graph, 1, store, "r")

    def fail(report: WorkReport) -> None:
        raise ValueError("a listener's mistake")

    with anyio.fail_after(GUARD):
        await Worker([steps.graph], store, on_report=fail).run(once=True)
    assert (await known_run(store, "r")).status is _S.COMPLETED


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"concurrency": 0}, "concurrency is 0"),
        ({"lease_seconds": 0}, "lease_seconds is 0"),
        ({"poll_seconds": -1}, "poll_seconds is -1"),
        ({"graphs": []}, "a worker without a graph"),
    ],
)
async def test_worker_refuses_what_cannot_work(store: RunLedgerStore, options: dict[str, Any], problem: str) -> None:
    given = {"graphs": [Steps().graph], **options}
    with pytest.raises(ConfigError, match=problem):
        Worker(given.pop("graphs"), store, **given)


class FailingStore(InMemoryRunLedgerStore):
    """Refuses every event of a run that is not its first group, for as often as it is told to."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    async def append_events(self, run_id: str, events: Any, **options: Any) -> Any:
        if self.times and any(event.type == "step.completed" for event in events):
            self.times -= 1
            raise RunControlError("runtime_error", "the disk is full")
        return await super().append_events(run_id, events, **options)


@pytest.mark.parametrize(("times", "status"), [(2, _S.COMPLETED), (9, _S.FAILED)])
async def test_run_that_cannot_be_stored_is_tried_again_until_it_is_given_up(
    times: int, status: AgentRunStatus
) -> None:
    """L-055: a run that no worker gets done ends as failed, with the reason."""
    steps = Steps()
    steps.open = True
    async with FailingStore(times) as store:
        await enqueue(steps.graph, 1, store, "r")
        reports = await all_of(steps.graph, store, max_attempts=3)
        run = await known_run(store, "r")
    assert run.status is status
    assert [report.what for report in reports].count("lost") == min(times, 3)
    if status is _S.FAILED:
        assert run.status_reason is not None
        assert re.match("given up after 3 attempts: .*the disk is full", run.status_reason)


class Unreachable(InMemoryRunLedgerStore):
    """Cannot be reached when a run is to be claimed, for as often as it is told to."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    async def expire_claims(self, **options: Any) -> Any:
        if self.times:
            self.times -= 1
            raise RunControlError("runtime_error", "the server is away", retryable=True)
        return await super().expire_claims(**options)


async def test_ledger_that_cannot_be_reached_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps()
    steps.open = True
    async with Unreachable(2) as store:
        await enqueue(steps.graph, 1, store, "r")
        (_, report) = await all_of(steps.graph, store, poll_seconds=0.01)
    assert report.status is _S.COMPLETED
    assert [record.message.count("the server is away") for record in caplog.records] == [1, 1]


async def test_node_that_leaves_the_process_ends_its_run_and_not_the_worker(store: RunLedgerStore) -> None:
    flow = Workflow("leaving", input=int, output=int)

    @flow.node
    async def leave(number: int) -> int:
        raise SystemExit(number)

    flow.chain(START, leave, END)
    steps = Steps()
    steps.open = True
    await enqueue(flow.compile(), 1, store, "first")
    await enqueue(steps.graph, 1, store, "second")
    with anyio.fail_after(GUARD):
        await Worker([flow.compile(), steps.graph], store, concurrency=1).run(once=True)
    assert (await known_run(store, "first")).is_terminal
    assert (await known_run(store, "second")).status is _S.COMPLETED
