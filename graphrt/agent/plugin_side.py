"""What the plugins do in one turn, and what their own calls of models use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphrt.plugins import PhaseRuntime

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from typing import Self

    from graphrt.agent.session_state import Session
    from graphrt.messages import TokenUsage
    from graphrt.plugins import RunView
    from graphrt.registry import ResolvedAgent


class TurnPhases(PhaseRuntime):
    """The plugins of an agent in one turn of a session: they begin with the state that the session has kept."""

    def __init__(
        self, resolved: ResolvedAgent, session: Session, on_usage: Callable[[TokenUsage | None], None] | None
    ) -> None:
        """Take the agent and the session; *on_usage* is told what the plugins' own calls of models use."""
        spec = resolved.spec
        super().__init__(
            resolved.env,
            spec=spec,
            agent_id=spec.id,
            session_id=session.id,
            turn_index=session.turn_index,
            active=spec.active_hook_filter,
            state=session.state,
        )
        self._on_usage = on_usage

    def opened(self, run: RunView) -> AbstractAsyncContextManager[Self]:
        """Give the context manager around the run."""
        counted: Any = run if self._on_usage is None else _CountedRun(run, self._on_usage)
        return super().opened(counted)


class _CountedRun:
    """A run whose plugins' usage is told to one more."""

    def __init__(self, run: RunView, on_usage: Callable[[TokenUsage | None], None]) -> None:
        self._run = run
        self._on_usage = on_usage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def record_usage(self, usage: TokenUsage | None) -> None:
        self._run.record_usage(usage)
        self._on_usage(usage)
