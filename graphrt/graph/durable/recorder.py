"""Storing the events of a run while it goes on: grouped, in order, and held back when the store is slow (E25)."""

from __future__ import annotations

import hashlib
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import anyio

from graphrt.errors import RunControlError
from graphrt.graph.durable.events import is_holder, write_shown
from graphrt.graph.state import Update
from graphrt.ledger.records import Artifact, JsonText, NewEvent, RunChange
from graphrt.ledger.status import AgentRunStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from graphrt.graph.core.records import Step
    from graphrt.graph.durable.events import EventCodec
    from graphrt.graph.protocols import RunEvent
    from graphrt.ledger.store import RunLedgerStore

Durability: TypeAlias = Literal["sync", "async", "exit"]

GROUP_SECONDS: Final = 0.03
"""How long events are gathered before they are stored together, where nothing waits for that."""
MOST_WAITING: Final = 2000
"""Events that may wait to be stored; beyond it no step starts."""
INLINE_BYTES: Final = 64 * 1024
"""Larger data goes to an artifact, and the event keeps a reference."""
GIVE_UP_SECONDS: Final = 30.0
"""How long a store may be out of reach before the run is stopped."""
SOURCE: Final = "graph"
_ENDS: Final = frozenset({"step.completed", "step.failed", "step.timed_out", "step.skipped", "step.cancelled"})
"""What steps may depend on; so do the steps of an item on what an iterator has given."""


class Recorder:
    """Stores one run's events, under its claim."""

    def __init__(
        self, store: RunLedgerStore, run_id: str, codec: EventCodec, durability: Durability, *, token: str | None
    ) -> None:
        """Take where to store them, and the claim's token."""
        self.store = store
        self.run_id = run_id
        self.codec = codec
        self.durability = durability
        self.token = token
        self.error: Exception | None = None
        """Why storing was given up."""
        self.on_error: Callable[[Exception], None] | None = None
        """Called then: the run must not go on unrecorded."""
        self._waiting: list[NewEvent] = []
        self._checked: tuple[Any, str] | None = None
        """A value that was written for the event to come, and whose it is."""
        self._ended = 0
        """Number of the last event on which a step may depend."""
        self._stored = 0
        """Number of the last event that is stored."""
        self._running = False
        """Whether the run is marked as running."""
        self._in_doubt = False
        """Whether what waits may have been stored already."""
        self._more = anyio.Event()
        self._turn = anyio.Lock(fast_acquire=True)

    # ------------------------------------------------------------ what the scheduler tells

    def check(self, step: Step, value: Any) -> Exception | None:
        """Write a step's value, to be stored when it has ended; give why it cannot be, which is the step's failure."""
        if is_holder(step):
            return None
        try:
            self._checked = step, self.codec.dump_value(step, value)
        except Exception as error:  # noqa: BLE001 - a type's own serializers are user code
            return error
        return None

    def check_item(self, step: Step, value: Any) -> Exception | None:
        """Write an item of an iterator, to be stored when its scope has opened; give why it cannot be."""
        try:
            self._checked = step, self.codec.dump_item(step, value)
        except Exception as error:  # noqa: BLE001 - as above
            return error
        return None

    def check_answer(self, question_id: str, value: Any) -> Exception | None:
        """Write an answer that comes before its question; give why it cannot be stored."""
        try:
            self._checked = question_id, self.codec.dump_answer(question_id, value)
        except Exception as error:  # noqa: BLE001 - as above
            return error
        return None

    def load(self, event: RunEvent, step: Step) -> Any:
        """Give the value with which a stored event says that a step has ended.

        Raises:
            GraphTypeError: The graph now declares another type.
        """
        data = self.codec.read(event, step)
        return Update(data["output"], **data["update"]) if "update" in data else data["output"]

    def record(self, event: RunEvent, step: Step | None) -> None:
        """Take an event down; it is stored soon, after those before it."""
        checked, self._checked = self._checked, None
        if self.error is not None:
            return
        kind = event.type
        value = None
        if kind in _ENDS:
            self._ended = event.sequence
            if kind == "step.completed":
                if checked is not None and checked[0] is step:
                    value = checked[1]
                elif not is_holder(step):  # a graph has given it, whose steps are stored; it is only shown
                    value = f'"output":{write_shown(event.data["output"])}'
        elif checked is not None and checked[0] == (step or event.data.get("question_id")):
            value = checked[1]
            self._ended = event.sequence
        text = JsonText(self.codec.write(event, step, value))
        made = datetime.fromtimestamp(event.time, UTC)
        self._waiting.append(NewEvent(kind, text, event.sequence, SOURCE, created_at=made))
        if self.durability != "exit" and not self._more.is_set():
            self._more.set()

    def gate(self) -> Awaitable[None] | None:
        """Give what a step has to wait for before it starts: with `"sync"` until what has ended is stored."""
        if self.error is not None or self.durability == "exit":
            return None
        if len(self._waiting) > MOST_WAITING or (self.durability == "sync" and self._ended > self._stored):
            return self.flush()
        return None

    # ------------------------------------------------------------ storing

    async def store_group(self) -> None:
        """Wait until there is something to store, gather what comes with it, and store that."""
        await self._more.wait()
        await anyio.sleep(GROUP_SECONDS)
        self._more = anyio.Event()
        await self.flush()

    async def begin(self) -> None:
        """Mark the run as running, where the first events would do it late."""
        if self.durability == "exit":
            await self._flush(RunChange(status=AgentRunStatus.RUNNING))

    async def end(self, change: RunChange) -> None:
        """Store what is left, and how the run stands now, in one transaction."""
        if not self._running:
            await self._flush(RunChange(status=AgentRunStatus.RUNNING))
        elif self._in_doubt:  # a change that comes with events which are all there is taken for done
            await self._flush(None)
        await self._flush(change)

    async def flush(self) -> None:
        """Store all that waits, in one transaction; a second caller waits for that.

        What goes wrong is kept as `error`: nothing is stored after it.
        """
        await self._flush(None)

    def give_up(self, error: Exception) -> None:
        """Store nothing any more, and say why; the run is stopped."""
        if self.error is None:
            self.error = error
            self._waiting.clear()
            if self.on_error is not None:
                self.on_error(error)

    async def _flush(self, change: RunChange | None) -> None:
        async with self._turn:
            if self.error is not None or (not self._waiting and change is None):
                return
            group, self._waiting = self._waiting, []
            if change is None and not self._running:
                change = RunChange(status=AgentRunStatus.RUNNING)
            try:
                await self._store(group, change)
            except Exception as error:  # noqa: BLE001 - whatever it is, the run must not go on unrecorded
                self.give_up(error)
                return
            except BaseException:  # cancelled: it may be stored or not, and is given once more
                self._waiting[:0] = group
                self._in_doubt = True
                raise
            self._running = True
            if group:
                self._stored = group[-1].sequence or 0

    async def _store(self, group: list[NewEvent], change: RunChange | None) -> None:
        pause, until = 0.05, time.monotonic() + GIVE_UP_SECONDS
        while self.error is None:
            try:
                events = await inlined(self.store, self.run_id, group)
                await self.store.append_events(
                    self.run_id, events, now=datetime.now(UTC), token=self.token, change=change
                )
                return
            except RunControlError as error:
                if not error.retryable or time.monotonic() > until:
                    raise
            await anyio.sleep(pause)
            pause = min(2 * pause, 2.0)


async def inlined(store: RunLedgerStore, run_id: str, events: list[NewEvent]) -> list[NewEvent]:
    """Move data that is too large to stand in an event into artifacts."""
    found = events
    for place, event in enumerate(events):
        text = event.data
        assert isinstance(text, JsonText)
        if 4 * len(text) > INLINE_BYTES and len(content := text.encode()) > INLINE_BYTES:
            if found is events:
                found = list(events)
            found[place] = await _moved(store, run_id, event, content)
    return found


async def _moved(store: RunLedgerStore, run_id: str, event: NewEvent, content: bytes) -> NewEvent:
    digest = hashlib.sha256(run_id.encode() + b"\0" + content).hexdigest()
    artifact = Artifact(
        id=digest,
        run_id=run_id,
        sequence=event.sequence,
        name=event.type,
        mime_type="application/json",
        size=len(content),
        created_at=event.created_at or datetime.now(UTC),
    )
    await store.put_artifact(artifact, content)
    stub = JsonText(f'{{{_step_of(str(event.data))}"artifact":"{digest}"}}')
    return NewEvent(event.type, stub, event.sequence, event.source, (digest,), created_at=event.created_at)


def _step_of(text: str) -> str:
    """Give the member of a written event that names its step, with a comma; it comes first if there is one."""
    start = '{"step":'
    if not text.startswith(start):
        return ""
    from json import JSONDecoder

    _, end = JSONDecoder().raw_decode(text, len(start))
    return text[1:end] + ","
