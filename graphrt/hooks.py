"""Hooks: functions an application hangs on the events of its agents.

A hook watches, and on two events it may refuse. It answers with a value; a mistake in it stays its own
unless it was registered as critical.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from graphrt.errors import HookBlockedError

log = logging.getLogger(__name__)


class HookEvent(StrEnum):
    """What a hook can be registered for.

    Attributes:
        PRE_REQUEST: Before a model is asked; a hook may block. Data: ``request``, ``model``, ``messages``. An agent
            that another one calls has a ``run_id`` of its own.
        POST_REQUEST: After a model answered. Data: those of ``PRE_REQUEST``, and ``response``, an ``LLMResponse``.
        ON_RETRY: Before the pause that precedes another attempt. Data: ``attempt`` (the one that failed, from 1),
            ``delay`` (seconds), ``error``, ``model``.
        ON_ERROR: After a turn, a run of an agent or a planner's request failed. Data: ``error``, an ``AgentError``,
            and ``user_input`` where there is one.
        ON_TURN_START: Before a turn does anything; a hook may block. Data: ``user_input``.
        ON_TURN_END: After a turn succeeded. Data: ``user_input`` and ``response``, a ``ChatResponse``.
        ON_PLAN_STEP_COMPLETE: When a plan's step starts running, and again when it ends. Data: ``status``, a
            ``StepState`` (running at the start), and at the end ``response``, ``error`` or ``reason``.
    """

    PRE_REQUEST = "pre_request"
    POST_REQUEST = "post_request"
    ON_RETRY = "on_retry"
    ON_ERROR = "on_error"
    ON_TURN_START = "on_turn_start"
    ON_TURN_END = "on_turn_end"
    ON_PLAN_STEP_COMPLETE = "on_plan_step_complete"


_BLOCKABLE: Final = frozenset({HookEvent.ON_TURN_START, HookEvent.PRE_REQUEST})


@dataclass(frozen=True, slots=True)
class HookContext:
    """What a hook is told.

    Attributes:
        event: What has happened.
        session_id: The session, where there is one.
        run_id: The run, where there is one.
        turn_index: On events of a turn: the turns the session had finished before this one.
        plan_step_index: On ``ON_PLAN_STEP_COMPLETE``: the step's place in its plan, from 0.
        data: What else belongs to the event, by name; `HookEvent` lists it for each.
    """

    event: HookEvent
    session_id: str | None = None
    run_id: str | None = None
    turn_index: int | None = None
    plan_step_index: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HookResult:
    """A hook's answer.

    Attributes:
        blocked: Whether the hook refuses.
        reason: Why it blocks.
        hook: Name of the hook that blocked; filled in by the executor.
        cause: What the hook raised to block, if it raised.
    """

    blocked: bool = False
    reason: str | None = None
    hook: str | None = None
    cause: BaseException | None = None

    @classmethod
    def ok(cls) -> HookResult:
        """Let things go on."""
        return cls()

    @classmethod
    def block(cls, reason: str = "") -> HookResult:
        """Refuse, and say why."""
        return cls(blocked=True, reason=reason)

    def raise_if_blocked(self, event: HookEvent) -> None:
        """Turn a block into an error.

        Raises:
            HookBlockedError: A hook blocked *event*.
        """
        if self.blocked:
            raise HookBlockedError(self.reason or "", event=event, hook=self.hook, cause=self.cause)


Hook: TypeAlias = Callable[[HookContext], HookResult | Awaitable[HookResult | None] | None]
"""Called with the context, on the event loop. Any answer but a ``HookResult`` counts as ``ok``."""

HookSpan: TypeAlias = Callable[[str, HookContext], AbstractContextManager[Callable[[BaseException], object]]]
"""Opens a span around one call of the named hook, and gives the function that marks the span as failed."""


@dataclass(frozen=True, slots=True)
class _Registered:
    hook: Hook
    name: str
    critical: bool


class HookExecutor:
    """Keeps hooks by event and calls them in the order of their registration.

    Made to be shared: hooks may be registered while others run, and take part from the next event on.
    """

    def __init__(self, *, span: HookSpan | None = None) -> None:
        self._hooks: dict[HookEvent, tuple[_Registered, ...]] = {}
        self._span = span

    def register(self, event: HookEvent, hook: Hook, *, name: str | None = None, critical: bool = False) -> None:
        """Add *hook*, a function or an async function, to *event*.

        A *critical* hook's exception ends what it was called from; any other hook's is logged and passed
        over.

        Raises:
            TypeError: The hook cannot be called.
            ValueError: The event is none of ``HookEvent``.
        """
        if not callable(hook):
            raise TypeError(f"hook {hook!r} cannot be called")
        own_name: str = getattr(hook, "__qualname__", type(hook).__qualname__)
        entry = _Registered(hook, name or own_name, critical)
        event = HookEvent(event)
        self._hooks[event] = (*self._hooks.get(event, ()), entry)

    def names(self, event: HookEvent) -> tuple[str, ...]:
        """List the hooks of *event*, in the order in which they are called."""
        return tuple(entry.name for entry in self._hooks.get(HookEvent(event), ()))

    async def execute(self, event: HookEvent, ctx: HookContext, *, span: HookSpan | None = None) -> HookResult:
        """Call the hooks of *event*, one after another, until one blocks.

        A hook blocks by returning ``HookResult.block(reason)`` or by raising ``HookBlockedError``, and only
        on ``ON_TURN_START`` and ``PRE_REQUEST``; on other events a block is logged and ignored. What a block
        means is the caller's: see ``HookResult.raise_if_blocked``. *span* is used in place of the executor's
        own.

        Raises:
            Exception: What a critical hook raised; hooks after it were not called.
        """
        entries = self._hooks.get(event)
        if not entries:
            return HookResult.ok()
        opened = span or self._span or _no_span
        for entry in entries:
            result = await _call(entry, ctx, opened)
            if not result.blocked:
                continue
            if event in _BLOCKABLE:
                return result
            log.warning("hook %r tried to block %s, which cannot be blocked: %s", entry.name, event, result.reason)
        return HookResult.ok()


async def _call(entry: _Registered, ctx: HookContext, span: HookSpan) -> HookResult:
    with span(entry.name, ctx) as mark_failed:
        try:
            answer = entry.hook(ctx)
            if inspect.isawaitable(answer):
                answer = await answer
        except HookBlockedError as error:
            return HookResult(blocked=True, reason=error.reason, hook=entry.name, cause=error)
        except Exception as error:
            if entry.critical:
                raise
            log.exception("hook %r failed on %s", entry.name, ctx.event)
            mark_failed(error)
            return HookResult.ok()
    if isinstance(answer, HookResult) and answer.blocked:
        return HookResult(blocked=True, reason=answer.reason, hook=entry.name, cause=answer.cause)
    return HookResult.ok()


def _no_span(name: str, ctx: HookContext) -> AbstractContextManager[Callable[[BaseException], object]]:
    return nullcontext(_ignore)


def _ignore(error: BaseException) -> None:
    """Take the place of a span that nobody records."""
