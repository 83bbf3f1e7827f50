"""One folder whose files can be read, and from which no path, link or race leads out.

A path is taken only as the folder lists it: every part has to be among the names of its folder, letter by
letter, so that other spellings of a name (case, short names, streams, trailing dots) are no way in. No link
is followed, wherever it leads. Where the system can open a name relative to an open folder, each part is
opened so, and what is swapped meanwhile cannot be reached; elsewhere the place is checked before and after
opening.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from graphrt.errors import GraphrtError

if TYPE_CHECKING:
    from collections.abc import Iterator

MARKER: Final = ".graphrt-demo"
"""A file of this name marks a folder that the demo has written; it is no document."""

SKIPPED: Final = frozenset({"__pycache__", "build", "dist", "htmlcov", "node_modules", "site-packages", "target"})
"""Folders with what programs made, by name in lower case."""

_SIGNS: Final = frozenset({MARKER, "pyvenv.cfg", "CACHEDIR.TAG"})  # a folder that holds one was made by a program
_SKIPPED_ENDINGS: Final = (".egg-info", ".dist-info")
_LONGEST_PATH: Final = 1000
_CAN_OPEN_IN_FOLDER: Final = (
    os.open in os.supports_dir_fd and os.stat in os.supports_dir_fd and os.scandir in os.supports_fd
)
_NO_LINKS: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINKS
_FILE: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _NO_LINKS  # opening a pipe does not wait

Place: TypeAlias = int | Path
"""An open folder: its descriptor, or its path where folders cannot be opened."""


class DocumentError(GraphrtError):
    """A path or a request that cannot be served; the text is written for the model that asked."""


class EntryKind(StrEnum):
    """What a name in a folder stands for."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder."""

    name: str
    kind: EntryKind
    size: int
    """Bytes; of use for files only."""


class ConfinedFolder:
    """Lists and reads what is below *root*; hidden names and what programs made are not there."""

    def __init__(self, root: str | Path, *, relative_opens: bool = _CAN_OPEN_IN_FOLDER) -> None:
        """Take the folder that *root* leads to now; links in *root* itself are followed.

        *relative_opens* False works with paths alone, as on systems that cannot open relative to a folder.

        Raises:
            DocumentError: There is no such folder.
        """
        try:
            self.root = Path(root).resolve(strict=True)
            self._identity = self.root.stat()
        except (OSError, ValueError) as error:
            raise DocumentError(f"there is no folder {os.fspath(root)!r}") from error
        if not stat.S_ISDIR(self._identity.st_mode):
            raise DocumentError(f"{os.fspath(root)!r} is no folder")
        self._relative = relative_opens

    def entries(self, path: str = "") -> list[Entry]:
        """List one folder by name; links and special files are in it, by kind.

        Raises:
            DocumentError: The path is refused, or is no folder.
        """
        with self._folder(path_parts(path) if path else ()) as place:
            names = sorted(name for name in _names(place, path or ".") if _is_shown(name))
            entries = [_entry(place, name) for name in names]
            return [each for each in entries if each is not None and not self._is_skipped(place, each)]

    def read(self, path: str, *, most: int) -> bytes:
        """Read a whole file.

        Args:
            path: Relative to the folder, parts separated by ``/``.
            most: Bytes; a larger file is refused.

        Raises:
            DocumentError: The path is refused, or the file cannot be read.
        """
        *folders, name = path_parts(path)
        with self._folder(folders) as place:
            descriptor = self._open_file(place, name, path)
            with os.fdopen(descriptor, "rb") as file:
                size = os.fstat(descriptor).st_size
                data = file.read(most + 1) if size <= most else b""
        if size > most or len(data) > most:
            raise DocumentError(f"{path!r} has more than {most:,} bytes and cannot be read here")
        return data

    @contextmanager
    def _folder(self, parts: tuple[str, ...] | list[str]) -> Iterator[Place]:
        """Open the folder that *parts* lead to, one part after the other."""
        place = self._open_root()
        try:
            for at, name in enumerate(parts):
                inner = self._open_folder(place, name, "/".join(parts[: at + 1]))
                _close(place)
                place = inner
            yield place
        finally:
            _close(place)

    def _open_root(self) -> Place:
        if not self._relative:
            if not os.path.samestat(self._identity, self.root.stat()):
                raise DocumentError("the folder has been replaced")
            return self.root
        try:
            descriptor = os.open(self.root, _FOLDER)
        except OSError as error:
            raise DocumentError(f"the folder cannot be opened: {error.strerror}") from error
        if not os.path.samestat(self._identity, os.fstat(descriptor)):
            os.close(descriptor)
            raise DocumentError("the folder has been replaced")
        return descriptor

    def _open_folder(self, place: Place, name: str, path: str) -> Place:
        entry = _listed(place, name, path)
        if entry.kind is not EntryKind.FOLDER:
            raise DocumentError(f"{path!r} is no folder")
        if self._is_skipped(place, entry):
            raise DocumentError(f"{path!r} holds what programs made, which cannot be read here")
        if isinstance(place, Path):
            return place / name
        try:
            return os.open(name, _FOLDER, dir_fd=place)
        except OSError as error:
            raise _cannot_open(path, error) from error

    def _open_file(self, place: Place, name: str, path: str) -> int:
        entry = _listed(place, name, path)
        if entry.kind is EntryKind.FOLDER:
            raise DocumentError(f"{path!r} is a folder", hint="name a file in it")
        if entry.kind is not EntryKind.FILE:
            raise DocumentError(f"{path!r} is no ordinary file and cannot be read here")
        try:
            at = {} if isinstance(place, Path) else {"dir_fd": place}
            descriptor = os.open(place / name if isinstance(place, Path) else name, _FILE, **at)
        except OSError as error:
            raise _cannot_open(path, error) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode) or not self._is_inside(place, name, descriptor):
            os.close(descriptor)
            raise DocumentError(f"{path!r} changed while it was opened")
        return descriptor

    def _is_inside(self, place: Place, name: str, descriptor: int) -> bool:
        """Say whether a file opened by path is the one looked for; one opened relatively always is."""
        if not isinstance(place, Path):
            return True
        path = place / name
        where = Path(os.path.realpath(path))
        return (
            where == path and where.is_relative_to(self.root) and os.path.samestat(os.fstat(descriptor), where.lstat())
        )

    def _is_skipped(self, place: Place, entry: Entry) -> bool:
        """Say whether *entry* is a folder with what programs made."""
        if entry.kind is not EntryKind.FOLDER:
            return False
        name = entry.name.lower()
        if name in SKIPPED or name.endswith(_SKIPPED_ENDINGS):
            return True
        return any(_status(place, f"{entry.name}/{sign}") is not None for sign in _SIGNS)


def path_parts(path: str) -> tuple[str, ...]:
    """Split a path into its parts.

    Raises:
        DocumentError: It could lead out of a folder, or to what is hidden.
    """
    if "\0" in path or any(ord(letter) < ord(" ") for letter in path):  # also what no name should hold
        raise DocumentError(f"{path!r} holds control characters")
    if not path.strip() or len(path) > _LONGEST_PATH:
        raise DocumentError("a path is missing" if not path.strip() else "the path is too long")
    if path.startswith(("/", "~")) or "\\" in path or Path(path).is_absolute() or Path(path).drive:
        raise DocumentError(f"{path!r} is not a path inside the folder", hint="give it as it is listed")
    parts = tuple(part for part in path.split("/") if part not in {"", "."})
    if ".." in parts:
        raise DocumentError(f"{path!r} leads out of the folder", hint="give it as it is listed")
    if hidden := next((part for part in parts if part.startswith(".")), None):
        raise DocumentError(f"{hidden!r} is hidden and cannot be read here")
    if not parts:
        raise DocumentError(f"{path!r} is the folder itself", hint="name a file in it")
    return parts


def _is_shown(name: str) -> bool:
    """Say whether a name can be given back as a path, and is not hidden."""
    return not name.startswith((".", "~")) and "\\" not in name and name.isprintable() and name.strip() == name


def _listed(place: Place, name: str, path: str) -> Entry:
    """Find *name* among the names of its folder, as it is spelt there."""
    names = _names(place, path)
    entry = _entry(place, name) if name in names else None
    if entry is None:
        alike = sorted(each for each in names if each.casefold() == name.casefold() and _is_shown(each))
        raise DocumentError(
            f"there is no {path!r}",
            hint=f"its name is {alike[0]!r}" if alike else "list the files for their names",
        )
    if entry.kind is EntryKind.LINK:
        raise DocumentError(f"{path!r} is a link, and links are not followed")
    return entry


def _names(place: Place, path: str) -> list[str]:
    try:
        with os.scandir(place) as found:
            return [each.name for each in found]
    except OSError as error:
        raise _cannot_open(path, error) from error


def _entry(place: Place, name: str) -> Entry | None:
    """Describe *name*; None when it is gone by now."""
    found = _status(place, name)
    return None if found is None else Entry(name, _kind(found), found.st_size)


def _status(place: Place, name: str) -> os.stat_result | None:
    try:
        if isinstance(place, Path):
            return (place / name).lstat()
        return os.stat(name, dir_fd=place, follow_symlinks=False)
    except OSError:
        return None


def _kind(found: os.stat_result) -> EntryKind:
    junction = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", None)  # on Windows: a folder that lies elsewhere
    if stat.S_ISLNK(found.st_mode) or (junction and getattr(found, "st_reparse_tag", None) == junction):
        return EntryKind.LINK
    if stat.S_ISDIR(found.st_mode):
        return EntryKind.FOLDER
    return EntryKind.FILE if stat.S_ISREG(found.st_mode) else EntryKind.OTHER


def _cannot_open(path: str, error: OSError) -> DocumentError:
    return DocumentError(f"{path!r} cannot be opened: {error.strerror or error}")


def _close(place: Place) -> None:
    if isinstance(place, int):
        os.close(place)
