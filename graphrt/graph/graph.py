"""`CompiledGraph`: the checked, immutable form of a workflow, and everything one can do with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from graphrt.errors import GraphError, GraphTypeError
from graphrt.graph import typecheck
from graphrt.graph.arguments import accept_parts, check_options
from graphrt.graph.core.records import Slots
from graphrt.graph.scheduler.result import RunResult, annotate
from graphrt.graph.scheduler.run import GraphScheduler
from graphrt.graph.scheduler.runner import Way, prepare

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from networkx import MultiDiGraph

    from graphrt.graph.compiled import Program
    from graphrt.graph.declared import GraphDecl
    from graphrt.graph.durable.events import EventCodec
    from graphrt.graph.durable.recorder import Durability
    from graphrt.graph.durable.work import Ledger
    from graphrt.graph.protocols import Question, RunEvent
    from graphrt.graph.scheduler.limits import BudgetTracker
    from graphrt.graph.scheduler.stream import RunStream
    from graphrt.ledger.store import RunLedgerStore
    from graphrt.policies import Budget
    from graphrt.telemetry import Telemetry


class CompiledGraph:
    """A checked graph. It never changes, and can run many times at once, in one event loop or in several threads."""

    __slots__ = ("_asks", "_codec", "program")

    def __init__(self, program: Program) -> None:
        """Take a compiled program; use `Workflow.compile()` to get one."""
        prepare(program)
        self.program = program
        self._codec: EventCodec | None = None
        self._asks = tuple(n.name for n in _nodes(program) if n.run.way is Way.ASK)

    @property
    def name(self) -> str:
        """The workflow's name."""
        return self.program.name

    @property
    def fingerprint(self) -> str:
        """A hash of structure, node names, declared types and versions (E26)."""
        return self.program.fingerprint

    @property
    def asks(self) -> tuple[str, ...]:
        """Names of the nodes that ask a person, in this graph and in those inside it."""
        return self._asks

    def declared(self) -> GraphDecl:
        """Give what the graph was compiled from."""
        return self.program.decl

    def event_codec(self) -> EventCodec:
        """Give what writes and reads the events of a run that is stored."""
        if self._codec is None:
            from graphrt.graph.durable.events import EventCodec

            self._codec = EventCodec(self.program)
        return self._codec

    def compiled_graph(self) -> CompiledGraph:
        """Give the graph itself: it can be a node of another graph."""
        return self

    def __repr__(self) -> str:
        return f"CompiledGraph({self.name!r}, {len(self.program.nodes)} nodes)"

    # ------------------------------------------------------------ running

    async def run(
        self,
        input: Any = None,
        *,
        deps: Any = None,
        run_id: str | None = None,
        timeout: float | None = None,
        deadline_at: datetime | None = None,
        budget: Budget | BudgetTracker | None = None,
        max_concurrency: int | None = None,
        check: bool = True,
        on_event: Callable[[RunEvent], Any] | None = None,
        on_ask: Callable[[Question], Any] | None = None,
        telemetry: Telemetry | None = None,
        ledger: RunLedgerStore | Ledger | None = None,
        durability: Durability = "async",
    ) -> RunResult:
        """Run the graph to its end and give its result.

        Args:
            input: What START gives; checked against the declared input.
            deps: What nodes find as `ctx.deps`.
            run_id: A name for the run; made up when None.
            timeout: Seconds of work; waiting for a person, a slot or a rate limit is not counted.
            deadline_at: A time with a zone, after which the run is out of time whatever it does.
            budget: What the run's models and tools may use, in all.
            max_concurrency: Functions that run at once, in all.
            check: Raise the run's error; with False it is found in the result instead.
            on_event: Called with every event, on the event loop; must not block.
            on_ask: Gives the answer to each question of the graph's `Ask` nodes; a function, called on the event loop,
                or better an async function.
            telemetry: Where spans go; the global tracer provider when None.
            ledger: Where the run is stored as it goes on, so that `resume` can take it up again. A run of this id
                that is stored already is not run again: its result is waited for. When all that is left waits for a
                person, and there is no *on_ask*, or for a time that is more than `Ledger.stay_seconds` away, the call
                ends with the status `waiting`; a worker goes on with the run at its time, or `resume` does.
            durability: `"sync"`: the end of a step is stored before any step that depends on it starts; `"async"`:
                at most 50 ms later; `"exit"`: when the run ends.

        Raises:
            ConfigError: An argument is not of the kind it has to be.
            GraphTypeError: The input is not what the graph declares, or a declared type cannot be stored.
            RunControlError: The ledger refused, or cannot be reached; a run of this id has another input.
            LimitExceededError: `max_rounds` or `max_steps` stopped the run.
            TimeoutError: The run is out of time.
            RunCancelledError: The run was cancelled.
            Exception: A node's own error, bare, with notes that say where it came from.
        """
        check_options(
            self.name,
            run_id,
            timeout,
            deadline_at,
            budget,
            max_concurrency,
            on_event=on_event,
            on_ask=on_ask,
            telemetry=telemetry,
        )
        value = self._accept(input)
        if ledger is None:
            self._check_asks(on_ask)
        if on_event is not None:
            from graphrt.graph.scheduler.stream import guarded

            on_event = guarded(on_event)
        options: dict[str, Any] = {
            "deps": deps,
            "timeout": timeout,
            "deadline_at": deadline_at,
            "budget": budget,
            "max_concurrency": max_concurrency,
            "sink": on_event,
            "on_ask": on_ask,
            "telemetry": telemetry,
        }
        if ledger is not None:
            from graphrt.graph.durable.runs import result_of, run_durably
            from graphrt.graph.durable.work import Ledger

            where = Ledger.of(ledger, durability)
            stored = await run_durably(self, value, where, run_id or _new_id(), options)
            return result_of(stored, check=check)
        scheduler = self.make_scheduler(run_id=run_id or _new_id(), **options)
        await scheduler.run(value)
        outcome = scheduler.core.outcome
        assert outcome is not None
        error = outcome.error
        if error is not None:
            annotate(scheduler)
            if check or not isinstance(error, Exception):
                try:
                    raise error
                finally:
                    del error, outcome, scheduler
        return RunResult(scheduler)

    def stream(
        self,
        input: Any = None,
        *,
        deps: Any = None,
        run_id: str | None = None,
        timeout: float | None = None,
        deadline_at: datetime | None = None,
        budget: Budget | BudgetTracker | None = None,
        max_concurrency: int | None = None,
        check: bool = True,
        on_event: Callable[[RunEvent], Any] | None = None,
        on_ask: Callable[[Question], Any] | None = None,
        telemetry: Telemetry | None = None,
        events: bool = True,
        ledger: RunLedgerStore | Ledger | None = None,
        durability: Durability = "async",
    ) -> RunStream:
        """Run the graph while its events are read: `async with graph.stream(x) as run: async for event in run: ...`.

        The arguments are those of `run`; `on_ask` may be left out, and questions be answered by `run.answer()`.
        With `events=False` there is nothing to read, and models are not asked to stream: what is left is
        `questions`, `answer()`, `cancel()` and `wait()`.

        Raises:
            ConfigError: An argument is not of the kind it has to be.
            GraphTypeError: The input is not what the graph declares.
        """
        from graphrt.graph.scheduler.stream import RunStream, guarded

        check_options(
            self.name,
            run_id,
            timeout,
            deadline_at,
            budget,
            max_concurrency,
            on_event=on_event,
            on_ask=on_ask,
            telemetry=telemetry,
        )
        value = self._accept(input)

        options: dict[str, Any] = {
            "deps": deps,
            "timeout": timeout,
            "deadline_at": deadline_at,
            "budget": budget,
            "max_concurrency": max_concurrency,
            "on_ask": on_ask,
            "telemetry": telemetry,
        }
        run_id = run_id or _new_id()

        def begin(sink: Callable[[RunEvent], None] | None) -> Any:
            if ledger is None:
                return self.make_scheduler(run_id=run_id, sink=sink, **options)
            from graphrt.graph.durable.runs import start
            from graphrt.graph.durable.work import Ledger

            return start(self, value, Ledger.of(ledger, durability), run_id, {**options, "sink": sink})

        return RunStream(begin, value, check=check, on_event=guarded(on_event), events=events)

    def run_sync(self, input: Any = None, *, backend: str = "asyncio", **options: Any) -> RunResult:
        """Run the graph from code that is not async: a script, a notebook cell, a callback. Arguments as for `run`.

        The run has an event loop of its own, of *backend* ("asyncio" or "trio"), in a thread of its own, with the
        caller's context; the caller waits, and Ctrl-C cancels the run.
        """
        from graphrt.graph.scheduler.sync import run_sync

        return run_sync(lambda: self.run(input, **options), backend=backend)

    async def resume(
        self,
        run_id: str,
        *,
        ledger: RunLedgerStore | Ledger,
        deps: Any = None,
        answers: Any = None,
        on_change: Literal["refuse", "ignore"] = "refuse",
        timeout: float | None = None,
        budget: Budget | BudgetTracker | None = None,
        check: bool = True,
        on_event: Callable[[RunEvent], Any] | None = None,
        on_ask: Callable[[Question], Any] | None = None,
        telemetry: Telemetry | None = None,
        durability: Durability = "async",
    ) -> RunResult:
        """Take a stored run up again where it was left, and give its result: no step that has ended runs again.

        The run's `deadline_at` still holds: one that waits, or whose process is no more, is out of time when it has
        passed. A run that *ended* out of time gets past a deadline that has passed: from then on it has none.

        Args:
            run_id: The run: one that waits, that failed, was cancelled or out of time, or whose process is no more.
            ledger: Where it is stored.
            deps: What nodes find as `ctx.deps`.
            answers: Answers to its questions by their ids; a bare value if exactly one is open.
            on_change: `"ignore"` goes on though the graph has changed, as far as the stored events still fit it.
            timeout: Seconds of work, from now.
            budget: What models and tools may use, from now.
            check: Raise the run's error; with False it is found in the result instead.
            on_event: Called with every further event.
            on_ask: Answers further questions.
            telemetry: Where spans go.
            durability: As for `run`.

        Raises:
            RunControlError: There is no such run, it is completed, or somebody is at work on it.
            GraphChangedError: The graph is not the one it was started with; the message says what differs.
            GraphError: A bare value as answer, and not exactly one question open.
            GraphTypeError: An answer does not fit its question; nothing was changed.
            Exception: The run's own error.
        """
        from graphrt.graph.durable.runs import result_of, resume_run
        from graphrt.graph.durable.work import Ledger

        check_options(
            self.name, run_id, timeout, None, budget, None, on_event=on_event, on_ask=on_ask, telemetry=telemetry
        )
        if on_event is not None:
            from graphrt.graph.scheduler.stream import guarded

            on_event = guarded(on_event)
        options: dict[str, Any] = {
            "deps": deps,
            "timeout": timeout,
            "budget": budget,
            "sink": on_event,
            "on_ask": on_ask,
            "telemetry": telemetry,
        }
        stored = await resume_run(
            self, Ledger.of(ledger, durability), run_id, options, answers=answers, on_change=on_change
        )
        return result_of(stored, check=check)

    async def fork(self, run_id: str, at: int, *, ledger: RunLedgerStore | Ledger, new_id: str | None = None) -> str:
        """Store a new run that begins with the events of another up to number *at*, and give its id.

        `resume` goes on with it from there; the other run stays as it is.

        Raises:
            RunControlError: There is no such run or event, or a run *new_id* exists.
            GraphChangedError: It is a run of another graph.
        """
        from graphrt.graph.durable.runs import fork_run
        from graphrt.graph.durable.work import Ledger

        return await fork_run(self, Ledger.of(ledger, "async"), run_id, at, new_id or _new_id())

    def make_scheduler(
        self, *, run_id: str, telemetry: Telemetry | None = None, deadline_at: Any = None, **options: Any
    ) -> GraphScheduler:
        """Make what runs the graph once; `run`, `stream` and `resume` do."""
        return GraphScheduler(
            self.program,
            run_id=run_id,
            deadline_at=deadline_at,
            observer=_observer(telemetry, self.program, run_id),
            **options,
        )

    def run_limits(self, max_concurrency: int | None) -> tuple[Slots, ...]:
        """Give the limits that hold for a whole run."""
        limit = max_concurrency if max_concurrency is not None else self.program.decl.max_concurrency
        return () if limit is None else (Slots(limit),)

    def _accept(self, value: Any) -> Any:
        """Check a run's input, and turn a mapping into the declared model."""
        program = self.program
        declared = program.decl.input
        if isinstance(declared, dict):
            return accept_parts(program, declared, value)
        check = program.check_input
        if check is None or check(value):
            return value
        if isinstance(value, Mapping) and hasattr(declared, "model_validate"):
            try:
                return declared.model_validate(value)
            except ValueError as error:
                raise GraphTypeError(
                    f"input of graph {program.name!r} does not fit {declared.__name__}: {error}"
                ) from error
        raise GraphTypeError(
            f"graph {program.name!r} takes {typecheck.describe(declared)} and was given {type(value).__name__}",
            hint="give what it declares, or change Workflow(..., input=...)",
        )

    def _check_asks(self, on_ask: object) -> None:
        if self._asks and on_ask is None:
            raise GraphError(
                f"node {self._asks[0]!r} of graph {self.name!r} asks a person, and nobody can answer",
                hint="give run() an async on_ask=, or use stream() and run.answer()",
            )

    # ------------------------------------------------------------ looking

    @property
    def nx(self) -> MultiDiGraph[Any]:
        """A networkx copy of the graph, with `kind`, `label`, `timeout` and `retry` on its nodes."""
        from graphrt.graph.view.adapter import to_networkx

        return to_networkx(self.program)

    def to_svg(self, run: RunResult | None = None) -> str:
        """Draw the graph as SVG; with a run's result, with the states of its steps."""
        from graphrt.graph.view import to_svg
        from graphrt.graph.view.adapter import drawing_of

        return to_svg(drawing_of(self.program, run))

    def to_mermaid(self) -> str:
        """Draw the graph as a Mermaid flowchart, as GitHub shows it."""
        from graphrt.graph.view import to_mermaid
        from graphrt.graph.view.adapter import drawing_of

        return to_mermaid(drawing_of(self.program, None))

    def to_dot(self) -> str:
        """Draw the graph in Graphviz's language."""
        from graphrt.graph.view import to_dot
        from graphrt.graph.view.adapter import drawing_of

        return to_dot(drawing_of(self.program, None))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from graphrt.graph.view import mimebundle
        from graphrt.graph.view.adapter import drawing_of

        return mimebundle(drawing_of(self.program, None))


def _new_id() -> str:
    return f"run-{os.urandom(8).hex()}"


def _nodes(program: Program) -> list[Any]:
    found: list[Any] = []
    program.walk(lambda part: found.extend(part.nodes))
    return found


def _observer(telemetry: Telemetry | None, program: Program, run_id: str) -> Any:
    """Give what makes spans, or None when nobody looks: nothing is imported or called for it then."""
    import sys

    if telemetry is None and "opentelemetry.trace" not in sys.modules:
        return None
    from graphrt.telemetry import observer_for

    return observer_for(telemetry, program, run_id)
