"""What makes two compiled graphs the same: structure, names, declared types and versions (E26)."""

from __future__ import annotations

import base64
import hashlib
import zlib
from typing import TYPE_CHECKING

from graphrt.graph import typecheck
from graphrt.graph.compiled import EdgeKind
from graphrt.graph.protocols import NodeKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphrt.graph.compiled import Program


def fingerprint_of(program: Program) -> str:
    """Give a short hash of structure, names, declared types and versions; equal for equal graphs, in any process."""
    digest = hashlib.sha256()
    for line in describe(program):
        digest.update(line.encode("utf-8", "backslashreplace"))
        digest.update(b"\n")
    return digest.hexdigest()[:32]


def describe(program: Program) -> list[str]:
    """List what the fingerprint is made of, one line a part: nodes, edges, held graphs."""
    lines = [f"graph {program.name}"]
    for node in program.nodes:
        decl = node.decl
        assert decl is not None
        params = ", ".join(f"{p.name}: {typecheck.describe(p.annotation)}" for p in decl.signature.params)
        returns = typecheck.describe(decl.signature.returns)
        options = f"join={decl.join} side={decl.side} on_error={decl.on_error} version={decl.version}"
        lines.append(f"node {node.name} {NodeKind(decl.kind)} ({params}) -> {returns} {options}")
        if node.graph is not None:
            lines.extend(f"{node.name}/{line}" for line in describe(node.graph))
    for edge in program.edges:
        d = edge.decl
        if edge.kind is EdgeKind.GATHER:
            continue
        errors = ",".join(e.__name__ for e in d.errors) if d.errors is not None else ""
        what = f"{d.kind} when={d.when is not None} errors={errors} into={d.into} case={d.case!r} {d.on_error}"
        lines.append(f"edge {edge} {what} {d.min_success}")
    return lines


def pack(lines: Sequence[str]) -> str:
    """Write the lines of a description as a short text: they repeat one another."""
    return base64.b85encode(zlib.compress("\n".join(lines).encode("utf-8", "backslashreplace"), 9)).decode()


def unpack(packed: object) -> list[str]:
    """Read the lines back; none where there is no description, or none that can be read."""
    if not isinstance(packed, str):
        return []
    try:
        return zlib.decompress(base64.b85decode(packed)).decode().split("\n")
    except (ValueError, zlib.error):
        return []
