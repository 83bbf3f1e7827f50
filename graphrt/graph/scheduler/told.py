"""What a run is told by its nodes, from any thread, and what is asked of it by those who watch it."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from graphrt.graph.core.run import RunCore
from graphrt.graph.states import LIVE_STATES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping

    from anyio.lowlevel import EventLoopToken

    from graphrt.graph.compiled import Program
    from graphrt.graph.core.records import Scope, Step
    from graphrt.graph.protocols import RunEvent


class Durable(Protocol):
    """What stores a run as it goes on."""

    def check(self, step: Step, value: Any) -> Exception | None:
        """Give why a step's value cannot be stored; called before the step has ended."""
        ...

    def check_item(self, step: Step, value: Any) -> Exception | None:
        """Give why an item of an iterator cannot be stored; called before its scope opens."""
        ...

    def check_answer(self, question_id: str, value: Any) -> Exception | None:
        """Give why an answer cannot be kept for a question that is not open; called before it is kept."""
        ...

    def load(self, event: RunEvent, step: Step) -> Any:
        """Give the value with which a stored event says that a step has ended."""
        ...

    def record(self, event: RunEvent, step: Step | None) -> None:
        """Take an event down; called for each numbered event, in order."""
        ...

    def gate(self) -> Awaitable[None] | None:
        """Give what a step has to wait for before it starts."""
        ...


def _nobody(event: RunEvent) -> None:
    """Stand for a reader where there is none: the core makes events only where they are read."""


class ToldRun(ABC):
    """The listening half of a scheduler: events, text and usage of nodes; cancellations."""

    def __init__(
        self,
        program: Program,
        run_id: str,
        sink: Callable[[RunEvent], None] | None,
        observer: Any,
        durable: Durable | None = None,
        core: RunCore | None = None,
    ) -> None:
        self.program = program
        self.run_id = run_id
        self.observer = observer
        self.durable = durable
        """Stores what happens; None for a run that leaves nothing."""
        self.gate: Callable[[], Awaitable[None] | None] | None = None
        """Asked before a step starts; what it gives is awaited: the reader of the stream is behind."""
        self.watched = sink is not None
        """Whether somebody reads the events."""
        self.restored = core is not None
        """Whether the run goes on where stored events end."""
        if sink is None and durable is not None:
            sink = _nobody
        self.core = core or RunCore(program, run_id, sink=sink, observer=observer)
        if durable is not None:
            self.core.recorder = durable.record
            self.core.sink = sink
        if core is not None:
            core.observer = observer
        self.token: EventLoopToken | None = None
        self.stopping = False
        self.graceful = False
        """No step starts any more; the run is cancelled when those at work have ended."""
        self._thread = threading.get_ident()
        self._usage: Any = None
        self._shared: dict[tuple[Scope, Hashable], Any] = {}
        """What the steps of a graph's scope share, by the key they chose."""
        self._begun = False
        self._asked_before: list[Callable[[], None]] = []
        """What was asked of the run before it began."""

    @abstractmethod
    def settle(self) -> None:
        """Carry out what the core has left to do; the scheduler's affair."""

    def held_back(self) -> Awaitable[None] | None:
        """Give what has to be awaited before a step starts: the reader of the stream, or that an end is stored."""
        if self.gate is not None and (wait := self.gate()) is not None:
            return wait
        return None if self.durable is None else self.durable.gate()

    @property
    def usage(self) -> Any:
        """Tokens that the run's models reported; None when none did."""
        return self._usage

    def add_usage(self, usage: Any) -> None:
        """Add what one model call used; `None` is unknown and adds nothing."""
        if usage is not None:
            self._usage = usage if self._usage is None else self._usage + usage

    def share(self, scope: Scope, key: Hashable, make: Callable[[], Any]) -> Any:
        """Give what the steps of a graph's scope share under *key*, made when it is first asked for."""
        place = (scope, key)
        if place not in self._shared:
            self._shared[place] = make()
        return self._shared[place]

    def emit(self, step: Step, kind: str, data: Mapping[str, Any]) -> None:
        """Record an event of a node's own; from any thread."""
        self._for_step(step, lambda: self.core.note(kind, step, data, time.time()))

    def send_text(self, step: Step, chunk: str) -> None:
        """Stream a piece of text; from any thread."""
        self._for_step(step, lambda: self.core.note_text(step, chunk, time.time()))

    def _for_step(self, step: Step, fn: Callable[[], None]) -> None:
        """Call *fn* on the event loop, unless the attempt that asks for it has ended until then."""
        attempt = step.attempt

        def call() -> None:
            if step.state in LIVE_STATES and step.attempt is attempt:
                fn()

        self.on_loop(call)

    def on_loop(self, fn: Callable[[], None]) -> None:
        """Call *fn* on the run's event loop: at once when there already, else as soon as it can."""
        assert self.token is not None
        if threading.get_ident() == self._thread:
            fn()
        else:
            from graphrt.threads import call_soon

            call_soon(self.token, fn)

    def cancel(self, error: BaseException | None = None, *, timed_out: bool = False) -> None:
        """Cancel everything that is live, now."""
        if not self._begun:
            self._asked_before.append(lambda: self.cancel(error, timed_out=timed_out))
            return
        self.stopping = True
        self.core.cancel(error, time.time(), timed_out=timed_out)
        self.settle()

    def cancel_after_steps(self) -> None:
        """Start no further step; the run is cancelled when those at work have ended."""
        if not self._begun:
            self._asked_before.append(self.cancel_after_steps)
            return
        self.graceful = True
        self.settle()

    def cancel_after_round(self) -> None:
        """Start no further round: the run is cancelled where the next one would start."""
        if not self._begun:
            self._asked_before.append(self.cancel_after_round)
            return
        self.core.cancel_after_round(time.time())

    def live_steps(self) -> list[Step]:
        """Give the steps that have not ended, those that hold a graph left out."""
        found: list[Step] = []
        scopes = [self.core.root]
        while scopes:
            scope = scopes.pop()
            for step in scope.live:
                if step.child is not None:
                    scopes.append(step.child)
                else:
                    found.append(step)
            for run in scope.maps or ():
                scopes.extend(run.children.values())
        return found
