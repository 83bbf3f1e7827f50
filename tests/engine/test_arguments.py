"""Arguments of the wrong kind: each is refused when it is declared, compiled or given, by a message that names it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

import pytest

from graphrt import (
    END,
    START,
    Budget,
    ConfigError,
    GraphError,
    GraphrtError,
    RateLimit,
    RetryPolicy,
    RunContext,
    Workflow,
)
from graphrt.graph.scheduler.limits import BudgetTracker, Limiter
from graphrt.policies import retry_after_of
from tests.engine.helpers import line

NOT_WHOLE = [math.nan, math.inf, 2.5, 1.0, True, "3", 0, -1, [1]]
NOT_SECONDS = [math.nan, "5", timedelta(seconds=5), True, False, [1], 10**400]


async def one(x: Any) -> Any:
    return x


async def two(x: Any) -> Any:
    return x


async def condition(value: Any) -> bool:
    return False


class AsyncCall:
    async def __call__(self, value: Any) -> bool:
        return False


def pair(connect: Callable[[Workflow], Any], **options: Any) -> Workflow:
    """Give a workflow of two nodes, joined by *connect*."""
    workflow = Workflow("g", **options)
    workflow.add(one)
    workflow.add(two)
    workflow.edge(START, one)
    connect(workflow)
    workflow.edge(two, END)
    return workflow


def refused(make: Callable[[], Any], *says: str, kind: type[GraphrtError] = ConfigError) -> None:
    """Check that *make* is refused by an error of *kind* that says so, and names a way out."""
    with pytest.raises(kind) as caught:
        make()
    assert caught.value.hint
    for text in says:
        assert text in str(caught.value)


# --- numbers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", NOT_WHOLE, ids=repr)
@pytest.mark.parametrize("option", ["max_rounds", "max_steps", "max_concurrency"])
def test_counts_of_a_graph_are_whole_numbers(option: str, value: Any) -> None:
    refused(line(one, **{option: value}).compile, f"{option} of graph 'line' is {value!r}")


def test_a_graph_has_some_limit_of_rounds() -> None:
    refused(line(one, max_rounds=None).compile, "max_rounds of graph 'line' is None")
    assert line(one, max_steps=None, max_concurrency=None).run_sync(1).output == 1


@pytest.mark.parametrize("value", NOT_WHOLE, ids=repr)
def test_concurrency_is_a_whole_number(value: Any) -> None:
    refused(lambda: line(one).run_sync(1, max_concurrency=value), "max_concurrency of the run")
    refused(lambda: line(one).stream(1, max_concurrency=value), "max_concurrency of the run")
    refused(pair(lambda w: w.map(one, two, max_concurrency=value)).compile, "max_concurrency of map one -> two")
    refused(lambda: Limiter(value), "a limiter of")
    refused(lambda: RateLimit(value), "n is")


@pytest.mark.parametrize("value", [*NOT_WHOLE, "x", Limiter, {}], ids=repr)
def test_concurrency_of_a_node_is_a_whole_number_or_a_limiter(value: Any) -> None:
    workflow = Workflow("g")
    workflow.add(one, max_concurrency=value)
    workflow.chain(START, one, END)
    refused(workflow.compile, "max_concurrency of node 'one' is", "a Limiter")


def test_a_map_has_some_limit_of_concurrency() -> None:
    refused(pair(lambda w: w.map(one, two, max_concurrency=None)).compile, "max_concurrency of map one -> two is None")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["1", True, 1.0, math.nan, -1], ids=repr)
def test_min_success_is_a_whole_number(value: Any) -> None:
    refused(pair(lambda w: w.map(one, two, min_success=value)).compile, "min_success of map one -> two is")


@pytest.mark.parametrize("value", NOT_SECONDS, ids=lambda v: repr(v)[:20])
def test_timeouts_are_seconds(value: Any) -> None:
    refused(line(one, timeout=value).compile, "timeout of graph 'line' is")
    for option in ("timeout", "step_timeout"):
        workflow = Workflow("g")
        workflow.add(one, **{option: value})
        workflow.chain(START, one, END)
        refused(workflow.compile, f"{option} of node 'one' is")
    refused(lambda: line(one).run_sync(1, timeout=value), "timeout of the run of graph 'line' is")
    refused(lambda: line(one).stream(1, timeout=value), "timeout of the run of graph 'line' is")


def test_endless_timeouts_are_taken() -> None:
    workflow = Workflow("g", timeout=math.inf)
    workflow.add(one, timeout=math.inf, step_timeout=math.inf)
    workflow.chain(START, one, END)
    assert workflow.run_sync(1, timeout=math.inf).output == 1


# --- what a node, an edge or a graph is given --------------------------------------------------------------


@pytest.mark.parametrize("option", ["retry", "rate_limit"])
@pytest.mark.parametrize("value", [3, "x", {}, RetryPolicy, RateLimit], ids=repr)
def test_policies_of_a_node_are_policies(option: str, value: Any) -> None:
    workflow = Workflow("g")
    workflow.add(one, **{option: value})
    workflow.chain(START, one, END)
    refused(workflow.compile, f"{option} of node 'one' is {value!r}, which is no R")


@pytest.mark.parametrize("cases", [[two], None, "two", {two}])
def test_cases_of_a_branch_are_a_mapping(cases: Any) -> None:
    refused(lambda: pair(lambda w: w.branch(one, cases, default=two)), "no mapping", "{key: node}", kind=GraphError)


@pytest.mark.parametrize("value", [5, "x", {}, True], ids=repr)
def test_conditions_can_be_called(value: Any) -> None:
    refused(pair(lambda w: w.edge(one, two, when=value)).compile, f"when of edge one -> two is {value!r}")
    refused(pair(lambda w: w.map(one, two, when=value)).compile, f"when of edge one -> two is {value!r}")
    refused(pair(lambda w: w.branch(one, {1: two}, key=value)).compile, f"key of edge one -> two is {value!r}")


@pytest.mark.parametrize("fn", [condition, functools.partial(condition), AsyncCall(), AsyncCall().__call__])
def test_conditions_are_not_async(fn: Any) -> None:
    refused(pair(lambda w: w.edge(one, two, when=fn)).compile, "when of edge", "async", kind=GraphError)
    refused(pair(lambda w: w.map(one, two, when=fn)).compile, "when of edge", "async", kind=GraphError)
    refused(pair(lambda w: w.branch(one, {1: two}, key=fn)).compile, "key of edge", "async", kind=GraphError)


@pytest.mark.parametrize("key", [len, str, int, functools.partial(round, ndigits=0), lambda v: v])
def test_whatever_else_can_be_called_is_a_key(key: Any) -> None:
    pair(lambda w: w.branch(one, {1: two}, key=key)).compile()


@pytest.mark.parametrize("name", [1, None, "", str], ids=repr)
def test_parts_of_the_input_have_names(name: Any) -> None:
    refused(line(one, input={name: int}).compile, f"a part named {name!r}", 'input={"topic": str}')


@pytest.mark.parametrize("value", [3, True, 2.5, b"x", [int], {int}], ids=repr)
def test_declared_types_are_types(value: Any) -> None:
    refused(line(one, input=value).compile, f"input of graph 'line' is declared {value!r}")
    refused(line(one, output=value).compile, f"output of graph 'line' is declared {value!r}")
    refused(line(one, input={"x": value}).compile, f"input 'x' of graph 'line' is declared {value!r}")


@pytest.mark.parametrize("value", [int, list[int], int | None, Literal[3], Any, None, "int"], ids=repr)
def test_types_of_every_form_are_taken(value: Any) -> None:
    line(one, input=value).compile()


# --- arguments of a run ------------------------------------------------------------------------------------

WRONG = [
    ("deadline_at", 5),
    ("deadline_at", "tomorrow"),
    ("deadline_at", date(2030, 1, 1)),
    ("deadline_at", datetime(2030, 1, 1)),  # noqa: DTZ001
    ("budget", 5),
    ("budget", {}),
    ("budget", 0),
    ("budget", Budget),
    ("run_id", 5),
    ("run_id", 0),
    ("on_event", 5),
    ("on_event", "x"),
    ("on_ask", 5),
    ("telemetry", 5),
    ("telemetry", True),
]


@pytest.mark.parametrize(("option", "value"), WRONG, ids=repr)
def test_arguments_of_a_run_are_checked_when_it_is_called(option: str, value: Any) -> None:
    refused(lambda: line(one).run_sync(1, **{option: value}), option)
    refused(lambda: line(one).stream(1, **{option: value}), option)


def test_arguments_of_a_run_that_fit_are_taken() -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    for budget in (Budget(requests=1), BudgetTracker(Budget())):
        assert line(one).run_sync(1, deadline_at=later, budget=budget, run_id="r", on_event=print).run_id == "r"


# --- into= -------------------------------------------------------------------------------------------------


async def named(topic: Any, ctx: RunContext[Any]) -> Any:
    return topic


async def nothing() -> int:
    return 1


def into(value: Any, node: Any = named) -> Callable[[], Any]:
    """Give what compiles an edge into *node* with `into=` *value*."""
    workflow = Workflow("g")
    workflow.add(one)
    workflow.add(node)
    workflow.edge(START, one)
    workflow.edge(one, node, into=value)
    workflow.edge(node, END)
    return workflow.compile


@pytest.mark.parametrize("value", [5, "", True, []], ids=repr)
def test_into_is_a_text(value: Any) -> None:
    refused(into(value), f"into of edge one -> named is {value!r}", kind=GraphError)


@pytest.mark.parametrize("value", ["topics", "x", "ctx"])
def test_into_names_a_parameter(value: str) -> None:
    says = f"edge one -> named has into={value!r}, and node 'named' has no such parameter"
    refused(into(value), says, "parameters that take a value: topic", kind=GraphError)


def test_into_names_the_parameter_that_was_meant() -> None:
    refused(into("topics"), "did you mean 'topic'?", kind=GraphError)


def test_into_of_a_node_without_parameters_names_a_value_that_goes_nowhere() -> None:
    into("x", nothing)()


@pytest.mark.parametrize(
    ("maps", "gathers", "says"),
    [
        ("y", None, "edge one -> two has into='y'"),
        (None, "topc", "edge two -> named has into='topc'"),
    ],
)
def test_into_names_a_parameter_for_maps_and_gathers_too(maps: str | None, gathers: str | None, says: str) -> None:
    workflow = Workflow("g")
    for node in (one, two, named):
        workflow.add(node)
    workflow.edge(START, one)
    workflow.map(one, two, into=maps)
    workflow.gather(two, named, into=gathers)
    workflow.edge(named, END)
    refused(workflow.compile, says, kind=GraphError)


def test_into_that_fits_is_taken() -> None:
    into("topic")()


# --- methods -----------------------------------------------------------------------------------------------


class Steps:
    async def first(self, x: int) -> int:
        return x + 1

    async def second(self, x: int) -> int:
        return x * 10


def test_methods_name_their_nodes() -> None:
    steps, workflow = Steps(), Workflow("g")
    workflow.add(steps.first)
    workflow.add(steps.second)
    workflow.chain(START, steps.first, steps.second, END)
    assert workflow.run_sync(1).output == 20


def test_methods_of_another_object_are_not_in_the_graph() -> None:
    workflow = Workflow("g")
    workflow.add(Steps().first)
    refused(lambda: workflow.chain(START, Steps().first), "which is not in the graph", kind=GraphError)


def test_a_method_added_twice_is_named_by_text_or_by_the_object_that_was_added() -> None:
    steps, workflow = Steps(), Workflow("g")
    one_of, other = steps.first, steps.first
    workflow.add(one_of, name="a")
    workflow.add(other, name="b")
    refused(lambda: workflow.chain(START, steps.first), "more than once", kind=GraphError)
    workflow.chain(START, one_of, other, END)
    assert workflow.run_sync(1).output == 3


# --- retries -----------------------------------------------------------------------------------------------


class HugeWaitError(Exception):
    retry_after = 10**400


class TruthlessError(Exception):
    def __bool__(self) -> bool:
        raise RuntimeError("asked")


class FalseError(Exception):
    def __bool__(self) -> bool:
        return False


def failing(error: Exception, retry: RetryPolicy, times: int = 99) -> Workflow:
    """Give a workflow of one node that raises *error* the first *times* attempts."""
    calls = iter(range(100))

    async def node(x: Any) -> str:
        if next(calls) < times:
            raise error
        return "done"

    workflow = Workflow("g")
    workflow.add(node, retry=retry)
    workflow.chain(START, node, END)
    return workflow


def test_retry_after_that_no_clock_can_count_is_ignored() -> None:
    assert retry_after_of(HugeWaitError()) == 0.0
    assert failing(HugeWaitError(), RetryPolicy(2, wait_initial=0.001), 1).run_sync().output == "done"


@pytest.mark.parametrize("name", ["wait_initial", "wait_max", "jitter", "max_elapsed"])
def test_seconds_of_a_policy_are_numbers_a_clock_can_count(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        RetryPolicy(**{name: 10**400})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [5, "x", 0, 0.0], ids=repr)
def test_wait_for_can_be_called(value: Any) -> None:
    refused(lambda: RetryPolicy(wait_for=value), f"wait_for is {value!r}")


@pytest.mark.parametrize("value", ["1", None, math.nan, math.inf, True, 10**400], ids=lambda v: repr(v)[:10])
def test_wait_for_gives_seconds(value: Any) -> None:
    workflow = failing(ValueError("no such bee"), RetryPolicy(2, wait_for=lambda error, attempt: value))
    with pytest.raises(ConfigError, match="wait_for gave") as caught:
        workflow.run_sync()
    assert "after ValueError: no such bee" in str(caught.value)
    assert isinstance(caught.value.cause, ValueError)


@pytest.mark.parametrize("kind", [TruthlessError, FalseError])
def test_errors_that_are_not_true_are_retried_and_raised(kind: type[Exception]) -> None:
    policy = RetryPolicy(3, wait_initial=0)
    assert failing(kind("x"), policy, 2).run_sync().output == "done"
    with pytest.raises(kind):
        failing(kind("x"), policy).run_sync()
    verdicts = iter([True, False])
    with pytest.raises(kind):
        failing(kind("x"), RetryPolicy(3, wait_initial=0, retry_on=lambda error: next(verdicts))).run_sync()
