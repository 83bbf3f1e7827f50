"""The other forms of a drawing: Mermaid, DOT, text, and what a notebook gets."""

from __future__ import annotations

import base64
import re

import pytest
from hypothesis import given, settings

from graphrt.graph.view import Drawing, DrawnEdge, DrawnGroup, DrawnNode, mimebundle, to_dot, to_mermaid, to_text
from graphrt.graph.view.tidy import tidy
from tests.view.drawings import ODD_TEXTS, agent, chain, drawings, layered, node_elements

MERMAID_EDGE = re.compile(r'    (\w+) (?:-->|-\.->|==>)(?:\|"[^"\n]*"\|)? (\w+)')
DOT_NAME = r'"(?:[^"\\]|\\.)*"'
DOT_EDGE = re.compile(rf"    {DOT_NAME} -> {DOT_NAME}(?: \[.*\])?")


@settings(max_examples=60)
@given(drawings(ODD_TEXTS))
def test_mermaid_lists_every_node_and_every_edge(drawing: Drawing) -> None:
    """AC-C19: a flowchart that lists every edge."""
    neat, lines = tidy(drawing), to_mermaid(drawing).splitlines()
    assert lines[0] == "flowchart TD"
    assert len([line for line in lines if MERMAID_EDGE.fullmatch(line)]) == len(neat.edges)
    shapes = [line for line in lines if re.match(r' +\w+(\(|\[|\{|>)[(\[/\\{]*"', line)]
    assert len(shapes) == len(neat.nodes)
    assert len([line for line in lines if re.match(r" +subgraph ", line)]) == len(neat.groups)
    assert len([line for line in lines if line.strip() == "end"]) == len(neat.groups)


def test_mermaid_names_nodes_by_their_ids_where_it_can() -> None:
    text = to_mermaid(agent())
    assert "    START --> inference\n" in text
    assert '    results -->|"next round"| inference\n' in text
    assert '    reply -->|"no tool calls"| END\n' in text
    assert '    inference(["✓ inference<br/>2 rounds"])\n' in text
    assert '    subgraph tools["each tool call"]\n' in text


@pytest.mark.parametrize(
    "id", ["end", "graph", "subgraph", "class", "call", "_parent", "1st", "", "a-b", "a b", 'a"b', "naïve", "x[0]"]
)
def test_mermaid_ids_are_words_that_mean_nothing_else(id: str) -> None:
    [line] = [line for line in to_mermaid(Drawing("x", (DrawnNode(id, "label"),))).splitlines() if "label" in line]
    word = line.strip().removesuffix('("label")')
    assert re.fullmatch("[A-Za-z][A-Za-z0-9_]*", word)
    assert word not in {"end", "graph", "subgraph", "class", "call"}


def test_mermaid_ids_stay_apart_when_they_would_look_alike() -> None:
    drawing = Drawing("x", (DrawnNode("a b"), DrawnNode("a-b"), DrawnNode("a_b")), groups=(DrawnGroup("a_b"),))
    words = re.findall(r"^ +(\w+)\(", to_mermaid(drawing), re.MULTILINE)
    assert words == ["a_b", "a_b_2", "a_b_3"]


def test_mermaid_text_cannot_end_its_label() -> None:
    text = to_mermaid(chain('say "hi" | <b> `x` #1; [a] {b}', "b"))
    assert 'say #34;hi#34; #124; #60;b#62; #96;x#96; #35;1#59; #91;a#93; #123;b#125;"' in text


@settings(max_examples=60)
@given(drawings(ODD_TEXTS))
def test_dot_lists_every_node_and_every_edge(drawing: Drawing) -> None:
    neat, lines = tidy(drawing), to_dot(drawing).splitlines()
    assert lines[0].startswith("digraph ")
    assert len([line for line in lines if DOT_EDGE.fullmatch(line)]) == len(neat.edges)
    assert len([line for line in lines if re.fullmatch(rf" +{DOT_NAME} \[label=.*\]", line)]) == len(neat.nodes)
    assert sum(line.count("{") - line.count("}") for line in map(_without_names, lines)) == 0


def _without_names(line: str) -> str:
    return re.sub(DOT_NAME, "", line)


def test_dot_escapes_quotes_backslashes_and_ampersands() -> None:
    text = to_dot(Drawing("x", (DrawnNode("a", 'q " b \\ e &lt; n'),)))
    assert r'label="q \" b \\ e &amp;lt; n"' in text


def test_large_drawings_are_listed_in_full() -> None:
    drawing = layered(25, 20)
    assert sum(" --> " in line for line in to_mermaid(drawing).splitlines()) == len(drawing.edges)
    assert sum(" -> " in line for line in to_dot(drawing).splitlines()) == len(drawing.edges)


@settings(max_examples=60)
@given(drawings(ODD_TEXTS))
def test_text_names_every_node(drawing: Drawing) -> None:
    text = to_text(drawing)
    for node in tidy(drawing).nodes:
        assert node.label[:50] in text.replace("\n   ", "")


def test_text_writes_a_run_of_nodes_on_one_line() -> None:
    assert to_text(chain("a", "b", "c")) == "chain\na → b → c\n"
    assert to_text(chain("a", "b", "c"), unicode=False) == "chain\na -> b -> c\n"


def test_text_tells_states_branches_groups_and_ways_back() -> None:
    assert to_text(agent()) == (
        "researcher\n"
        "running   · 2 pending   ▶ 1 running   ✓ 4 succeeded   ✗ 1 failed   » 1 skipped\n"
        "✓ START → ✓ inference (2 rounds) → » fallback → ✓ reply\n"
        "      tool calls ⇉ call\n"
        "      no tool calls → END (not taken)\n"
        "[each tool call]\n"
        "    ✓ call\n"
        "          search → search\n"
        "          read → read\n"
        "    ✗ search ⇒ results\n"
        "    ▶ read ⇒ results\n"
        "· results ↺(next round) inference\n"
        "· END\n"
    )


def test_long_runs_are_broken_and_long_drawings_cut() -> None:
    assert max(map(len, to_text(chain(*(f"node_number_{n}" for n in range(40)))).splitlines())) <= 100
    lines = to_text(Drawing("many", tuple(DrawnNode(f"n{n}") for n in range(400)))).splitlines()
    assert lines[-1] == "(and 161 more lines)"


def test_a_notebook_gets_an_image_with_its_data_inside_and_text() -> None:
    """AC-C19: an SVG data URI in ``text/html``, for trusted and untrusted pages alike."""
    bundle = mimebundle(agent())
    assert set(bundle) == {"text/html", "text/plain"}
    match = re.match(r'<img src="data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)" alt="researcher"', bundle["text/html"])
    assert match is not None
    assert len(node_elements(base64.b64decode(match[1]).decode())) == len(agent().nodes)
    assert bundle["text/plain"] == to_text(agent())


@given(ODD_TEXTS)
def test_a_name_cannot_leave_the_image_s_attribute(name: str) -> None:
    html = mimebundle(Drawing(name))["text/html"]
    assert re.fullmatch(r'<img src="[^"<>]*" alt="[^"<>]*" style="max-width:100%">', html)


def test_edges_of_each_kind_look_different_in_text_forms() -> None:
    edges = (DrawnEdge("a", "b", kind="error"), DrawnEdge("a", "b", kind="map"), DrawnEdge("a", "b"))
    drawing = Drawing("x", (DrawnNode("a"), DrawnNode("b")), edges)
    assert [line.split()[1] for line in to_mermaid(drawing).splitlines()[-3:]] == ["-.->", "==>", "-->"]
