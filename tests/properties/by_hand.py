"""Small workflows written out by hand, and the reference driven by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.properties.building import build
from tests.properties.comparing import brings_the_same, seen, settled
from tests.properties.description import (
    Edge,
    Field,
    Function,
    Gather,
    Graph,
    Link,
    Made,
    Map,
    Node,
    Outcome,
    StepKey,
)
from tests.properties.driver import Session
from tests.properties.records import Step
from tests.properties.reference import Interpreter


def label(key: StepKey) -> str:
    """Short name of a step: graphs around it, node, rounds, items around it, as in ``g/node@1.2#0``."""
    scope, node, rounds = key
    graphs = "".join(f"{part[1]}/" for part in scope if part[0] == "graph")
    items = "".join(f"#{part[-1]}" for part in scope if part[0] == "item")
    return graphs + node + ("@" + ".".join(map(str, rounds)) if rounds else "") + items


class Hand:
    """A run of the reference whose completions are named one by one, and of the engine's core beside it."""

    def __init__(self, graph: Graph, value: Any = 0) -> None:
        self.run = Interpreter(graph, value)
        self.core = Session(build(graph).compile(), value)
        self.ran: set[StepKey] = set()
        self._compare()

    def _finish(self, key: StepKey) -> None:
        self.run.finish(key)
        self.core.finish(key)
        self._compare()

    def _compare(self) -> None:
        """See that the core is where the reference is."""
        assert self.core.over == (self.run.status != "running")
        if not self.core.over:
            assert self.core.running() == self.run.running()
            assert all(brings_the_same(self.run, key, self.core.given(key)) for key in self.run.running())
            self.ran.update(self.run.running())
            return
        wanted = seen(self.run.outcome())
        assert settled(self.core.outcome(), self.ran, wanted.broken) == settled(wanted, self.ran, wanted.broken)

    def end(self, *labels: str) -> Hand:
        """Let these steps end, in this order."""
        for one in labels:
            keys = [key for key in self.run.running() if label(key) == one]
            assert keys, f"{one} does not run; these do: {self.running}"
            self._finish(keys[0])
        return self

    def rest(self) -> Outcome:
        """Let everything else end, in name order, and give the outcome."""
        while self.run.status == "running":
            self._finish(self.run.running()[0])
        return self.run.outcome()

    @property
    def running(self) -> list[str]:
        """Labels of the steps that run."""
        return [label(key) for key in self.run.running()]

    def step(self, name: str) -> Step:
        """The step with this label."""
        return next(step for key, step in self.run.steps.items() if label(key) == name)

    def state(self, name: str) -> str:
        """State of the step with this label; ``absent`` when nothing is known of it."""
        return next((step.state for key, step in self.run.steps.items() if label(key) == name), "absent")

    def inputs(self, name: str) -> dict[str, Any]:
        """What the step with this label received."""
        return self.step(name).inputs


def count(name: str, inputs: Mapping[str, Any], state: Mapping[str, Any] | None) -> Made:
    """One more than the highest number received."""
    numbers = [value for value in inputs.values() if isinstance(value, int)]
    return Made(1 + max(numbers, default=0))


def node(name: str, work: Function = count, **options: Any) -> Node:
    """A node that counts, unless told otherwise."""
    return Node(name, work, **options)


def say(value: Any, **writes: Any) -> Function:
    """A function that always returns *value*."""
    return lambda name, inputs, state: Made(value, writes)


def fail(error: Exception) -> Function:
    """A function that always raises *error*."""

    def work(name: str, inputs: Mapping[str, Any], state: Mapping[str, Any] | None) -> Made:
        raise error

    return work


def only_if(test: Callable[[int], bool], error: Exception) -> Function:
    """A function that counts, and raises *error* where *test* holds for the count."""

    def work(name: str, inputs: Mapping[str, Any], state: Mapping[str, Any] | None) -> Made:
        made = count(name, inputs, state)
        if test(made.value):
            raise error
        return made

    return work


def under(limit: int) -> Callable[[Any], bool]:
    """Holds for numbers below *limit*."""
    return lambda value: value < limit


def reach(limit: int) -> Callable[[Any], bool]:
    """Holds for numbers from *limit* on."""
    return lambda value: value >= limit


def never(value: Any) -> bool:
    """Hold for nothing."""
    return False


def edges(*ways: str) -> list[Edge]:
    """Unconditional edges from ``"a b c"`` chains."""
    return [Edge(src, dst) for way in ways for src, dst in zip(way.split(), way.split()[1:], strict=False)]


def graph(nodes: str | Sequence[Node], *links: Link | Sequence[Link], **options: Any) -> Graph:
    """A graph; nodes given as words all count."""
    made = [node(name) for name in nodes.split()] if isinstance(nodes, str) else nodes
    flat: list[Link] = []
    for link in links:
        flat.extend(link if isinstance(link, Sequence) else [link])
    return Graph("hand", tuple(made), tuple(flat), **options)


LAST = Field("last", "last")
TOTAL = Field("total", "add")
NOTES = Field("notes", "join")

__all__ = [
    "LAST",
    "NOTES",
    "TOTAL",
    "Edge",
    "Gather",
    "Hand",
    "Map",
    "Node",
    "count",
    "edges",
    "fail",
    "graph",
    "label",
    "never",
    "node",
    "only_if",
    "reach",
    "say",
    "under",
]
