"""A retriever as a tool, so that a model decides itself when to look something up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from graphrt.errors import ToolError, ToolErrorKind
from graphrt.tools.base import Tool, ToolContext, ToolDescriptor

if TYPE_CHECKING:
    from graphrt.memory.retriever import MemoryRetriever

MAX_LIMIT: Final = 50
"""Texts that one call may ask for."""


class RetrieveTool(Tool):
    """The tool ``retrieve``: takes a ``query`` and perhaps a ``limit``, gives the texts that the retriever finds.

    What the retriever raises is the tool's error.
    """

    def __init__(self, retriever: MemoryRetriever, limit: int = 5) -> None:
        """Take whom to ask, and how many texts to ask for where the model does not say.

        Raises:
            ToolError: The limit is not from 1 to 50.
        """
        if not 1 <= limit <= MAX_LIMIT:
            raise ToolError(
                f"the limit of tool 'retrieve' is {limit}",
                ToolErrorKind.REGISTRATION,
                "retrieve",
                hint=f"give a number from 1 to {MAX_LIMIT}",
            )
        self._retriever = retriever
        self._limit = limit
        self._descriptor = ToolDescriptor("retrieve", "Look up what is remembered about a topic.", _parameters(limit))

    @property
    def descriptor(self) -> ToolDescriptor:
        """What the model is told of the tool."""
        return self._descriptor

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> list[str]:
        """Ask the retriever, and give at most as many texts as were asked for.

        Raises:
            ToolError: The arguments do not fit. What the retriever raises is raised as it is.
        """
        self.check(arguments)
        limit = int(arguments.get("limit", self._limit))  # JSON Schema takes 5.0 for an integer
        texts = await self._retriever.retrieve(arguments["query"], limit=limit)
        if isinstance(texts, (str, bytes, Mapping)) or not isinstance(texts, Iterable):
            raise TypeError(
                f"{type(self._retriever).__name__}.retrieve() gave a {type(texts).__name__}, and no list of texts"
            )
        return list(texts)[:limit]


def _parameters(limit: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1, "description": "What to look for, in a few words."},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_LIMIT,
                "default": limit,
                "description": "How many texts to give at most.",
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    }
