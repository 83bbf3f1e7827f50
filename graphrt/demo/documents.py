"""The text files of one folder, and the three tools with which a model reads them.

Everything is bounded, so that an answer fits into a small model's context, and in a fixed order, so that the
same folder gives the same answers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from graphrt.demo.confined import ConfinedFolder, DocumentError, EntryKind, path_parts
from graphrt.tools import function_tool

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from graphrt.tools import Tool

STOP_WORDS: Final = frozenset(
    """
    a about all also an and any are as at be been but by can do does each for from has have how if in into is
    it its main may more most must no not of on one only or other say says should so some such than that the
    their them then there these they this those to use used was what when where which who whose why will with
    you your
    """.split()  # noqa: SIM905  # a list of as many words would fill the page
)
"""Words that tell nothing of what a text is about."""

_WORD: Final = re.compile(r"\w+")
_SHORTEST_WORD: Final = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a folder is looked at, and how much of it goes into one answer."""

    files: int = 400
    """Files in all; those after them, by name, are not there."""
    depth: int = 8
    """Folders in folders."""
    file_bytes: int = 1_000_000
    searched_bytes: int = 20_000_000
    """Bytes that one search reads."""
    listed: int = 60
    """Files that one answer lists."""
    lines: int = 40
    """Lines that one answer has."""
    hits: int = 12
    """Hits that one answer has."""
    line_chars: int = 200
    """Characters of a line; the rest is cut off."""
    answer_chars: int = 1_800
    """Characters of lines in one answer, about 450 tokens."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that a search found."""

    path: str
    line: int
    """Counted from 1."""
    text: str


class Documents:
    """The text files of a folder: what can be listed, read and searched."""

    def __init__(
        self,
        root: str | Path,
        *,
        only: Sequence[str] = (),
        limits: Limits | None = None,
        relative_opens: bool | None = None,
    ) -> None:
        """Open the folder.

        Args:
            root: The folder.
            only: Files and folders in it, by path; the rest is not there. Empty: all of it.
            limits: None: what suits a model with a context of 4096 tokens.
            relative_opens: See `ConfinedFolder`; None: what the system can.

        Raises:
            DocumentError: There is no such folder.
        """
        self.limits = limits or Limits()
        self._folder = (
            ConfinedFolder(root) if relative_opens is None else ConfinedFolder(root, relative_opens=relative_opens)
        )
        self._only = tuple(only)

    @property
    def root(self) -> Path:
        """Where the folder is."""
        return self._folder.root

    def paths(self) -> list[str]:
        """List the files, folder by folder, the files of a folder before the folders in it.

        Where the documents have been named, they stand in that order.
        """
        found = list(islice(self._walk("", self.limits.depth), self.limits.files))
        return sorted(found, key=self._scope_of) if self._only else found

    def lines(self, path: str) -> list[str]:
        """Read a file's lines, without their ends.

        Raises:
            DocumentError: The path is refused, or the file is too large or no text.
        """
        path = "/".join(path_parts(path))
        if not self._is_in_scope(path):
            raise DocumentError(f"{path!r} is not among the documents", hint="list the files for their names")
        data = self._folder.read(path, most=self.limits.file_bytes)
        if b"\0" in data:
            raise DocumentError(f"{path!r} is a binary file and cannot be read here")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise DocumentError(f"{path!r} is no UTF-8 text and cannot be read here") from error
        return text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []

    def search(self, query: str) -> tuple[list[Hit], int]:
        """Find the lines that hold *query*, or words that begin like its words, whatever the case.

        Returns:
            The best hits: lines with the whole query first, then by the number of words, then as listed. And
            how many lines were found in all.

        Raises:
            DocumentError: The query has no word to look for.
        """
        phrase = " ".join(query.strip().strip("\"'`").casefold().split())
        words = set(key_words(phrase)) or set(_WORD.findall(phrase))
        if not words:
            raise DocumentError("the query has no word to look for", hint="give a few key words")
        whole = None if _WORD.fullmatch(phrase) else phrase
        starts = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(words, key=len, reverse=True)))})")
        found: list[tuple[int, Hit]] = []
        for path, lines in self._readable():
            for number, line in enumerate(lines, start=1):
                text = line.casefold()
                score = len(set(starts.findall(text))) + len(words) * (whole is not None and whole in text)
                if score:
                    found.append((score, Hit(path, number, line.strip())))
        found.sort(key=lambda each: -each[0])
        return [hit for _, hit in found[: self.limits.hits]], len(found)

    def _walk(self, folder: str, depth: int) -> Iterator[str]:
        entries = [(f"{folder}{each.name}", each) for each in self._folder.entries(folder)]
        for path, entry in entries:
            if entry.kind is EntryKind.FILE and self._is_in_scope(path):
                yield path
        for path, entry in entries:
            if entry.kind is EntryKind.FOLDER and depth > 0 and self._leads_to_scope(path):
                yield from self._walk(f"{path}/", depth - 1)

    def _readable(self) -> Iterator[tuple[str, list[str]]]:
        """Give the files that are text, until so many bytes have been read that a search ends."""
        left = self.limits.searched_bytes
        for path in self.paths():
            try:
                lines = self.lines(path)
            except DocumentError:
                continue  # it is listed all the same, and says why when it is read by name
            left -= sum(map(len, lines))
            if left < 0:
                return
            yield path, lines

    def _scope_of(self, path: str) -> int:
        """Find which of the names that were given *path* belongs to; their number if it belongs to none."""
        inside = (at for at, each in enumerate(self._only) if path == each or path.startswith(f"{each}/"))
        return next(inside, len(self._only))

    def _is_in_scope(self, path: str) -> bool:
        return not self._only or self._scope_of(path) < len(self._only)

    def _leads_to_scope(self, folder: str) -> bool:
        return self._is_in_scope(folder) or any(each.startswith(f"{folder}/") for each in self._only)


def key_words(text: str) -> list[str]:
    """Give the words of *text* that tell what it is about, in lower case and each once, in order."""
    words = _WORD.findall(text.casefold())
    return list(dict.fromkeys(word for word in words if len(word) >= _SHORTEST_WORD and word not in STOP_WORDS))


def document_tools(documents: Documents) -> list[Tool]:
    """Make the tools that list, read and search *documents*; what goes wrong is told to the model."""
    limits = documents.limits

    @function_tool
    def list_files() -> str:
        """List the files that can be read."""
        paths = documents.paths()
        more = len(paths) - limits.listed
        return "\n".join([*paths[: limits.listed], *([f"... and {more} more"] if more > 0 else [])]) or "no files"

    @function_tool
    def read_lines(
        path: Annotated[str, Field(description="The file, as it is listed.")],
        first_line: Annotated[int, Field(ge=1, description="Number of the first line, from 1.")] = 1,
        last_line: Annotated[int | None, Field(description="Number of the last line.")] = None,
    ) -> str:
        """Read lines of a file, with their numbers."""
        lines = documents.lines(path)
        if first_line > max(len(lines), 1):
            raise DocumentError(f"{path!r} has {len(lines)} lines, none with the number {first_line}")
        if last_line is not None and last_line < first_line:
            raise DocumentError(f"the last line, {last_line}, is before the first, {first_line}")
        last = min(len(lines), first_line + limits.lines - 1, last_line or len(lines))
        numbered = [f"{number}: {_cut(lines[number - 1], limits)}" for number in range(first_line, last + 1)]
        shown = _fitting(numbered, limits)
        return "\n".join([f"{path}, lines {first_line} to {first_line + len(shown) - 1} of {len(lines)}", *shown])

    @function_tool
    def search(
        query: Annotated[str, Field(description="A few key words.")],
    ) -> str:
        """Find lines that hold the key words, in all files; each is given as file:line: text."""
        hits, in_all = documents.search(query)
        shown = _fitting([f"{hit.path}:{hit.line}: {_cut(hit.text, limits)}" for hit in hits], limits)
        more = in_all - len(shown)
        return "\n".join([*shown, *([f"... and {more} more lines"] if more else [])]) or f"nothing found for {query!r}"

    return [list_files, read_lines, search]


def _cut(line: str, limits: Limits) -> str:
    return line if len(line) <= limits.line_chars else f"{line[: limits.line_chars]}..."


def _fitting(lines: list[str], limits: Limits) -> list[str]:
    """Give the first of *lines* that together fit into an answer, one at least."""
    room = limits.answer_chars
    for at, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            return lines[: max(at, 1)]
    return lines
