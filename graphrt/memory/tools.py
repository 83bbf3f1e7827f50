"""Tools through which a model uses its session's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from graphrt.tools import function_tool

if TYPE_CHECKING:
    from graphrt.memory.session_memory import SessionMemory
    from graphrt.tools import Tool

Key = Annotated[str, Field(min_length=1, description="Short name of the note.")]
Text = Annotated[str, Field(description="What to remember.")]


def session_memory_tools(memory: SessionMemory) -> list[Tool]:
    """Make the tools ``session_memory_set``, ``_get``, ``_remove`` and ``_list`` over *memory*.

    Nothing registers them by itself: an application adds them to the tools of the agents that should have them.
    A memory that fails is the tool's error, which the model is told.
    """

    @function_tool(id="session_memory_set")
    async def set_note(key: Key, value: Text) -> str:
        """Write a note that every part of this session can read; replaces the note of the same name."""
        await memory.set(key, value)
        return f"noted under {key!r}"

    @function_tool(id="session_memory_get")
    async def get_note(key: Key) -> str:
        """Read one note of this session."""
        value = await memory.get(key)
        return f"there is no note {key!r}" if value is None else value

    @function_tool(id="session_memory_remove")
    async def remove_note(key: Key) -> str:
        """Remove one note of this session."""
        await memory.remove(key)
        return f"there is no note {key!r} any more"

    @function_tool(id="session_memory_list")
    async def list_notes() -> str:
        """List the notes of this session."""
        return await memory.snapshot() or "there are no notes"

    return [set_note, get_note, remove_note, list_notes]
