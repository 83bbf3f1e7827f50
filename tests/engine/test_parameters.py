"""Where a parameter gets its value: the six rules, one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from graphrt import END, START, GraphError, RetryPolicy, RunContext, Update, Workflow
from tests.engine.helpers import constant, line


class State(BaseModel):
    n: int = 0


class Question(BaseModel):
    topic: str = ""
    size: int = 1


def nodes(workflow: Workflow, *functions: Callable[..., Any], **options: Any) -> None:
    """Add functions as nodes."""
    for fn in functions:
        workflow.add(fn, **options)


def refusal(workflow: Workflow) -> str:
    """Compile what is refused, and give the message with its hint."""
    with pytest.raises(GraphError) as caught:
        workflow.compile()
    return str(caught.value)


async def one(x: Any) -> int:
    return 1


async def two(x: Any) -> int:
    return 2


# --- rule 1: context and state -----------------------------------------------------------------------------


def test_context_is_given_by_its_annotation() -> None:
    async def node(ctx: RunContext[dict[str, int]], x: int) -> int:
        return x + ctx.deps["more"]

    assert line(node).run_sync(1, deps={"more": 2}).output == 3


def test_context_may_stand_anywhere_and_more_than_once() -> None:
    async def node(x: int, here: RunContext[Any], y: int = 5, there: RunContext[Any] | None = None) -> Any:
        return (x, y, here.step, there is not None and there.step)

    x, y, here, there = line(node).run_sync(1).output
    assert (x, y) == (1, 5)
    assert here == there


def test_parameter_named_ctx_without_annotation_is_an_ordinary_one() -> None:
    async def node(ctx):  # type: ignore[no-untyped-def]  # what is tested
        return ctx

    assert line(node).run_sync("value").output == "value"


def test_state_is_given_by_its_annotation_and_takes_no_edge() -> None:
    async def write(x: int) -> Update[int]:
        return Update(x, n=7)

    async def node(state: State, x: int) -> Any:
        return (state.n, x)

    assert line(write, node, state=State).run_sync(1).output == (7, 1)


def test_model_that_is_not_the_state_is_an_ordinary_parameter() -> None:
    async def node(state: Question) -> Question:
        return state

    given = Question(topic="bees")
    assert line(node, state=State).run_sync(given).output == given


# --- rule 2: by the name of an edge ------------------------------------------------------------------------


def test_edge_is_placed_by_its_name() -> None:
    async def node(size: int, colour: int) -> Any:
        return (size, colour)

    workflow = Workflow("g")
    nodes(workflow, one, two, node)
    workflow.edge(START, one)
    workflow.edge(START, two)
    workflow.edge(one, node, into="colour")
    workflow.edge(two, node, into="size")
    workflow.edge(node, END)
    assert workflow.run_sync().output == (2, 1)


def test_edge_is_placed_by_the_name_of_its_source() -> None:
    async def node(two: int, one: int) -> Any:
        return (two, one)

    workflow = Workflow("g")
    nodes(workflow, one, globals()["two"], node)
    for source in ("one", "two"):
        workflow.edge(START, source)
        workflow.edge(source, node)
    workflow.edge(node, END)
    assert workflow.run_sync().output == (2, 1)


def test_name_of_an_edge_beats_that_of_its_source() -> None:
    async def node(one: int, other: int) -> Any:
        return (one, other)

    workflow = Workflow("g")
    nodes(workflow, one, two, node)
    workflow.edge(START, one)
    workflow.edge(START, two)
    workflow.edge(one, node, into="other")
    workflow.edge(two, node, into="one")
    workflow.edge(node, END)
    assert workflow.run_sync().output == (2, 1)


def test_edge_by_name_beats_a_part_of_the_input() -> None:
    async def node(topic: int, size: int) -> Any:
        return (topic, size)

    workflow = Workflow("g", input={"topic": str, "size": int})

    async def entry(topic: str) -> str:
        return topic

    workflow.add(entry)
    workflow.add(one)
    workflow.add(node)
    workflow.chain(START, entry, one)
    workflow.edge(one, node, into="topic")
    workflow.edge(node, END)
    assert workflow.run_sync({"topic": "bees", "size": 5}).output == (1, 5)


def test_two_edges_with_one_name_are_refused() -> None:
    async def node(value: int) -> int:
        return value

    workflow = Workflow("g")
    nodes(workflow, one, two, node)
    workflow.edge(START, one)
    workflow.edge(START, two)
    workflow.edge(one, node, into="value")
    workflow.edge(two, node, into="value")
    workflow.edge(node, END)
    message = refusal(workflow)
    assert "two edges bring a value for parameter 'value' of node 'node': one -> node and two -> node" in message
    assert "hint:" in message


def test_two_conditional_edges_with_one_name_are_alternatives() -> None:
    async def node(value: int) -> int:
        return value

    workflow = Workflow("g")
    nodes(workflow, one, two, node)
    workflow.edge(START, one, when=lambda x: x == "first")
    workflow.edge(START, two, when=lambda x: x == "second")
    workflow.edge(one, node, into="value")
    workflow.edge(two, node, into="value")
    workflow.edge(node, END)
    assert workflow.run_sync("first").output == 1
    assert workflow.run_sync("second").output == 2


def test_header_reads_its_entry_by_name_in_every_round() -> None:
    async def start(x: int) -> int:
        return x

    async def step(start: int, total: int = 0) -> int:
        return total + start

    workflow = Workflow("g")
    nodes(workflow, start, step)
    workflow.chain(START, start, step)
    workflow.edge(step, step, into="total", when=lambda n: n < 30)
    workflow.edge(step, END, when=lambda n: n >= 30)
    assert workflow.run_sync(10).output == 30


# --- rule 3: the first parameter still free ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["x", "anything", "START", "self_", "ctx"])
def test_first_parameter_takes_the_edge_whatever_its_name(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"async def node({name}):\n    return {name}", scope)  # noqa: S102 - a function for each name
    assert line(scope["node"]).run_sync(3).output == 3


def test_first_free_parameter_is_the_first_that_no_name_has_taken() -> None:
    async def node(one: int, rest: int) -> Any:
        return (one, rest)

    workflow = Workflow("g")
    nodes(workflow, one, two, node)
    workflow.edge(START, one)
    workflow.edge(START, two)
    workflow.edge(two, node)
    workflow.edge(one, node)
    workflow.edge(node, END)
    assert workflow.run_sync().output == (1, 2)


def test_header_takes_the_entry_value_first_and_then_the_loops() -> None:
    async def step(x: int) -> int:
        return x * 2

    workflow = Workflow("g")
    workflow.add(step)
    workflow.edge(START, step)
    workflow.edge(step, step, when=lambda n: n < 100)
    workflow.edge(step, END, when=lambda n: n >= 100)
    assert workflow.run_sync(7).output == 112


def test_keyed_branches_are_alternatives_where_they_meet() -> None:
    async def meet(value: str) -> str:
        return value

    async def left(x: Any) -> str:
        return "left"

    async def right(x: Any) -> str:
        return "right"

    async def route(x: str) -> str:
        return x

    workflow = Workflow("g")
    nodes(workflow, route, left, right, meet)
    workflow.edge(START, route)
    workflow.branch(route, {"l": left, "r": right})
    workflow.edge(left, meet)
    workflow.edge(right, meet)
    workflow.edge(meet, END)
    assert [workflow.run_sync(key).output for key in "lr"] == ["left", "right"]


def test_branches_are_alternatives_also_further_on() -> None:
    async def route(x: str) -> str:
        return x

    async def far(x: Any) -> str:
        return "far"

    async def meet(value: Any) -> Any:
        return value

    workflow = Workflow("g")
    nodes(workflow, route, one, two, far, meet)
    workflow.edge(START, route)
    workflow.branch(route, {"l": one, "r": two})
    workflow.chain(two, far, meet)
    workflow.chain(one, meet, END)
    assert [workflow.run_sync(key).output for key in "lr"] == [1, "far"]


def test_normal_and_error_edge_of_a_node_are_alternatives() -> None:
    async def work(x: int) -> int:
        if x < 0:
            raise ValueError(x)
        return x

    async def after(outcome: Any) -> str:
        return repr(outcome)

    workflow = Workflow("g")
    nodes(workflow, work, after)
    workflow.chain(START, work, after, END)
    workflow.edge(work, after, on_error=True)
    assert workflow.run_sync(1).output == "1"
    assert workflow.run_sync(-1).output == "ValueError(-1)"


def test_error_handler_and_normal_way_are_alternatives_where_they_meet() -> None:
    async def work(x: int) -> int:
        if x < 0:
            raise ValueError(x)
        return x

    async def mend(error: Exception) -> int:
        return 0

    async def after(value: int) -> int:
        return value

    workflow = Workflow("g")
    nodes(workflow, work, mend, after)
    workflow.chain(START, work, after, END)
    workflow.edge(work, mend, on_error=True)
    workflow.edge(mend, after)
    assert [workflow.run_sync(x).output for x in (5, -5)] == [5, 0]


def test_edges_into_an_any_join_are_alternatives() -> None:
    async def first(value: int) -> int:
        return value

    workflow = Workflow("g")
    nodes(workflow, one, two)
    workflow.add(first, join="any")
    for source in (one, two):
        workflow.chain(START, source, first)
    workflow.edge(first, END)
    assert workflow.run_sync().output in (1, 2)


def test_two_unconditional_edges_for_one_parameter_are_refused() -> None:
    async def node(value: int) -> int:
        return value

    workflow = Workflow("g")
    nodes(workflow, one, two, node)
    for source in (one, two):
        workflow.chain(START, source, node)
    workflow.edge(node, END)
    message = refusal(workflow)
    assert "two edges bring a value for parameter 'value' of node 'node': one -> node and two -> node" in message
    assert "name a parameter for each: 'one' and 'two', or use into= on the edges" in message


def test_two_unconditional_back_edges_for_one_parameter_are_refused() -> None:
    async def node(value: int) -> int:
        return value

    workflow = Workflow("g")
    nodes(workflow, node, one, two)
    workflow.edge(START, node)
    for inside in (one, two):
        workflow.chain(node, inside, node)
    workflow.edge(node, END, when=bool)
    assert "two edges bring a value for parameter 'value' of node 'node': one -> node and two -> node" in refusal(
        workflow
    )


def test_quorum_of_two_needs_a_parameter_for_each_edge() -> None:
    async def node(value: int) -> int:
        return value

    async def three(x: Any) -> int:
        return 3

    workflow = Workflow("g")
    nodes(workflow, one, two, three)
    workflow.add(node, join=2)
    for source in (one, two, three):
        workflow.chain(START, source, node)
    workflow.edge(node, END)
    assert "two edges bring a value for parameter 'value'" in refusal(workflow)


def test_conditions_that_both_hold_are_found_in_the_run() -> None:
    async def node(value: int) -> int:
        return value

    workflow = Workflow("g")
    nodes(workflow, one, two, node)
    workflow.edge(START, one)
    workflow.edge(START, two)
    workflow.edge(one, node, when=lambda x: True)
    workflow.edge(two, node, when=lambda x: True)
    workflow.edge(node, END)
    result = workflow.run_sync(check=False)
    assert isinstance(result.error, GraphError)
    assert (
        "parameter 'value' of node 'node' gets two values at once: from edge one -> node and from edge two -> node"
        in str(result.error)
    )
    assert result.node_states["node"] == "failed"


def test_node_without_parameters_takes_nothing() -> None:
    workflow = Workflow("g")
    workflow.add(constant(4), name="four")
    workflow.chain(START, "four", END)
    assert workflow.run_sync("ignored").output == 4


def test_keyword_only_parameter_takes_the_edge() -> None:
    async def node(*, value: int) -> int:
        return value

    assert line(node).run_sync(2).output == 2


def test_positional_only_parameter_takes_the_edge() -> None:
    async def node(value: int, /) -> int:
        return value

    assert line(node).run_sync(2).output == 2


# --- rule 4: a part of the input ---------------------------------------------------------------------------


def test_parameter_named_like_the_entrys_takes_the_input() -> None:
    async def outline(topic: str) -> str:
        return topic.upper()

    async def write(text: str, topic: str) -> Any:
        return (text, topic)

    assert line(outline, write).run_sync("bees").output == ("BEES", "bees")


def test_input_is_to_be_had_inside_a_map() -> None:
    async def outline(topic: str) -> list[int]:
        return [1, 2]

    async def section(n: int, topic: str) -> str:
        return f"{topic}{n}"

    workflow = Workflow("g")
    nodes(workflow, outline, section)
    workflow.edge(START, outline)
    workflow.map(outline, section)
    workflow.gather(section, END)
    assert workflow.run_sync("b").output == ["b1", "b2"]


def test_inputs_by_name_go_where_they_are_named() -> None:
    async def entry(size: int, topic: str) -> Any:
        return (size, topic)

    async def later(given: Any, topic: str) -> Any:
        return (given, topic)

    workflow = line(entry, later, input={"topic": str, "size": int})
    assert workflow.run_sync({"topic": "bees", "size": 3}).output == ((3, "bees"), "bees")


def test_entry_of_inputs_by_name_may_take_them_all() -> None:
    async def entry(everything: dict[str, Any]) -> Any:
        return everything

    assert line(entry, input={"topic": str}).run_sync({"topic": "x"}).output == {"topic": "x"}


def test_fields_of_the_input_model_go_where_they_are_named() -> None:
    async def entry(topic: str, size: int) -> Any:
        return (topic, size)

    async def later(given: Any, size: int) -> Any:
        return (given, size)

    assert line(entry, later, input=Question).run_sync(Question(topic="x", size=2)).output == (("x", 2), 2)


def test_entry_may_take_the_whole_model() -> None:
    async def entry(question: Question) -> str:
        return question.topic

    assert line(entry, input=Question).run_sync(Question(topic="x")).output == "x"


def test_edge_on_the_first_parameter_beats_the_input() -> None:
    async def entry(topic: str) -> str:
        return topic + "!"

    async def later(topic: str) -> str:
        return topic

    assert line(entry, later).run_sync("x").output == "x!"


# --- rule 5: an output of a node upstream ------------------------------------------------------------------


def test_output_of_a_node_far_upstream_is_read_by_name() -> None:
    async def reader(value: int, one: int) -> Any:
        return (value, one)

    async def three(x: Any) -> int:
        return 3

    assert line(one, two, three, reader).run_sync().output == (3, 1)


def test_output_of_the_highest_round_upstream_is_read() -> None:
    async def step(x: int) -> int:
        return x + 1

    async def middle(x: int) -> int:
        return x * 10

    async def reader(value: int, step: int) -> Any:
        return (value, step)

    workflow = Workflow("g")
    nodes(workflow, step, middle, reader)
    workflow.chain(START, step, middle)
    workflow.edge(middle, step, when=lambda n: n < 100)
    workflow.edge(middle, reader, when=lambda n: n >= 100)
    workflow.edge(reader, END)
    assert workflow.run_sync(0).output == (110, 11)


def test_node_of_a_cycle_reads_an_output_of_its_own_round() -> None:
    seen: list[tuple[int, int]] = []

    async def step(x: int) -> int:
        return x + 1

    async def middle(x: int) -> int:
        return x

    async def last(x: int, step: int) -> int:
        seen.append((x, step))
        return x

    workflow = Workflow("g")
    nodes(workflow, step, middle, last)
    workflow.chain(START, step, middle, last)
    workflow.edge(last, step, when=lambda n: n < 3)
    workflow.edge(last, END, when=lambda n: n >= 3)
    workflow.run_sync(0)
    assert seen == [(1, 1), (2, 2), (3, 3)]


def test_body_of_a_map_reads_an_output_around_it() -> None:
    async def items(x: Any) -> list[int]:
        return [1, 2]

    async def body(item: int, one: int) -> Any:
        return (item, one)

    workflow = Workflow("g")
    nodes(workflow, one, items, body)
    workflow.chain(START, one, items)
    workflow.map(items, body)
    workflow.gather(body, END)
    assert workflow.run_sync().output == [(1, 1), (2, 1)]


def test_second_node_of_a_body_reads_the_items_list() -> None:
    async def items(x: Any) -> list[int]:
        return [1, 2]

    async def body(item: int) -> int:
        return item * 10

    async def after(value: int, items: list[int]) -> Any:
        return (value, items)

    workflow = Workflow("g")
    nodes(workflow, items, body, after)
    workflow.edge(START, items)
    workflow.map(items, body)
    workflow.edge(body, after)
    workflow.gather(after, END)
    assert workflow.run_sync().output == [(10, [1, 2]), (20, [1, 2])]


def test_node_after_a_gather_cannot_read_inside_the_map() -> None:
    async def items(x: Any) -> list[int]:
        return [1]

    async def body(item: int) -> int:
        return item

    async def inner(x: int) -> int:
        return x

    async def last(parts: list[int], body: int) -> Any: ...

    workflow = Workflow("g")
    nodes(workflow, items, body, inner, last)
    workflow.edge(START, items)
    workflow.map(items, body)
    workflow.edge(body, inner)
    workflow.gather(inner, last)
    workflow.edge(last, END)
    assert "nobody fills parameter 'body' of node 'last'" in refusal(workflow)


def test_node_that_may_be_passed_over_cannot_be_read_by_name() -> None:
    async def reader(value: int, two: int) -> Any: ...

    async def meet(value: int) -> int:
        return value

    workflow = Workflow("g")
    nodes(workflow, one, two, meet, reader)
    workflow.edge(START, one)
    workflow.edge(one, two, when=bool)
    workflow.edge(one, meet, when=bool)
    workflow.edge(two, meet)
    workflow.chain(meet, reader, END)
    message = refusal(workflow)
    assert "nobody fills parameter 'two' of node 'reader'" in message
    assert "'two' is a node, but not every way from START to 'reader' leaves it normally" in message


def test_node_that_is_left_by_an_error_edge_cannot_be_read_by_name() -> None:
    async def mend(error: Exception) -> int:
        return 0

    async def meet(value: int) -> int:
        return value

    async def reader(value: int, one: int) -> Any: ...

    workflow = Workflow("g")
    nodes(workflow, one, mend, meet, reader)
    workflow.chain(START, one, meet, reader, END)
    workflow.edge(one, mend, on_error=True)
    workflow.edge(mend, meet)
    assert "nobody fills parameter 'one' of node 'reader'" in refusal(workflow)


def test_optional_reading_by_name_falls_back_to_the_default() -> None:
    async def reader(value: int, two: int = 99) -> Any:
        return (value, two)

    async def meet(value: int) -> int:
        return value

    workflow = Workflow("g")
    nodes(workflow, one, two, meet, reader)
    workflow.edge(START, one)
    workflow.edge(one, two, when=lambda n: False)
    workflow.edge(one, meet, when=lambda n: True)
    workflow.edge(two, meet)
    workflow.chain(meet, reader, END)
    assert workflow.run_sync().output == (1, 99)


def test_sibling_branch_cannot_be_read_by_name() -> None:
    async def reader(x: Any, two: int) -> Any: ...

    workflow = Workflow("g")
    nodes(workflow, two, reader)
    for node in (two, reader):
        workflow.chain(START, node, END)
    message = refusal(workflow)
    assert "nobody fills parameter 'two' of node 'reader'" in message
    assert "add an edge, or a default" in message


# --- rule 6: the default -----------------------------------------------------------------------------------


def test_default_is_used_when_nothing_else_fits() -> None:
    async def node(x: int, factor: int = 10) -> int:
        return x * factor

    assert line(node).run_sync(2).output == 20


def test_default_is_used_when_an_edge_was_skipped() -> None:
    async def meet(one: int = -1, two: int = -2) -> Any:
        return (one, two)

    workflow = Workflow("g")
    nodes(workflow, one, two, meet)
    workflow.edge(START, one)
    workflow.edge(START, two, when=lambda x: False)
    workflow.edge(one, meet)
    workflow.edge(two, meet)
    workflow.edge(meet, END)
    assert workflow.run_sync().output == (1, -2)


def test_none_is_given_when_an_edge_was_skipped_and_the_type_allows_it() -> None:
    async def meet(one: int, two: int | None) -> Any:
        return (one, two)

    workflow = Workflow("g")
    nodes(workflow, one, two, meet)
    workflow.edge(START, one)
    workflow.edge(START, two, when=lambda x: False)
    workflow.edge(one, meet)
    workflow.edge(two, meet)
    workflow.edge(meet, END)
    assert workflow.run_sync().output == (1, None)


def skippable(kind: str) -> Workflow:
    """Give `meet(one, two)` an edge from `two` that may be skipped while `meet` runs."""

    async def meet(one: int, two: int) -> Any: ...

    workflow = Workflow("g")
    workflow.add(one)
    workflow.add(two, on_error="skip" if kind == "policy" else "fail")
    workflow.add(meet, join="any" if kind == "any" else "all")
    workflow.edge(START, one)
    workflow.edge(START, two, when=bool if kind == "source" else None)
    workflow.edge(one, meet)
    workflow.edge(two, meet, when=bool if kind == "edge" else None)
    workflow.edge(meet, END)
    return workflow


@pytest.mark.parametrize("kind", ["edge", "source", "policy", "any"])
def test_parameter_whose_edge_may_be_skipped_needs_a_default(kind: str) -> None:
    message = refusal(skippable(kind))
    assert "of node 'meet' needs a default" in message
    assert ": ... | None = None, or give it another default" in message


def test_parameter_whose_edge_is_always_taken_needs_none() -> None:
    skippable("none").compile()


def test_back_edge_by_name_needs_a_default_in_the_first_round() -> None:
    async def step(x: int, verdict: int) -> Any: ...

    async def verdict(x: int) -> Any: ...

    workflow = Workflow("g")
    nodes(workflow, step, verdict)
    workflow.chain(START, step, verdict)
    workflow.edge(verdict, step, when=bool)
    workflow.edge(verdict, END, when=bool)
    assert "parameter 'verdict' of node 'step' needs a default" in refusal(workflow)


# --- nobody fills it ---------------------------------------------------------------------------------------


def test_unfilled_parameter_is_refused_with_what_there_is() -> None:
    async def node(x: int, colour: str) -> Any: ...

    message = refusal(line(one, two, node, input={"topic": str}))
    assert "nobody fills parameter 'colour' of node 'node'" in message
    assert "values to be had here: two, topic, x, one" in message


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("topc", "topic"), ("outlin", "outline"), ("sectionss", "sections"), ("Topic", "topic")],
)
def test_misspelt_parameter_is_guessed(wrong: str, right: str) -> None:
    async def outline(topic: str) -> Any: ...

    async def section(heading: str, topic: str) -> Any: ...

    scope: dict[str, Any] = {}
    exec(f"async def assemble(first, {wrong}):\n    ...", scope)  # noqa: S102 - a function for each name
    workflow = Workflow("g", input=str)
    nodes(workflow, outline, section, scope["assemble"])
    workflow.edge(START, outline)
    workflow.map(outline, section)
    workflow.gather(section, "assemble", into="sections")
    workflow.edge("assemble", END)
    assert f"did you mean {right!r}?" in refusal(workflow)


def test_second_parameter_of_an_entry_is_not_filled_by_the_edge() -> None:
    async def entry(x: int, y: int) -> Any: ...

    assert "nobody fills parameter 'y' of node 'entry'" in refusal(line(entry))


def test_node_does_not_read_its_own_output() -> None:
    async def step(x: int, step: int) -> Any: ...

    assert "nobody fills parameter 'step' of node 'step'" in refusal(line(step))


def test_type_that_cannot_be_resolved_is_named_when_nobody_fills_its_parameter() -> None:
    async def node(x: int, more: Missing) -> Any: ...  # type: ignore[name-defined]  # noqa: F821 - what is tested

    message = refusal(line(node))
    assert "nobody fills parameter 'more' of node 'node'" in message
    assert "Missing" in message


# --- fallbacks ---------------------------------------------------------------------------------------------


def test_fallback_takes_the_inputs_of_its_node_and_the_error() -> None:
    async def work(x: int, ctx: RunContext[Any]) -> Any:
        raise ValueError("no")

    async def spare(error: Exception, x: int, ctx: RunContext[Any]) -> Any:
        return (repr(error), x, ctx.step.node)

    workflow = Workflow("g")
    workflow.add(work, fallback=spare)
    workflow.chain(START, work, END)
    assert workflow.run_sync(5).output == ("ValueError('no')", 5, "work")


def test_fallback_may_name_its_parameter_as_it_likes() -> None:
    async def work(x: int) -> int:
        raise ValueError

    def spare(anything: int) -> int:
        return anything + 1

    workflow = Workflow("g")
    workflow.add(work, retry=RetryPolicy(attempts=2, wait_initial=0), fallback=spare)
    workflow.chain(START, work, END)
    assert workflow.run_sync(5).output == 6
