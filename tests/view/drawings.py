"""Drawings that the tests share: named ones, and any that hypothesis comes up with."""

from __future__ import annotations

import random
from itertools import pairwise
from xml.etree import ElementTree as ET

from hypothesis import strategies as st

from graphrt.graph.view import Drawing, DrawnEdge, DrawnGroup, DrawnNode
from graphrt.graph.view.drawing import EDGE_KINDS, GROUP_KINDS, NODE_KINDS, NODE_STATES

SVG = "{http://www.w3.org/2000/svg}"

NODE_IDS = st.sampled_from([f"n{number}" for number in range(14)])
GROUP_IDS = st.sampled_from([f"g{number}" for number in range(5)])
TEXTS = st.text(max_size=30) | st.sampled_from(["", "a", "yes", "when the answer is long", "search_documents"])
ODD_TEXTS = st.text(st.characters(), max_size=40) | st.sampled_from(
    [
        "<b>&amp;</b>",
        '"]]>',
        "\x00\x1b[31m",
        "\ud800",
        "\u202eevil\u2066",
        "\ufffe\uffff",
        "a\nb\tc",
        "日本語",
        "👩\u200d💻",
    ]
)


def nodes(texts: st.SearchStrategy[str] = TEXTS) -> st.SearchStrategy[DrawnNode]:
    """Nodes with few ids, so that some are doubled, and in groups that may be missing."""
    return st.builds(
        DrawnNode,
        id=NODE_IDS,
        label=texts,
        kind=st.sampled_from((*NODE_KINDS, "unheard-of")),
        group=st.none() | GROUP_IDS,
        state=st.none() | st.sampled_from((*NODE_STATES, "unheard-of")),
        note=st.none() | texts,
        title=st.none() | texts,
    )


def edges(texts: st.SearchStrategy[str] = TEXTS) -> st.SearchStrategy[DrawnEdge]:
    return st.builds(
        DrawnEdge,
        src=NODE_IDS,
        dst=NODE_IDS,
        label=st.none() | texts,
        kind=st.sampled_from((*EDGE_KINDS, "unheard-of")),
        taken=st.none() | st.booleans(),
    )


def groups(texts: st.SearchStrategy[str] = TEXTS) -> st.SearchStrategy[DrawnGroup]:
    return st.builds(
        DrawnGroup,
        id=GROUP_IDS,
        label=texts,
        kind=st.sampled_from((*GROUP_KINDS, "unheard-of")),
        parent=st.none() | GROUP_IDS,
    )


def drawings(texts: st.SearchStrategy[str] = TEXTS) -> st.SearchStrategy[Drawing]:
    """Any drawing at all: with doubled ids, edges to nowhere, loops, cycles, groups around themselves."""
    return st.builds(
        Drawing,
        name=texts,
        nodes=st.lists(nodes(texts), max_size=14).map(tuple),
        edges=st.lists(edges(texts), max_size=22).map(tuple),
        groups=st.lists(groups(texts), max_size=6).map(tuple),
        status=st.none() | texts,
    )


@st.composite
def busy(draw: st.DrawFn) -> Drawing:
    """A line of steps, many of which lead to one handler, to the end and from the start, in groups or not."""
    count = draw(st.integers(7, 16))
    names = [f"step{number}" for number in range(count)]
    inside = draw(st.lists(st.none() | GROUP_IDS, min_size=count, max_size=count))
    chosen = st.lists(st.sampled_from(names), unique=True)
    labels = st.none() | st.just("TimeoutError")
    lines = [DrawnEdge(src, dst) for src, dst in pairwise(names)]
    lines += [DrawnEdge(name, "handler", draw(labels), "error") for name in draw(chosen)]
    lines += [DrawnEdge(name, "END", draw(labels), "conditional") for name in draw(chosen)]
    lines += [DrawnEdge("START", name) for name in draw(chosen)]
    lines += [DrawnEdge(name, names[0], draw(labels), "back") for name in draw(chosen)]
    return Drawing(
        "busy",
        (
            DrawnNode("START", kind="start"),
            *(DrawnNode(name, group=group) for name, group in zip(names, inside, strict=True)),
            DrawnNode("handler", kind=draw(st.sampled_from(("fallback", "router")))),
            DrawnNode("END", kind="end"),
        ),
        (*lines, DrawnEdge("handler", "END")),
        tuple(DrawnGroup(f"g{number}", parent=f"g{number - 1}" if number % 2 else None) for number in range(5)),
    )


def chain(*names: str) -> Drawing:
    """Nodes in a row."""
    return Drawing(
        "chain",
        tuple(DrawnNode(name) for name in names),
        tuple(DrawnEdge(src, dst) for src, dst in pairwise(names)),
    )


def agent() -> Drawing:
    """An agent's turn: a model call, its tools in a map, and round again."""
    return Drawing(
        "researcher",
        (
            DrawnNode("START", kind="start", state="succeeded"),
            DrawnNode("inference", kind="inference", state="succeeded", note="2 rounds"),
            DrawnNode("fallback", kind="fallback", state="skipped"),
            DrawnNode("reply", kind="router", state="succeeded"),
            DrawnNode("call", kind="router", group="tools", state="succeeded"),
            DrawnNode("search", kind="tool", group="tools", state="failed"),
            DrawnNode("read", kind="tool", group="tools", state="running"),
            DrawnNode("results", kind="join", state="pending"),
            DrawnNode("END", kind="end", state="pending"),
        ),
        (
            DrawnEdge("START", "inference", taken=True),
            DrawnEdge("inference", "fallback"),
            DrawnEdge("fallback", "reply"),
            DrawnEdge("reply", "call", "tool calls", "map", taken=True),
            DrawnEdge("call", "search", "search", "conditional"),
            DrawnEdge("call", "read", "read", "conditional"),
            DrawnEdge("search", "results", kind="gather"),
            DrawnEdge("read", "results", kind="gather"),
            DrawnEdge("results", "inference", "next round", "back"),
            DrawnEdge("reply", "END", "no tool calls", "conditional", taken=False),
        ),
        (DrawnGroup("tools", "each tool call", "map"),),
        "running",
    )


def layered(rows: int, columns: int) -> Drawing:
    """A large graph without groups, the same every time."""
    chance = random.Random(1)  # noqa: S311 (a graph that looks like work, not a secret)
    made = tuple(DrawnNode(f"n{row}_{column}") for row in range(rows) for column in range(columns))
    lines = tuple(
        DrawnEdge(f"n{row - 1}_{min(max(column + chance.randint(-2, 2), 0), columns - 1)}", f"n{row}_{column}")
        for row in range(1, rows)
        for column in range(columns)
        for _ in range(chance.randint(1, 2))
    )
    return Drawing("layered", made, lines)


def parse(svg: str) -> ET.Element:
    """Parse a picture, as bytes: what cannot be encoded is no XML either."""
    return ET.fromstring(svg.encode())  # noqa: S314 (our own output)


def node_elements(svg: str) -> list[ET.Element]:
    return [element for element in parse(svg).iter(f"{SVG}g") if "data-node" in element.attrib]
