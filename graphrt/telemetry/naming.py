"""What a step's span is called, and what it says from the start, by the kind of its node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from opentelemetry.trace import SpanKind

from graphrt.telemetry import conventions as names

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from graphrt.telemetry.views import NodeView, ProgramView

MODEL_KINDS: Final = frozenset({"inference", "fallback"})
"""Kinds of node that ask a model."""


def is_nameless(span: Span) -> bool:
    """Whether a model call was made without the name of a model."""
    return getattr(span, "name", None) == names.OPERATION_CHAT


def describe_run(program: ProgramView) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Give the name of the span of a graph's run, its first attributes, and content that stands for the input."""
    own = getattr(program.decl, "run_span", None)
    if own is None:
        attributes = {
            names.KIND: names.KIND_RUN,
            names.OPERATION: names.OPERATION_WORKFLOW,
            names.AGENT_NAME: program.name,
        }
        return f"{names.OPERATION_WORKFLOW} {program.name}", attributes, {}
    known = {key: value for key, value in own.attributes.items() if value is not None}
    content = {key: known.pop(key) for key in list(known) if key in names.CONTENT}
    return own.name, known, content


def describe(node: NodeView) -> tuple[str, SpanKind, dict[str, Any]]:
    """Give the name, kind and first attributes of a step's span."""
    kind = node.kind
    if kind in MODEL_KINDS:
        attributes = {names.KIND: names.KIND_INFERENCE, names.OPERATION: names.OPERATION_CHAT}
        return names.OPERATION_CHAT, SpanKind.CLIENT, attributes
    if kind == "tool":
        attributes = {
            names.KIND: names.KIND_TOOL,
            names.OPERATION: names.OPERATION_TOOL,
            names.TOOL_NAME: node.name,
        }
        return f"{names.OPERATION_TOOL} {node.name}", SpanKind.INTERNAL, attributes
    if kind == "agent":
        attributes = {
            names.KIND: names.KIND_NODE,
            names.OPERATION: names.OPERATION_AGENT,
            names.AGENT_NAME: node.name,
        }
        return f"{names.OPERATION_AGENT} {node.name}", SpanKind.INTERNAL, attributes
    if kind == "plan_step":
        return f"plan_step {node.name}", SpanKind.INTERNAL, {names.KIND: names.KIND_PLAN_STEP}
    return f"node {node.name}", SpanKind.INTERNAL, {names.KIND: names.KIND_NODE}
