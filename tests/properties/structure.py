"""Regions, cycles and what leads where: the static half of the reference interpreter.

A *region* is the root of a graph or the body of one of its maps. Inside a region a map and its body are one
arc, from the map's source to its gather. Everything is found by looking at everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.properties.description import END, INPUT, START, Edge, Gather, Graph, Map, Node, flatten

RegionKey = tuple[int, ...]
"""Positions of the maps around, outermost first."""


class InvalidDescriptionError(Exception):
    """The description is not a workflow that compiles."""


@dataclass(frozen=True, eq=False)
class Arc:
    """Something that settles once per scope and round: an edge, or a gather as seen from its map's source."""

    position: int
    """Place in declaration order; of a gather of several edges, that of the first."""
    src: str
    """`START` stands for what opens the region's scope."""
    dst: str
    """`END` stands for what the scope is gathered or ended by."""
    name: str
    """What the target calls the value."""
    edge: Edge | None = None
    map: int | None = None
    """Position of the map, when the arc is a gather."""
    group: tuple[int, str, str | None] | None = None
    """Map, target and `into` of the gather that the arc delivers to (inside a body), or is (outside)."""
    reporter: str = ""
    """Node under which the value of an arc into `END` is listed."""


@dataclass(frozen=True, eq=False)
class Cycle:
    """A strongly connected component, after the back edges of the cycles around it are removed."""

    header: str
    nodes: frozenset[str]
    around: tuple[Cycle, ...] = field(repr=False, default=())

    @property
    def depth(self) -> int:
        """How many counters a round of this cycle has."""
        return len(self.around) + 1


@dataclass
class Region:
    """Nodes that share a scope, and the arcs among them."""

    key: RegionKey
    nodes: dict[str, Node]
    """In declaration order."""
    arcs: list[Arc] = field(default_factory=list)
    chains: dict[str, tuple[Cycle, ...]] = field(default_factory=dict)
    """Cycles around each node, outermost first."""
    cycles: list[Cycle] = field(default_factory=list)
    """Every cycle, outer ones before inner ones."""
    _common: dict[Arc, int] = field(default_factory=dict)
    _forward: dict[str, list[Arc]] = field(default_factory=dict)
    _back: dict[Cycle, list[Arc]] = field(default_factory=dict)

    def freeze(self) -> None:
        """Work out what is asked again and again, once the cycles are known."""
        seen = {cycle: None for chain in self.chains.values() for cycle in chain}
        self.cycles = sorted(seen, key=lambda cycle: cycle.depth)
        self._common = {arc: self._count_common(arc) for arc in self.arcs}
        self._back = {
            cycle: [arc for arc in self.arcs if arc.dst == cycle.header and arc.src in cycle.nodes]
            for cycle in self.cycles
        }
        self._forward = {
            name: [arc for arc in self.arcs if arc.dst == name and not self.is_back(arc)] for name in self.nodes
        }

    def chain(self, node: str) -> tuple[Cycle, ...]:
        """Cycles around *node*, outermost first."""
        return self.chains.get(node, ())

    def common(self, arc: Arc) -> int:
        """Count the cycles that hold both ends of *arc*."""
        return self._common[arc]

    def _count_common(self, arc: Arc) -> int:
        one, other = self.chain(arc.src), self.chain(arc.dst)
        count = 0
        while count < min(len(one), len(other)) and one[count] == other[count]:
            count += 1
        return count

    def is_back(self, arc: Arc) -> bool:
        """Whether *arc* closes a cycle at its header."""
        chain = self.chain(arc.dst)
        return bool(chain) and chain[-1].header == arc.dst and chain[-1] in self.chain(arc.src)

    def back(self, cycle: Cycle) -> list[Arc]:
        """Back edges of *cycle*."""
        return self._back[cycle]

    def forward(self, node: str) -> list[Arc]:
        """Arcs into *node* that close no cycle at it."""
        return self._forward[node]

    def out(self, node: str) -> list[Arc]:
        """Arcs that leave *node*."""
        return [arc for arc in self.arcs if arc.src == node]

    def losers(self, join: str) -> set[str]:
        """Nodes that cannot reach `END` or a back edge of a cycle around *join*, except through *join*."""
        around = set(self.chain(join))
        found = set()
        for node in self.nodes:
            if node == join or self.nodes[node].side:
                continue
            reach = self._reach(node, without=join)
            ends = END in reach
            turns = any(
                arc.src in reach and self.is_back(arc) and self.chain(arc.dst)[-1] in around for arc in self.arcs
            )
            if not ends and not turns:
                found.add(node)
        return found

    def _reach(self, node: str, *, without: str) -> set[str]:
        reach, todo = {node}, [node]
        while todo:
            for arc in self.out(todo.pop()):
                if arc.dst not in reach and arc.dst != without:
                    reach.add(arc.dst)
                    todo.append(arc.dst)
        return reach


@dataclass
class Layout:
    """A graph, taken apart."""

    graph: Graph
    links: list[Edge | Map | Gather]
    regions: dict[RegionKey, Region]
    home: dict[str, RegionKey]
    maps: dict[int, list[tuple[int, str, str | None]]]
    """The gathers of each map, in declaration order of their first edge."""


def lay_out(graph: Graph) -> Layout:
    """Take *graph* apart.

    Raises:
        InvalidDescriptionError: It would not compile.
    """
    names = [node.name for node in graph.nodes]
    if len(set(names)) != len(names):
        raise InvalidDescriptionError("duplicate name")
    links = flatten(graph.links)
    home = _place(graph, links)
    regions = {key: Region(key, {}) for key in dict.fromkeys(home.values())}
    regions.setdefault((), Region((), {}))
    for node in graph.nodes:
        regions[home[node.name]].nodes[node.name] = node
    layout = Layout(graph, links, regions, home, {})
    _add_arcs(layout)
    for region in regions.values():
        _find_chains(region)
    _check(layout)
    return layout


def _place(graph: Graph, links: Sequence[Edge | Map | Gather]) -> dict[str, RegionKey]:
    """Find the region of every node, from `START` on."""
    home: dict[str, RegionKey] = {START: ()}
    changed = True
    while changed:
        changed = False
        for position, link in enumerate(links):
            if link.src not in home:
                continue
            place = home[link.src]
            if isinstance(link, Map):
                place = (*place, position)
            elif isinstance(link, Gather):
                if not place:
                    raise InvalidDescriptionError("a gather without its map")
                place = place[:-1]
            if link.dst == END:
                if place:
                    raise InvalidDescriptionError("an edge out of a map's body other than its gather")
            elif link.dst not in home:
                home[link.dst] = place
                changed = True
            elif home[link.dst] != place:
                raise InvalidDescriptionError("an edge across a map's border")
    del home[START]
    lost = [node.name for node in graph.nodes if node.name not in home]
    if lost:
        raise InvalidDescriptionError(f"unreachable: {lost}")
    return home


def _add_arcs(layout: Layout) -> None:
    grouped: dict[tuple[int, str, str | None], list[int]] = {}
    for position, link in enumerate(layout.links):
        place = () if link.src == START else layout.home[link.src]
        if isinstance(link, Edge):
            name = link.into or (INPUT if link.src == START else link.src)
            layout.regions[place].arcs.append(Arc(position, link.src, link.dst, name, link, reporter=link.src))
        elif isinstance(link, Map):
            name = link.into or (INPUT if link.src == START else link.src)
            layout.regions[(*place, position)].arcs.append(Arc(position, START, link.dst, name))
            layout.maps.setdefault(position, [])
        else:
            grouped.setdefault((place[-1], link.dst, link.into), []).append(position)
    for group, positions in grouped.items():
        map_position, dst, into = group
        sources = [layout.links[position].src for position in positions]
        outside = layout.home[sources[0]][:-1]
        inside = layout.regions[layout.home[sources[0]]]
        inside.arcs.extend(
            Arc(position, src, END, src, Edge(src, END), group=group)
            for position, src in zip(positions, sources, strict=True)
        )
        src, name = layout.links[map_position].src, into or sources[-1]
        layout.regions[outside].arcs.append(
            Arc(positions[0], src, dst, name, map=map_position, group=group, reporter=sources[-1])
        )
        layout.maps.setdefault(map_position, []).append(group)
    for region in layout.regions.values():
        region.arcs.sort(key=lambda arc: arc.position)


def _find_chains(region: Region) -> None:
    working = [name for name, node in region.nodes.items() if not node.side]
    region.chains = dict.fromkeys(working, ())
    _find_cycles(region, working, [arc for arc in region.arcs if arc.src in working and arc.dst in working], ())
    for name, node in region.nodes.items():
        if node.side:
            region.chains[name] = _shared([region.chain(arc.src) for arc in region.arcs if arc.dst == name])
    region.freeze()


def _shared(chains: Sequence[tuple[Cycle, ...]]) -> tuple[Cycle, ...]:
    """Cycles that all *chains* begin with."""
    shared = chains[0]
    for chain in chains[1:]:
        while shared != chain[: len(shared)]:
            shared = shared[:-1]
    return shared


def _find_cycles(region: Region, nodes: Sequence[str], arcs: Sequence[Arc], around: tuple[Cycle, ...]) -> None:
    reach = _closure(nodes, arcs)
    done: set[str] = set()
    for name in nodes:
        if name in done or name not in reach[name]:
            continue
        members = frozenset(other for other in reach[name] if name in reach[other])
        done |= members
        header = next(
            node
            for node in region.nodes
            if node in members and any(arc.dst == node and arc.src not in members for arc in region.arcs)
        )
        cycle = Cycle(header, members, around)
        for member in members:
            region.chains[member] = (*around, cycle)
        inner = [arc for arc in arcs if arc.src in members and arc.dst in members and arc.dst != header]
        _find_cycles(region, [node for node in nodes if node in members], inner, (*around, cycle))


def _closure(nodes: Iterable[str], arcs: Sequence[Arc]) -> dict[str, set[str]]:
    """Nodes that can be reached from each node over one arc or more."""
    reach = {name: {arc.dst for arc in arcs if arc.src == name} for name in nodes}
    changed = True
    while changed:
        changed = False
        for found in reach.values():
            more = {far for name in found for far in reach[name]} - found
            found.update(more)
            changed |= bool(more)
    return reach


def _check(layout: Layout) -> None:
    """Refuse what the compiler has to refuse, as far as descriptions can express it."""
    graph = layout.graph
    for node in graph.nodes:
        region = layout.regions[layout.home[node.name]]
        leaving = [link for link in layout.links if link.src == node.name]
        if node.side and leaving:
            raise InvalidDescriptionError(f"{node.name} is a side node with an outgoing edge")
        if not node.side and END not in region._reach(node.name, without=""):
            raise InvalidDescriptionError(f"{node.name} does not reach END")
        if isinstance(node.join, int) and not 1 <= node.join <= len(region.forward(node.name)):
            raise InvalidDescriptionError(f"{node.name} waits for more edges than it has")
    if not any(link.src == START for link in layout.links):
        raise InvalidDescriptionError("no entry")
    if any(not gathers for gathers in layout.maps.values()):
        raise InvalidDescriptionError("a map without a gather")
