"""Tools made from functions: what the model is told, and what the function is given."""

from __future__ import annotations

import functools
import threading
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio
import pytest
from pydantic import BaseModel, Field

from graphrt.errors import GraphrtError, ToolError, ToolErrorKind
from graphrt.threads import abandoned_count
from graphrt.tools import FunctionTool, ToolContext, function_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

USER: ContextVar[str] = ContextVar("USER", default="nobody")


class Place(BaseModel):
    city: str
    zip: int | None = None


def schema_of(tool: FunctionTool[..., Any]) -> Mapping[str, Any]:
    return tool.descriptor.parameters


def properties_of(tool: FunctionTool[..., Any]) -> dict[str, Any]:
    found: dict[str, Any] = schema_of(tool)["properties"]
    return found


# --- what the model is told


def test_schema_comes_from_annotations_and_docstring() -> None:
    @function_tool
    def search(query: str, limit: Annotated[int, Field(ge=1)] = 5, kind: Literal["a", "b"] | None = None) -> list[str]:
        """Search the index.

        Args:
            query: What to look for.
            limit: Most hits.
        """
        return [query] * limit

    assert search.descriptor.id == "search"
    assert search.descriptor.description == "Search the index."
    assert schema_of(search) == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "limit": {"type": "integer", "minimum": 1, "default": 5, "description": "Most hits."},
            "kind": {"anyOf": [{"enum": ["a", "b"], "type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["query"],
        "additionalProperties": False,
    }


def test_description_in_the_annotation_goes_before_the_docstring() -> None:
    @function_tool
    def move(x: Annotated[int, Field(description="by field")], y: Annotated[int, "by text"], z: int) -> None:
        """Move.

        :param x: by docstring
        :param y: by docstring
        :param z: by docstring
        """

    assert [each["description"] for each in properties_of(move).values()] == [
        "by field",
        "by text",
        "by docstring",
    ]


def test_function_without_parameters_takes_an_empty_object() -> None:
    @function_tool
    def now() -> str:
        return "now"

    assert schema_of(now) == {"type": "object", "properties": {}, "additionalProperties": False}


def test_id_and_description_may_be_given() -> None:
    tool = function_tool(lambda: 1, id="one", description="Give one.")

    assert (tool.descriptor.id, tool.descriptor.description) == ("one", "Give one.")


def test_flags_are_those_of_the_decorator() -> None:
    @function_tool(timeout=2.5, requires_approval=True, exclusive=True)
    def drop() -> None: ...

    @function_tool()
    def keep() -> None: ...

    assert (drop.timeout, drop.requires_approval, drop.exclusive) == (2.5, True, True)
    assert (keep.timeout, keep.requires_approval, keep.exclusive) == (None, False, False)


def test_tool_is_still_the_function() -> None:
    @function_tool
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    assert add(1) == 2
    assert (add.__name__, add.__doc__) == ("add", "Add.")
    assert repr(add) == "FunctionTool('add')"


def test_context_is_not_shown_to_the_model() -> None:
    @function_tool
    def plain(a: int, ctx: ToolContext) -> None: ...

    @function_tool
    def typed(a: int, *, ctx: ToolContext[int] | None = None) -> None: ...

    assert list(properties_of(plain)) == list(properties_of(typed)) == ["a"]


def test_postponed_annotation_may_name_a_local_class() -> None:
    class Local(BaseModel):
        size: int

    @function_tool
    def fit(item: Local) -> int:
        return item.size

    assert schema_of(fit)["$defs"]["Local"]["properties"] == {"size": {"type": "integer"}}


def test_parameters_may_have_names_that_a_model_class_reserves() -> None:
    def odd(json: int, copy: int, model_config: int, _id: int, schema: int = 0, field0: int = 0) -> None: ...

    assert list(properties_of(function_tool(odd))) == [
        "json",
        "copy",
        "model_config",
        "_id",
        "schema",
        "field0",
    ]


def test_default_that_json_cannot_show_is_left_out() -> None:
    @function_tool
    def wait(until: Any = object) -> None: ...

    assert properties_of(wait) == {"until": {}}


# --- what cannot be a tool


def no_name(*values: int) -> None: ...


def no_names(**values: int) -> None: ...


def unreadable(x: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821  what is tested


def indescribable(lock: threading.Event) -> None: ...


def generator() -> Iterator[int]:
    yield 1


class Shop:
    """A callable object and a method, each of which can be a tool."""

    def __init__(self, stock: int) -> None:
        self.stock = stock

    def buy(self, count: int) -> int:
        """Buy."""
        self.stock -= count
        return self.stock

    async def __call__(self, count: int) -> int:
        """Count."""
        return self.stock + count


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (no_name, "has no name for a model"),
        (no_names, "has no name for a model"),
        (unreadable, "annotation 'Missing' of parameter 'x' of tool 'unreadable' cannot be read"),
        (indescribable, "the parameters of tool 'indescribable' have no JSON Schema"),
        (generator, "'generator' is a generator function"),
        (Shop.buy, "'buy' is a method without its object"),
        (lambda: 1, "a lambda has no name"),
    ],
)
def test_what_cannot_be_described_is_refused(fn: Callable[..., Any], message: str) -> None:
    with pytest.raises(ToolError, match=message) as caught:
        function_tool(fn)

    assert caught.value.kind is ToolErrorKind.REGISTRATION
    assert caught.value.hint


def test_timeout_must_be_a_time() -> None:
    with pytest.raises(ToolError, match="timeout of tool 'drop' is 0"):

        @function_tool(timeout=0)
        def drop() -> None: ...


# --- what the function is given


@pytest.mark.anyio
async def test_arguments_are_converted_to_what_is_declared() -> None:
    @function_tool
    def visit(place: Place, day: date, times: int, notes: list[str] | None = None) -> list[object]:
        return [place, day, times, notes]

    given = {"place": {"city": "Rome"}, "day": "2026-01-02", "times": "3"}

    assert await visit.execute(given, ToolContext()) == [Place(city="Rome"), date(2026, 1, 2), 3, None]


@pytest.mark.anyio
async def test_arguments_that_do_not_fit_are_named_one_by_one() -> None:
    @function_tool
    def visit(place: Place, stops: list[int], days: Annotated[int, Field(gt=0)] = 1) -> None: ...

    given = {"place": {"zip": "x"}, "stops": [1, "two"], "days": 0, "colour": "red"}
    with pytest.raises(ToolError) as caught:
        await visit.execute(given, ToolContext())

    assert caught.value.kind is ToolErrorKind.INVALID_ARGUMENTS
    assert str(caught.value).splitlines() == [
        "the arguments do not fit:",
        "- place.city: required, and missing",
        "- place.zip: input should be a valid integer, unable to parse string as an integer, not 'x'",
        "- stops[1]: input should be a valid integer, unable to parse string as an integer, not 'two'",
        "- days: input should be greater than 0, not 0",
        "- colour: not an argument of this tool",
    ]


@pytest.mark.anyio
async def test_long_list_of_misfits_is_cut_short() -> None:
    @function_tool
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    with pytest.raises(ToolError) as caught:
        await total.execute({"numbers": ["x" * 1000] * 30}, ToolContext())

    lines = str(caught.value).splitlines()
    assert lines[-1] == "- and 20 more"
    assert max(map(len, lines)) < 250


@pytest.mark.anyio
async def test_missing_argument_is_left_to_the_functions_own_default() -> None:
    marker = object()

    @function_tool
    def keep(
        first: int,
        second: Any = marker,
        *,
        third: Annotated[int, Field(default=3)],
        fourth: int = Field(4, le=9),
    ) -> list[object]:
        return [first, second, third, fourth]

    assert await keep.execute({"first": 1}, ToolContext()) == [1, marker, 3, 4]


@pytest.mark.anyio
async def test_positional_only_parameters_are_passed_by_place() -> None:
    @function_tool
    def place(a: int, b: int = 2, c: int = 3, /, *, d: int = 4) -> list[int]:
        return [a, b, c, d]

    assert await place.execute({"a": 1, "c": 30}, ToolContext()) == [1, 2, 30, 4]


@pytest.mark.anyio
async def test_context_is_passed_wherever_it_is_asked_for() -> None:
    ctx: ToolContext[dict[str, int]] = ToolContext(run_id="r-1", deps={"db": 1})

    @function_tool
    async def first(ctx: ToolContext[dict[str, int]], a: int) -> list[object]:
        return [ctx, a]

    @function_tool
    def last(a: int, *, context: Annotated[ToolContext[Any], "here"]) -> list[object]:
        return [context, a]

    assert await first.execute({"a": 1}, ctx) == [ctx, 1]
    assert await last.execute({"a": 1}, ctx) == [ctx, 1]


@pytest.mark.anyio
async def test_synchronous_function_runs_in_a_thread_with_the_callers_context() -> None:
    """B-109."""
    USER.set("ann")

    @function_tool
    def who() -> tuple[str, bool]:
        seen = USER.get()
        USER.set("eve")
        return seen, threading.current_thread() is threading.main_thread()

    assert await who.execute({}, ToolContext()) == ("ann", False)
    assert USER.get() == "ann"


@pytest.mark.anyio
async def test_methods_callable_objects_and_partials_can_be_tools() -> None:
    shop = Shop(10)

    def scale(factor: int, value: int) -> int:
        """Scale."""
        return factor * value

    buy, count = function_tool(shop.buy), function_tool(shop)
    double = function_tool(functools.partial(scale, factor=2))

    assert await buy.execute({"count": 3}, ToolContext()) == 7
    assert await count.execute({"count": 3}, ToolContext()) == 10
    assert await double.execute({"value": 4}, ToolContext()) == 8
    assert [tool.descriptor.id for tool in (buy, count, double)] == ["buy", "Shop", "scale"]
    assert [tool.descriptor.description for tool in (buy, count, double)] == ["Buy.", "Count.", "Scale."]
    assert list(properties_of(double)) == ["value"]


@pytest.mark.anyio
async def test_decorated_function_keeps_its_schema() -> None:
    def shout(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def louder(*args: Any, **kwargs: Any) -> str:
            return str(fn(*args, **kwargs)).upper()

        return louder

    @function_tool
    @shout
    def greet(name: str) -> str:
        return f"hi {name}"

    assert list(properties_of(greet)) == ["name"]
    assert await greet.execute({"name": "ann"}, ToolContext()) == "HI ANN"


@pytest.mark.anyio
async def test_awaitable_from_a_synchronous_function_is_awaited() -> None:
    async def inner(a: int) -> int:
        await anyio.lowlevel.checkpoint()
        return a + 1

    @function_tool
    def outer(a: int) -> Any:
        return inner(a)

    assert await outer.execute({"a": 1}, ToolContext()) == 2


@pytest.mark.anyio
@pytest.mark.parametrize("listening", [True, False])
async def test_cancelled_tool_leaves_its_thread_and_says_so(listening: bool) -> None:
    """B-049: also when the run that would hear of it has ended."""
    inside, gate = threading.Event(), threading.Event()
    told: list[tuple[str, Mapping[str, Any]]] = []

    def emit(kind: str, data: Mapping[str, Any]) -> None:
        told.append((kind, data))
        if not listening:
            raise GraphrtError("the run has ended")

    @function_tool
    def block() -> None:
        inside.set()
        gate.wait()

    ctx: ToolContext[Any] = ToolContext(tool_call_id="c-1", emit=emit)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(block.execute, {}, ctx)
        while not inside.is_set():  # noqa: ASYNC110  what is waited for is no event of this loop
            await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    gate.set()
    with anyio.fail_after(10):
        while abandoned_count():  # noqa: ASYNC110
            await anyio.sleep(0.001)

    assert told == [("thread.abandoned", {"tool_id": "block", "tool_call_id": "c-1"})]


# --- a schema of its own

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city"],
}


@dataclass
class Weather:
    city: str
    days: int
    ctx: ToolContext[Any] | None


@pytest.mark.anyio
async def test_function_may_bring_its_own_schema() -> None:
    @function_tool(parameters=SCHEMA)
    def weather(ctx: ToolContext[Any], **arguments: Any) -> Weather:
        return Weather(ctx=ctx, **arguments)

    ctx: ToolContext[Any] = ToolContext(run_id="r-1")

    assert schema_of(weather) == SCHEMA
    assert await weather.execute({"city": "Rome", "days": 2}, ctx) == Weather("Rome", 2, ctx)
    with pytest.raises(ToolError) as caught:
        await weather.execute({"days": 0}, ctx)
    assert str(caught.value).splitlines() == [
        "the arguments do not fit:",
        "- days: 0 is less than the minimum of 1",
        "- arguments: 'city' is a required property",
    ]


def test_schema_that_is_none_is_refused() -> None:
    with pytest.raises(ToolError, match="the parameters of tool 'odd' are no JSON Schema"):

        @function_tool(parameters={"type": "objekt"})
        def odd() -> None: ...


def test_context_of_a_node_is_refused_with_the_name_of_the_right_one() -> None:
    from graphrt import RunContext

    async def pay(amount: int, ctx: RunContext[Any]) -> str:
        return "paid"

    with pytest.raises(ToolError, match="'ctx' of tool 'pay' is a node's context") as caught:
        function_tool(pay)
    assert caught.value.hint == "annotate it with ToolContext"
