"""What always lies before what, against a search that takes the node in question out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.graph.compiled import CompiledNode, EdgeKind, Program
from graphrt.graph.reach import Paths
from tests.properties.building import build
from tests.properties.description import Graph
from tests.properties.graphs import Flavour, graphs


def programs(program: Program) -> Iterator[Program]:
    """Give a graph and the graphs inside it."""
    found: list[Program] = []
    program.walk(found.append)
    return iter(found)


def reached_without(program: Program, source: CompiledNode) -> set[CompiledNode]:
    """Walk from START, leaving *source* by its error edges only."""
    seen, todo = {program.start}, [program.start]
    while todo:
        node = todo.pop()
        for edge in program.edges:
            leaves = edge.src is node and (node is not source or edge.kind is EdgeKind.ERROR)
            if leaves and edge.dst not in seen:
                seen.add(edge.dst)
                todo.append(edge.dst)
    return seen


@settings(max_examples=25)
@given(st.sampled_from((Flavour(), Flavour(races=False))).flatmap(graphs))
def test_a_node_is_always_before_another_if_nothing_else_leads_there(graph: Graph) -> None:
    for program in programs(build(graph).compile().program):
        paths = Paths(program)
        for source, node in product(program.nodes, program.nodes):
            if source is not node:
                assert paths.always_before(source, node) == (node not in reached_without(program, source))


@settings(max_examples=25)
@given(graphs(Flavour()))
def test_nearest_node_before_another_is_after_all_the_others_before_it(graph: Graph) -> None:
    for program in programs(build(graph).compile().program):
        paths = Paths(program)
        for node in program.nodes:
            nearest = paths.dominators.nearest(node)
            before = [n for n in program.nodes if n is not node and paths.always_before(n, node)]
            assert nearest is program.start if not before else nearest in before
            assert all(n is nearest or paths.always_before(n, nearest) for n in before)
