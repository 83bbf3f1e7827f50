"""The compiler: from declarations to a checked, immutable `Program`."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

from graphrt.errors import GraphError, GraphTypeError
from graphrt.graph import bind, reach, typecheck
from graphrt.graph.annotations import unresolved_names
from graphrt.graph.binding import How
from graphrt.graph.checks import check_declared
from graphrt.graph.compiled import EdgeKind, Program
from graphrt.graph.protocols import HoldsGraph
from graphrt.graph.signature import MISSING
from graphrt.graph.structure import common_depth, lay_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphrt.graph.binding import Bind
    from graphrt.graph.compiled import CompiledEdge, CompiledMap, CompiledNode
    from graphrt.graph.declared import GraphDecl

    _Fits = Callable[[tuple[Any, Any]], bool]


def compile_graph(decl: GraphDecl) -> Program:
    """Check a declared graph and compile it.

    Raises:
        GraphError: The graph breaks a rule; the message names the nodes.
        GraphTypeError: Declared types do not fit along an edge.
    """
    check_declared(decl)
    program = lay_out(decl)
    if decl.state is not None:
        from graphrt.graph.statemodel import StateSpec

        program.state = StateSpec.of(decl.state)
    _check_reached(program)
    for node in program.nodes:
        _compile_node(program, node)
    for node in (program.start, *program.nodes):
        _find_choices(node)
    _check_iterators(program)
    _check_way_out(program)
    bind.bind_all(program)
    for node in program.nodes:
        _shortcut(node)
        if node.decl is not None and node.decl.cancel_rest:
            node.cancel_sets = _cancel_sets(program, node)
    _check_types(program)
    program.check_input = _check_of(decl.input)
    program.check_output = _check_of(decl.output)
    return program


def _check_of(declared: Any) -> Any:
    return typecheck.checker(dict) if isinstance(declared, dict) else typecheck.checker(declared)


def _check_reached(program: Program) -> None:
    lost = [n.name for n in program.nodes if n.region is None]
    if lost:
        raise GraphError(
            f"node{'s' if len(lost) > 1 else ''} {', '.join(map(repr, lost))} cannot be reached from START",
            hint="add an edge into it, or remove it",
        )
    members = {e for e in program.edges if e.kind is EdgeKind.MEMBER}
    for edge in members:
        if edge.gather is None:
            raise GraphError(f"gather {edge} closes no map", hint="open one first with map(source, ...)")


def _compile_node(program: Program, node: CompiledNode) -> None:
    decl = node.decl
    assert decl is not None
    if decl.join == "any":
        node.quorum = 1
    elif decl.join != "all":
        node.quorum = decl.join
        if decl.join > len(node.forward_in):
            raise GraphError(
                f"node {node.name!r} waits for {decl.join} edges and has {len(node.forward_in)}",
                hint=f"lower join to at most {len(node.forward_in)}, or add edges",
            )
    if type(decl.target) is not FunctionType and isinstance(decl.target, HoldsGraph):
        node.graph = decl.target.compiled_graph().program
        if decl.retry is not None:
            raise GraphError(
                f"node {node.name!r} holds a graph and has retry=",
                hint="put retry= on the nodes inside, so that finished ones are not run again",
            )


def _find_choices(node: CompiledNode) -> None:
    node.conditional = any(e.cond or e.map is not None for e in node.out)
    if node.conditional:
        node.branches = tuple(dict.fromkeys(e.decl.branch for e in node.out if e.decl.branch is not None))


def _check_iterators(program: Program) -> None:
    """Check that an iterator has one reader, a map, and that its map edge has no condition (E10a, E22)."""
    is_iterator = typecheck.remembered(typecheck.is_iterator_type)
    for node in program.nodes:
        decl = node.decl
        assert decl is not None
        signature = decl.signature
        node.lazy = signature.is_async_gen or signature.is_gen or is_iterator(signature.returns)
        if not node.lazy:
            continue
        if len(node.out) != 1 or node.out[0].map is None:
            raise GraphError(
                f"node {node.name!r} yields its items one by one, and what leaves it is not exactly one map",
                hint=f"read it by one map: map({node.name!r}, ...), or return a list",
            )
        edge = node.out[0]
        if decl.fallback:
            raise GraphError(
                f"node {node.name!r} yields its items one by one and has fallback=, which could only give others",
                hint="let it return a list, or handle the failure with an on_error edge",
            )
        if edge.cond:
            raise GraphError(
                f"map {edge} has when=, and its source yields items one by one",
                hint="a condition needs the whole value: return a list, or decide inside the node",
            )
        assert edge.map is not None
        edge.map.lazy = True


def _check_way_out(program: Program) -> None:
    before: dict[CompiledNode, list[CompiledNode]] = {}
    for edge in program.edges:
        before.setdefault(edge.dst, []).append(edge.src)
    good = reach.reaching([program.end], lambda n: before.get(n, ()))
    inner = [node for node in program.nodes if not node.side]
    for node in inner:
        if not node.out and not node.errors:
            raise GraphError(
                f"node {node.name!r} has no edge out of it",
                hint=f"add edge({node.name!r}, END), or declare it side=True if its value goes nowhere",
            )
    for node in inner:
        if node not in good:
            only_maps_to_sides = all(e.map is not None and not e.map.gathers for e in node.out) and not node.errors
            what = "leads into maps that nothing gathers" if only_maps_to_sides else "cannot reach END"
            raise GraphError(
                f"node {node.name!r} {what}",
                hint="lead it to END, or declare the last nodes of this branch side=True and give it another edge",
            )


def _shortcut(node: CompiledNode) -> None:
    """Find the one simple edge that is all there is to do when the node has succeeded."""
    node.feeds_copies = any(edge.dst.copies_inputs for edge in node.out)
    if node.conditional or node.errors or len(node.out) != 1:
        return
    edge = node.out[0]
    dst = edge.dst
    if edge.simple and len(dst.forward_in) == 1 and not (dst.decl and dst.decl.cancel_rest):
        node.next = edge


def _cancel_sets(program: Program, join: CompiledNode) -> tuple[frozenset[CompiledNode | CompiledMap], ...]:
    """Find what is useless once *join* has run: neither END nor a back edge around it is reached without it (E3).

    Nodes and maps, by how many of the cycles around *join* hold them too.
    """
    before: dict[CompiledNode, list[CompiledNode]] = {}
    targets = {program.end}
    for edge in program.edges:
        if edge.back and edge.dst.header_of in join.cycles:
            targets.add(edge.src)
        if edge.dst is not join and edge.src is not join:
            before.setdefault(edge.dst, []).append(edge.src)
    useful = reach.reaching(targets, lambda n: before.get(n, ()))
    sets: list[set[CompiledNode | CompiledMap]] = [set() for _ in range(join.depth + 1)]
    for node in program.nodes:
        if node.region is join.region and node is not join and not node.side and node not in useful:
            sets[common_depth(node.cycles, join.cycles)].add(node)
    for map_ in program.maps:
        source = map_.edge.src
        useless = [g.dst is join or (g.dst is not program.end and g.dst not in useful) for g in map_.gathers]
        if source.region is join.region and useless and all(useless):
            sets[common_depth(source.cycles, join.cycles)].add(map_)
    return tuple(map(frozenset, sets))


# ---------------------------------------------------------------- types


def _check_types(program: Program) -> None:
    unresolved = typecheck.remembered(unresolved_names)
    fits = typecheck.remembered(lambda pair: typecheck.fits(*pair))
    for node in program.nodes:
        for one in node.binder.binds:
            if one.param.annotation is MISSING or unresolved(one.param.annotation):
                continue
            if one.how is How.EDGES:
                for edge in one.edges:
                    _check_edge_type(program, edge, one, fits)
            elif one.how is How.INPUT:
                given = program.decl.input
                if one.part is not None:
                    given = given[one.part] if isinstance(given, dict) else given.model_fields[one.part].annotation
                _compare(given, one, "the run's input", fits)
            elif one.how is How.UPSTREAM:
                assert one.source is not None
                _compare(_returns(one.source), one, f"node {one.source.name!r}", fits)
    if isinstance(program.decl.output, dict):
        raise GraphTypeError(
            f"output of graph {program.name!r} is a dict, which is no type",
            hint="give a class, such as dict or a model",
        )
    for edge in program.end.forward_in:
        given = _carried_type(program, edge)
        if given is MISSING or (edge.src.decl is not None and edge.src.decl.signature.returns_none):
            continue
        if not fits((given, program.decl.output)):
            raise GraphTypeError(
                f"edge {edge} brings {typecheck.describe(given)}, and graph {program.name!r} declares "
                f"output {typecheck.describe(program.decl.output)}",
                hint="change the one or the other",
            )


def _returns(node: CompiledNode) -> Any:
    decl = node.decl
    return MISSING if decl is None else decl.signature.value_type


def _carried_type(program: Program, edge: CompiledEdge) -> Any:
    """Give the declared type of what an edge brings; MISSING when nothing is known."""
    if edge.kind is EdgeKind.ERROR:
        errors = edge.decl.errors
        return errors[0] if errors and len(errors) == 1 else MISSING
    if edge.kind is EdgeKind.GATHER:
        types = [_returns(m.src) for m in edge.members]
        known = [t for t in types if t is not MISSING]
        if len(known) != 1 or len(types) != 1 or (edge.map and edge.map.policy == "collect"):
            return list
        return list[known[0]]  # type: ignore[valid-type]  # a run-time annotation, only compared
    if edge.src is program.start:
        given = dict if isinstance(program.decl.input, dict) else program.decl.input
    else:
        given = _returns(edge.src)
    if edge.kind is EdgeKind.MAP and given is not MISSING:
        signature = edge.src.decl.signature if edge.src.decl is not None else None
        if typecheck.refuses_map(given):
            raise GraphTypeError(
                f"map {edge} reads {typecheck.describe(given)}, which is one value and not a list of items",
                hint="return a list: [text] for one item, text.splitlines() for lines, list(mapping.items()) for pairs",
            )
        if signature is not None and (signature.is_async_gen or signature.is_gen):
            return signature.item_type
        return typecheck.iterable_item_type(given)
    return given


def _check_edge_type(program: Program, edge: CompiledEdge, one: Bind, fits: _Fits) -> None:
    given = _carried_type(program, edge)
    if given is not MISSING and not (
        edge.src.decl is not None and edge.src.decl.signature.returns_none and one.param.optional
    ):
        _compare(given, one, edge, fits)


def _compare(given: Any, one: Bind, who: CompiledEdge | str, fits: _Fits) -> None:
    if given is MISSING or fits((given, one.param.annotation)):
        return
    who = who if isinstance(who, str) else f"edge {who}"
    raise GraphTypeError(
        f"{who} brings {typecheck.describe(given)}, and parameter {one.name!r} takes "
        f"{typecheck.describe(one.param.annotation)}",
        hint="change one of the two annotations, or put a node between that converts the value",
    )
