"""How runs of a ledger are printed: for people as lines, for programs as JSON."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from graphrt.ledger.records import AgentRun

SHOWN: Final = 200
"""Characters of a value that a line shows."""
_MINUTE: Final = 60
_HOUR: Final = 3600


def clean(text: str) -> str:
    """Put a text into one line, without what could steer a terminal."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def shortened(text: str, most: int = SHOWN) -> str:
    """Cut a text that is too long for a line."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def value_text(value: Any) -> str:
    """Show a value in a line: a text as it is, anything else as JSON."""
    return shortened(clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)))


def print_json(value: Any, *, lines: bool = False) -> None:
    """Print a value as JSON; with *lines* in one line, at once."""
    text = json.dumps(value, ensure_ascii=False, indent=None if lines else 2, default=str)
    print(text.encode(errors="backslashreplace").decode(), flush=lines)


def print_line(text: str) -> None:
    """Print one line at once: whoever follows a run sees it."""
    print(clean_keeping_spaces(text), flush=True)


def clean_keeping_spaces(text: str) -> str:
    """Take out of a line what could steer a terminal; columns stay where they are."""
    return "".join(each if each.isprintable() else " " for each in text)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Put rows under one another; on a terminal the last column ends with the line."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if not sys.stdout.isatty():
        return lines
    width = os.get_terminal_size(sys.stdout.fileno()).columns
    return [shortened(line, width) for line in lines]


def time_text(moment: datetime | None) -> str:
    """Show a time, in UTC and to the second."""
    return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def length_text(seconds: float | None) -> str:
    """Show how long something took."""
    if seconds is None:
        return ""
    if seconds < _MINUTE:
        return f"{max(seconds, 0.0):.2f} s"
    if seconds < _HOUR:
        return f"{int(seconds // _MINUTE)} min {int(seconds % _MINUTE)} s"
    return f"{int(seconds // _HOUR)} h {int(seconds % _HOUR // _MINUTE)} min"


def graph_name(run: AgentRun) -> str:
    """Give the name of a run's graph, or of whoever runs it."""
    return str(run.metadata.get("graph") or run.runner_id)


def run_object(run: AgentRun) -> dict[str, Any]:
    """Give what the ledger says of a run, as JSON."""
    usage = run.usage
    return {
        "run_id": run.run_id,
        "status": run.status.value,
        "status_reason": run.status_reason,
        "graph": run.metadata.get("graph"),
        "target": run.metadata.get("target"),
        "graph_fingerprint": run.graph_fingerprint,
        "runner_id": run.runner_id,
        "agent_id": run.agent_id,
        "conversation_id": run.conversation_id,
        "priority": run.priority,
        "attempt": run.attempt,
        "created_at": _iso(run.created_at),
        "updated_at": _iso(run.updated_at),
        "started_at": _iso(run.started_at),
        "finished_at": _iso(run.finished_at),
        "wake_at": _iso(run.wake_at),
        "deadline_at": _iso(run.deadline_at),
        "cancel_requested_at": _iso(run.cancel_requested_at),
        "cancel_reason": run.cancel_reason,
        "claimed_by": run.claimed_by,
        "lease_until": _iso(run.lease_until),
        "usage": None if usage is None else usage.model_dump(mode="json"),
        "forked_from": run.metadata.get("forked_from"),
    }


def answer_command(run_id: str, question_id: str, ledger: str) -> str:
    """Give the command that answers a question."""
    return f"graphrt runs resume{ledger} {quote(clean(run_id))} --answer {quote(f'{clean(question_id)}=JSON')}"


def step_name(step: Mapping[str, Any]) -> str:
    """Name a step: the scopes around it, its node, its round after the first."""
    name = "/".join(filter(None, [str(step.get("scope") or ""), str(step.get("node"))]))
    number = step.get("round", 1)
    return name if number == 1 else f"{name} (round {number})"


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()
