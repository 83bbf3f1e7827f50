"""Checking what a run is given: options of the kind they have to be, and an input that fits."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphrt.errors import ConfigError, GraphTypeError
from graphrt.graph import typecheck
from graphrt.graph.checks import check_concurrency, is_seconds

if TYPE_CHECKING:
    from graphrt.graph.compiled import Program


def check_options(
    graph: str,
    run_id: object,
    timeout: object,
    deadline_at: object,
    budget: object,
    max_concurrency: object,
    **others: object,
) -> None:
    """Refuse arguments of a run that are not of the kind they have to be."""
    of = f"of the run of graph {graph!r}"
    if run_id is not None and not isinstance(run_id, str):
        raise ConfigError(f"run_id {of} is {run_id!r}, which is no text", hint="give a text, or None")
    if timeout is not None and not is_seconds(timeout):
        raise ConfigError(f"timeout {of} is {timeout!r}, which is no number of seconds", hint="give seconds, or None")
    if deadline_at is not None:
        _check_deadline(deadline_at)
    if budget is not None:
        _check_budget(budget, of)
    if max_concurrency is not None:
        check_concurrency(max_concurrency, f"the run of graph {graph!r}")
    for name in ("on_event", "on_ask"):
        if others[name] is not None and not callable(others[name]):
            raise ConfigError(
                f"{name} {of} is {others[name]!r}, which cannot be called", hint="give a function, or None"
            )
    if inspect.iscoroutinefunction(others["on_event"]):
        raise ConfigError(
            f"on_event {of} is async, and would never be awaited",
            hint="give a plain function, or read the events of graph.stream()",
        )
    telemetry = others["telemetry"]
    if telemetry is not None and not callable(getattr(telemetry, "observer", None)):
        raise ConfigError(
            f"telemetry {of} is {telemetry!r}, which is no Telemetry", hint="give Telemetry(...), or None"
        )


def accept_parts(program: Program, declared: Mapping[str, Any], value: Any) -> dict[str, Any]:
    """Check an input that consists of named parts.

    Raises:
        GraphTypeError: A part is missing, is not declared, or is not of its declared type.
    """
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
