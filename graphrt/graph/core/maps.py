"""Maps and gathers (E9, E10, E12): one scope an item, results in item order, policies for items that fail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from graphrt.errors import GraphError, GraphTypeError
from graphrt.graph.core import joins
from graphrt.graph.core.records import Arrival, Gathered, MapRun, Scope, Step
from graphrt.graph.protocols import Failure
from graphrt.graph.values import copy_value
from graphrt.notes import add_note

if TYPE_CHECKING:
    from graphrt.graph.compiled import CompiledEdge, CompiledMap
    from graphrt.graph.core.run import RunCore
    from graphrt.graph.history import History


def items_of(value: Any, map_: CompiledMap) -> Sequence[Any]:
    """Give the items of a map's source in order.

    Raises:
        GraphTypeError: The value is no collection of items with an order (text, bytes, a mapping, a set, a number).
    """
    if isinstance(value, (tuple, range)):
        return value
    if isinstance(value, (str, bytes, bytearray, memoryview, Mapping)):
        raise GraphTypeError(
            f"map {map_.edge} got a {type(value).__name__}, which is one value and not a list of items",
            hint="return a list: [text] for one item, text.splitlines() for lines, list(mapping.items()) for pairs",
        )
    if isinstance(value, Set):
        raise GraphTypeError(
            f"map {map_.edge} got a {type(value).__name__}, whose items have no order",
            hint="return sorted(items) or list(items), so that results keep their places",
        )
    if not isinstance(value, Iterable):
        raise GraphTypeError(
            f"map {map_.edge} got {type(value).__name__}, which holds no items",
            hint="return a list, one entry for each scope",
        )
    return list(value)


def open_map(core: RunCore, map_: CompiledMap, source: Step, items: Sequence[Any] | None) -> MapRun:
    """Take a map edge; *items* is None while an iterator still yields them."""
    run = MapRun(map_, source, items)
    scope = source.frame.scope
    if scope.maps is None:
        scope.maps = {}
    scope.maps[run] = None
    source.frame.open += 1
    if items:
        core.opened.append(run)
    elif items is not None:
        maybe_close(core, run)
    return run


def run_of(source: Step, map_: CompiledMap) -> MapRun | None:
    """Find the open map of a source that yields its items one by one."""
    return next((run for run in source.frame.scope.maps or () if run.source is source and run.map is map_), None)


def open_item(core: RunCore, run: MapRun, value: Any) -> None:
    """Open the scope of the next item and let its first node start."""
    source = run.source
    around = source.frame.scope
    scope = Scope(run.map.body, around.program, source)
    scope.map_run = run
    scope.index = run.opened
    scope.graph = around.graph
    scope.limits = run.limits
    scope.counters = around.counters
    run.children[scope.index] = scope
    run.opened += 1
    core.item_opened(run, scope, value)
    joins.arrive(core, run.map.edge, scope, source, value)


def item_done(core: RunCore, scope: Scope) -> None:
    """Take what an item gives: all its steps have ended, and none has failed its scope."""
    run = scope.map_run
    assert run is not None
    del run.children[scope.index]
    entries = scope.entries
    scope.close()
    if entries or not run.map.gathers:
        run.given += 1
    if entries:
        for place, gather in enumerate(run.map.gathers):
            entry = entries.get(gather)
            if entry is not None:
                run.results[place][scope.index] = entry
    maybe_close(core, run)


def item_failed(core: RunCore, scope: Scope) -> None:
    """Apply the map's policy to an item whose scope has failed and whose steps have all ended."""
    run = scope.map_run
    assert run is not None
    run.children.pop(scope.index, None)
    around = run.frame.scope
    if around.dead:
        core.check_ended(around)
        return
    if run.aborted:
        maybe_close(core, run)
        return
    error = scope.error
    assert error is not None
    if run.map.policy == "fail":
        core.fail_scope(around, error, scope.culprit)
        return
    if run.failed is None:
        run.failed = {}
    run.failed[scope.index] = error
    if run.map.policy == "collect":
        culprit = scope.culprit
        failure = Failure(
            error,
            culprit.node.name if culprit else run.map.edge.dst.name,
            culprit.frame.scope.path if culprit else scope.path,
            culprit.round if culprit else 1,
            scope.index,
        )
        for results in run.results:
            results[scope.index] = failure
    maybe_close(core, run)


def abort(core: RunCore, run: MapRun) -> None:
    """Cancel what a map still does; its gathers are skipped when all of it has ended."""
    run.aborted = True
    for scope in list(run.children.values()):
        core.cancel_scope(scope)
    maybe_close(core, run)


def maybe_close(core: RunCore, run: MapRun) -> None:
    """Close the map when its source has ended and all its items have settled."""
    if run.closed or run.children:
        return
    if not run.aborted and (run.total is None or run.opened < run.total):
        return
    run.closed = True
    scope = run.frame.scope
    assert scope.maps is not None
    scope.maps.pop(run, None)
    if scope.dead:
        core.check_ended(scope)
        return
    if run.aborted:
        for gather in run.map.gathers:
            joins.settle(core, gather, run.source, False, None)
    elif _enough(core, run):
        _give(core, run)
    else:
        return
    run.items = None
    run.frame.open -= 1
    if not run.frame.open:
        joins.frame_done(core, run.frame)


def _enough(core: RunCore, run: MapRun) -> bool:
    least = run.map.min_success
    if least is None or run.given >= least:
        return True
    if run.failed:
        first = min(run.failed)
        error = run.failed[first]
        add_note(
            error,
            f"map {run.map.edge} delivered {run.given} values and needs min_success={least}; item {first} failed first",
        )
    else:
        error = GraphError(
            f"map {run.map.edge} delivered {run.given} values and needs min_success={least}",
            hint="lower min_success, or give the source more items",
        )
    core.fail_scope(run.frame.scope, error, run.source)
    return False


def _give(core: RunCore, run: MapRun) -> None:
    """Deliver each gather's list."""
    stateful = run.frame.scope.program.state is not None
    for place, gather in enumerate(run.map.gathers):
        results = run.results[place]
        entries = [results[i] for i in sorted(results)]
        values = [_entry(core, gather, entry) for entry in entries]
        histories: list[History | None] = []
        if stateful:
            histories = [run.source.history, *(e[1].history for e in entries if e.__class__ is tuple)]
        joins.settle(core, gather, Gathered(run.source, histories), True, values)
    run.results = []


def _entry(core: RunCore, gather: CompiledEdge, entry: Arrival | Failure) -> Any:
    if isinstance(entry, Failure):
        return entry
    _, step, value = entry
    if step.shared and core.copies:
        return copy_value(value, where=step.node.name, warned=core.warned)
    return value
