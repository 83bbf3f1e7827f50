"""`SharedLimit`: a number of slots that workers of many processes share, so that a crash never keeps one for ever.

A slot is a row with an owner and a lease. Its holder renews the lease; when the holder is gone, the lease ends.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.lowlevel

from graphrt.clock import SystemClock
from graphrt.errors import ConfigError, RunControlError
from graphrt.ledger.bell import WorkBell
from graphrt.ledger.leases import LEASE_SECONDS, RELEASE_SECONDS, RENEW_SECONDS, Beside, check_times
from graphrt.threads import call_soon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from anyio.lowlevel import EventLoopToken

    from graphrt.clock import Clock
    from graphrt.ledger.store import RunLedgerStore

log = logging.getLogger("graphrt.limits")


class AsyncSlot(Protocol):
    """A slot that has been taken."""

    async def keep(self) -> None:
        """Hold the slot until it is released, or this is cancelled; then give it back.

        Whoever has taken the slot starts this beside the work.
        """
        ...

    def release(self) -> None:
        """Let the slot go. Called once, when the work has ended, on the event loop where it was taken."""
        ...


class AsyncLimit(Protocol):
    """A limit whose slots are waited for and kept by asking something outside the process."""

    async def acquire(self, owner: str) -> AsyncSlot:
        """Take a slot for *owner*, waiting for it; called before the work starts."""
        ...


class SharedLimit:
    """A number of slots that are shared by all who name the same limit in the same ledger.

    Give it to a node as `max_concurrency=`. Within a process who comes first is served first; between processes
    whoever asks when a slot is free gets it. A holder that dies keeps its slot until its lease ends. Who cannot
    renew a lease in time, since the ledger is not to be reached, goes on with its work all the same.

    Args:
        store: The ledger.
        name: What is limited.
        slots: How many may be at work at once. Who gives another number goes by that one.
        clock: Tells the time; all processes must agree on it to within a fraction of a lease.
        lease_seconds: How long a slot stays taken that is not renewed.
        renew_seconds: Time from one renewal to the next.
        poll_seconds: How often whoever waits for a slot asks for one; a slot that this process frees is seen at once.
    """

    def __init__(
        self,
        store: RunLedgerStore,
        name: str,
        slots: int,
        *,
        clock: Clock | None = None,
        lease_seconds: float = LEASE_SECONDS,
        renew_seconds: float = RENEW_SECONDS,
        poll_seconds: float = 0.25,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"a shared limit is named {name!r}", hint="give a name")
        if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
            raise ConfigError(f"limit {name!r} has {slots!r} slots", hint="give a whole number of at least 1")
        check_times(lease_seconds, renew_seconds, poll_seconds=poll_seconds)
        self.name = name
        self.slots = slots
        self._store = store
        self._clock: Clock = SystemClock() if clock is None else clock
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._poll_seconds = poll_seconds
        self._line = _Line()
        self._freed = WorkBell()

    async def acquire(self, owner: str = "") -> SharedSlot:
        """Take a slot, waiting for it. Start the slot's `keep` beside the work, and `release` it at the end.

        Args:
            owner: Who it is for, as may be read in the ledger; each slot taken is one of its own all the same.

        Raises:
            RunControlError: The ledger cannot be reached; no slot is taken.
        """
        slot = SharedSlot(f"{owner}#{uuid.uuid4().hex}", self._keep)
        await self._line.enter()
        try:
            await self._take(slot)
        finally:
            self._line.leave()
        return slot

    @asynccontextmanager
    async def held(self, owner: str = "") -> AsyncIterator[SharedSlot]:
        """Hold a slot while what is inside goes on."""
        slot = await self.acquire(owner)
        async with Beside(lambda _: slot.keep()):
            yield slot

    def __repr__(self) -> str:
        return f"SharedLimit({self.name!r}, {self.slots})"

    async def _take(self, slot: SharedSlot) -> None:
        try:
            while True:
                rung = self._freed.rung
                if await self._lease(slot):
                    return
                self._freed.looked(rung)
                await self._freed.wait(self._poll_seconds)
        except BaseException:  # it may have been taken all the same
            await self._free(slot)
            raise

    async def _keep(self, slot: SharedSlot) -> None:
        lost = False
        try:
            while not slot.released.is_set():
                with anyio.move_on_after(self._renew_seconds):
                    await slot.released.wait()
                if not slot.released.is_set():
                    lost = not await self._renewed(slot, lost=lost)
        finally:
            await self._free(slot)

    async def _renewed(self, slot: SharedSlot, *, lost: bool) -> bool:
        try:
            held = await self._lease(slot)
        except RunControlError as error:
            log.warning("a slot of limit %r could not be renewed yet: %s", self.name, error)
            return not lost
        if not held and not lost:
            log.warning("a slot of limit %r ended before it was renewed, and another has it", self.name)
        return held

    async def _lease(self, slot: SharedSlot) -> bool:
        """Take or prolong a slot; False when all are taken."""
        now = self._clock.now()
        return await self._store.take_slot(self.name, self.slots, slot.owner, self._lease_seconds, now=now)

    async def _free(self, slot: SharedSlot) -> None:
        """Give a slot back, whatever is being cancelled; one that cannot be given back ends with its lease."""
        try:
            with anyio.fail_after(RELEASE_SECONDS, shield=True):
                await self._store.free_slot(self.name, slot.owner)
        except (RunControlError, TimeoutError) as error:
            log.warning("a slot of limit %r was not given back, and ends with its lease: %s", self.name, error)
        self._freed.ring()


class SharedSlot:
    """A slot of a shared limit that has been taken."""

    def __init__(self, owner: str, keep: Callable[[SharedSlot], Awaitable[None]]) -> None:
        self.owner = owner
        """Who holds it, as the ledger knows it."""
        self.released = anyio.Event()
        self._keep = keep

    async def keep(self) -> None:
        """Renew the lease until the slot is released, or this is cancelled; then give it back."""
        await self._keep(self)

    def release(self) -> None:
        """Let the slot go; `keep` gives it back."""
        self.released.set()


class _Line:
    """Lets one task at a time through, first come first served; the tasks may be of any event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy = False
        self._waiting: deque[tuple[EventLoopToken, anyio.Event]] = deque()

    async def enter(self) -> None:
        """Wait until all who came before have left."""
        with self._lock:
            if not self._busy:
                self._busy = True
                return
            place = (anyio.lowlevel.current_token(), anyio.Event())
            self._waiting.append(place)
        try:
            await place[1].wait()
        except BaseException:  # cancelled: out of the line, or on with it when its turn has just come
            with self._lock:
                waits = place in self._waiting
                if waits:
                    self._waiting.remove(place)
            if not waits:
                self.leave()
            raise

    def leave(self) -> None:
        """Let the next one in."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._busy = False
                    return
                token, event = self._waiting.popleft()
            if call_soon(token, event.set):
                return
