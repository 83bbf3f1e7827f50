"""Checks on what a person declared, before anything is compiled. Every message names the node and the way out."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING

from graphrt.errors import ConfigError, GraphError
from graphrt.graph.declared import END, START, Edge, GraphDecl, name_of
from graphrt.policies import RateLimit, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphrt.graph.declared import NodeDecl


def check_declared(decl: GraphDecl) -> None:
    """Check names, ends and options.

    Raises:
        GraphError: An edge names an unknown node, there is no entry, or a node's options contradict each other.
        ConfigError: An option is not of the kind it has to be.
    """
    _check_types(decl)
    if not any(e.src is START for e in decl.edges):
        names = ", ".join(decl.nodes) or "none yet"
        raise GraphError(
            f"graph {decl.name!r} has no entry",
            hint=f"add an edge from START, such as chain(START, ...); nodes: {names}",
        )
    for edge in decl.edges:
        _check_edge(decl, edge)
    _check_duplicates(decl)
    for node in decl.nodes.values():
        _check_node(node)
    if not is_whole(decl.max_rounds, 1):
        raise ConfigError(
            f"max_rounds of graph {decl.name!r} is {decl.max_rounds!r}, and no cycle may be without rounds",
            hint="give a whole number of at least 1",
        )
    if decl.max_steps is not None and not is_whole(decl.max_steps, 1):
        raise ConfigError(
            f"max_steps of graph {decl.name!r} is {decl.max_steps!r}",
            hint="give a whole number of at least 1, or None for no limit",
        )
    if decl.max_concurrency is not None:
        check_concurrency(decl.max_concurrency, f"graph {decl.name!r}")
    if decl.timeout is not None and not (is_seconds(decl.timeout) and decl.timeout > 0):
        raise ConfigError(f"timeout of graph {decl.name!r} is {decl.timeout!r}", hint="give seconds above 0, or None")


def check_concurrency(limit: object, of: str) -> None:
    """Refuse a limit that is no number of functions, or lets nothing through.

    Raises:
        ConfigError: *limit* is no whole number of at least 1; *of* says whose it is.
    """
    if not is_whole(limit, 1):
        raise ConfigError(
            f"max_concurrency of {of} is {limit!r}", hint="give a whole number of at least 1, or None for no limit"
        )


def is_whole(value: object, least: int) -> bool:
    """Say whether *value* is a whole number of at least *least*; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_seconds(value: object) -> bool:
    """Say whether *value* is a number that time can be counted in; infinity is one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return not math.isnan(value)
    except OverflowError:  # a whole number too large for a float
        return False


def unknown_node(name: str, edge: str, known: Iterable[str]) -> GraphError:
    """Say that an edge names a node that is not there, and which one may have been meant."""
    import difflib

    known = list(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    meant = f"did you mean {close[0]!r}? " if close else ""
    return GraphError(
        f"edge {edge} names {name!r}, which is not in the graph",
        hint=f"{meant}add it first, with node() or add_node(); nodes: {', '.join(known) or 'none'}",
    )


def _check_types(decl: GraphDecl) -> None:
    for which, declared in (("input", decl.input), ("output", decl.output)):
        parts = declared if which == "input" and isinstance(declared, dict) else {None: declared}
        for name, part in parts.items():
            if parts is declared and (not isinstance(name, str) or not name):
                raise ConfigError(
                    f"input of graph {decl.name!r} has a part named {name!r}, which no parameter can be",
                    hint='name each part by a text, as in input={"topic": str}',
                )
            if isinstance(part, (int, float, bytes, list, set)):
                of = f"{which} {name!r}" if parts is declared else which
                raise ConfigError(
                    f"{of} of graph {decl.name!r} is declared {part!r}, which is a value and no type",
                    hint=f"give a type, such as {type(part).__name__}",
                )


def _check_function(fn: object, option: str, edge: Edge) -> None:
    if not callable(fn):
        raise ConfigError(
            f"{option} of edge {edge} is {fn!r}, which cannot be called", hint="give a function of the value, or None"
        )
    plain = not isinstance(fn, type)
    if inspect.iscoroutinefunction(fn) or (plain and inspect.iscoroutinefunction(getattr(fn, "__call__", None))):  # noqa: B004
        raise GraphError(
            f"{option} of edge {edge} is {fn!r}, an async function, and what it gives would not be awaited",
            hint="give a plain function; let a node do the work, and look at its value here",
        )


def _check_edge(decl: GraphDecl, edge: Edge) -> None:
    for end in (edge.src, edge.dst):
        if isinstance(end, str) and end not in decl.nodes:
            raise unknown_node(end, str(edge), decl.nodes)
    if edge.dst is START:
        raise GraphError(
            f"edge {edge} leads into START", hint="START has no way in; name the node that should run again"
        )
    if edge.src is END:
        raise GraphError(f"edge {edge} leaves END", hint="END has no way out; lead the node before it there")
    if edge.src is START and (edge.errors is not None or edge.kind == "gather"):
        raise GraphError(f"edge {edge} leaves START and can only be a normal edge or a map", hint="use edge() or map()")
    if edge.when is not None:
        _check_function(edge.when, "when", edge)
    if edge.branch is not None and edge.branch.key is not None:
        _check_function(edge.branch.key, "key", edge)
    if edge.into is not None and (not isinstance(edge.into, str) or not edge.into):
        raise GraphError(
            f"into of edge {edge} is {edge.into!r}, which names no parameter",
            hint=f"give the name of a parameter of {name_of(edge.dst)!r}, or None",
        )
    source = decl.nodes[edge.src] if isinstance(edge.src, str) else None
    if source is not None and source.side:
        raise GraphError(
            f"side node {source.name!r} has an edge to {name_of(edge.dst)!r}, and a side node's value goes nowhere",
            hint="drop side=True, or the edge",
        )
    if edge.kind == "map":
        if not is_whole(edge.max_concurrency, 1):
            raise ConfigError(
                f"max_concurrency of map {edge} is {edge.max_concurrency!r}", hint="give a whole number of at least 1"
            )
        if edge.min_success is not None and not is_whole(edge.min_success, 0):
            raise ConfigError(
                f"min_success of map {edge} is {edge.min_success!r}", hint="give a whole number, 0 or more, or None"
            )
        if edge.on_error not in ("fail", "skip", "collect"):
            raise ConfigError(f"on_error of map {edge} is {edge.on_error!r}", hint="give 'fail', 'skip' or 'collect'")


def _check_duplicates(decl: GraphDecl) -> None:
    seen: set[tuple[object, ...]] = set()
    for edge in decl.edges:
        if edge.when is not None or edge.errors is not None or edge.branch is not None:
            continue
        key = (edge.src, edge.dst, edge.kind, edge.into)
        if key in seen:
            raise GraphError(
                f"edge {edge} is declared twice",
                hint="drop one of them, or tell them apart with when= or into=",
            )
        seen.add(key)


def _check_node(node: NodeDecl) -> None:
    if node.join not in ("all", "any") and (
        isinstance(node.join, bool) or not isinstance(node.join, int) or node.join < 1
    ):
        raise ConfigError(f"join of node {node.name!r} is {node.join!r}", hint="give 'all', 'any' or a number from 1")
    if node.on_error not in ("fail", "skip"):
        raise ConfigError(
            f"on_error of node {node.name!r} is {node.on_error!r}",
            hint="give 'fail' or 'skip'; to go on elsewhere add edge(..., on_error=True)",
        )
    for option in ("timeout", "step_timeout"):
        seconds = getattr(node, option)
        if seconds is not None and not (is_seconds(seconds) and seconds > 0):
            raise ConfigError(f"{option} of node {node.name!r} is {seconds!r}", hint="give seconds above 0, or None")
    limit = node.max_concurrency
    if limit is not None and not is_whole(limit, 1) and not _is_limiter(limit):
        raise ConfigError(
            f"max_concurrency of node {node.name!r} is {limit!r}",
            hint="give a whole number of at least 1, a Limiter, or None",
        )
    if node.retry is not None and not isinstance(node.retry, RetryPolicy):
        raise ConfigError(
            f"retry of node {node.name!r} is {node.retry!r}, which is no RetryPolicy",
            hint="give one, such as RetryPolicy(attempts=3), or None",
        )
    if node.rate_limit is not None and not isinstance(node.rate_limit, RateLimit):
        raise ConfigError(
            f"rate_limit of node {node.name!r} is {node.rate_limit!r}, which is no RateLimit",
            hint="give one, such as RateLimit(5, per_seconds=1), or None",
        )
    if node.cancel_rest and node.join == "all":
        raise GraphError(
            f"node {node.name!r} has cancel_rest=True and waits for all its edges",
            hint="cancel_rest goes with join='any' or join=n",
        )


def _is_limiter(limit: object) -> bool:
    if isinstance(limit, type):
        return False
    has = [callable(getattr(limit, name, None)) for name in ("acquire", "acquire_nowait", "release")]
    return has in ([True, True, True], [True, False, False])  # a Limiter, or an AsyncLimit
