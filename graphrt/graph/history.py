"""Histories of writes: who wrote what upstream of a step, in the order in which it counts (E23).

A history is a chain of links, one for each step that wrote, newest first. Links never change, and histories
share them, so that in chains, loops and forks a write costs one link. `merge` brings histories together.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from graphrt.errors import StateConflictError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from graphrt.graph.statemodel import StateSpec


class History:
    """One link: the newest write, and the history before it. Equal only to itself."""

    __slots__ = ("__weakref__", "_again", "_jump", "depth", "fields", "label", "merged", "prev", "writer")

    def __init__(
        self, prev: History | None, writer: Hashable, fields: Mapping[str, Any], label: str, merged: bool
    ) -> None:
        self.prev = prev
        self.writer = writer
        """Which step wrote; one write is found again in several histories by it."""
        self.fields = fields
        self.label = label
        """The step as messages call it."""
        self.merged = merged
        """Whether the link stands behind writes that its writer had not seen."""
        self.depth: int = 1 if prev is None else prev.depth + 1
        """How many links there are, this one included."""
        self._jump = _jump_from(prev)
        self._again: weakref.ref[History] | None = None

    def __repr__(self) -> str:
        return f"<History of {self.depth} writes, the last by {self.label!r}>"


def link(prev: History | None, writer: Hashable, fields: Mapping[str, Any], label: str) -> History:
    """Add the write of a step to what is upstream of it.

    Args:
        prev: The history of the step's inputs.
        writer: Which step it is; equal for no two steps of a run.
        fields: What it wrote, by field; must not change any more.
        label: The step's name, for messages.
    """
    return History(prev, writer, fields, label, merged=False)


def links(history: History | None) -> Iterator[History]:
    """Go through the links of *history*, the newest first."""
    while history is not None:
        yield history
        history = history.prev


def merge(histories: Sequence[History | None], spec: StateSpec) -> History | None:
    """Bring together the histories of taken edges: each, in order, adds the writes that are not there yet.

    Costs what they do not share. Merging the same ones again gives the same links, if anybody still has them.

    Args:
        histories: One for each edge, in declaration order.
        spec: Says which fields have a reducer; only these may be written side by side.

    Raises:
        StateConflictError: Two histories each have a write of a field without a reducer that the other lacks.
    """
    todo = [history for history in histories if history is not None]
    todo.reverse()
    if not todo:
        return None
    first = todo.pop()
    while todo and _holds(todo[-1], first):
        first = todo.pop()
    if not todo:
        return first
    merging = _Merging(first, spec)
    while todo:
        other = todo.pop()
        if not _holds(first, other):
            merging.add(other)
    return merging.tip


class _Segment:
    """The links of one history that no earlier one had, and where the rest of it lies."""

    __slots__ = ("depths", "floor", "parent")

    def __init__(self) -> None:
        self.depths: dict[Hashable, int] = {}
        """Depth of each write, by its writer."""
        self.parent: _Segment | None = None
        self.floor = 0
        """Links of the parent up to this depth belong to the history too."""

    def holds(self, writer: Hashable) -> bool:
        """Tell whether the history has the write, if any history seen so far has."""
        segment: _Segment | None = self
        limit: int | None = None
        while segment is not None:
            depth = segment.depths.get(writer)
            if depth is not None and (limit is None or depth <= limit):
                return True
            limit = segment.floor
            segment = segment.parent
        return False


class _Merging:
    """One call of `merge`: the first history, and what the others have added to it."""

    __slots__ = ("_last", "_last_first", "_next", "_reducers", "_segment_of", "_trunk", "_writers", "tip")

    def __init__(self, first: History, spec: StateSpec) -> None:
        self.tip = first
        self._reducers = spec.reducers
        self._trunk = _Segment()
        self._next: History | None = first
        """The newest link of the first history that has not been looked at: no further down than needed."""
        self._segment_of: dict[History, _Segment] = {}
        self._writers: set[Hashable] = set()
        self._last: dict[str, History] = {}
        """The last added write of each field without a reducer."""
        self._last_first: dict[str, History] = {}
        """The last one in the first history."""

    def add(self, other: History) -> None:
        segment = _Segment()
        own = self._walk(other, segment)
        new = [one for one in own if one.writer not in self._writers]
        self._check(new, segment)
        for one in new:
            self.tip = _put_on(self.tip, one)
            for name in one.fields:
                self._last[name] = one
        self._writers.update(segment.depths)

    def _walk(self, other: History, segment: _Segment) -> list[History]:
        """Go down *other* until it meets links seen before, and give those it passes, oldest first."""
        passed: list[History] = []
        here: History | None = other
        while here is not None:
            ahead = self._next
            seen_in = self._trunk if ahead is here else self._segment_of.get(here)
            if seen_in is not None:
                segment.parent, segment.floor = seen_in, here.depth
                break
            if ahead is not None and ahead.depth >= here.depth:
                self._look_at(ahead)
                continue
            segment.depths[here.writer] = here.depth
            self._segment_of[here] = segment
            passed.append(here)
            here = here.prev
        if here is None:
            while self._next is not None:
                self._look_at(self._next)
        passed.reverse()
        return passed

    def _look_at(self, ahead: History) -> None:
        self._trunk.depths[ahead.writer] = ahead.depth
        self._segment_of[ahead] = self._trunk
        self._writers.add(ahead.writer)
        for name in ahead.fields:
            self._last_first.setdefault(name, ahead)
        self._next = ahead.prev

    def _check(self, new: list[History], segment: _Segment) -> None:
        """Refuse writes of a field whose last write so far is not upstream of them.

        A history that has a write has all that is upstream of it: with the last write of a field, every one.
        """
        newest = {name: one for one in new for name in one.fields if name not in self._reducers}
        for name, write in newest.items():
            last = self._last.get(name) or self._last_first.get(name)
            if last is not None and not segment.holds(last.writer):
                raise StateConflictError(
                    f"state field {name!r} was written by {last.label!r} and by {write.label!r}, and neither "
                    "ran after the other",
                    hint="give the field a reducer, Annotated[..., Reduce(fn)], or write it in one place",
                )


def _put_on(tip: History, write: History) -> History:
    """Repeat *write* on top of *tip*: as the same link as at the last join that did so."""
    again = tip._again
    known = None if again is None else again()
    if known is None or known.fields is not write.fields:
        known = History(tip, write.writer, write.fields, write.label, merged=True)
        tip._again = weakref.ref(known)
    return known


def _holds(history: History, other: History) -> bool:
    """Tell whether *other* is *history* or one of the links behind it."""
    here: History | None = history
    while here is not None and here.depth > other.depth:
        jump = here._jump
        here = jump if jump is not None and jump.depth >= other.depth else here.prev
    return here is other


def _jump_from(prev: History | None) -> History | None:
    """Choose the link to skip to, so that any other is reached in logarithmic time."""
    near = None if prev is None else prev._jump
    if prev is None or near is None:
        return prev
    far = near._jump
    return far if prev.depth - near.depth == near.depth - (0 if far is None else far.depth) else prev


__all__ = ["History", "link", "links", "merge"]
