from __future__ import annotations

import functools
import gc
import inspect
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, Optional, ParamSpec, TypeVar

import pytest

from graphrt.errors import GraphError
from graphrt.graph.signature import (
    MISSING,
    NodeSignature,
    Param,
    Unresolved,
    read_signature,
    unresolved_hint,
)
from graphrt.graph.state import Update

if TYPE_CHECKING:
    import decimal

    from somewhere import RunContext  # type: ignore[import-not-found]  # seen by type checkers only

T = TypeVar("T")
P = ParamSpec("P")


class Context(Generic[T]):
    __graphrt_context__ = True


class Item:
    pass


def names(signature: NodeSignature) -> list[str]:
    return [param.name for param in signature.params]


def types(signature: NodeSignature) -> list[Any]:
    return [param.annotation for param in signature.params]


# --- plain functions ---------------------------------------------------------------------------------------


def test_a_function_tells_names_types_and_defaults() -> None:
    async def section(heading: str, topic: str = "bees", *, words: int, tone: str | None = None) -> list[str]:
        return [heading, topic, str(words), tone or ""]

    assert read_signature(section) == NodeSignature(
        params=(
            Param("heading", str),
            Param("topic", str, "bees"),
            Param("words", int, keyword_only=True),
            Param("tone", str | None, None, keyword_only=True),
        ),
        returns=list[str],
        flavor="async",
    )


def test_without_annotations_nothing_is_declared() -> None:
    signature = read_signature(lambda x, y=1: x + y)
    assert types(signature) == [MISSING, MISSING]
    assert signature.returns is MISSING
    assert not signature.returns_none
    assert all(param.optional for param in signature.params)


def test_declared_none_is_told_from_nothing_declared() -> None:
    def nothing() -> None: ...

    assert read_signature(nothing).returns_none


def test_positional_only_parameters_say_so() -> None:
    def node(x: int, /, y: int) -> int:
        return x + y

    assert [param.positional_only for param in read_signature(node).params] == [True, False]


def test_the_flavor_says_how_to_run_it() -> None:
    async def coroutine() -> int:
        return 1

    async def async_gen() -> AsyncIterator[int]:
        yield 1

    def gen() -> Iterator[str]:
        yield ""

    def sync() -> int:
        return 1

    found = [read_signature(fn) for fn in (coroutine, async_gen, gen, sync)]
    assert [(s.is_async, s.is_async_gen, s.is_gen, s.is_sync) for s in found] == [
        (True, False, False, False),
        (False, True, False, False),
        (False, False, True, False),
        (False, False, False, True),
    ]
    assert [s.item_type for s in found] == [MISSING, int, str, MISSING]


@pytest.mark.parametrize("bad", [lambda *args: args, lambda **kwargs: kwargs, lambda x, *rest: rest])
def test_inputs_without_names_are_refused(bad: Callable[..., Any]) -> None:
    with pytest.raises(GraphError, match=r"node 'collect' takes \*args or \*\*kwargs") as caught:
        read_signature(bad, name="collect")
    assert caught.value.hint is not None


def test_none_may_be_given_where_the_type_allows_it() -> None:
    def node(a: int, b: int | None, c: Any, d: object, e: None) -> None: ...

    assert [param.optional for param in read_signature(node).params] == [False, True, True, True, True]


def test_a_second_read_gives_the_same_signature() -> None:
    def node(x: int) -> int:
        return x

    assert read_signature(node) is read_signature(node)


def test_reading_a_function_does_not_keep_it_alive() -> None:
    class Owner:
        pass

    owner = Owner()

    def node(x: int, owner: Owner = owner) -> int:
        return x

    owner.node = node  # type: ignore[attr-defined]  # a default that leads back to the function
    read_signature(node)
    gone = weakref.ref(owner)
    del node, owner
    gc.collect()
    assert gone() is None


# --- where names are found ---------------------------------------------------------------------------------


def test_types_local_to_a_function_are_found_in_its_closure() -> None:
    class Local:
        pass

    def node(x: Local) -> Local:
        return Local() if x is None else x

    assert types(read_signature(node)) == [Local]


def test_types_local_to_a_function_are_found_in_the_names_in_sight() -> None:
    """B-129."""

    class Local:
        pass

    def node(x: Local) -> list[Local]:
        return [x]

    signature = read_signature(node, localns=locals())
    assert types(signature) == [Local]
    assert signature.returns == list[Local]
    assert signature.unresolved == ()


def test_a_local_name_hides_one_of_the_module() -> None:
    class Item:
        pass

    def node(x: Item) -> None: ...

    assert types(read_signature(node, localns=locals())) == [Item]


def module_level(x: Item) -> None: ...


def test_names_in_sight_do_not_hide_those_of_a_function_from_elsewhere() -> None:
    assert types(read_signature(module_level, localns={"Item": str})) == [Item]


def test_a_name_that_is_not_found_stays_open_and_the_hint_says_how_to_help() -> None:
    """B-129."""

    def node(x: Nowhere, y: list[Nowhere], z: decimal.Decimal | None) -> dict[str, Nowhere]:  # type: ignore[name-defined]  # noqa: F821  # the subject
        raise NotImplementedError

    signature = read_signature(node)
    x, y, z = types(signature)
    assert isinstance(x, Unresolved)
    assert y.__origin__ is list
    assert signature.unresolved == ("Nowhere", "decimal.Decimal")
    assert [param.optional for param in signature.params] == [True, False, True]
    assert "'Nowhere' could not be found" in (unresolved_hint(x) or "")
    assert "'decimal.Decimal'" in (unresolved_hint(z) or "")
    assert unresolved_hint(int) is None


def test_a_name_that_is_defined_later_is_found_at_the_next_read() -> None:
    def node(x: Late) -> None: ...  # type: ignore[name-defined]  # noqa: F821  # the subject

    assert read_signature(node).unresolved == ("Late",)
    assert types(read_signature(node, localns={"Late": int})) == [int]
    assert read_signature(node).unresolved == ()


def test_an_annotation_that_is_no_expression_stays_open() -> None:
    def node(x: int) -> None: ...

    node.__annotations__["x"] = "not an expression"
    assert isinstance(types(read_signature(node))[0], Unresolved)


def test_quoted_names_are_found_too() -> None:
    def node(x, y, z):  # type: ignore[no-untyped-def]
        return x, y, z

    node.__annotations__.update(x=list["Item"], y="'Item'", z=Optional["Item"])
    assert types(read_signature(node)) == [list[Item], Item, Optional[Item]]  # noqa: UP045  # a spelling


def test_a_quoted_name_that_is_not_found_is_left_to_others() -> None:
    tp = list["Nowhere"]  # type: ignore[name-defined]  # noqa: F821  # the subject

    def node(x):  # type: ignore[no-untyped-def]
        return x

    node.__annotations__["x"] = tp
    signature = read_signature(node)
    assert types(signature) == [tp]
    assert signature.unresolved == ("Nowhere",)


def test_metadata_of_an_annotation_is_kept() -> None:
    def node(x: Annotated[int, "unit"]) -> None: ...

    assert types(read_signature(node)) == [Annotated[int, "unit"]]


# --- special types -----------------------------------------------------------------------------------------


def test_the_context_is_told_by_its_class() -> None:
    def node(
        a: Context[int],
        b: Context,  # type: ignore[type-arg]  # a spelling
        c: Context[int] | None,
        d: Annotated[Context[int], ""],
        e: int,
    ) -> None: ...

    assert [param.is_context for param in read_signature(node).params] == [True, True, True, True, False]


def test_the_context_is_told_by_name_where_it_is_imported_for_type_checkers() -> None:
    def node(a: RunContext, b: RunContext[Nowhere], c: RunContext[int] | None, d: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821  # the subject

    assert [param.is_context for param in read_signature(node).params] == [True, True, True, False]


def test_an_update_stands_for_its_value() -> None:
    def one() -> Update[str]:
        return Update("")

    def either() -> Update[str] | int:
        return 1

    def bare() -> Update:  # type: ignore[type-arg]  # a spelling
        return Update()

    def nothing() -> Update[None]:
        return Update()

    found = [read_signature(fn) for fn in (one, either, bare, nothing)]
    assert [s.returns for s in found] == [str, str | int, MISSING, type(None)]
    assert found[3].returns_none


# --- what else can be called -------------------------------------------------------------------------------


def add(x: int, y: int = 2, *, z: int = 3) -> int:
    return x + y + z


def test_what_a_partial_binds_is_no_parameter() -> None:
    assert names(read_signature(functools.partial(add, 1))) == ["y", "z"]
    assert names(read_signature(functools.partial(add, z=1))) == ["x", "y"]
    by_name = read_signature(functools.partial(add, x=1))
    assert [(param.name, param.keyword_only) for param in by_name.params] == [("y", True), ("z", True)]
    assert by_name.returns is int


def test_a_partial_that_binds_too_much_is_refused() -> None:
    with pytest.raises(GraphError, match="binds more arguments"):
        read_signature(functools.partial(add, 1, 2, 3))  # type: ignore[call-arg]  # the subject


class Tools:
    async def search(self, query: str) -> list[str]:
        return [query]

    @classmethod
    def build(cls, size: int) -> int:
        return size

    @staticmethod
    def plain(x: int) -> int:
        return x

    def __call__(self, x: int) -> str:
        return str(x)


class AsyncTool:
    async def __call__(self, x: int) -> AsyncIterator[int]:
        yield x


def test_methods_and_callable_objects_have_no_self() -> None:
    tools = Tools()
    assert read_signature(tools.search) == NodeSignature((Param("query", str),), list[str], "async")
    assert read_signature(Tools.build) == NodeSignature((Param("size", int),), int, "sync")
    assert read_signature(tools.plain) == NodeSignature((Param("x", int),), int, "sync")
    assert read_signature(tools) == NodeSignature((Param("x", int),), str, "sync")
    assert read_signature(AsyncTool()) == NodeSignature((Param("x", int),), AsyncIterator[int], "async_gen")


def timed(fn: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    @functools.wraps(fn)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        return await fn(*args, **kwargs)

    return wrapper


def test_a_decorated_function_takes_what_the_one_inside_takes() -> None:
    class Local:
        pass

    @timed
    async def node(x: Local, n: int = 1) -> list[int]:
        return [n, id(x)]

    signature = read_signature(node, localns=locals())
    assert signature == NodeSignature((Param("x", Local), Param("n", int, 1)), list[int], "async")


def test_a_decorator_with_a_signature_of_its_own_is_believed() -> None:
    def node(*args: int) -> int:
        return sum(args)

    parameter = inspect.Parameter("x", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=int)
    node.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]  # as decorators do
    assert read_signature(node).params == (Param("x", int),)


def test_a_cached_function_is_read_through() -> None:
    @functools.lru_cache
    def node(x: int) -> int:
        return x

    assert read_signature(node) == NodeSignature((Param("x", int),), int, "sync")


@dataclass
class Point:
    x: int
    y: Item | None = None


def test_a_class_takes_what_its_constructor_takes_and_gives_itself() -> None:
    signature = read_signature(Point)
    assert signature == NodeSignature((Param("x", int), Param("y", Item | None, None)), Point, "sync")


def test_builtins_that_tell_what_they_take_are_read() -> None:
    signature = read_signature(len)
    assert [(param.name, param.positional_only) for param in signature.params] == [("obj", True)]


@pytest.mark.parametrize("builtin", [max, int, dict])
def test_builtins_that_do_not_are_refused_with_a_way_out(builtin: Callable[..., Any]) -> None:
    with pytest.raises(GraphError, match=r"does not tell what it takes|takes \*args") as caught:
        read_signature(builtin)
    assert caught.value.hint is not None


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(GraphError, match="node 'x' cannot be called: it is a value of type int"):
        read_signature(3, name="x")  # type: ignore[arg-type]  # the subject


def test_a_method_without_named_inputs_is_refused_by_its_name() -> None:
    class Bag:
        def collect(self, *items: int) -> int:
            return len(items)

    with pytest.raises(GraphError, match="node 'collect' takes"):
        read_signature(Bag().collect)
