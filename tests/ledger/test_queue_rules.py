"""Whatever workers do and in whatever order: one holder at a time, no token twice, no run lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.errors import RunControlError
from graphrt.ledger.leases import held
from graphrt.ledger.memory import InMemoryRunLedgerStore
from graphrt.ledger.queue import ExecutionQueue
from graphrt.ledger.records import Claim, RunChange
from graphrt.ledger.status import TERMINAL, AgentRunStatus
from graphrt.testing import FakeClock
from tests.ledger.queueing import LoopClock, queued, run_in_fake_time

S = AgentRunStatus
MAX_ATTEMPTS = 4


# --- one step after the other, against a model --------------------------------------------------------------


@dataclass
class Known:
    """What must be so of one run."""

    attempts: int = 0
    failures: int = 0
    token: str | None = None
    until: datetime | None = None
    over: bool = False

    def is_held_by(self, token: str, now: datetime) -> bool:
        return self.token == token and self.until is not None and self.until > now

    def fail(self) -> None:
        self.failures += 1
        self.token = self.until = None
        self.over = self.failures >= MAX_ATTEMPTS

    def let_go(self, *, over: bool = False) -> None:
        self.token = self.until = None
        self.over = over


@dataclass
class Ledger:
    """A queue, and the model it is compared with."""

    clock: FakeClock = field(default_factory=FakeClock)
    store: InMemoryRunLedgerStore = field(default_factory=InMemoryRunLedgerStore)
    runs: dict[str, Known] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queue = ExecutionQueue(self.store, clock=self.clock, max_attempts=MAX_ATTEMPTS, dispatch_seconds=None)

    def expire(self) -> None:
        for run in self.runs.values():
            if run.until is not None and run.until <= self.clock.now():
                run.fail()

    async def new(self, _: int) -> None:
        run_id = f"run-{len(self.runs)}"
        self.runs[run_id] = Known()
        await queued(self.store, run_id, self.clock.now())

    async def wait(self, tenths: int) -> None:
        self.clock.advance(tenths / 2)

    async def recover(self, _: int) -> None:
        self.expire()
        await self.queue.recover_expired()

    async def claim(self, worker: int) -> None:
        self.expire()
        free = [run_id for run_id, run in self.runs.items() if not run.over and run.token is None]
        claim = await self.queue.claim_run(f"worker-{worker % 3}", 4)
        assert (None if claim is None else claim.run.run_id) == (free[0] if free else None)
        if claim is None:
            return
        run = self.runs[claim.run.run_id]
        run.attempts += 1
        assert claim.attempt == run.attempts
        assert claim.token not in {earlier.token for earlier in self.claims}
        run.token, run.until = claim.token, self.clock.now() + timedelta(seconds=4)
        self.claims.append(claim)

    async def renew(self, which: int) -> None:
        claim, run, live = self.pick(which)
        assert await self.queue.renew(claim.run.run_id, claim.token, 4) is live
        if live:
            run.until = self.clock.now() + timedelta(seconds=4)

    async def release(self, which: int) -> None:
        claim, run, live = self.pick(which)
        assert await self.queue.release(claim.run.run_id, claim.token) is live
        if live:
            run.let_go()

    async def fail(self, which: int) -> None:
        claim, run, live = self.pick(which)
        assert await self.queue.release(claim.run.run_id, claim.token, failed="no luck") is live
        if live:
            run.fail()

    async def begin(self, which: int) -> None:
        claim, run, _ = self.pick(which)
        if run.token == claim.token:
            await self.queue.begin(claim.run.run_id, claim.token)
        else:
            with pytest.raises(RunControlError):
                await self.queue.begin(claim.run.run_id, claim.token)

    async def complete(self, which: int) -> None:
        claim, run, _ = self.pick(which)
        change = RunChange(status=S.COMPLETED, expects={S.CLAIMED, S.RUNNING})
        end = partial(self.store.change_run, claim.run.run_id, change, now=self.clock.now(), token=claim.token)
        if run.token == claim.token:
            await end()
            run.let_go(over=True)
        else:
            with pytest.raises(RunControlError):
                await end()

    def pick(self, which: int) -> tuple[Claim, Known, bool]:
        claim = self.claims[which % len(self.claims)]
        run = self.runs[claim.run.run_id]
        return claim, run, run.is_held_by(claim.token, self.clock.now())

    async def check(self) -> None:
        for run_id, run in self.runs.items():
            stored = await self.store.get_run(run_id)
            assert stored is not None
            assert (stored.status in TERMINAL, stored.attempt, stored.lease_until) == (
                run.over,
                run.attempts,
                run.until,
            )

    async def drain(self) -> None:
        """Let one worker that works do what is left."""
        self.clock.advance(60)
        self.expire()
        while (claim := await self.queue.claim_run("last", 4)) is not None:
            await self.queue.begin(claim.run.run_id, claim.token)
            change = RunChange(status=S.COMPLETED)
            await self.store.change_run(claim.run.run_id, change, now=self.clock.now(), token=claim.token)
        for run_id, run in self.runs.items():
            stored = await self.store.get_run(run_id)
            assert stored is not None
            assert stored.status is (S.FAILED if run.failures >= MAX_ATTEMPTS else S.COMPLETED)
            assert len(stored.metadata.get("graphrt.attempts", [])) == run.failures


ALWAYS = ["new", "claim", "claim", "wait", "recover"]
WITH_CLAIM = ["renew", "release", "fail", "begin", "complete", *ALWAYS]


@given(st.lists(st.tuples(st.sampled_from(WITH_CLAIM), st.integers(0, 15)), max_size=40))
@settings(max_examples=100)
def test_every_order_of_calls_agrees_with_the_rules(calls: list[tuple[str, int]]) -> None:
    """X-29, B-081, B-087."""

    async def play() -> None:
        ledger = Ledger()
        await ledger.new(0)
        for name, number in calls:
            if name in ALWAYS or ledger.claims:
                await getattr(ledger, name)(number)
                await ledger.check()
        await ledger.drain()

    anyio.run(play)


# --- workers at once ----------------------------------------------------------------------------------------


@dataclass
class Watch:
    """Who is at work on what, by the workers' own account."""

    inside: Counter[str] = field(default_factory=Counter)
    completed: Counter[str] = field(default_factory=Counter)
    tokens: set[str] = field(default_factory=set)

    @contextmanager
    def at_work(self, claim: Claim) -> Iterator[None]:
        assert claim.token not in self.tokens
        self.tokens.add(claim.token)
        self.inside[claim.run.run_id] += 1
        assert self.inside[claim.run.run_id] == 1
        try:
            yield
        finally:
            self.inside[claim.run.run_id] -= 1


ENDINGS = ["complete", "complete", "release", "fail", "die", "raise"]
DEEDS = st.lists(st.tuples(st.sampled_from(ENDINGS), st.integers(0, 200)), max_size=5)


async def do(
    deed: tuple[str, int], store: InMemoryRunLedgerStore, clock: LoopClock, claim: Claim, watch: Watch
) -> None:
    """Hold a claim for some time, and end it in some way; one that dies leaves it to its lease."""
    ending, tenths = deed
    queue = ExecutionQueue(store, clock=clock, max_attempts=None)
    run_id, token = claim.run.run_id, claim.token
    if ending == "die":
        with watch.at_work(claim):
            await anyio.sleep(min(tenths / 10, 14.9))  # what has died does nothing after its lease
        return
    async with held(store, claim, clock=clock, release_to=S.QUEUED):
        with watch.at_work(claim):
            await queue.begin(run_id, token)
            await anyio.sleep(tenths / 10)
        if ending == "complete":
            await store.change_run(run_id, RunChange(status=S.COMPLETED), now=clock.now(), token=token)
            watch.completed[run_id] += 1
        elif ending == "fail":
            assert await queue.release(run_id, token, failed="no luck")
        elif ending == "raise":
            raise LookupError


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(workers=st.lists(DEEDS, min_size=1, max_size=4), runs=st.integers(1, 4))
@settings(max_examples=20)
def test_workers_at_once_never_share_a_run_and_finish_all(
    backend: str, workers: list[list[tuple[str, int]]], runs: int
) -> None:
    """X-29: the workers that misbehave, or die, are followed by one that does not."""

    async def play() -> None:
        clock, store, watch = LoopClock(), InMemoryRunLedgerStore(), Watch()
        for number in range(runs):
            await queued(store, f"run-{number}", clock.now())

        async def work(name: str, deeds: list[tuple[str, int]]) -> None:
            queue = ExecutionQueue(store, clock=clock, max_attempts=None)
            for deed in deeds:
                with anyio.move_on_after(25):
                    claim = await queue.claim_next(name)
                    with suppress(LookupError):
                        await do(deed, store, clock, claim, watch)

        async with anyio.create_task_group() as tasks:
            for number, deeds in enumerate(workers):
                tasks.start_soon(work, f"worker-{number}", deeds)
        await work("last", [("complete", 1)] * runs)
        assert watch.completed == Counter({f"run-{number}": 1 for number in range(runs)})

    run_in_fake_time(backend, play)
