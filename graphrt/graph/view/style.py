"""The colours of a picture, light and dark, as CSS without variables, which not every renderer knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = "graphrt-view"
"""Class of the outermost element: every rule is below it, so a page that holds the picture stays as it is."""

FONT: Final = 'system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"Noto Sans","DejaVu Sans",sans-serif'


@dataclass(frozen=True, slots=True)
class StateColours:
    """The colours of one state: of the shape, its outline, and the mark on its badge."""

    fill: str
    line: str
    mark: str


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of one theme."""

    canvas: str
    ink: str
    muted: str
    fill: str
    outline: str
    line: str
    taken: str
    faint: str
    error: str
    frame: str
    frame_line: str
    states: dict[str, StateColours]


LIGHT: Final = Palette(
    canvas="#ffffff",
    ink="#1b2430",
    muted="#5b6776",
    fill="#ffffff",
    outline="#5b6776",
    line="#8a95a3",
    taken="#1b2430",
    faint="#b9c1cb",
    error="#c0392b",
    frame="#f4f6f9",
    frame_line="#c9d1da",
    states={
        "pending": StateColours("#ffffff", "#8a95a3", "#ffffff"),
        "running": StateColours("#e7f0fe", "#1f6feb", "#ffffff"),
        "waiting": StateColours("#fdf3d7", "#a66a00", "#ffffff"),
        "succeeded": StateColours("#e6f6ec", "#1a7f43", "#ffffff"),
        "failed": StateColours("#fdeaea", "#c62828", "#ffffff"),
        "skipped": StateColours("#ffffff", "#98a2b0", "#ffffff"),
        "cancelled": StateColours("#f1edf9", "#6f52b5", "#ffffff"),
        "timed_out": StateColours("#fdeee2", "#b9500b", "#ffffff"),
    },
)
DARK: Final = Palette(
    canvas="#14181f",
    ink="#e8ecf1",
    muted="#9aa6b4",
    fill="#1e242d",
    outline="#8391a1",
    line="#6d7987",
    taken="#dfe5ec",
    faint="#424c58",
    error="#ff8a80",
    frame="#1a2029",
    frame_line="#3a4450",
    states={
        "pending": StateColours("#1e242d", "#7b8896", "#14181f"),
        "running": StateColours("#152a4a", "#62a0ff", "#14181f"),
        "waiting": StateColours("#3a2e10", "#e5b13a", "#14181f"),
        "succeeded": StateColours("#13301f", "#56c983", "#14181f"),
        "failed": StateColours("#431c1e", "#ff8a80", "#14181f"),
        "skipped": StateColours("#14181f", "#6d7987", "#14181f"),
        "cancelled": StateColours("#2b2345", "#b49cf0", "#14181f"),
        "timed_out": StateColours("#42260f", "#ffa35c", "#14181f"),
    },
)

_SHAPES: Final = (
    ("text", f"font-family:{FONT};text-anchor:middle"),
    (".label", "font-size:13px"),
    (".note", "font-size:11px"),
    (".chip text,.title", "font-size:11px"),
    (".title,.begin", "text-anchor:start"),
    (".title", "paint-order:stroke;stroke-width:4px;stroke-linejoin:round"),
    (".name", "font-size:15px;font-weight:600"),
    (".sum", "font-size:12px"),
    (".strong", "font-weight:600"),
    (".shape", "stroke-width:1.3;stroke-linejoin:round"),
    (".icon", "fill:none;stroke-width:1.4;stroke-linecap:round;stroke-linejoin:round"),
    (".mark", "fill:none;stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round"),
    (".line", "fill:none;stroke-width:1.4"),
    (".e-map .line,.e-gather .line", "stroke-width:2.4"),
    (".e-error .line", "stroke-dasharray:6 4"),
    ('[data-taken="yes"] .line', "stroke-width:2"),
    ('.e-map[data-taken="yes"] .line,.e-gather[data-taken="yes"] .line', "stroke-width:2.8"),
    ('[data-taken="no"] .line', "stroke-dasharray:1.5 4;stroke-linecap:round"),
    ('[data-state="skipped"] .shape', "stroke-dasharray:4 3"),
    (".frame", "stroke-width:1"),
    (".g-cycle .frame", "stroke-dasharray:2 4;stroke-linecap:round"),
)


def style(theme: str) -> str:
    """Return the style sheet of a picture: ``light``, ``dark``, or both, chosen where it is looked at."""
    rules = [*_SHAPES, *_colours(DARK if theme == "dark" else LIGHT)]
    sheet = "".join(_rule(selectors, body) for selectors, body in rules)
    if theme not in {"light", "dark"}:
        dark = "".join(_rule(selectors, body) for selectors, body in _colours(DARK))
        sheet += f"@media (prefers-color-scheme:dark){{{dark}}}"
    return sheet


def _rule(selectors: str, body: str) -> str:
    return ",".join(f".{ROOT} {selector}" for selector in selectors.split(",")) + f"{{{body}}}"


def _colours(palette: Palette) -> Iterator[tuple[str, str]]:
    yield ".canvas", f"fill:{palette.canvas}"
    yield "text", f"fill:{palette.ink}"
    yield ".note,.title,.chip text,.quiet", f"fill:{palette.muted}"
    yield ".shape", f"fill:{palette.fill};stroke:{palette.outline}"
    yield ".icon", f"stroke:{palette.muted}"
    yield ".line,.tail", f"stroke:{palette.line}"
    yield ".head", f"fill:{palette.line}"
    yield ".tail", f"fill:{palette.canvas}"
    yield ".chip rect", f"fill:{palette.canvas}"
    yield ".framed rect", f"fill:{palette.frame}"
    yield ".title", f"stroke:{palette.frame}"
    yield ".frame", f"fill:{palette.frame};stroke:{palette.frame_line}"
    yield ".e-error .line", f"stroke:{palette.error}"
    yield ".e-error .head", f"fill:{palette.error}"
    yield from _run_colours(palette)
    yield ".k-start .shape", f"fill:{palette.ink};stroke:{palette.ink}"
    yield ".k-start text", f"fill:{palette.canvas}"


def _run_colours(palette: Palette) -> Iterator[tuple[str, str]]:
    for taken, colour in (("yes", palette.taken), ("no", palette.faint)):
        yield f'[data-taken="{taken}"] .line,[data-taken="{taken}"] .tail', f"stroke:{colour}"
        yield f'[data-taken="{taken}"] .head', f"fill:{colour}"
    for state, colours in palette.states.items():
        yield f'[data-state="{state}"] .shape', f"fill:{colours.fill};stroke:{colours.line}"
        yield f'[data-state="{state}"] .badge', f"fill:{colours.line};stroke:{palette.canvas}"
        yield f'[data-state="{state}"] .mark', f"stroke:{colours.mark}"
    yield '[data-state="skipped"] text,[data-state="pending"] text', f"fill:{palette.muted}"
