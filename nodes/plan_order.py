"""A plan as its nodes see it: what its steps offer, the states they are in, and the order in which they go."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Protocol

from graphrt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphrt.errors import AgentError
    from graphrt.hooks import HookContext, HookEvent, HookResult, HookSpan
    from graphrt.messages import ChatResponse, Message


class StepState(StrEnum):
    """Where a plan's step stands.

    Attributes:
        PENDING: It waits.
        RUNNING: Its turn is at work.
        COMPLETED: Its turn has succeeded.
        FAILED: Its turn has failed.
        SKIPPED: It had no turn: a step it depends on was not completed, the plan had failed, or `skip_if` said so.
    """

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


TERMINAL: Final = frozenset({StepState.COMPLETED, StepState.FAILED, StepState.SKIPPED})
"""States that a step does not leave."""


class FailurePolicy(StrEnum):
    """What becomes of the steps that have not been started when a step fails.

    Attributes:
        STOP: They are skipped; turns that are at work beside it end first.
        CONTINUE: They are carried out, except those that depend on a step that was not completed.
    """

    STOP = "stop"
    CONTINUE = "continue"


# ---------------------------------------------------------------- what is asked of a plan and a session


class StatusView(Protocol):
    """The status of a step."""

    @property
    def state(self) -> StepState:
        """Where the step stands."""
        ...

    @property
    def response(self) -> ChatResponse | None:
        """The turn of a completed step."""
        ...

    @property
    def error(self) -> AgentError | None:
        """What a failed step failed with."""
        ...

    @property
    def reason(self) -> str | None:
        """Why a step was skipped."""
        ...


class LaidOut(Protocol):
    """What the order of steps is made of."""

    @property
    def index(self) -> int:
        """Place in the plan, from 0."""
        ...

    @property
    def depends_on(self) -> Sequence[int] | None:
        """Indices of the steps that come before; None where that is not said."""
        ...


class StepView(LaidOut, Protocol):
    """One step of a plan: its node moves it from state to state, in one direction."""

    @property
    def description(self) -> str:
        """What is to be done: the text of the turn."""
        ...

    @property
    def status(self) -> StatusView:
        """Where the step stands now."""
        ...

    def start(self) -> None:
        """Go from pending to running, before anything else is done."""
        ...

    def complete(self, response: ChatResponse, /) -> None:
        """Go from running to completed, with the turn."""
        ...

    def fail(self, error: Exception, /) -> None:
        """Go from running to failed, with what the turn raised."""
        ...

    def skip(self, reason: str | None = None, /) -> None:
        """Go from running to skipped: there is no turn."""
        ...


class PlanView(Protocol):
    """A plan, whose steps are numbered from 0 in their order."""

    @property
    def id(self) -> str:
        """Unique among plans; the name of the compiled graph."""
        ...

    @property
    def goal(self) -> str:
        """What the plan is for."""
        ...

    @property
    def steps(self) -> Sequence[StepView]:
        """The steps, each at its index."""
        ...


class Hooks(Protocol):
    """Whom a plan tells how its steps stand; a `HookExecutor` is one."""

    async def execute(self, event: HookEvent, ctx: HookContext, *, span: HookSpan | None = None) -> HookResult:
        """Call the hooks of *event*; called when a step starts running and when it ends."""
        ...


class HasHooks(Protocol):
    """What a session has its hooks from."""

    @property
    def hook_executor(self) -> Hooks:
        """The hooks that are told of plans unless others are given."""
        ...


class TurnSession(Protocol):
    """A conversation that takes turns."""

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation so far, finished turns only."""
        ...

    async def submit_turn(self, user_input: str, /) -> ChatResponse:
        """Carry out one turn; called once for each step that is not skipped."""
        ...


class PlanSession(TurnSession, Protocol):
    """The session in which a plan is carried out."""

    @property
    def session_id(self) -> str:
        """The session's id, for hooks and spans."""
        ...

    @property
    def bundle(self) -> HasHooks:
        """The agent's dependencies, hooks among them."""
        ...

    def branch(self, index_offset: int, history: Sequence[Message]) -> TurnSession:
        """Give a session for one turn beside others: the same in all, with a conversation and a lock of its own.

        Its turn counts as the one *index_offset* turns after the session's next. Called when a step of a plan
        with parallel steps starts.
        """
        ...

    def absorb(self, turns: Sequence[Sequence[Message]], count: int) -> None:
        """Add the messages of *count* turns that branches have finished, and count the turns.

        Called at most once for each time that a plan with parallel steps is carried out, after its last step.
        """
        ...


# ---------------------------------------------------------------- order


@dataclass(frozen=True, slots=True)
class Order:
    """In which order the steps of a plan go, and what each has before it."""

    steps: tuple[int, ...]
    """All indices: dependencies before dependents, else the lower one first."""
    before: tuple[frozenset[int], ...]
    """By index, all steps that have to have ended before, those of those included; empty for a sequential plan."""
    branched: bool
    """Whether steps depend on others by name, rather than each on the one before it."""
    sequential: bool
    """Whether no two steps can run at once."""

    def edges(self, steps: Sequence[LaidOut]) -> list[tuple[int | None, int | None]]:
        """List the edges between steps; None stands for the start where it comes first, else for the end."""
        if not steps:
            return [(None, None)]
        if not self.branched:
            ends = [*range(len(steps)), None]
            return list(zip([None, *ends[:-1]], ends, strict=True))
        edges: list[tuple[int | None, int | None]] = []
        followed: set[int] = set()
        for step in steps:
            sources = dict.fromkeys(_sources(step))
            followed.update(sources)
            edges.extend((source, step.index) for source in sources or (None,))
        edges.extend((step.index, None) for step in steps if step.index not in followed)
        return edges


def order_of(steps: Sequence[LaidOut], *, plan: str) -> Order:
    """Work out the order of a plan's steps; *plan* names it in messages.

    They go by what they depend on where one of them names another, or where all of them say that they need none.

    Raises:
        ConfigError: The indices are not 0, 1, 2, ... in this order, or a step depends on one that the plan
            lacks, or on itself, directly or by way of others.
    """
    _check(steps, plan)
    if not any(map(_sources, steps)) and (not steps or any(step.depends_on is None for step in steps)):
        return Order(tuple(range(len(steps))), (), branched=False, sequential=True)
    found = _in_order(steps)
    if len(found) < len(steps):
        raise _circle(steps, set(range(len(steps))) - set(found), plan)
    if all(source in _sources(steps[target]) for source, target in pairwise(found)):
        return Order(tuple(found), (), branched=True, sequential=True)
    before: dict[int, frozenset[int]] = {}
    for index in found:
        sources = frozenset(_sources(steps[index]))
        before[index] = sources.union(*(before[source] for source in sources))
    return Order(tuple(found), tuple(before[step.index] for step in steps), branched=True, sequential=False)


def _sources(step: LaidOut) -> Sequence[int]:
    return step.depends_on or ()


def _in_order(steps: Sequence[LaidOut]) -> list[int]:
    """List the indices, dependencies first; those in a circle, and those after one, are left out."""
    missing = {step.index: len(set(_sources(step))) for step in steps}
    followers: dict[int, list[int]] = {}
    for step in steps:
        for source in set(_sources(step)):
            followers.setdefault(source, []).append(step.index)
    ready = [index for index, count in missing.items() if not count]
    found: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        found.append(index)
        for follower in followers.get(index, ()):
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(ready, follower)
    return found


def _check(steps: Sequence[LaidOut], plan: str) -> None:
    for place, step in enumerate(steps):
        if type(step.index) is not int or step.index != place:
            raise ConfigError(
                f"the step at place {place} of plan {plan!r} has index {step.index!r}",
                hint="number the steps 0, 1, 2, ... in their order",
            )
        for source in _sources(step):
            if type(source) is not int or not 0 <= source < len(steps):
                raise ConfigError(
                    f"step {place} of plan {plan!r} depends on step {source!r}, which the plan does not have",
                    hint=f"depends_on takes indices of steps, from 0 to {len(steps) - 1}",
                )


def _circle(steps: Sequence[LaidOut], left: set[int], plan: str) -> ConfigError:
    """Make the error for steps that can never start; of *left* each depends on another of them."""
    path: list[int] = [min(left)]
    while True:
        step: Any = next(source for source in _sources(steps[path[-1]]) if source in left)
        if step in path:
            break
        path.append(step)
    circle = [*path[path.index(step) :], step]
    return ConfigError(
        f"steps of plan {plan!r} depend on each other in a circle: {' -> '.join(map(str, circle))}",
        hint="take one of these out of depends_on",
    )
