"""What a person sees of a run of the demo: a table that changes, or a line for each thing that happens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from graphrt.cli import counted, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from rich.console import Console, RenderableType

    from graphrt.graph import RunEvent, StepRef

_TITLES: Final[Mapping[str, str]] = {
    "survey": "look over the documents",
    "planner": "plan",
    "writer": "write the report",
}
"""The root's steps that are shown, by node."""

_ROWS: Final[Mapping[str, str]] = {**{node: node for node in _TITLES}, "check": "planner"}
"""In which row a node of the root is shown."""

_LONGEST_DETAIL: Final = 160
_TEXT_LINES: Final = 8
_REFRESHES: Final = 8  # a second


class RowState(StrEnum):
    """How far a line of the table is."""

    ACTIVE = "active"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


_MARKS: Final[Mapping[RowState, tuple[str, str]]] = {
    RowState.ACTIVE: ("..", "cyan"),
    RowState.DONE: ("ok", "green"),
    RowState.FAILED: ("no", "red"),
    RowState.STOPPED: ("--", "yellow"),
}
_STATES: Final[Mapping[str, RowState]] = {
    "step.completed": RowState.DONE,
    "step.failed": RowState.FAILED,
    "step.timed_out": RowState.FAILED,
    "step.cancelled": RowState.STOPPED,
}


@dataclass(slots=True)
class Row:
    """One thing that is being done."""

    key: str
    title: str
    state: RowState = RowState.ACTIVE
    detail: str = ""


class Progress:
    """Keeps what the events of a run say about its progress; knows nothing of terminals."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.text = ""
        """What the writer has written so far."""
        self._items: dict[str, str] = {}  # the scope of a question, and its id

    def update(self, event: RunEvent) -> Row | None:
        """Take in one event, and give the row that it changed, if it changed one."""
        step, data = event.step, event.data
        if step is None:
            return None
        if event.type == "custom.research":
            self._items[step.scope] = data["id"]
            return self._open(data["id"], data["question"], "again: the answer named no source" * data["again"])
        key = self._key(step)
        if key is None:
            return None
        if key == "writer" and event.type in {"message.delta", "attempt.failed"}:  # a new attempt begins anew
            self.text = self.text + printable(data["text"]) if event.type == "message.delta" else ""
        if describe := _DETAILS.get(event.type):
            done = event.type == "custom.plan.accepted"
            return self._change(key, state=RowState.DONE if done else None, detail=describe(data))
        return self._moved(key, event.type, step, data)

    def _moved(self, key: str, kind: str, step: StepRef, data: Mapping[str, Any]) -> Row | None:
        """Take in that a step has started or ended, if it is one of those that are shown."""
        own = step.node == key and not step.scope
        if own and kind == "step.started":
            return self._open(key, _TITLES[key])
        state = _STATES.get(kind)
        if state is RowState.DONE:
            is_last = (own and key != "planner") or (step.node == "answer" and step.scope in self._items)
            return self._change(key, state=state, detail="") if is_last else None
        if state is None or data.get("handled"):
            return None
        error = data.get("error")
        return self._change(key, state=state, detail="" if error is None else one_line(error))

    def _key(self, step: StepRef) -> str | None:
        """Find the row that a step belongs to: that of its question, or of the node of the root around it."""
        for known, key in self._items.items():
            if step.scope == known or step.scope.startswith(f"{known}/"):
                return key
        node = re.split(r"[/#\[]", step.scope)[0] or step.node
        return _ROWS.get(node)

    def _open(self, key: str, title: str, detail: str = "") -> Row:
        row = self.rows.setdefault(key, Row(key, _on_one_line(title)))
        row.state, row.detail = RowState.ACTIVE, detail or row.detail
        return row

    def _change(self, key: str, *, state: RowState | None = None, detail: str | None = None) -> Row | None:
        """Change a row, and give it; None when there is none, or it says so already."""
        row = self.rows.get(key)
        if row is None:
            return None
        before = (row.state, row.detail)
        row.state = state or row.state
        row.detail = row.detail if detail is None else _on_one_line(detail)
        return row if (row.state, row.detail) != before else None


def printable(text: str) -> str:
    """Replace what could steer a terminal: documents and models may say anything."""
    return "".join(each if each.isprintable() or each == "\n" else " " for each in text)


def _on_one_line(text: str) -> str:
    text = " ".join(printable(text).split())
    return text if len(text) <= _LONGEST_DETAIL else f"{text[:_LONGEST_DETAIL]}..."


def _call(data: Mapping[str, Any]) -> str:
    """Describe a tool call in a few words."""
    return f"{data['tool_name']}({', '.join(map(str, data['parameters'].values()))})"


_DETAILS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "custom.plan.refused": lambda data: f"refused: {'; '.join(data['problems'])}",
    "custom.plan.accepted": lambda data: counted(len(data["steps"]), "question"),
    "tool.call.started": _call,
    "attempt.failed": lambda data: f"tries again after: {one_line(data['error'])}",
}
"""What an event says of the row that it belongs to."""


class PlainView:
    """Prints a line when something changes; for a file, a pipe or a log."""

    def __init__(self, console: Console) -> None:
        self.progress = Progress()
        self._console = console

    def __enter__(self) -> PlainView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave what was printed."""

    def show(self, event: RunEvent) -> None:
        """Take in one event, and print what it changed."""
        row = self.progress.update(event)
        if row is not None:
            detail = f": {row.detail}" if row.detail else ""
            self._console.print(f"[{_MARKS[row.state][0]}] {row.title}{detail}", markup=False, highlight=False)


class LiveView:
    """Shows a table that changes in place, and the end of the report while it is written."""

    def __init__(self, console: Console) -> None:
        self.progress = Progress()
        self._ended = False
        self._spinner = Spinner("dots", style="cyan")
        self._live = Live(
            console=console,
            get_renderable=self._render,
            refresh_per_second=_REFRESHES,
            vertical_overflow="crop",
        )

    def __enter__(self) -> LiveView:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the table as it is last, without the text."""
        self._ended = True
        self._live.stop()

    def show(self, event: RunEvent) -> None:
        """Take in one event; the terminal follows a few times a second."""
        self.progress.update(event)

    def _render(self) -> RenderableType:
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(width=2)
        table.add_column(ratio=3, overflow="fold")
        table.add_column(ratio=2, overflow="ellipsis", no_wrap=True, style="dim")
        for row in list(self.progress.rows.values()):
            mark, style = _MARKS[row.state]
            active = row.state is RowState.ACTIVE and not self._ended
            table.add_row(self._spinner if active else Text(mark, style=style), Text(row.title), Text(row.detail))
        if self._ended or not self.progress.text:
            return table
        lines = self.progress.text.splitlines()[-_TEXT_LINES:]
        return Group(table, Text(""), Text("\n".join(lines), style="italic", overflow="ellipsis"))


def view_for(console: Console) -> PlainView | LiveView:
    """Choose the view that suits where *console* prints."""
    return LiveView(console) if console.is_terminal else PlainView(console)
