"""What the tests of run control share."""

from __future__ import annotations

from typing import Any

from graphrt.errors import RunControlError
from graphrt.ledger.authorization import AuthorizationSnapshot
from graphrt.ledger.control import RunControl
from graphrt.ledger.records import AgentRunEvent
from graphrt.testing import FakeClock


def clock_of(control: RunControl) -> FakeClock:
    assert isinstance(control.clock, FakeClock)
    return control.clock


def rights(runner_id: str = "r", **fields: Any) -> AuthorizationSnapshot:
    return AuthorizationSnapshot(runner_id=runner_id, **fields)


async def new_run(control: RunControl, run_id: str = "run", **fields: Any) -> None:
    given: dict[str, Any] = {"runner_id": "r", "authorization": rights()} | fields
    await control.create_run(run_id=run_id, **given)


async def events_of(control: RunControl, run_id: str = "run") -> list[AgentRunEvent]:
    return list((await control.page_run_events(run_id, limit=1000)).items)


def said(text: str) -> dict[str, Any]:
    return {"type": "message.completed", "data": {"message": {"role": "assistant", "content": text}}}


def code_of(error: BaseException) -> str:
    assert isinstance(error, RunControlError)
    return error.code
