"""Values as JSON: what comes back is equal and of the same types, or is refused when it is stored (E25)."""

from __future__ import annotations

import collections
import datetime as dt
import enum
import json
import math
import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PrivateAttr, RootModel, SecretStr, computed_field
from typing_extensions import TypedDict

from graphrt import END, START, GraphTypeError, Workflow
from graphrt.graph.annotations import MISSING, Unresolved
from graphrt.graph.durable.codec import codec_of
from graphrt.graph.durable.comparing import difference
from graphrt.graph.durable.events import EventCodec

T = TypeVar("T")
WHAT = "the value of node 'a'"


class Color(enum.Enum):
    RED = "r"
    BLUE = 2


class Mood(enum.StrEnum):
    CALM = "calm"


class Level(enum.IntEnum):
    LOW = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    name: str


class Row(TypedDict):
    a: int
    b: NotRequired[bytes]


@dataclass
class Tree:
    value: int
    raw: bytes = b"\xff"
    far: float = math.inf
    left: Tree | None = None


@dataclass(frozen=True, slots=True)
class Fixed:
    a: int
    f: float = 1.0


@dataclass
class Box(Generic[T]):
    held: T


class Base(BaseModel):
    a: int = 0


class Derived(Base):
    b: int = 1


class Twin(BaseModel):
    a: int = 0


class Holder(BaseModel, Generic[T]):
    held: T
    more: list[T] = []


class Named(BaseModel):
    user_id: int = Field(alias="userId")
    other: int = Field(serialization_alias="out", validation_alias="in", default=1)

    @computed_field  # type: ignore[prop-decorator]  # as pydantic wants it
    @property
    def double(self) -> int:
        return 2 * self.user_id


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    day: dt.date
    mood: Mood
    pair: tuple[int, str]


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    held: Any = None


class Hidden(BaseModel):
    a: int = 0
    _cache: int = PrivateAttr(0)


class Items(RootModel[list[Base]]):
    pass


class Nested(BaseModel):
    class Kind(enum.Enum):
        ONE = "one"

    class Part(BaseModel):
        kind: Nested.Kind

    parts: dict[str, list[Part]]


Nested.model_rebuild()


def local_model() -> Any:
    """Give a class that no import finds, with another inside it."""

    class Inner(BaseModel):
        class Deep(enum.Enum):
            X = "x"

        deep: Deep = Deep.X
        box: Box[Color] | None = None

    return Inner


Inner = local_model()
Id = NewType("Id", int)
BERLIN = dt.timezone(dt.timedelta(hours=1))

SAME: list[tuple[Any, Any]] = [
    (str, 'é\0\n"\\\U0001f41d'),
    (int, -(10**100)),
    (int, True),
    (float, 1),
    (float, -0.0),
    (float, math.nan),
    (float, -math.inf),
    (bool, False),
    (None, None),
    (Any, {"a": [1, 2.5, None, True, {"b": []}]}),
    (MISSING, [{}, "x"]),
    (object, 3),
    (T, "x"),
    (Color, Color.BLUE),
    (Mood, Mood.CALM),
    (Level, Level.LOW),
    (Rights, Rights.READ | Rights.WRITE),
    (Point, Point(1, "x")),
    (Row, {"a": 1, "b": b"\xff"}),
    (Tree, Tree(1, left=Tree(2))),
    (list[Fixed], [Fixed(1), Fixed(2, math.nan)]),
    (Box[Color], Box(Color.RED)),
    (Base, Base(a=2)),
    (list[Base], [Base(), Base(a=1)]),
    (dict[str, Base], {"x": Base()}),
    (Base | None, None),
    (Base | None, Base()),
    (Holder[Color], Holder[Color](held=Color.RED, more=[Color.BLUE])),
    (Holder[Base], Holder[Base](held=Base())),
    (Named, Named(userId=3)),
    (Strict, Strict(day=dt.date(2024, 2, 29), mood=Mood.CALM, pair=(1, "a"))),
    (Open, Open.model_validate({"held": {"x": [1]}, "more": 2})),
    (Hidden, Hidden()),
    (Items, Items([Base()])),
    (Nested, Nested(parts={"p": [Nested.Part(kind=Nested.Kind.ONE)]})),
    (Inner, Inner(box=Box(Color.RED))),
    (Id, Id(3)),
    (list[Id], [Id(3)]),
    (Annotated[int, Field(gt=1)], 5),
    (Annotated[str, "a note"], "x"),
    (Literal["a", 1], 1),
    (Literal[Mood.CALM], Mood.CALM),
    (tuple[int, ...], (1, 2)),
    (tuple[int, Base], (1, Base())),
    (set[int], {1, 2}),
    (frozenset[Mood], frozenset({Mood.CALM})),
    (set[tuple[int, str]], {(1, "a")}),
    (bytes, b"\xff\0"),
    (dt.datetime, dt.datetime(2024, 1, 1, 1, 2, 3, 456789)),  # noqa: DTZ001 - what is tested
    (dt.datetime, dt.datetime(2024, 1, 1, tzinfo=BERLIN)),
    (dt.date, dt.date(2024, 2, 29)),
    (dt.time, dt.time(1, 2, 3)),
    (dt.timedelta, dt.timedelta(days=-3, microseconds=1)),
    (Decimal, Decimal("1.10")),
    (uuid.UUID, uuid.UUID(int=7)),
    (Path, Path("/x")),
    (PurePosixPath, PurePosixPath("x")),
    (re.Pattern[str], re.compile("a+")),
    (dict[int, str], {1: "a"}),
    (dict[Mood, int], {Mood.CALM: 1}),
    (collections.OrderedDict[str, int], collections.OrderedDict(a=1)),
    (collections.deque[int], collections.deque([1])),
    (Sequence[int], [1]),
    (Mapping[str, int], {"a": 1}),
    (list[float], [1.0, math.nan]),
    (dict[str, float], {"a": math.inf}),
    (int | str, "1"),
    (float | int, 1),
    (bool | int, 1),
    (dt.datetime | str, "2024-01-01T00:00:00"),
    (dt.datetime | str, dt.datetime(2024, 1, 1)),  # noqa: DTZ001 - what is tested
    (uuid.UUID | str, str(uuid.UUID(int=7))),
    (float | str, math.nan),
    (float | str, "NaN"),
    (Base | Derived, Derived()),
    (Derived | Base, Base()),
    (Base | Twin | None, Twin(a=1)),
    (dict[str, Any] | Base, Base()),
    (dict[str, Any] | Base, {"a": 1}),
    (dict[str, Any] | Base, {"$member": 1, "value": 2}),
    (dict[str, int] | None, {"$member": 1}),
]
"""A declared type, and a value that has to come back."""


def through(declared: Any, value: Any) -> Any:
    """Write a value as JSON that any reader takes, and read it back with another codec."""
    text = codec_of(declared, what=WHAT).dump(value)
    text.encode()
    stored = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    return codec_of(declared, what=WHAT).load(stored)


@pytest.mark.parametrize(("declared", "value"), SAME, ids=str)
def test_value_comes_back_equal_and_of_the_same_types(declared: Any, value: Any) -> None:
    """B-067: enumerations, dataclasses and models, nested, in functions, generic."""
    assert difference(value, through(declared, value)) is None


class Sub(str):
    __slots__ = ()


def nest(depth: int) -> list[Any]:
    """Put a list into a list, *depth* times."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def circle() -> list[Any]:
    """Make a list that holds itself."""
    value: list[Any] = []
    value.append(value)
    return value


def with_cache() -> Hidden:
    """Make a model with something in a private attribute."""
    value = Hidden()
    value._cache = 4
    return value


LOST: list[tuple[Any, Any, str]] = [
    (str, "\ud800", "no Unicode"),
    (str, Mood.CALM, "a Mood would come back as a str"),
    (str, Sub("x"), "a Sub would come back as a str"),
    (int, Level.LOW, "a Level would come back as a int"),
    (int, 1.0, "declared int and is 1.0"),
    (int, 10**5000, "declared int"),
    (bool, 1, "declared bool and is 1"),
    (None, 3, "declared None and is 3"),
    (Any, math.nan, "no JSON value"),
    (Any, [{"x": (1,)}], r"at \[0\].x it is a tuple"),
    (Any, {1: 2}, "key 1, which is a int"),
    (Any, {"a": {None: 2}}, "at a it has the key None"),
    (Any, Base(), "it is a Base"),
    (Any, Mood.CALM, "it is a Mood"),
    (Any, dt.date(2024, 1, 1), "it is a date"),
    (Any, nest(200), "more than 100 deep"),
    (Any, circle(), "more than 100 deep"),
    (Any, ["\ud800"], "no Unicode"),
    (list, [(1,)], r"at \[0\] a tuple would come back as a list"),
    (dict[str, Any], {"a": dt.date(2024, 1, 1)}, "at a a date would come back as a str"),
    (list[int], (1,), "declared list"),
    (list[float], [1, math.nan], "a int would come back as a float"),
    (Sequence[int], (1,), "a tuple would come back as a list"),
    (Base, Derived(), "a Derived would come back as a Base"),
    (list[Base], [Base(), Derived()], r"at \[1\] a Derived would come back as a Base"),
    (Base, Twin(), "Base"),
    (Base, {"a": 1}, "declared Base"),
    (Holder, Holder(held=Base()), "at held a Base would come back as a dict"),
    (Holder[int], Holder[Color](held=Color.RED), "declared Holder"),
    (Open, Open(held=Mood.CALM), "at held a Mood would come back as a str"),
    (Open, Open.model_validate({"more": (1,)}), "at more a tuple would come back as a list"),
    (Hidden, with_cache(), "at _cache 4 would come back as 0"),
    (Base, Base.model_construct(a="no"), "declared Base"),
    (Tree, Tree(1, left=Tree("2")), "declared Tree"),  # type: ignore[arg-type]  # what is tested
    (Literal["a", 1], True, "a bool would come back as a int"),
    (SecretStr, SecretStr("x"), "would come back as"),
    (Decimal, Decimal("nan"), "finite"),
    (dt.date, dt.datetime(2024, 1, 1, tzinfo=BERLIN), "declared date"),
    (dict[tuple[int, int], str], {(1, 2): "a"}, "declared dict"),
    (set[Any], {(1, 2)}, "declared set"),
    (Annotated[int, PlainSerializer(lambda value: value + 1)], 1, "1 would come back as 2"),
    (T, Base(), "a Base would come back as a dict"),
]
"""A declared type, a value that would be lost, and what the message says."""


@pytest.mark.parametrize(("declared", "value", "says"), LOST, ids=lambda each: str(type(each)))
def test_value_that_would_not_come_back_is_refused_when_it_is_stored(declared: Any, value: Any, says: str) -> None:
    """B-069: the message names the node, the place in the value and a way out."""
    codec = codec_of(declared, what=WHAT)
    with pytest.raises(GraphTypeError, match=says) as caught:
        codec.dump(value)
    assert WHAT in str(caught.value)
    assert caught.value.hint


class Thing:
    """A class that pydantic knows nothing of."""


class Arbitrary(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    things: list[Thing]


NEVER = [
    (Thing, "Thing"),
    (list[Thing], "Thing"),
    (Arbitrary, "a Thing, of which pydantic knows nothing"),
    (Base | Arbitrary, "a Thing, of which pydantic knows nothing"),
    (Callable[[int], int], "a function"),
    (dict[str, Callable[..., Any]], "a function"),
    (type[Base], "a class"),
    (Exception, "Exception"),
    (list[Iterator[int]], "Iterator"),
    (Unresolved("Missing"), "'Missing' is not found"),
    (list[Unresolved("Missing")], "'Missing' is not found"),  # type: ignore[misc]  # as it is made at run time
]


@pytest.mark.parametrize(("declared", "says"), NEVER, ids=str)
def test_declared_type_that_cannot_be_stored_is_refused_before_anything_runs(declared: Any, says: str) -> None:
    """B-069: an unregistered type is found at the declaration; B-067: a class that cannot be found is a clear error."""
    with pytest.raises(GraphTypeError, match=re.escape(says)) as caught:
        codec_of(declared, what=WHAT)
    assert WHAT in str(caught.value)
    assert caught.value.hint


class Own:
    """A class with a schema of its own."""

    def __init__(self, text: str) -> None:
        self.text = text

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(
            lambda value: cls(value) if isinstance(value, str) else value,
            core_schema.is_instance_schema(cls),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda value: value.text),
        )


def test_class_with_a_schema_of_its_own_can_be_stored() -> None:
    back = through(list[Own], [Own("x")])
    assert [type(each) for each in back] == [Own]
    assert back[0].text == "x"


def test_class_whose_schema_loses_something_is_refused() -> None:
    value = Own("x")
    value.more = 1  # type: ignore[attr-defined]  # what is lost
    with pytest.raises(GraphTypeError, match="would come back"):
        through(Own, value)


def test_stored_value_of_another_type_is_an_error_that_says_so() -> None:
    for declared, stored in ((int, "1x"), (Base, {"a": "x"}), (Base | Twin, {"$member": 7, "value": 1}), (Color, "no")):
        with pytest.raises(GraphTypeError, match="what is stored for the value of node 'a' cannot be read"):
            codec_of(declared, what=WHAT).load(stored)


def plain_values() -> st.SearchStrategy[Any]:
    """Draw what a person may return where nothing is declared, JSON or not."""
    leaves = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(st.characters())
        | st.sampled_from([Mood.CALM, Level.LOW, Color.RED, b"x", (), Base(a=1), Derived(), dt.date(2024, 1, 1)])
    )
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(max_size=3) | st.integers(0, 3) | st.sampled_from(list(Mood)), inner, max_size=3)
            | st.tuples(inner, inner)
        ),
        max_leaves=6,
    )


DECLARED = st.sampled_from(
    [
        Any,
        list,
        dict,
        dict[str, Any],
        list[int | str],
        list[float],
        dict[str, list[float | None]],
        int | str | list[bool],
        tuple[Any, ...],
        tuple[int | float, ...] | str,
        Base | list[Base] | dict[str, Base],
        Derived | Base | Mood | int,
        float | bytes | str,
        Open | Mood | Level,
        dict[Mood | int, Any],
    ]
)


@settings(max_examples=300)
@given(DECLARED, plain_values())
def test_whatever_is_stored_comes_back(declared: Any, value: Any) -> None:
    try:
        back = through(declared, value)
    except GraphTypeError as error:
        refused = error
    else:
        assert difference(value, back) is None
        return
    assert WHAT in str(refused)
    assert refused.hint


@settings(max_examples=100)
@given(plain_values(), plain_values())
def test_difference_is_seen_both_ways(one: Any, other: Any) -> None:
    assert (difference(one, other) is None) == (difference(other, one) is None)
    assert difference(one, one) is None


# --- graphs -------------------------------------------------------------------------------------------------


def test_check_names_the_node_whose_values_cannot_be_loaded() -> None:
    workflow = Workflow("w")

    @workflow.node
    async def make(x: int) -> Thing:
        return Thing()

    workflow.chain(START, make, END)
    with pytest.raises(GraphTypeError, match="the value of node 'make' is declared Thing"):
        EventCodec(workflow.compile().program).check()


def test_check_names_the_field_of_the_state_and_the_input() -> None:
    class Held(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)

        thing: Thing | None = None

    async def nothing(topic: Any) -> None:
        return None

    workflow = Workflow("w", state=Held)
    workflow.add_node("nothing", nothing)
    workflow.chain(START, "nothing", END)
    with pytest.raises(GraphTypeError, match="field 'thing' of the state of graph 'w'"):
        EventCodec(workflow.compile().program).check()
    workflow = Workflow("w", input={"topic": str, "thing": Thing})
    workflow.add_node("nothing", nothing)
    workflow.chain(START, "nothing", END)
    with pytest.raises(GraphTypeError, match="input 'thing' of graph 'w'"):
        EventCodec(workflow.compile().program).check()


def test_check_looks_into_held_graphs_and_at_the_items_of_iterators() -> None:
    inner = Workflow("inner")

    @inner.node
    async def items(x: int) -> AsyncIterator[Thing]:
        yield Thing()

    @inner.node
    async def one(thing: Any) -> int:
        return 1

    @inner.node
    async def all_of(ones: list[int]) -> int:
        return len(ones)

    inner.chain(START, items)
    inner.map(items, one)
    inner.gather(one, all_of, into="ones")
    inner.chain(all_of, END)
    outer = Workflow("outer")
    outer.add(inner, name="held")
    outer.chain(START, "held", END)
    with pytest.raises(GraphTypeError, match="an item of node 'items'"):
        EventCodec(outer.compile().program).check()
