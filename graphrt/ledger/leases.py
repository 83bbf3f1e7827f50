"""`held`: a claim that is kept alive while work is done, given up when it is lost, and released at the end."""

from __future__ import annotations

import inspect
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self

import anyio

from graphrt.clock import SystemClock
from graphrt.errors import ConfigError, RunControlError
from graphrt.ledger.status import TERMINAL, AgentRunStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime
    from types import TracebackType

    from anyio.abc import TaskGroup

    from graphrt.clock import Clock
    from graphrt.ledger.records import AgentRun, Claim
    from graphrt.ledger.store import RunLedgerStore

log = logging.getLogger("graphrt.leases")

LEASE_SECONDS: Final = 15.0
RENEW_SECONDS: Final = 5.0
WATCH_SECONDS: Final = 1.0
RELEASE_SECONDS: Final = 5.0
"""What giving something back may take; then it is left to the end of its lease."""
_LAST_LOOK_SECONDS: Final = 1.0
"""What the last look at a claim may take whose lease has ended."""


class Beside:
    """Does something beside a block of code, and ends it with the block. What the block raises is not wrapped."""

    def __init__(self, work: Callable[[TaskGroup], Awaitable[object]]) -> None:
        self._work = work
        self._scope = anyio.CancelScope(shield=True)  # it goes on while a block that is cancelled cleans up
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None
        self._scope.cancel()
        if isinstance(error, anyio.get_cancelled_exc_class()):
            return await self._tasks.__aexit__(kind, error, traceback)
        await self._tasks.__aexit__(None, None, None)
        return None

    async def _run(self) -> None:
        with self._scope:
            async with anyio.create_task_group() as tasks:
                await self._work(tasks)


class Lease:
    """A claim that is being kept alive, as the work inside sees it."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.until: datetime = claim.lease_until
        """When it ends unless it is renewed."""
        self.lost = False
        """Whether somebody else may have the run: nothing more may be done for it."""
        self.cancel_requested = False
        self.cancel_reason: str | None = None

    @property
    def run_id(self) -> str:
        """The run that is held."""
        return self.claim.run.run_id

    @property
    def token(self) -> str:
        """What proves the claim; for changes and appends."""
        return self.claim.token


def held(
    store: RunLedgerStore,
    claim: Claim,
    lease_seconds: float = LEASE_SECONDS,
    renew_seconds: float = RENEW_SECONDS,
    *,
    watch_seconds: float = WATCH_SECONDS,
    clock: Clock | None = None,
    on_cancel: Callable[[str | None], object] | None = None,
    release_to: AgentRunStatus | None = None,
) -> AbstractAsyncContextManager[Lease]:
    """Keep *claim* alive while what is inside goes on, and release it at the end, in every ending.

    The work inside is cancelled once the claim is lost: its lease has ended, or another worker holds the run. Work
    that ends the run, or leaves it waiting, ends its claim with that, and is not disturbed.

    Args:
        store: Where the run is.
        claim: The claim.
        lease_seconds: How long each renewal makes it last.
        renew_seconds: Time from one renewal to the next. One that fails is tried again until the lease has ended.
        watch_seconds: Time from one look at the run to the next: a request to cancel, and the loss of the claim,
            are noticed within it.
        clock: Tells the time, as it told the one who claimed.
        on_cancel: Called once with the reason when the run is to be cancelled; may be asynchronous. It stops
            the work itself: nothing here does.
        release_to: What a run becomes that is neither over nor waiting at the end; by default it stays as it is, and
            goes back into the queue when it has not begun.

    Raises:
        RunControlError: `conflict`: the claim was lost. What the work raised, or what failed the renewal, is the cause.
        ConfigError: A time is not above 0, or the lease would end before it is renewed.
    """
    check_times(lease_seconds, renew_seconds, watch_seconds=watch_seconds)
    looking = (lease_seconds, renew_seconds, min(watch_seconds, renew_seconds))
    return _Held(store, claim, looking, SystemClock() if clock is None else clock, on_cancel, release_to)


def check_times(lease_seconds: float, renew_seconds: float, **others: float) -> None:
    """Refuse times of a lease with which it cannot be kept.

    Raises:
        ConfigError: A time is not above 0, or the lease would end before it is renewed.
    """
    for name, seconds in {"lease_seconds": lease_seconds, "renew_seconds": renew_seconds, **others}.items():
        if not 0 < seconds < float("inf"):
            raise ConfigError(f"{name} is {seconds!r}", hint="give seconds above 0")
    if renew_seconds >= lease_seconds:
        raise ConfigError(
            f"a lease of {lease_seconds:g} s that is renewed every {renew_seconds:g} s ends before",
            hint="renew it three times within its length",
        )


class _Held:
    """The work's own task, and the task beside it that looks after the claim."""

    def __init__(
        self,
        store: RunLedgerStore,
        claim: Claim,
        looking: tuple[float, float, float],
        clock: Clock,
        on_cancel: Callable[[str | None], object] | None,
        release_to: AgentRunStatus | None,
    ) -> None:
        self._store = store
        self._lease = Lease(claim)
        self._lease_seconds, self._renew_seconds, self._look_seconds = looking
        self._clock = clock
        self._on_cancel = on_cancel
        self._release_to = release_to
        self._beside = Beside(self._keep)
        self._work: anyio.CancelScope = anyio.CancelScope()
        self._over = False
        self._cause: Exception | None = None
        self._renew_at = 0.0

    async def __aenter__(self) -> Lease:
        # A lease that is already running out is renewed first, one that is new when its time comes.
        left = self._seconds_left()
        self._renew_at = anyio.current_time() + min(self._renew_seconds, left - self._lease_seconds / 2)
        await self._beside.__aenter__()
        self._work.__enter__()
        return self._lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        given_up = bool(self._work.__exit__(kind, error, traceback))
        try:
            ended = (None, None, None) if given_up else (kind, error, traceback)
            await self._beside.__aexit__(*ended)
        finally:
            if not (self._lease.lost or self._over):
                await self._release()
        if self._lease.lost and (error is None or given_up or isinstance(error, Exception)):
            raise RunControlError(
                "conflict",
                f"the claim on run {self._lease.run_id!r} is lost",
                details={"run_id": self._lease.run_id},
                hint="let the worker that holds it now go on, or claim the run again",
            ) from (error if isinstance(error, Exception) else self._cause)
        return False

    # ------------------------------------------------------------ beside the work

    async def _keep(self, tasks: TaskGroup) -> None:
        while await self._look(tasks):
            pause = min(self._look_seconds, self._renew_at - anyio.current_time(), self._seconds_left())
            await anyio.sleep(max(0.0, pause))

    async def _look(self, tasks: TaskGroup) -> bool:
        """See how the run stands, and renew the claim when it is time; whether there is more to look after."""
        try:
            with anyio.fail_after(max(self._seconds_left(), _LAST_LOOK_SECONDS)):
                run, mine = await self._ask()
        except (RunControlError, TimeoutError) as error:
            if self._seconds_left() <= 0:
                return self._lose(error)
            log.warning("the claim on run %r could not be looked after, and will be: %s", self._lease.run_id, error)
            self._renew_at = max(self._renew_at, anyio.current_time() + self._look_seconds)
            return True
        if run is None or self._has_ended(run):
            self._over = True  # with its claim
            return False
        if not mine:
            return self._lose(None)
        if run.cancel_requested_at is not None and not self._lease.cancel_requested:
            self._lease.cancel_requested, self._lease.cancel_reason = True, run.cancel_reason
            if self._on_cancel is not None:
                tasks.start_soon(self._tell)
        return True

    async def _ask(self) -> tuple[AgentRun | None, bool]:
        """Read the run, and renew the claim if it is time or another seems to have it; whether it is still held."""
        claim = self._lease.claim
        run = await self._store.get_run(self._lease.run_id)
        due = anyio.current_time() >= self._renew_at or self._seconds_left() <= 0
        seems = run is not None and (run.claimed_by, run.attempt) == (claim.run.claimed_by, claim.attempt)
        if (seems and not due) or await self._renew():
            return run, True
        return await self._store.get_run(self._lease.run_id), False

    async def _renew(self) -> bool:
        now = self._clock.now()
        if not await self._store.renew_claim(self._lease.run_id, self._lease.token, self._lease_seconds, now=now):
            return False
        self._lease.until = now + timedelta(seconds=self._lease_seconds)
        self._renew_at = anyio.current_time() + self._renew_seconds
        return True

    def _has_ended(self, run: AgentRun) -> bool:
        """Whether the work itself has ended its claim, with the run or by letting it wait."""
        if run.attempt != self._lease.claim.attempt or run.claimed_by is not None:
            return False
        if run.status is AgentRunStatus.FAILED and run.finished_at is not None:
            return run.finished_at < self._lease.until  # later, it is its worker that was given up
        return run.status in TERMINAL or run.status is AgentRunStatus.WAITING

    def _lose(self, cause: Exception | None) -> bool:
        self._lease.lost = True
        self._cause = cause
        log.warning("the claim on run %r is lost: its work is cancelled", self._lease.run_id)
        self._work.cancel()
        return False

    async def _tell(self) -> None:
        assert self._on_cancel is not None
        try:
            answer: Any = self._on_cancel(self._lease.cancel_reason)
            if inspect.isawaitable(answer):
                await answer
        except Exception:  # a callback's mistake is its own: the work goes on
            log.exception("what cancels run %r failed", self._lease.run_id)

    # ------------------------------------------------------------ at the end

    async def _release(self) -> None:
        lease = self._lease
        try:
            with anyio.fail_after(RELEASE_SECONDS, shield=True):
                now = self._clock.now()
                await self._store.release_claim(lease.run_id, lease.token, now=now, status=self._release_to)
        except (RunControlError, TimeoutError) as error:
            log.warning("the claim on run %r was not released, and ends with its lease: %s", lease.run_id, error)

    def _seconds_left(self) -> float:
        return (self._lease.until - self._clock.now()).total_seconds()
