"""What is said of a run that waits for a person, and how results are printed."""

from __future__ import annotations

import sys
from shlex import quote
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from pydantic_core import to_json

from graphrt.cli.printing import answer_command, clean, time_text, value_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


class Asked(Protocol):
    """An open question, of a run's result or of its stored events."""

    @property
    def id(self) -> str:
        """What an answer names."""
        ...

    @property
    def question(self) -> Any:
        """What is asked."""
        ...


def tell_waiting(run_id: str, questions: Sequence[Asked], ledger: str, wake_at: datetime | None = None) -> None:
    """Say on standard error what a run waits for: which questions are open and how to answer them, or for a time."""
    if wake_at is not None:
        command = f"graphrt runs resume{ledger} {quote(clean(run_id))}"
        print(f"run {clean(run_id)} waits until {time_text(wake_at)}; then: {command}", file=sys.stderr)
    if questions or wake_at is None:
        print(f"run {clean(run_id)} waits for an answer", file=sys.stderr)
    for step in questions:
        print(f"  {clean(step.id)}: {value_text(step.question)}", file=sys.stderr)
        print(f"    answer it: {answer_command(run_id, step.id, ledger)}", file=sys.stderr)


def print_result(value: Any, out: TextIO) -> None:
    """Print a run's output: a text as it is, anything else as JSON."""
    if isinstance(value, str):
        print(value, file=out)
    elif value is not None:
        print(to_json(value, indent=2, fallback=str).decode(), file=out)
