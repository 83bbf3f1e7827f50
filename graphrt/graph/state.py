"""Shared state: what nodes write, and what a reader sees (E23).

A reader sees the fold of the writes upstream of it, from the defaults of the model. Nothing is folded until a
step reads the state, or writes a field that has a reducer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from graphrt.errors import GraphError
from graphrt.graph.history import History, link, links, merge
from graphrt.graph.values import copy_values
from graphrt.notes import add_note

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from graphrt.graph.statemodel import StateField, StateSpec

T = TypeVar("T")

_FOLDS: Final = 128
"""Folded states that a run keeps: more than a map has items at once, each with a history of its own."""
_COLLECTIONS: Final = frozenset({list, dict, set})


class Update(Generic[T]):
    """What a node returns to write state besides its value: `Update(value, field=...)`.

    Without a value it stands for None. A function that returns one may be annotated `-> Update[str]`.
    """

    __slots__ = ("fields", "output")
    __graphrt_update__ = True

    @overload
    def __init__(self: Update[None], /, **fields: Any) -> None: ...
    @overload
    def __init__(self, output: T, /, **fields: Any) -> None: ...
    def __init__(self, output: Any = None, /, **fields: Any) -> None:
        self.output = output
        self.fields = fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Update) and (self.output, self.fields) == (other.output, other.fields)

    __hash__ = None  # type: ignore[assignment]  # what it holds can be changed

    def __repr__(self) -> str:
        return f"Update({', '.join([repr(self.output), *(f'{k}={v!r}' for k, v in self.fields.items())])})"


# --- what is seen ------------------------------------------------------------------------------------------


class FoldCache:
    """The states that were folded last in one run, by history, and the defaults the run started with."""

    __slots__ = ("_defaults", "_folds", "_size")

    def __init__(self, size: int = _FOLDS) -> None:
        self._size = size
        self._folds: dict[History, dict[str, Any]] = {}
        self._defaults: dict[type, dict[str, Any]] = {}

    def defaults(self, spec: StateSpec) -> dict[str, Any]:
        """Give the defaults; the same all through the run."""
        found = self._defaults.get(spec.model)
        if found is None:
            found = self._defaults[spec.model] = spec.defaults()
        return found

    def get(self, history: History) -> dict[str, Any] | None:
        """Give what was folded for *history*, if it is still here."""
        found = self._folds.pop(history, None)
        if found is not None:
            self._folds[history] = found  # used last, dropped last
        return found

    def put(self, history: History, values: dict[str, Any]) -> None:
        """Keep *values*, and drop what was not used for longest."""
        if len(self._folds) >= self._size:
            del self._folds[next(iter(self._folds))]
        self._folds[history] = values


def fold(history: History | None, spec: StateSpec, cache: FoldCache) -> dict[str, Any]:
    """Give the value of each field after the writes of *history*; the values are not copies.

    Goes back to the nearest link whose fold is in *cache*: a loop that reads in every round pays for its own
    writes only.

    Raises:
        GraphTypeError: Reducers of writes made side by side gave something that is not of the field's type.
    """
    return dict(_fold(history, spec, cache))


def _fold(history: History | None, spec: StateSpec, cache: FoldCache) -> dict[str, Any]:
    known = None if history is None else cache.get(history)
    if known is not None:
        return known
    todo = []
    for one in links(history):
        known = cache.get(one)
        if known is not None:
            break
        todo.append(one)
    if known is None:
        known = cache.defaults(spec)
    if history is None or not todo:
        return known
    values = dict(known)
    met: dict[str, str] = {}
    for one in reversed(todo):
        for name, written in one.fields.items():
            reducer = spec.reducers.get(name)
            if reducer is None:
                values[name] = written
            else:
                values[name] = _reduce(reducer, values[name], written, name, one.label)
                if one.merged:
                    met[name] = one.label
    for name, label in met.items():
        spec.fields[name].check(values[name], label)
    cache.put(history, values)
    return values


def read(
    history: History | None,
    spec: StateSpec,
    cache: FoldCache,
    *,
    where: str,
    warned: set[tuple[str, type]] | None = None,
    copies: bool = True,
) -> Any:
    """Give a step the state as a model of its own, after the writes of *history*.

    Args:
        history: What is upstream of the step.
        spec: The declared state.
        cache: The run's.
        where: The node that reads, for the warning about what cannot be copied.
        warned: What was warned of already; None for no warning.
        copies: Whether mutable values are copied.
    """
    known = values = _fold(history, spec, cache)
    if copies:
        values = copy_values(values, where=where, warned=warned)
    return spec.instance(dict(values) if values is known else values)


def apply_write(
    history: History | None,
    spec: StateSpec,
    cache: FoldCache,
    fields: Mapping[str, Any],
    *,
    writer: Hashable,
    label: str,
    warned: set[tuple[str, type]] | None = None,
    copies: bool = True,
) -> History | None:
    """Check what a step wrote, and add it to what is upstream of the step.

    Reducers run here for the first time, so that what one raises is the writer's failure.

    Args:
        history: What is upstream of the step.
        spec: The declared state.
        cache: The run's.
        fields: What it wrote, by field.
        writer: Which step it is; equal for no two steps of a run.
        label: The step's name, for messages.
        warned: What was warned of already; None for no warning.
        copies: Whether mutable values are copied, so that the writer cannot change them later.

    Raises:
        GraphError: A field does not exist, or a reducer changes what it is given.
        GraphTypeError: A value, or what a reducer made of it, is not of the field's type.
    """
    if not fields:
        return history
    written: dict[str, Any] = {}
    after: dict[str, Any] = {}
    before: dict[str, Any] | None = None
    for name, value in (copy_values(fields, where=label, warned=warned) if copies else fields).items():
        field = spec.field(name, label)
        if field.reducer is None:
            after[name] = written[name] = field.convert(value, label)
        else:
            if before is None:
                before = _fold(history, spec, cache)
            after[name] = _reduce_checked(field, field.reducer, before[name], value, label)
            written[name] = value
    new = link(history, writer, written, label)
    if before is not None:
        cache.put(new, before | after)
    return new


def _reduce(reducer: Callable[[Any, Any], Any], current: Any, written: Any, name: str, label: str) -> Any:
    try:
        return reducer(current, written)
    except Exception as error:
        add_note(error, f"in the reducer of state field {name!r}, for what {label!r} wrote")
        raise


def _reduce_checked(
    field: StateField, reducer: Callable[[Any, Any], Any], current: Any, written: Any, label: str
) -> Any:
    given = current.copy() if type(current) in _COLLECTIONS else current
    result = _reduce(reducer, given, written, field.name, label)
    if given is not current and given != current:
        raise GraphError(
            f"the reducer of state field {field.name!r} changes the value it is given",
            hint="let it return a new one: operator.add and not operator.iadd",
        )
    field.check(result, label)
    return result


__all__ = [
    "FoldCache",
    "History",
    "Update",
    "apply_write",
    "fold",
    "link",
    "links",
    "merge",
    "read",
]
