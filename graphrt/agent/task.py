"""`TaskAgent`: a goal becomes a plan, and a plan is carried out, one turn of a session for each step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Protocol

from graphrt.agent.parser import PlanParser
from graphrt.agent.plan import Plan
from graphrt.agent.registered import model_name
from graphrt.agent.turn import tell_of_failure
from graphrt.errors import AgentError, ConfigError, LimitExceededError, PlanParseError
from graphrt.graph.protocols import END, START
from graphrt.graph.states import RunStatus
from graphrt.graph.workflow import Workflow
from graphrt.hooks import HookContext, HookEvent
from graphrt.nodes.inference import InferenceNode
from graphrt.nodes.plan import compile_plan, policy_of
from graphrt.nodes.plan_order import FailurePolicy, PlanSession

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from graphrt.agent.bundle import RuntimeBundle
    from graphrt.graph.scheduler.context import RunContext
    from graphrt.llm.cost import CostTracker
    from graphrt.llm.executor import InferenceRequest
    from graphrt.messages import LLMResponse
    from graphrt.nodes.plan import SkipIf
    from graphrt.telemetry import Telemetry

DEFAULT_PLANNING_PROMPT: Final = (
    "Break the user's goal into as few steps as it takes. Each step is carried out by an assistant that reads its "
    "description and remembers the steps before it. Plan only; do not carry anything out."
)
"""What the planner is told before it is told of the form of its answer."""


class TaskSession(PlanSession, Protocol):
    """The session of a task agent."""

    @property
    def bundle(self) -> RuntimeBundle:
        """The agent's dependencies: the planner is asked through its provider."""
        ...

    @property
    def cost_so_far(self) -> CostTracker:
        """Counts what the planner used."""
        ...

    @property
    def telemetry(self) -> Telemetry | None:
        """Where spans go."""
        ...


class TaskAgent(ABC):
    """Makes a plan for a goal, and carries plans out. A plan is carried out once: to try again, make a new one."""

    @abstractmethod
    async def run(self, goal: str) -> Plan:
        """Ask for a plan, and carry it out as `execute_plan` does.

        Raises:
            AgentError: There is no plan: the planner could not be asked, or did not write one.
        """

    @abstractmethod
    async def execute_plan(self, plan: Plan) -> Plan:
        """Carry out the steps of *plan* that have not ended, and give it; failed steps hold their errors."""


class SessionTaskAgent(TaskAgent):
    """Plans by asking the session's model once, and carries each step out as a turn of the session."""

    def __init__(
        self,
        session: TaskSession,
        plan_parser: PlanParser,
        *,
        failure_policy: FailurePolicy = FailurePolicy.STOP,
        skip_if: SkipIf | None = None,
        planning_prompt: str = DEFAULT_PLANNING_PROMPT,
        planning_params: Mapping[str, Any] | None = None,
    ) -> None:
        """Take the session and the parser, of which there is no default.

        Args:
            session: Where the turns are submitted.
            plan_parser: Reads what the planner writes. If it has `instructions`, the planner is told them.
            failure_policy: What becomes of the steps that have not been started when a step fails.
            skip_if: A function of a step, async or not; True skips it.
            planning_prompt: What the planner is told, before the parser's instructions.
            planning_params: Further parameters of the planner's request, such as a `response_format`, where the
                provider takes one: a small model then writes the form it is asked for.

        Raises:
            ConfigError: The parser or the failure policy is none.
        """
        if isinstance(plan_parser, type) or not isinstance(plan_parser, PlanParser):
            raise ConfigError(
                f"plan_parser is {plan_parser!r}, which parses no plans",
                hint="give a PlanParser, such as JsonPlanParser()",
            )
        self.session = session
        self.plan_parser = plan_parser
        self.failure_policy = policy_of(failure_policy)
        self.skip_if = skip_if
        self.planning_prompt = planning_prompt
        self.planning_params = dict(planning_params or {})

    async def run(self, goal: str) -> Plan:
        """Ask the session's model for a plan, and carry it out.

        Asking is no turn: the conversation is neither read nor written, there are no tools, and no turn is
        counted. It may take as long as a turn. `PRE_REQUEST`, `POST_REQUEST` and `ON_ERROR` hooks are called as
        for any request.

        Raises:
            AgentLlmError: The planner could not be asked.
            LimitExceededError: The planner took too long.
            HookBlockedError: A hook refused the request.
            PlanParseError: What the planner wrote is no plan.
        """
        raw = await self._ask(goal)
        return await self.execute_plan(await self._parse(raw, goal))

    async def execute_plan(self, plan: Plan) -> Plan:
        """Carry out the steps of *plan* that have not ended, and give it; failed steps hold their errors.

        When it is cancelled, the step at work becomes failed, and those after it stay pending.

        Raises:
            AgentError: The plan is none, or is being carried out already, or a critical hook raised an error.
        """
        if not isinstance(plan, Plan):
            raise ConfigError(f"execute_plan() is given {plan!r}, which is no Plan", hint="give Plan(goal, steps)")
        if plan.finished:
            return plan
        graph = compile_plan(plan, self.session, failure_policy=self.failure_policy, skip_if=self.skip_if)
        try:
            await graph.run(telemetry=self.session.telemetry)
        except AgentError:
            raise
        except Exception as error:
            raise AgentError.wrap(error) from error
        return plan

    async def _ask(self, goal: str) -> str:
        """Ask for the plan, as a run of one node."""
        session = self.session
        graph = Workflow("planning")
        graph.add(_PlannerNode(session, self._system_prompt(), self.planning_params))
        graph.chain(START, "planner", END)
        seconds = session.bundle.config.timeout_seconds
        result = await graph.run(goal, timeout=seconds, check=False, telemetry=session.telemetry)
        if result.error is None:
            content: str = result.output.content
            return content
        error = _planning_error(result.error, seconds if result.status is RunStatus.TIMED_OUT else None)
        context = HookContext(
            HookEvent.ON_ERROR,
            session_id=session.session_id,
            run_id=result.run_id,
            data={"user_input": goal, "error": error},
        )
        await tell_of_failure(session.bundle.hook_executor, context, session.telemetry, seconds=seconds)
        raise error

    def _system_prompt(self) -> str:
        parts = (self.planning_prompt, getattr(self.plan_parser, "instructions", None))
        return "\n\n".join(part for part in parts if part)

    async def _parse(self, raw: str, goal: str) -> Plan:
        try:
            plan = await self.plan_parser.parse(raw, goal)
        except AgentError:
            raise
        except Exception as error:
            raise PlanParseError(f"the plan cannot be read: {type(error).__name__}: {error}", cause=error) from error
        if not isinstance(plan, Plan):
            raise ConfigError(
                f"the parser {self.plan_parser!r} gave a {type(plan).__name__}", hint="parse() is to give a Plan"
            )
        return plan


class _PlannerNode(InferenceNode):
    """Asks for the plan, with the hooks that stand around every request of the session."""

    def __init__(self, session: TaskSession, system_prompt: str, params: Mapping[str, Any]) -> None:
        bundle, config = session.bundle, session.bundle.config
        super().__init__(
            "planner",
            model=(bundle.provider, model_name(bundle.provider, config)),
            system_prompt=system_prompt,
            params={"temperature": config.temperature, "max_tokens": config.max_tokens, **params},
            prepare=self._before,
            on_usage=session.cost_so_far.add,
            session_id=session.session_id,
        )
        self._told = bundle.hook_executor
        self._asked: dict[str, Any] = {}

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> LLMResponse:
        response = await super().run(inputs, ctx)
        await self._tell(HookEvent.POST_REQUEST, ctx, **self._asked, response=response)
        return response

    async def _before(self, request: InferenceRequest, ctx: RunContext[Any]) -> InferenceRequest:
        self._asked = {"request": request, "model": request.model, "messages": list(request.messages)}
        await self._tell(HookEvent.PRE_REQUEST, ctx, **self._asked)
        return request

    async def _tell(self, event: HookEvent, ctx: RunContext[Any], **data: Any) -> None:
        context = HookContext(event, session_id=self._session_id, run_id=ctx.run_id, data=data)

        def span(name: str, told: HookContext) -> AbstractContextManager[Callable[[BaseException], object]]:
            return ctx.hook_span(name, context=told)

        result = await self._told.execute(event, context, span=span if ctx.traced else None)
        result.raise_if_blocked(event)


def _planning_error(error: BaseException, timed_out: float | None) -> AgentError:
    """Give the error that planning ends with; *timed_out* are the seconds that it had."""
    if timed_out is not None:
        text = f"the plan did not come within {timed_out:g} s"
        return LimitExceededError(text, limit="timeout", cause=error, hint="raise timeout_seconds in AgentConfig")
    assert isinstance(error, Exception), error
    return AgentError.wrap(error)
