"""What the planner is asked for, and the check it has to pass before anything of it runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from graphrt.errors import GraphError

if TYPE_CHECKING:
    from collections.abc import Collection

_NAMED: Final = 3  # wrong ids in one message

MOST_STEPS: Final = 8
"""Steps that no plan may exceed, whatever is asked for."""


# In the schema alone: a model that keeps to it cannot name a file as a step, and what another one writes is
# refused by the check, in words that help.
_STEP_ID: Final = {"pattern": "^s[1-9]$"}


class PlanStep(BaseModel):
    """One question of a plan."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, Field(description="s1, s2, and so on.", json_schema_extra=_STEP_ID)]
    question: Annotated[str, Field(description="One question that the documents can answer.")]
    depends_on: Annotated[
        list[Annotated[str, Field(json_schema_extra=_STEP_ID)]],
        Field(description="Ids of earlier steps whose answers this one needs; mostly empty."),
    ] = []


class Plan(BaseModel):
    """Questions, and which of them need the answers of others."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: list[PlanStep]

    def ready(self, done: Collection[str]) -> list[PlanStep]:
        """Give the steps that are not *done* and need nothing else first, in the plan's order."""
        return [
            step for step in self.steps if step.id not in done and all(needed in done for needed in step.depends_on)
        ]


class PlanError(GraphError):
    """A plan that cannot be run; ``problems`` has one sentence for each thing that is wrong with it."""

    def __init__(self, problems: Collection[str] = (), *, hint: str | None = None) -> None:
        self.problems = tuple(problems)
        super().__init__("the plan cannot be run: " + "; ".join(self.problems), hint=hint)


def check_plan(plan: Plan, *, most: int = MOST_STEPS) -> Plan:
    """Give *plan* back if it can be run: at least one step and at most *most*, known dependencies, no cycle.

    Raises:
        PlanError: It cannot; all that is wrong is named at once.
    """
    problems = [*_wrong_size(plan, most), *_wrong_steps(plan)]
    if not problems and (cycle := _cycle(plan)):
        waiting = ", ".join(map(repr, cycle))
        problems.append(f"the steps {waiting} wait for each other in a circle: let depends_on be empty")
    if problems:
        raise PlanError(problems)
    return plan


def _wrong_size(plan: Plan, most: int) -> list[str]:
    if not plan.steps:
        return ["it has no steps"]
    allowed = f"{most} is" if most == 1 else f"{most} are"
    return [f"it has {len(plan.steps)} steps, and {allowed} allowed"] if len(plan.steps) > most else []


def _wrong_steps(plan: Plan) -> list[str]:
    problems: list[str] = []
    times = Counter(step.id for step in plan.steps)
    problems += [f"{count} steps have the id {id!r}" for id, count in times.items() if count > 1]
    asked = Counter(step.question.strip().casefold() for step in plan.steps)
    for step in plan.steps:
        if not step.id.strip():
            problems.append("a step has no id")
        if not step.question.strip():
            problems.append(f"step {step.id!r} asks nothing")
        elif asked.pop(step.question.strip().casefold(), 0) > 1:
            problems.append(f"the question {step.question!r} is asked more than once")
        unknown = [needed for needed in step.depends_on if needed not in times]
        if unknown:
            named = ", ".join(map(repr, unknown[:_NAMED])) + (", ..." if len(unknown) > _NAMED else "")
            problems.append(f"step {step.id!r} depends on {named}, and no step has that id")
    return problems


def _cycle(plan: Plan) -> list[str]:
    """Give the ids that are left when steps that need nothing unfinished are taken away, again and again."""
    done: set[str] = set()
    while found := plan.ready(done):
        done |= {step.id for step in found}
    return [step.id for step in plan.steps if step.id not in done]
