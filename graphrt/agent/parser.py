"""From what a planner wrote to a plan."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

from graphrt.agent.plan import Plan, Step
from graphrt.errors import ConfigError, PlanParseError

_FENCE: Final = re.compile(r"(`{3,}|~{3,})[ \t]*[\w.+-]*")
"""How a Markdown code fence opens, with the name of a language."""
_SHOWN: Final = 80
"""Characters of a text that a message quotes."""


@runtime_checkable
class PlanParser(Protocol):
    """Reads the plan in a text.

    It may have an attribute `instructions`: what the planner is told of the form of its answer.
    """

    @abstractmethod
    async def parse(self, raw: str, goal: str) -> Plan:
        """Make the plan for *goal*, with an id of its own, from what a planner wrote; called once for each.

        Raises:
            PlanParseError: It is no plan.
        """
        ...


class JsonPlanParser:
    """Read `{"steps": [{"description": "..."}, ...]}`.

    A step may have `depends_on`, a list of the indices of steps, from 0; where every step has one, empty or not, the
    steps run by these. White space and one Markdown fence around
    the text are no matter, and neither are further keys.
    """

    instructions: ClassVar[str] = (
        'Answer with JSON only, of the form {"steps": [{"description": "..."}, ...]}: the steps in their order, each '
        "with a description that can be carried out on its own. Where steps need not follow one another, give every "
        'step also "depends_on", the list of the indices, from 0, of the steps whose results it needs.'
    )

    async def parse(self, raw: str, goal: str) -> Plan:
        """Make the plan for *goal*.

        Raises:
            PlanParseError: The text is no JSON of this form, or its steps do not make a plan.
        """
        steps = [_step(index, value) for index, value in enumerate(_steps(raw))]
        try:
            return Plan(goal, steps)
        except ConfigError as error:
            raise PlanParseError(error.message, cause=error, hint=error.hint) from error


def _steps(raw: str) -> list[Any]:
    try:
        found = json.loads(_without_fence(raw))
    except (ValueError, RecursionError) as error:
        raise PlanParseError(f"the plan is no JSON: {_quoted(raw)}", cause=error, hint=_HINT) from error
    if not isinstance(found, Mapping):
        raise PlanParseError(f"the plan is no JSON object: {_quoted(raw)}", hint=_HINT)
    if "steps" not in found:
        raise PlanParseError(f"the plan has no 'steps', but {', '.join(map(repr, found)) or 'nothing'}", hint=_HINT)
    steps = found["steps"]
    if not isinstance(steps, list):
        raise PlanParseError(f"'steps' of the plan is {_quoted(steps)}, which is no list", hint=_HINT)
    if not steps:
        raise PlanParseError("the plan has no steps", hint="ask for at least one")
    return steps


_HINT: Final = 'the form is {"steps": [{"description": "..."}, ...]}'


def _step(index: int, value: Any) -> Step:
    if not isinstance(value, Mapping):
        raise PlanParseError(f"step {index} of the plan is {_quoted(value)}, which is no object", hint=_HINT)
    description = value.get("description")
    if not isinstance(description, str) or not description.strip():
        raise PlanParseError(
            f"step {index} of the plan has {_quoted(description)} for its 'description'", hint="give a text"
        )
    depends_on = value.get("depends_on")
    fits = depends_on is None or isinstance(depends_on, list)
    if not fits or any(type(each) is not int for each in depends_on or ()):
        raise PlanParseError(
            f"step {index} of the plan has {_quoted(depends_on)} for its 'depends_on'",
            hint="give a list of indices of steps, from 0",
        )
    return Step(index, description, depends_on=depends_on)


def _without_fence(raw: str) -> str:
    text = raw.strip()
    fence = _FENCE.match(text)
    if fence is None or not text.endswith(fence[1]):
        return text
    return text[fence.end() : len(text) - len(fence[1])]


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
