"""How far down each row stands, with the frames of groups and the level runs of edges between."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from graphrt.graph.view.layout_tracks import MOST, Run, tracks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from graphrt.graph.view.layout_grid import Path
    from graphrt.graph.view.layout_route import Zone

GROUP_TITLE: Final = 22.0
"""The room for a group's name, above what it holds, in pixels."""

_GROUP_BOTTOM: Final = 12.0
_GROUP_TOP: Final = 4.0
_TRACK: Final = 8.0
_TRACKS: Final = 112.0
_START: Final = 11.0
_END: Final = 17.0
_CHIP_START: Final = 8.0
_CHIP_END: Final = 9.0
_TURN: Final = 12.0
_SLANT: Final = 0.06
_MOST_SLANT: Final = 100.0


@dataclass(frozen=True, slots=True)
class Levels:
    """The runs of one zone: which track each has, and where the tracks lie."""

    track: Mapping[tuple[int, int], int]
    count: int
    slant: float = 0.0
    """How high the zone is when it has no tracks and edges go slantwise."""
    top: float = 0.0

    @property
    def height(self) -> float:
        """The room from its first track to its last."""
        return self.slant or min(_TRACK * (self.count - 1), _TRACKS)

    def at(self, key: tuple[int, int]) -> tuple[float, float]:
        """Return where a run begins and ends."""
        if self.slant:
            return self.top, self.top + self.slant
        step = self.height / (self.count - 1) if self.count > 1 else 0.0
        y = self.top + self.track[key] * step
        return y, y

    def below(self, top: float) -> Levels:
        """Return the same with the first track at *top*."""
        return Levels(self.track, self.count, self.slant, top)


def levels(runs: Mapping[tuple[int, int], Run]) -> Levels:
    """Give each run of a zone its track."""
    if len(runs) > MOST:
        widest = max(run.right - run.left for run in runs.values())
        return Levels({}, 0, slant=min(20 + widest * _SLANT, _MOST_SLANT))
    found = dict(zip(runs, tracks(list(runs.values())), strict=True))
    return Levels(found, max(found.values()) + 1)


@dataclass(slots=True)
class Bands:
    """The upper and lower edge of each row and each group, in pixels from the top, and the runs between."""

    top: list[float]
    bottom: list[float]
    group_top: list[float]
    group_bottom: list[float]
    level: dict[Zone, Levels] = field(default_factory=dict)
    height: float = 0.0


def bands(
    heights: Sequence[float],
    chips: Sequence[bool],
    runs: Mapping[Zone, Mapping[tuple[int, int], Run]],
    spans: Sequence[tuple[int, int]],
    paths: Sequence[Path],
) -> Bands:
    """Stack rows that are *heights* high; *chips* tells which hold nothing but labels."""
    count = len(heights)
    above, below = _frames(count, spans, paths)
    found = Bands([0.0] * count, [0.0] * count, [0.0] * len(spans), [0.0] * len(spans))
    level = {zone: levels(here) for zone, here in runs.items()}
    y = 0.0
    for row in range(count):
        y += above[row]
        y = _turn(found, level, ("above", row), y, last=4.0)
        found.top[row], found.bottom[row] = y, y + heights[row]
        y = _turn(found, level, ("below", row), found.bottom[row], last=2.0) + below[row]
        if row < count - 1:
            y += _CHIP_START if chips[row] else _START
            zone: Zone = ("gap", row)
            if zone in level:
                found.level[zone] = level[zone].below(y)
                y += level[zone].height
            y += _CHIP_END if chips[row + 1] else _END
    found.height = y
    _frame_groups(found, spans, paths, level)
    return found


def _turn(found: Bands, level: Mapping[Zone, Levels], zone: Zone, y: float, last: float) -> float:
    """Make room for the lanes that turn just above or below a row, and return where it ends."""
    if zone not in level:
        return y
    above = zone[0] == "above"
    found.level[zone] = level[zone].below(y + (last if above else _TURN))
    return y + level[zone].height + _TURN + last + (6.0 if above else 0.0)


def _frames(count: int, spans: Sequence[tuple[int, int]], paths: Sequence[Path]) -> tuple[list[float], list[float]]:
    """Return how much room the frames of groups need above and below each row."""
    above, below = [0.0] * count, [0.0] * count
    for path in paths:
        first, last = spans[path[-1]]
        titles = sum(spans[group][0] == first for group in path)
        bottoms = sum(spans[group][1] == last for group in path)
        above[first] = max(above[first], titles * GROUP_TITLE + _GROUP_TOP)
        below[last] = max(below[last], bottoms * _GROUP_BOTTOM)
    return above, below


def _frame_groups(
    found: Bands, spans: Sequence[tuple[int, int]], paths: Sequence[Path], level: Mapping[Zone, Levels]
) -> None:
    """Set the upper and lower edge of each group, the innermost first."""
    for group in sorted(range(len(spans)), key=lambda group: -len(paths[group])):
        first, last = spans[group]
        inner = [other for other in range(len(spans)) if paths[other][:-1] == paths[group]]
        tops = [found.group_top[other] for other in inner if spans[other][0] == first]
        bottoms = [found.group_bottom[other] for other in inner if spans[other][1] == last]
        upper: Zone = ("above", first)
        lower: Zone = ("below", last)
        clear = found.level[upper].top - 4.0 if upper in level else found.top[first]
        found.group_top[group] = min(tops, default=clear - _GROUP_TOP) - GROUP_TITLE
        clear = found.level[lower].top + found.level[lower].height + 2.0 if lower in level else found.bottom[last]
        found.group_bottom[group] = max(bottoms, default=clear) + _GROUP_BOTTOM
