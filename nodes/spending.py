"""What one model call takes from the run's budget: reserved before it, counted on its way, settled after it (E21)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from graphrt.errors import ConfigError, LimitExceededError

if TYPE_CHECKING:
    from graphrt.graph.scheduler.limits import BudgetTracker
    from graphrt.messages import TokenUsage

CostOf: TypeAlias = Callable[["TokenUsage"], float]
"""Gives what a call has cost, in the unit of `Budget(cost=...)`."""


class Spending:
    """One call's share of a budget."""

    __slots__ = ("_budget", "_cost_of", "_counted", "max_tokens")

    def __init__(self, budget: BudgetTracker, max_tokens: int | None, cost_of: CostOf | None, *, node: str) -> None:
        """Count the request and reserve its tokens.

        Raises:
            ConfigError: The budget limits the cost, and nobody knows what the model costs.
            LimitExceededError: Nothing is left.
        """
        if budget.budget.cost is not None:
            if cost_of is None:
                raise ConfigError(
                    f"the run's budget limits the cost, and node {node!r} does not know what its model costs",
                    hint="give the model prices, or leave the cost out of the budget",
                )
            budget.add_cost(0.0)
        self._budget = budget
        self._cost_of = cost_of
        self.max_tokens = budget.take_request(max_tokens)
        """What the model may be asked for; None for no limit."""
        self._counted = self.max_tokens

    def count(self, usage: TokenUsage) -> None:
        """Count what the model has reported so far.

        Raises:
            LimitExceededError: The budget is passed: the call is to be stopped.
        """
        used = _at_least(usage)
        if used is None:
            return
        try:
            self._counted = self._budget.count_tokens(self._counted, used)
        except LimitExceededError:
            self._counted = used
            raise

    def settle(self, usage: TokenUsage | None) -> None:
        """Put what the call used in the place of what was reserved; unknown usage leaves it at that."""
        if usage is None:
            return
        self._budget.settle_tokens(self._counted, usage.known_total)
        if self._cost_of is not None:
            with suppress(LimitExceededError):  # it is counted all the same, and the next call is refused
                self._budget.add_cost(self._cost_of(usage))

    def release(self) -> None:
        """Give back the tokens of a call that no model has answered."""
        self._budget.release_request(self._counted)


def _at_least(usage: TokenUsage) -> int | None:
    """Give the tokens of which *usage* is sure."""
    total = usage.known_total
    return total if total is not None else usage.output_tokens or usage.input_tokens
