"""Which tools there are."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from graphrt.errors import ToolError, ToolErrorKind
from graphrt.tools.base import Tool, ToolContext, ToolDescriptor, ToolResult
from graphrt.tools.function import FunctionTool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from graphrt.tools.permission import PermissionChecker


@dataclass(frozen=True, slots=True)
class _Entry:
    tool: Tool
    source: str
    """Where the tool comes from, in words; a conflict names it."""


class ToolRegistry:
    """Tools by id, in the order of their registration; may be used from several threads at once."""

    def __init__(self, *, permission_checker: PermissionChecker | None = None) -> None:
        """Start empty; *permission_checker* decides on each call of these tools."""
        self._checker = permission_checker
        self._entries: dict[str, _Entry] = {}
        self._parent: ToolRegistry | None = None
        self._children: WeakSet[ToolRegistry] = WeakSet()
        self._lock = threading.RLock()  # one for a registry and everything laid over it

    @property
    def permission_checker(self) -> PermissionChecker | None:
        """Who decides on each call; an overlay without one of its own has its parent's."""
        if self._checker is None and self._parent is not None:
            return self._parent.permission_checker
        return self._checker

    def register(self, tool: Tool | Callable[..., Any], *, id: str | None = None, source: str | None = None) -> Tool:
        """Add a tool, or a function as one, and return it; also a decorator without arguments.

        A tool that needs more said of it is made by a second decorator below this one:

            @tools.register
            @function_tool(requires_approval=True)
            def order(item: str) -> str: ...

        Args:
            tool: The tool. A plain function is made into one by ``function_tool``.
            id: The name the model calls it by, in place of the tool's own.
            source: Where it comes from, for the message of a conflict: ``"plugin 'search'"``.

        Raises:
            ToolError: The id is taken, here or in a registry below or above; the message names both sources.
        """
        if not isinstance(tool, Tool):
            tool = FunctionTool(tool, namespace=sys._getframe(1).f_locals)
        if id is not None and id != tool.descriptor.id:
            tool = _Renamed(tool, id)
        entry = _Entry(tool, source or _origin(tool))
        tool_id = tool.descriptor.id
        with self._lock:
            taken = self._find(tool_id) or self._find_above(tool_id)
            if taken is not None:
                raise ToolError(
                    f"tool {tool_id!r} comes from {taken.source} and again from {entry.source}",
                    ToolErrorKind.REGISTRATION,
                    tool_id,
                    hint="register one of them under another name: id=",
                )
            self._entries[tool_id] = entry
        return tool

    def get(self, id: str) -> Tool | None:
        """Look a tool up; None if there is none."""
        with self._lock:
            entry = self._find(id)
        return None if entry is None else entry.tool

    def source(self, id: str) -> str | None:
        """Say where a tool comes from, in words; None if there is no such tool."""
        with self._lock:
            entry = self._find(id)
        return None if entry is None else entry.source

    def ids(self) -> list[str]:
        """List the ids, the parent's first."""
        with self._lock:
            return [*(() if self._parent is None else self._parent.ids()), *self._entries]

    def descriptors(self) -> list[ToolDescriptor]:
        """List what a model is told of the tools, the parent's first."""
        return [tool.descriptor for tool in self.tools().values()]

    def tools(self) -> dict[str, Tool]:
        """Give the tools by id, the parent's first, as they are now."""
        with self._lock:
            below = {} if self._parent is None else self._parent.tools()
            return below | {id: entry.tool for id, entry in self._entries.items()}

    def child(self, *, permission_checker: PermissionChecker | None = None) -> ToolRegistry:
        """Lay an empty registry over this one: it sees these tools, and what is added to it stays its own."""
        child = ToolRegistry(permission_checker=permission_checker)
        child._parent = self
        child._lock = self._lock
        with self._lock:
            self._children.add(child)
        return child

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self.get(id) is not None

    def _find(self, id: str) -> _Entry | None:
        entry = self._entries.get(id)
        return entry if entry is not None or self._parent is None else self._parent._find(id)

    def _find_above(self, id: str) -> _Entry | None:
        for child in self._children:
            if (entry := child._entries.get(id) or child._find_above(id)) is not None:
                return entry
        return None


class _Renamed(Tool):
    """A tool under another name."""

    def __init__(self, tool: Tool, id: str) -> None:
        self._tool = tool
        self._id = id
        self.timeout = tool.timeout
        self.requires_approval = tool.requires_approval
        self.exclusive = tool.exclusive

    @property
    def descriptor(self) -> ToolDescriptor:
        return replace(self._tool.descriptor, id=self._id)

    def check(self, arguments: Mapping[str, Any]) -> None:
        self._tool.check(arguments)

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> ToolResult | Any:
        return await self._tool.execute(arguments, ctx)


def _origin(tool: Tool) -> str:
    """Say where a tool is defined, such as ``app.search``."""
    if isinstance(tool, _Renamed):
        return _origin(tool._tool)
    named: Any = tool if isinstance(tool, FunctionTool) else type(tool)
    name = getattr(named, "__qualname__", type(named).__qualname__)
    return f"{named.__module__}.{name}"
