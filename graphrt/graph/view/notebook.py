"""A drawing as a notebook shows it: also where a page is not trusted, and without a network."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from typing import TYPE_CHECKING

from graphrt.graph.view.svg import to_svg
from graphrt.graph.view.text import to_text
from graphrt.graph.view.words import printable

if TYPE_CHECKING:
    from graphrt.graph.view.drawing import Drawing


def mimebundle(drawing: Drawing) -> dict[str, str]:
    """Return *drawing* as ``text/html``, an image whose data is in its address, and as ``text/plain``.

    Of all forms, an image is the one that front ends show alike: in pages that are trusted and that are not,
    and in exported ones.
    """
    data = b64encode(to_svg(drawing).encode()).decode("ascii")
    name = escape(printable(drawing.name) or "graph")
    return {
        "text/html": f'<img src="data:image/svg+xml;base64,{data}" alt="{name}" style="max-width:100%">',
        "text/plain": to_text(drawing),
    }
