"""Runs of a runtime's agents that are no turns: begun, and gone on with where they are in a ledger."""

from __future__ import annotations

import time
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, Any, Literal

import anyio

from graphrt.agent.registered import RegisteredAgent, prompt_of
from graphrt.agent.run_request import RunRequest
from graphrt.agent.session_state import Session
from graphrt.agent.timing import Timer
from graphrt.agent.turn import TURN_INDEX, tell_of_failure
from graphrt.errors import AgentError, ConfigError, ResolveError
from graphrt.graph.states import RunStatus
from graphrt.hooks import HookContext, HookEvent
from graphrt.nodes.conversation import as_messages
from graphrt.notes import add_note
from graphrt.registry.recording import store_of, stored_run
from graphrt.registry.running import RunScope, new_run_id, resume_resolved, run_resolved

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphrt.agent.questions import OnAsk, Questions
    from graphrt.config import AgentConfig
    from graphrt.graph.durable.work import Ledger
    from graphrt.graph.protocols import RunEvent
    from graphrt.graph.scheduler.limits import BudgetTracker
    from graphrt.graph.scheduler.result import RunResult
    from graphrt.hooks import HookExecutor
    from graphrt.ledger.store import RunLedgerStore
    from graphrt.policies import Budget
    from graphrt.registry import RegistrySet
    from graphrt.telemetry import Telemetry


class AgentRuns:
    """What `AgentRuntime.run` and `AgentRuntime.resume` do."""

    def __init__(
        self,
        registries: RegistrySet,
        config: AgentConfig,
        questions: Questions,
        hooks: HookExecutor | None,
        *,
        telemetry: Telemetry | None,
        ledger: RunLedgerStore | Ledger | None,
    ) -> None:
        """Take what the runtime was given."""
        self._registries = registries
        self._config = config
        self._questions = questions
        self._hooks = hooks
        self._telemetry = telemetry
        self._ledger = ledger

    async def run(
        self,
        request: RunRequest,
        *,
        on_event: Callable[[RunEvent], Any] | None,
        on_ask: OnAsk | None,
        deps: Any,
        budget: Budget | BudgetTracker | None,
    ) -> RunResult:
        """Run an agent once; see `AgentRuntime.run`."""
        from graphrt.registry import resolve

        if not isinstance(request, RunRequest):
            raise ConfigError(f"run() was given a {type(request).__name__}", hint="give RunRequest(agent_id, input)")
        run_id = request.run_id or new_run_id()
        messages = request.conversation()
        resolved = resolve(self._registries, request.agent_id)
        prompt, left = await self._prompt_of_run(request.agent_id, Session(run_id, messages), request.deadline)
        was_over = request.run_id is not None and await self._is_over(run_id)
        result = await run_resolved(
            resolved,
            messages,
            scope=self._scope(run_id, on_ask),
            run_id=run_id,
            deps=deps,
            timeout=left,
            deadline_at=request.deadline,
            budget=budget,
            on_event=on_event,
            system_prompt=prompt,
        )
        if was_over:
            return result
        if left <= 0:
            _note_prompt(result)
        return await self._told(result)

    async def resume(
        self,
        run_id: str,
        *,
        answers: Any,
        on_event: Callable[[RunEvent], Any] | None,
        on_ask: OnAsk | None,
        deps: Any,
        budget: Budget | BudgetTracker | None,
        on_change: Literal["refuse", "ignore"],
    ) -> RunResult:
        """Go on with a recorded run; see `AgentRuntime.resume`."""
        from graphrt.registry import resolve

        if self._ledger is None:
            raise ConfigError(
                f"run {run_id!r} cannot be resumed: the runtime has no ledger",
                hint="build it with with_ledger(store), or from_provider(..., ledger=store)",
            )
        if not isinstance(run_id, str):
            raise ConfigError(f"resume() was given {run_id!r}, which is no text", hint="give a run's id")
        stored = await stored_run(self._ledger, run_id)
        agent_id, conversation = stored.agent_id or "", stored.conversation_id
        resolved = resolve(self._registries, agent_id)
        messages, turn = list(as_messages(stored.metadata.get("input"))), stored.metadata.get(TURN_INDEX)
        session = Session(conversation or run_id, messages if turn is None else messages[:-1], turn_index=turn or 0)
        prompt, left = await self._prompt_of_run(agent_id, session)
        result = await resume_resolved(
            resolved,
            run_id,
            scope=self._scope(run_id, on_ask, session_id=conversation),
            answers=answers,
            on_change=on_change,
            deps=deps,
            timeout=left,
            budget=budget,
            on_event=on_event,
            system_prompt=prompt,
            turn_index=turn,
        )
        if left <= 0:
            _note_prompt(result)
        return await self._told(result)

    def _scope(self, run_id: str, on_ask: OnAsk | None, *, session_id: str | None = None) -> RunScope:
        waiting = self._questions.of(run_id)
        if on_ask is None and self._ledger is None:
            on_ask = waiting
        return RunScope(
            self._config,
            self._registries,
            telemetry=self._telemetry,
            on_ask=on_ask,
            session_id=session_id,
            hooks=self._hooks,
            ledger=self._ledger,
            on_ask_below=waiting,
        )

    async def _is_over(self, run_id: str) -> bool:
        """Say whether the ledger has the run with its end: then there is nothing new to tell hooks of."""
        stored = None if self._ledger is None else await store_of(self._ledger).get_run(run_id)
        return stored is not None and stored.is_terminal

    async def _told(self, result: RunResult) -> RunResult:
        """Tell the hooks of a failure."""
        error = result.error
        if isinstance(error, Exception) and result.status is not RunStatus.CANCELLED:
            told = HookContext(HookEvent.ON_ERROR, run_id=result.run_id, data={"error": AgentError.wrap(error)})
            await tell_of_failure(self._hooks, told, self._telemetry, seconds=self._config.timeout_seconds)
        return result

    # ------------------------------------------------------------ the prompt

    async def prompt(self, agent_id: str, session: Session) -> str:
        """Give the system prompt of a run or turn that begins now; an empty text for none."""
        agent = RegisteredAgent(self._registries, agent_id, self._config)
        return await prompt_of(agent, self._config, session) or ""

    async def _prompt_of_run(
        self, agent_id: str, session: Session, deadline: datetime | None = None
    ) -> tuple[str, float]:
        """Give the prompt, and the seconds that the run has left; with none left it ends before it does anything."""
        timer = Timer(self._config.timeout_seconds)
        prompt = ""
        try:
            with anyio.move_on_after(min(timer.seconds, _until(deadline))) as scope:
                prompt = await self.prompt(agent_id, session)
        except (ResolveError, ConfigError):
            raise
        except Exception as error:
            raise ConfigError(
                f"the SystemPromptBuilder failed: {type(error).__name__}: {error}", cause=error
            ) from error
        return prompt, 0.0 if scope.cancelled_caught else timer.left()


def _note_prompt(result: RunResult) -> None:
    if result.error is not None:
        add_note(result.error, "the time was up before the SystemPromptBuilder had made the prompt")


def _until(deadline: datetime | None) -> float:
    """Give the seconds until a time; a value that is none is refused by the run."""
    if isinstance(deadline, datetime) and deadline.tzinfo is not None:
        return max(0.0, deadline.timestamp() - time.time())
    return inf
