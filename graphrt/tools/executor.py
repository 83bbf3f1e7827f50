"""Answering the tool calls of a model: whatever becomes of a call, the model is told."""

from __future__ import annotations

import copy
import logging
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import anyio

from graphrt.errors import GraphrtError, ToolError, ToolErrorKind
from graphrt.tools.base import Tool, ToolContext, ToolResult
from graphrt.tools.permission import PermissionDecision

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from graphrt.messages import ToolCall
    from graphrt.tools.permission import PermissionChecker
    from graphrt.tools.registry import ToolRegistry

log = logging.getLogger(__name__)

Approve: TypeAlias = Callable[[Tool, "ToolCall", ToolContext[Any]], Awaitable[PermissionDecision]]
"""Asks a person about a call of a tool that ``requires_approval``."""


async def answer_call(
    tool: Tool | None,
    call: ToolCall,
    ctx: ToolContext[Any],
    *,
    permission: PermissionChecker | None = None,
    timeout: float | None = None,
    approve: Approve | None = None,
    known: Iterable[str] = (),
) -> ToolResult:
    """Answer one call, with what the tool gives or with an error for the model to read.

    An error says that the tool is unknown, that the arguments are no JSON or do not fit, that permission or
    approval was denied (the tool was not called then), that the tool raised an exception, or that it took too
    long. Cancellation, a deadline that is not the call's own, and all else that is no ``Exception`` pass
    through; so does what *permission* and *approve* raise.

    Args:
        tool: What the call names; None if there is no such tool.
        call: The model's call.
        ctx: Passed to the tool, with the call's id and the tool's.
        permission: Decides on the call once its arguments fit.
        timeout: Seconds that the tool may take; the nearest of this and the tool's own wins.
        approve: Asks a person, outside that time; without it a tool that requires approval is not called.
        known: Ids to name to a model that calls an unknown tool.
    """
    if tool is None:
        return _unknown(call, known)
    if ctx.tool_call_id != call.id or ctx.tool_id != call.name:
        ctx = replace(ctx, tool_call_id=call.id, tool_id=call.name)
    refused = await refuse_call(tool, call, ctx, permission=permission)
    if refused is not None:
        return refused
    if tool.requires_approval:
        decision = PermissionDecision.deny("it needs a person's approval, and there is nobody to ask")
        if approve is not None:
            decision = await approve(tool, call, ctx)
        if not decision.allowed:
            return _denied(call, decision)
    limits = [limit for limit in (tool.timeout, timeout) if limit is not None]
    return await _execute(tool, call, ctx, min(limits, default=None))


async def refuse_call(
    tool: Tool, call: ToolCall, ctx: ToolContext[Any], *, permission: PermissionChecker | None = None
) -> ToolResult | None:
    """Say why *call* must not be executed, or None if it may be: the first half of ``answer_call``.

    Of use before a person is asked: nobody should have to approve a call that cannot be made.
    """
    if call.error is not None:
        reason = f"its arguments are not valid JSON: {call.error}"
        return _not_executed(call, reason, ToolErrorKind.INVALID_ARGUMENTS)
    try:
        tool.check(_copy(call.arguments))
    except Exception as error:  # noqa: BLE001  a tool's check is the tool's code: its failure is told to the model
        kind = error.kind if isinstance(error, ToolError) else ToolErrorKind.INVALID_ARGUMENTS
        return _not_executed(call, _in_words(error), kind, cause=error)
    if permission is not None:
        decision = await permission.check(call.name, _copy(call.arguments), ctx)
        if not isinstance(decision, PermissionDecision):
            raise TypeError(
                f"{permission!r} gave {decision!r} on a call of tool {call.name!r}, which is no PermissionDecision: "
                "give PermissionDecision.allow() or .deny(reason)"
            )
        if not decision.allowed:
            return _denied(call, decision)
    return None


async def _execute(tool: Tool, call: ToolCall, ctx: ToolContext[Any], timeout: float | None) -> ToolResult:
    try:
        if timeout is None:
            return await _result(tool, call, ctx)
        with anyio.move_on_after(timeout):
            return await _result(tool, call, ctx)
    except Exception as error:  # whatever a tool raises is told to the model, and the run goes on
        log.info("tool %r failed", call.name, exc_info=error)
        kind = error.kind if isinstance(error, ToolError) else ToolErrorKind.EXECUTION
        return ToolResult.error(f"tool {call.name!r} failed: {_in_words(error)}", kind=kind, cause=error)
    return ToolResult.error(
        f"tool {call.name!r} was stopped: it had no result after {timeout:g} seconds",
        kind=ToolErrorKind.TIMEOUT,
    )


async def _result(tool: Tool, call: ToolCall, ctx: ToolContext[Any]) -> ToolResult:
    value = await tool.execute(_copy(call.arguments), ctx)
    result = value if isinstance(value, ToolResult) else ToolResult.success(value)
    _ = result.text  # made here, and kept: data that has no text is the tool's failure
    return result


def _copy(arguments: dict[str, Any]) -> dict[str, Any]:
    """Give arguments that share nothing with the call, which belongs to the conversation."""
    return {key: each if type(each) in _PLAIN else copy.deepcopy(each) for key, each in arguments.items()}


_PLAIN: Final = frozenset({str, int, float, bool, NoneType})


def _unknown(call: ToolCall, known: Iterable[str]) -> ToolResult:
    names = ", ".join(known) or "none"
    return ToolResult.error(f"unknown tool {call.name!r}; the tools are: {names}", kind=ToolErrorKind.UNKNOWN)


def _not_executed(call: ToolCall, reason: str, kind: ToolErrorKind, cause: BaseException | None = None) -> ToolResult:
    return ToolResult.error(f"tool {call.name!r} was not executed: {reason}", kind=kind, cause=cause)


def _denied(call: ToolCall, decision: PermissionDecision) -> ToolResult:
    return _not_executed(call, f"permission denied: {decision.reason or 'no reason given'}", ToolErrorKind.DENIED)


def _in_words(error: BaseException) -> str:
    """Name an exception and what it says; a group by what is in it."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_in_words(each) for each in error.exceptions)
    if isinstance(error, GraphrtError):
        return error.message
    lines = traceback.format_exception_only(error)  # survives an exception whose __str__ fails
    return next((line for line in lines if not line.startswith(" ")), lines[-1]).strip()


# --- several calls at once


class ToolGate:
    """Let tools run side by side, but an exclusive one alone; first come, first served.

    One gate serves one event loop.
    """

    def __init__(self) -> None:
        """Start with nobody inside."""
        self._waiting: deque[_Turn] = deque()
        self._inside: set[_Turn] = set()

    def turn(self, *, exclusive: bool) -> _Turn:
        """Take the next place in the queue; ``async with`` it to wait for the turn, and to give it back."""
        turn = _Turn(self, exclusive)
        self._waiting.append(turn)
        self._admit()
        return turn

    def _admit(self) -> None:
        while self._waiting:
            if self._inside and (self._waiting[0].exclusive or any(turn.exclusive for turn in self._inside)):
                return
            turn = self._waiting.popleft()
            self._inside.add(turn)
            turn.come.set()

    def _leave(self, turn: _Turn) -> None:
        self._inside.discard(turn)
        if turn in self._waiting:
            self._waiting.remove(turn)
        self._admit()


class _Turn:
    """One place in the queue of a gate."""

    def __init__(self, gate: ToolGate, exclusive: bool) -> None:
        self.exclusive = exclusive
        self.come = anyio.Event()
        self._gate = gate

    async def __aenter__(self) -> Self:
        try:
            await self.come.wait()
        except BaseException:
            self._gate._leave(self)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Give the turn back."""
        self._gate._leave(self)


class ToolExecutor(ABC):
    """Answer the tool calls of one reply, without a graph."""

    def __init__(self, registry: ToolRegistry, *, timeout: float | None = None, approve: Approve | None = None) -> None:
        """Take the tools, whose registry says who permits; the rest is that of ``answer_call``."""
        self._registry = registry
        self._timeout = timeout
        self._approve = approve

    @abstractmethod
    async def execute(self, calls: Sequence[ToolCall], ctx: ToolContext[Any] | None = None) -> list[ToolResult]:
        """Answer each call; the results are in the order of the calls, whichever ended first."""

    async def _answer(self, call: ToolCall, ctx: ToolContext[Any] | None) -> ToolResult:
        return await answer_call(
            self._registry.get(call.name),
            call,
            ToolContext() if ctx is None else ctx,
            permission=self._registry.permission_checker,
            timeout=self._timeout,
            approve=self._approve,
            known=self._registry.ids(),
        )


class SequentialToolExecutor(ToolExecutor):
    """Answer one call after the other."""

    async def execute(self, calls: Sequence[ToolCall], ctx: ToolContext[Any] | None = None) -> list[ToolResult]:
        """Answer each call, in order."""
        return [await self._answer(call, ctx) for call in calls]


class ParallelToolExecutor(ToolExecutor):
    """Answer all calls at once; a tool that is ``exclusive`` runs alone."""

    async def execute(self, calls: Sequence[ToolCall], ctx: ToolContext[Any] | None = None) -> list[ToolResult]:
        """Answer each call; the results are in the order of the calls, whichever ended first.

        A failing tool leaves the others alone. What passes through ``answer_call`` cancels them, and is
        raised bare when they have ended.
        """
        gate = ToolGate()
        results: dict[int, ToolResult] = {}
        raised: dict[int, BaseException] = {}

        async def answer(index: int, call: ToolCall, turn: _Turn) -> None:
            try:
                async with turn:
                    results[index] = await self._answer(call, ctx)
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # noqa: BLE001  raised below, outside the group that would wrap it
                raised[index] = error
                tasks.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                for index, call in enumerate(calls):
                    tool = self._registry.get(call.name)
                    turn = gate.turn(exclusive=tool is not None and tool.exclusive)
                    tasks.start_soon(answer, index, call, turn)
        finally:
            if raised:
                raise raised[min(raised)]
        return [results[index] for index in range(len(calls))]
