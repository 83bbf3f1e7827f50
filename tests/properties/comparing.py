"""What two outcomes of one run must have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.properties.description import Outcome, ScopeKey, StepEnd, StepKey, plain
from tests.properties.records import UNTOLD
from tests.properties.reference import Interpreter


def seen(outcome: Outcome) -> Outcome:
    """Reduce the reference's outcome to what can be compared."""
    return replace(
        outcome,
        output=plain(outcome.output),
        outputs={name: plain(value) for name, value in outcome.outputs.items()},
        steps={key: replace(end, value=plain(end.value)) for key, end in outcome.steps.items()},
        doubts=frozenset(),
    )


def settled(outcome: Outcome, ran: set[StepKey], broken: frozenset[ScopeKey]) -> Outcome:
    """Leave out what happens within one instant in either order.

    A step that was to start when its scope was cut short may count as cancelled, as skipped, or never be heard
    of: *ran* are the steps that were seen running, *broken* those scopes. In all others what was passed over and
    how many rounds had begun counts too. One step's end may break two of the graph's own rules at once.
    """
    steps = {
        key: StepEnd("never") if end.state == "cancelled" and key not in ran else end
        for key, end in outcome.steps.items()
        if key in ran or key[0] not in broken
    }
    rounds = {place: number for place, number in outcome.rounds.items() if place[0] not in broken}
    own = outcome.error in ("GraphError", "StateConflictError", "LimitExceededError") and () in broken
    status, error = ("failed", "its own") if own else (outcome.status, outcome.error)
    return replace(outcome, status=status, error=error, steps=steps, rounds=rounds, broken=frozenset())


def kind(outcome: Outcome) -> bool:
    """Which of two failures comes first, or whether a limit comes before either, is not promised (E7)."""
    return outcome.status == "succeeded"


def promised(outcome: Outcome) -> tuple[Any, ...]:
    """What must not depend on the order of completions (E7)."""
    if not kind(outcome):
        return (False,)
    steps = {key: end for key, end in outcome.steps.items() if not key[0]}
    return (True, outcome.output, outcome.outputs, outcome.state, steps)


def at_once(judge: Interpreter) -> bool:
    """Whether two things happened in one instant whose order is not told apart."""
    return bool(UNTOLD & judge.doubts)


def brings_the_same(judge: Interpreter, key: StepKey, given: Mapping[str, Any]) -> bool:
    """Whether a step got by its parameters what its edges bring; None stands for nothing."""
    inputs = judge.steps[key].inputs
    return dict(given) == {name: plain(inputs.get(name)) for name in given}
