"""`CompiledGraph`: the checked, immutable form of a workflow, and everything one can do with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphrt.errors import ConfigError, GraphError, GraphTypeError
from graphrt.graph import typecheck
from graphrt.graph.checks import check_concurrency, is_seconds
from graphrt.graph.scheduler.result import RunResult, annotate
from graphrt.graph.scheduler.run import GraphScheduler
from graphrt.graph.scheduler.runner import Way, prepare

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from networkx import MultiDiGraph

    from graphrt.graph.compiled import Program
    from graphrt.graph.declared import GraphDecl
    from graphrt.graph.protocols import Question, RunEvent
    from graphrt.graph.scheduler.limits import BudgetTracker
    from graphrt.graph.scheduler.stream import RunStream
    from graphrt.policies import Budget
    from graphrt.telemetry import Telemetry


class CompiledGraph:
    """A checked graph. It never changes, and can run many times at once, in one event loop or in several threads."""

    __slots__ = ("_asks", "program")

    def __init__(self, program: Program) -> None:
        """Take a compiled program; use `Workflow.compile()` to get one."""
        prepare(program)
        self.program = program
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
        on_ask: Callable[[Question], Awaitable[Any]] | None = None,
        telemetry: Telemetry | None = None,
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
            on_ask: Answers the questions of the graph's `Ask` nodes.
            telemetry: Where spans go; the global tracer provider when None.

        Raises:
            ConfigError: An argument is not of the kind it has to be.
            GraphTypeError: The input is not what the graph declares.
            LimitExceededError: `max_rounds` or `max_steps` stopped the run.
            TimeoutError: The run is out of time.
            RunCancelledError: The run was cancelled.
            Exception: A node's own error, bare, with notes that say where it came from.
        """
        self._check_options(
            run_id, timeout, deadline_at, budget, max_concurrency, on_event=on_event, on_ask=on_ask, telemetry=telemetry
        )
        value = self._accept(input)
        self._check_asks(on_ask)
        if on_event is not None:
            from graphrt.graph.scheduler.stream import guarded

            on_event = guarded(on_event)
        scheduler = self._scheduler(
            deps=deps,
            run_id=run_id,
            timeout=timeout,
            deadline_at=deadline_at,
            budget=budget,
            max_concurrency=max_concurrency,
            sink=on_event,
            on_ask=on_ask,
            telemetry=telemetry,
        )
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
        on_ask: Callable[[Question], Awaitable[Any]] | None = None,
        telemetry: Telemetry | None = None,
        events: bool = True,
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

        self._check_options(
            run_id, timeout, deadline_at, budget, max_concurrency, on_event=on_event, on_ask=on_ask, telemetry=telemetry
        )
        value = self._accept(input)

        def begin(sink: Callable[[RunEvent], None] | None) -> GraphScheduler:
            return self._scheduler(
                deps=deps,
                run_id=run_id,
                timeout=timeout,
                deadline_at=deadline_at,
                budget=budget,
                max_concurrency=max_concurrency,
                sink=sink,
                on_ask=on_ask,
                telemetry=telemetry,
            )

        return RunStream(begin, value, check=check, on_event=guarded(on_event), events=events)

    def run_sync(self, input: Any = None, *, backend: str = "asyncio", **options: Any) -> RunResult:
        """Run the graph from code that is not async: a script, a notebook cell, a callback. Arguments as for `run`.

        The run has an event loop of its own, of *backend* ("asyncio" or "trio"), in a thread of its own, with the
        caller's context; the caller waits, and Ctrl-C cancels the run.
        """
        from graphrt.graph.scheduler.sync import run_sync

        return run_sync(lambda: self.run(input, **options), backend=backend)

    def _scheduler(
        self, *, run_id: str | None, telemetry: Telemetry | None, deadline_at: Any, **options: Any
    ) -> GraphScheduler:
        run_id = run_id or f"run-{os.urandom(8).hex()}"
        return GraphScheduler(
            self.program,
            run_id=run_id,
            deadline_at=deadline_at,
            observer=_observer(telemetry, self.program, run_id),
            **options,
        )

    def _check_options(
        self,
        run_id: object,
        timeout: object,
        deadline_at: object,
        budget: object,
        max_concurrency: object,
        **others: object,
    ) -> None:
        """Refuse arguments of a run that are not of the kind they have to be."""
        of = f"of the run of graph {self.name!r}"
        if run_id is not None and not isinstance(run_id, str):
            raise ConfigError(f"run_id {of} is {run_id!r}, which is no text", hint="give a text, or None")
        if timeout is not None and not is_seconds(timeout):
            raise ConfigError(
                f"timeout {of} is {timeout!r}, which is no number of seconds", hint="give seconds, or None"
            )
        if deadline_at is not None:
            _check_deadline(deadline_at)
        if budget is not None:
            _check_budget(budget, of)
        if max_concurrency is not None:
            check_concurrency(max_concurrency, f"the run of graph {self.name!r}")
        for name in ("on_event", "on_ask"):
            if others[name] is not None and not callable(others[name]):
                raise ConfigError(
                    f"{name} {of} is {others[name]!r}, which cannot be called", hint="give a function, or None"
                )
        telemetry = others["telemetry"]
        if telemetry is not None and not callable(getattr(telemetry, "observer", None)):
            raise ConfigError(
                f"telemetry {of} is {telemetry!r}, which is no Telemetry", hint="give Telemetry(...), or None"
            )

    def _accept(self, value: Any) -> Any:
        """Check a run's input, and turn a mapping into the declared model."""
        program = self.program
        declared = program.decl.input
        if isinstance(declared, dict):
            return _accept_parts(program, declared, value)
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


def _nodes(program: Program) -> list[Any]:
    found: list[Any] = []
    program.walk(lambda part: found.extend(part.nodes))
    return found


def _check_deadline(deadline_at: object) -> None:
    from datetime import datetime

    if not isinstance(deadline_at, datetime):
        what = "which is no datetime"
    elif deadline_at.utcoffset() is None:
        what = "a time without a zone"
    else:
        return
    raise ConfigError(
        f"deadline_at is {deadline_at!r}, {what}",
        hint="give one with a zone, such as datetime.now(UTC) + timedelta(minutes=5)",
    )


def _check_budget(budget: object, of: str) -> None:
    from graphrt.graph.scheduler.limits import BudgetTracker
    from graphrt.policies import Budget

    if not isinstance(budget, (Budget, BudgetTracker)):
        raise ConfigError(
            f"budget {of} is {budget!r}, which is no Budget", hint="give one, such as Budget(requests=10), or None"
        )


def _accept_parts(program: Program, declared: Mapping[str, Any], value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise GraphTypeError(
            f"graph {program.name!r} takes {', '.join(declared)} by name and was given {type(value).__name__}",
            hint=f"give a dict: {{{', '.join(f'{name!r}: ...' for name in declared)}}}",
        )
    missing = [name for name in declared if name not in value]
    unknown = [str(name) for name in value if name not in declared]
    if missing or unknown:
        lacks = f"lacks {', '.join(missing)}" if missing else ""
        has = f"has {', '.join(unknown)} too many" if unknown else ""
        raise GraphTypeError(
            f"input of graph {program.name!r} {' and '.join(p for p in (lacks, has) if p)}",
            hint=f"it takes {', '.join(declared)}",
        )
    for name, part in declared.items():
        check = typecheck.checker(part)
        if check is not None and not check(value[name]):
            raise GraphTypeError(
                f"input {name!r} of graph {program.name!r} is declared {typecheck.describe(part)} and was given "
                f"{type(value[name]).__name__}",
                hint="give what it declares, or change Workflow(..., input=...)",
            )
    return dict(value)


def _observer(telemetry: Telemetry | None, program: Program, run_id: str) -> Any:
    """Give what makes spans, or None when nobody looks: nothing is imported or called for it then."""
    import sys

    if telemetry is None and "opentelemetry.trace" not in sys.modules:
        return None
    from graphrt.telemetry import observer_for

    return observer_for(telemetry, program, run_id)
