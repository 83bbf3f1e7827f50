"""Compare declared types along edges, and values with declared types.

Two questions with one rule: only what is certain counts. `fits` refuses an edge when no value of the source's
type can be meant for the target; `checker` looks at the origin of a declared type only, so that it can run on
every step. Whatever is open (`Any`, type variables, protocols, names that were not found) passes both.
"""

from __future__ import annotations

from collections import abc, deque
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

from graphrt.graph.annotations import (
    MISSING,
    Unresolved,
    class_and_args,
    describe,
    is_open,
    is_typed_dict,
    members_of,
    unwrap,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

T = TypeVar("T")

_Known: TypeAlias = dict[object, bool]
"""Pairs of types already compared; a pair still being compared counts as fitting, for recursive types."""
_Test: TypeAlias = "type | Callable[[object], bool]"

_OPEN_CLASSES: Final[frozenset[object]] = frozenset({object, Generic})
_CALLABLE: Final[object] = abc.Callable
_PROMOTED: Final[dict[type, tuple[type, ...]]] = {float: (int,), complex: (int, float)}
"""Classes whose values also pass for another, as type checkers have it."""
_ELEMENTS: Final[dict[type, type]] = {str: str, bytes: int, bytearray: int, range: int}
_CONTAINERS: Final = frozenset(
    {
        list,
        set,
        frozenset,
        deque,
        abc.AsyncGenerator,
        abc.AsyncIterable,
        abc.AsyncIterator,
        abc.Collection,
        abc.Container,
        abc.Generator,
        abc.Iterable,
        abc.Iterator,
        abc.KeysView,
        abc.MutableSequence,
        abc.MutableSet,
        abc.Reversible,
        abc.Sequence,
        abc.Set,
        abc.ValuesView,
    }
)
"""Generic classes whose first argument is the type of what iterating over them gives."""
_FAMILIES: Final = (abc.Mapping, abc.Sequence, abc.Set, abc.Iterator, abc.AsyncIterable)
"""Abstract classes of which no value is two at once."""


# --- along an edge -----------------------------------------------------------------------------------------


def fits(source: object, target: object) -> bool:
    """Tell whether a value declared as *source* may be meant for a parameter declared as *target*.

    False is said of definite mismatches only: a union fits when one of its members does, a base class may
    turn out to be the derived one, and int passes for float.
    """
    return source is target or _fits(source, target, {})


def _fits(source: object, target: object, known: _Known) -> bool:
    source, target = unwrap(source), unwrap(target)
    if type(source) is type and type(target) is type:  # plain classes, the usual case
        return not _OPEN_CLASSES.isdisjoint((source, target)) or _classes_fit(source, target)
    if source is target or is_open(source) or is_open(target):
        return True
    pair = (source, target)
    try:
        found = known.get(pair)
    except TypeError:  # a literal or a parameter of a type may be unhashable
        return _compare(source, target, known)
    if found is None:
        known[pair] = True
        found = known[pair] = _compare(source, target, known)
    return found


def _compare(source: Any, target: Any, known: _Known) -> bool:
    if members := members_of(source):
        return any(_fits(member, target, known) for member in members)
    if members := members_of(target):
        return any(_fits(source, member, known) for member in members)
    if Literal in (get_origin(source), get_origin(target)):
        return _literals_fit(source, target, known)
    if is_typed_dict(source) and is_typed_dict(target):
        return _typed_dicts_fit(source, target, known)
    left, right = class_and_args(source), class_and_args(target)
    if left is None or right is None:
        return True
    return _classes_fit(left[0], right[0]) and _arguments_fit((source, *left), (target, *right), known)


def _literals_fit(source: Any, target: Any, known: _Known) -> bool:
    if get_origin(target) is not Literal:
        return any(_fits(type(value), target, known) for value in get_args(source))
    if get_origin(source) is Literal:
        return any(_is_one_of(value, get_args(target)) for value in get_args(source))
    kinds = {type(value) for value in get_args(target)}
    return any(_fits(kind, source, known) or _fits(source, kind, known) for kind in kinds)


def _typed_dicts_fit(source: Any, target: Any, known: _Known) -> bool:
    ours, theirs = _keys_of(source), _keys_of(target)
    complete = target.__required_keys__ <= ours.keys() or source.__required_keys__ <= theirs.keys()
    return complete and all(_fits(ours[key], theirs[key], known) for key in ours.keys() & theirs.keys())


def _keys_of(tp: Any) -> dict[str, Any]:
    try:
        return get_type_hints(tp, include_extras=True)
    except (NameError, TypeError):
        return tp.__annotations__  # type: ignore[no-any-return]  # of a TypedDict


def _classes_fit(source: type, target: type) -> bool:
    if source is target or issubclass(source, _PROMOTED.get(target, ())):
        return True
    try:
        return issubclass(source, target) or issubclass(target, source) or _may_be_both(source, target)
    except TypeError:
        return True


def _may_be_both(source: type, target: type) -> bool:
    """Tell whether one value may be of two abstract classes of which neither is the other."""
    both = (source, target)
    if not all(getattr(cls, "__abstractmethods__", None) for cls in both):
        return False
    mine, other = (next((family for family in _FAMILIES if issubclass(cls, family)), None) for cls in both)
    if mine is not None and other is not None:
        return mine is other
    return abc.AsyncIterable not in (mine, other) or not any(issubclass(cls, abc.Iterable) for cls in both)


def _arguments_fit(left: tuple[Any, ...], right: tuple[Any, ...], known: _Known) -> bool:
    (source, ours, our_args), (target, theirs, their_args) = left, right
    if ours is tuple and theirs is tuple:
        return _tuples_fit(source, target, known)
    if ours is _CALLABLE and theirs is _CALLABLE:
        return _callables_fit(our_args, their_args, known)
    if issubclass(theirs, abc.Mapping) or (ours is theirs and ours not in _CONTAINERS):
        return len(our_args) != len(their_args) or _all_fit(our_args, their_args, known)
    wanted = _element(theirs, their_args)
    if ours is tuple and our_args and our_args[-1] is not Ellipsis:
        return all(_fits(member, wanted, known) for member in our_args)
    return _fits(_element(ours, our_args), wanted, known)


def _tuples_fit(source: Any, target: Any, known: _Known) -> bool:
    ours, theirs = get_args(source), get_args(target)
    if any(not hasattr(one, "__args__") for one in (source, target)) or any(map(_is_unpacked, ours + theirs)):
        return True
    if Ellipsis in ours:
        ours = (ours[0],) * (1 if Ellipsis in theirs else len(theirs))
    if Ellipsis in theirs:
        theirs = (theirs[0],) * len(ours)
    return len(ours) == len(theirs) and _all_fit(ours, theirs, known)


def _is_unpacked(arg: object) -> bool:
    return get_origin(arg) is Unpack or getattr(arg, "__unpacked__", False) is True


def _callables_fit(ours: tuple[Any, ...], theirs: tuple[Any, ...], known: _Known) -> bool:
    if not ours or not theirs:
        return True
    (taken, result), (given, wanted) = ours, theirs
    if not isinstance(taken, list) or not isinstance(given, list):
        return _fits(result, wanted, known)
    return len(taken) == len(given) and _all_fit(given, taken, known) and _fits(result, wanted, known)


def _all_fit(ours: Sequence[Any], theirs: Sequence[Any], known: _Known) -> bool:
    return all(_fits(a, b, known) for a, b in zip(ours, theirs, strict=True))


# --- of a value --------------------------------------------------------------------------------------------


def check_value(value: object, tp: object) -> bool:
    """Tell whether *value* is of the origin of the declared *tp*: for `list[int]`, that it is a list."""
    test = checker(tp)
    return test is None or test(value)


def checker(tp: object) -> Callable[[object], bool] | None:
    """Prepare the test that `check_value` makes, for every step; None when there is nothing to test."""
    if type(tp) is type and tp not in _OPEN_CLASSES and tp not in _PROMOTED:
        return _is_instance_of(tp)
    tests = _tests(tp)
    if tests is None:
        return None
    classes = tuple(test for test in tests if isinstance(test, type))
    if len(tests) == 1 and type(tests[0]) is type:
        return _is_instance_of(tests[0])
    others = [test for test in tests if not isinstance(test, type)]
    if not others:
        return lambda value: isinstance(value, classes)
    if len(others) == 1 and not classes:
        return others[0]
    return lambda value: isinstance(value, classes) or any(test(value) for test in others)


def _is_instance_of(cls: type) -> Callable[[object], bool]:
    """Bind the method behind `isinstance`, which costs half of what a function around it does.

    Only for a class without a metaclass that has a say.
    """
    bound: Callable[[object], bool] = type.__instancecheck__.__get__(cls)
    return bound


def _tests(tp: object) -> list[_Test] | None:
    """Give classes and predicates of which one has to hold; None when everything passes."""
    tp = unwrap(tp)
    if members := members_of(tp):
        tests = [_tests(member) for member in members]
        return None if None in tests else [test for some in tests for test in some or ()]
    if get_origin(tp) is Literal:
        values = get_args(tp)
        return [lambda value: _is_one_of(value, values)]
    parts = None if is_open(tp) else class_and_args(tp)
    if parts is None:
        return None
    cls = abc.Mapping if is_typed_dict(tp) else parts[0]
    if cls is _CALLABLE:
        return [callable]
    try:
        isinstance(None, cls)
    except TypeError:
        return None
    return [cls, *_PROMOTED.get(cls, ())]


def _is_one_of(value: object, values: Iterable[object]) -> bool:
    """Tell whether a literal type lists *value*; True is not 1 here."""
    return any(
        isinstance(value, type(one)) and isinstance(value, bool) is isinstance(one, bool) and value == one
        for one in values
    )


# --- many times --------------------------------------------------------------------------------------------


def remembered(ask: Callable[[Any], T]) -> Callable[[Any], T]:
    """Keep the answers of *ask*, a question about types, for as long as one graph is compiled.

    Most nodes of a graph declare the same few types. What is not kept beyond that cannot go stale: a name may be
    found the next time, a class be registered with an abstract one.
    """
    known: dict[Any, T] = {}

    def answer(about: Any) -> T:
        try:
            if about in known:
                return known[about]
        except TypeError:  # a literal or a parameter of a type may be unhashable
            return ask(about)
        found = known[about] = ask(about)
        return found

    return answer


# --- of what a map runs over -------------------------------------------------------------------------------


def iterable_item_type(tp: object) -> object:
    """Give the type of what iterating over *tp*, plainly or with `async for`, gives; MISSING when unknown.

    Text, bytes and mappings have none: a map does not run over them.
    """
    tp = unwrap(tp)
    if members := [member for member in members_of(tp) if member is not NoneType]:
        items = [iterable_item_type(member) for member in members]
        return MISSING if MISSING in items else _union(items)
    parts = class_and_args(tp)
    return MISSING if parts is None or refuses_map(tp) else _element(*parts)


def _element(cls: type, args: tuple[Any, ...]) -> Any:
    if cls in _ELEMENTS:
        return _ELEMENTS[cls]
    if cls in _CONTAINERS:
        return args[0] if args else MISSING
    if cls is tuple and args:
        return _union([arg for arg in args if arg is not Ellipsis])
    if issubclass(cls, abc.ItemsView) and args:
        return tuple[args]  # type: ignore[valid-type]  # made at run time
    given = dict(zip(getattr(cls, "__parameters__", ()), args, strict=False))
    for base in getattr(cls, "__orig_bases__", ()):
        parts = class_and_args(unwrap(base))
        item = MISSING if parts is None or parts[0] is cls else _element(*parts)
        item = given.get(item, MISSING) if isinstance(item, TypeVar) else item
        if item is not MISSING:
            return item
    return MISSING


def _union(types: Sequence[Any]) -> object:
    return Union[tuple(types)]  # noqa: UP007  # made at run time


def is_iterator_type(tp: object) -> bool:
    """Tell whether values of *tp* are read once, or with `async for` only: iterators, generators, streams."""
    return any(issubclass(cls, abc.Iterator | abc.AsyncIterable) for cls in _origins(tp))


def refuses_map(tp: object) -> bool:
    """Tell whether a map never runs over values of *tp*: text, bytes and mappings."""
    origins = [cls for cls in _origins(tp) if cls is not NoneType]
    return bool(origins) and all(issubclass(cls, str | bytes | bytearray | abc.Mapping) for cls in origins)


def _origins(tp: object) -> list[type]:
    """Give the classes that values of *tp* may have; for what is open, `object`."""
    tp = unwrap(tp)
    if members := members_of(tp):
        return [cls for member in members for cls in _origins(member)]
    if get_origin(tp) is Literal:
        return [type(value) for value in get_args(tp)]
    parts = None if is_open(tp) else class_and_args(tp)
    return [object if parts is None else parts[0]]


__all__ = [
    "MISSING",
    "Unresolved",
    "check_value",
    "checker",
    "describe",
    "fits",
    "is_iterator_type",
    "iterable_item_type",
    "refuses_map",
    "remembered",
    "unwrap",
]
