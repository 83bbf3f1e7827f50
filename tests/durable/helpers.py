"""What the tests of durable runs share: stores, small graphs, and stores that behave badly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from graphrt import END, START, RunResult, Workflow
from graphrt.errors import RunControlError
from graphrt.ledger import InMemoryRunLedgerStore, RunLedgerStore, SqliteRunLedgerStore
from graphrt.ledger.records import AgentRunEvent, Appended, NewEvent, RunChange

STEP_ENDS = {"step.completed", "step.failed", "step.cancelled", "step.timed_out", "step.skipped"}


def store_of(kind: str, folder: Path) -> RunLedgerStore:
    """Make a new store, in memory or in a file."""
    return InMemoryRunLedgerStore() if kind == "memory" else SqliteRunLedgerStore(folder / "ledger.db")


async def stored_events(store: RunLedgerStore, run_id: str) -> list[AgentRunEvent]:
    """Read all events of a run."""
    events: list[AgentRunEvent] = []
    cursor = None
    while True:
        page = await store.page_events(run_id, cursor=cursor, limit=1000)
        events.extend(page.items)
        cursor = page.next_cursor
        if not page.has_more:
            return events


def check_numbers(events: Sequence[AgentRunEvent]) -> None:
    """Assert that events are numbered without a gap."""
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))


def key_of(event: AgentRunEvent) -> str:
    """Give the key of an event's step."""
    ref = event.data["step"]
    return str(ref.get("key", ref["node"]))


def ended_keys(events: Sequence[AgentRunEvent]) -> Counter[str]:
    """Count how often each step has ended well."""
    return Counter(key_of(event) for event in events if event.type == "step.completed")


class Calls:
    """Counts calls of node functions, and lets chosen ones fail."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.fails: set[str] = set()

    def __call__(self, name: str) -> None:
        """Note a call; raise when it is to fail."""
        self.made.append(name)
        if name in self.fails:
            raise ValueError(f"{name} fails")

    def taken(self) -> list[str]:
        """Give the calls since the last time."""
        made, self.made = self.made, []
        return made


def chain(calls: Calls, count: int = 5, **options: Any) -> Workflow:
    """Make a chain of nodes n1, n2, ..., each adding one."""
    workflow = Workflow("chain", input=int, output=int, **options)

    def node(name: str) -> Callable[[int], Any]:
        async def add(x: int) -> int:
            calls(name)
            return x + 1

        return add

    names = [f"n{number}" for number in range(1, count + 1)]
    for name in names:
        workflow.add_node(name, node(name))
    workflow.chain(START, *names, END)
    return workflow


class Wrapped:
    """A store in front of another; what is not overridden goes through."""

    def __init__(self, inner: RunLedgerStore) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def as_store(self) -> RunLedgerStore:
        """Give itself as what it stands for."""
        return cast("RunLedgerStore", self)


class Cut(Wrapped):
    """A store that takes the first *most* events, and refuses whatever comes after: as if the process had died."""

    def __init__(self, inner: RunLedgerStore, most: int) -> None:
        super().__init__(inner)
        self.left = most
        self.dead = False

    def _alive(self) -> None:
        if self.dead:
            raise RunControlError("runtime_error", "the process has died")

    async def append_events(
        self,
        run_id: str,
        events: Sequence[NewEvent],
        *,
        now: datetime,
        token: str | None = None,
        change: RunChange | None = None,
        audit: bool = False,
    ) -> list[Appended]:
        self._alive()
        if len(events) > self.left:
            self.dead = True
            if self.left:
                await self.inner.append_events(run_id, events[: self.left], now=now, token=token)
            self._alive()
        self.left -= len(events)
        return await self.inner.append_events(run_id, events, now=now, token=token, change=change, audit=audit)

    async def change_run(self, run_id: str, change: RunChange, *, now: datetime, token: str | None = None) -> Any:
        self._alive()
        return await self.inner.change_run(run_id, change, now=now, token=token)

    async def release_claim(self, run_id: str, token: str, *, now: datetime, status: Any = None) -> bool:
        self._alive()
        return await self.inner.release_claim(run_id, token, now=now, status=status)

    async def renew_claim(self, run_id: str, token: str, lease_seconds: float, *, now: datetime) -> bool:
        self._alive()
        return await self.inner.renew_claim(run_id, token, lease_seconds, now=now)


async def free(store: RunLedgerStore, run_id: str) -> None:
    """End the claim that a process left behind which has died."""
    stored = await store.get_run(run_id)
    assert stored is not None
    if stored.claimed_by is not None:
        assert await store.break_claim(run_id, stored.claimed_by, now=datetime.now(UTC))


def same(one: RunResult, other: RunResult) -> bool:
    """Whether two runs have come to the same."""
    return (one.status, one.output, one.outputs, one.state) == (other.status, other.output, other.outputs, other.state)
