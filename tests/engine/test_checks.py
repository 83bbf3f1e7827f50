"""What the compiler refuses, and how it says so: names the node, what is wrong, and what to do."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from graphrt import END, START, ConfigError, GraphError, GraphTypeError, RetryPolicy, Workflow
from graphrt.nodes import GraphNode

Build = Callable[[Workflow], object]
CASES: list[Any] = []


def wrong(says: str, hint: str, error: type[Exception] = GraphError) -> Callable[[Build], Build]:
    """Register a builder of a graph that is refused with a message and a hint that hold these texts."""

    def register(build: Build) -> Build:
        CASES.append(pytest.param(build, says, hint, error, id=build.__name__.replace("_", " ")))
        return build

    return register


@pytest.mark.parametrize(("build", "says", "hint", "error"), CASES)
def test_wrong_graph_is_refused_with_the_way_out(build: Build, says: str, hint: str, error: type[Exception]) -> None:
    """AC-C03."""

    def declare_and_compile() -> None:
        workflow = Workflow("g")
        build(workflow)
        workflow.compile()

    with pytest.raises(error) as caught:
        declare_and_compile()
    assert type(caught.value) is error
    assert says in caught.value.message  # type: ignore[attr-defined]  # every error of graphrt has one
    assert hint in (caught.value.hint or "")  # type: ignore[attr-defined]  # as said


async def a(x: Any) -> Any:
    return x


async def b(x: Any) -> Any:
    return x


async def c(x: Any) -> Any:
    return x


async def d(x: Any) -> Any:
    return x


async def numbers(x: Any) -> list[int]:
    return [1, 2]


def add(workflow: Workflow, *functions: Callable[..., Any], **options: Any) -> None:
    """Add functions as nodes, all with the same options."""
    for fn in functions:
        workflow.add(fn, **options)


def chained(workflow: Workflow, *functions: Callable[..., Any]) -> None:
    """Add functions and chain them from START to END."""
    add(workflow, *functions)
    workflow.chain(START, *functions, END)


# --- names and ends ----------------------------------------------------------------------------------------


@wrong("node 'a' is already in graph 'g'", "another name")
def duplicate_name(g: Workflow) -> None:
    add(g, a, a)


@wrong("node 'a' is already in graph 'g'", "name=")
def duplicate_name_of_another_function(g: Workflow) -> None:
    g.add(a)
    g.add_node("a", b)


@wrong("edge 'zz' (with 'a') names 'zz', which is not in the graph", "nodes: a")
def edge_from_an_unknown_node(g: Workflow) -> None:
    g.add(a)
    g.edge("zz", "a")


@wrong("names 'numbesr', which is not in the graph", "did you mean 'numbers'?")
def edge_to_a_misspelt_node(g: Workflow) -> None:
    add(g, a, numbers)
    g.edge(a, "numbesr")


@wrong("edge a -> later names 'later', which is not in the graph", "add it first, with node() or add_node()")
def edge_by_name_to_a_node_that_never_comes(g: Workflow) -> None:
    g.add_node("a", a)
    g.set_entry("a")
    g.add_edge("a", "later")


@wrong("names 'b', which is not in the graph", "nodes: a")
def edge_to_a_function_that_is_no_node(g: Workflow) -> None:
    g.add(a)
    g.edge(a, b)


@wrong("names 'entry', which is not in the graph", "nodes: a")
def entry_that_does_not_exist(g: Workflow) -> None:
    g.add_node("a", a)
    g.set_entry("entry")


@wrong("a is in graph 'g' more than once", "name the node by its text")
def function_that_is_two_nodes_in_an_edge(g: Workflow) -> None:
    g.add(a, name="first")
    g.add(a, name="second")
    g.edge(START, a)


@wrong("graph 'g' has no entry", "add an edge from START")
def no_entry(g: Workflow) -> None:
    add(g, a, b)
    g.chain(a, b, END)


@wrong("graph 'g' has no entry", "nodes: none yet")
def nothing_at_all(g: Workflow) -> None:
    pass


@wrong("edge a -> START leads into START", "name the node that should run again")
def edge_into_start(g: Workflow) -> None:
    chained(g, a)
    g.edge(a, START)


@wrong("edge END -> a leaves END", "lead the node before it there")
def edge_out_of_end(g: Workflow) -> None:
    chained(g, a)
    g.edge(END, a)


@wrong("edge START -> a leaves START and can only be a normal edge or a map", "use edge() or map()")
def error_edge_from_start(g: Workflow) -> None:
    chained(g, a)
    g.edge(START, a, on_error=True)


@wrong("leaves START and can only be a normal edge or a map", "use edge() or map()")
def gather_from_start(g: Workflow) -> None:
    chained(g, a)
    g.gather(START, a)


@wrong("edge START -> a is declared twice", "when= or into=")
def same_edge_twice(g: Workflow) -> None:
    chained(g, a)
    g.edge(START, a)


@wrong("a chain joins at least two nodes", "chain(START, first, ..., END)")
def chain_of_one(g: Workflow) -> None:
    g.add(a)
    g.chain(a)


@wrong("branch of 'a' has no cases", "default=")
def branch_without_cases(g: Workflow) -> None:
    g.add(a)
    g.branch("a", {})


@wrong("has no name of its own", "give name=")
def lambda_without_a_name(g: Workflow) -> None:
    g.add(lambda x: x)


@wrong("node is named ''", "give name=")
def node_without_a_name(g: Workflow) -> None:
    g.add_node("", a)


@wrong("node 'five' is a int, which is neither a function nor a node", "give a function")
def number_as_a_node(g: Workflow) -> None:
    g.add_node("five", 5)


@wrong("node 'many' takes *args or **kwargs", "name each parameter")
def function_of_any_arguments(g: Workflow) -> None:
    def many(*args: Any) -> None: ...

    g.add(many)


@wrong("on_error is <class 'KeyboardInterrupt'>", "a cancellation is never handled")
def error_edge_for_an_interrupt(g: Workflow) -> None:
    chained(g, a, b)
    g.edge(a, b, on_error=KeyboardInterrupt)


@wrong("on_error is 'ValueError'", "an Exception class")
def error_edge_for_a_text(g: Workflow) -> None:
    chained(g, a, b)
    g.edge(a, b, on_error="ValueError")  # type: ignore[arg-type]  # what is refused


# --- ways through the graph --------------------------------------------------------------------------------


@wrong("node 'b' cannot be reached from START", "add an edge into it")
def unreachable_node(g: Workflow) -> None:
    chained(g, a)
    g.add(b)
    g.edge(b, END)


@wrong("nodes 'b', 'c' cannot be reached from START", "remove it")
def unreachable_cycle(g: Workflow) -> None:
    chained(g, a)
    add(g, b, c)
    g.chain(b, c, b)
    g.edge(c, END)


@wrong("node 'b' has no edge out of it", "declare it side=True")
def node_without_an_edge_out(g: Workflow) -> None:
    chained(g, a)
    g.add(b)
    g.edge(a, b)


@wrong("node 'b' has no edge out of it", "add edge('b', END)")
def chain_that_stops_before_end(g: Workflow) -> None:
    add(g, a, b)
    g.chain(START, a, b)


@wrong("node 'b' cannot reach END", "lead it to END")
def node_from_which_only_a_side_node_is_reached(g: Workflow) -> None:
    chained(g, a)
    g.add(b)
    g.add(c, side=True)
    g.chain(a, b, c)


@wrong("side node 'b' has an edge to 'c'", "drop side=True, or the edge")
def side_node_with_an_edge_out(g: Workflow) -> None:
    chained(g, a, c)
    g.add(b, side=True)
    g.chain(a, b, c)


@wrong("side node 'b' has an edge to 'c'", "drop side=True, or the edge")
def side_node_with_an_error_edge(g: Workflow) -> None:
    chained(g, a, c)
    g.add(b, side=True)
    g.edge(a, b)
    g.edge(b, c, on_error=True)


@wrong("side node 'b' has an edge to 'END'", "drop side=True, or the edge")
def side_node_that_leads_to_end(g: Workflow) -> None:
    chained(g, a)
    g.add(b, side=True)
    g.chain(a, b, END)


@wrong("cycle 'a' -> 'b' has no exit", "edge('b', END, when=...)")
def cycle_without_an_exit(g: Workflow) -> None:
    add(g, a, b)
    g.chain(START, a, b, a)


@wrong("cycle 'a' has no exit", "edge('a', END, when=...)")
def self_loop_without_an_exit(g: Workflow) -> None:
    g.add(a)
    g.edge(START, a)
    g.edge(a, a, when=bool)


@wrong("cycle 'b' -> 'c' has no exit", "add an edge that leaves it")
def inner_cycle_without_an_exit(g: Workflow) -> None:
    add(g, a, b, c)
    g.chain(START, a, b, c, b)
    g.edge(a, a, when=bool)
    g.edge(a, END, when=bool)


@wrong("cycle 'a' has no exit", "add an edge that leaves it")
def cycle_that_only_a_side_node_leaves(g: Workflow) -> None:
    g.add(a)
    g.add(b, side=True)
    g.edge(START, a)
    g.edge(a, a, when=bool)
    g.edge(a, b, when=bool)


# --- maps --------------------------------------------------------------------------------------------------


@wrong("gather from 'a' to 'b' closes no map", "open one first with map(source, ...)")
def gather_without_its_map(g: Workflow) -> None:
    add(g, a, b)
    g.edge(START, a)
    g.gather(a, b)
    g.edge(b, END)


@wrong("gather from 'b' to 'c' closes no map", "map(source, ...)")
def second_gather_of_one_map_in_a_row(g: Workflow) -> None:
    add(g, numbers, a, b, c)
    g.edge(START, numbers)
    g.map(numbers, a)
    g.gather(a, b)
    g.gather(b, c)
    g.edge(c, END)


@wrong("two maps lead into 'b': a -> b and numbers -> b", "a body of its own")
def two_maps_into_one_body(g: Workflow) -> None:
    add(g, a, numbers, b, c)
    g.edge(START, a)
    g.edge(START, numbers)
    g.map(a, b)
    g.map(numbers, b)
    g.gather(b, c)
    g.edge(c, END)


@wrong("leads into a node that is also reached without the map", "under another name")
def map_into_a_node_outside_of_it(g: Workflow) -> None:
    add(g, numbers, a, b)
    g.edge(START, numbers)
    g.edge(START, a)
    g.map(numbers, a)
    g.edge(a, b)
    g.edge(b, END)


@wrong("map numbers -> b leads into a node that is also reached without the map, by a -> b", "another name")
def edge_into_the_first_node_of_a_body(g: Workflow) -> None:
    add(g, numbers, a, b)
    g.edge(START, numbers)
    g.map(numbers, b)
    g.edge(START, a)
    g.edge(a, b)
    g.gather(b, END)


@wrong("edge a -> c crosses the border of a map: 'c' is also reached from outside the map", "gather('a', 'c')")
def edge_out_of_a_body(g: Workflow) -> None:
    add(g, numbers, a, b, c)
    g.edge(START, numbers)
    g.map(numbers, a)
    g.gather(a, b)
    g.edge(b, c)
    g.edge(a, c)
    g.edge(c, END)


@wrong("crosses the border of a map", "gather(")
def edge_into_a_body(g: Workflow) -> None:
    add(g, numbers, a, b, c)
    g.edge(START, numbers)
    g.map(numbers, a)
    g.chain(a, b)
    g.edge(numbers, b)
    g.gather(b, c)
    g.edge(c, END)


@wrong("edge a -> END crosses the border of a map", "gather('a', 'END')")
def edge_from_a_body_to_end(g: Workflow) -> None:
    add(g, numbers, a)
    g.edge(START, numbers)
    g.map(numbers, a)
    g.edge(a, END)


@wrong("map from 'numbers' ends at END", "gather(node, END)")
def map_to_end(g: Workflow) -> None:
    g.add(numbers)
    g.edge(START, numbers)
    g.map(numbers, END)


@wrong("node 'a' has no edge out of it", "add edge('a', END)")
def map_that_nothing_gathers(g: Workflow) -> None:
    add(g, numbers, a)
    g.edge(START, numbers)
    g.map(numbers, a)


@wrong("node 'numbers' leads into maps that nothing gathers", "side=True")
def map_into_side_nodes_alone(g: Workflow) -> None:
    g.add(numbers)
    g.add(a, side=True)
    g.edge(START, numbers)
    g.map(numbers, a)


@wrong("node 'pieces' yields its items one by one", "map('pieces', ...)")
def iterator_with_two_readers(g: Workflow) -> None:
    async def pieces(x: Any) -> AsyncIterator[int]:
        yield 1

    add(g, pieces, a, b)
    g.edge(START, pieces)
    g.edge(pieces, a)
    g.edge(pieces, b)
    g.edge(a, END)
    g.edge(b, END)


@wrong("node 'pieces' yields its items one by one", "return a list")
def iterator_into_a_normal_edge(g: Workflow) -> None:
    def pieces(x: Any) -> Iterator[int]:
        yield 1

    chained(g, pieces, a)


@wrong("node 'pieces' yields its items one by one", "return a list")
def function_that_is_declared_to_give_an_iterator(g: Workflow) -> None:
    async def pieces(x: Any) -> Iterator[int]:
        return iter([1])

    chained(g, pieces, a)


@wrong("map pieces -> a has when=, and its source yields items one by one", "return a list")
def condition_on_the_map_of_an_iterator(g: Workflow) -> None:
    async def pieces(x: Any) -> AsyncIterator[int]:
        yield 1

    add(g, pieces, a, b)
    g.edge(START, pieces)
    g.map(pieces, a, when=bool)
    g.gather(a, b)
    g.edge(b, END)


@wrong("map words -> a reads str, which is one value", "text.splitlines()", GraphTypeError)
def map_over_text(g: Workflow) -> None:
    async def words(x: Any) -> str:
        return ""

    add(g, words, a)
    g.edge(START, words)
    g.map(words, a)
    g.gather(a, END)


@wrong("map table -> a reads dict[str, int], which is one value", "mapping.items()", GraphTypeError)
def map_over_a_mapping(g: Workflow) -> None:
    async def table(x: Any) -> dict[str, int]:
        return {}

    add(g, table, a)
    g.edge(START, table)
    g.map(table, a)
    g.gather(a, END)


@wrong("max_concurrency of map numbers -> a is 0", "at least 1", ConfigError)
def map_without_room(g: Workflow) -> None:
    add(g, numbers, a)
    g.edge(START, numbers)
    g.map(numbers, a, max_concurrency=0)
    g.gather(a, END)


@wrong("min_success of map numbers -> a is -1", "0 or more", ConfigError)
def map_that_needs_less_than_nothing(g: Workflow) -> None:
    add(g, numbers, a)
    g.edge(START, numbers)
    g.map(numbers, a, min_success=-1)
    g.gather(a, END)


@wrong("on_error of map numbers -> a is 'ignore'", "'fail', 'skip' or 'collect'", ConfigError)
def map_with_an_unknown_policy(g: Workflow) -> None:
    add(g, numbers, a)
    g.edge(START, numbers)
    g.map(numbers, a, on_error="ignore")  # type: ignore[arg-type]  # what is refused
    g.gather(a, END)


# --- options of nodes and of the graph ---------------------------------------------------------------------


@wrong("node 'b' waits for 2 edges and has 1", "lower join to at most 1")
def quorum_above_the_number_of_edges(g: Workflow) -> None:
    g.add(a)
    g.add(b, join=2)
    g.chain(START, a, b, END)


@wrong("node 'a' waits for 2 edges and has 1", "lower join")
def quorum_that_counts_a_back_edge(g: Workflow) -> None:
    g.add(a, join=2)
    g.chain(START, a, END)
    g.edge(a, a, when=bool)


@wrong("join of node 'a' is 'most'", "'all', 'any' or a number", ConfigError)
def unknown_join(g: Workflow) -> None:
    g.add(a, join="most")
    g.chain(START, a, END)


@wrong("join of node 'a' is 0", "a number from 1", ConfigError)
def join_of_none(g: Workflow) -> None:
    g.add(a, join=0)
    g.chain(START, a, END)


@wrong("join of node 'a' is True", "a number from 1", ConfigError)
def join_that_is_a_bool(g: Workflow) -> None:
    g.add(a, join=True)
    g.chain(START, a, END)


@wrong("on_error of node 'a' is 'retry'", "edge(..., on_error=True)", ConfigError)
def unknown_policy(g: Workflow) -> None:
    g.add(a, on_error="retry")
    g.chain(START, a, END)


@wrong("timeout of node 'a' is 0", "seconds above 0", ConfigError)
def timeout_of_nothing(g: Workflow) -> None:
    g.add(a, timeout=0)
    g.chain(START, a, END)


@wrong("step_timeout of node 'a' is -1", "seconds above 0", ConfigError)
def negative_step_timeout(g: Workflow) -> None:
    g.add(a, step_timeout=-1)
    g.chain(START, a, END)


@wrong("max_concurrency of node 'a' is 0", "at least 1", ConfigError)
def node_without_room(g: Workflow) -> None:
    g.add(a, max_concurrency=0)
    g.chain(START, a, END)


@wrong("node 'a' has cancel_rest=True and waits for all its edges", "join='any' or join=n")
def cancel_rest_of_a_full_join(g: Workflow) -> None:
    g.add(a, cancel_rest=True)
    g.chain(START, a, END)


@wrong("node 'inner' holds a graph and has retry=", "put retry= on the nodes inside")
def retry_on_a_graph(g: Workflow) -> None:
    inner = Workflow("inner")
    chained(inner, a)
    g.add(inner, retry=RetryPolicy())
    g.chain(START, inner, END)


@wrong("workflow 'g' contains itself", "use a cycle")
def graph_in_itself(g: Workflow) -> None:
    g.add(g, name="again")
    g.chain(START, "again", END)


@wrong("fallback of node 'a' wants parameter 'y'", "it may take x, error")
def fallback_that_wants_more_than_its_node_has(g: Workflow) -> None:
    async def spare(x: Any, error: Exception, y: Any) -> Any:
        return x

    g.add(a, fallback=spare)
    g.chain(START, a, END)


def test_unknown_option_is_named() -> None:
    with pytest.raises(TypeError, match=r"node 'a' has no option retries; it may have .*retry"):
        Workflow("g").add(a, retries=3)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_rounds": 0}, "max_rounds of graph 'g' is 0"),
        ({"max_steps": 0}, "max_steps of graph 'g' is 0"),
        ({"max_concurrency": 0}, "max_concurrency of graph 'g' is 0"),
        ({"timeout": 0}, "timeout of graph 'g' is 0"),
    ],
)
def test_limit_that_nothing_passes_is_refused(options: dict[str, Any], says: str) -> None:
    workflow = Workflow("g", **options)
    chained(workflow, a)
    with pytest.raises(ConfigError, match=says):
        workflow.compile()


@pytest.mark.parametrize("name", ["", None, 5])
def test_workflow_needs_a_name(name: Any) -> None:
    with pytest.raises(ConfigError, match="workflow is named"):
        Workflow(name)


def test_mutual_containment_is_found() -> None:
    one, other = Workflow("one"), Workflow("other")
    one.add(other)
    other.add(one)
    one.chain(START, other, END)
    other.chain(START, one, END)
    with pytest.raises(GraphError, match=r"workflow 'o[a-z]*' contains itself"):
        one.compile()


# --- what is not refused -----------------------------------------------------------------------------------


def accepted(build: Build) -> Workflow:
    """Compile what *build* makes."""
    workflow = Workflow("g")
    build(workflow)
    workflow.compile()
    return workflow


def test_edge_by_name_may_come_before_its_node() -> None:
    def build(g: Workflow) -> None:
        g.set_entry("a")
        g.add_edge("a", "b")
        g.add_edge("b", END)
        g.add_node("a", a)
        g.add_node("b", b)

    assert accepted(build).run_sync(3).output == 3


def test_same_function_may_be_two_nodes() -> None:
    def build(g: Workflow) -> None:
        g.add(a, name="first")
        g.add(a, name="second")
        g.chain(START, "first", "second", END)

    assert accepted(build).run_sync(3).output == 3


def test_partial_lambda_and_callable_object_are_nodes_under_a_name() -> None:
    class Plus:
        def __init__(self, n: int) -> None:
            self.n = n

        async def __call__(self, x: int) -> int:
            return x + self.n

    def plus(n: int, x: int) -> int:
        return x + n

    def build(g: Workflow) -> None:
        g.add_node("one", lambda x: x + 1)
        g.add_node("two", functools.partial(plus, 10))
        g.add_node("three", Plus(100))
        g.chain(START, "one", "two", "three", END)

    assert accepted(build).run_sync(0).output == 111


def test_parallel_edges_with_conditions_or_names_are_no_duplicates() -> None:
    async def both(p: Any = None, q: Any = None) -> Any:
        return (p, q)

    def build(g: Workflow) -> None:
        add(g, a, both)
        g.edge(START, a)
        g.edge(a, both, into="p")
        g.edge(a, both, into="q")
        g.edge(both, END)

    assert accepted(build).run_sync(1).output == (1, 1)


def test_compiled_graph_is_kept_until_the_workflow_changes() -> None:
    workflow = Workflow("g")
    chained(workflow, a)
    first = workflow.compile()
    assert workflow.compile() is first
    workflow.add(b)
    workflow.edge(a, b)
    workflow.edge(b, END)
    assert workflow.compile() is not first
    assert first.run_sync(1).outputs == {"a": 1}


def test_change_of_an_inner_workflow_is_seen_by_the_outer() -> None:
    inner, outer = Workflow("inner"), Workflow("outer")
    chained(inner, a)
    outer.add(inner)
    outer.chain(START, inner, END)
    first = outer.compile()
    inner.add(b)
    inner.edge(a, b)
    inner.edge(b, END)
    assert outer.compile() is not first


def test_change_of_a_workflow_in_a_graph_node_is_seen_by_the_outer() -> None:
    inner, outer = Workflow("inner"), Workflow("outer")
    chained(inner, a)
    outer.add(GraphNode("held", inner))
    outer.chain(START, "held", END)
    first = outer.compile()
    inner.add(b)
    inner.edge(a, b)
    inner.edge(b, END)
    assert outer.compile() is not first


def test_graph_node_that_holds_the_graph_it_is_in_is_found() -> None:
    workflow = Workflow("g")
    workflow.add(GraphNode("again", workflow))
    workflow.chain(START, "again", END)
    with pytest.raises(GraphError, match="workflow 'g' contains itself"):
        workflow.compile()


def test_nested_workflow_may_be_compiled_in_several_threads_at_once() -> None:
    """E24."""
    inner, outer = Workflow("inner"), Workflow("outer")
    chained(inner, a)
    outer.add(inner)
    outer.chain(START, inner, END)
    outer.compile()
    refused: list[Exception] = []

    def compile_often() -> None:
        try:
            for _ in range(500):
                outer.compile()
        except GraphError as error:
            refused.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=compile_often) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert refused == []


def test_decorated_function_stays_an_ordinary_function() -> None:
    workflow = Workflow("g")

    @workflow.node
    def plain(x: int) -> int:
        return x + 1

    @workflow.node(timeout=1)
    def limited(x: int) -> int:
        return x + 2

    assert (plain(1), limited(1)) == (2, 3)


def test_every_refusal_has_one_line_and_a_hint() -> None:
    """Lower case, no full stop, a way out: how graphrt's errors read."""
    for case in CASES:
        build, _, _, error = case.values
        workflow = Workflow("g")
        with pytest.raises(error) as caught:
            _declare(build, workflow)
        message, hint = str(caught.value).split("\n  hint: ")
        assert "\n" not in message
        assert not message.endswith(".")
        assert hint


def _declare(build: Build, workflow: Workflow) -> None:
    build(workflow)
    workflow.compile()
