"""`AgentRunOrchestrator`: from an event and a binding to a run in the ledger."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from graphrt.errors import RunControlError
from graphrt.ledger.status import AgentRunStatus
from graphrt.platform.orchestrated import OrchestratedRun

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from graphrt.ledger.artifacts import ArtifactStore
    from graphrt.ledger.control import RunControl
    from graphrt.ledger.state import StateScopeStore
    from graphrt.ledger.transcript import TranscriptStore
    from graphrt.platform.binding import AgentBinding
    from graphrt.platform.envelope import EventEnvelope
    from graphrt.platform.results import AgentRunResult
    from graphrt.platform.runner import AgentRunner
    from graphrt.telemetry import Telemetry

log = logging.getLogger("graphrt.platform")

CLOSE_SECONDS = 30.0
"""What a runner may take to clean up; then a warning is logged, and the run goes on to its end without it."""
POLL_SECONDS = 1.0
"""Seconds after which a waiting run looks whether another process has asked to cancel it."""


class AgentRunOrchestrator:
    """Runs agents for events, and writes down all that comes of it."""

    def __init__(
        self,
        runners: Mapping[str, AgentRunner],
        control: RunControl,
        *,
        transcript: TranscriptStore | None = None,
        artifacts: ArtifactStore | None = None,
        state: StateScopeStore | None = None,
        telemetry: Telemetry | None = None,
        poll_seconds: float = POLL_SECONDS,
        close_seconds: float = CLOSE_SECONDS,
    ) -> None:
        """Take the runners, by the ids that bindings name, and what writes things down.

        Args:
            runners: Asked anew for each run.
            control: Writes the runs down.
            transcript: Keeps what is said; that of *control* when None.
            artifacts: Keeps artifacts; that of *control* when None.
            state: Keeps state; that of *control* when None.
            telemetry: Where spans go; the global tracer provider when None.
            poll_seconds: After which a waiting run looks whether another process has asked to cancel it.
            close_seconds: What a runner may take to clean up.
        """
        self.runners = runners
        self.control = control.using(transcript=transcript, artifacts=artifacts, state=state)
        self.telemetry = telemetry
        self.poll_seconds = poll_seconds
        self.close_seconds = close_seconds
        self._active: dict[str, OrchestratedRun] = {}

    @property
    def active(self) -> Mapping[str, str]:
        """The runs in progress here: the id of each, and that of its runner."""
        return {run_id: run.binding.runner_id for run_id, run in self._active.items()}

    async def run(
        self,
        event: EventEnvelope,
        binding: AgentBinding,
        *,
        deadline: datetime | float | None = None,
        run_id: str | None = None,
        claim_token: str | None = None,
    ) -> AsyncIterator[AgentRunResult]:
        """Run *binding*'s runner for *event*, and yield its results as they are stored.

        The run is in the ledger before the runner is asked for anything, and closed there in every ending: completed
        after `run.completed`, or when there is nothing more; failed after `run.failed`, or an exception; timed out
        at the deadline; cancelled when that was asked for, or when the reader leaves early. What a runner says after
        its last result is not read. A failure that the runner has not told of, its exception or the deadline, is
        told by a `run.failed` of the host's, and not raised. A ledger that is out of reach, and says that it may be
        tried again, is for up to 30 seconds.

        Args:
            event: What happened.
            binding: Who answers, how, and with what rights.
            deadline: A time with a zone, or seconds from now; the binding's own limit applies too.
            run_id: A name for the run; that of a run which is created and not begun takes that one up, with its rights.
            claim_token: The claim of a run that is taken up.

        Raises:
            RunControlError: The run cannot be written down or taken up, or there is no such runner; or the ledger
                takes no more of it. What had begun is failed.
            Exception: What keeps artifacts, messages or state failed; the run is failed.
        """
        name = run_id or f"run-{os.urandom(8).hex()}"
        if name in self._active:
            raise RunControlError("conflict", f"run {name!r} is in progress here", details={"run_id": name})
        one = self._active[name] = OrchestratedRun(
            self, event, binding, run_id=name, deadline_at=self._deadline(deadline, binding), claim_token=claim_token
        )
        try:
            await one.open()
            while (result := await one.next()) is not None:
                yield result
        except GeneratorExit:
            one.ends_as(AgentRunStatus.CANCELLED, "the reader of its results has left")
            raise
        except Exception as error:
            one.ends_as(AgentRunStatus.FAILED, f"{type(error).__name__}: {error}")
            raise
        except BaseException:
            one.ends_as(AgentRunStatus.CANCELLED, "it was cancelled with the task that ran it")
            raise
        finally:
            try:
                await one.close()
            finally:
                self._active.pop(name, None)

    def _deadline(self, deadline: datetime | float | None, binding: AgentBinding) -> datetime | None:
        """Give the nearest of the limits, in UTC.

        Raises:
            RunControlError: `invalid_argument`: the deadline has no zone.
        """
        now = self.control.clock.now()
        ends: list[datetime] = []
        if isinstance(deadline, datetime):
            if deadline.utcoffset() is None:
                raise RunControlError(
                    "invalid_argument", f"deadline {deadline} has no zone", hint="use datetime.now(UTC)"
                )
            ends.append(deadline.astimezone(UTC))
        elif deadline is not None:
            ends.append(now + timedelta(seconds=deadline))
        if binding.timeout_seconds is not None:
            ends.append(now + timedelta(seconds=binding.timeout_seconds))
        return min(ends, default=None)
