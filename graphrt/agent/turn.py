"""What surrounds one run of an agent that is a turn of a session: its place in line, its hooks, its span, its limits.

A turn is all or nothing: one that fails or is cancelled leaves the session's messages as they were.
"""

from __future__ import annotations

import logging
import sys
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import anyio

from graphrt.agent.history import says_nothing, without_dangling
from graphrt.config import DEFAULT_LIMIT_REPLY
from graphrt.errors import AgentError, LimitExceededError, OtherAgentError
from graphrt.graph.states import RunStatus, Termination, TerminationKind
from graphrt.hooks import HookContext, HookEvent, HookResult
from graphrt.messages import ChatResponse, Message
from graphrt.nodes.conversation import as_messages
from graphrt.notes import add_note
from graphrt.registry.running import RunScope, new_run_id, run_resolved

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from graphrt.agent.questions import OnAsk, Questions
    from graphrt.agent.session_state import Session
    from graphrt.config import AgentConfig
    from graphrt.graph.durable.work import Ledger
    from graphrt.graph.protocols import RunEvent
    from graphrt.graph.scheduler.result import RunResult
    from graphrt.hooks import HookExecutor
    from graphrt.ledger.store import RunLedgerStore
    from graphrt.messages import TokenUsage
    from graphrt.plugins import PhaseRuntime
    from graphrt.registry import RegistrySet, ResolvedAgent
    from graphrt.telemetry import Telemetry
    from graphrt.telemetry.spans import CurrentSpan

log = logging.getLogger(__name__)

TIMEOUT: Final = "timeout"
"""Name of the limit on the time of a turn."""
TURN_INDEX: Final = "turn_index"
"""Metadata of a turn's run in the ledger: the turns of the session before it."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """What a turn runs."""

    resolved: ResolvedAgent
    registries: RegistrySet
    system_prompt: str | None = None
    """Takes the place of the spec's; an empty text sends no system message."""


def _nothing() -> None:
    """Let things go on."""


@dataclass(frozen=True, slots=True)
class TurnSetting:
    """What a turn is given by the session or the runtime that it is a turn of."""

    agent: str
    """Name of the agent, for the turn's span."""
    config: AgentConfig
    assemble: Callable[[], Awaitable[Assembled]]
    """Called once, after the hooks on the turn's start."""
    hooks: HookExecutor | None = None
    telemetry: Telemetry | None = None
    on_usage: Callable[[TokenUsage | None], None] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    """Request parameters of this turn."""
    notices: bool = False
    """Answer with a text when a limit is reached, instead of raising."""
    succeeded: Callable[[], None] = _nothing
    """Called when the turn has succeeded, before the next one begins."""
    branched: bool = False
    """Keep the messages before the turn exactly as they are."""
    ledger: RunLedgerStore | Ledger | None = None
    """Where the turn's run is recorded."""


class Turn:
    """One turn of a session."""

    def __init__(
        self,
        session: Session,
        text: str,
        begin: Callable[[], TurnSetting],
        *,
        questions: Questions,
        on_ask: OnAsk | None = None,
        on_event: Callable[[RunEvent], Any] | None = None,
    ) -> None:
        """Take what the turn consists of.

        Args:
            session: The session.
            text: What the user says.
            begin: Says how the turn is run, when its time has come; raises if the session is at a limit.
            questions: Where a person is asked, if there is no *on_ask*.
            on_ask: Answers questions.
            on_event: Called with every event of the run.
        """
        self.session = session
        self.text = text
        self.setting: TurnSetting
        self.run_id = new_run_id()
        self._begin = begin
        self._on_ask = on_ask or questions.of(self.run_id)
        self._on_event = on_event
        self._phases: PhaseRuntime | None = None
        self._history: list[Message] | None = None
        self._run: RunResult | None = None
        self._stops_at = 0.0

    async def take(self) -> ChatResponse:
        """Wait for the turns before this one, then run it.

        Raises:
            AgentError: The turn was not admitted, or it failed; the session is as it was.
        """
        async with self.session.queue.turn():
            self.setting = self._begin()
            with self._span() as span:
                response = await self._all_or_nothing()
                _describe(span, response)
                return response

    async def _all_or_nothing(self) -> ChatResponse:
        session = self.session
        before = list(session.messages)
        try:
            return await self._go()
        except Exception as error:
            session.messages[:] = before
            failure = AgentError.wrap(error)
            await self._tell_of(failure)
            if failure is error:
                raise
            raise failure from error
        except BaseException:
            session.messages[:] = before
            raise

    async def _go(self) -> ChatResponse:
        setting, session = self.setting, self.session
        self._stops_at = anyio.current_time() + setting.config.timeout_seconds
        try:
            with self._in_time():
                answer = await self._fire(HookEvent.ON_TURN_START, user_input=self.text)
                answer.raise_if_blocked(HookEvent.ON_TURN_START)
            given = list(as_messages(session.messages))
            self._history = history = without_dangling(given)
            with self._in_time():
                assembled = await setting.assemble()
            self._run = result = await self._run_agent(assembled, history)
            response = outcome_of(result, setting.config)
            messages = [*(given if setting.branched else history), *_said(result.messages, len(history))]
        except LimitExceededError as limit:
            if not setting.notices:
                raise
            response, messages = self._cut_short(limit)
        session.messages[:] = messages
        self._stops_at = anyio.current_time() + setting.config.timeout_seconds
        try:
            with self._in_time():
                await self._fire(HookEvent.ON_TURN_END, user_input=self.text, response=response)
        except LimitExceededError as limit:
            if not setting.notices:
                raise
            response, session.messages[:] = self._cut_short(limit)
        if self._phases is not None:
            session.state.update(self._phases.kept_state())
        session.turn_index += 1
        setting.succeeded()
        return response

    # ------------------------------------------------------------ the run

    async def _run_agent(self, assembled: Assembled, history: list[Message]) -> RunResult:
        setting, session = self.setting, self.session
        left = self._stops_at - anyio.current_time()
        if left <= 0:
            raise out_of_time(self.setting.config)
        scope = RunScope(
            config=setting.config,
            registries=assembled.registries,
            telemetry=setting.telemetry,
            on_ask=self._on_ask,
            params=setting.params,
            session_id=session.id,
            on_usage=setting.on_usage,
            hooks=setting.hooks,
            ledger=setting.ledger,
        )
        return await run_resolved(
            assembled.resolved,
            [*history, Message.user(self.text)],
            scope=scope,
            run_id=self.run_id,
            timeout=left,
            on_event=self._on_event,
            system_prompt=assembled.system_prompt,
            phases=lambda: self._make_phases(assembled.resolved),
            metadata={TURN_INDEX: session.turn_index},
        )

    def _make_phases(self, resolved: ResolvedAgent) -> PhaseRuntime:
        from graphrt.plugins import PhaseRuntime

        spec, session = resolved.spec, self.session
        self._phases = PhaseRuntime(
            resolved.env,
            spec=spec,
            agent_id=spec.id,
            session_id=session.id,
            turn_index=session.turn_index,
            active=spec.active_hook_filter,
            state=session.state,
            on_usage=self.setting.on_usage,
        )
        return self._phases

    # ------------------------------------------------------------ limits

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """Let what is done in the block take the time that the turn has left.

        Raises:
            LimitExceededError: It took longer, and was cancelled.
        """
        with anyio.CancelScope(deadline=self._stops_at) as scope:
            yield
        if scope.cancelled_caught:
            raise out_of_time(self.setting.config)

    def _cut_short(self, limit: LimitExceededError) -> tuple[ChatResponse, list[Message]]:
        """Answer with a notice; what was said up to a limit stays said, but for the time being up."""
        response = self._notice(limit)
        run, history = self._run, self._history
        if history is None:
            self._history = history = without_dangling(as_messages(self.session.messages))
        said = [Message.user(self.text)]
        if limit.limit == TIMEOUT:
            self._phases = None  # what plugins noted of the run goes with it
        elif run is not None:
            said = _said(run.messages, len(history))
        notice = Message.assistant(response.content)
        return response, [*history, *said, *([] if says_nothing(notice) else [notice])]

    def _notice(self, limit: LimitExceededError) -> ChatResponse:
        timeout = limit.limit == TIMEOUT
        config, run = self.setting.config, self._run
        kind = TerminationKind.TIMEOUT if timeout else TerminationKind.STOPPED
        said = run.response if run is not None else None
        return ChatResponse(
            notice_of(config, limit.limit),
            None if run is None else run.usage,
            0 if run is None else run.rounds,
            Termination(kind, None if timeout else limit.limit, limit.message),
            [] if said is None else said.tool_calls,
        )

    # ------------------------------------------------------------ hooks and span

    def _told(self, event: HookEvent, **data: Any) -> HookContext:
        session = self.session
        return HookContext(event, session_id=session.id, run_id=self.run_id, turn_index=session.turn_index, data=data)

    async def _fire(self, event: HookEvent, **data: Any) -> HookResult:
        return await fire(self.setting.hooks, self._told(event, **data), self.setting.telemetry)

    async def _tell_of(self, failure: AgentError) -> None:
        setting = self.setting
        told = self._told(HookEvent.ON_ERROR, error=failure, user_input=self.text)
        await tell_of_failure(setting.hooks, told, setting.telemetry, seconds=setting.config.timeout_seconds)

    def _span(self) -> AbstractContextManager[CurrentSpan | None]:
        telemetry = tracing(self.setting.telemetry)
        if telemetry is None:
            return nullcontext()
        return telemetry.turn(
            self.setting.agent,
            session_id=self.session.id,
            turn_index=self.session.turn_index,
            agent_id=self.setting.agent,
            user_input=self.text,
        )


def outcome_of(result: RunResult, config: AgentConfig) -> ChatResponse:
    """Give what a run came to, or raise what it ended with.

    Raises:
        LimitExceededError: It reached a limit, or was out of time.
        Exception: Whatever else it ended with.
    """
    response: ChatResponse | None = result.response
    if result.status is RunStatus.SUCCEEDED and response is not None:
        return response
    error = result.error
    if result.status is RunStatus.TIMED_OUT:
        raise out_of_time(config, error) from error
    if error is None:
        raise OtherAgentError(f"run {result.run_id!r} ended as {result.status.value} and without an answer")
    raise error


def out_of_time(config: AgentConfig, cause: BaseException | None = None) -> LimitExceededError:
    """Make the error of a turn that took too long."""
    return LimitExceededError(
        f"the turn did not finish within {config.timeout_seconds:g} s",
        limit=TIMEOUT,
        cause=cause,
        hint="give it more time with AgentConfig(timeout_seconds=...)",
    )


def tracing(telemetry: Telemetry | None) -> Telemetry | None:
    """Give what makes spans; None when nobody looks: then nothing is imported for it."""
    if telemetry is not None or "opentelemetry.trace" not in sys.modules:
        return telemetry
    from graphrt.telemetry import Telemetry

    return Telemetry()


async def fire(hooks: HookExecutor | None, context: HookContext, telemetry: Telemetry | None) -> HookResult:
    """Call the hooks of an event, each in a span."""
    if hooks is None:
        return HookResult.ok()
    traced = tracing(telemetry)
    return await hooks.execute(context.event, context, span=None if traced is None else traced.hook)


async def tell_of_failure(
    hooks: HookExecutor | None, context: HookContext, telemetry: Telemetry | None, *, seconds: float
) -> None:
    """Call the hooks on errors, for at most so many seconds; what becomes of them does not hide the failure itself."""
    failure = context.data["error"]
    try:
        with anyio.move_on_after(seconds) as scope:
            await fire(hooks, context, telemetry)
    except Exception as error:
        log.exception("a hook failed when it was told of the failure of run %r", context.run_id)
        add_note(failure, f"a hook on this error failed too: {type(error).__name__}: {error}")
    else:
        if scope.cancelled_caught:
            log.error("hooks on the failure of run %r took longer than %g s", context.run_id, seconds)


def _said(messages: list[Message], given: int) -> list[Message]:
    """Give what a run has added to the messages it was given, less replies that say nothing."""
    return [each for each in messages[given:] if not says_nothing(each)]


def _describe(span: CurrentSpan | None, response: ChatResponse) -> None:
    if span is None:
        return
    from graphrt.telemetry import conventions as names

    span.set(names.OUTPUT, response.content)
    if response.usage is not None:
        span.set(names.INPUT_TOKENS, response.usage.input_tokens)
        span.set(names.OUTPUT_TOKENS, response.usage.output_tokens)


def notice_of(config: AgentConfig, limit: str) -> str:
    """Say in the config's words that a limit was reached, unless those speak of another one."""
    if limit == TIMEOUT:
        return config.timeout_reply
    if limit == "max_rounds" or config.limit_reply != DEFAULT_LIMIT_REPLY:
        return config.limit_reply
    return f"I stopped before I was done: the limit {limit!r} was reached."
