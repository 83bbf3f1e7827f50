"""The phases of an agent's run, what a hook is told there, and what a gate may answer."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from graphrt.hooks import HookContext
    from graphrt.llm.executor import InferenceRequest
    from graphrt.messages import LLMResponse, Message, TokenUsage, ToolCall
    from graphrt.plugins.state import StateCommand
    from graphrt.tools.base import ToolResult


class Phase(StrEnum):
    """A boundary inside an agent's run at which plugins act.

    Attributes:
        RUN_START: Before the first round, when every plugin has been activated.
        STEP_START: A round begins.
        BEFORE_INFERENCE: The model is about to be asked; scheduled loop actions are carried out here.
        AFTER_INFERENCE: The model has answered.
        TOOL_GATE: Whether a call of a tool is carried out; see `GateDecision`.
        BEFORE_TOOL_EXECUTE: A call that no gate has answered is about to be carried out.
        AFTER_TOOL_EXECUTE: A call has been answered, also where permission was denied or the tool failed; not where
            a gate has answered it.
        STEP_END: A round is over, its tools included.
        RUN_END: After the last round, in every ending.
    """

    RUN_START = "run_start"
    STEP_START = "step_start"
    BEFORE_INFERENCE = "before_inference"
    AFTER_INFERENCE = "after_inference"
    TOOL_GATE = "tool_gate"
    BEFORE_TOOL_EXECUTE = "before_tool_execute"
    AFTER_TOOL_EXECUTE = "after_tool_execute"
    STEP_END = "step_end"
    RUN_END = "run_end"


class RunView(Protocol):
    """The run as a plugin sees it; the engine's handle of the run is one."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        ...

    @property
    def deps(self) -> Any:
        """What the caller gave the run as `deps=`."""
        ...

    @property
    def budget(self) -> Any:
        """What the run may still use, a `BudgetTracker`; None without a budget."""
        ...

    def emit(self, type: str, data: Mapping[str, Any] | None = None) -> None:
        """Put an event into the run's stream; a type of your own starts with `custom.`."""
        ...

    def record_usage(self, usage: TokenUsage | None) -> None:
        """Add what a model call has reported to the run's usage."""
        ...

    def hook_span(
        self, name: str, *, event: str | None = None, plugin_id: str | None = None, context: HookContext | None = None
    ) -> AbstractContextManager[Callable[[BaseException], object]]:
        """Open the span of one call of a hook; it gives the function that marks the span as failed."""
        ...


@dataclass(frozen=True, slots=True)
class PhaseContext:
    """What a hook, a handler or a transform is told; what does not belong to the phase is None.

    Attributes:
        phase: Where the run is.
        run_id: The run's id.
        state: The state as it was when the phase began, by key name. Values are copies: changing one changes
            nothing.
        agent_id: The agent whose run it is, if it has an id.
        session_id: The session, where the run is one of its turns.
        turn_index: Turns that the session had finished before this one.
        round: The round, from 1; None at RUN_START.
        messages: The conversation as it goes to the model, with its reply once there is one; empty at RUN_START.
        request: What the model is asked, or was asked last; None at RUN_START.
        response: The model's reply in this round, from AFTER_INFERENCE to RUN_END.
        tool_call: The call that it is about: at TOOL_GATE, BEFORE_TOOL_EXECUTE and AFTER_TOOL_EXECUTE.
        tool_result: What answers the call: at AFTER_TOOL_EXECUTE.
        run: The run: its deps and budget, and the way to its events.
    """

    phase: Phase
    run_id: str
    state: Mapping[str, Any]
    agent_id: str | None = None
    session_id: str | None = None
    turn_index: int | None = None
    round: int | None = None
    messages: Sequence[Message] = ()
    request: InferenceRequest | None = None
    response: LLMResponse | None = None
    tool_call: ToolCall | None = None
    tool_result: ToolResult | None = None
    run: RunView = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class GateDecision:
    """A gate's answer where a call is not to be carried out. Block comes before a result; None lets it through.

    Attributes:
        kind: `block` or `set_result`.
        reason: Why the run is blocked.
        result: What answers the call in the tool's place.
        plugin_id: The plugin whose gate decided; filled in when the gate is asked.
    """

    kind: Literal["block", "set_result"]
    reason: str | None = None
    result: ToolResult | None = None
    plugin_id: str | None = None

    @classmethod
    def block(cls, reason: str = "") -> GateDecision:
        """End the whole run as blocked, and say why; `set_result` refuses one call, and the run goes on."""
        return cls("block", reason=reason)

    @classmethod
    def set_result(cls, result: ToolResult) -> GateDecision:
        """Answer the call with *result*; the tool is not executed, and the run goes on.

        Raises:
            TypeError: It is no `ToolResult`.
        """
        from graphrt.tools.base import ToolResult

        if not isinstance(result, ToolResult):
            raise TypeError(f"set_result() takes a ToolResult, such as ToolResult.success(data), not {result!r}")
        return cls("set_result", result=result)


PhaseHook: TypeAlias = Callable[[PhaseContext], "Awaitable[StateCommand | None] | StateCommand | None"]
"""Called at a phase. It may be called again, with newer state, when its command came too late: see `StateStore`."""

ToolGateHook: TypeAlias = Callable[[PhaseContext], Awaitable[GateDecision | None] | GateDecision | None]
"""Asked before a call of a tool is carried out. It changes nothing, and may be asked again."""

ActionHandler: TypeAlias = Callable[[PhaseContext, Any], "Awaitable[StateCommand | None] | StateCommand | None"]
"""Carries out a scheduled action; it may change the state, and schedule and emit more."""

EffectHandler: TypeAlias = Callable[[PhaseContext, Any], Awaitable[None] | None]
"""Carries out an effect, once the state that it belongs to is committed. It changes no state, and gives None."""


async def settle(value: Any) -> Any:
    """Give *value*, awaited where it can be: hooks are functions or async functions."""
    return await value if inspect.isawaitable(value) else value


def name_of(hook: object) -> str:
    """Name a hook for spans and logs."""
    while isinstance(hook, partial):
        hook = hook.func
    name: str = getattr(hook, "__qualname__", type(hook).__qualname__)
    return name


class _CountedRun:
    """A run of which one more is told what is used."""

    def __init__(self, run: RunView, on_usage: Callable[[TokenUsage | None], None]) -> None:
        self._run = run
        self._on_usage = on_usage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def record_usage(self, usage: TokenUsage | None) -> None:
        self._run.record_usage(usage)
        self._on_usage(usage)


def counted(run: RunView, on_usage: Callable[[TokenUsage | None], None]) -> RunView:
    """Give the run as one of which *on_usage* is told what is used, too."""
    return cast("RunView", _CountedRun(run, on_usage))
