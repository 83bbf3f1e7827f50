"""What holds of an orchestrated run whatever its runner does."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.ledger.control import RunControl
from graphrt.ledger.memory import InMemoryRunLedgerStore
from graphrt.platform import AgentRunContext, AgentRunOrchestrator, AgentRunResult
from tests.platform.helpers import DONE, GUARD, Scripted, binding, event, events_of, message, result, rights

FAILED = ("run.failed", {"error": "no luck"})
ACTS = st.one_of(
    st.tuples(st.just("say"), st.sampled_from(["one", "two"]), st.none() | st.integers(-1, 6)),
    st.tuples(st.just("set"), st.sampled_from(["run", "workspace"]), st.integers(0, 9)),
    st.sampled_from([("invalid",), ("pause",), ("cancel",), ("raise",), ("complete",), ("fail",)]),
)
ENDINGS = {"cancel": "cancelled", "raise": "failed", "complete": "completed", "fail": "failed"}


def acting(act: tuple[Any, ...], control: RunControl) -> Any:
    async def do(ctx: AgentRunContext) -> AgentRunResult | None:
        match act:
            case ("say", text, number):
                return result(ctx, *message(text), sequence=number)
            case ("set", scope, value):
                return result(ctx, "state.updated", {"scope": scope, "key": "k", "value": value})
            case ("invalid",):
                return result(ctx, "message.completed", {"text": "hi"})
            case ("pause",):
                await anyio.lowlevel.checkpoint()
            case ("cancel",):
                await control.cancel_run(ctx.run_id)
            case ("raise",):
                raise ValueError("no luck")
            case ("complete",):
                return result(ctx, *DONE)
            case ("fail",):
                return result(ctx, *FAILED)
        return None

    return do


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=60)
@given(st.lists(ACTS, max_size=8), st.none() | st.integers(1, 4))
def test_a_run_always_ends_once_with_what_was_yielded(
    backend: str, acts: list[tuple[Any, ...]], leaves_after: int | None
) -> None:
    """L-033 to L-037."""

    async def check() -> None:
        control = RunControl(InMemoryRunLedgerStore())
        runner = Scripted(*(acting(act, control) for act in acts))
        orchestrator = AgentRunOrchestrator({"r": runner}, control)
        by = binding(authorization=rights(state_scopes=("run",)))
        results: Any = orchestrator.run(event(conversation_id="c"), by, run_id="run")
        read: list[AgentRunResult] = []
        with anyio.fail_after(GUARD):
            async for each in results:
                read.append(each)
                if len(read) == leaves_after:
                    break
            await results.aclose()
        run, events = await control.get_run("run"), await events_of(control)
        assert (run.is_terminal, runner.cleaned, orchestrator.active) == (True, True, {})
        assert [(each.sequence, each.type) for each in events] == [(each.sequence, each.type) for each in read]
        assert [each.sequence for each in events] == sorted({each.sequence for each in events})
        said = [(each.sequence, each.content) for each in await control.transcript.messages(conversation_id="c")]
        assert said == [
            (each.sequence, each.data["message"]["content"]) for each in events if each.type == "message.completed"
        ]
        assert not any(each.type in ("run.completed", "run.failed") for each in events[:-1])
        _check_ending(acts, run.status, left=len(read) == leaves_after and not _told_the_end(events))

    anyio.run(check, backend=backend)


def _told_the_end(events: list[Any]) -> bool:
    return bool(events) and events[-1].type in ("run.completed", "run.failed")


def _check_ending(acts: list[tuple[Any, ...]], status: str, *, left: bool) -> None:
    kinds = [act[0] for act in acts if act[0] in ENDINGS] or ["complete"]
    allowed = {ENDINGS[kinds[0]]}
    if kinds[0] == "cancel":  # it and what comes next at one moment: either may be seen first
        allowed.update(ENDINGS[kind] for kind in [each for each in kinds if each != "cancel"][:1])
    if left:
        allowed.add("cancelled")
    assert status in allowed
