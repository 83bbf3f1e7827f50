"""`Schedule`: runs that are due again and again, each made once, however many workers look."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import anyio

from graphrt.clock import SystemClock
from graphrt.errors import ConfigError, RunControlError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from graphrt.clock import Clock

log = logging.getLogger("graphrt.schedule")

AGAIN_SECONDS: Final = 1.0
"""How soon to try again when the ledger could not be reached."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Times at regular intervals, and a run for each of them.

    A run's id is made of the schedule's name and the time that it is for, so that whoever makes it again finds it
    there: any number of processes may keep the same schedule, and each run is made once.
    """

    name: str
    every: timedelta
    """From one time to the next."""
    start: datetime = _EPOCH
    """The first time, aware; the others are counted from it."""
    missed: int = 1
    """Of the times that passed while nobody kept the schedule, how many of the last still get their run.

    Runs that are that old must not be pruned, or they are made again.
    """

    def __post_init__(self) -> None:
        """Refuse what gives no times.

        Raises:
            ConfigError: A field is out of range.
        """
        if not self.every > timedelta(0):
            raise ConfigError(f"schedule {self.name!r} is due every {self.every!r}", hint="give a time above 0")
        if self.start.utcoffset() is None:
            raise ConfigError(f"schedule {self.name!r} starts at a time without a zone", hint="give one with a zone")
        if self.missed < 1:
            raise ConfigError(f"schedule {self.name!r} has missed={self.missed!r}", hint="give 1 or more")

    def due(self, now: datetime) -> list[datetime]:
        """Give the last times that have come, at most `missed`, the oldest first."""
        passed = (now - self.start) // self.every
        return [self._time(number) for number in range(max(0, passed - self.missed + 1), passed + 1)]

    def next(self, now: datetime) -> datetime:
        """Give the first time after *now*."""
        return self._time(max(0, (now - self.start) // self.every + 1))

    def run_id(self, due: datetime) -> str:
        """Give the id of the run for a time: `name@` and the time in UTC."""
        return f"{self.name}@{due.astimezone(UTC).strftime('%Y-%m-%dT%H:%M:%S.%f')}Z"

    async def create_due(self, create: Callable[[str, datetime], Awaitable[Any]], now: datetime) -> list[str]:
        """Make the runs whose time has come, by *create*; give their ids, whether they were there before or not.

        Args:
            create: Puts a run of the id given into the queue, for the time given, and leaves one that is there as it
                is, as `graphrt.graph.durable.queued.enqueue` does.
            now: The time, aware.
        """
        made = []
        for due in self.due(now):
            made.append(run_id := self.run_id(due))
            await create(run_id, due)
        return made

    async def keep(self, create: Callable[[str, datetime], Awaitable[Any]], *, clock: Clock | None = None) -> None:
        """Make each run when its time has come, until cancelled; see `create_due`.

        A ledger that cannot be reached for a while is waited for; each failure is logged.
        """
        clock = SystemClock() if clock is None else clock
        while True:
            now = clock.now()
            try:
                await self.create_due(create, now)
                left = (self.next(now) - clock.now()).total_seconds()
            except RunControlError as error:
                if not error.retryable:
                    raise
                log.warning("schedule %r cannot make its runs, and tries again: %s", self.name, error)
                left = AGAIN_SECONDS
            await anyio.sleep(max(0.0, left))

    def _time(self, number: int) -> datetime:
        return (self.start + number * self.every).astimezone(UTC)
