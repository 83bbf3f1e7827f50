"""Slots of a run and of the maps around a step: who takes them, who waits, who is next (E21)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import anyio

from graphrt.graph.states import NodeState

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphrt.graph.core.records import Slots, Step

_PENDING = NodeState.PENDING


class SlotWaiter:
    """A step at work that has given its slots back for a pause and wants them again."""

    __slots__ = ("event", "gone", "limits")

    def __init__(self, limits: tuple[Slots, ...]) -> None:
        self.limits = limits
        self.event = anyio.Event()
        self.gone = False


class SlotDesk:
    """Hands out the slots of one run. A step that finds none leaves its worker free and is queued."""

    def __init__(self, ready: deque[Step], suspended: Callable[[], None]) -> None:
        self._ready = ready
        self._suspended = suspended
        self.queued: set[Step] = set()
        """Steps that have not started and wait for a slot."""
        self.on_change: Callable[[], None] | None = None
        """Called when a step is queued or let go on: the clocks around it stop, or start again."""

    def take(self, limits: tuple[Slots, ...], entry: Step | SlotWaiter) -> bool:
        """Take one slot of each of *limits*, or queue *entry* at the first that has none."""
        for slots in limits:
            if slots.used >= slots.capacity:
                if slots.queue is None:
                    slots.queue = deque()
                if isinstance(entry, SlotWaiter):
                    slots.queue.appendleft(entry)  # it is at work already: it goes before what has not started
                else:
                    slots.queue.append(entry)
                    self.queued.add(entry)
                    self._changed()
                self.pass_on(limits)
                return False
        full = False
        for slots in limits:
            slots.used += 1
            full = full or slots.used >= slots.capacity
        if full:
            self._changed()
        return True

    def take_now(self, limits: tuple[Slots, ...]) -> bool:
        """Take one slot of each of *limits* if all have one; queue nobody."""
        if any(slots.used >= slots.capacity for slots in limits):
            return False
        for slots in limits:
            slots.used += 1
        return True

    def give(self, limits: tuple[Slots, ...]) -> None:
        """Give one slot of each of *limits* back, and let whoever waits for one go on."""
        for slots in limits:
            slots.used -= 1
        self.pass_on(limits)

    def pass_on(self, limits: tuple[Slots, ...]) -> None:
        """Let those who wait for a slot that is free go on."""
        for slots in limits:
            while slots.queue and slots.used < slots.capacity:
                entry = slots.queue.popleft()
                if isinstance(entry, SlotWaiter):
                    if not entry.gone and self.take(entry.limits, entry):
                        entry.event.set()
                    continue
                self.queued.discard(entry)
                if entry.state is _PENDING:
                    self._ready.append(entry)
                    self._changed()
                    break

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    async def wait(self, limits: tuple[Slots, ...]) -> None:
        """Take one slot of each of *limits* for a step that is at work already."""
        waiter = SlotWaiter(limits)
        if self.take(limits, waiter):
            return
        self._suspended()
        try:
            await waiter.event.wait()
        except BaseException:  # cancelled: leave the queue, or give back what has just been granted
            waiter.gone = True
            if waiter.event.is_set():
                self.give(limits)
            raise
