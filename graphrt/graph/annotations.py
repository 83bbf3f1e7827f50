"""Declared types: what an annotation stands for, what a type is made of, how it is called in a message."""

from __future__ import annotations

import builtins
import sys
from collections import ChainMap
from contextlib import suppress
from enum import Enum
from functools import lru_cache
from types import NoneType, SimpleNamespace, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    ForwardRef,
    Generic,
    Literal,
    LiteralString,
    NotRequired,
    Required,
    TypeAlias,
    TypeGuard,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import CodeType


class _Missing(Enum):
    MISSING = "MISSING"

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing.MISSING
"""Stands for a type, a default or an element type that is not declared; as a type it passes every check."""


class Unresolved:
    """A name in an annotation that was not found where the function is defined; it passes every check.

    It goes where a type would: `Unresolved("Item") | None`, `list[Unresolved("Item")]`.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __getattr__(self, name: str) -> Unresolved:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unresolved(f"{self.text}.{name}")

    def __getitem__(self, args: object) -> Unresolved:
        return Unresolved(f"{self.text}[...]")

    def __or__(self, other: Any) -> object:
        return Union[self, other]  # noqa: UP007  # this method is what `|` calls

    def __ror__(self, other: Any) -> object:
        return Union[other, self]  # noqa: UP007  # this method is what `|` calls


ClassAndArgs: TypeAlias = tuple[type, tuple[Any, ...]]

_QUALIFIERS: Final = frozenset({Annotated, Final, ClassVar, Required, NotRequired})
_BUILTINS: Final = vars(builtins)
_ALIASES: Final = 50
"""How many aliases are followed: one may be its own value."""
_WORDS: Final = 6
"""How many members, arguments and levels a description spells out."""


def unwrap(tp: object) -> Any:
    """Take off what does not change which values fit: `Annotated`, `NewType`, aliases, qualifiers.

    None comes back as its class.
    """
    for _ in range(_ALIASES):
        if isinstance(tp, type):
            break
        origin = get_origin(tp)
        if tp is None:
            tp = NoneType
        elif tp is LiteralString:
            tp = str
        elif origin is TypeGuard:
            tp = bool
        elif origin in _QUALIFIERS:
            tp = get_args(tp)[0]
        elif hasattr(tp, "__supertype__"):
            tp = tp.__supertype__
        elif _is_alias(tp):
            tp = _value_of(tp)
        elif _is_alias(origin):
            tp = _value_of(origin)
        else:
            break
    return tp


def _is_alias(tp: object) -> bool:
    return type(tp).__name__ == "TypeAliasType"


def _value_of(alias: Any) -> object:
    try:
        return alias.__value__
    except NameError:
        return Unresolved(alias.__name__)


def members_of(tp: object) -> tuple[Any, ...]:
    """Give the members of a union, and nothing for anything else."""
    return get_args(tp) if isinstance(tp, UnionType) or get_origin(tp) is Union else ()


def is_typed_dict(tp: object) -> bool:
    """Tell whether *tp* is a `TypedDict`, of whichever module."""
    return isinstance(tp, type) and hasattr(tp, "__required_keys__") and dict in tp.__mro__


def is_open(tp: object) -> bool:
    """Tell whether the unwrapped *tp* says nothing about its values."""
    if isinstance(tp, type):
        return tp is object or tp is Any or tp is Generic or getattr(tp, "_is_protocol", False)
    return get_origin(tp) is not Literal and not members_of(tp) and class_and_args(tp) is None


def class_and_args(tp: object) -> ClassAndArgs | None:
    """Split the unwrapped *tp* into a class and its type arguments; None when it is nothing of that kind."""
    origin: Any = tp if isinstance(tp, type) else get_origin(tp)
    if not isinstance(origin, type) or getattr(origin, "_is_protocol", False):
        return None
    if is_typed_dict(origin):
        return dict, (str, object)
    model = getattr(origin, "__pydantic_generic_metadata__", None)
    if model and model["origin"] is not None:  # a model with arguments is a class of its own
        return model["origin"], model["args"]
    return origin, get_args(tp)


# --- where names are found ---------------------------------------------------------------------------------


class TypeReader:
    """Turn the annotations of one function into types."""

    __slots__ = ("_fn", "_localns", "_names", "incomplete")

    def __init__(self, fn: Any, localns: Mapping[str, Any] | None) -> None:
        self._fn = fn
        self._localns = localns
        self._names: _Names | None = None
        self.incomplete = False
        """Whether a name was not found."""

    def resolve(self, annotation: Any) -> Any:
        """Give the type that *annotation* stands for."""
        if isinstance(annotation, str):
            names = self._names or self._names_in_sight()
            annotation = names[annotation] if annotation.isidentifier() else self._evaluate(annotation, names)
            self.incomplete = names.missing
        if type(annotation) is type:
            return annotation
        if annotation is None:
            return NoneType
        return self._fill_in(annotation) if _has_forward_reference(annotation) else annotation

    def _names_in_sight(self) -> _Names:
        if self._names is None:
            self._names = _Names(_places(self._fn, self._localns))
        return self._names

    def _evaluate(self, text: str, names: _Names) -> Any:
        try:
            found = eval(_compiled(text), {}, names)  # noqa: S307  # annotations are code of the function's author
            if isinstance(found, str):  # quotes within an annotation that is text already
                found = eval(_compiled(found), {}, names)  # noqa: S307  # same
        except Exception:  # noqa: BLE001  # an annotation may hold any expression
            names.missing = True
            found = Unresolved(text)
        return found

    def _fill_in(self, annotation: Any) -> Any:
        holder = SimpleNamespace(__annotations__={"it": annotation})
        names = self._names_in_sight()
        places = ChainMap(*names.places)
        try:
            return get_type_hints(holder, globalns={}, localns=places, include_extras=True)["it"]
        except Exception:  # noqa: BLE001  # as above; what it holds stays open
            names.missing = self.incomplete = True
            return annotation


class _Names(dict[str, Any]):
    """What names stand for, looked up place by place; what is nowhere is `Unresolved`."""

    __slots__ = ("missing", "places")

    def __init__(self, places: list[dict[str, Any]]) -> None:
        self.places = places
        self.missing = False

    def __missing__(self, name: str) -> Any:
        for place in self.places:
            if name in place:
                found = self[name] = place[name]
                return found
        self.missing = True
        return Unresolved(name)


def _places(fn: Any, localns: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Give the namespaces in which the annotations of *fn* are looked up, the nearest first."""
    outside: dict[str, Any] | None = getattr(fn, "__globals__", None)
    if outside is None:
        module = sys.modules.get(getattr(fn, "__module__", None) or "")
        outside = vars(module) if module else {}
    qualname: str = getattr(fn, "__qualname__", "")
    around = [] if localns is None else [dict(localns)]
    nearest: list[dict[str, Any]] = []
    if parameters := getattr(fn, "__type_params__", ()):
        nearest.append({one.__name__: one for one in parameters})
    if getattr(fn, "__closure__", None):
        nearest.append(_closure_of(fn))
    if "<locals>" in qualname:
        return [*nearest, *around, outside, _BUILTINS]
    holder = outside.get(qualname.partition(".")[0]) if "." in qualname else None
    if isinstance(holder, type):
        nearest.append(dict(vars(holder)))
    return [*nearest, outside, _BUILTINS, *around]


def _closure_of(fn: Any) -> dict[str, Any]:
    """Give what *fn* uses of the functions around it, without what is assigned only later."""
    found = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__, strict=True):
        with suppress(ValueError):  # nothing has been assigned yet
            found[name] = cell.cell_contents
    return found


@lru_cache(maxsize=512)
def _compiled(text: str) -> CodeType:
    return compile(text.strip(), "<annotation>", "eval")


def parts_of(tp: Any) -> Iterator[Any]:
    """Give *tp* and the types it is made of."""
    yield tp
    origin = get_origin(tp)
    if origin is not Literal:
        args = tp if isinstance(tp, list) else get_args(tp)
        for arg in args[:1] if origin is Annotated else args:
            yield from parts_of(arg)


def _has_forward_reference(tp: Any) -> bool:
    if isinstance(tp, str | ForwardRef):
        return True
    inner = [arg for arg in getattr(tp, "__args__", ()) if type(arg) is not type]
    if not inner or get_origin(tp) is Literal:
        return False
    return any(_has_forward_reference(arg) for arg in inner)


def unresolved_names(tp: Any) -> list[str]:
    """Give the names in *tp* that were not found."""
    return [describe(part) for part in parts_of(tp) if isinstance(part, Unresolved | str | ForwardRef)]


# --- in words ----------------------------------------------------------------------------------------------


def describe(tp: object) -> str:
    """Name *tp* in a few words, as a person would write it."""
    return _describe(tp, _WORDS)


def _describe(tp: Any, depth: int) -> str:
    origin = get_origin(tp)
    if depth == 0:
        text = "..."
    elif isinstance(tp, list):
        text = f"[{_join(tp, ', ', depth)}]"
    elif members := members_of(tp):
        text = _join(members, " | ", depth)
    elif origin is Annotated:
        text = _describe(get_args(tp)[0], depth)
    elif origin is Literal:
        text = f"Literal[{', '.join(repr(value) for value in get_args(tp)[:_WORDS])}]"
    elif origin is not None and getattr(tp, "__args__", None) is not None:
        text = f"{_describe(origin, depth)}[{_join(get_args(tp), ', ', depth) or '()'}]"
    else:
        text = _name(tp)
    return text


def _name(tp: Any) -> str:
    name: object
    if tp is None or tp is NoneType:
        name = "None"
    elif tp is Ellipsis:
        name = "..."
    elif tp is MISSING:
        name = "no declared type"
    elif isinstance(tp, str):
        name = tp
    elif isinstance(tp, ForwardRef):
        name = tp.__forward_arg__
    else:
        name = getattr(tp, "__qualname__", None) or getattr(tp, "__name__", None) or repr(tp)
    return str(name).rpartition("<locals>.")[2].removeprefix("typing.")


def _join(types: Iterable[Any], between: str, depth: int) -> str:
    words = [_describe(tp, depth - 1) for tp in types]
    return between.join(words if len(words) <= _WORDS else [*words[:_WORDS], "..."])


__all__ = [
    "MISSING",
    "ClassAndArgs",
    "TypeReader",
    "Unresolved",
    "class_and_args",
    "describe",
    "is_open",
    "is_typed_dict",
    "members_of",
    "parts_of",
    "unresolved_names",
    "unwrap",
]
