"""The folder that the demo writes to, which is its own or nobody's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from graphrt.demo.confined import MARKER
from graphrt.errors import GraphrtError

DEFAULT_OUT: Final = "graphrt-demo"
REPORT: Final = "report.md"
GRAPH: Final = "graph.svg"
TRACE: Final = "trace.jsonl"

_MARKER_TEXT: Final = "This folder was made by `graphrt demo`, which overwrites its own files in it.\n"


class OutputError(GraphrtError):
    """The folder cannot be written to, or is somebody else's."""


class OutputFolder:
    """A folder with a marker in it. Files are replaced whole, so that a reader never sees half of one."""

    def __init__(self, path: str | Path) -> None:
        """Make the folder, or take one that is empty or has the marker.

        Raises:
            OutputError: There is something else in it, or it cannot be written.
        """
        self.path = Path(path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            names = set(os.listdir(self.path))  # noqa: PTH208  # names are enough
            if names and MARKER not in names:
                raise OutputError(
                    f"{os.fspath(path)!r} has files in it that the demo did not write",
                    hint="name another folder with --out",
                )
            (self.path / MARKER).write_text(_MARKER_TEXT, encoding="utf-8")
        except OSError as error:
            raise _cannot_write(self.path, error) from error

    def write(self, name: str, text: str) -> Path:
        """Write one file, in place of what the demo wrote there before; a link is replaced, not followed.

        Raises:
            OutputError: It cannot be written.
        """
        path, part = self.path / name, self.path / f".{name}.part"
        try:
            part.unlink(missing_ok=True)
            part.write_text(text, encoding="utf-8", newline="\n")
            part.replace(path)
        except OSError as error:
            raise _cannot_write(path, error) from error
        return path

    def clear(self, name: str) -> Path:
        """Take away what the demo wrote before under *name*, for a file that is written bit by bit.

        Raises:
            OutputError: It cannot be taken away.
        """
        path = self.path / name
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _cannot_write(path, error) from error
        return path


def _cannot_write(path: Path, error: OSError) -> OutputError:
    return OutputError(
        f"cannot write to {os.fspath(path)!r}: {error.strerror or error}",
        hint="name another folder with --out",
    )
