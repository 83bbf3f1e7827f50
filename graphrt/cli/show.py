"""`graphrt show`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphrt.cli import UsageError, counted
from graphrt.cli.target import load_graph

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from graphrt.graph import CompiledGraph


def show(options: argparse.Namespace) -> int:
    """Check a workflow, and draw it.

    Raises:
        GraphrtError: It is not there, or breaks a rule; or the file cannot be written.
    """
    graph = load_graph(options.target)
    if options.svg == "-":
        print(graph.to_svg())
    elif options.svg:
        try:
            Path(options.svg).write_text(graph.to_svg(), encoding="utf-8", newline="\n")
        except OSError as error:
            raise UsageError(f"cannot write to {options.svg!r}: {error.strerror or error}") from error
        print(options.svg)
    elif options.mermaid:
        print(graph.to_mermaid())
    else:
        print(_listed(graph))
    return 0


def _listed(graph: CompiledGraph) -> str:
    """List the nodes with their kinds, and the edges with their kinds and conditions."""
    network = graph.nx
    nodes, edges = counted(network.number_of_nodes(), "node"), counted(network.number_of_edges(), "edge")
    lines = [f"{graph.name}: {nodes}, {edges}"]
    for node, about in network.nodes(data=True):
        lines.append(f"  {node} ({about['kind']})")
        lines += [f"    -> {target}{_details(edge)}" for _, target, edge in network.out_edges(node, data=True)]
    return "\n".join(lines)


def _details(edge: Mapping[str, Any]) -> str:
    """Say what is special about an edge, if anything is."""
    kind = "" if edge["kind"] == "normal" else edge["kind"]
    details = ", ".join(filter(None, [kind, edge["label"], "back" if edge["back"] else ""]))
    return f" [{details}]" if details else ""
