"""Read from a function what it takes and what it gives: the declared inputs and value of a node."""

from __future__ import annotations

import functools
import inspect
import sys
from dataclasses import dataclass, replace
from types import FunctionType, GenericAlias, MethodType, NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    ForwardRef,
    Literal,
    NamedTuple,
    TypeAlias,
    Union,
    get_args,
    get_origin,
)
from weakref import WeakKeyDictionary

from graphrt.errors import GraphError
from graphrt.graph.annotations import (
    MISSING,
    TypeReader,
    Unresolved,
    describe,
    members_of,
    unresolved_names,
    unwrap,
)
from graphrt.graph.typecheck import fits, iterable_item_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Flavor: TypeAlias = Literal["sync", "async", "gen", "async_gen"]

_VARIADIC: Final = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_FLAVORS: Final[dict[int, Flavor]] = {
    inspect.CO_COROUTINE: "async",
    inspect.CO_ASYNC_GENERATOR: "async_gen",
    inspect.CO_GENERATOR: "gen",
}
_FLAVOR_BITS: Final = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_GENERATOR
_DECORATED: Final = frozenset({"__wrapped__", "__signature__", "_is_coroutine_mark", "_is_coroutine_marker"})
"""What in a function's own attributes says that its code does not tell the whole signature."""
_SCALARS: Final[frozenset[object]] = frozenset({NoneType, bool, int, float, str, bytes, type(MISSING)})
"""Classes of defaults through which a kept signature cannot keep its function alive."""


class Param(NamedTuple):
    """One parameter of a node's function."""

    name: str
    annotation: Any = MISSING
    """The declared type; MISSING without one, and `Unresolved` where a name was not found."""
    default: Any = MISSING
    keyword_only: bool = False
    positional_only: bool = False

    @property
    def unresolved(self) -> tuple[str, ...]:
        """Names in its annotation that were not found."""
        return tuple(unresolved_names(self.annotation))

    @property
    def is_context(self) -> bool:
        """Whether it takes the run's context instead of a value."""
        return is_context(self.annotation)

    @property
    def optional(self) -> bool:
        """Whether None may be given to it; without a declared type, anything may."""
        return fits(NoneType, self.annotation)


@dataclass(frozen=True, slots=True)
class NodeSignature:
    """What a node takes and gives."""

    params: tuple[Param, ...] = ()
    """In the order of the function; without what is bound already (`self`, arguments of a `partial`)."""
    returns: Any = MISSING
    """The declared type of the value; of `Update[X]` it is X. MISSING when nothing is declared."""
    flavor: Flavor = "async"

    @property
    def value_type(self) -> Any:
        """What `returns` says."""
        return self.returns

    @property
    def returns_none(self) -> bool:
        """Whether it is declared to give no value."""
        return self.returns is NoneType

    @property
    def is_async(self) -> bool:
        """Whether it is a coroutine function."""
        return self.flavor == "async"

    @property
    def is_async_gen(self) -> bool:
        """Whether it is an async generator function: it yields items, and has no value of its own."""
        return self.flavor == "async_gen"

    @property
    def is_gen(self) -> bool:
        """Whether it is a generator function: it yields items, from a thread, and has no value of its own."""
        return self.flavor == "gen"

    @property
    def is_sync(self) -> bool:
        """Whether it is an ordinary function, run in a thread; what it returns may still be awaitable."""
        return self.flavor == "sync"

    @property
    def item_type(self) -> object:
        """Type of the items a map gets from the value; MISSING when unknown."""
        return iterable_item_type(self.returns)

    @property
    def unresolved(self) -> tuple[str, ...]:
        """Names in the annotations that were not found."""
        found = [text for tp in (*(p.annotation for p in self.params), self.returns) for text in unresolved_names(tp)]
        return tuple(dict.fromkeys(found))


def read_signature(
    fn: Callable[..., Any], *, name: str | None = None, localns: Mapping[str, Any] | None = None
) -> NodeSignature:
    """Read what *fn* takes and gives: a function, method, partial, class or callable object.

    Names in annotations are looked up where the function is defined, and in *localns*: the names in sight
    where it becomes a node. A name that is found nowhere stays `Unresolved`, and is looked up again at the
    next call.

    Args:
        fn: What the node runs.
        name: The node's name, for messages.
        localns: For a function defined in a function it comes before the module's names, else after them.

    Raises:
        GraphError: It cannot be called, has no signature, or takes `*args` or `**kwargs`.
    """
    if type(fn) is not FunctionType:
        return _read_callable(fn, name, localns)
    found = _signatures.get(fn)
    if found is None:
        found = _read_function(fn, name, localns)
    return found


_signatures: WeakKeyDictionary[FunctionType, NodeSignature] = WeakKeyDictionary()


def unresolved_hint(annotation: object) -> str | None:
    """Say how to make the names in *annotation* known that were not found; None when all were."""
    names = unresolved_names(annotation)
    if not names:
        return None
    return (
        f"{', '.join(map(repr, names))} could not be found where the function is defined: import it outside "
        "`if TYPE_CHECKING:`, or define it before the node is added"
    )


# --- plain functions ---------------------------------------------------------------------------------------


def _read_function(fn: FunctionType, name: str | None, localns: Mapping[str, Any] | None) -> NodeSignature:
    if fn.__dict__ and not _DECORATED.isdisjoint(fn.__dict__):
        return _read_inspected(fn, name, localns)
    code = fn.__code__
    if code.co_flags & _VARIADIC:
        raise _variadic(fn, name)
    types = TypeReader(fn, localns)
    annotations = _annotations(fn)
    defaults = fn.__defaults__ or ()
    by_keyword = fn.__kwdefaults__ or {}
    positional = code.co_argcount
    required = positional - len(defaults)
    params = []
    keep = True
    for index, param in enumerate(code.co_varnames[: positional + code.co_kwonlyargcount]):
        default = MISSING
        if index >= required:
            default = by_keyword.get(param, MISSING) if index >= positional else defaults[index - required]
            keep = keep and type(default) in _SCALARS
        tp = annotations.get(param, MISSING)
        if tp is not MISSING and type(tp) is not type:
            tp = types.resolve(tp)
        params.append(Param(param, tp, default, index >= positional, index < code.co_posonlyargcount))
    returns = annotations.get("return", MISSING)
    if returns is not MISSING and (type(returns) is not type or returns not in _SCALARS):
        returns = _output(types.resolve(returns))
    flavor = _FLAVORS.get(code.co_flags & _FLAVOR_BITS, "sync")
    signature = NodeSignature(tuple(params), returns, flavor)
    if keep and not types.incomplete:
        _signatures[fn] = signature
    return signature


def _annotations(fn: FunctionType) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(fn, format=annotationlib.Format.FORWARDREF)
    return fn.__annotations__


def _variadic(fn: object, name: str | None) -> GraphError:
    return GraphError(
        f"node {_called(fn, name)!r} takes *args or **kwargs, so its inputs have no names",
        hint="name each parameter, or add a function that does and calls this one",
    )


def _called(fn: Any, name: str | None) -> str:
    return name or getattr(fn, "__name__", None) or type(fn).__name__


# --- everything else that can be called --------------------------------------------------------------------


def _read_callable(fn: Any, name: str | None, localns: Mapping[str, Any] | None) -> NodeSignature:
    if not callable(fn):
        raise GraphError(
            f"node {_called(fn, name)!r} cannot be called: it is a value of type {type(fn).__name__}",
            hint="give a function, or an object with __call__",
        )
    if isinstance(fn, functools.partial):
        return _bind(read_signature(fn.func, name=name or _called(fn.func, None), localns=localns), fn, name)
    method: Any = fn.__func__ if isinstance(fn, MethodType) else type(fn).__call__
    own = {} if isinstance(fn, MethodType) else getattr(fn, "__dict__", {})
    if isinstance(fn, type) or not isinstance(method, FunctionType) or not _DECORATED.isdisjoint(own):
        return _read_inspected(fn, name, localns)
    signature = read_signature(method, name=name or _called(fn, None), localns=localns)
    return replace(signature, params=signature.params[1:])


def _bind(signature: NodeSignature, fn: functools.partial[Any], name: str | None) -> NodeSignature:
    """Take away what *fn* binds; what comes after a parameter bound by name can be given by name only."""
    free = []
    left = len(fn.args)
    by_name = False
    for param in signature.params:
        if left and not param.keyword_only:
            left -= 1
        elif param.name in fn.keywords:
            by_name = True
        else:
            free.append(param._replace(keyword_only=True) if by_name else param)
    if left:
        raise GraphError(
            f"node {_called(fn.func, name)!r} is a partial that binds more arguments than its function takes",
            hint="bind fewer",
        )
    return replace(signature, params=tuple(free))


def _read_inspected(fn: Any, name: str | None, localns: Mapping[str, Any] | None) -> NodeSignature:
    try:
        found = inspect.signature(fn)
    except (ValueError, TypeError) as error:
        raise GraphError(
            f"node {_called(fn, name)!r} does not tell what it takes",
            hint="add a function with annotated parameters that calls it",
        ) from error
    types = TypeReader(_home(fn), localns)
    params = []
    for param in found.parameters.values():
        if param.kind in (param.VAR_POSITIONAL, param.VAR_KEYWORD):
            raise _variadic(fn, name)
        tp = MISSING if param.annotation is param.empty else types.resolve(param.annotation)
        default = MISSING if param.default is param.empty else param.default
        keyword_only, positional_only = param.kind is param.KEYWORD_ONLY, param.kind is param.POSITIONAL_ONLY
        params.append(Param(param.name, tp, default, keyword_only, positional_only))
    returns = MISSING if found.return_annotation is found.empty else types.resolve(found.return_annotation)
    if isinstance(fn, type):
        returns = fn
    return NodeSignature(tuple(params), _output(returns), _flavor(fn))


def _flavor(fn: Any) -> Flavor:
    call = fn if inspect.isroutine(fn) or isinstance(fn, type) else type(fn).__call__
    if inspect.iscoroutinefunction(call):
        return "async"
    if inspect.isasyncgenfunction(call):
        return "async_gen"
    return "gen" if inspect.isgeneratorfunction(call) else "sync"


def _home(fn: Any) -> Any:
    """Find the function, or class, in whose place the annotations of *fn* were written."""
    fn = inspect.unwrap(fn)
    if isinstance(fn, functools.partial):
        return _home(fn.func)
    if isinstance(fn, type) or inspect.isroutine(fn):
        return getattr(fn, "__func__", fn)
    return getattr(type(fn).__call__, "__func__", type(fn).__call__)


# --- special types -----------------------------------------------------------------------------------------


def is_context(annotation: Any) -> bool:
    """Tell whether *annotation* is `RunContext`, also where that name was not found."""
    tp = unwrap(annotation)
    for one in members_of(tp) or (tp,):
        if isinstance(one, Unresolved | str | ForwardRef):
            head = describe(one).partition("[")[0].partition("|")[0].strip()
            if head.rpartition(".")[2] == "RunContext":
                return True
        elif getattr(get_origin(one) or one, "__graphrt_context__", False) is True:
            return True
    return False


def _output(tp: Any) -> Any:
    """Give the type of the value alone where an `Update` of the state comes with it."""
    if type(tp) is GenericAlias or (type(tp) is type and not hasattr(tp, "__graphrt_update__")):
        return tp
    members = members_of(unwrap(tp))
    if any(_is_update(member) for member in members):
        values = [_output(member) for member in members]
        return MISSING if MISSING in values else Union[tuple(values)]  # noqa: UP007  # made at run time
    if not _is_update(unwrap(tp)):
        return tp
    (value,) = get_args(unwrap(tp)) or (MISSING,)
    return NoneType if value is None else value


def _is_update(tp: Any) -> bool:
    return getattr(get_origin(tp) or tp, "__graphrt_update__", False) is True


__all__ = [
    "MISSING",
    "Flavor",
    "NodeSignature",
    "Param",
    "Unresolved",
    "is_context",
    "read_signature",
    "unresolved_hint",
]
