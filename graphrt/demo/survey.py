"""What a folder is about, at a glance: its files with their headings, short enough for a prompt."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from graphrt.demo.confined import DocumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphrt.demo.documents import Documents

SURVEY_CHARS: Final = 3_000
"""Characters of a survey, about 750 tokens."""

SURVEYED_FILE: Final = re.compile(r"(\S.*) \(\d+ lines\)$")
"""A line of a survey that names a file."""
SURVEYED_HEADING: Final = re.compile(r" +\d+: (#+) (.+)$")
"""A line of a survey with a heading: its level in signs, and its text."""

_MARKED: Final = re.compile(r" {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
_UNDERLINE: Final = re.compile(r"([=\-~^])\1{2,}\s*$")
_FENCE: Final = re.compile(r" {0,3}(```|~~~)")
_LEVEL_OF_UNDERLINE: Final = {"=": 1, "-": 2, "~": 3, "^": 4}
_LONGEST_HEADING: Final = 100
_DEEPEST: Final = 6


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a document."""

    line: int
    """Counted from 1."""
    level: int
    """1 for a title, up to 6."""
    text: str


def headings(lines: Sequence[str]) -> list[Heading]:
    """Find the headings of a Markdown or plain text, marked with ``#`` or underlined; what is fenced is none.

    A text without any has its first line with words, as a title.
    """
    found: list[Heading] = []
    fence = ""
    for at, line in enumerate(lines):
        if opened := _FENCE.match(line):
            fence = "" if fence == opened[1] else fence or opened[1]
        elif fence:
            continue
        elif marked := _MARKED.match(line):
            found.append(Heading(at + 1, len(marked[1]), marked[2]))
        elif at and (under := _UNDERLINE.match(line)) and _can_be_underlined(lines[at - 1], line):
            found.append(Heading(at, _LEVEL_OF_UNDERLINE[under[1]], lines[at - 1].strip()))
    found = [each for each in found if re.search(r"\w", each.text)]
    return found or _first_line(lines)


def survey(documents: Documents, *, most: int = SURVEY_CHARS) -> str:
    """Describe *documents*: a line for each file, and below it its headings with their line numbers.

    Where not all fit into *most* characters, the deepest headings are left out first, in all files alike.

    Raises:
        DocumentError: There is no text in the folder.
    """
    found: list[tuple[str, int, list[Heading]]] = []
    for path in documents.paths():
        try:
            lines = documents.lines(path)
        except DocumentError:
            continue  # no text: nothing to research in it
        if any(line.strip() for line in lines):
            found.append((path, len(lines), headings(lines)))
    if not found:
        raise DocumentError(f"there is no text to read in {str(documents.root)!r}", hint="name another folder")
    for deepest in range(_DEEPEST, 0, -1):
        text = "\n".join(_described(found, deepest))
        if len(text) <= most:
            return text
    return _cut(_described(found, 0), most)


def first_headings(survey: str) -> list[tuple[str, str]]:
    """Read from a survey the first heading of the first two files, below the title if there is one."""
    found: dict[str, list[str]] = {}
    path = ""
    for line in survey.splitlines():
        if file := SURVEYED_FILE.match(line):
            path = file[1]
        elif path and (heading := SURVEYED_HEADING.match(line)):
            found.setdefault(path, []).append(heading[2])
    return [(path, texts[min(1, len(texts) - 1)]) for path, texts in found.items()][:2]


def _described(found: list[tuple[str, int, list[Heading]]], deepest: int) -> list[str]:
    described: list[str] = []
    for path, count, inside in found:
        described.append(f"{path} ({count} lines)")
        described += [
            f"  {each.line}: {'#' * each.level} {_short(each.text)}" for each in inside if each.level <= deepest
        ]
    return described


def _cut(described: list[str], most: int) -> str:
    """Give as many of the files as fit, and say how many there are more."""
    kept = list(described)
    rest = ""
    while kept and len("\n".join([*kept, rest])) > most:
        kept.pop()
        rest = f"... and {len(described) - len(kept)} more files"
    return "\n".join([*kept, rest])


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_HEADING else f"{text[:_LONGEST_HEADING]}..."


def _can_be_underlined(text: str, line: str) -> bool:
    stripped = text.strip()
    return (
        bool(stripped)
        and stripped[0] not in "|-*>#"
        and not text.startswith("    ")
        and len(line.strip()) >= min(len(stripped), 3)
    )


def _first_line(lines: Sequence[str]) -> list[Heading]:
    for at, line in enumerate(lines):
        if re.search(r"\w", line):
            return [Heading(at + 1, 1, line.strip())]
    return []
