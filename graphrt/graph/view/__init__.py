"""Pictures of graphs: SVG, Mermaid, DOT and text, drawn in the process from plain data.

Nothing here knows how a graph is built or run. A :class:`Drawing` says what is to be seen: nodes with their
kinds and states, edges with their labels, groups around them.
"""

from __future__ import annotations

from graphrt.graph.view.dot import to_dot
from graphrt.graph.view.drawing import Drawing, DrawnEdge, DrawnGroup, DrawnNode
from graphrt.graph.view.mermaid import to_mermaid
from graphrt.graph.view.notebook import mimebundle
from graphrt.graph.view.svg import to_svg
from graphrt.graph.view.text import to_text

__all__ = [
    "Drawing",
    "DrawnEdge",
    "DrawnGroup",
    "DrawnNode",
    "mimebundle",
    "to_dot",
    "to_mermaid",
    "to_svg",
    "to_text",
]
