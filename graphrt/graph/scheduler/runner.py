"""What the scheduler works out about a node once, when its graph is compiled."""

from __future__ import annotations

from enum import IntEnum
from types import FunctionType
from typing import TYPE_CHECKING, Any

from graphrt.errors import GraphError, GraphTypeError
from graphrt.graph import typecheck
from graphrt.graph.bind import fallback_inputs
from graphrt.graph.protocols import Asks, Node, WaitsUntil
from graphrt.graph.signature import read_signature
from graphrt.graph.state import Update

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphrt.graph.compiled import CompiledNode, Program
    from graphrt.graph.core.records import Step
    from graphrt.graph.declared import NodeDecl
    from graphrt.graph.scheduler.limits import AsyncLimit, Limiter, RateGate


class Way(IntEnum):
    """How a node's work is done."""

    ASYNC = 0
    SYNC = 1
    ASYNC_ITERATOR = 2
    ITERATOR = 3
    OBJECT = 4
    GRAPH = 5
    ASK = 6
    TIMER = 7


class Fallback:
    """One entry of `fallback=`: a function, or a constant."""

    __slots__ = ("constant", "fn", "inputs", "is_async", "params")

    def __init__(self, node: CompiledNode, given: Any) -> None:
        self.fn = given if callable(given) and not isinstance(given, type) else None
        self.constant = given
        self.is_async = False
        self.inputs: list[str] = []
        self.params: list[str] = []
        if self.fn is not None:
            assert node.decl is not None
            signature = read_signature(self.fn, name=f"{node.name} fallback")
            self.is_async = signature.is_async
            self.inputs = fallback_inputs(node.decl, signature)
            self.params = [p.name for p in signature.params]


_NO_POLICIES = (None,) * 6


class Runner:
    """One node, ready to be run."""

    __slots__ = (
        "check",
        "fallbacks",
        "fn",
        "limiter",
        "plain",
        "positional",
        "rate",
        "retry",
        "single",
        "step_timeout",
        "timeout",
        "way",
    )

    def __init__(self, node: CompiledNode, check_of: Callable[[Any], Callable[[object], bool] | None]) -> None:
        decl = node.decl
        assert decl is not None
        signature = decl.signature
        self.fn: Callable[..., Any] = decl.target
        self.way = _way_of(node)
        if self.way is Way.OBJECT:
            self.fn = decl.target.run
        self.check = None if self.way in (Way.ASYNC_ITERATOR, Way.ITERATOR) else check_of(signature.returns)
        self.retry = decl.retry if decl.retry is not None and decl.retry.attempts > 1 else None
        self.timeout = decl.timeout
        self.step_timeout = decl.step_timeout
        if node.graph is not None:
            own = [t for t in (decl.timeout, decl.step_timeout, node.graph.decl.timeout) if t is not None]
            self.step_timeout = min(own) if own else None
        self.fallbacks = tuple(Fallback(node, f) for f in decl.fallback)
        self.limiter: Limiter | AsyncLimit | None = decl.max_concurrency
        self.rate: RateGate | None = None
        if decl.max_concurrency is not None or decl.rate_limit is not None:
            self._hold_back(decl)
        binder = node.binder
        self.positional = not any(p.keyword_only for p in signature.params)
        self.single = binder.single and self.positional and self.way is not Way.OBJECT
        policies = (self.retry, self.timeout, self.step_timeout, self.limiter, self.rate, self.fallbacks or None)
        self.plain = self.way in (Way.ASYNC, Way.OBJECT) and policies == _NO_POLICIES
        """Nothing but a coroutine to await once."""

    def _hold_back(self, decl: NodeDecl) -> None:
        from graphrt.graph.scheduler.limits import Limiter, RateGate

        if isinstance(decl.max_concurrency, int):
            self.limiter = Limiter(decl.max_concurrency)
        if decl.rate_limit is not None:
            self.rate = RateGate(decl.rate_limit)


def _way_of(node: CompiledNode) -> Way:
    decl = node.decl
    assert decl is not None
    target, signature = decl.target, decl.signature
    if node.graph is not None:
        return Way.GRAPH
    if type(target) is not FunctionType:  # a protocol check costs more than the rest of this function
        if isinstance(target, (Asks, WaitsUntil)):
            return Way.ASK if isinstance(target, Asks) else Way.TIMER
        if isinstance(target, Node) and not callable(target):
            return Way.OBJECT
    if not node.lazy:
        return Way.ASYNC if signature.is_async else Way.SYNC
    if signature.is_async_gen or (not signature.is_gen and _is_async_iterator(signature.returns)):
        return Way.ASYNC_ITERATOR
    return Way.ITERATOR


def _is_async_iterator(declared: Any) -> bool:
    from collections.abc import AsyncIterable
    from typing import get_origin

    origin = get_origin(declared) or declared
    return isinstance(origin, type) and issubclass(origin, AsyncIterable)


def mismatch(step: Step, value: Any) -> GraphTypeError | None:
    """Say how a value differs from what its node declares; the output of an `Update` counts, not the update."""
    check = step.node.run.check
    if isinstance(value, Update):
        value = value.output
    if check is None or check(value):
        return None
    decl = step.node.decl
    assert decl is not None
    return GraphTypeError(
        f"node {step.node.name!r} declares {typecheck.describe(decl.signature.returns)} and returned "
        f"{type(value).__name__}",
        hint="mend the annotation or the return",
    )


def prepare(program: Program) -> None:
    """Work out every node of *program* and of the graphs inside it, once.

    Raises:
        GraphError: A node is of no kind that can be run.
    """
    check_of = typecheck.remembered(typecheck.checker)

    def one(part: Program) -> None:
        for node in part.nodes:
            if node.run is None:
                target = node.decl.target if node.decl is not None else None
                if node.graph is None and not callable(target) and not isinstance(target, Node):
                    raise GraphError(
                        f"node {node.name!r} is neither a function nor a Node",
                        hint="give a function, or an object with name, kind, signature and run(inputs, ctx)",
                    )
                node.run = Runner(node, check_of)

    program.walk(one)
