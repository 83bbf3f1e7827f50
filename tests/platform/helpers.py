"""What the platform's tests share: scripted runners, events and bindings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from graphrt.ledger.authorization import AuthorizationSnapshot
from graphrt.ledger.control import RunControl
from graphrt.ledger.records import AgentRun, AgentRunEvent
from graphrt.platform import (
    AgentBinding,
    AgentRunContext,
    AgentRunner,
    AgentRunOrchestrator,
    AgentRunResult,
    EventEnvelope,
)

GUARD = 10.0
"""Seconds after which a test hangs, and fails."""


class Scripted:
    """A runner that yields what it was given; a function in the script is awaited, and its value yielded."""

    def __init__(self, *script: Any) -> None:
        self.script = script
        self.contexts: list[AgentRunContext] = []
        self.cleaned = False

    async def run(self, ctx: AgentRunContext) -> AsyncIterator[AgentRunResult]:
        self.contexts.append(ctx)
        try:
            for each in self.script:
                if isinstance(each, BaseException):
                    raise each
                said = await each(ctx) if callable(each) else each
                if said is not None:
                    yield result(ctx, *said) if isinstance(said, tuple) else said
        finally:
            self.cleaned = True


def result(ctx: AgentRunContext, type: str, data: Mapping[str, Any] | None = None, **more: Any) -> AgentRunResult:
    return AgentRunResult(ctx.run_id, type, {} if data is None else data, **more)


def message(text: str) -> tuple[str, dict[str, Any]]:
    return "message.completed", {"message": {"role": "assistant", "content": text}}


DONE = ("run.completed", {"finish_reason": "stop"})


def event(event_type: str = "message.received", **fields: Any) -> EventEnvelope:
    return EventEnvelope(**{"event_id": "e-1", "event_type": event_type, "source": "test"} | fields)


def rights(runner_id: str = "r", **fields: Any) -> AuthorizationSnapshot:
    return AuthorizationSnapshot(runner_id=runner_id, **fields)


def binding(**fields: Any) -> AgentBinding:
    given = {"binding_id": "b", "runner_id": "r", "event_types": ["message.*"]} | fields
    return AgentBinding(**given)


async def orchestrate(
    control: RunControl, runner: AgentRunner, *, by: AgentBinding | None = None, **options: Any
) -> tuple[AgentRun, list[AgentRunResult]]:
    """Run a runner to its end; give its run and what was yielded."""
    orchestrator = AgentRunOrchestrator({"r": runner}, control)
    results = [
        each async for each in orchestrator.run(options.pop("on", event()), by or binding(), run_id="run", **options)
    ]
    assert not orchestrator.active
    return await control.get_run("run"), results


async def events_of(control: RunControl, run_id: str = "run") -> list[AgentRunEvent]:
    return list((await control.page_run_events(run_id)).items)


Make = Callable[[], RunControl]
