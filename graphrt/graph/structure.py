"""From declarations to regions and cycles: where each node lies, and in which rounds each edge counts."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from graphrt.errors import GraphError
from graphrt.graph.compiled import (
    CompiledCycle,
    CompiledEdge,
    CompiledMap,
    CompiledNode,
    EdgeKind,
    Program,
    Region,
)
from graphrt.graph.declared import END, START, Edge, GraphDecl
from graphrt.graph.protocols import NodeKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence


def lay_out(decl: GraphDecl) -> Program:
    """Give every node its region, cycles and slot, and every edge its depth.

    Raises:
        GraphError: An edge crosses a map's border, a map lacks its body, or a cycle has no exit.
    """
    start = CompiledNode(-1, START.name, NodeKind.START, None)
    end = CompiledNode(-2, END.name, NodeKind.END, None)
    program = Program(decl, start, end)
    nodes = [CompiledNode(i, n.name, n.kind, n) for i, n in enumerate(decl.nodes.values())]
    program.nodes = tuple(nodes)
    program.by_name = {n.name: n for n in nodes}
    edges = _edges(program)
    _spread_regions(program, edges)
    program.edges = (*edges, *_gather_groups(program, edges))
    _connect(program)
    for region in _regions(program):
        _find_cycles(program, region)
    _place_side_nodes(program)
    _assign_slots(program)
    _set_depths(program)
    _set_needs(program)
    return program


def _edges(program: Program) -> list[CompiledEdge]:
    ends = {START: program.start, END: program.end}
    edges = []
    for i, d in enumerate(program.decl.edges):
        kind = EdgeKind.PLAIN
        if d.kind == "map":
            kind = EdgeKind.MAP
        elif d.kind == "gather":
            kind = EdgeKind.MEMBER
        elif d.errors is not None:
            kind = EdgeKind.ERROR
        src = program.by_name[d.src] if isinstance(d.src, str) else ends[d.src]
        dst = program.by_name[d.dst] if isinstance(d.dst, str) else ends[d.dst]
        edges.append(CompiledEdge(i, d, kind, src, dst))
    return edges


# ---------------------------------------------------------------- regions


def _spread_regions(program: Program, edges: Sequence[CompiledEdge]) -> None:
    """Walk from START and give each node the region it is reached in."""
    root = program.region
    program.start.region = program.end.region = root
    maps: list[CompiledMap] = []
    for edge in edges:
        if edge.kind is EdgeKind.MAP:
            edge.map = CompiledMap(len(maps), edge, edge.decl)
            maps.append(edge.map)
    program.maps = tuple(maps)
    leaving: dict[CompiledNode, list[CompiledEdge]] = {}
    for edge in edges:
        leaving.setdefault(edge.src, []).append(edge)
    queue = deque([program.start])
    first: dict[CompiledNode, CompiledEdge] = {}
    while queue:
        node = queue.popleft()
        for edge in leaving.get(node, ()):
            region = _region_after(edge, node.region)
            if edge.dst is program.end:
                if region is not root:
                    raise _border(edge, None)
            elif edge.dst.region is None:
                edge.dst.region = region
                first[edge.dst] = edge
                queue.append(edge.dst)
            elif edge.dst.region is not region:
                raise _two_regions(edge, region, first[edge.dst])
    _name_maps(maps)


def _region_after(edge: CompiledEdge, region: Region) -> Region:
    if edge.kind is EdgeKind.MAP:
        assert edge.map is not None
        if edge.dst.kind is NodeKind.END:
            raise GraphError(
                f"map from {edge.src.name!r} ends at END, which is no node",
                hint="map to a node that does the work for one item, then gather it: gather(node, END)",
            )
        if edge.map.body is None:
            edge.map.body = Region(region, edge.map)
        return edge.map.body
    if edge.kind is EdgeKind.MEMBER:
        if region.parent is None:
            raise GraphError(
                f"gather from {edge.src.name!r} to {edge.dst.name!r} closes no map",
                hint=f"open one first with map(source, ...), or use edge({edge.src.name!r}, {edge.dst.name!r})",
            )
        return region.parent
    return region


def _border(inner: CompiledEdge, outer: CompiledEdge | None) -> GraphError:
    src, dst = inner.src.name, inner.dst.name
    also = f": {dst!r} is also reached from outside the map, by {outer}" if outer is not None else ""
    return GraphError(
        f"edge {inner} crosses the border of a map{also}",
        hint=f"what leaves a map's body is gathered, as by gather({src!r}, {dst!r}), and its map edge alone leads in",
    )


def _two_regions(edge: CompiledEdge, region: Region, first: CompiledEdge) -> GraphError:
    known = edge.dst.region
    if edge.kind is EdgeKind.MAP and known.map is not None:
        return GraphError(
            f"two maps lead into {edge.dst.name!r}: {known.map.edge} and {edge}",
            hint="give each map a body of its own; the same function may be added twice under two names",
        )
    map_edge = next((e for e in (edge, first) if e.kind is EdgeKind.MAP), None)
    if map_edge is not None:
        other = first if map_edge is edge else edge
        return GraphError(
            f"map {map_edge} leads into a node that is also reached without the map, by {other}",
            hint="a map's body is entered by its map edge only; add the node a second time under another name",
        )
    inside_first = _depth(known) > _depth(region)
    return _border(first, edge) if inside_first else _border(edge, first)


def _depth(region: Region) -> int:
    depth = 0
    while region.parent is not None:
        region = region.parent
        depth += 1
    return depth


def _name_maps(maps: Iterable[CompiledMap]) -> None:
    seen: dict[CompiledNode, list[CompiledMap]] = {}
    for m in maps:
        seen.setdefault(m.edge.src, []).append(m)
    for group in seen.values():
        if len(group) > 1:
            for m in group:
                m.tag = f"{m.edge.src.quoted}>{m.edge.dst.quoted}"


def _gather_groups(program: Program, edges: Sequence[CompiledEdge]) -> list[CompiledEdge]:
    """Make one edge of all gather edges of one map with the same target and name."""
    groups: dict[tuple[CompiledMap, CompiledNode, str | None], list[CompiledEdge]] = {}
    for edge in edges:
        if edge.kind is EdgeKind.MEMBER and edge.src.region is not None:
            of_map = edge.src.region.map
            assert of_map is not None
            groups.setdefault((of_map, edge.dst, edge.decl.into), []).append(edge)
    made = []
    for (of_map, dst, into), members in groups.items():
        source = of_map.edge.src
        d = Edge(of_map.edge.decl.src, members[0].decl.dst, "gather", into=into, label=members[0].decl.label)
        gather = CompiledEdge(members[0].index, d, EdgeKind.GATHER, source, dst)
        gather.cond = of_map.edge.cond
        gather.map = of_map
        gather.members = tuple(members)
        gather.name = into or members[-1].src.name
        for member in members:
            member.gather = gather
        of_map.gathers += (gather,)
        made.append(gather)
    return made


def _connect(program: Program) -> None:
    """Hang every edge on its ends, in declaration order."""
    out: dict[CompiledNode, list[CompiledEdge]] = {}
    into: dict[CompiledNode, list[CompiledEdge]] = {}
    errors: dict[CompiledNode, list[CompiledEdge]] = {}
    for edge in sorted(program.edges, key=lambda e: e.index):
        if edge.kind is EdgeKind.ERROR:
            errors.setdefault(edge.src, []).append(edge)
        elif edge.kind is not EdgeKind.GATHER:
            out.setdefault(edge.src, []).append(edge)
        if edge.kind is not EdgeKind.MEMBER:
            into.setdefault(edge.dst, []).append(edge)
    for node in (program.start, *program.nodes, program.end):
        node.out = tuple(out.get(node, ()))
        node.errors = tuple(errors.get(node, ()))
        node.forward_in = tuple(into.get(node, ()))


def _regions(program: Program) -> list[Region]:
    return [program.region, *(m.body for m in program.maps if m.body is not None)]


# ---------------------------------------------------------------- cycles


def _find_cycles(program: Program, region: Region) -> None:
    nodes = [n for n in program.nodes if n.region is region]
    inside = set(nodes)
    succ: dict[CompiledNode, list[CompiledEdge]] = {n: [] for n in nodes}
    for edge in program.edges:
        if edge.kind not in (EdgeKind.MAP, EdgeKind.MEMBER) and edge.src in inside and edge.dst in inside:
            succ[edge.src].append(edge)
    region.cycles = tuple(_cycles_among(program, nodes, succ, None))


def _cycles_among(
    program: Program,
    nodes: Sequence[CompiledNode],
    succ: dict[CompiledNode, list[CompiledEdge]],
    parent: CompiledCycle | None,
) -> list[CompiledCycle]:
    """Find the cycles among *nodes*, outermost first, and remove their back edges to find those inside."""
    found: list[CompiledCycle] = []
    for part in _components(nodes, lambda n: [e.dst for e in succ[n] if not e.back]):
        members = set(part)
        if len(part) == 1 and not any(e.dst is part[0] and not e.back for e in succ[part[0]]):
            continue
        ordered = [n for n in nodes if n in members] if len(part) > 1 else part
        header = next(
            (n for n in ordered if any(e.src not in members for e in n.forward_in if not e.back)),
            ordered[0],
        )
        cycle = CompiledCycle(header, parent.level + 1 if parent else 1, parent)
        found.append(cycle)
        for node in ordered:
            node.cycles = (*node.cycles, cycle)
            for edge in succ[node]:
                if edge.dst is header:
                    edge.back = True
        header.header_of = cycle
        _check_exit(cycle, ordered, members)
        cycle.inner = tuple(_cycles_among(program, ordered, {n: succ[n] for n in ordered}, cycle))
    return sorted(found, key=lambda c: c.header.index)


def _check_exit(cycle: CompiledCycle, ordered: Sequence[CompiledNode], members: Collection[CompiledNode]) -> None:
    for node in ordered:
        for edge in (*node.out, *node.errors):
            if edge.kind is EdgeKind.MAP:
                assert edge.map is not None
                if any(g.dst not in members and not g.dst.side for g in edge.map.gathers):
                    return
            elif edge.dst not in members and not edge.dst.side:
                return
    names = " -> ".join(repr(n.name) for n in ordered)
    raise GraphError(
        f"cycle {names} has no exit",
        hint=f"add an edge that leaves it, such as edge({ordered[-1].name!r}, END, when=...)",
    )


def _components(
    nodes: Sequence[CompiledNode], after: Callable[[CompiledNode], list[CompiledNode]]
) -> list[list[CompiledNode]]:
    """Tarjan's strongly connected components (SIAM J. Comput. 1(2), 1972), without recursion."""
    known = set(nodes)
    order: dict[CompiledNode, int] = {}
    low: dict[CompiledNode, int] = {}
    stack: list[CompiledNode] = []
    on_stack: set[CompiledNode] = set()
    parts: list[list[CompiledNode]] = []
    for root in nodes:
        if root in order:
            continue
        work = [(root, iter(after(root)))]
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, following = work[-1]
            for dst in following:
                if dst not in known:
                    continue
                if dst not in order:
                    order[dst] = low[dst] = len(order)
                    stack.append(dst)
                    on_stack.add(dst)
                    work.append((dst, iter(after(dst))))
                    break
                if dst in on_stack:
                    low[node] = min(low[node], order[dst])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    part = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        part.append(member)
                        if member is node:
                            break
                    parts.append(part)
    return parts


def common_depth(a: tuple[CompiledCycle, ...], b: tuple[CompiledCycle, ...]) -> int:
    """Count the cycles that hold both, given the cycles around each, outermost first."""
    depth = 0
    for x, y in zip(a, b, strict=False):
        if x is not y:
            break
        depth += 1
    return depth


def _place_side_nodes(program: Program) -> None:
    """Put each side node into the cycles that hold all its sources."""
    for node in program.nodes:
        if node.side and not node.cycles and node.forward_in:
            sources = [e.src.cycles if e.kind is not EdgeKind.MAP else () for e in node.forward_in]
            depth = min(common_depth(sources[0], other) for other in sources)
            node.cycles = sources[0][:depth]


# ---------------------------------------------------------------- slots, depths, needs


def _assign_slots(program: Program) -> None:
    direct: dict[object, list[CompiledNode]] = {}
    for node in program.nodes:
        node.depth = len(node.cycles)
        if node.region is not None:
            place = node.cycles[-1] if node.cycles else node.region
            slots = direct.setdefault(place, [])
            node.slot = len(slots)
            slots.append(node)
    for region in _regions(program):
        region.nodes = tuple(direct.get(region, ()))
        region.width = len(region.nodes) + len(region.cycles)
        for cycle in _all_cycles(region.cycles):
            cycle.nodes = tuple(direct.get(cycle, ()))
            cycle.width = len(cycle.nodes) + len(cycle.inner)


def _all_cycles(cycles: Iterable[CompiledCycle]) -> list[CompiledCycle]:
    found = []
    for cycle in cycles:
        found.append(cycle)
        found.extend(_all_cycles(cycle.inner))
    return found


def _set_depths(program: Program) -> None:
    exits: dict[CompiledCycle, list[CompiledEdge]] = {}
    for edge in program.edges:
        kind, src, dst = edge.kind, edge.src, edge.dst
        if kind is EdgeKind.MAP:
            continue
        if kind is not EdgeKind.MEMBER and src.cycles and dst.cycles:
            edge.depth = common_depth(src.cycles, dst.cycles)
        if edge.depth < src.depth:
            exits.setdefault(src.cycles[edge.depth], []).append(edge)
        if (kind is EdgeKind.PLAIN or kind is EdgeKind.ERROR) and dst is not program.end and not edge.back:
            edge.simple = edge.depth == src.depth == dst.depth
    for cycle, edges in exits.items():
        cycle.exits = tuple(sorted(edges, key=lambda e: e.index))


def _set_needs(program: Program) -> None:
    for node in (*program.nodes, program.end):
        if not node.depth:  # outside cycles every edge counts, and none leads back
            node.need = (len(node.forward_in),)
            continue
        node.back_in = tuple(e for e in node.forward_in if e.back)
        node.forward_in = tuple(e for e in node.forward_in if not e.back)
        node.need = tuple(sum(e.depth >= m for e in node.forward_in) for m in range(node.depth + 1))
    for region in _regions(program):
        region.zero = tuple(n.need[0] for n in region.nodes)
        for cycle in _all_cycles(region.cycles):
            levels = range(cycle.level + 1)
            cycle.zero = tuple(tuple(n.need[m] for n in cycle.nodes) for m in levels)
            heads = [inner.header for inner in cycle.inner]
            cycle.orphans = tuple(tuple(n for n in heads if n.need[m] == 0) for m in levels)
