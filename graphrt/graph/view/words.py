"""Text that is safe to show, how wide it will be, and how it is cut to fit."""

from __future__ import annotations

import unicodedata
from typing import Final

_JOINERS: Final = "\u200c\u200d"  # needed inside emoji and in several scripts
_LATIN_END: Final = 0xFF
_PLANE_END: Final = 0xFFFF
_NONCHARACTERS: Final = range(0xFDD0, 0xFDF0)  # besides the last two of every plane
_LONGEST: Final = 4000

# Widths of the characters from space to tilde in a common sans-serif typeface, in thousandths of its size.
_ASCII: Final = (
    *(278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278),
    *(556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556),
    *(1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778),
    *(667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556),
    *(333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556),
    *(556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584),
)
_TABLE: Final = range(0x20, 0x7F)
_SLACK: Final = 1.07  # other typefaces are somewhat wider
_WIDE: Final = 1.05
_NARROW: Final = 0.62


def printable(text: object) -> str:
    r"""Return *text* on one line, with what cannot be seen or would mislead written as an escape.

    Control characters, lone surrogates, noncharacters and the marks that turn the direction of writing become
    ``\x1b`` or ``\u202e``; any run of white space becomes one space.
    """
    words = str(text)[:_LONGEST].split()
    line = " ".join(words)
    if line.isascii() and line.isprintable():
        return line
    return "".join(character if _shown(character) else _escape(character) for character in line)


def _shown(character: str) -> bool:
    if character in _JOINERS:
        return True
    code = ord(character)
    if code in _NONCHARACTERS or code & _PLANE_END >= _PLANE_END - 1:
        return False
    return unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def _escape(character: str) -> str:
    code = ord(character)
    if code <= _LATIN_END:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= _PLANE_END else f"\\U{code:08x}"


def width(text: str, size: float) -> float:
    """Estimate how wide *text* is at a font size of *size* pixels; rather too wide than too narrow."""
    return sum(map(_advance, text)) * size * _SLACK


def _advance(character: str) -> float:
    code = ord(character)
    if code in _TABLE:
        return _ASCII[code - _TABLE.start] / 1000
    if character in _JOINERS or unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    wide = code > _PLANE_END or unicodedata.east_asian_width(character) in {"W", "F"}
    return _WIDE if wide else _NARROW


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
