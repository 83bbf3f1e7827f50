"""Give every reader of a value its own copy, and share what nobody can change (E22)."""

from __future__ import annotations

import copy
import copyreg
import io
import sys
import warnings
import weakref
from collections import abc
from enum import EnumMeta
from types import BuiltinFunctionType, EllipsisType, FunctionType, ModuleType, NoneType, NotImplementedType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


class SharedValueWarning(UserWarning):
    """A value that cannot be copied has several readers, and all of them see the same object."""


class _Traits(NamedTuple):
    """What its class says about copying a value."""

    immutable: bool
    """Nobody can change it, or it is meant to stay one object."""
    parts: Callable[[Any], Iterable[Any]] | None
    """How to get at its parts, when it is immutable if all of them are."""
    copy: Callable[[_Copying, Any], Any]
    """How to copy it."""


_FIXED: Final[set[type]] = {
    NoneType,
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    type,
    EllipsisType,
    NotImplementedType,
    FunctionType,
    BuiltinFunctionType,
    ModuleType,
    weakref.ref,
}
"""Classes of which every value is fixed; those of `_FIXED_NAMES` are added when they are first seen."""
_FIXED_NAMES: Final = {
    "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
    "decimal": ("Decimal",),
    "fractions": ("Fraction",),
    "ipaddress": tuple(f"IPv{n}{what}" for n in (4, 6) for what in ("Address", "Network", "Interface")),
    "pathlib": tuple(f"{pure}{system}Path" for pure in ("", "Pure") for system in ("", "Posix", "Windows")),
    "re": ("Pattern", "Match"),
    "uuid": ("UUID",),
    "zoneinfo": ("ZoneInfo",),
}
"""More of the kind, by module: most programs need few of these modules."""
_COPY_HOOKS: Final = (
    "__deepcopy__",
    "__getnewargs__",
    "__getnewargs_ex__",
    "__getstate__",
    "__new__",
    "__reduce__",
    "__reduce_ex__",
    "__setstate__",
)
_MODEL_SLOTS: Final = frozenset({"__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"})
"""Where a model keeps its state, in the releases of pydantic whose models are copied here."""
_HEAP_TYPE: Final = 1 << 9
"""Flag of a class that was made by a class statement."""

_traits: weakref.WeakKeyDictionary[type, _Traits] = weakref.WeakKeyDictionary()


def is_immutable(value: object) -> bool:
    """Tell whether *value* can be shared by readers that know nothing of each other.

    Immutable are numbers, text, bytes, dates, paths and the like, classes, functions, enum members; tuples,
    frozen sets, frozen dataclasses and frozen models all of whose parts are. Exceptions count as immutable, and
    so does what a class with `__graphrt_immutable__ = True` makes: it promises that nobody changes what is in it.
    """
    return type(value) in _FIXED or _is_fixed(value)


def _is_fixed(value: object) -> bool:
    todo = [value]
    seen = set()
    while todo:
        one = todo.pop()
        traits = _traits_of(type(one))
        if traits.parts is None:
            if not traits.immutable:
                return False
        elif id(one) not in seen:
            seen.add(id(one))
            todo += [part for part in traits.parts(one) if type(part) not in _FIXED]
    return True


def copy_value(value: Any, *, where: str, warned: set[tuple[str, type]] | None) -> Any:
    """Give a copy of *value* that shares nothing with it that can be changed.

    It does what `copy.deepcopy` does, but shares immutable values and exceptions, iterators, which have one
    reader, and what cannot be copied.

    Args:
        value: What to copy.
        where: Name of the node the value comes from, for the warning.
        warned: What was warned of already, which grows; None for no warning.

    Warns:
        SharedValueWarning: Part of the value cannot be copied; once for each node and class.
    """
    if type(value) in _FIXED:
        return value
    copying = _Copying(where, warned)
    try:
        return copying.copy(value)
    except SharedValueWarning:  # where warnings are errors
        raise
    except Exception as error:  # noqa: BLE001  # nested too deep, or changed meanwhile
        return copying.share(value, error)


def copy_values(values: Mapping[str, Any], *, where: str, warned: set[tuple[str, type]] | None) -> dict[str, Any]:
    """Copy several values for one reader, as `copy_value` does: what two of them hold stays one object."""
    copying = _Copying(where, warned)
    copies = {}
    for name, value in values.items():
        try:
            copies[name] = copying.copy(value)
        except SharedValueWarning:  # where warnings are errors
            raise
        except Exception as error:  # noqa: BLE001  # as above
            copies[name] = copying.share(value, error)
            copying = _Copying(where, warned)  # no half-made copy may be found
    return copies


class _Copying:
    """One call of `copy_value` or `copy_values`."""

    __slots__ = ("memo", "warned", "where")

    def __init__(self, where: str, warned: set[tuple[str, type]] | None) -> None:
        self.memo: dict[int, Any] = {}
        """Copies by the id of the original, as `copy.deepcopy` keeps them."""
        self.where = where
        self.warned = warned

    def copy(self, value: Any) -> Any:
        cls = type(value)
        if cls in _FIXED:
            return value
        known = self.memo.get(id(value))
        if known is not None:
            return known
        of_class = _COPY.get(cls)
        if of_class is not None:
            return of_class(self, value)
        traits = _traits_of(cls)
        if traits.parts is not None and _is_fixed(value):
            return value
        return traits.copy(self, value)

    def copy_list(self, value: list[Any]) -> list[Any]:
        if _FIXED.issuperset(map(type, value)):
            new = self.memo[id(value)] = value[:]
            return new
        new = self.memo[id(value)] = []
        copy_item = self.copy
        for item in value:  # one by one: what an item holds may look for the list in the memo
            new.append(item if type(item) in _FIXED else copy_item(item))  # as said
        return new

    def copy_dict(self, value: dict[Any, Any]) -> dict[Any, Any]:
        new: dict[Any, Any] = {}
        self.memo[id(value)] = new
        return self.fill_dict(new, value)

    def fill_dict(self, new: dict[Any, Any], value: dict[Any, Any]) -> dict[Any, Any]:
        copy_item = self.copy
        for key, item in value.items():
            new_key = key if type(key) in _FIXED else copy_item(key)
            new[new_key] = item if type(item) in _FIXED else copy_item(item)
        return new

    def copy_set(self, value: set[Any]) -> set[Any]:
        new: set[Any] = set()
        self.memo[id(value)] = new
        new.update(value if _FIXED.issuperset(map(type, value)) else map(self.copy, value))
        return new

    def copy_fixed_collection(self, value: Any) -> Any:
        """Copy a tuple or frozen set, which stays itself when its items do."""
        if _FIXED.issuperset(map(type, value)):
            return value
        old = list(value)
        items = [self.copy(item) for item in old]
        known = self.memo.get(id(value))
        if known is not None:  # it holds something that holds it
            return known
        same = all(a is b for a, b in zip(old, items, strict=True))
        new = self.memo[id(value)] = value if same else type(value)(items)
        return new

    def copy_plain(self, value: Any) -> Any:
        """Copy an object whose whole state is in its `__dict__`."""
        new = self.memo[id(value)] = object.__new__(type(value))
        self.fill_dict(new.__dict__, value.__dict__)
        return new

    def copy_model(self, value: Any) -> Any:
        """Copy a model without private attributes."""
        new = self.memo[id(value)] = object.__new__(type(value))
        set_slot = object.__setattr__  # past what a frozen model refuses
        set_slot(new, "__dict__", self.fill_dict({}, value.__dict__))
        set_slot(new, "__pydantic_extra__", self.copy(value.__pydantic_extra__))
        set_slot(new, "__pydantic_fields_set__", value.__pydantic_fields_set__.copy())
        set_slot(new, "__pydantic_private__", None)
        return new

    def keep(self, value: Any) -> Any:
        return value

    def deepcopy(self, value: Any) -> Any:
        memo = self.memo
        before = len(memo)
        try:
            return copy.deepcopy(value, memo)
        except RecursionError:
            raise
        except Exception as error:  # noqa: BLE001  # copying runs code of any class
            while len(memo) > before:  # no half-made copy may be found there
                memo.popitem()
            memo[id(value)] = value
            return self.share(value, error)

    def share(self, value: Any, error: Exception) -> Any:
        key = (self.where, type(value))
        if self.warned is not None and key not in self.warned:
            self.warned.add(key)
            cls = f"{type(value).__module__}.{type(value).__qualname__}"
            warnings.warn(
                f"a {cls} from {self.where!r} cannot be copied, and all its readers share it: {error}",
                SharedValueWarning,
                stacklevel=2,
            )
        return value


_SHARED: Final = _Traits(True, None, _Copying.keep)
_COPY: Final[dict[type, Callable[[_Copying, Any], Any]]] = {
    list: _Copying.copy_list,
    dict: _Copying.copy_dict,
    set: _Copying.copy_set,
    tuple: _Copying.copy_fixed_collection,
    frozenset: _Copying.copy_fixed_collection,
}


# --- what classes say --------------------------------------------------------------------------------------


def _traits_of(cls: type) -> _Traits:
    if cls in _FIXED:
        return _SHARED
    traits = _traits.get(cls)
    if traits is None:
        if _is_known_as_fixed(cls) or vars(cls).get("__graphrt_immutable__") is True:
            _FIXED.add(cls)
            return _SHARED
        traits = _traits[cls] = _read_traits(cls)
    return traits


def _is_known_as_fixed(cls: type) -> bool:
    module, name = cls.__module__.partition(".")[0], cls.__qualname__
    return name in _FIXED_NAMES.get(module, ()) and getattr(sys.modules.get(module), name, None) is cls


def _read_traits(cls: type) -> _Traits:
    if isinstance(cls, EnumMeta) or issubclass(cls, BaseException | type | ModuleType):
        return _SHARED
    if issubclass(cls, abc.Iterator | abc.AsyncIterator) and not issubclass(cls, io.IOBase):
        return _Traits(False, None, _Copying.keep)
    model: Any = sys.modules.get("pydantic.main")  # without it there are no models
    if model is not None and issubclass(cls, model.BaseModel):
        return _read_model(cls, model.BaseModel)
    by = _Copying.copy_plain if _is_plain(cls) else _Copying.deepcopy
    if cls is frozenset or (issubclass(cls, tuple) and not cls.__dictoffset__):
        return _Traits(False, iter, by)
    return _Traits(False, _attributes if _is_frozen_dataclass(cls) else None, by)


def _read_model(cls: Any, base: Any) -> _Traits:
    private = bool(cls.__private_attributes__)
    usual = cls.__deepcopy__ is base.__deepcopy__ and cls.__new__ is object.__new__
    known = not private and usual and _MODEL_SLOTS.issuperset(base.__slots__)
    parts = _contents if cls.model_config.get("frozen") and not private else None
    return _Traits(False, parts, _Copying.copy_model if known else _Copying.deepcopy)


def _is_plain(cls: type) -> bool:
    """Tell whether `copy.deepcopy` would make an empty object of *cls* and fill its `__dict__`."""
    if cls.__basicsize__ != _Blank.__basicsize__ or not cls.__dictoffset__ or cls in copyreg.dispatch_table:
        return False
    if any(vars(base).get("__slots__") for base in cls.__mro__):
        return False
    return all(getattr(cls, name, None) is getattr(object, name, None) for name in _COPY_HOOKS)


class _Blank:
    """The size of an object that keeps nothing outside its `__dict__`."""


def _is_frozen_dataclass(cls: type) -> bool:
    params = vars(cls).get("__dataclass_params__")  # its own: a plain subclass can be changed again
    if params is None or not params.frozen:
        return False
    if issubclass(cls, abc.MutableSequence | abc.MutableMapping | abc.MutableSet):
        return False
    return all(base.__flags__ & _HEAP_TYPE for base in cls.__mro__[:-1])  # none keeps something out of sight


def _attributes(value: Any) -> Iterable[Any]:
    held = getattr(value, "__dict__", {})
    slotted = [name for name in value.__dataclass_fields__ if name not in held]
    return [*held.values(), *(getattr(value, name, None) for name in slotted)]


def _contents(value: Any) -> Iterable[Any]:
    return [*value.__dict__.values(), *(value.__pydantic_extra__ or {}).values()]


__all__ = ["SharedValueWarning", "copy_value", "copy_values", "is_immutable"]
