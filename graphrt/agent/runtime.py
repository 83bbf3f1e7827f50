"""`AgentRuntime`: runs agents of registries, and processes what users write."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from graphrt.agent.bundle import RuntimeBundle
from graphrt.agent.closing import close_all, second_to
from graphrt.agent.gateway import GatewayMessage
from graphrt.agent.making import DEFAULT, registry_of, telemetry_of, world_of
from graphrt.agent.questions import Questions
from graphrt.agent.registered import RegisteredAgent, bridged, compacting, hooks_of, local_ids
from graphrt.agent.request_params import check_params
from graphrt.agent.runs import AgentRuns
from graphrt.agent.session import AgentSession, check_max_turns
from graphrt.agent.session_state import Session
from graphrt.agent.turn import Assembled, Turn, TurnSetting, notice_of
from graphrt.agent.watching import AgentRunStream
from graphrt.config import AgentConfig
from graphrt.errors import ConfigError, LimitExceededError
from graphrt.hooks import HookExecutor
from graphrt.registry.recording import checked_ledger
from graphrt.registry.running import new_run_id
from graphrt.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from graphrt.agent.questions import OnAsk
    from graphrt.agent.run_request import RunRequest
    from graphrt.agent.watching import Tell
    from graphrt.clock import Clock
    from graphrt.config import SystemPromptBuilder
    from graphrt.graph.durable.work import Ledger
    from graphrt.graph.protocols import Question, RunEvent
    from graphrt.graph.scheduler.limits import BudgetTracker
    from graphrt.graph.scheduler.result import RunResult
    from graphrt.ledger.store import RunLedgerStore
    from graphrt.llm.executor import LLMExecutor
    from graphrt.llm.provider import LLMProvider
    from graphrt.memory.store import MemoryStore
    from graphrt.policies import Budget
    from graphrt.registry import RegistrySet
    from graphrt.telemetry import Telemetry
    from graphrt.tools.base import Tool


class AgentRuntime:
    """Runs the agents of a set of registries; made by `AgentRuntimeBuilder`, or from a provider.

    Inside `async with runtime:` it may be used like anywhere else; at the end it closes the providers it owns.
    """

    def __init__(
        self,
        registries: RegistrySet,
        *,
        config: AgentConfig | None = None,
        hook_executor: HookExecutor | None = None,
        telemetry: Telemetry | None = None,
        default_agent: str | None = None,
        owned: Iterable[Any] = (),
        ledger: RunLedgerStore | Ledger | None = None,
    ) -> None:
        """Take what there is to run.

        Args:
            registries: Agents, and what they consist of; asked anew for each run.
            config: Limits and request parameters of all runs.
            hook_executor: Who is told of turns, requests and errors.
            telemetry: Where spans go; the global tracer provider when None.
            default_agent: Whom `process` asks when it is not told; when None, the only agent there is.
            owned: Providers that are closed with the runtime.
            ledger: Where every run is recorded: those of `run`, of turns, and of agents that are called.

        Raises:
            ConfigError: *ledger* is none, or a plugin has the id of the one that calls the hooks.
        """
        self._config = config = AgentConfig() if config is None else config
        registries = compacting(registries, config)
        self._registries = registries if hook_executor is None else bridged(registries, hook_executor)
        self._hooks = hook_executor
        self._telemetry = telemetry
        self._default = default_agent
        self._owned = tuple(owned)
        self._questions = Questions()
        self._ledger: RunLedgerStore | Ledger | None = checked_ledger(ledger)
        self._runs = AgentRuns(
            self._registries, self._config, self._questions, hook_executor, telemetry=telemetry, ledger=self._ledger
        )

    @classmethod
    def from_provider(
        cls,
        provider: LLMProvider | LLMExecutor,
        *,
        config: AgentConfig | None = None,
        tools: Iterable[Tool | Callable[..., Any]] | ToolRegistry = (),
        tracer_provider: Any = None,
        ledger: RunLedgerStore | Ledger | None = None,
        hook_executor: HookExecutor | None = None,
        system_prompt_builder: SystemPromptBuilder | None = None,
    ) -> AgentRuntime:
        """Make a runtime of one agent, `"default"`, that asks *provider*, which stays the caller's to close.

        Args:
            provider: Whom to ask.
            config: The agent: its prompt, model and limits.
            tools: Tools, functions to make some of, or a registry.
            tracer_provider: Where spans go: a tracer provider, or a `Telemetry`, which also says what they hold.
            ledger: Where every run is recorded, so that it can be resumed; None: runs are not recorded.
            hook_executor: Who is told of turns, requests and errors.
            system_prompt_builder: Makes the prompt of each turn, in the place of the config's.

        Raises:
            ConfigError: An argument is of the wrong kind, or two tools have one id.
        """
        config = AgentConfig() if config is None else config
        if system_prompt_builder is not None:
            config = config.model_copy(update={"system_prompt": system_prompt_builder})
        registries = world_of(provider, config, registry_of(tools))
        telemetry = telemetry_of(tracer_provider)
        return cls(
            registries,
            config=config,
            hook_executor=hook_executor,
            telemetry=telemetry,
            default_agent=DEFAULT,
            ledger=ledger,
        )

    def __repr__(self) -> str:
        return f"AgentRuntime({', '.join(self._registries.agents.ids())})"

    @property
    def registries(self) -> RegistrySet:
        """Agents, and what they consist of, as they are resolved."""
        return self._registries

    @property
    def config(self) -> AgentConfig:
        """Limits and request parameters of all runs."""
        return self._config

    # ------------------------------------------------------------ runs

    async def run(
        self,
        request: RunRequest,
        *,
        on_event: Callable[[RunEvent], Any] | None = None,
        on_ask: OnAsk | None = None,
        deps: Any = None,
        budget: Budget | BudgetTracker | None = None,
    ) -> RunResult:
        """Run an agent once, and give how that ended, whatever the ending: see `termination` of the result.

        With a ledger, a run of this id that exists is not run again: its result is waited for. And a run of which
        all that is left waits for a person ends suspended, when there is no *on_ask*: see `questions` of the result,
        and go on with `resume()`. Agents that it calls do not suspend it: their questions wait for `answer()`.

        Args:
            request: Which agent, and with what.
            on_event: Called with every event of the run.
            on_ask: Answers where a call needs a person's approval; without it, and without a ledger, the run waits
                for `answer()`.
            deps: What tools find as `ctx.deps`.
            budget: What models and tools may use, in all.

        Raises:
            ResolveError: The agent cannot be put together.
            ConfigError: An argument is of the wrong kind, or the agent's parts do not fit together.
            RunControlError: The ledger refused, or cannot be reached; a run of this id has another input.
        """
        return await self._runs.run(request, on_event=on_event, on_ask=on_ask, deps=deps, budget=budget)

    async def resume(
        self,
        run_id: str,
        *,
        answers: Any = None,
        on_event: Callable[[RunEvent], Any] | None = None,
        on_ask: OnAsk | None = None,
        deps: Any = None,
        budget: Budget | BudgetTracker | None = None,
        on_change: Literal["refuse", "ignore"] = "refuse",
    ) -> RunResult:
        """Go on with a run in the ledger that waits, failed, was cancelled or out of time, or has lost its process.

        Its agent is put together anew, as it is registered here. Models and tools that have answered are not asked
        again, and agents that it called go on where they were; a tool that was at work is called again, with the same
        `idempotency_key`. Plugins are activated and told of a start anew: their state is not stored. The time that
        the config allows counts from now, and a turn's own request parameters are not stored.

        Args:
            run_id: The run.
            answers: Answers to its questions by their ids: True, False, or `{"approved": ..., "reason": ...,
                "arguments": ...}`; a bare value if exactly one is open.
            on_event: Called with every further event.
            on_ask: Answers further questions; without it the run ends suspended again.
            deps: What tools find as `ctx.deps`.
            budget: What models and tools may use, from now.
            on_change: `"ignore"` goes on though the agent has other tools now, as far as what is stored still fits.

        Raises:
            ConfigError: The runtime has no ledger, or an argument is of the wrong kind.
            RunControlError: There is no such run, it is completed, or somebody is at work on it.
            ResolveError: The agent cannot be put together.
            GraphChangedError: The agent is not what it was; the message says what differs.
            GraphError: A bare value as answer, and not exactly one question open; or an id that no question has.
            GraphTypeError: An answer does not fit its question; nothing was changed.
        """
        return await self._runs.resume(
            run_id,
            answers=answers,
            on_event=on_event,
            on_ask=on_ask,
            deps=deps,
            budget=budget,
            on_change=on_change,
        )

    def stream(
        self,
        request: RunRequest,
        *,
        on_ask: OnAsk | None = None,
        deps: Any = None,
        budget: Budget | BudgetTracker | None = None,
    ) -> AgentRunStream:
        """Run an agent once, and read along: `async with runtime.stream(request) as run: async for event in run: ...`.

        When the events are at their end, `run.result` has what `run()` returns; with a ledger that may be a run that
        is suspended. Leaving the block early cancels it.
        """

        async def begin(tell: Tell) -> RunResult:
            return await self.run(request, on_event=tell, on_ask=on_ask, deps=deps, budget=budget)

        return AgentRunStream(begin, self._questions)

    # ------------------------------------------------------------ turns

    async def process(
        self,
        user_input: str | GatewayMessage,
        session: Session,
        *,
        agent_id: str | None = None,
        on_ask: OnAsk | None = None,
        **params: Any,
    ) -> str:
        """Run one turn of *session*, and give the agent's reply.

        A limit or a time-out is answered with a text, the config's `limit_reply` or `timeout_reply`. The session then
        keeps what was said up to the limit, or after a time-out only what the user said, and the text.

        Args:
            user_input: What the user says.
            session: Where the conversation is kept; turns of one session wait for one another.
            agent_id: Who answers; the default agent when None.
            on_ask: Answers where a call needs a person's approval; without it the turn waits for `answer()`.
            params: Request parameters of this turn, such as `temperature`; they win over the config's.

        Raises:
            ConfigError: An argument is of the wrong kind, or one of *params* is none of a request.
            AgentError: The turn failed for another reason, and the session is as it was.
        """
        text = user_input.text if isinstance(user_input, GatewayMessage) else user_input
        if not isinstance(text, str):
            raise ConfigError(f"the input is a {type(text).__name__}, which is no text", hint="give a str")
        if not isinstance(session, Session):
            raise ConfigError(f"the session is of type {type(session).__name__}", hint="give a Session(id)")
        check_params(params)
        begin = partial(self._setting, session, self._agent_id(agent_id), params)
        try:
            response = await Turn(session, text, begin, questions=self._questions, on_ask=on_ask).take()
        except LimitExceededError as limit:  # at the session's door
            return notice_of(self._config, limit.limit)
        return response.content

    def _setting(self, session: Session, agent_id: str, params: dict[str, Any]) -> TurnSetting:
        """Say how a turn that begins now is run."""
        check_max_turns(session, self._config.max_turns)
        model = params.get("model")
        params = {name: value for name, value in params.items() if name != "model"}
        return TurnSetting(
            agent=agent_id,
            config=self._config,
            assemble=partial(self._assemble, session, agent_id, model),
            hooks=self._hooks,
            telemetry=self._telemetry,
            params=params,
            notices=True,
            ledger=self._ledger,
        )

    async def _assemble(self, session: Session, agent_id: str, model: str | None) -> Assembled:
        from dataclasses import replace

        from graphrt.registry import resolve

        resolved = resolve(self._registries, agent_id)
        if model is not None:
            resolved = replace(resolved, model_name=model)
        return Assembled(resolved, self._registries, await self._runs.prompt(agent_id, session))

    def _agent_id(self, agent_id: str | None) -> str:
        if agent_id is not None or self._default is not None:
            return agent_id or self._default or ""
        local = local_ids(self._registries.agents)
        if len(local) != 1:
            raise ConfigError(
                f"the runtime has {len(local)} agents, and none was named",
                hint=f"give agent_id=; agents: {', '.join(local) or 'none'}",
            )
        return local[0]

    def open_session(
        self,
        agent_id: str | None = None,
        session_id: str | None = None,
        *,
        session: Session | None = None,
        session_memory_backend: MemoryStore | None = None,
        clock: Clock | None = None,
        memory_tools: bool = False,
    ) -> AgentSession:
        """Open a conversation with one of the agents.

        Args:
            agent_id: Who answers; the default agent when None.
            session_id: Names the conversation; made up when None.
            session: A conversation to go on with.
            session_memory_backend: Where the session's memory is kept; its own when None.
            clock: Tells how long the session has lain idle.
            memory_tools: Offer the model tools for the session's memory.

        Raises:
            ResolveError: The agent cannot be put together.
            ConfigError: No agent was named, and there is more than one.
        """
        from graphrt.registry import resolve

        agent_id = self._agent_id(agent_id)
        resolved = resolve(self._registries, agent_id)
        tools = ToolRegistry(permission_checker=resolved.permission)
        for id, tool in resolved.tools.items():
            tools.register(tool, id=id)
        registries = self._registries
        hooks = self._hooks or hooks_of(registries)
        if hooks is None:
            hooks = HookExecutor()
            registries = bridged(registries, hooks)
        bundle = RuntimeBundle(
            resolved.executor,
            tools,
            hooks,
            session_memory_backend=session_memory_backend,
            config=self._config.model_copy(update={"model": resolved.model_name}),
        )
        return AgentSession(
            (f"session-{new_run_id()[4:]}" if session is None else session.id) if session_id is None else session_id,
            RegisteredAgent(registries, agent_id, self._config),
            bundle,
            telemetry=self._telemetry,
            clock=clock,
            memory_tools=memory_tools,
            session=session,
            ledger=self._ledger,
        )

    # ------------------------------------------------------------ questions, closing

    @property
    def questions(self) -> list[Question]:
        """Questions of runs and turns that wait for a person."""
        return self._questions.open()

    async def answer(self, question_id: str, value: Any) -> None:
        """Answer a question: True, False, or `{"approved": ..., "reason": ..., "arguments": ...}`.

        Raises:
            ConfigError: No such question is open.
            GraphTypeError: The answer does not fit the question, which stays open.
        """
        await self._questions.answer(question_id, value)

    async def aclose(self) -> None:
        """Close the providers that the runtime owns, each of them, also when one fails or this is cancelled.

        Raises:
            Exception: What one of them raised; an `ExceptionGroup` when several did.
        """
        await close_all(self._owned)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with second_to(error):
            await self.aclose()
