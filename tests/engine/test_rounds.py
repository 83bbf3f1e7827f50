"""Rounds as a reader of the events sees them (E4 to E6)."""

from __future__ import annotations

import anyio
import pytest

from graphrt import END, START, RunEvent, Workflow

pytestmark = pytest.mark.anyio


def rounds_of(events: list[RunEvent]) -> list[tuple[str, int]]:
    """Give starts and ends of rounds in their order."""
    return [(e.type, e.data["round"]) for e in events if e.type.startswith("round.")]


async def test_a_round_is_complete_before_the_next_one_starts() -> None:
    loop = Workflow("loop")

    @loop.node
    async def work(n: int) -> int:
        return n + 1

    @loop.node
    async def check(n: int) -> int:
        return n

    loop.chain(START, work, check)
    loop.edge(check, work, when=lambda n: n < 3)
    loop.edge(check, END, when=lambda n: n >= 3)
    events: list[RunEvent] = []
    result = await loop.run(0, on_event=events.append)
    assert result.rounds == 3
    assert rounds_of(events) == [(f"round.{word}", n) for n in (1, 2, 3) for word in ("started", "completed")]


async def test_a_round_waits_for_its_side_node_and_the_next_round_does_not() -> None:
    loop = Workflow("loop")
    second = anyio.Event()

    @loop.node
    async def work(n: int) -> int:
        if n == 1:
            second.set()
        return n + 1

    @loop.node(side=True)
    async def note(n: int) -> None:
        if n == 1:
            await second.wait()

    loop.chain(START, work)
    loop.edge(work, note)
    loop.edge(work, work, when=lambda n: n < 2)
    loop.edge(work, END, when=lambda n: n >= 2)
    events: list[RunEvent] = []
    with anyio.fail_after(10):
        await loop.run(0, on_event=events.append)
    assert sorted(rounds_of(events)) == sorted(
        (f"round.{word}", n) for n in (1, 2) for word in ("started", "completed")
    )
    assert rounds_of(events)[:2] == [("round.started", 1), ("round.started", 2)]
