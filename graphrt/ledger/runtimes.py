"""`RuntimeRegistry`: places where runs may be executed, what they can, and whether they are there."""

from __future__ import annotations

import logging
import math
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import anyio

from graphrt.clock import SystemClock
from graphrt.errors import RunControlError
from graphrt.ledger.leases import RELEASE_SECONDS, Beside
from graphrt.ledger.records import RuntimeRecord

if TYPE_CHECKING:
    import builtins
    from collections.abc import AsyncIterator, Mapping
    from datetime import datetime

    from graphrt.clock import Clock
    from graphrt.ledger.store import RunLedgerStore

log = logging.getLogger("graphrt.runtimes")

HEARTBEAT_SECONDS: Final = 30.0
"""Silence after which a runtime counts as offline, unless it says otherwise."""
BEATS: Final = 3
"""Heartbeats that are sent within that time."""


class RuntimeStatus(StrEnum):
    """Whether a runtime has been heard of lately."""

    ONLINE = "online"
    OFFLINE = "offline"
    """Silent for longer than it promised; its next heartbeat brings it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeInfo(RuntimeRecord):
    """A runtime as it stood when it was asked for."""

    status: RuntimeStatus


class RuntimeRegistry:
    """Keeps the runtimes of a ledger. It starts nothing: runtimes report, and come for work themselves."""

    def __init__(self, store: RunLedgerStore, *, clock: Clock | None = None) -> None:
        self._store = store
        self._clock: Clock = SystemClock() if clock is None else clock

    async def register(
        self,
        runtime_id: str,
        capabilities: Mapping[str, Any],
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> RuntimeInfo:
        """Make a runtime known, or say anew what it can.

        Args:
            runtime_id: Its name.
            capabilities: What it can, as JSON; replaces what was said before.
            heartbeat_seconds: Silence after which it counts as offline.
            metadata: Anything else, as JSON; merged into what is there.

        Raises:
            RunControlError: `invalid_argument`.
        """
        if not runtime_id:
            raise RunControlError("invalid_argument", "a runtime has no name", hint="give a runtime_id")
        if not (math.isfinite(heartbeat_seconds) and heartbeat_seconds > 0):
            raise RunControlError(
                "invalid_argument",
                f"heartbeat_seconds of runtime {runtime_id!r} is {heartbeat_seconds!r}",
                hint="give seconds above 0",
            )
        now = self._clock.now()
        record = RuntimeRecord(
            runtime_id=runtime_id,
            capabilities=capabilities,
            registered_at=now,
            heartbeat_at=now,
            heartbeat_seconds=heartbeat_seconds,
            metadata=metadata or {},
        )
        return _info(await self._store.put_runtime(record), now)

    async def heartbeat(self, runtime_id: str, metadata: Mapping[str, Any] | None = None) -> RuntimeInfo:
        """Note that a runtime is there; *metadata* is merged into what is known of it.

        Raises:
            RunControlError: `not_found`: it is not registered, or not any more.
        """
        known = await self._record(runtime_id)
        if known is None:
            raise RunControlError(
                "not_found",
                f"there is no runtime {runtime_id!r}",
                details={"runtime_id": runtime_id},
                hint="register it first",
            )
        now = self._clock.now()
        record = RuntimeRecord(
            runtime_id=runtime_id,
            capabilities=known.capabilities,
            registered_at=known.registered_at,
            heartbeat_at=max(now, known.heartbeat_at),  # a late one does not make it older
            heartbeat_seconds=known.heartbeat_seconds,
            metadata=metadata or {},
        )
        return _info(await self._store.put_runtime(record), now)

    async def deregister(self, runtime_id: str) -> bool:
        """Forget a runtime; False when it was not known."""
        return await self._store.drop_runtime(runtime_id)

    async def get(self, runtime_id: str) -> RuntimeInfo | None:
        """Look a runtime up."""
        record = await self._record(runtime_id)
        return None if record is None else _info(record, self._clock.now())

    async def list(self, status: RuntimeStatus | str | None = None) -> builtins.list[RuntimeInfo]:
        """List runtimes by id; with *status* those that stand so now.

        Raises:
            RunControlError: `invalid_argument`: there is no such status.
        """
        wanted = None if status is None else _read_status(status)
        now = self._clock.now()
        found = [_info(record, now) for record in await self._store.list_runtimes()]
        return [info for info in found if wanted in (None, info.status)]

    @asynccontextmanager
    async def attending(
        self,
        runtime_id: str,
        capabilities: Mapping[str, Any],
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[None]:
        """Keep a runtime registered while what is inside goes on: it beats three times within its time.

        A heartbeat that the ledger refuses is logged, and tried again at the next beat; one that finds the runtime
        forgotten registers it again.
        """
        about = (capabilities, heartbeat_seconds)
        await self.register(runtime_id, *about, metadata=metadata)
        try:
            async with Beside(lambda _: self._beat(runtime_id, *about, metadata)):
                yield
        finally:
            with anyio.move_on_after(RELEASE_SECONDS, shield=True):
                await self._leave(runtime_id)

    async def wait_for_work(self, runtime_id: str, seconds: float) -> None:
        """Wait until a run may have become claimable, at most so long, and stay online meanwhile.

        Raises:
            RunControlError: `not_found`: the runtime is not registered.
        """
        until = anyio.current_time() + seconds
        while True:
            beat = (await self.heartbeat(runtime_id)).heartbeat_seconds / BEATS
            left = until - anyio.current_time()
            pause = min(left, beat)
            if pause <= 0:
                return
            began = anyio.current_time()
            await self._store.wait_for_work(pause)
            if anyio.current_time() - began < pause:
                return

    async def _beat(
        self,
        runtime_id: str,
        capabilities: Mapping[str, Any],
        heartbeat_seconds: float,
        metadata: Mapping[str, Any] | None,
    ) -> None:
        while True:
            await anyio.sleep(heartbeat_seconds / BEATS)
            try:
                try:
                    await self.heartbeat(runtime_id)
                except RunControlError as error:
                    if error.code != "not_found":
                        raise
                    await self.register(runtime_id, capabilities, heartbeat_seconds, metadata=metadata)
            except RunControlError as error:
                log.warning("heartbeat of runtime %r failed: %s", runtime_id, error)

    async def _leave(self, runtime_id: str) -> None:
        try:
            await self.deregister(runtime_id)
        except RunControlError as error:
            log.warning("runtime %r could not be deregistered, and goes offline: %s", runtime_id, error)

    async def _record(self, runtime_id: str) -> RuntimeRecord | None:
        records = await self._store.list_runtimes()
        return next((record for record in records if record.runtime_id == runtime_id), None)


def _info(record: RuntimeRecord, now: datetime) -> RuntimeInfo:
    silent = now - record.heartbeat_at > timedelta(seconds=record.heartbeat_seconds)
    known = {field.name: getattr(record, field.name) for field in fields(RuntimeRecord)}
    return RuntimeInfo(**known, status=RuntimeStatus.OFFLINE if silent else RuntimeStatus.ONLINE)


def _read_status(status: RuntimeStatus | str) -> RuntimeStatus:
    try:
        return RuntimeStatus(status)
    except ValueError as error:
        raise RunControlError(
            "invalid_argument", f"{status!r} is no status of a runtime", hint="give 'online' or 'offline'"
        ) from error
