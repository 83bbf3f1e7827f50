"""Another agent as a tool: the model calls it with a prompt, and reads its answer."""

from __future__ import annotations

import math
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio

from graphrt.errors import ToolError, ToolErrorKind
from graphrt.tools.base import Tool, ToolDescriptor, ToolResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from graphrt.messages import TokenUsage
    from graphrt.tools.base import ToolContext

AGENT_RUN: Final = "agent_run_"
"""What the id of every delegate's tool begins with."""

STARTED: Final = "custom.delegate.started"
"""Event: an agent begins to work on a prompt; its data has ``agent_id``, ``run_id`` and those of the caller."""
COMPLETED: Final = "custom.delegate.completed"
"""Event: it is done; with ``error`` if there is no answer."""


@dataclass(frozen=True, slots=True)
class DelegateReply:
    """How a delegate's run ended."""

    text: str = ""
    """The answer, as the model reads it."""
    run_id: str | None = None
    """Which run it was, or task where the agent lives elsewhere; None: there was none."""
    usage: TokenUsage | None = None
    """What its models have used, if that is known."""
    error: str | None = None
    """Why there is no answer, in words for the model; None: there is one."""
    kind: ToolErrorKind = ToolErrorKind.EXECUTION
    """What kind of error."""
    cause: BaseException | None = None
    """The exception behind it, for logs."""


class Delegate(Protocol):
    """Has an agent work on a prompt, here or elsewhere."""

    async def run(self, prompt: str, ctx: ToolContext[Any]) -> DelegateReply:
        """Have the agent answer. ``AgentTool`` calls it once for each call of the tool.

        A failure of the agent is a reply with an error; an exception is told to the model as well. When the
        call is cancelled, the agent has to be stopped before this returns.
        """
        ...


@dataclass(frozen=True)
class DelegateResult(ToolResult):
    """A tool's result that also knows which run it comes from; its text does not show that."""

    run_id: str | None = None
    usage: TokenUsage | None = None


class AgentTool(Tool):
    """Call an agent: one argument, ``prompt``, which is a text that is not blank."""

    def __init__(self, agent_id: str, backend: Delegate, *, description: str = "") -> None:
        """Take the agent's id, which the tool's is made of, and who runs it."""
        self.agent_id = agent_id
        self.backend = backend
        self._descriptor = ToolDescriptor(
            f"{AGENT_RUN}{agent_id}",
            description or f"Give agent {agent_id!r} something to do, and read its answer. It sees the prompt only.",
            {
                "type": "object",
                "properties": {
                    "prompt": {
                        "type": "string",
                        "minLength": 1,
                        "description": "What the agent has to do, with all that it needs to know.",
                    }
                },
                "required": ["prompt"],
                "additionalProperties": False,
            },
        )

    @property
    def descriptor(self) -> ToolDescriptor:
        """What the model is told of the agent."""
        return self._descriptor

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Check that there is a prompt.

        Raises:
            ToolError: It is missing, no text, or blank.
        """
        super().check(arguments)
        if not arguments["prompt"].strip():
            reason = "prompt: it is blank, and has to say what the agent is to do"
            raise ToolError(reason, ToolErrorKind.INVALID_ARGUMENTS, self._descriptor.id)

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> DelegateResult:
        """Have the agent answer the prompt; whatever fails in it is an error for the model to read.

        Raises:
            ToolError: There is no prompt, and nothing was run.
        """
        self.check(arguments)
        caller = current_caller()
        with caller.working() as limit:
            reply = await self.backend.run(arguments["prompt"], ctx)
        if limit.cancelled_caught:
            reason = f"agent {self.agent_id!r} was stopped: it had no answer after {caller.limit:g} seconds"
            reply = DelegateReply(error=reason, kind=ToolErrorKind.TIMEOUT, run_id=caller.run_id)
        caller.used(reply.usage)
        ended = {} if reply.error is None else {"error": reply.error}
        ctx.emit(COMPLETED, {**_said_of(self.agent_id, reply.run_id, ctx), **ended})
        if reply.error is not None:
            return DelegateResult(None, reply.error, reply.kind, reply.cause, reply.run_id, reply.usage)
        return DelegateResult(reply.text, run_id=reply.run_id, usage=reply.usage)


def tell_started(agent_id: str, run_id: str, ctx: ToolContext[Any]) -> None:
    """Tell the caller's readers and its trace which run works on the call; a delegate does so once it knows."""
    current_caller().started(run_id)
    ctx.emit(STARTED, _said_of(agent_id, run_id, ctx))


def _said_of(agent_id: str, run_id: str | None, ctx: ToolContext[Any]) -> dict[str, Any]:
    called = {"parent_run_id": ctx.run_id, "tool_call_id": ctx.tool_call_id}
    return {"agent_id": agent_id, "run_id": run_id, **called}


# --- who calls


def _ignore(value: object) -> None:
    """Take the place of what nobody wants to know."""


class Caller:
    """The step that calls a delegate, as far as a delegate has to do with it; by itself, nobody's.

    One caller serves one call, on its event loop.
    """

    def __init__(
        self,
        *,
        limit: float | None = None,
        hold: Callable[[], AbstractContextManager[object]] = nullcontext,
        started: Callable[[str], object] = _ignore,
        used: Callable[[TokenUsage | None], object] = _ignore,
    ) -> None:
        """Take what the step offers.

        Args:
            limit: Seconds that the delegate may work; what it waits for a person does not count.
            hold: Opens a context in which the step counts as waiting.
            started: Told the id of the delegate's run.
            used: Told what the delegate has used.
        """
        self.limit = limit
        self.used = used
        self.run_id: str | None = None
        """The run that works on the call, once that is known."""
        self._hold = hold
        self._started = started
        self._scope: anyio.CancelScope | None = None
        self._waits = 0
        self._left = math.inf
        self._held = ExitStack()

    def started(self, run_id: str) -> None:
        """Note which run works on the call."""
        self.run_id = run_id
        self._started(run_id)

    @contextmanager
    def working(self) -> Iterator[anyio.CancelScope]:
        """Limit the work in the block; its scope has caught a cancellation if the time was up."""
        with anyio.move_on_after(self.limit) as self._scope:
            yield self._scope

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let clocks of work stand still in the block: a person is asked. Blocks may overlap."""
        if self._waits == 0:
            self._pause()
        self._waits += 1
        try:
            yield
        finally:
            self._waits -= 1
            if self._waits == 0:
                self._resume()

    def _pause(self) -> None:
        self._held.enter_context(self._hold())
        if self._scope is not None:
            self._left = self._scope.deadline - anyio.current_time()
            self._scope.deadline = math.inf

    def _resume(self) -> None:
        self._held.close()
        if self._scope is not None:
            self._scope.deadline = anyio.current_time() + self._left


_CALLER: Final[ContextVar[Caller | None]] = ContextVar("graphrt.tools.caller", default=None)


def current_caller() -> Caller:
    """Give the step that calls, for a delegate that is being called; without one, nobody."""
    return _CALLER.get() or Caller()


@contextmanager
def calling(caller: Caller) -> Iterator[None]:
    """Make *caller* the one that delegates called in the block find; the block is of one task."""
    before = _CALLER.set(caller)
    try:
        yield
    finally:
        _CALLER.reset(before)
