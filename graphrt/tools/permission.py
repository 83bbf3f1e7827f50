"""Who decides whether a tool may be called."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphrt.tools.base import ToolContext


@dataclass(frozen=True, slots=True)
class PermissionDecision:
    """Yes, or no with a reason."""

    allowed: bool
    reason: str | None = None
    """Why not; the model reads it."""

    @classmethod
    def allow(cls) -> PermissionDecision:
        """Let the call through."""
        return cls(allowed=True)

    @classmethod
    def deny(cls, reason: str) -> PermissionDecision:
        """Refuse the call; *reason* is told to the model, and the run goes on."""
        return cls(allowed=False, reason=reason)


class PermissionChecker(ABC):
    """Decide on each call of a tool before it is executed."""

    @abstractmethod
    async def check(self, tool_id: str, arguments: dict[str, Any], ctx: ToolContext[Any]) -> PermissionDecision:
        """Decide on one call, whose arguments have been checked against the tool's schema.

        What it raises is raised to the run's caller, and the tool is not executed.
        """
