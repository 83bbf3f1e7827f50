"""Random workflows that compile, as descriptions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from hypothesis import strategies as st

from tests.properties.description import (
    END,
    START,
    Always,
    Among,
    Bang,
    Boom,
    Branch,
    Crash,
    Edge,
    Field,
    Gather,
    Graph,
    Key,
    Link,
    Map,
    Mod,
    Node,
    Predicate,
    Raising,
    ScopeKey,
    State,
    Under,
    Work,
    flatten,
    hops,
    rest,
)
from tests.properties.reference import interpret
from tests.properties.structure import Layout, lay_out

T = TypeVar("T")

VALUE = 5
"""Input of every drawn workflow."""

STATES = (
    State("Notes", (Field("notes", "join"), Field("total", "add"))),
    State("Shared", (Field("notes", "join"), Field("last", "last"))),
)


@dataclass(frozen=True)
class Flavour:
    """What a random workflow may hold."""

    size: int = 6
    """Nodes of the root region, at most; bodies are smaller."""
    depth: int = 2
    """How deep maps and graphs may nest."""
    loops: bool = True
    races: bool = True
    """Joins that do not wait for all."""
    failures: bool = True
    states: bool = True
    inner: bool = True
    """Nodes that hold graphs."""
    wrong: bool = True
    """Conditions that raise and exits that may be taken twice."""


@dataclass
class _Draft:
    """A graph being drawn."""

    draw: Any
    flavour: Flavour
    names: list[str]
    """Names left, shared with the graphs inside."""
    nodes: list[Node] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)
    """Nodes whose failure leads somewhere, and which had better fail now and then."""

    def chance(self, percent: int) -> bool:
        """Draw a yes or no."""
        return bool(self.draw(st.integers(0, 99)) >= 100 - percent)

    def pick(self, options: list[T] | tuple[T, ...]) -> T:
        """Draw one of *options*; earlier ones are simpler."""
        picked: T = self.draw(st.sampled_from(options))
        return picked

    def new(self) -> str:
        """Add a node."""
        name = self.names.pop(0)
        self.nodes.append(Node(name))
        return name

    def change(self, name: str, **changes: Any) -> None:
        """Change a node."""
        place = next(place for place, node in enumerate(self.nodes) if node.name == name)
        self.nodes[place] = replace(self.nodes[place], **changes)

    def get(self, name: str) -> Node:
        """Give a node."""
        return next(node for node in self.nodes if node.name == name)

    # -- what leads where ---------------------------------------------------------------------------

    def region(self, size: int, depth: int, enter: Edge | Map, leave: Callable[[str], Link]) -> None:
        """Draw the nodes of one scope, from the link that enters it to the links that leave it."""
        names = [self.new()]
        self.links.append(replace(enter, dst=names[0]))
        ways: set[tuple[str, str]] = set()
        while len(names) < size:
            name = self.new()
            self.way(self.pick(names), name, depth, ways)
            names.append(name)
            if enter.src == START and self.chance(30):
                self.links.append(Edge(START, name))
        for _ in range(self.draw(st.integers(0, size + 1))):
            src, dst = self.pick(names), self.pick(names)
            if self.flavour.loops and self.chance(25):
                src, dst = max(src, dst, key=names.index), min(src, dst, key=names.index)
            forward = names.index(src) < names.index(dst)
            if (src, dst) not in ways and (forward or self.flavour.loops):
                self.way(src, dst, depth, ways)
        self.leave(names, ways, leave)
        if enter.src == START and depth > 0 and self.chance(8):
            self.mapped(self.pick(names), END, depth, set())
        if self.chance(20):
            log = self.new()
            self.change(log, side=True)
            for name in names:
                if name == names[-1] or self.chance(30):
                    self.links.append(Edge(name, log))

    def way(self, src: str, dst: str, depth: int, ways: set[tuple[str, str]]) -> None:
        """Draw an edge, an error edge, or a map with its body and its gather."""
        ways.add((src, dst))
        into = f"in_{src}" if self.chance(5) else None
        if depth > 0 and self.chance(20):
            self.mapped(src, dst, depth, ways)
        elif self.flavour.failures and self.chance(15):
            errors = self.pick(((Boom,), (Exception,), (Bang, Crash)))
            when = Always(self.chance(50)) if self.chance(20) else None
            self.links.append(Edge(src, dst, when, errors, into))
            self.failing.add(src)
            others = [other for one, other in ways if one != src and (src, other) not in ways]
            if others and self.chance(40):
                other = self.pick(others)
                ways.add((src, other))
                self.links.append(Edge(src, other, None, self.pick(((Exception,), (Boom,)))))
        else:
            self.links.append(Edge(src, dst, into=into))

    def mapped(self, src: str, dst: str, depth: int, ways: set[tuple[str, str]]) -> None:
        """Draw a map from *src*, its body, and its gather at *dst*; now and then a second gather."""
        self.change(src, work=Work("list", self.pick((2, 1, 3, 0, -3))))
        policy: Literal["fail", "skip", "collect"] = "fail"
        least = None
        if self.flavour.failures:
            policy = self.pick(("fail", "skip", "collect"))
            least = self.draw(st.integers(0, 2)) if self.chance(20) else None
        enter = Map(src, "", into="item" if self.chance(10) else None, on_error=policy, min_success=least)
        size = self.draw(st.integers(1, 2 if depth > 1 else 3))
        into = f"{src}_{dst}" if dst != END else None
        if self.chance(10):
            self.region(size, depth - 1, enter, lambda name: Gather(name, dst, into))
            return
        tail = self.new()  # one way out of the body, so that an item takes one gather edge
        self.region(size, depth - 1, enter, lambda name: Edge(name, tail))
        self.links.append(Gather(tail, dst, into))
        others = [other for one, other in ways if one != src and (src, other) not in ways]
        if others and self.chance(15):
            other = self.pick(others)
            ways.add((src, other))
            self.links.append(Gather(tail, other, f"{src}_{other}"))

    def leave(self, names: list[str], ways: set[tuple[str, str]], leave: Callable[[str], Link]) -> None:
        """Let every node of a region reach its end."""
        leaving: list[str] = []
        while True:
            reach = set(leaving)
            while more := {src for src, dst in ways if dst in reach} - reach:
                reach |= more
            lost = [name for name in names if name not in reach]
            if not lost:
                break
            leaving.append(lost[-1] if self.chance(70) else self.pick(lost))
        for name in names:
            if name not in leaving and self.chance(10):
                leaving.append(name)
        self.links.extend(leave(name) for name in leaving)

    # -- what the nodes do --------------------------------------------------------------------------

    def conditions(self) -> None:
        """Draw conditions: back edges that end, exits that are taken once, branches, and a few more."""
        layout = lay_out(self.graph())
        for place, link in enumerate(self.links):
            if isinstance(link, Map) or (isinstance(link, Edge) and not link.errors):
                self.links[place] = replace(link, when=self.condition(layout, place))
        for node in list(self.nodes):
            if self.chance(25):
                self.branch(node.name)

    def condition(self, layout: Layout, place: int) -> Predicate | None:
        """Draw the condition of one plain edge or map."""
        link = self.links[place]
        region = layout.regions[() if link.src == START else layout.home[link.src]]
        arcs = [
            arc for arc in region.out(link.src) if place in (arc.map, arc.position) and isinstance(link, Map | Edge)
        ]
        chain = region.chain(link.src)
        backs = [arc for arc in arcs if region.is_back(arc)]
        exits = [arc for arc in arcs if region.common(arc) < len(chain)]
        if exits and not (self.flavour.wrong and self.chance(5)):
            return Among()
        if backs and not (self.flavour.wrong and self.chance(5)):
            return Under(self.draw(st.integers(2, 9))) if self.chance(60) else Mod(2, 1)
        if link.src != START and self.flavour.failures and self.flavour.wrong and self.chance(4):
            return Raising(Mod(2))
        others = sum(other.src == link.src for other in self.links) > 1
        return Mod(self.pick((2, 3)), self.pick((0, 1))) if self.chance(20 if others else 3) else None

    def branch(self, name: str) -> None:
        """Turn the unconditional edges of a node into a branch."""
        mine = [
            link
            for link in self.links
            if isinstance(link, Edge) and link.src == name and link.when is None and not link.errors
        ]
        if len(mine) < 2:
            return
        place = self.links.index(mine[0])
        default = mine[-1].dst if self.chance(50) else None
        cases = mine[:-1] if default is not None else mine
        by = len(cases) + (1 if default is not None or (self.flavour.failures and self.chance(20)) else 0)
        branch = Branch(name, Key(by), tuple((key, edge.dst) for key, edge in enumerate(cases)), default)
        self.links = [link for link in self.links if link not in mine]
        self.links.insert(place, branch)

    def behaviours(self, state: State | None, depth: int) -> None:
        """Draw joins, failures, writes, and nodes that hold graphs."""
        layout = lay_out(self.graph())
        for node in list(self.nodes):
            region = layout.regions[layout.home[node.name]]
            forward = region.forward(node.name)
            back = [arc for arc in region.arcs if arc.dst == node.name and arc not in forward]
            if self.flavour.races and len(forward) + len(back) > 1 and self.chance(60 if len(back) > 1 else 35):
                join: Literal["any"] | int = "any" if self.chance(60) else self.draw(st.integers(1, len(forward)))
                self.change(node.name, join=join, cancel_rest=self.chance(40))
            if self.flavour.failures and self.chance(20):
                self.change(node.name, on_error="skip")
            free = isinstance(node.work, Work) and node.work.makes == "number" and not node.side
            if self.flavour.inner and free and depth > 0 and len(forward) <= 1 and len(back) <= 1 and self.chance(15):
                self.change(node.name, graph=self.inner(depth, state))
                continue
            self.work(node, state, bool(region.chain(node.name)))

    def work(self, node: Node, state: State | None, in_cycle: bool) -> None:
        """Draw what one function does."""
        work = node.work
        assert isinstance(work, Work)
        if in_cycle and work.makes == "list" and work.length <= 0 and self.chance(80):
            work = replace(work, length=2)  # an empty list has travelled no way: loops would not end by it
        if work.makes == "number" and self.chance(5):
            work = replace(work, makes="nothing")
        if self.flavour.failures and self.chance(60 if node.name in self.failing else 15):
            fails = Mod(self.pick((2, 3, 1)), 0)
            work = replace(work, fails=fails, error=self.pick((Boom, Bang, Crash)))
        if state is not None:
            written = tuple(one for one in state.fields if self.chance(40 if one.kind != "last" else 20))
            if not node.side and work.makes != "nothing":
                work = replace(work, writes=written)
            work = replace(work, reads=self.chance(40))
        self.change(node.name, work=replace(work, deaf=in_cycle))

    def inner(self, depth: int, state: State | None) -> Graph:
        """Draw a graph to stand for a node."""
        smaller = replace(self.flavour, size=min(3, self.flavour.size), depth=depth - 1)
        own = state if self.chance(60) else (STATES[0] if self.flavour.states and self.chance(50) else None)
        return _draw_graph(self.draw, smaller, self.names, own, f"g{len(self.names)}")

    def graph(self, **options: Any) -> Graph:
        """Give what was drawn so far."""
        return Graph("drawn", tuple(self.nodes), tuple(self.links), **options)


def _draw_graph(draw: Any, flavour: Flavour, names: list[str], state: State | None, name: str) -> Graph:
    draft = _Draft(draw, flavour, names)
    draft.region(
        draw(st.integers(min(3, flavour.size), flavour.size)),
        flavour.depth,
        Edge(START, ""),
        lambda src: Edge(src, END),
    )
    draft.nodes = draw(st.permutations(draft.nodes)) if draft.chance(60) else draft.nodes
    draft.links = draw(st.permutations(draft.links)) if draft.chance(40) else draft.links
    draft.conditions()
    draft.behaviours(state, flavour.depth)
    graph = draft.graph(state=state, max_rounds=draw(st.sampled_from((6, 2, 3, 4))))
    return replace(graph, name=name)


def _exits(graph: Graph) -> list[tuple[Graph, str, int, Among]]:
    """Every exit with a condition, inner graphs and inner cycles first: graph, source, cycles not left."""
    found = [exit_ for node in graph.nodes if node.graph is not None for exit_ in _exits(node.graph)]
    layout, mine = lay_out(graph), []
    for place, link in enumerate(layout.links):
        if isinstance(link, Edge | Map) and isinstance(link.when, Among):
            region = layout.regions[layout.home[link.src]]
            arcs = [arc for arc in region.out(link.src) if place in (arc.map, arc.position)]
            mine.append((graph, link.src, min(region.common(arc) for arc in arcs), link.when))
    return [*found, *sorted(mine, key=lambda exit_: -exit_[2])]


def _tune(draw: Any, graph: Graph, value: Any) -> None:
    """Choose for each exit the round that takes it, from what its source was seen to give."""
    which = draw(st.integers(0, 3))
    levels: dict[tuple[int, int], list[tuple[Graph, str, int, Among]]] = {}
    for exit_ in _exits(graph):
        levels.setdefault((id(exit_[0]), exit_[2]), []).append(exit_)
    for level in [*levels.values()] * 2:
        steps = interpret(graph, value, lambda running: running[0]).steps
        for _, src, kept, when in level:
            seen: dict[tuple[ScopeKey, tuple[int, ...]], list[tuple[int, int]]] = {}
            for (scope, node, rounds), end in steps.items():
                if node == src and end.state == "succeeded":
                    seen.setdefault((scope, rounds[:kept]), []).append((hops(end.value), rest(end.value)))
            for values in seen.values():
                if not when.values.intersection(values):
                    when.values.add(values[which % len(values)])


@st.composite
def graphs(draw: Any, flavour: Flavour | None = None) -> Graph:
    """Draw a workflow that compiles, to be run on `VALUE`."""
    wanted = flavour or Flavour()
    names = [f"n{number}" for number in range(200)]
    state = draw(st.sampled_from((None, *STATES))) if wanted.states else None
    graph = _draw_graph(draw, wanted, names, state, "root")
    _tune(draw, graph, VALUE)
    return graph


@st.composite
def spoiled(draw: Any, flavour: Flavour) -> Graph:
    """Draw a workflow and change one thing in it, so that it may not compile any more."""
    graph = _draw_graph(draw, replace(flavour, inner=False), [f"n{number}" for number in range(200)], None, "root")
    links, nodes = list(graph.links), list(graph.nodes)
    name = st.sampled_from([node.name for node in nodes])
    how = draw(st.sampled_from(("edge", "without", "gather", "map", "join", "side", "end")))
    known = {(link.src, link.dst) for link in flatten(links)}
    src, dst = draw(name), draw(name)
    place = draw(st.integers(0, len(links) - 1))
    if how == "without":
        del links[place]
    elif how == "end" and (src, END) not in known:
        links.append(Edge(src, END))
    elif how in ("join", "side"):
        spot = draw(st.integers(0, len(nodes) - 1))
        nodes[spot] = replace(nodes[spot], **({"join": 3} if how == "join" else {"side": True}))
    elif how != "end" and (src, dst) not in known:
        made: dict[str, Link] = {"edge": Edge(src, dst), "gather": Gather(src, dst, "more"), "map": Map(src, dst)}
        links.append(made[how])
    return replace(graph, links=tuple(links), nodes=tuple(nodes))
