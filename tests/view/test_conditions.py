"""What is written on the edges of a compiled graph."""

from __future__ import annotations

from graphrt import END, START, Workflow
from graphrt.graph.view.adapter import label_of


def is_low(value: int) -> bool:
    return value < 0


def labels(workflow: Workflow) -> list[str | None]:
    return [label_of(edge) for edge in workflow.compile().program.edges]


def test_both_sides_of_a_condition_say_what_they_ask() -> None:
    workflow = Workflow("w")

    @workflow.node
    async def a(x: int) -> int:
        return x

    workflow.edge(START, a)
    workflow.edge(a, a, when=lambda v: v < 3, label="again")
    workflow.edge(a, a, when=lambda v: v > 9)
    workflow.edge(a, a, when=is_low)
    workflow.edge(a, END, when=lambda v: 3 <= v <= 9)
    workflow.edge(a, END, on_error=True)
    workflow.edge(a, END, on_error=(ValueError, KeyError))
    assert labels(workflow) == [
        None,
        "again",
        "v > 9",
        "is_low",
        "3 <= v <= 9",
        "error",
        "ValueError | KeyError",
    ]


def test_condition_without_a_text_of_its_own_has_no_label() -> None:
    workflow = Workflow("w")

    async def a(x: int) -> int:
        return x

    workflow.add_node("a", a)
    workflow.chain(START, "a")
    workflow.edge("a", END, when=eval("lambda v: v"))  # noqa: S307 - a lambda that stands in no file
    assert labels(workflow) == [None, None]
    assert '-->|"' not in workflow.to_mermaid()
