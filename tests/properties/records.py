"""What a run of the reference interpreter is made of, and what can be read off it (E1, E3, E5, E23)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.properties.description import START, Map, ScopeKey, State, StepKey
from tests.properties.structure import Arc, Cycle, Layout, Region

Rounds = tuple[int, ...]


AT_ONCE = "more edges of a join arrive at one instant than it needs"
BEHIND_A_LOSER = "a side node may wait for a loser that has not started"
UNTOLD = frozenset({AT_ONCE, BEHIND_A_LOSER})
"""Doubts about what happens within an instant, where even the same order of completions does not decide."""


class GraphError(Exception):
    """The graph's own error."""


class GraphTypeError(GraphError):
    """A value that a map cannot take apart."""


class StateConflictError(GraphError):
    """Two writes, neither upstream of the other."""


class LimitExceededError(Exception):
    """A round too many."""


class StepsExceededError(Exception):
    """A step too many."""


@dataclass(frozen=True)
class Write:
    """What one step wrote, and the writes upstream of it."""

    step: StepKey
    fields: Mapping[str, Any]
    upstream: frozenset[StepKey]


History = tuple[Write, ...]


@dataclass(eq=False)
class Take:
    """An arc that was taken."""

    value: Any
    history: History
    rounds: Rounds


@dataclass(eq=False)
class Step:
    """One activation of a node."""

    key: StepKey
    state: Literal["running", "succeeded", "failed", "cancelled", "never"]
    inputs: dict[str, Any] = field(default_factory=dict)
    only: Any = None
    """What a node that holds a graph gets."""
    history: History = ()
    value: Any = None
    inner: Scope | None = None


@dataclass(eq=False)
class MapRun:
    """One map that was taken."""

    link: Map
    source: Step
    history: History
    items: list[Scope] = field(default_factory=list)
    open: bool = True


@dataclass(eq=False)
class Scope:
    """The root, one item, or one activation of a node that holds a graph."""

    key: ScopeKey
    layout: Layout
    region: Region
    entry: Take
    owner: tuple[Scope, Step] | tuple[Scope, MapRun] | None
    state: Literal["live", "ended", "failed", "cancelled"] = "live"
    error: Exception | None = None
    steps: dict[tuple[str, Rounds], Step] = field(default_factory=dict)
    takes: dict[tuple[int, Rounds], Take] = field(default_factory=dict)
    rounds: dict[tuple[Cycle, Rounds], int] = field(default_factory=dict)
    maps: dict[tuple[int, Rounds], MapRun] = field(default_factory=dict)
    cuts: list[tuple[str, Rounds, set[str]]] = field(default_factory=list)
    """Joins that fired and cancelled the rest: the join, its round, and the nodes that are useless since."""

    def last_round(self, cycle: Cycle, around: Rounds) -> int:
        """Highest round of one activation of *cycle*; an activation has a round 1 as soon as it exists."""
        return self.rounds.get((cycle, around), 1)

    def all_rounds(self, chain: Sequence[Cycle]) -> list[Rounds]:
        """Every combination of started rounds of *chain*."""
        found: list[Rounds] = [()]
        for cycle in chain:
            found = [(*one, r) for one in found for r in range(1, self.last_round(cycle, one) + 1)]
        return found

    def status(self, arc: Arc, rounds: Rounds) -> Literal["taken", "skipped", "open"]:
        """Say whether *arc* has settled, in *rounds* of the cycles that hold both its ends (E1)."""
        if (arc.position, rounds) in self.takes:
            return "taken"
        chain = self.region.chain(arc.src)
        if arc.src == START and arc.map is None:
            return "skipped"
        if len(chain) > len(rounds):  # E5: an exit is skipped when the outermost cycle it leaves is over
            return "skipped" if self.over(chain[len(rounds)], rounds) else "open"
        if arc.map is not None:
            run = self.maps.get((arc.map, rounds))
            if run is not None:
                return "open" if run.open else "skipped"
        if arc.src == START:
            return "skipped"
        step = self.steps.get((arc.src, rounds))
        return "open" if step is None or step.state == "running" else "skipped"

    def over(self, cycle: Cycle, around: Rounds) -> bool:
        """Say whether an activation of *cycle* is over (E5)."""
        region, last = self.region, self.last_round(cycle, around)
        for number in range(1, last + 1):
            rounds = (*around, number)
            for name in region.nodes:
                chain = region.chain(name)
                if chain[: cycle.depth] != (*cycle.around, cycle):
                    continue
                if len(chain) > cycle.depth:
                    if not self.over(chain[cycle.depth], rounds):
                        return False
                    continue
                step = self.steps.get((name, rounds))
                if step is None or step.state == "running":
                    return False
                if any(run.open for run in self.maps.values() if run.source is step):
                    return False
        if self.is_useless(set(cycle.nodes), cycle.header, (*around, last)):
            return True
        return all(self.status(arc, (*around, last)) == "skipped" for arc in region.back(cycle))

    def same_round(self, join: str, rounds: Rounds, name: str, other: Rounds) -> bool:
        """Say whether two nodes are in one round of the cycles that hold both."""
        both = zip(self.region.chain(join), self.region.chain(name), strict=False)
        depth = sum(one is two for one, two in both)
        return rounds[:depth] == other[:depth]

    def is_cut(self, position: int, rounds: Rounds) -> bool:
        """Say whether a map leads only to a join that has fired, or to what that has made useless."""
        targets = {dst for _, dst, _ in self.layout.maps[position]}
        return self.is_useless(targets, self.layout.links[position].src, rounds, itself=True)

    def is_useless(self, targets: set[str], name: str, rounds: Rounds, *, itself: bool = False) -> bool:
        """Say whether a join that fired in the same round as *name* has made all *targets* useless."""
        return any(
            targets <= (useless | {join} if itself else useless) and self.same_round(join, fired, name, rounds)
            for join, fired, useless in self.cuts
        )


def merge(histories: Sequence[History]) -> History:
    """Histories in order, each adding what is not there yet (E23)."""
    seen: dict[StepKey, Write] = {}
    for history in histories:
        for write in history:
            seen.setdefault(write.step, write)
    return tuple(seen.values())


def conflict(state: State | None, history: History) -> str | None:
    """Name a field without a reducer whose last write is not downstream of all others."""
    for one in state.fields if state is not None else ():
        writes = [write for write in history if one.name in write.fields]
        if one.kind == "last" and writes:
            last = writes[-1]
            if any(write is not last and write.step not in last.upstream for write in writes):
                return one.name
    return None


def fold_state(state: State | None, history: History) -> dict[str, Any] | None:
    """State that a step sees which has *history* upstream."""
    if state is None:
        return None
    values = {one.name: one.default for one in state.fields}
    for write in history:
        for one in state.fields:
            if one.name in write.fields:
                values[one.name] = one.fold(values[one.name], write.fields[one.name])
    return values
