from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings

from graphrt.graph.view import Drawing, DrawnEdge, DrawnNode, to_svg
from graphrt.graph.view.drawing import NODE_KINDS, NODE_STATES
from graphrt.graph.view.shapes import MARKS
from graphrt.graph.view.tidy import tidy
from tests.view.drawings import ODD_TEXTS, SVG, agent, chain, drawings, layered, node_elements, parse


@settings(max_examples=60)
@given(drawings(ODD_TEXTS))
def test_any_drawing_is_well_formed_and_names_every_node(drawing: Drawing) -> None:
    """AC-C19: the picture names every node."""
    elements = node_elements(to_svg(drawing))
    assert sorted(element.findtext(f"{SVG}title", "").splitlines()[0].rsplit(" (", 1)[0] for element in elements) == (
        sorted(node.label for node in tidy(drawing).nodes)
    )


@settings(max_examples=60)
@given(drawings(ODD_TEXTS))
def test_a_picture_holds_no_script_and_nothing_from_elsewhere(drawing: Drawing) -> None:
    for element in parse(to_svg(drawing)).iter():
        assert element.tag.removeprefix(SVG) in {"svg", "title", "style", "g", "rect", "circle", "path", "text"}
        for name in element.attrib:
            assert not name.startswith("on")
            assert "href" not in name
        if element.tag == f"{SVG}style":
            assert "url(" not in (element.text or "")
            assert "@import" not in (element.text or "")


def test_an_empty_drawing_is_a_picture() -> None:
    assert parse(to_svg(Drawing())).tag == f"{SVG}svg"


@pytest.mark.parametrize(
    "text",
    ["</text><script>alert(1)</script>", '" onload="alert(1)', "\x00\x1b[31m", "\ud800", "\u202egpj.exe", "\ufffe"],
)
def test_text_cannot_leave_its_place_or_hide(text: str) -> None:
    drawing = Drawing(text, (DrawnNode(text, note=text, title=text),), (DrawnEdge(text, text, text),), status=text)
    svg = to_svg(drawing)
    assert "<script" not in svg
    assert not re.search("[\x00-\x08\x0b-\x1f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]", svg)
    assert len(node_elements(svg)) == 1


def test_a_node_tells_id_state_and_kind_in_attributes() -> None:
    elements = {element.attrib["data-node"]: element for element in node_elements(to_svg(agent()))}
    assert {id: element.attrib["data-state"] for id, element in elements.items()} == {
        node.id: node.state for node in agent().nodes
    }
    assert elements["search"].attrib["class"] == "node k-tool"
    assert "data-state" not in node_elements(to_svg(chain("a")))[0].attrib


def test_an_edge_tells_ends_kind_and_whether_it_was_taken() -> None:
    found = {
        (element.attrib["data-src"], element.attrib["data-dst"]): element.attrib
        for element in parse(to_svg(agent())).iter(f"{SVG}g")
        if "data-src" in element.attrib
    }
    assert set(found) == {(edge.src, edge.dst) for edge in agent().edges}
    assert found["reply", "call"]["class"] == "edge e-map"
    assert found["reply", "call"]["data-taken"] == "yes"
    assert found["reply", "END"]["data-taken"] == "no"
    assert "data-taken" not in found["call", "search"]


@pytest.mark.parametrize("state", NODE_STATES)
def test_a_state_is_told_by_a_mark_and_not_by_colour_alone(state: str) -> None:
    [element] = node_elements(to_svg(Drawing("x", (DrawnNode("a", state=state),))))
    marks = [path.attrib["d"] for path in element.iter(f"{SVG}path") if path.attrib.get("class") == "mark"]
    assert marks == [MARKS[state]]
    assert len(set(MARKS.values())) == len(NODE_STATES)


def test_every_kind_has_a_shape_of_its_own() -> None:
    shapes = set()
    for kind in NODE_KINDS:
        [element] = node_elements(to_svg(Drawing("x", (DrawnNode("a", "label", kind),))))
        drawn = [child for child in element.iter() if child.attrib.get("class") in {"shape", "icon"}]
        text = " ".join(sorted({f"{child.tag} {child.attrib.get('rx')} {child.attrib.get('d')}" for child in drawn}))
        shapes.add(re.sub(r"(?<![\d.])-?\d{2,}(\.\d)?", "#", text) + str(kind == "start"))
    assert len(shapes) == len(NODE_KINDS)


def test_a_long_name_is_cut_and_told_in_full_where_the_pointer_rests() -> None:
    name = "a_name_that_goes_on_and_on_and_does_not_fit_into_any_box_whatever_one_does"
    [element] = node_elements(to_svg(Drawing("x", (DrawnNode(name, title="what it is for"),))))
    [label] = [text.text for text in element.iter(f"{SVG}text")]
    assert label is not None
    assert label.endswith("…")
    assert len(label) < len(name)
    assert element.findtext(f"{SVG}title") == f"{name} (function)\nwhat it is for"


def test_both_sides_of_a_condition_are_labelled() -> None:
    drawing = Drawing(
        "x",
        (DrawnNode("ask", kind="router"), DrawnNode("a"), DrawnNode("b")),
        (DrawnEdge("ask", "a", "yes", "conditional"), DrawnEdge("ask", "b", "no", "conditional")),
    )
    chips = [group for group in parse(to_svg(drawing)).iter(f"{SVG}g") if group.attrib.get("class") == "chip"]
    assert sorted(group.findtext(f"{SVG}text", "") for group in chips) == ["no", "yes"]


def test_the_reader_s_system_chooses_between_light_and_dark_unless_told() -> None:
    auto, light, dark = (to_svg(agent(), theme=theme) for theme in ("auto", "light", "dark"))
    assert "prefers-color-scheme:dark" in auto
    assert "prefers-color-scheme" not in light + dark
    assert light != dark
    assert to_svg(agent(), theme="unheard-of") == auto


def test_the_run_is_summed_up_under_the_name() -> None:
    texts = [element.text for element in parse(to_svg(agent())).iter(f"{SVG}text")]
    assert texts[:3] == ["researcher", "running", "2 pending"]
    plain = replace(agent(), status=None, nodes=tuple(replace(node, state=None) for node in agent().nodes))
    assert "running" not in [element.text for element in parse(to_svg(plain)).iter(f"{SVG}text")]


def test_a_picture_of_five_hundred_nodes_names_them_all() -> None:
    assert len(node_elements(to_svg(layered(25, 20)))) == 500


def test_the_same_drawing_gives_the_same_picture_in_every_process() -> None:
    program = (
        "from tests.view.drawings import agent, layered\n"
        "from graphrt.graph.view import to_svg\n"
        "print(to_svg(agent()), to_svg(layered(6, 6)))"
    )
    pictures = {
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUTF8": "1"},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(pictures) == 1
