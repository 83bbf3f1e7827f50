"""Text that is safe to show, how wide it will be, and how it is cut to fit."""

from __future__ import annotations

import unicodedata
from typing import Final

_JOINERS: Final = "\u200c\u200d"  # needed inside emoji and in several scripts
_NONCHARACTERS: Final = frozenset({0xFFFE, 0xFFFF})
_LONGEST: Final = 4000

# Widths of the characters from space to tilde in a common sans-serif typeface, in thousandths of the font size.
_ASCII: Final = (
    *(278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278),
    *(556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556),
    *(1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778),
    *(667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556),
    *(333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556),
    *(556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584),
)
_SLACK: Final = 1.07  # other typefaces are somewhat wider
_WIDE: Final = 1.05
_NARROW: Final = 0.62


def printable(text: object) -> str:
    """Return *text* on one line, with what cannot be seen or would mislead written as an escape.

    Control characters, lone surrogates, noncharacters and the marks that turn the direction of writing become
    ``\\x1b`` or ``\\u202e``; any run of white space becomes one space.
    """
    words = str(text)[:_LONGEST].split()
    line = " ".join(words)
    if line.isascii() and line.isprintable():
        return line
    return "".join(character if _shown(character) else _escape(character) for character in line)


def _shown(character: str) -> bool:
    if character in _JOINERS:
        return True
    if ord(character) & 0xFFFF in _NONCHARACTERS or 0xFDD0 <= ord(character) <= 0xFDEF:  # noqa: PLR2004 (Unicode)
        return False
    return unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def _escape(character: str) -> str:
    code = ord(character)
    if code <= 0xFF:  # noqa: PLR2004 (as Python writes it)
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 (as Python writes it)


def width(text: str, size: float) -> float:
    """Estimate how wide *text* is at a font size of *size* pixels, in pixels; rather too much than too little."""
    return sum(map(_advance, text)) * size * _SLACK


def _advance(character: str) -> float:
    code = ord(character)
    if code < 127:  # noqa: PLR2004 (the end of the table)
        return _ASCII[code - 32] / 1000 if code >= 32 else 0  # noqa: PLR2004 (its beginning)
    if character in _JOINERS or unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return _WIDE if unicodedata.east_asian_width(character) in "WF" or code > 0xFFFF else _NARROW  # noqa: PLR2004


def clip(text: str, size: float, limit: float) -> str:
    """Cut *text* to *limit* pixels at a font size of *size*, with an ellipsis where something was cut off."""
    if width(text, size) <= limit:
        return text
    room = limit / (size * _SLACK) - 1
    used = 0.0
    for end, character in enumerate(text):
        used += _advance(character)
        if used > room:
            return text[: max(end, 1)].rstrip(f" {_JOINERS}") + "…"
    return text
