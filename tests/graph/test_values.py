from __future__ import annotations

import copy
import datetime as dt
import decimal
import enum
import fractions
import io
import ipaddress
import math
import pathlib
import re
import threading
import types
import uuid
import warnings
import zoneinfo
from collections import OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, PrivateAttr, RootModel

from graphrt.graph.protocols import Failure
from graphrt.graph.values import SharedValueWarning, copy_value, is_immutable


class Color(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Frozen:
    held: Any = None


@dataclass(frozen=True, slots=True)
class FrozenSlots:
    held: Any = None


@dataclass
class Open:
    held: Any = None


class Thawed(Frozen):
    """Not frozen itself: its attributes can be set."""


@dataclass(frozen=True)
class FrozenList(list[int]):
    name: str = ""


class Model(BaseModel):
    held: Any = None


class FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")
    held: Any = None

    if TYPE_CHECKING:

        def __init__(self, **values: Any) -> None: ...


class WithPrivate(BaseModel):
    model_config = ConfigDict(frozen=True)
    _seen: list[int] = PrivateAttr(default_factory=list)


class Names(RootModel[list[str]]):
    pass


class Pair(NamedTuple):
    a: Any
    b: Any


class Loose(tuple[int, ...]):  # noqa: SLOT001  # the subject
    """Has a `__dict__`."""


class Counted:
    """Says itself how it is copied."""

    def __init__(self) -> None:
        self.copies = 0

    def __deepcopy__(self, memo: object) -> Counted:
        new = Counted()
        new.copies = self.copies + 1
        return new


class Slotted:
    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held


class Text(str):  # noqa: SLOT000  # the subject
    note: list[str]


def own(value: Any) -> Any:
    """Copy *value*, and take no warning for an answer."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return copy_value(value, where="node", warned=set())


# --- what is immutable -------------------------------------------------------------------------------------

IMMUTABLE: list[Any] = [
    *(None, True, 1, 1.5, 1j, "a", b"a", ..., NotImplemented, range(3), int, enum.Enum, len, own, math),
    *(Color.RED, dt.date(2024, 1, 1), dt.timedelta(1), dt.UTC, zoneinfo.ZoneInfo("UTC")),
    *(
        decimal.Decimal(1),
        fractions.Fraction(1, 2),
        uuid.UUID(int=1),
        pathlib.Path("a"),
        pathlib.PurePath("a"),
    ),
    *(re.compile("a"), ipaddress.ip_address("::1"), ValueError("a"), KeyboardInterrupt()),
    *((), (1, ("a", None)), frozenset({1, (2,)}), Pair(1, "a")),
    *(Frozen(1), FrozenSlots((1,)), Frozen(FrozenSlots(Color.RED)), FrozenModel(held=1, more="a")),
    Failure(ValueError("a"), "node"),
]
MUTABLE: list[Any] = [
    *([], {}, set(), bytearray(), deque(), io.StringIO(), Open(), Model(), Counted(), Slotted(1), Text("a")),
    *(([],), frozenset({Frozen(())} | {Slotted(1)}), Pair(1, []), Loose((1,))),
    *(Frozen([]), FrozenSlots([]), FrozenModel(held=[]), FrozenModel(more=[]), WithPrivate(), Thawed(1)),
    *(FrozenList(), iter([1]), types.SimpleNamespace(), Counted().__deepcopy__),
]


@pytest.mark.parametrize("value", IMMUTABLE, ids=lambda value: repr(value).split(" at 0x")[0])
def test_an_immutable_value_is_shared(value: Any) -> None:
    assert is_immutable(value)
    assert own(value) is value
    assert own([value])[0] is value


@pytest.mark.parametrize("value", MUTABLE, ids=lambda value: type(value).__name__)
def test_what_can_be_changed_is_not_immutable(value: Any) -> None:
    assert not is_immutable(value)


def test_a_frozen_value_that_holds_itself_is_looked_at_once() -> None:
    one = Frozen()
    object.__setattr__(one, "held", (one, one))
    assert is_immutable(one)


def test_a_class_that_only_borrows_the_name_is_not_immutable() -> None:
    other = type("Decimal", (), {"__module__": "decimal"})
    assert not is_immutable(other())


def test_a_very_deep_tuple_is_looked_through() -> None:
    value: Any = ()
    for _ in range(100_000):
        value = (value,)
    assert is_immutable(value)


# --- copies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        [1, "a"],
        {"a": 1},
        {1, 2},
        [[1], {"a": [2]}],
        {"a": {"b": [1]}},
        ([1], "a"),
        Pair([1], 2),
        Open([1]),
        Frozen([1]),
        FrozenSlots([1]),
        Model(held=[1]),
        FrozenModel(held=[1], more=[2]),
        Names(["a"]),
        OrderedDict(a=[1]),
        defaultdict(list, a=[1]),
        deque([[1]], maxlen=3),
        bytearray(b"a"),
        types.SimpleNamespace(a=[1]),
        Thawed([1]),
        {(1, Frozen(2)): [Open({"a": Model(held={1})})]},
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_copy_is_equal_and_shares_nothing_that_can_be_changed(value: Any) -> None:
    new = own(value)
    assert new == value
    assert type(new) is type(value)
    assert not changeable(new) & changeable(value)


def changeable(value: Any) -> set[int]:
    """Ids of everything in *value* that can be changed."""
    found: set[int] = set()
    todo = [value]
    while todo:
        one = todo.pop()
        if is_immutable(one) or id(one) in found:
            continue
        if not isinstance(one, tuple | frozenset | Frozen | FrozenSlots | FrozenModel):
            found.add(id(one))
        todo += inside(one)
    return found


def inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, list | tuple | deque):
        return list(value)
    slots = [getattr(value, name) for name in ("held",) if hasattr(value, name)]
    return [
        *slots,
        *getattr(value, "__dict__", {}).values(),
        *(getattr(value, "__pydantic_extra__", None) or {}).values(),
    ]


def test_attributes_that_are_no_fields_are_copied_too() -> None:
    model = WithPrivate()
    model._seen.append(1)  # the subject
    new = own(model)
    assert new._seen == [1]
    assert new._seen is not model._seen
    thing = Open(1)
    thing.more = [2]  # type: ignore[attr-defined]  # the subject
    assert own(thing).more == [2]
    assert own(thing).more is not thing.more  # type: ignore[attr-defined]  # the subject


def test_a_copied_model_knows_which_fields_were_set() -> None:
    assert own(Model(held=[1])).model_fields_set == {"held"}
    assert own(Model()).model_fields_set == set()


def test_a_class_that_says_how_it_is_copied_is_obeyed() -> None:
    assert own([Counted()])[0].copies == 1


def test_an_exception_is_shared_wherever_it_is() -> None:
    error = ValueError("a")
    new = own({"failures": [Open(error), Failure(error, "node")]})
    assert new["failures"][0].held is error
    assert new["failures"][1].error is error


def test_what_is_one_object_in_the_value_is_one_in_the_copy() -> None:
    inner = [1]
    new = own([inner, {"a": inner}, (inner,), Open(inner), Model(held=inner), deque([inner])])
    assert new[0] is new[1]["a"] is new[2][0] is new[3].held is new[4].held is new[5][0]


def test_a_value_may_hold_itself() -> None:
    one: list[Any] = []
    one.append(one)
    two: dict[str, Any] = {}
    two["self"] = ([two],)
    three = Open()
    three.held = {"me": three}
    new_one, new_two, new_three = own([one, two, three])
    assert new_one[0] is new_one is not one
    assert new_two["self"][0][0] is new_two is not two
    assert new_three.held["me"] is new_three is not three


def test_a_tuple_of_what_is_shared_stays_itself() -> None:
    value = (1, iter([1]))
    assert own(value) is value


# --- what cannot be copied ---------------------------------------------------------------------------------


def test_what_cannot_be_copied_is_shared_with_one_warning_for_node_and_type() -> None:
    locks = [threading.Lock(), threading.Lock()]
    warned: set[tuple[str, type]] = set()
    with pytest.warns(SharedValueWarning, match="a _thread.lock from 'fetch' cannot be copied") as caught:
        new = copy_value(locks, where="fetch", warned=warned)
    assert new is not locks
    assert new[0] is locks[0]
    assert len(caught) == 1
    with pytest.warns(SharedValueWarning, match="'other'"):
        copy_value(locks, where="other", warned=warned)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copy_value(locks, where="fetch", warned=warned)


def test_only_the_part_that_cannot_be_copied_is_shared() -> None:
    value = Open([threading.Lock(), [1]])
    new = copy_value(value, where="node", warned=None)
    assert new is not value
    assert new.held[0] is value.held[0]
    assert new.held[1] is not value.held[1]


def test_a_copy_that_fails_half_way_leaves_nothing_behind() -> None:
    items = [1, 2, 3]
    holder = Slotted([items, threading.Lock()])
    items_and_holder = copy_value([holder, items], where="node", warned=None)
    assert items_and_holder[0] is holder
    assert items_and_holder[1] == items
    holder.held = holder.held[::-1]
    again = copy_value([holder, items, holder.held], where="node", warned=None)
    assert again[1] == items
    assert len(again[2]) == 2


def test_a_warning_that_is_an_error_is_raised() -> None:
    with pytest.raises(SharedValueWarning):
        own([threading.Lock()])


def test_what_is_nested_too_deep_is_shared_with_a_warning() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.warns(SharedValueWarning, match=r"builtins\.list"):
        assert copy_value(value, where="node", warned=set()) is value
    while value:
        value = value.pop()


async def numbers() -> AsyncIterator[int]:
    yield 1


def test_iterators_are_shared_without_a_warning() -> None:
    source = numbers()
    for one in (iter([1]), (n for n in [1]), zip([1], [2], strict=True), source):
        assert own(one) is one
        assert own({"a": [one]})["a"][0] is one


def test_an_open_file_counts_as_what_cannot_be_copied(tmp_path: pathlib.Path) -> None:
    with (tmp_path / "a").open("w") as file, pytest.warns(SharedValueWarning, match="TextIOWrapper"):
        assert copy_value(file, where="node", warned=set()) is file


# --- properties --------------------------------------------------------------------------------------------


@dataclass
class Node:
    name: str
    tags: set[str] = field(default_factory=set)
    children: list[Any] = field(default_factory=list)


LEAVES = st.one_of(st.none(), st.integers(), st.text(max_size=3), st.sampled_from([Color.RED, pathlib.Path("a")]))
KEYS = st.text(max_size=2) | st.integers() | st.tuples(st.integers())
NESTED = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(KEYS, inner, max_size=3),
        st.tuples(inner, inner),
        st.lists(inner, max_size=2).map(deque),
        st.builds(Node, st.text(max_size=2), st.sets(st.text(max_size=1), max_size=2), st.lists(inner, max_size=2)),
        st.builds(Frozen, inner),
        st.builds(Model, held=inner),
        st.builds(FrozenModel, held=inner),
        inner.map(lambda one: [one, one]),
    ),
    max_leaves=12,
)


@given(NESTED)
def test_copies_are_equal_and_never_alias(value: Any) -> None:
    new = own(value)
    assert new == value
    assert not changeable(new) & changeable(value)
    assert (new is value) is is_immutable(value) or not changeable(value)


@given(NESTED)
def test_copies_have_the_shape_that_deepcopy_gives(value: Any) -> None:
    assert shape(own(value)) == shape(copy.deepcopy(value))


def shape(value: Any) -> list[Any]:
    """Write down *value* with the place at which each changeable part was first met."""
    places: dict[int, int] = {}
    out: list[Any] = []
    todo = [value]
    while todo:
        one = todo.pop()
        out.append(type(one))
        if is_immutable(one):
            out.append(one)
        elif id(one) in places:
            out.append(places[id(one)])
        else:
            places[id(one)] = len(places)
            todo += inside(one)
    return out
