"""`graphrt runs events`."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

import anyio

from graphrt.cli import SUCCEEDED
from graphrt.cli.ledger import ledger_place, opened_ledger
from graphrt.cli.printing import clean, print_json, print_line, step_name, value_text
from graphrt.graph.durable.queued import known_run

if TYPE_CHECKING:
    import argparse

    from graphrt.ledger.records import AgentRunEvent
    from graphrt.ledger.store import RunLedgerStore

PAGE: Final = 500
FOLLOW_SECONDS: Final = 0.25
"""Time from one look for new events to the next."""


def print_events(options: argparse.Namespace) -> int:
    """Print a run's events; with `--follow` those to come as well, until the run ends."""

    async def main() -> None:
        async with opened_ledger(ledger_place(options), create=False) as store:
            await _print_all(store, options.run_id, follow=options.follow, as_json=options.json)

    anyio.run(main)
    return SUCCEEDED


async def _print_all(store: RunLedgerStore, run_id: str, *, follow: bool, as_json: bool) -> None:
    cursor = None
    while True:
        # How the run stands is read first: a run that is over then has no event that the pages below leave out.
        over = (await known_run(store, run_id)).is_terminal
        while True:
            page = await store.page_events(run_id, cursor=cursor, limit=PAGE)
            for event in page.items:
                if as_json:
                    print_json(_event_object(event), lines=True)
                else:
                    print_line(_event_line(event))
            cursor = page.next_cursor
            if not page.has_more:
                break
        if over or not follow:
            return
        await anyio.sleep(FOLLOW_SECONDS)


def _event_object(event: AgentRunEvent) -> dict[str, Any]:
    return {
        "run_id": event.run_id,
        "sequence": event.sequence,
        "type": event.type,
        "created_at": event.created_at.astimezone(UTC).isoformat(),
        "source": event.source,
        "data": dict(event.data),
        "artifact_refs": list(event.artifact_refs),
    }


def _event_line(event: AgentRunEvent) -> str:
    step = event.data.get("step")
    parts = [f"{event.sequence:>4}", event.created_at.astimezone(UTC).strftime("%H:%M:%S.%f")[:-3], clean(event.type)]
    data = dict(event.data)
    if isinstance(step, dict):
        del data["step"]
        parts.append(clean(step_name(step)))
    if data:
        parts.append(value_text(data))
    return " ".join(parts)
