"""Whatever is done to them in whatever order, stores agree."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphrt.errors import RunControlError
from graphrt.ledger.memory import InMemoryRunLedgerStore
from graphrt.ledger.records import Claim, NewEvent, RunChange, RunFilter
from graphrt.ledger.sql import SqliteRunLedgerStore
from graphrt.ledger.status import TERMINAL, AgentRunStatus
from graphrt.ledger.store import RunLedgerStore
from tests.ledger.stores import at, new_run

S = AgentRunStatus
RUNS = st.sampled_from(["a", "b", "c"])
TOKENS = st.sampled_from([None, "stale", "held", "held"])
CHANGES = st.builds(
    RunChange,
    status=st.none() | st.sampled_from(S),
    resume=st.booleans(),
    status_reason=st.none() | st.sampled_from(["why", "nul\0"]),
    priority=st.none() | st.integers(0, 2),
    release=st.booleans(),
    add_attempt=st.booleans(),
    metadata=st.dictionaries(st.sampled_from(["x", "result"]), st.integers(0, 1), max_size=1),
) | st.builds(RunChange, cancel_requested_at=st.just(at(1)), cancel_reason=st.sampled_from(["a", None]))
EVENTS = st.lists(
    st.builds(
        NewEvent,
        st.sampled_from(["note", "other"]),
        st.sampled_from([{}, {"x": 1.5}, {"x": [None, "é"]}]),
        st.none() | st.integers(-1, 6),
    ),
    max_size=3,
)
OPERATIONS = st.one_of(
    st.tuples(st.just("create"), RUNS, st.sampled_from([S.CREATED, S.QUEUED, S.RUNNING]), st.integers(0, 2)),
    st.tuples(st.just("change"), RUNS, CHANGES, TOKENS),
    st.tuples(st.just("append"), RUNS, EVENTS, st.none() | CHANGES, TOKENS, st.booleans()),
    st.tuples(st.just("claim"), st.none() | RUNS, st.integers(1, 20)),
    st.tuples(st.just("renew"), RUNS, TOKENS, st.integers(1, 20)),
    st.tuples(st.just("release"), RUNS, TOKENS, st.none() | st.sampled_from(S)),
    st.tuples(st.just("break"), RUNS, st.sampled_from(["w", "v"])),
    st.tuples(st.just("expire"), st.none() | st.integers(1, 3), st.none() | st.integers(1, 10)),
    st.tuples(st.just("prune"), st.none() | st.sets(st.sampled_from(sorted(TERMINAL)), max_size=2)),
    st.tuples(st.just("slot"), st.sampled_from(["w", "v", "u"]), st.integers(1, 10)),
)


class Driver:
    """Does the same to one store as to the others, and keeps its tokens apart."""

    def __init__(self, store: RunLedgerStore) -> None:
        self.store = store
        self.tokens: dict[str, str] = {}

    def token(self, run_id: str, kind: str | None) -> str | None:
        return self.tokens.get(run_id, "none yet") if kind == "held" else kind

    async def do(self, operation: tuple[Any, ...], second: int) -> object:
        """Give what came of it, or why it was refused."""
        try:
            return await getattr(self, operation[0] + "_")(at(second), *operation[1:])
        except RunControlError as error:
            return error.code, error.message

    async def create_(self, now: Any, run_id: str, status: S, priority: int) -> object:
        run, created = await self.store.create_run(new_run(run_id, now=now, status=status, priority=priority))
        return run.run_id, created

    async def change_(self, now: Any, run_id: str, change: RunChange, token: str | None) -> object:
        run = await self.store.change_run(run_id, change, now=now, token=self.token(run_id, token))
        return run.status, run.updated_at

    async def append_(
        self, now: Any, run_id: str, events: list[NewEvent], change: RunChange | None, token: str | None, audit: bool
    ) -> object:
        token = self.token(run_id, token)
        return await self.store.append_events(run_id, events, now=now, token=token, change=change, audit=audit)

    async def claim_(self, now: Any, run_id: str | None, lease: int) -> object:
        claim: Claim | None = await self.store.claim_run("w", lease, now=now, run_id=run_id)
        if claim is None:
            return None
        self.tokens[claim.run.run_id] = claim.token
        return claim.run.run_id, claim.attempt, claim.lease_until

    async def renew_(self, now: Any, run_id: str, token: str | None, lease: int) -> object:
        return await self.store.renew_claim(run_id, self.token(run_id, token) or "", lease, now=now)

    async def release_(self, now: Any, run_id: str, token: str | None, status: S | None) -> object:
        return await self.store.release_claim(run_id, self.token(run_id, token) or "", now=now, status=status)

    async def break_(self, now: Any, run_id: str, worker: str) -> object:
        return await self.store.break_claim(run_id, worker, now=now)

    async def expire_(self, now: Any, most: int | None, seconds: int | None) -> object:
        changed = await self.store.expire_claims(now=now, max_attempts=most, dispatch_seconds=seconds)
        return [(run.run_id, run.status, run.status_reason) for run in changed]

    async def prune_(self, now: Any, status: set[S] | None) -> object:
        return await self.store.prune_runs(now, status)

    async def slot_(self, now: Any, owner: str, lease: int) -> object:
        return await self.store.take_slot("s", 2, owner, lease, now=now)

    async def all(self) -> object:
        """Give everything that a reader can see, but for the stores' own numbers, which may leave some out."""
        runs = (await self.store.list_runs(RunFilter())).items
        return [replace(run, id=0) for run in runs], [(await self.store.page_events(run.run_id)).items for run in runs]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(OPERATIONS, st.integers(0, 6)), min_size=1, max_size=14))
def test_memory_and_file_agree_on_every_answer(
    sqlite_empty: Path, tmp_path: Path, steps: list[tuple[tuple[Any, ...], int]]
) -> None:
    path = tmp_path / "ledger.db"
    for left in tmp_path.iterdir():
        left.unlink()
    shutil.copy(sqlite_empty, path)

    async def compare() -> None:
        async with InMemoryRunLedgerStore() as memory, SqliteRunLedgerStore(path) as file:
            one, other = Driver(memory), Driver(file)
            second = 0
            for operation, later in steps:
                second += later
                assert await one.do(operation, second) == await other.do(operation, second), operation
            assert await one.all() == await other.all()

    anyio.run(compare)


@settings(max_examples=60)
@given(st.lists(st.tuples(OPERATIONS, st.integers(0, 6)), max_size=30))
def test_what_holds_of_runs_holds_after_anything(steps: list[tuple[tuple[Any, ...], int]]) -> None:
    async def check() -> None:
        async with InMemoryRunLedgerStore() as store:
            driver = Driver(store)
            second = 0
            for operation, later in steps:
                second += later
                await driver.do(operation, second)
                for run in (await store.list_runs(RunFilter())).items:
                    assert run.is_terminal is (run.finished_at is not None)
                    assert (run.claimed_by is None) is (run.lease_until is None)
                    assert not (run.status in {*TERMINAL, S.QUEUED} and run.claimed_by)
                    assert run.started_at is not None or run.status is not S.RUNNING
                    numbers = [event.sequence for event in (await store.page_events(run.run_id)).items]
                    assert numbers == sorted(set(numbers))

    anyio.run(check)


@pytest.mark.parametrize("text", ["", "YQ", "cnVuczow0", "ZXZlbnRzOjE=", "\0"])
def test_a_cursor_of_another_list_is_none(text: str) -> None:
    from graphrt.ledger import paging

    with pytest.raises(RunControlError, match="no cursor"):
        paging.read_cursor("runs", text)
    assert paging.read_cursor("runs", paging.cursor_after("runs", 12345)) == 12345
