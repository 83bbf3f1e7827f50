"""The phases of plugins inside an agent's nodes: where they begin and end, and what becomes of a call there."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from graphrt.errors import HookBlockedError, ToolErrorKind
from graphrt.messages import ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from graphrt.graph.scheduler.context import RunContext
    from graphrt.graph.scheduler.resources import RunHandle
    from graphrt.plugins.runtime import PhaseRuntime


class SettledCall(ToolCall):
    """A call that is answered without its tool, and about which nobody is asked."""

    answer: str
    """What the model is told."""
    kind: str | None = None
    """What kind of error the answer is; None for a result."""


_OF_PLUGIN: Final = "__graphrt_of_plugin__"


@contextmanager
def plugins_own() -> Iterator[None]:
    """Mark what leaves the block as a plugin's own error: asking the model again would not mend it."""
    try:
        yield
    except Exception as error:
        with suppress(AttributeError, TypeError):  # a class of the user's that takes no attributes
            setattr(error, _OF_PLUGIN, True)
        raise


def is_plugins_own(error: BaseException) -> bool:
    """Say whether an error comes from a plugin, and not from the model."""
    return getattr(error, _OF_PLUGIN, False) is True


def settled(call: ToolCall, answer: str, kind: str | None = None) -> SettledCall:
    """Give the call with its answer; *kind* says what kind of error the answer is."""
    return SettledCall.model_validate({**call.model_dump(), "answer": answer, "kind": kind})


class Phases:
    """The plugins of one agent, as the nodes of its graph reach them: each activation of the graph has its own.

    The first node to ask opens them, which is where a run starts for the plugins; they are closed when the run
    is over, however it ends.
    """

    def __init__(self, make: Callable[[], PhaseRuntime]) -> None:
        """Take what makes the plugins' side of one activation."""
        self._make = make

    async def of(self, ctx: RunContext[Any]) -> PhaseRuntime:
        """Give the plugins' side of this activation.

        Raises:
            Exception: What a plugin raised when it was activated, or a hook when the run started.
        """
        return await ctx.resource(self, self._opened)

    def _opened(self, run: RunHandle) -> AbstractAsyncContextManager[PhaseRuntime]:
        return self._make().opened(run)

    async def settle(self, call: ToolCall, ctx: RunContext[Any]) -> SettledCall | None:
        """Say how a call is answered whose tool was not offered in this round, or that a gate decides; else None.

        Raises:
            HookBlockedError: A gate ends the run.
        """
        phases = await self.of(ctx)
        if not phases.offers(call.name):
            text = f"unknown tool {call.name!r}; the tools of this round are: {', '.join(phases.offered) or 'none'}"
            return settled(call, text, ToolErrorKind.UNKNOWN)
        decision = await phases.gate(call)
        if decision is None:
            return None
        if decision.result is None:
            raise HookBlockedError(
                decision.reason or "", event="tool_gate", hook=f"gate of plugin {decision.plugin_id}"
            )
        return settled(call, decision.result.text, decision.result.kind)
