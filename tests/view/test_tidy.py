from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from graphrt.graph.view import Drawing, DrawnEdge, DrawnGroup, DrawnNode
from graphrt.graph.view.tidy import DEEPEST, fold, lineage, tidy
from graphrt.graph.view.words import clip, printable, width
from tests.view.drawings import ODD_TEXTS, drawings


def staged(stages: int, nodes: int) -> Drawing:
    """Stages one after another, each a group in which another holds all but the first node."""
    return Drawing(
        "stages",
        tuple(
            DrawnNode(f"{stage}.{node}", group=f"in{stage}" if node else f"s{stage}", state="succeeded")
            for stage in range(stages)
            for node in range(nodes)
        ),
        tuple(DrawnEdge(f"{stage}.0", f"{stage}.{node}") for stage in range(stages) for node in range(1, nodes)),
        tuple(
            group
            for stage in range(stages)
            for group in (DrawnGroup(f"s{stage}"), DrawnGroup(f"in{stage}", f"inner {stage}", parent=f"s{stage}"))
        ),
    )


@given(drawings(ODD_TEXTS))
def test_tidying_is_done_once_and_for_all(drawing: Drawing) -> None:
    assert tidy(tidy(drawing)) == tidy(drawing)


@given(drawings())
def test_a_tidy_drawing_has_no_loose_ends(drawing: Drawing) -> None:
    neat = tidy(drawing)
    ids = [node.id for node in neat.nodes]
    assert len(ids) == len(set(ids))
    assert all(edge.src in ids and edge.dst in ids for edge in neat.edges)
    parents = {group.id: group.parent for group in neat.groups}
    held = {around for node in neat.nodes for around in lineage(node.group, parents)}
    assert held == set(parents)
    known: set[str | None] = {None}
    for group in neat.groups:
        assert group.parent in known
        known.add(group.id)


def test_the_first_of_two_nodes_with_one_id_is_kept() -> None:
    neat = tidy(Drawing("x", (DrawnNode("a", "first"), DrawnNode("b"), DrawnNode("a", "second"))))
    assert [node.label for node in neat.nodes] == ["first", "b"]


def test_edges_without_their_nodes_are_left_out() -> None:
    neat = tidy(Drawing("x", (DrawnNode("a"),), (DrawnEdge("a", "b"), DrawnEdge("b", "a"), DrawnEdge("a", "a"))))
    assert [(edge.src, edge.dst) for edge in neat.edges] == [("a", "a")]


def test_groups_far_inside_one_another_are_flattened() -> None:
    groups = tuple(DrawnGroup(f"g{n}", parent=f"g{n - 1}" if n else None) for n in range(3000))
    neat = tidy(Drawing("x", (DrawnNode("a", group="g2999"),), groups=groups))
    assert len(neat.groups) == DEEPEST
    assert neat.nodes[0].group == f"g{DEEPEST - 1}"


def test_a_small_drawing_is_not_folded() -> None:
    neat = tidy(staged(5, 10))
    assert fold(neat) is neat


def test_the_inner_groups_of_a_large_drawing_become_boxes_with_a_count() -> None:
    folded = fold(tidy(staged(10, 20)))
    assert len(folded.nodes) == 20
    box = next(node for node in folded.nodes if node.id == "in3")
    assert (box.kind, box.label, box.note, box.group) == ("folded", "inner 3", "19 nodes", "s3")
    assert [group.id for group in folded.groups] == [f"s{stage}" for stage in range(10)]
    assert [(edge.src, edge.dst) for edge in folded.edges] == [(f"{n}.0", f"in{n}") for n in range(10)]


def test_groups_are_closed_until_few_enough_nodes_are_left() -> None:
    folded = fold(tidy(staged(100, 4)), limit=150)
    assert len(folded.nodes) == 100
    assert {node.note for node in folded.nodes} == {"4 nodes"}
    assert not folded.groups


def test_a_closed_group_shows_the_state_that_most_needs_to_be_seen() -> None:
    nodes = tuple(
        DrawnNode(f"n{number}", group="g", state="failed" if number == 7 else "succeeded") for number in range(20)
    )
    [box] = fold(tidy(Drawing("x", nodes, groups=(DrawnGroup("g"),))), limit=10).nodes
    assert box.state == "failed"


def test_a_closed_group_keeps_its_id_apart_from_those_of_nodes() -> None:
    nodes = (DrawnNode("g"), DrawnNode("a", group="g"), DrawnNode("b", group="g"))
    folded = fold(tidy(Drawing("x", nodes, (DrawnEdge("g", "a"),), (DrawnGroup("g"),))), limit=2)
    assert [node.id for node in folded.nodes] == ["g", "g'"]
    assert [(edge.src, edge.dst) for edge in folded.edges] == [("g", "g'")]


@given(ODD_TEXTS)
def test_printable_text_is_one_line_that_can_be_seen(text: str) -> None:
    shown = printable(text)
    assert printable(shown) == shown
    assert shown == " ".join(shown.split())
    assert shown.encode().decode() == shown


def test_printable_text_shows_what_would_mislead() -> None:
    assert printable("a\u202eb\x1b[0m\ud800\n c") == r"a\u202eb\x1b[0m\ud800 c"
    assert printable("naïve 日本語 👩\u200d💻 עברית") == "naïve 日本語 👩\u200d💻 עברית"


@given(ODD_TEXTS, st.floats(8, 20), st.floats(20, 200))
def test_cut_text_fits(text: str, size: float, limit: float) -> None:
    cut = clip(printable(text), size, limit)
    assert width(cut, size) <= max(limit, width(cut[:1] + "…", size))
