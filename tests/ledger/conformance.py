"""What every ledger store does, as tests: import this module's tests where a `store` is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from itertools import product
from typing import Any

import anyio
import pytest

from graphrt.errors import RunControlError
from graphrt.ledger import rules
from graphrt.ledger.authorization import AuthorizationSnapshot
from graphrt.ledger.records import (
    AgentRun,
    Artifact,
    JsonText,
    NewEvent,
    RunChange,
    RunFilter,
    RuntimeRecord,
    StateEntry,
    TranscriptEntry,
)
from graphrt.ledger.status import LEGAL_MOVES, REOPENED, TERMINAL, AgentRunStatus
from graphrt.ledger.store import RunLedgerStore
from graphrt.messages import TokenUsage
from tests.ledger.stores import T0, at, events, new_run, queued

S = AgentRunStatus
OTHER = "other"
"""A token of nobody's."""


@contextmanager
def refused(code: str, match: str = "") -> Iterator[None]:
    """Expect an error of run control."""
    with pytest.raises(RunControlError, match=f"^{code}.*{match}") as caught:
        yield
    assert caught.value.code == code


async def sequences(store: RunLedgerStore, run_id: str, limit: int = 1000) -> list[int]:
    return [event.sequence for event in (await store.page_events(run_id, limit=limit)).items]


async def moved(store: RunLedgerStore, run_id: str, *statuses: AgentRunStatus) -> AgentRun:
    run, _ = await store.create_run(new_run(run_id))
    for status in statuses:
        run = await store.change_run(run_id, RunChange(status=status), now=T0)
    return run


class TestRuns:
    async def test_a_new_run_reads_back_as_it_was_given(self, store: RunLedgerStore) -> None:
        """AC-L01."""
        snapshot = AuthorizationSnapshot(
            runner_id="r", allowed_tools=("a", "b"), resource_policy={"x": [1, {"y": "é"}]}
        )
        given = new_run(
            "run",
            authorization=snapshot,
            event_id="e",
            agent_id="a",
            binding_id="b",
            conversation_id="c",
            thread_id="t",
            workspace_id="w",
            bot_id="bot",
            deadline_at=at(60),
            priority=7,
            graph_fingerprint="f",
            metadata={"deep": {"list": [1, None, "日本\ud800"]}},
            usage=TokenUsage(1, 2, 3),
        )
        made, created = await store.create_run(given)
        assert created
        assert made == replace(given, id=made.id)
        found = await store.get_run("run")
        assert found == made
        assert (found.status, found.created_at, found.updated_at) == (S.CREATED, T0, T0)
        assert (found.started_at, found.finished_at, found.cancel_requested_at) == (None, None, None)
        assert await store.get_run("other") is None

    async def test_a_second_run_of_one_id_gives_the_first(self, store: RunLedgerStore) -> None:
        first, created = await store.create_run(new_run("run", agent_id="a"))
        again, created_again = await store.create_run(new_run("run", agent_id="b"))
        assert (created, created_again) == (True, False)
        assert again == first

    async def test_of_many_that_create_one_run_one_does(self, store: RunLedgerStore) -> None:
        """B-081."""
        answers: list[tuple[AgentRun, bool]] = []

        async def create(number: int) -> None:
            answers.append(await store.create_run(new_run("run", agent_id=str(number))))

        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(create, number)
        assert sum(created for _, created in answers) == 1
        assert len({run.agent_id for run, _ in answers}) == 1

    async def test_what_is_stored_is_nobodys_to_change(self, store: RunLedgerStore) -> None:
        policy, metadata, data = {"list": [1]}, {"list": [1]}, {"list": [1]}
        snapshot = AuthorizationSnapshot(runner_id="runner", resource_policy=policy)
        await store.create_run(new_run("run", authorization=snapshot, metadata=metadata))
        await store.append_events("run", [NewEvent("note", data)], now=T0)
        for mine in (policy, metadata, data):
            mine["list"].append(2)
        run = await store.get_run("run")
        assert run is not None
        run.metadata["list"].append("later")
        again = await store.get_run("run")
        assert again is not None
        assert again.metadata == {"list": [1]}
        assert again.authorization.resource_policy == {"list": [1]}
        assert (await store.page_events("run")).items[0].data == {"list": [1]}

    async def test_what_cannot_be_stored_is_refused(self, store: RunLedgerStore) -> None:
        with refused("invalid_argument", "metadata"):
            await store.create_run(new_run("run", metadata={"x": object()}))
        with refused("invalid_argument", "cannot be stored"):
            await store.create_run(new_run("nul\0"))
        with refused("invalid_argument", "no aware time"):
            await store.create_run(new_run("run", now=datetime(2026, 1, 1)))  # noqa: DTZ001  # that is the fault
        with refused("invalid_argument", "no status"):
            await store.create_run(new_run("run", status="bogus"))
        assert await store.get_run("run") is None

    async def test_each_move_is_as_the_table_says(self, store: RunLedgerStore) -> None:
        ways: dict[AgentRunStatus, tuple[AgentRunStatus, ...]] = {
            S.CREATED: (),
            S.QUEUED: (S.QUEUED,),
            S.CLAIMED: (S.QUEUED, S.CLAIMED),
            S.DISPATCHING: (S.QUEUED, S.CLAIMED, S.DISPATCHING),
            S.RUNNING: (S.RUNNING,),
            S.WAITING: (S.RUNNING, S.WAITING),
            **{status: (status,) for status in TERMINAL},
        }

        async def check(before: AgentRunStatus, after: AgentRunStatus, resume: bool) -> None:
            run_id = f"{before}-{after}-{resume}"
            run = await moved(store, run_id, *ways[before])
            change = RunChange(status=after, resume=resume)
            legal = LEGAL_MOVES[before] | (REOPENED.get(before, frozenset()) if resume else frozenset())
            if after in legal:
                assert (await store.change_run(run_id, change, now=at(1))).status is after
            elif after is before:
                assert await store.change_run(run_id, change, now=at(1)) == run
            else:
                with refused("conflict", f"is {before}"):
                    await store.change_run(run_id, change, now=at(1))
                assert await store.get_run(run_id) == run

        async with anyio.create_task_group() as tasks:
            for before, after, resume in product(S, S, (False, True)):
                tasks.start_soon(check, before, after, resume)

    async def test_times_are_those_of_the_moves(self, store: RunLedgerStore) -> None:
        await store.create_run(new_run("run"))
        run = await store.change_run("run", RunChange(status=S.RUNNING), now=at(1))
        assert (run.started_at, run.finished_at, run.updated_at) == (at(1), None, at(1))
        await store.change_run("run", RunChange(status=S.WAITING), now=at(2))
        run = await store.change_run("run", RunChange(status=S.RUNNING), now=at(3))
        assert run.started_at == at(1)
        run = await store.change_run("run", RunChange(status=S.FAILED, status_reason="disk full\0"), now=at(4))
        assert (run.finished_at, run.updated_at, run.is_terminal) == (at(4), at(4), True)
        assert run.status_reason == "disk full\N{REPLACEMENT CHARACTER}"
        assert await store.get_run("run") == run

    async def test_a_run_that_is_over_ends_once(self, store: RunLedgerStore) -> None:
        """AC-L09."""
        run = await moved(store, "run", S.RUNNING, S.COMPLETED)
        again = RunChange(status=S.COMPLETED, status_reason="again", metadata={"a": 1})
        assert await store.change_run("run", again, now=at(9)) == run
        with refused("conflict"):
            await store.change_run("run", RunChange(status=S.FAILED), now=at(9))
        with refused("invalid_argument", "'bogus' is no status"):
            await store.change_run("run", RunChange(status="bogus"), now=at(9))  # type: ignore[arg-type]  # the fault
        assert await store.get_run("run") == run

    async def test_reopening_clears_what_the_end_left(self, store: RunLedgerStore) -> None:
        await moved(store, "run", S.RUNNING)
        await store.change_run("run", RunChange(cancel_requested_at=at(1), cancel_reason="enough"), now=at(1))
        await store.change_run("run", RunChange(status=S.CANCELLED, status_reason="enough"), now=at(2))
        change = RunChange(status=S.RUNNING, resume=True, add_attempt=True)
        run = await store.change_run("run", change, now=at(3))
        assert (run.status, run.attempt, run.started_at) == (S.RUNNING, 1, T0)
        assert (run.status_reason, run.finished_at) == (None, None)
        assert (run.cancel_requested_at, run.cancel_reason) == (None, None)

    async def test_a_request_to_cancel_is_an_intent_only(self, store: RunLedgerStore) -> None:
        """AC-L13."""
        await moved(store, "run", S.RUNNING)
        first = RunChange(cancel_requested_at=at(1), cancel_reason="enough")
        run = await store.change_run("run", first, now=at(1))
        assert (run.status, run.cancel_requested_at, run.cancel_reason) == (S.RUNNING, at(1), "enough")
        second = RunChange(cancel_requested_at=at(2), cancel_reason="really")
        assert (await store.change_run("run", second, now=at(2))) == run
        done = await moved(store, "done", S.RUNNING, S.COMPLETED)
        assert await store.change_run("done", first, now=at(1)) == done

    async def test_metadata_is_merged_and_other_fields_replaced(self, store: RunLedgerStore) -> None:
        await store.create_run(new_run("run", metadata={"a": 1, "b": 1}))
        change = RunChange(metadata={"b": 2}, usage=TokenUsage(5), priority=3, graph_fingerprint="f", status_reason="x")
        run = await store.change_run("run", change, now=at(1))
        assert run.metadata == {"a": 1, "b": 2}
        assert (run.usage, run.priority, run.graph_fingerprint) == (TokenUsage(5), 3, "f")
        run = await store.change_run("run", RunChange(clear_reason=True), now=at(2))
        assert (run.status_reason, run.usage) == (None, TokenUsage(5))
        assert await store.change_run("run", RunChange(), now=at(3)) == run
        with refused("not_found"):
            await store.change_run("other", RunChange(priority=1), now=T0)

    async def test_runs_are_listed_newest_first_and_filtered(self, store: RunLedgerStore) -> None:
        """AC-L11."""
        for number in range(6):
            status = S.RUNNING if number % 2 else S.QUEUED
            await store.create_run(new_run(f"r{number}", conversation_id=f"c{number % 3}", status=status))
        both = RunFilter(conversation_id="c1", status=S.RUNNING)
        assert [run.run_id for run in (await store.list_runs(both)).items] == ["r1"]
        page, found = await store.list_runs(RunFilter(status=[S.RUNNING, S.WAITING]), limit=1), []
        while True:
            assert len(page.items) == 1
            found += [run.run_id for run in page.items]
            if not page.has_more:
                break
            page = await store.list_runs(RunFilter(status=[S.RUNNING, S.WAITING]), limit=1, cursor=page.next_cursor)
        assert found == ["r5", "r3", "r1"]
        assert (await store.list_runs(RunFilter(created_by="plugin"))).items == []
        with refused("invalid_argument", "no status"):
            await store.list_runs(RunFilter(status="bogus"))  # type: ignore[arg-type]  # the fault

    async def test_every_filter_counts(self, store: RunLedgerStore) -> None:
        names = ("agent_id", "binding_id", "runner_id", "event_id", "conversation_id", "thread_id", "workspace_id")
        mine = AuthorizationSnapshot(runner_id="runner", caller_plugin_id="mine")
        fields: dict[str, Any] = dict.fromkeys(names, "x")
        await store.create_run(new_run("plain"))
        await store.create_run(new_run("full", authorization=mine, bot_id="x", **fields))
        for name in (*names, "bot_id"):
            page = await store.list_runs(RunFilter(**{name: "x"}))  # type: ignore[arg-type]  # any of the names
            assert [run.run_id for run in page.items] == ["full"], name
        assert [run.run_id for run in (await store.list_runs(RunFilter(created_by="mine"))).items] == ["full"]

    async def test_a_page_of_runs_is_clamped_and_stays_put_while_runs_come(self, store: RunLedgerStore) -> None:
        for number in range(105):
            await store.create_run(new_run(f"r{number}"))
        page = await store.list_runs(RunFilter(), limit=1000)
        assert (len(page.items), page.has_more) == (100, True)
        assert len((await store.list_runs(RunFilter(), limit=0)).items) == 1
        await store.create_run(new_run("late"))
        rest = await store.list_runs(RunFilter(), cursor=page.next_cursor, limit=100)
        assert [run.run_id for run in rest.items] == [f"r{number}" for number in range(4, -1, -1)]
        assert (rest.has_more, rest.next_cursor) == (False, None)

    @pytest.mark.parametrize("cursor", ["", "x", "ZXZlbnRzOjE", "cnVuczotMQ", "cnVuczoxx", "é"])
    async def test_a_strange_cursor_is_refused(self, store: RunLedgerStore, cursor: str) -> None:
        with refused("invalid_argument", "no cursor"):
            await store.list_runs(RunFilter(), cursor=cursor)

    async def test_pruning_removes_what_finished_before(self, store: RunLedgerStore) -> None:
        for number, status in enumerate([S.COMPLETED, S.FAILED, S.COMPLETED]):
            run_id = f"r{number}"
            await store.create_run(new_run(run_id, conversation_id="c"))
            await store.append_events(run_id, events(1, 2), now=T0)
            await store.put_artifact(artifact(run_id, "x"), b"x")
            await store.add_transcript(message(run_id, 1))
            await store.change_run(run_id, RunChange(status=status), now=at(number))
        await store.create_run(new_run("lives"))
        assert await store.prune_runs(at(2), [S.COMPLETED]) == 1
        assert await store.get_run("r0") is None
        assert await store.get_artifact("r0-x") is None
        assert [entry.run_id for entry in await store.list_transcript(conversation_id="c")] == ["r1", "r2"]
        assert await store.prune_runs(at(2), [S.RUNNING, S.CREATED]) == 0
        assert await store.prune_runs(at(9)) == 2
        assert await store.prune_runs(at(9)) == 0
        assert await store.get_run("lives") is not None
        made, created = await store.create_run(new_run("r0"))
        assert created
        assert await sequences(store, made.run_id) == []


class TestEvents:
    async def test_the_same_sequence_gives_the_same_row(self, store: RunLedgerStore) -> None:
        """AC-L03."""
        await store.create_run(new_run("run"))
        [first, second] = await store.append_events("run", events(1, 2), now=at(1))
        assert (first.created, first.gap, first.differs, first.event.id) == (True, False, False, "run:1")
        [again] = await store.append_events("run", events(2), now=at(5))
        assert (again.created, again.differs, again.event) == (False, False, second.event)
        [other] = await store.append_events("run", [NewEvent("note", {"x": 1}, 2)], now=at(5))
        assert (other.created, other.differs, other.event) == (False, True, second.event)
        assert await sequences(store, "run") == [1, 2]

    async def test_an_event_reads_back_as_it_was_given(self, store: RunLedgerStore) -> None:
        await store.create_run(new_run("run"))
        data: dict[str, Any] = {"b": [1.5, None, True, {"a": "日本"}], "a": "nul\0 half\ud800", "big": 2**70}
        given = NewEvent(
            "unknown.type",
            data,
            source="graph",
            artifact_refs=("a", "b"),
            metadata={"m": 1},
            created_at=at(3),
        )
        [made] = await store.append_events("run", [given], now=at(5))
        [read] = (await store.page_events("run")).items
        assert (read.type, read.data, read.source, read.created_at) == (given.type, given.data, "graph", at(3))
        assert (read.artifact_refs, read.metadata) == (("a", "b"), {"m": 1})
        assert made.event == read
        [again] = await store.append_events(
            "run", [replace(given, sequence=1, data=dict(reversed(data.items())))], now=at(6)
        )
        assert (again.created, again.differs) == (False, False)

    async def test_data_may_come_as_json(self, store: RunLedgerStore) -> None:
        await store.create_run(new_run("run"))
        texts = ['{"a": [1, "日本"]}', '{"b": "half\ud800"}']
        done = await store.append_events("run", [NewEvent("note", JsonText(text)) for text in texts], now=T0)
        expected: list[dict[str, Any]] = [{"a": [1, "日本"]}, {"b": "half\ud800"}]
        assert [one.event.data for one in done] == expected
        assert [event.data for event in (await store.page_events("run")).items] == expected
        [again] = await store.append_events("run", [NewEvent("note", expected[0], 1)], now=T0)
        assert (again.created, again.differs) == (False, False)

    async def test_a_change_may_expect_a_status(self, store: RunLedgerStore) -> None:
        run = await moved(store, "run", S.RUNNING)
        change = RunChange(status=S.QUEUED, expects={S.CREATED, S.WAITING})
        with refused("conflict", "is running meanwhile"):
            await store.append_events("run", events(1), now=T0, change=change)
        assert await store.get_run("run") == run
        assert await sequences(store, "run") == []

    async def test_numbers_go_up_with_gaps_and_on_their_own(self, store: RunLedgerStore) -> None:
        await store.create_run(new_run("run"))
        done = await store.append_events("run", events(3, None, 7, 7, None), now=T0)
        assert [one.event.sequence for one in done] == [3, 4, 7, 7, 8]
        assert [one.gap for one in done] == [True, False, True, False, False]
        assert [one.created for one in done] == [True, True, True, False, True]
        assert await sequences(store, "run") == [3, 4, 7, 8]

    @pytest.mark.parametrize("number", [0, -1, 2, 2**63])
    async def test_a_number_that_goes_back_spoils_the_whole_append(self, store: RunLedgerStore, number: int) -> None:
        await store.create_run(new_run("run"))
        await store.append_events("run", events(1, 3), now=T0)
        with refused("invalid_argument"):
            await store.append_events("run", events(None, number), now=T0, change=RunChange(status=S.RUNNING))
        assert await sequences(store, "run") == [1, 3]
        run = await store.get_run("run")
        assert run is not None
        assert run.status is S.CREATED

    async def test_what_is_no_json_is_refused(self, store: RunLedgerStore) -> None:
        await store.create_run(new_run("run"))
        with refused("invalid_argument", "'note' cannot be written as JSON"):
            await store.append_events("run", [*events(1), NewEvent("note", {"x": {1, 2}})], now=T0)
        assert await sequences(store, "run") == []
        with refused("not_found"):
            await store.append_events("other", events(1), now=T0)

    async def test_a_change_belongs_to_its_events(self, store: RunLedgerStore) -> None:
        await store.create_run(new_run("run"))
        await store.append_events("run", events(1), now=at(1), change=RunChange(status=S.RUNNING))
        end = RunChange(status=S.COMPLETED, usage=TokenUsage(7))
        await store.append_events("run", events(2), now=at(2), change=end)
        run = await store.get_run("run")
        assert run is not None
        assert (run.status, run.started_at, run.finished_at, run.usage) == (S.COMPLETED, at(1), at(2), TokenUsage(7))
        # the same again, as after a lost answer, changes nothing
        for number, change in ((1, RunChange(status=S.RUNNING)), (2, end), (2, RunChange(status=S.FAILED))):
            [again] = await store.append_events("run", events(number), now=at(9), change=change)
            assert not again.created
        assert await store.get_run("run") == run

    async def test_an_illegal_change_keeps_its_events_out(self, store: RunLedgerStore) -> None:
        await moved(store, "run", S.RUNNING)
        with refused("conflict"):
            await store.append_events("run", events(1), now=T0, change=RunChange(status=S.CLAIMED))
        assert await sequences(store, "run") == []

    async def test_a_run_that_is_over_takes_only_audits(self, store: RunLedgerStore) -> None:
        """AC-L35."""
        await store.create_run(new_run("run"))
        await store.append_events("run", events(1, 2), now=T0, change=RunChange(status=S.COMPLETED))
        with refused("conflict", "takes no more"):
            await store.append_events("run", events(3), now=T0)
        with refused("conflict"):
            await store.append_events("run", events(2, 3), now=T0)
        [audit] = await store.append_events("run", [NewEvent("seen", {}, source="host")], now=at(9), audit=True)
        assert (audit.event.sequence, audit.event.source) == (3, "host")
        run = await store.get_run("run")
        assert run is not None
        assert (run.status, run.finished_at) == (S.COMPLETED, T0)

    async def test_reopening_comes_with_its_event(self, store: RunLedgerStore) -> None:
        await moved(store, "run", S.RUNNING, S.FAILED)
        again = RunChange(status=S.RUNNING, resume=True, add_attempt=True)
        await store.append_events("run", [NewEvent("run.resumed", {})], now=at(1), change=again)
        await store.append_events("run", events(2), now=at(2))
        assert await sequences(store, "run") == [1, 2]

    async def test_pages_go_on_where_they_ended_while_events_come(self, store: RunLedgerStore) -> None:
        await store.create_run(new_run("run"))
        page = await store.page_events("run", limit=2)
        assert (page.items, page.has_more) == ([], False)
        seen: list[int] = []
        for number in range(5):
            await store.append_events("run", events(None, None, None), now=T0)
            page = await store.page_events("run", cursor=page.next_cursor, limit=2)
            seen += [event.sequence for event in page.items]
            assert page.has_more is (15 > seen[-1] < 3 * (number + 1))
        while page.has_more:
            page = await store.page_events("run", cursor=page.next_cursor, limit=2)
            seen += [event.sequence for event in page.items]
        assert seen == list(range(1, 16))
        last = await store.page_events("run", cursor=page.next_cursor)
        assert (last.items, last.has_more) == ([], False)
        with refused("invalid_argument", "no cursor"):
            await store.page_events("run", cursor="nonsense")
        with refused("not_found"):
            await store.page_events("other")

    async def test_a_page_of_events_is_clamped(self, store: RunLedgerStore) -> None:
        await store.create_run(new_run("run"))
        await store.append_events("run", events(*[None] * 1001), now=T0)
        page = await store.page_events("run", limit=5000)
        assert (len(page.items), page.has_more) == (1000, True)
        assert len((await store.page_events("run", limit=0)).items) == 1

    async def test_many_tasks_append_to_many_runs(self, store: RunLedgerStore) -> None:
        async def fill(run_id: str) -> None:
            await store.create_run(new_run(run_id))
            for number in range(1, 11):
                await store.append_events(run_id, events(number), now=T0)

        async def spoil() -> None:
            for _ in range(10):
                with refused("not_found"):
                    await store.append_events("nowhere", events(1), now=T0)

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(fill, f"r{number}")
                tasks.start_soon(spoil)
        for number in range(20):
            assert await sequences(store, f"r{number}") == list(range(1, 11))


class TestClaims:
    async def test_the_highest_priority_is_claimed_first(self, store: RunLedgerStore) -> None:
        """AC-L31."""
        await store.create_run(queued("low", priority=1))
        await store.create_run(queued("high", priority=5))
        await store.create_run(queued("high-later", priority=5))
        await store.create_run(new_run("created", priority=9))
        claims = [await store.claim_run(f"w{number}", 10, now=T0) for number in range(4)]
        assert [claim and claim.run.run_id for claim in claims] == ["high", "high-later", "low", None]
        first = claims[0]
        assert first is not None
        assert (first.attempt, first.lease_until, first.run.claimed_by) == (1, at(10), "w0")
        assert (first.run.status, first.run.attempt, first.run.lease_until) == (S.CLAIMED, 1, at(10))
        assert len({claim.token for claim in claims if claim}) == 3
        found = await store.get_run("high")
        assert first.token not in repr(found)

    async def test_each_run_is_claimed_once_by_many(self, store: RunLedgerStore) -> None:
        for number in range(30):
            await store.create_run(queued(f"r{number}"))
        taken: list[str] = []

        async def work() -> None:
            while (claim := await store.claim_run("w", 10, now=T0)) is not None:
                taken.append(claim.run.run_id)

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(work)
        assert sorted(taken) == sorted(f"r{number}" for number in range(30))

    async def test_a_claim_keeps_everyone_else_out(self, store: RunLedgerStore) -> None:
        await store.create_run(queued("run"))
        claim = await store.claim_run("w", 10, now=T0)
        assert claim is not None
        change = RunChange(status=S.RUNNING)
        for token in (None, OTHER):
            with refused("conflict"):
                await store.append_events("run", events(1), now=at(1), token=token)
            with refused("conflict"):
                await store.change_run("run", change, now=at(1), token=token)
        assert claim.token not in str(await _error_of(store.change_run, "run", change))
        cancel = RunChange(cancel_requested_at=at(1))
        assert (await store.change_run("run", cancel, now=at(1))).cancel_requested_at == at(1)
        await store.append_events("run", events(1), now=at(1), token=claim.token, change=change)
        run = await store.change_run("run", RunChange(status=S.COMPLETED), now=at(2), token=claim.token)
        assert (run.claimed_by, run.lease_until) == (None, None)
        with refused("conflict"):
            await store.append_events("run", events(2), now=at(3), token=claim.token)

    async def test_an_old_token_is_worth_nothing_after_the_next_claim(self, store: RunLedgerStore) -> None:
        await store.create_run(queued("run"))
        old = await store.claim_run("a", 10, now=T0)
        assert old is not None
        assert await store.claim_run("b", 10, now=at(9), run_id="run") is None
        new = await store.claim_run("b", 10, now=at(10), run_id="run")
        assert new is not None
        assert (new.attempt, new.token != old.token) == (2, True)
        with refused("conflict", "not the caller's any more"):
            await store.append_events("run", events(1), now=at(11), token=old.token)
        with refused("conflict"):
            await store.change_run("run", RunChange(status=S.FAILED), now=at(11), token=old.token)
        assert not await store.renew_claim("run", old.token, 10, now=at(11))
        assert not await store.release_claim("run", old.token, now=at(11))
        assert await sequences(store, "run") == []

    async def test_who_is_late_still_holds_what_nobody_has_taken(self, store: RunLedgerStore) -> None:
        await store.create_run(queued("run"))
        claim = await store.claim_run("a", 10, now=T0)
        assert claim is not None
        await store.append_events("run", events(1), now=at(99), token=claim.token)
        assert not await store.renew_claim("run", claim.token, 10, now=at(99))
        with refused("conflict"):
            await store.append_events("run", events(2), now=at(99), token=OTHER)
        await store.append_events("run", events(2), now=at(99))
        assert await sequences(store, "run") == [1, 2]

    async def test_a_lease_is_prolonged_while_it_lives(self, store: RunLedgerStore) -> None:
        await store.create_run(queued("run"))
        claim = await store.claim_run("a", 10, now=T0)
        assert claim is not None
        assert await store.renew_claim("run", claim.token, 10, now=at(9))
        assert await store.renew_claim("run", claim.token, 10, now=at(18))
        run = await store.get_run("run")
        assert run is not None
        assert run.lease_until == at(28)
        assert not await store.renew_claim("run", "other", 10, now=at(18))
        assert not await store.renew_claim("other", claim.token, 10, now=at(18))
        assert not await store.renew_claim("run", claim.token, 10, now=at(28))
        with refused("invalid_argument", "lease"):
            await store.renew_claim("run", claim.token, 0, now=at(18))

    async def test_a_late_renewal_changes_nothing(self, store: RunLedgerStore) -> None:
        """B-087."""
        await store.create_run(queued("run"))
        claim = await store.claim_run("a", 10, now=T0)
        assert claim is not None
        end = RunChange(status=S.COMPLETED)
        run = await store.change_run("run", end, now=at(1), token=claim.token)
        assert not await store.renew_claim("run", claim.token, 10, now=at(2))
        assert not await store.release_claim("run", claim.token, now=at(2), status=S.FAILED)
        assert await store.expire_claims(now=at(99), max_attempts=1) == []
        assert await store.get_run("run") == run

    async def test_released_runs_go_where_they_are_sent(self, store: RunLedgerStore) -> None:
        for status, expected in ((None, S.QUEUED), (S.RUNNING, S.RUNNING), (S.FAILED, S.FAILED)):
            run_id = f"run-{status}"
            await store.create_run(queued(run_id))
            claim = await store.claim_run("a", 10, now=T0, run_id=run_id)
            assert claim is not None
            with refused("conflict", "cannot become created"):
                await store.release_claim(run_id, claim.token, now=at(1), status=S.CREATED)
            assert await store.release_claim(run_id, claim.token, now=at(1), status=status)
            run = await store.get_run(run_id)
            assert run is not None
            assert (run.status, run.claimed_by, run.lease_until) == (expected, None, None)
            assert not await store.release_claim(run_id, claim.token, now=at(1))

    async def test_the_lease_of_a_worker_that_is_no_more_is_broken(self, store: RunLedgerStore) -> None:
        await moved(store, "run", S.RUNNING)
        claim = await store.claim_run("a", 10, now=T0, run_id="run")
        assert claim is not None
        assert not await store.break_claim("run", "b", now=at(1))
        assert not await store.break_claim("other", "a", now=at(1))
        assert await store.claim_run("b", 10, now=at(1), run_id="run") is None
        assert await store.break_claim("run", "a", now=at(1))
        assert not await store.renew_claim("run", claim.token, 10, now=at(1))
        assert await store.claim_run("b", 10, now=at(1), run_id="run") is not None
        assert not await store.break_claim("run", "a", now=at(1))

    async def test_a_named_run_is_claimed_as_it_stands(self, store: RunLedgerStore) -> None:
        for way in ((), (S.RUNNING,), (S.RUNNING, S.WAITING)):
            run_id = f"run-{len(way)}"
            before = await moved(store, run_id, *way)
            claim = await store.claim_run("a", 10, now=T0, run_id=run_id)
            assert claim is not None
            assert (claim.run.status, claim.attempt) == (before.status, 1)
            assert await store.claim_run("b", 10, now=at(1), run_id=run_id) is None
        await moved(store, "done", S.RUNNING, S.COMPLETED)
        assert await store.claim_run("a", 10, now=T0, run_id="done") is None
        assert await store.claim_run("a", 10, now=T0, run_id="other") is None

    async def test_waiting_ends_the_claim(self, store: RunLedgerStore) -> None:
        await moved(store, "run", S.RUNNING)
        claim = await store.claim_run("a", 10, now=T0, run_id="run")
        assert claim is not None
        run = await store.change_run("run", RunChange(status=S.WAITING), now=at(1), token=claim.token)
        assert (run.claimed_by, run.lease_until) == (None, None)
        assert not await store.renew_claim("run", claim.token, 10, now=at(2))

    async def test_a_worker_takes_only_graphs_it_knows(self, store: RunLedgerStore) -> None:
        await store.create_run(queued("other", graph_fingerprint="x", priority=9))
        await store.create_run(queued("mine", graph_fingerprint="f"))
        await store.create_run(queued("plain"))
        taken = [await store.claim_run("w", 10, now=T0, fingerprints=["f", "g"]) for _ in range(3)]
        assert [claim and claim.run.run_id for claim in taken] == ["mine", "plain", None]
        assert await store.claim_run("w", 10, now=T0, run_id="other", fingerprints=["f"]) is None
        assert await store.claim_run("w", 10, now=T0, fingerprints=[]) is None
        assert await store.claim_run("w", 10, now=T0) is not None

    async def test_runs_of_dead_workers_go_back_until_it_is_enough(self, store: RunLedgerStore) -> None:
        await store.create_run(queued("run"))
        run = None
        for attempt in (1, 2):
            claim = await store.claim_run("w", 10, now=at(100 * attempt))
            assert claim is not None
            assert claim.attempt == attempt
            await store.change_run("run", RunChange(status=S.RUNNING), now=at(100 * attempt), token=claim.token)
            assert await store.expire_claims(now=at(100 * attempt + 9), max_attempts=2) == []
            [run] = await store.expire_claims(now=at(100 * attempt + 10), max_attempts=2)
            assert run == await store.get_run("run")
            assert run.status is (S.QUEUED if attempt == 1 else S.FAILED)
        assert run is not None
        assert run.status_reason == "given up after 2 attempts: the lease of 'w' has ended"
        assert run.finished_at == at(210)
        assert await store.expire_claims(now=at(999), max_attempts=2) == []

    async def test_a_requeued_run_keeps_nothing_of_its_attempt(self, store: RunLedgerStore) -> None:
        """B-089."""
        await store.create_run(queued("run", metadata={"mine": 1}))
        claim = await store.claim_run("w", 10, now=T0)
        assert claim is not None
        left = RunChange(
            status=S.RUNNING, usage=TokenUsage(5), status_reason="half", metadata={"trace_id": "t", "result": {"x": 1}}
        )
        await store.append_events("run", events(1), now=at(1), token=claim.token, change=left)
        [run] = await store.expire_claims(now=at(10))
        history = run.metadata[rules.ATTEMPTS]
        assert (run.status, run.usage, run.status_reason) == (S.QUEUED, None, None)
        assert run.metadata == {"mine": 1, rules.ATTEMPTS: history}
        assert [(one["attempt"], one["worker"], one["trace_id"]) for one in history] == [(1, "w", "t")]
        assert (run.claimed_by, run.lease_until, run.finished_at, run.attempt) == (None, None, None, 1)
        assert await sequences(store, "run") == [1]

    async def test_a_run_that_is_not_begun_in_time_goes_back(self, store: RunLedgerStore) -> None:
        for run_id in ("idle", "begun"):
            await store.create_run(queued(run_id))
            claim = await store.claim_run("w", 1000, now=T0, run_id=run_id)
            assert claim is not None
            if run_id == "begun":
                await store.change_run(run_id, RunChange(status=S.RUNNING), now=at(1), token=claim.token)
        assert await store.expire_claims(now=at(29), dispatch_seconds=30) == []
        assert [run.run_id for run in await store.expire_claims(now=at(30), dispatch_seconds=30)] == ["idle"]
        claim = await store.claim_run("w", 1000, now=at(31))
        assert claim is not None
        [run] = await store.expire_claims(now=at(61), dispatch_seconds=30, max_attempts=2)
        assert run.status_reason == "given up after 2 attempts: 'w' has not begun within 30 s"

    async def test_a_waiting_run_only_loses_its_claim(self, store: RunLedgerStore) -> None:
        await moved(store, "run", S.RUNNING, S.WAITING)
        await store.claim_run("w", 10, now=T0, run_id="run")
        [run] = await store.expire_claims(now=at(10), max_attempts=1)
        assert (run.status, run.claimed_by) == (S.WAITING, None)

    async def test_who_waits_for_work_is_told(self, store: RunLedgerStore) -> None:
        assert await store.claim_run("w", 10, now=T0) is None
        told = anyio.Event()

        async def wait() -> None:
            while await store.claim_run("w", 10, now=T0) is None:
                await store.wait_for_work(30)
            told.set()

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await store.create_run(new_run("run"))
                await store.change_run("run", RunChange(status=S.QUEUED), now=T0)
                await told.wait()

    async def test_waiting_for_work_ends_by_itself(self, store: RunLedgerStore) -> None:
        assert await store.claim_run("w", 10, now=T0) is None
        with anyio.fail_after(10):
            await store.wait_for_work(0.01)


def artifact(run_id: str, name: str, size: int = 1) -> Artifact:
    return Artifact(
        id=f"{run_id}-{name}", run_id=run_id, sequence=1, name=name, mime_type="text/plain", size=size, created_at=T0
    )


def runtime(capabilities: dict[str, int], now: datetime, metadata: dict[str, int]) -> RuntimeRecord:
    return RuntimeRecord(
        runtime_id="rt",
        capabilities=capabilities,
        registered_at=now,
        heartbeat_at=now,
        heartbeat_seconds=30.0,
        metadata=metadata,
    )


def message(run_id: str, sequence: int, text: str = "hello", **fields: str) -> TranscriptEntry:
    return TranscriptEntry(
        run_id=run_id,
        sequence=sequence,
        conversation_id=fields.get("conversation_id", "c"),
        thread_id=fields.get("thread_id"),
        role="user",
        content={"text": text},
        created_at=T0,
    )


def value(key: str, value: object, run_id: str = "run", sequence: int = 1) -> StateEntry:
    return StateEntry(
        scope="conversation", scope_id="c", key=key, value=value, run_id=run_id, sequence=sequence, updated_at=T0
    )


class TestWhatRunsLeave:
    async def test_artifacts_are_kept_once_and_in_order(self, store: RunLedgerStore) -> None:
        await store.create_run(new_run("run"))
        content = bytes(range(256)) * 400
        first = artifact("run", "z", len(content))
        assert await store.put_artifact(first, content) == first
        assert await store.put_artifact(artifact("run", "a"), b"") == artifact("run", "a")
        assert await store.put_artifact(replace(first, mime_type="other"), b"other") == first
        assert await store.get_artifact(first.id) == (first, content)
        assert [one.name for one in await store.list_artifacts("run")] == ["z", "a"]
        assert await store.get_artifact("other") is None
        assert await store.list_artifacts("other") == []
        with refused("not_found"):
            await store.put_artifact(artifact("other", "x"), b"x")

    async def test_messages_are_kept_once_and_in_order(self, store: RunLedgerStore) -> None:
        for run_id in ("a", "b"):
            await store.create_run(new_run(run_id))
        assert await store.add_transcript(message("b", 1, "one"))
        assert await store.add_transcript(message("a", 5, "two", thread_id="t"))
        assert await store.add_transcript(message("a", 6, "three", conversation_id="d"))
        assert not await store.add_transcript(message("a", 5, "again"))
        assert await store.list_transcript() == [
            message("b", 1, "one"),
            message("a", 5, "two", thread_id="t"),
            message("a", 6, "three", conversation_id="d"),
        ]
        assert await store.list_transcript(conversation_id="c", limit=1) == [message("a", 5, "two", thread_id="t")]
        assert [entry.sequence for entry in await store.list_transcript(run_id="a")] == [5, 6]
        assert [entry.sequence for entry in await store.list_transcript(run_id="a", thread_id="t")] == [5]
        assert await store.list_transcript(limit=0) == []
        with refused("not_found"):
            await store.add_transcript(message("other", 1))

    async def test_the_latest_event_of_a_run_decides_on_a_value(self, store: RunLedgerStore) -> None:
        assert await store.set_state(value("b", [1], sequence=5))
        assert await store.set_state(value("a", None))
        assert not await store.set_state(value("b", [0], sequence=4))
        assert await store.set_state(value("b", [9], sequence=5))
        assert (await store.get_state("conversation", "c"))["b"] == value("b", [1], sequence=5)
        assert await store.set_state(value("b", [2], sequence=6))
        assert await store.set_state(value("b", [3], run_id="other", sequence=1))
        found = await store.get_state("conversation", "c")
        assert list(found.values()) == [value("a", None), value("b", [3], run_id="other")]
        assert await store.get_state("conversation", "d") == {}


class TestWorkers:
    async def test_slots_are_leased(self, store: RunLedgerStore) -> None:
        """B-085."""
        assert await store.take_slot("gpu", 2, "a", 10, now=T0)
        assert await store.take_slot("gpu", 2, "b", 20, now=T0)
        assert not await store.take_slot("gpu", 2, "c", 10, now=at(9))
        assert await store.take_slot("gpu", 2, "a", 10, now=at(5))
        assert not await store.take_slot("gpu", 2, "c", 10, now=at(14))
        assert await store.take_slot("cpu", 1, "c", 10, now=at(9))
        assert await store.take_slot("gpu", 2, "c", 10, now=at(15))
        await store.free_slot("gpu", "b")
        await store.free_slot("gpu", "nobody")
        assert await store.take_slot("gpu", 2, "d", 10, now=at(15))

    async def test_no_more_slots_are_taken_than_there_are(self, store: RunLedgerStore) -> None:
        got: list[bool] = []

        async def take(number: int) -> None:
            got.append(await store.take_slot("gpu", 3, f"w{number}", 10, now=T0))

        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(take, number)
        assert sum(got) == 3

    async def test_runtimes_are_remembered_and_merged(self, store: RunLedgerStore) -> None:
        """AC-L33."""
        record = runtime({"slots": 2}, T0, {"a": 1, "b": 1})
        assert await store.put_runtime(record) == record
        later = runtime({"slots": 3}, at(5), {"b": 2})
        merged = replace(runtime({"slots": 3}, at(5), {"a": 1, "b": 2}), registered_at=T0)
        assert await store.put_runtime(later) == merged
        await store.put_runtime(replace(record, runtime_id="Z"))
        await store.put_runtime(replace(record, runtime_id="a"))
        assert [one.runtime_id for one in await store.list_runtimes()] == ["Z", "a", "rt"]
        assert await store.drop_runtime("rt")
        assert not await store.drop_runtime("rt")


class TestLife:
    async def test_a_closed_store_says_so(self, opening: Callable[[], RunLedgerStore], anyio_backend: str) -> None:
        store = opening()
        await store.create_run(new_run("run"))
        await store.aclose()
        await store.aclose()
        with refused("runtime_error", "closed"):
            await store.get_run("run")
        with refused("runtime_error", "closed"):
            await store.append_events("run", events(1), now=T0)


async def _error_of(fn: Callable[..., object], run_id: str, change: RunChange) -> RunControlError:
    with pytest.raises(RunControlError) as caught:
        await fn(run_id, change, now=at(1), token=OTHER)  # type: ignore[misc]  # every method here is async
    return caught.value
