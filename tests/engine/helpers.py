"""What the engine's tests share: fake time, small nodes, and ways to look at a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphrt import END, START, GraphTypeError, RunEvent, RunResult, Workflow
from graphrt.graph import NodeKind, NodeState, RunStream
from graphrt.graph.signature import NodeSignature, Param
from graphrt.testing import fake_time

GUARD = 10.0
"""Seconds after which a test hangs, and fails."""


# --- time --------------------------------------------------------------------------------------------------


FAKE_TIME = [
    pytest.param(fake_time("asyncio"), id="asyncio"),
    pytest.param(fake_time("trio"), id="trio"),
]
"""Parameters for a module's `anyio_backend` fixture. No thread may be at work in such a test: trio would not wait."""


# --- nodes -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asking:
    """A node that asks a person, by nothing but the engine's own protocols; takes answers of one type."""

    name: str
    answer: type = str
    kind: NodeKind = NodeKind.ASK

    @property
    def signature(self) -> NodeSignature:
        return NodeSignature((Param("draft"),), self.answer)

    async def run(self, inputs: Mapping[str, Any], ctx: Any) -> Any:
        raise AssertionError("the engine asks and does not call")

    def question_for(self, inputs: Mapping[str, Any]) -> str:
        return f"is {inputs['draft']!r} good?"

    def accept(self, answer: Any) -> Any:
        if not isinstance(answer, self.answer):
            raise GraphTypeError(f"{self.name!r} takes {self.answer.__name__}")
        return answer


class Gate:
    """Counts who is inside, and who was there at most."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.calls = 0

    async def __aenter__(self) -> None:
        self.inside += 1
        self.calls += 1
        self.most = max(self.most, self.inside)

    async def __aexit__(self, *_: object) -> None:
        self.inside -= 1


async def yield_often(times: int = 5) -> None:
    """Let every other task go on a few times."""
    for _ in range(times):
        await anyio.lowlevel.checkpoint()


def constant(value: Any) -> Any:
    """Make a node function that takes nothing and gives *value*."""

    async def give() -> Any:
        return value

    return give


def line(*functions: Any, **options: Any) -> Workflow:
    """Make a workflow of functions one after the other."""
    workflow = Workflow("line", **options)
    names = [workflow.add(fn) for fn in functions]
    workflow.chain(START, *names, END)
    return workflow


async def until(condition: Callable[[], object]) -> None:
    """Wait for what a thread does, which no event tells of."""
    while not condition():  # noqa: ASYNC110 - as said
        await anyio.sleep(0.001)


# --- looking at a run --------------------------------------------------------------------------------------


async def watch(run: RunStream, into: list[RunEvent]) -> None:
    """Run a stream, and read it to its end."""
    async with run:
        into.extend([event async for event in run])


def states(result: RunResult) -> dict[str, NodeState]:
    """The state of each node's last step."""
    return dict(result.node_states)


def ran(result: RunResult) -> list[str]:
    """Names of the nodes whose steps started, in order."""
    return [step.node for step in result.steps if step.started is not None]


def types(events: Iterable[RunEvent]) -> list[str]:
    """Types of events, in order."""
    return [event.type for event in events]


def of_node(events: Iterable[RunEvent], node: str) -> list[str]:
    """Types of the events about one node, in order."""
    return [event.type for event in events if event.step is not None and event.step.node == node]


def check_whole(events: list[RunEvent]) -> None:
    """Assert that the events of a run are numbered without gaps, begin and end once, and pair up."""
    numbered = [event for event in events if event.type != "message.delta"]
    assert [event.sequence for event in numbered] == list(range(1, len(numbered) + 1))
    assert numbered[0].type == "run.started"
    endings = {"run.completed", "run.failed", "run.stopped", "run.cancelled", "run.timed_out"}
    assert [event.type in endings for event in numbered] == [False] * (len(numbered) - 1) + [True]
    opened = Counter(event.step.key for event in numbered if event.type == "step.started" and event.step)
    closed = Counter(event.step.key for event in numbered if event.type in STEP_ENDINGS and event.step)
    assert set(opened.values()) <= {1}
    assert set(closed.values()) <= {1}
    assert opened.keys() <= closed.keys()
    kinds = Counter(event.type for event in numbered)
    assert kinds["round.started"] == kinds["round.completed"]


STEP_ENDINGS = {"step.completed", "step.failed", "step.cancelled", "step.timed_out", "step.skipped"}
