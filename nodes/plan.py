"""A plan as a graph: each of its steps is a node that carries out one turn of a session."""

from __future__ import annotations

import inspect
import logging
import textwrap
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio

from graphrt.errors import ConfigError, GraphError, LimitExceededError, RunCancelledError
from graphrt.graph.compile import compile_graph
from graphrt.graph.declared import GraphDecl
from graphrt.graph.graph import CompiledGraph
from graphrt.graph.protocols import END, START, NodeKind
from graphrt.graph.signature import NodeSignature
from graphrt.graph.workflow import Workflow
from graphrt.hooks import HookContext, HookEvent
from graphrt.nodes.plan_branches import opened
from graphrt.nodes.plan_order import (
    TERMINAL,
    FailurePolicy,
    Hooks,
    Order,
    PlanSession,
    PlanView,
    StepState,
    StepView,
    order_of,
)
from graphrt.telemetry import conventions as names
from graphrt.telemetry.views import RunSpan

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from graphrt.graph.scheduler.context import RunContext
    from graphrt.messages import ChatResponse

log = logging.getLogger(__name__)

SkipIf: TypeAlias = Callable[[Any], bool | Awaitable[bool]]
"""Asked of each step that would be carried out, on the event loop: whether it is to be skipped."""

PLAN_START: Final = "plan_start"
PLAN_END: Final = "plan_end"

_LAST_WORD: Final = 5.0
"""Seconds that hooks may take to be told of a step that was cancelled."""
_BRANCHES: Final = "graphrt.plan.branches"
_LABEL: Final = 40
"""Characters of a description that a picture shows."""


_ENDINGS: Final = {
    StepState.PENDING: "is pending",
    StepState.RUNNING: "is running",
    StepState.FAILED: "has failed",
    StepState.SKIPPED: "was skipped",
}


@dataclass(frozen=True, slots=True)
class PlanWork:
    """What the nodes of one compiled plan share: the plan, and how it is carried out."""

    plan: PlanView
    session: PlanSession
    order: Order
    hooks: Hooks | None = None
    failure_policy: FailurePolicy = FailurePolicy.STOP
    skip_if: SkipIf | None = None

    @property
    def seconds(self) -> float:
        """What the hooks of one event, or one answer of *skip_if*, may take: the session's own limit on a turn."""
        config = getattr(self.session.bundle, "config", None)
        return float(getattr(config, "timeout_seconds", inf))


@dataclass(slots=True)
class _PlanDecl(GraphDecl):
    """A declared graph whose run is a plan, for those who trace it."""

    run_span: RunSpan | None = None


def compile_plan(
    plan: PlanView,
    session: PlanSession,
    *,
    failure_policy: FailurePolicy = FailurePolicy.STOP,
    skip_if: SkipIf | None = None,
    hooks: Hooks | None = None,
) -> CompiledGraph:
    """Make a graph of a plan, named after its id: `plan_start`, a node `step:<i>` for each step, and `plan_end`.

    The steps follow one another, unless one names another in `depends_on`, or each has a `depends_on`, be it
    empty: then each follows those that it names, and what is left independent runs in parallel. Running the graph
    carries the plan out and gives the plan, whatever became of its steps; run again, it carries out the steps that
    have not ended.

    Parallel steps have turns of their own, in branches of *session*: each sees the conversation as it was when
    the plan started, and the turns of the steps that it depends on. The session gets them all, in order, when
    the run is over.

    Args:
        plan: The plan; the graph changes the status of its steps.
        session: Where the turns are submitted.
        failure_policy: What becomes of the steps that have not been started when a step fails.
        skip_if: A function of a step, async or not; True skips it. It may take the session's `timeout_seconds`,
            after which the step fails.
        hooks: Who is told how steps stand, with `ON_PLAN_STEP_COMPLETE`; the session's own hooks when None. After
            `timeout_seconds` they are cancelled, which is logged.

    Raises:
        ConfigError: The steps are not numbered in order or depend on what they cannot, or the failure policy is
            none.
    """
    order = order_of(plan.steps, plan=plan.id)
    hooks = session.bundle.hook_executor if hooks is None else hooks
    work = PlanWork(plan, session, order, hooks, policy_of(failure_policy), skip_if)
    graph = Workflow(plan.id)
    graph.add(_PlanStartNode(work))
    nodes = [PlanStepNode(step, work) for step in plan.steps]
    for node in nodes:
        graph.add(node, label=label_of(node.step))
    graph.add(_PlanEndNode(work))
    graph.edge(START, PLAN_START)
    for source, target in order.edges(plan.steps):
        graph.edge(
            PLAN_START if source is None else nodes[source].name, PLAN_END if target is None else nodes[target].name
        )
    graph.edge(PLAN_END, END)
    decl = graph.declared()
    return CompiledGraph(compile_graph(_PlanDecl(decl.name, decl.nodes, decl.edges, run_span=_span_of(work))))


def label_of(step: StepView) -> str:
    """Give what a picture says of a step: its node, and what it is to do, shortened."""
    return f"step:{step.index} {textwrap.shorten(step.description, _LABEL, placeholder='…')}".rstrip()


def policy_of(policy: str) -> FailurePolicy:
    """Read a failure policy, also one given as text.

    Raises:
        ConfigError: It is none.
    """
    try:
        return FailurePolicy(policy)
    except ValueError as error:
        raise ConfigError(
            f"failure_policy is {policy!r}, which is none", hint="give FailurePolicy.STOP or FailurePolicy.CONTINUE"
        ) from error


def _span_of(work: PlanWork) -> RunSpan:
    session_id = work.session.session_id
    attributes = {
        names.KIND: names.KIND_PLAN,
        names.PLAN_ID: work.plan.id,
        names.GOAL: work.plan.goal,
        names.SESSION_ID: session_id,
        names.CONVERSATION_ID: session_id,
    }
    return RunSpan(f"plan {work.plan.id}", attributes)


# ---------------------------------------------------------------- nodes


class PlanStepNode:
    """Carry out one step of a plan: one turn of its session, or none when the step is to be skipped.

    The node gives the state in which the step has ended, and does not fail with the turn: what the turn raised
    is in the step's status. A step that has ended before is left as it is. A cancellation, and what a critical
    hook raises, make the step fail and go on from here.
    """

    kind = NodeKind.PLAN_STEP

    def __init__(self, step: StepView, work: PlanWork) -> None:
        """Take the step, which is one of *work*'s plan."""
        self.step = step
        self._work = work

    @property
    def name(self) -> str:
        """Name of the node: `step:<index>`."""
        return f"step:{self.step.index}"

    @property
    def signature(self) -> NodeSignature:
        """Takes nothing, and gives a `StepState`."""
        return NodeSignature((), StepState)

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> StepState:
        """Carry out the step, unless it has ended.

        Raises:
            InvalidTransitionError: The step is running already; nothing changed.
            Exception: What a critical hook raised; the step has ended.
        """
        step = self.step
        if step.status.state in TERMINAL:
            ctx.annotate(names.PLAN_STEP_INDEX, step.index)
            ctx.annotate(names.PLAN_STEP_STATE, step.status.state.value)
        else:
            step.start()
            ctx.annotate(names.PLAN_STEP_INDEX, step.index)
            await self._carry_out(ctx)
        return step.status.state

    async def _carry_out(self, ctx: RunContext[Any]) -> None:
        step = self.step
        try:
            await self._tell(ctx)
            await self._decide(ctx)
        except BaseException as error:
            if step.status.state is StepState.RUNNING:
                cancelled = RunCancelledError(f"step {step.index} was cancelled")
                step.fail(error if isinstance(error, Exception) else cancelled)
                self._mark(ctx)
                if not isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
                    await self._tell_at_last(ctx)
            raise
        self._mark(ctx)
        await self._tell(ctx)

    async def _decide(self, ctx: RunContext[Any]) -> None:
        """Bring the running step to its end; what goes wrong on the way is kept in it."""
        step = self.step
        try:
            reason = await self._reason_to_skip()
            response = await self._turn(ctx) if reason is None else None
        except Exception as error:  # noqa: BLE001 - the step's status holds it, and the policy decides what follows
            step.fail(error)
        else:
            if response is None:
                step.skip(reason)
            else:
                step.complete(response)

    async def _reason_to_skip(self) -> str | None:
        step, work = self.step, self._work
        steps = work.plan.steps
        for source in step.depends_on or ():
            if steps[source].status.state is not StepState.COMPLETED:
                return f"it depends on step {source}, which {_ENDINGS[steps[source].status.state]}"
        if work.failure_policy is FailurePolicy.STOP:
            failed = next((each.index for each in steps if each.status.state is StepState.FAILED), None)
            if failed is not None:
                return f"step {failed} has failed"
        if work.skip_if is None:
            return None
        verdict: Any = None
        with anyio.move_on_after(work.seconds) as scope:
            verdict = work.skip_if(step)
            if inspect.isawaitable(verdict):
                verdict = await verdict
        if scope.cancelled_caught:
            raise LimitExceededError(
                f"skip_if did not answer for step {step.index} within {work.seconds:g} s",
                limit="timeout",
                hint="give it more time with AgentConfig(timeout_seconds=...)",
            )
        return "skip_if said so" if verdict else None

    async def _turn(self, ctx: RunContext[Any]) -> ChatResponse:
        work = self._work
        if work.order.sequential:
            return await work.session.submit_turn(self.step.description)
        branches = await ctx.resource(_BRANCHES, partial(opened, work))
        return await branches.turn(self.step)

    # ------------------------------------------------------------ telling

    def _mark(self, ctx: RunContext[Any]) -> None:
        """Say on the span how the step has ended."""
        if not ctx.traced:
            return
        status = self.step.status
        with suppress(GraphError):  # the step was given up by the engine before it could end by itself
            ctx.annotate(names.PLAN_STEP_STATE, status.state.value)
            ctx.annotate(names.ERROR_TYPE, status.error)

    async def _tell(self, ctx: RunContext[Any]) -> None:
        """Call the hooks with the step's status; those that take too long are cancelled, and the plan goes on."""
        hooks, status = self._work.hooks, self.step.status
        if hooks is None:
            return
        found = {"response": status.response, "error": status.error, "reason": status.reason}
        context = HookContext(
            HookEvent.ON_PLAN_STEP_COMPLETE,
            session_id=self._work.session.session_id,
            run_id=ctx.run_id,
            plan_step_index=self.step.index,
            data={"status": status.state, **{name: value for name, value in found.items() if value is not None}},
        )

        def span(name: str, told: HookContext) -> AbstractContextManager[Callable[[BaseException], object]]:
            return ctx.hook_span(name, context=told)

        seconds = self._work.seconds
        with anyio.move_on_after(seconds) as scope:
            await hooks.execute(context.event, context, span=span if ctx.traced else None)
        if scope.cancelled_caught:
            log.error("hooks on step %d of run %r took longer than %g s", self.step.index, ctx.run_id, seconds)

    async def _tell_at_last(self, ctx: RunContext[Any]) -> None:
        """Call the hooks although the step is being cancelled, or one of them has ended it."""
        with anyio.move_on_after(_LAST_WORD, shield=True):
            try:
                await self._tell(ctx)
            except Exception:
                log.exception("a hook failed when it was told of step %d, which has failed", self.step.index)


class _PlanStartNode:
    """Begin a plan: it is carried out once at a time."""

    kind = NodeKind.FUNCTION
    name = PLAN_START
    signature = NodeSignature((), type(None))

    def __init__(self, work: PlanWork) -> None:
        self._work = work

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> None:
        """Look that nobody else is at it, and note what the conversation is now if branches need that.

        Raises:
            ConfigError: A step is running.
        """
        work = self._work
        for step in work.plan.steps:
            if step.status.state is StepState.RUNNING:
                raise ConfigError(
                    f"plan {work.plan.id!r} is being carried out already: step {step.index} is running",
                    hint="wait for its end, or make a new plan",
                )
        if not work.order.sequential:
            await ctx.resource(_BRANCHES, partial(opened, work))


class _PlanEndNode:
    """End a plan, and give it."""

    kind = NodeKind.JOIN
    name = PLAN_END
    signature = NodeSignature(())

    def __init__(self, work: PlanWork) -> None:
        self._work = work

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> PlanView:
        """Give the plan."""
        return self._work.plan
