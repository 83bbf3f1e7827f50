from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations, pairwise

from hypothesis import given, settings

from graphrt.graph.view import Drawing, DrawnEdge, DrawnGroup, DrawnNode
from graphrt.graph.view.layout import Box, Layout, PlacedEdge, lay_out
from graphrt.graph.view.tidy import lineage, tidy
from tests.view.drawings import agent, busy, chain, drawings, layered

TOLERANCE = 0.5


def overlap(one: Box, other: Box) -> bool:
    return (
        one.left < other.right - TOLERANCE
        and other.left < one.right - TOLERANCE
        and one.top < other.bottom - TOLERANCE
        and other.top < one.bottom - TOLERANCE
    )


def holds(outer: Box, inner: Box) -> bool:
    return (
        outer.left <= inner.left + TOLERANCE
        and inner.right <= outer.right + TOLERANCE
        and outer.top <= inner.top + TOLERANCE
        and inner.bottom <= outer.bottom + TOLERANCE
    )


def around(layout: Layout, group: str | None) -> tuple[str, ...]:
    return lineage(group, {placed.group.id: placed.group.parent for placed in layout.groups})


def points(edge: PlacedEdge) -> Iterator[tuple[float, float]]:
    """Yield points along an edge, a few pixels apart; a curve counts as the line between its ends."""
    corners = [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)(?=[A-Z]|$)", edge.line.data)]
    for (left, top), (right, bottom) in pairwise(corners):
        steps = max(2, int((abs(right - left) + abs(bottom - top)) / 5))
        for step in range(steps + 1):
            yield left + (right - left) * step / steps, top + (bottom - top) * step / steps


@settings(max_examples=80)
@given(drawings() | busy())
def test_nodes_never_overlap(drawing: Drawing) -> None:
    for one, other in combinations(lay_out(tidy(drawing)).nodes, 2):
        assert not overlap(one.box, other.box), (one, other)


@settings(max_examples=80)
@given(drawings() | busy())
def test_a_frame_holds_its_own_nodes_and_no_others(drawing: Drawing) -> None:
    layout = lay_out(tidy(drawing))
    for frame in layout.groups:
        for placed in layout.nodes:
            if frame.group.id in around(layout, placed.node.group):
                assert holds(frame.box, placed.box)
            else:
                assert not overlap(frame.box, placed.box)


@settings(max_examples=80)
@given(drawings() | busy())
def test_frames_are_nested_or_apart(drawing: Drawing) -> None:
    layout = lay_out(tidy(drawing))
    for one, other in combinations(layout.groups, 2):
        if one.group.id in around(layout, other.group.id):
            assert holds(one.box, other.box)
        elif other.group.id in around(layout, one.group.id):
            assert holds(other.box, one.box)
        else:
            assert not overlap(one.box, other.box)


@settings(max_examples=80)
@given(drawings() | busy())
def test_labels_lie_neither_on_nodes_nor_on_each_other(drawing: Drawing) -> None:
    layout = lay_out(tidy(drawing))
    chips = [edge.chip for edge in layout.edges if edge.chip is not None]
    for chip, other in combinations(chips, 2):
        assert not overlap(chip, other)
    for chip in chips:
        assert not any(overlap(chip, placed.box) for placed in layout.nodes)


@settings(max_examples=50)
@given(drawings() | busy())
def test_edges_keep_clear_of_nodes_they_do_not_join(drawing: Drawing) -> None:
    layout = lay_out(tidy(drawing))
    for edge in layout.edges:
        for placed in layout.nodes:
            if placed.node.id not in {edge.edge.src, edge.edge.dst}:
                box = placed.box
                assert not any(
                    box.left + 1 < x < box.right - 1 and box.top + 1 < y < box.bottom - 1 for x, y in points(edge)
                )


def test_every_edge_with_a_label_has_a_place_for_it() -> None:
    layout = lay_out(tidy(agent()))
    assert [edge.edge.label for edge in layout.edges if edge.chip is not None] == [
        edge.label for edge in agent().edges if edge.label is not None
    ]


def test_edges_lead_down_and_those_that_go_back_lead_up_beside_their_cycle() -> None:
    layout = lay_out(tidy(agent()))
    boxes = {placed.node.id: placed.box for placed in layout.nodes}
    for edge in layout.edges:
        src, dst = boxes[edge.edge.src], boxes[edge.edge.dst]
        assert (src.bottom <= dst.top) == (edge.edge.kind != "back")
    [back] = [edge for edge in layout.edges if edge.edge.kind == "back"]
    assert back.chip is not None
    inner = [boxes[name] for name in ("inference", "reply", "call", "search", "read", "results")]
    lane = back.chip.left + back.chip.width / 2
    assert lane < min(box.left for box in inner) or lane > max(box.right for box in inner)


def test_the_main_line_is_straight() -> None:
    layout = lay_out(tidy(chain("a", "a much longer name", "c", "d")))
    assert len({placed.box.left + placed.box.width / 2 for placed in layout.nodes}) == 1
    assert all(re.fullmatch(r"M\S+ \S+L\S+ \S+", edge.line.data) for edge in layout.edges)


def test_a_fork_stands_above_the_middle_of_its_branches_also_in_a_row_of_forks() -> None:
    names = [("f1", "a", "a rather long name", "j1"), ("f2", "c", "another rather long name", "j2")]
    drawing = Drawing(
        "forks",
        tuple(DrawnNode(name) for four in names for name in four),
        (
            *(DrawnEdge(fork, way) for fork, one, other, _ in names for way in (one, other)),
            *(DrawnEdge(way, join) for _, one, other, join in names for way in (one, other)),
            DrawnEdge("j1", "f2"),
        ),
    )
    middle = {placed.node.id: placed.box.left + placed.box.width / 2 for placed in lay_out(tidy(drawing)).nodes}
    for fork, one, other, join in names:
        assert abs(middle[fork] - (middle[one] + middle[other]) / 2) <= 1
        assert abs(middle[join] - (middle[one] + middle[other]) / 2) <= 1
    assert abs(middle["j1"] - middle["f2"]) <= 1


def test_many_long_edges_to_one_node_share_a_line_and_few_do_not() -> None:
    names = [f"step{number}" for number in range(12)]
    for count, lines in ((3, 3), (9, 1)):
        drawing = Drawing(
            "x",
            (*(DrawnNode(name) for name in names), DrawnNode("END", kind="end")),
            (
                *(DrawnEdge(src, dst) for src, dst in pairwise(names)),
                *(DrawnEdge(name, "END", kind="error") for name in names[:count]),
            ),
        )
        errors = [edge for edge in lay_out(tidy(drawing)).edges if edge.edge.kind == "error"]
        assert len(errors) == count
        assert len({edge.line.head for edge in errors}) == lines


def test_more_edges_than_can_be_placed_with_care_are_placed_all_the_same() -> None:
    names = [f"n{number}" for number in range(16)]
    edges = tuple(DrawnEdge(src, dst) for src in names for dst in names if src != dst)
    layout = lay_out(tidy(Drawing("all", tuple(map(DrawnNode, names)), edges)))
    assert len(layout.edges) == 240
    assert not any(overlap(one.box, other.box) for one, other in combinations(layout.nodes, 2))


def test_the_end_stands_in_the_last_row() -> None:
    boxes = {placed.node.id: placed.box for placed in lay_out(tidy(agent())).nodes}
    assert boxes["END"].bottom >= max(box.bottom for box in boxes.values()) - boxes["results"].height


def test_a_group_without_nodes_has_no_frame_and_one_around_itself_has_one() -> None:
    drawing = Drawing(
        "x",
        (DrawnNode("a", group="one"),),
        groups=(DrawnGroup("empty"), DrawnGroup("one", parent="two"), DrawnGroup("two", parent="one")),
    )
    assert {frame.group.id for frame in lay_out(tidy(drawing)).groups} <= {"one", "two"}


def test_five_hundred_nodes_find_their_places() -> None:
    layout = lay_out(tidy(layered(25, 20)))
    rows: dict[float, list[Box]] = {}
    for placed in layout.nodes:
        rows.setdefault(placed.box.top, []).append(placed.box)
    assert len(rows) == 25
    for boxes in rows.values():
        boxes.sort(key=lambda box: box.left)
        assert all(left.right <= right.left for left, right in pairwise(boxes))
