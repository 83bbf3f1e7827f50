from __future__ import annotations

import enum
import subprocess
import sys
import typing
from collections import OrderedDict, deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Generator,
    Hashable,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    ForwardRef,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    Optional,
    Protocol,
    TypedDict,
    TypeVar,
    Union,
)

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from typing_extensions import TypeAliasType

from graphrt.graph.typecheck import (
    MISSING,
    Unresolved,
    check_value,
    checker,
    describe,
    fits,
    is_iterator_type,
    iterable_item_type,
    refuses_map,
    unwrap,
)

T = TypeVar("T")


class Animal:
    pass


class Dog(Animal):
    pass


class Stone:
    pass


class Named(Protocol):
    name: str


class Color(enum.Enum):
    RED = "red"


class Word(enum.StrEnum):
    YES = "yes"


class Row(TypedDict):
    x: int


class Other(TypedDict):
    x: str


class Wide(Row):
    y: int


class Pair(NamedTuple):
    a: int
    b: str


class Box(BaseModel, Generic[T]):
    held: T


class Ints(list[int]):
    pass


class Page(list[T], Generic[T]):
    pass


def made(origin: Any, *args: Any) -> Any:
    return origin[args[0] if len(args) == 1 else args]


class Lazy:
    """Behaves as a `type X = ...` statement does: what it stands for is looked up when it is asked for."""

    def __init__(self, value: Callable[[], Any]) -> None:
        self.__name__ = "Alias"
        self._value = value

    @property
    def __value__(self) -> Any:
        return self._value()


UserId = NewType("UserId", int)
Ids = TypeAliasType("Ids", list[int])
Many = TypeAliasType("Many", list[T], type_params=(T,))
lazy: Any = type("TypeAliasType", (Lazy,), {})
Json: Any = lazy(lambda: made(dict, str, Json) | made(list, Json) | str | None)
Tree: Any = lazy(lambda: made(dict, str, Tree) | made(list, Tree) | bytes)
Loop: Any = lazy(lambda: Loop)
Lost: Any = lazy(lambda: Nowhere)  # type: ignore[name-defined]  # noqa: F821  # the subject

# --- fits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (int, float),
        (int, complex),
        (bool, int),
        (bool, float),
        (Dog, Animal),
        (Animal, Dog),
        (int, object),
        (object, int),
        (Any, int),
        (int, Any),
        (MISSING, int),
        (int, MISSING),
        (T, int),
        (int, T),
        (Named, int),
        (int, Named),
        (Unresolved("Item"), int),
        ("Item", int),
        (int, ForwardRef("Item")),
        (list[Unresolved("Item")], list[int]),  # type: ignore[misc]  # a value in place of a type
        (int | str, str),
        (int | None, str | None),
        (str, int | str),
        (None, Optional[int]),  # noqa: UP045  # a spelling
        (None, type(None)),
        (Literal["a"], str),
        (str, Literal["a"]),
        (Word, Literal["yes"]),
        (Literal["a", "b"], Literal["b", "c"]),
        (Literal[Color.RED], Color),
        (Color, Literal[Color.RED]),
        (Word, str),
        (Annotated[int, "unit"], int),
        (int, Annotated[float, "unit"]),
        (UserId, int),
        (int, UserId),
        (list[int], list),
        (list, list[int]),
        (list[int], list[float]),
        (list[int], typing.List[int]),  # noqa: UP006  # a spelling
        (list[int], Sequence[int]),
        (list[int], Iterable[int | str]),
        (Sequence[int], list[int]),
        (Ints, list[int]),
        (dict, Mapping),
        (dict[str, int], Mapping[str, float]),
        (OrderedDict[str, int], dict[str, int]),
        (str, Iterable[str]),
        (bytes, Iterable[int]),
        (tuple[int, str], tuple),
        (tuple, tuple[int, str]),
        (tuple[int, ...], tuple[int, int]),
        (tuple[int, int], tuple[float, ...]),
        (tuple[int, str], Sequence[int | str]),
        (typing.Tuple[()], tuple[()]),  # noqa: UP006  # a spelling
        (Pair, tuple[int, str]),
        (Row, dict),
        (Row, Mapping[str, Any]),
        (dict, Row),
        (Wide, Row),
        (Row, Wide),
        (type[Dog], type[Animal]),
        (type[Animal], Callable[..., Any]),
        (Callable[[float], int], Callable[[int], float]),
        (Callable[[int], str], Callable[..., str]),
        (Callable, Callable[[int], str]),
        (Generator[int, None, None], Iterator[int]),
        (AsyncGenerator[int, None], AsyncIterator[int]),
        (Iterable[int], Hashable),
        (Box[int], Box[int]),
        (Box[int], Box[Any]),
        (Box[int], Box),
        (Box, Box[int]),
        (Ids, list[int]),
        (Many[int], list[str]),  # parameters of an alias are not followed
        (Json, Json),
        (Json, dict[str, Json]),
        (list[Json], Json),
        (Json, Tree),
        (Lost, int),
    ],
)
def test_what_may_be_meant_for_the_target_fits(source: object, target: object) -> None:
    assert fits(source, target)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (int, str),
        (float, int),
        (str, bytes),
        (str, int | None),
        (None, str),
        (int | float, str | None),
        (Stone, Animal),
        (Color, str),
        (Literal["a"], int),
        (Literal["a"], Literal["b"]),
        (Literal[1], Literal[True]),
        (int, Literal["a"]),
        (str, UserId),
        (list[int], list[str]),
        (list[list[int]], list[list[str]]),
        (list[int], Sequence[str]),
        (list, dict),
        (list, tuple),
        (Ints, list[str]),
        (dict[str, int], dict[int, int]),
        (dict[str, int], Mapping[str, str]),
        (Sequence[int], Mapping[int, int]),
        (str, list),
        (str, Iterable[int]),
        (int, Iterable),
        (Iterable, int),
        (tuple[int, str], tuple[int]),
        (tuple[()], tuple[int]),
        (tuple[int, ...], tuple[str, ...]),
        (tuple[int, str], Sequence[str]),
        (Row, Other),
        (Row, list),
        (type[Animal], type[Stone]),
        (Callable[[int], str], Callable[[int], int]),
        (Callable[[int], str], Callable[[], str]),
        (Callable[[int], str], Callable[[str], str]),
        (AsyncIterator[int], list[int]),
        (AsyncIterator[int], Iterable[int]),
        (AsyncIterator[int], AsyncIterator[str]),
        (Box[int], Box[str]),
        (int, Json),
        (Ids, list[str]),
    ],
)
def test_a_definite_mismatch_does_not_fit(source: object, target: object) -> None:
    assert not fits(source, target)


ATOMS: list[Any] = [
    *(int, str, float, bool, bytes, None, Animal, Dog, Color, Row, Pair, Any, T, Named, UserId, Json, Ids),
    *(MISSING, Literal["a"], Literal[1, 2], Unresolved("X"), ForwardRef("X")),
]
"""Made into larger ones below."""


TYPES = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.builds(made, st.sampled_from([list, Sequence, Optional, frozenset, AsyncIterator]), inner),
        st.builds(made, st.sampled_from([dict, tuple, Union, Mapping]), inner, inner),
        st.builds(lambda a: made(tuple, a, ...), inner),
        st.builds(lambda a: made(Annotated, a, "note"), inner),
        st.builds(lambda a, b: made(Callable, [a], b), inner, inner),
    ),
    max_leaves=6,
)


@given(TYPES)
def test_every_type_fits_itself_and_a_union_with_itself(tp: Any) -> None:
    assert fits(tp, tp)
    assert fits(tp, Union[tp, None])  # noqa: UP007  # made at run time
    assert fits(tp, Any)


@given(TYPES, TYPES)
def test_any_two_types_can_be_compared_and_described(source: Any, target: Any) -> None:
    assert isinstance(fits(source, target), bool)
    assert describe(source)
    assert "<locals>" not in describe(target)


@given(TYPES, TYPES)
def test_a_member_that_fits_makes_the_union_fit(source: Any, target: Any) -> None:
    together = Union[source, Stone]  # noqa: UP007  # made at run time
    assert fits(together, target) == (fits(source, target) or fits(Stone, target))


# --- values ------------------------------------------------------------------------------------------------


@dataclass
class Plain:
    x: int = 1


VALUES: list[Any] = [
    1,
    True,
    1.5,
    "a",
    b"a",
    None,
    [1],
    (1, "a"),
    {1},
    {"a": 1},
    Color.RED,
    Word.YES,
    Animal(),
    Dog(),
    Plain(),
    Box(held=1),
    Pair(1, "a"),
    deque([1]),
    len,
    Animal,
    range(3),
]


@pytest.mark.parametrize("value", VALUES)
def test_every_value_passes_for_its_class(value: Any) -> None:
    assert check_value(value, type(value))


@pytest.mark.parametrize(
    ("value", "tp", "passes"),
    [
        ([1, "a"], list[int], True),
        ((1,), list[int], False),
        (1, float, True),
        (1.5, int, False),
        (1, complex, True),
        (True, int, True),
        (1, bool, False),
        (None, None, True),
        (None, int, False),
        (None, int | None, True),
        ("a", int | None, False),
        ("a", Literal["a", "b"], True),
        ("c", Literal["a", "b"], False),
        (True, Literal[1], False),
        ([], Literal["a"], False),
        ({"x": "wrong"}, Row, True),
        ([], Row, False),
        (len, Callable[[int], str], True),
        (1, Callable[..., Any], False),
        (len, int | Callable[..., Any], True),
        (Dog, type[Animal], True),
        (Dog(), type[Animal], False),
        (Dog(), Animal, True),
        (1, UserId, True),
        ("a", UserId, False),
        (1, Annotated[int, "unit"], True),
        (Box(held=1), Box[str], True),
        (Pair(1, "a"), tuple[int, str], True),
        (iter([1]), Iterator[int], True),
        ([1], Iterator[int], False),
        (1, Named, True),
        (1, T, True),
        (1, Any, True),
        (1, object, True),
        (1, MISSING, True),
        (1, "Item", True),
        (1, Unresolved("Item") | None, True),
        (1, 5, True),
        ({}, Json, True),
        (1, Json, False),
    ],
)
def test_a_value_is_checked_against_the_origin_of_the_declared_type(value: Any, tp: Any, passes: bool) -> None:
    assert check_value(value, tp) is passes


@pytest.mark.parametrize("tp", [Any, object, T, Named, MISSING, "Item", int | Any, Unresolved("Item")])
def test_an_open_type_has_nothing_to_check(tp: Any) -> None:
    assert checker(tp) is None


@given(TYPES, st.sampled_from(VALUES))
def test_the_prepared_check_says_what_the_check_says(tp: Any, value: Any) -> None:
    test = checker(tp)
    assert check_value(value, tp) is (test is None or test(value))


# --- maps --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tp", "item"),
    [
        (list[int], int),
        (Sequence[str], str),
        (tuple[int, ...], int),
        (tuple[int, str], int | str),
        (AsyncIterator[int], int),
        (Generator[int, None, None], int),
        (Annotated[list[int], "note"], int),
        (Optional[list[int]], int),  # noqa: UP045  # a spelling
        (list[int] | set[str], int | str),
        (ItemsView[str, int], tuple[str, int]),
        (range, int),
        (Ints, int),
        (Page[str], str),
        (list, MISSING),
        (list[int] | Any, MISSING),
        (str, MISSING),
        (dict[str, int], MISSING),
        (int, MISSING),
        (Any, MISSING),
    ],
)
def test_the_item_type_is_what_iterating_gives(tp: Any, item: Any) -> None:
    assert iterable_item_type(tp) == item


def test_iterators_are_told_from_lists() -> None:
    assert all(map(is_iterator_type, [Iterator[int], Generator[int, None, None], AsyncIterator[int], Iterator]))
    assert is_iterator_type(AsyncGenerator[int, None] | None)
    assert not any(map(is_iterator_type, [list[int], Iterable[int], str, int, Any, MISSING]))


def test_a_map_refuses_text_bytes_and_mappings() -> None:
    assert all(map(refuses_map, [str, bytes, bytearray, dict, Mapping[str, int], Row, str | None, Literal["a"]]))
    assert not any(map(refuses_map, [list[str], str | list[str], None, Any, MISSING, int]))


# --- words -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tp", "words"),
    [
        (int, "int"),
        (None, "None"),
        (int | None, "int | None"),
        (Optional[list[str]], "list[str] | None"),  # noqa: UP045  # a spelling
        (dict[str, list[int]], "dict[str, list[int]]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (tuple[()], "tuple[()]"),
        (Callable[[int], str], "Callable[[int], str]"),
        (Callable[..., str], "Callable[..., str]"),
        (Literal["a", 1], "Literal['a', 1]"),
        (Annotated[int, "unit"], "int"),
        (Any, "Any"),
        (T, "T"),
        (UserId, "UserId"),
        (Unresolved("Item") | None, "Item | None"),
        ("Item", "Item"),
        (MISSING, "no declared type"),
        (Animal, "Animal"),
    ],
)
def test_a_type_is_named_as_a_person_would_write_it(tp: Any, words: str) -> None:
    assert describe(tp) == words


def test_a_local_class_is_named_without_its_function() -> None:
    class Local:
        pass

    assert describe(list[Local]) == "list[Local]"


def test_a_very_long_type_is_cut_short() -> None:
    tp: Any = int
    for _ in range(200):
        tp = tuple[tp, tp]
    assert len(describe(tp)) < 1000


def test_an_alias_of_itself_ends() -> None:
    assert unwrap(Loop) is Loop
    assert fits(Loop, int)


def test_nothing_heavy_is_imported() -> None:
    modules = "signature", "typecheck", "values", "state"
    heavy = ["pydantic", "tenacity", "networkx", "uuid", "decimal", "difflib"]
    code = f"import sys, {', '.join(f'graphrt.graph.{module}' for module in modules)}"
    code += f"; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
