"""Declared types are compared along every edge; values are checked in the run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypedDict, TypeVar

import pytest
from pydantic import BaseModel

from graphrt import END, START, GraphError, GraphTypeError, RetryPolicy, Update, Workflow
from graphrt.graph import NodeState
from tests.engine.helpers import constant, line

if TYPE_CHECKING:
    from decimal import Decimal

T = TypeVar("T")


class Speaks(Protocol):
    def speak(self) -> str: ...


class Row(TypedDict):
    id: int


class Base(BaseModel):
    n: int = 0


class Derived(Base):
    pass


class Other(BaseModel):
    n: int = 0


@dataclass
class Point:
    x: int = 0


def returning(tp: Any) -> Callable[..., Any]:
    """Make a node function that is declared to return *tp*."""

    async def source(x: Any) -> Any: ...

    source.__annotations__ = {"x": Any, "return": tp}
    return source


def taking(tp: Any) -> Callable[..., Any]:
    """Make a node function whose parameter is declared *tp*."""

    async def target(value: Any) -> Any: ...

    target.__annotations__ = {"value": tp, "return": Any}
    return target


MISMATCHES = [
    (str, int),
    (int, str),
    (float, int),
    (str, list[str]),
    (list[str], str),
    (list[str], list[int]),
    (dict[str, int], list[int]),
    (dict[str, int], dict[str, str]),
    (tuple[int, str], tuple[int, int]),
    (tuple[int, ...], tuple[str, ...]),
    (Base, Other),
    (Point, Base),
    (None, int),
    (int | str, list[int]),
    (str, int | list[int]),
    (str | None, int),
    (Literal["a", "b"], Literal["c"]),
    (Literal["a"], int),
    (Row, list[int]),
    (Annotated[str, "words"], int),
    (Update[str], int),
    (list[list[str]], list[list[int]]),
    (Sequence[str], Mapping[str, str]),
]


@pytest.mark.parametrize(("gives", "takes"), MISMATCHES)
def test_definite_mismatch_is_refused(gives: Any, takes: Any) -> None:
    workflow = line(returning(gives), taking(takes))
    with pytest.raises(GraphTypeError, match=r"edge source -> target brings .*, and parameter 'value' takes"):
        workflow.compile()


FITS = [
    (str, str),
    (int, float),
    (bool, int),
    (int, complex),
    (list[int], list[float]),
    (Any, int),
    (str, Any),
    (object, int),
    (str, object),
    (T, int),
    (str, T),
    (list[T], list[int]),  # type: ignore[valid-type]  # a type variable of nobody, as an annotation may hold
    (str, Speaks),
    (Speaks, int),
    (Derived, Base),
    (Base, Derived),
    (int | str, int),
    (int | str, str | bytes),
    (int | None, int),
    (int, int | None),
    (None, int | None),
    (list[int], Sequence[int]),
    (Sequence[int], list[int]),
    (list[int], Iterable[float]),
    (list, list[int]),
    (list[str], list),
    (dict[str, int], Mapping[str, int]),
    (Row, dict),
    (Literal["a", "b"], Literal["b"]),
    (Literal["a"], str),
    (str, Literal["a"]),
    (tuple[int, str], tuple[int, ...] | tuple[int, str]),
    (Callable[[int], str], Callable[..., Any]),
    (Annotated[str, "words"], str),
    (Update[str], str),
]


@pytest.mark.parametrize(("gives", "takes"), FITS)
def test_what_may_fit_is_accepted(gives: Any, takes: Any) -> None:
    line(returning(gives), taking(takes)).compile()


def test_name_that_cannot_be_resolved_passes() -> None:
    async def source(x: Any) -> Decimal:
        return None  # type: ignore[return-value]  # whatever it is

    async def target(value: int) -> int:
        return value

    line(source, target).compile()


def test_function_without_annotations_passes() -> None:
    async def source(x):  # type: ignore[no-untyped-def]  # what is tested
        return x

    assert line(source, taking(int)).run_sync("a").output is None


# --- every kind of edge ------------------------------------------------------------------------------------


def test_input_is_compared_with_the_entry() -> None:
    with pytest.raises(GraphTypeError, match="edge START -> target brings str, and parameter 'value' takes int"):
        line(taking(int), input=str).compile()


def test_part_of_the_input_is_compared() -> None:
    async def entry(topic: int) -> Any: ...

    with pytest.raises(GraphTypeError, match="the run's input brings str, and parameter 'topic' takes int"):
        line(entry, input={"topic": str}).compile()


def test_field_of_the_input_model_is_compared() -> None:
    async def entry(n: str) -> Any: ...

    with pytest.raises(GraphTypeError, match="the run's input brings int, and parameter 'n' takes str"):
        line(entry, input=Base).compile()


def test_output_is_compared() -> None:
    with pytest.raises(GraphTypeError, match="edge source -> END brings str, and graph 'line' declares output int"):
        line(returning(str), output=int).compile()


def test_output_of_a_node_without_a_value_is_left_out() -> None:
    async def note(x: int) -> None: ...

    async def work(x: int) -> int:
        return x

    workflow = Workflow("g", output=int)
    for fn in (note, work):
        workflow.add(fn)
        workflow.chain(START, fn, END)
    assert workflow.run_sync(4).output == 4


def test_output_has_to_be_a_type() -> None:
    with pytest.raises(GraphTypeError, match="output of graph 'line' is a dict, which is no type"):
        line(returning(str), output={"a": int}).compile()


def test_value_read_by_name_is_compared() -> None:
    async def first(x: Any) -> str:
        return ""

    async def between(x: Any) -> int:
        return 1

    async def reader(value: int, first: int) -> Any: ...

    with pytest.raises(GraphTypeError, match="node 'first' brings str, and parameter 'first' takes int"):
        line(first, between, reader).compile()


def mapped(source: Callable[..., Any], body: Callable[..., Any], last: Callable[..., Any]) -> Workflow:
    """Map *body* over *source* and gather it in *last*."""
    workflow = Workflow("mapped")
    for fn in (source, body, last):
        workflow.add(fn)
    workflow.edge(START, source)
    workflow.map(source, body)
    workflow.gather(body, last)
    workflow.edge(last, END)
    return workflow


@pytest.mark.parametrize("container", [list[str], tuple[str, ...], Sequence[str], Iterable[str], set[str] | list[str]])
def test_item_of_a_map_is_compared(container: Any) -> None:
    async def body(item: int) -> int:
        return item

    async def last(parts: list[int]) -> Any: ...

    with pytest.raises(GraphTypeError, match="edge source -> body brings str, and parameter 'item' takes int"):
        mapped(returning(container), body, last).compile()


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_item_of_an_iterator_is_compared(kind: str) -> None:
    async def slow(x: Any) -> AsyncIterator[str]:
        yield ""

    def quick(x: Any) -> Iterator[str]:
        yield ""

    async def body(item: int) -> int:
        return item

    async def last(parts: list[int]) -> Any: ...

    source = {"async": slow, "sync": quick}[kind]
    with pytest.raises(GraphTypeError, match="brings str, and parameter 'item' takes int"):
        mapped(source, body, last).compile()


def test_list_of_a_gather_is_compared() -> None:
    async def body(item: int) -> str:
        return ""

    async def last(parts: list[int]) -> Any: ...

    with pytest.raises(GraphTypeError, match=r"brings list\[str\], and parameter 'parts' takes list\[int\]"):
        mapped(returning(list[int]), body, last).compile()


def test_gather_into_what_is_no_list_is_refused() -> None:
    async def body(item: int) -> str:
        return ""

    async def last(parts: str) -> Any: ...

    with pytest.raises(GraphTypeError, match=r"brings list\[str\], and parameter 'parts' takes str"):
        mapped(returning(list[int]), body, last).compile()


def test_exception_of_an_error_edge_is_compared() -> None:
    async def handler(error: str) -> Any: ...

    workflow = Workflow("g")
    workflow.add(returning(int))
    workflow.add(handler)
    workflow.chain(START, "source", END)
    workflow.edge("source", handler, on_error=ValueError)
    workflow.edge(handler, END)
    with pytest.raises(
        GraphTypeError, match="edge source -> handler brings ValueError, and parameter 'error' takes str"
    ):
        workflow.compile()


def test_what_a_branch_brings_is_compared() -> None:
    workflow = Workflow("g")
    workflow.add(returning(str))
    workflow.add(taking(int))
    workflow.edge(START, "source")
    workflow.branch("source", {"a": "target"}, default=END)
    workflow.edge("target", END)
    with pytest.raises(GraphTypeError, match="edge source -> target brings str"):
        workflow.compile()


def test_inner_graph_is_compared_by_its_input_and_output() -> None:
    inner = line(taking(int), input=int, output=int)
    outer = Workflow("outer")
    outer.add(returning(str))
    outer.add(inner)
    outer.add(taking(int), name="after")
    outer.chain(START, "source", "line", "after", END)
    with pytest.raises(GraphTypeError, match="edge source -> line brings str, and parameter 'input' takes int"):
        outer.compile()


def test_output_of_an_inner_graph_is_compared() -> None:
    inner = line(returning(str), output=str)
    outer = Workflow("outer")
    outer.add(inner)
    outer.add(taking(int))
    outer.chain(START, inner, "target", END)
    with pytest.raises(GraphTypeError, match="edge line -> target brings str, and parameter 'value' takes int"):
        outer.compile()


# --- in the run --------------------------------------------------------------------------------------------


def test_value_of_another_type_is_the_steps_failure() -> None:
    async def source(x: Any) -> list[int]:
        return "text"  # type: ignore[return-value]  # what is caught

    workflow = line(source, taking(Any))
    result = workflow.run_sync(check=False)
    assert result.status == "failed"
    assert result.node_states["source"] is NodeState.FAILED
    assert isinstance(result.error, GraphTypeError)
    assert "node 'source' declares list[int] and returned str" in str(result.error)


@pytest.mark.parametrize(
    ("declared", "value"),
    [(int, "1"), (str, None), (Base, Other()), (Literal["a"], "b"), (int | None, "x"), (float, "1.0"), (None, 3)],
)
def test_wrong_value_is_refused(declared: Any, value: Any) -> None:
    with pytest.raises(GraphTypeError, match="node 'give' declares"):
        line(_gives(declared, value)).run_sync()


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        (list[int], ["not checked inside"]),
        (float, 1),
        (int, True),
        (int | None, None),
        (Base, Derived()),
        (Any, object()),
        (T, 3),
        (Speaks, 3),
        (Literal["a", "b"], "b"),
        (Annotated[int, "n"], 3),
        (Row, {"id": 1}),
        (Callable[[], int], len),
    ],
)
def test_value_of_the_declared_origin_passes(declared: Any, value: Any) -> None:
    assert line(_gives(declared, value)).run_sync().status == "succeeded"


def _gives(declared: Any, value: Any) -> Callable[..., Any]:
    give: Callable[..., Any] = constant(value)
    give.__annotations__ = {"return": declared}
    return give


def test_output_of_an_update_is_checked() -> None:
    class State(BaseModel):
        n: int = 0

    async def source(x: Any) -> Update[int]:
        return Update("text", n=1)  # type: ignore[arg-type]  # what is caught

    with pytest.raises(GraphTypeError, match="node 'source' declares int and returned str"):
        line(source, state=State).run_sync()


def test_wrong_value_takes_the_error_edge() -> None:
    async def source(x: Any) -> int:
        return "text"  # type: ignore[return-value]  # what is caught

    async def mend(error: GraphTypeError) -> int:
        return 0

    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(mend)
    workflow.chain(START, source, END)
    workflow.edge(source, mend, on_error=GraphTypeError)
    workflow.edge(mend, END)
    assert workflow.run_sync().output == 0


def test_wrong_value_is_an_attempt_like_any_other() -> None:
    answers = iter(["one", 2])

    async def source(x: Any) -> int:
        return next(answers)  # type: ignore[return-value]  # what is caught

    workflow = Workflow("g")
    workflow.add(source, retry=RetryPolicy(attempts=2, wait_initial=0))
    workflow.chain(START, source, END)
    assert workflow.run_sync().output == 2


def test_wrong_value_of_a_fallback_is_refused() -> None:
    async def source(x: Any) -> int:
        raise ValueError

    workflow = Workflow("g")
    workflow.add(source, fallback=["text", 7])
    workflow.chain(START, source, END)
    assert workflow.run_sync().output == 7


def test_input_of_another_type_is_refused_before_the_run() -> None:
    with pytest.raises(GraphTypeError, match="graph 'line' takes int and was given str"):
        line(taking(int), input=int).run_sync("a")


def test_mapping_becomes_the_input_model() -> None:
    async def entry(x: Base) -> Base:
        return x

    assert line(entry, input=Base).run_sync({"n": 3}).output == Base(n=3)


def test_mapping_that_does_not_fit_the_input_model_is_refused() -> None:
    async def entry(x: Base) -> Base:
        return x

    with pytest.raises(GraphTypeError, match="input of graph 'line' does not fit Base"):
        line(entry, input=Base).run_sync({"n": "many"})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"topic": "x"}, "lacks size"),
        ({"topic": "x", "size": 1, "colour": 2}, "has colour too many"),
        ({"topic": 1, "size": 1}, "input 'topic' of graph 'line' is declared str and was given int"),
        ("x", "takes topic, size by name and was given str"),
    ],
)
def test_inputs_by_name_are_checked(given: Any, says: str) -> None:
    async def entry(topic: str, size: int) -> Any: ...

    with pytest.raises(GraphTypeError, match=says):
        line(entry, input={"topic": str, "size": int}).run_sync(given)


def test_output_of_another_type_is_refused_at_the_end() -> None:
    async def source(x):  # type: ignore[no-untyped-def]  # nothing to compare when it is compiled
        return "text"

    with pytest.raises(GraphTypeError, match="graph 'line' declares another output than the str that reached END"):
        line(source, output=int).run_sync()


def test_map_over_a_value_that_is_text_after_all_is_the_sources_failure() -> None:
    async def source(x: Any) -> Any:
        return "text"

    async def body(item: Any) -> Any:
        return item

    async def last(parts: list[Any]) -> Any:
        return parts

    result = mapped(source, body, last).run_sync(check=False)
    assert result.node_states["source"] is NodeState.FAILED
    assert "map source -> body got a str, which is one value" in str(result.error)


@pytest.mark.parametrize("value", [b"ab", {"a": 1}, {1, 2}, frozenset(), 7, None, bytearray(b"x")])
def test_map_over_what_has_no_items_in_order_is_refused(value: Any) -> None:
    """E9."""

    async def source(x: Any) -> Any:
        return value

    async def body(item: Any) -> Any:
        return item

    async def last(parts: list[Any]) -> Any:
        return parts

    with pytest.raises(GraphTypeError, match="map source -> body got") as caught:
        mapped(source, body, last).run_sync()
    assert caught.value.hint


def test_undeclared_state_cannot_be_written() -> None:
    async def source(x: Any) -> Any:
        return Update(1, n=2)

    with pytest.raises(GraphError, match="node 'source' returned an Update, and the graph has no state"):
        line(source).run_sync()
