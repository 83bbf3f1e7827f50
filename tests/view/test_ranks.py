"""The pure steps of the layout: which edges go back, rows, the main line, least length."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from graphrt.graph.view.layout_rank import going_back, main_line, ranks, sorted_topologically
from graphrt.graph.view.layout_simplex import Bar, shorten
from graphrt.graph.view.layout_tracks import Run, tracks

ARCS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=25)


@given(ARCS)
def test_without_the_edges_that_go_back_there_is_no_cycle(arcs: list[tuple[int, int]]) -> None:
    back = going_back(10, arcs, [0])
    forward = [arc for arc, turned in zip(arcs, back, strict=True) if not turned]
    assert len(sorted_topologically(10, forward)) == 10


@given(ARCS)
def test_every_edge_that_does_not_go_back_leads_to_a_lower_row(arcs: list[tuple[int, int]]) -> None:
    back = going_back(10, arcs, [])
    forward = [arc for arc, turned in zip(arcs, back, strict=True) if not turned]
    rank = ranks(10, forward, [9])
    assert all(rank[src] < rank[dst] for src, dst in forward)
    assert min(rank) == 0


def test_a_loop_goes_back_to_the_node_that_is_met_first() -> None:
    arcs = [(0, 1), (1, 2), (2, 1), (2, 3)]
    assert going_back(4, arcs, [0]) == [False, False, True, False]


def test_a_node_stands_next_to_the_only_one_that_needs_it() -> None:
    assert ranks(5, [(0, 1), (1, 2), (2, 3), (4, 3)], []) == [0, 1, 2, 3, 2]


def test_the_main_line_is_the_heaviest_path_and_stops_where_two_are_equal() -> None:
    arcs = [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 5), (1, 5)]
    line = main_line(6, arcs, [1] * len(arcs), [0] * 6)
    assert [arcs[number] for number in line.arcs] == [(0, 1), (4, 5)]
    assert {node: [arcs[number][1] for number in ways] for node, ways in line.leaving.items()} == {1: [2, 3]}
    assert {node: [arcs[number][0] for number in ways] for node, ways in line.entering.items()} == {4: [2, 3]}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 3)), min_size=1, max_size=8))
def test_least_length_keeps_the_distances_and_is_least(wishes: list[tuple[int, int, int]]) -> None:
    """Six points in a row, two apart: the best of all ways to stand, found by trying, is not better."""
    x = [2.0 * point for point in range(6)]
    bars = [Bar(point, point + 1, 2.0, 0) for point in range(5)]
    for one, other, weight in wishes:
        x.append(min(x[one], x[other]))
        bars += [Bar(len(x) - 1, one, 0.0, weight), Bar(len(x) - 1, other, 0.0, weight)]
    shorten(x, bars, 100)
    assert all(x[bar.head] - x[bar.tail] >= bar.length for bar in bars)
    cost = sum(weight * abs(x[one] - x[other]) for one, other, weight in wishes)
    assert cost == sum(weight * 2 * abs(one - other) for one, other, weight in wishes)


def test_least_length_brings_together_what_is_joined() -> None:
    x = [0.0, 10.0, 0.0]
    shorten(x, [Bar(0, 1, 2.0, 1), Bar(0, 2, 0.0, 5)], 10)
    assert (x[1] - x[0], x[2] - x[0]) == (2.0, 0.0)


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), max_size=12))
def test_runs_that_lie_side_by_side_have_tracks_of_their_own(ends: list[tuple[int, int]]) -> None:
    runs = [Run((float(up),), (float(down),)) for up, down in ends]
    found = tracks(runs)
    for one in range(len(runs)):
        for other in range(one):
            if runs[one].left <= runs[other].right and runs[other].left <= runs[one].right:
                assert found[one] != found[other]


def test_runs_from_one_node_do_not_cross() -> None:
    far, near = Run((7.0,), (200.0,)), Run((0.0,), (100.0,))
    assert tracks([near, far]) == [1, 0]
