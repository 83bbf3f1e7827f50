"""What a person sees while the demo runs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from graphrt.demo.progress import LiveView, PlainView, Progress, RowState, view_for
from graphrt.demo.standin import OfflineStandIn
from graphrt.demo.workflow import build_workflow
from graphrt.errors import GraphError
from graphrt.graph import RunEvent, StepRef

pytestmark = pytest.mark.anyio


@pytest.fixture
async def events(tmp_path: Path) -> list[RunEvent]:
    """Give the events of a run of the demo."""
    (tmp_path / "bees.md").write_text("# Bees\n\n## Food\n\nBees eat nectar.\n")
    (tmp_path / "ants.md").write_text("# Ants\n\n## Wings\n\nAnts have none.\n")
    events: list[RunEvent] = []
    await build_workflow(OfflineStandIn(), tmp_path, most_steps=2).run("Tell", on_event=events.append)
    return events


def event(type: str, node: str, scope: str = "", **data: object) -> RunEvent:
    return RunEvent(type, "r", 1, StepRef(node, scope, 1), data)


async def test_every_part_of_the_work_has_a_row_that_ends_as_done(events: list[RunEvent]) -> None:
    progress = Progress()
    for each in events:
        progress.update(each)
    assert [(row.title, row.state) for row in progress.rows.values()] == [
        ("look over the documents", RowState.DONE),
        ("plan", RowState.DONE),
        ('What does ants.md say about "Wings"?', RowState.DONE),
        ('What does bees.md say about "Food"?', RowState.DONE),
        ("write the report", RowState.DONE),
    ]
    assert progress.rows["planner"].detail == "2 questions"
    assert "Bees eat nectar." in progress.text


async def test_plain_lines_say_what_is_being_done(events: list[RunEvent]) -> None:
    out = io.StringIO()
    view = view_for(Console(file=out, width=200))
    assert isinstance(view, PlainView)
    with view:
        for each in events:
            view.show(each)
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["[..] look over the documents", "[ok] look over the documents"]
    assert '[..] What does bees.md say about "Food"?: search(Food)' in lines
    assert lines[-1] == "[ok] write the report"


async def test_terminal_shows_the_rows_and_the_text_as_it_comes(events: list[RunEvent]) -> None:
    out = io.StringIO()
    view = view_for(Console(file=out, force_terminal=True, width=100, height=40, color_system=None))
    assert isinstance(view, LiveView)
    with view:
        for each in events:
            view.show(each)
        view._live.refresh()
    shown = out.getvalue()
    assert 'What does bees.md say about "Food"?' in shown
    assert "Bees eat nectar." in shown


def test_long_detail_takes_no_room_from_the_title() -> None:
    out = io.StringIO()
    view = LiveView(Console(file=out, force_terminal=True, width=80, height=40, color_system=None))
    with view:
        view.show(event("custom.research", "question", "wave#1[0]", id="s1", question="Why not?", again=False))
        view.show(event("step.failed", "researcher", "wave#1[0]", error=GraphError("x" * 500), handled=False))
    last = next(line for line in reversed(out.getvalue().splitlines()) if "xxxx" in line)
    assert "no Why not?" in last


def test_refused_plan_and_failed_question_are_told() -> None:
    progress = Progress()
    progress.update(event("step.started", "planner"))
    row = progress.update(event("custom.plan.refused", "check", problems=["it has no steps"], round=1))
    assert row is not None
    assert row.detail == "refused: it has no steps"
    progress.update(event("custom.research", "question", "wave#1[0]", id="s1", question="Why?", again=False))
    row = progress.update(event("step.failed", "researcher", "wave#1[0]", error=GraphError("no luck"), handled=False))
    assert row is not None
    assert (row.title, row.state, row.detail) == ("Why?", RowState.FAILED, "no luck")


def test_answer_that_is_sent_back_is_told() -> None:
    progress = Progress()
    progress.update(event("custom.research", "question", "wave#1[0]", id="s1", question="Why?", again=False))
    row = progress.update(event("custom.research", "question", "wave#1[0]", id="s1", question="Why?", again=True))
    assert row is not None
    assert (row.state, row.detail) == (RowState.ACTIVE, "again: the answer named no source")


def test_failure_that_is_handled_is_no_failure_of_the_row() -> None:
    progress = Progress()
    progress.update(event("step.started", "planner"))
    error = GraphError("no plan")
    assert progress.update(event("step.failed", "inference", "planner#1", error=error, handled=True)) is None
    assert progress.rows["planner"].state is RowState.ACTIVE


def test_what_could_steer_a_terminal_is_not_shown() -> None:
    progress = Progress()
    question = "Why\x1b]0;title\x07?\nReally?"
    progress.update(event("custom.research", "question", "wave#1[0]", id="s1", question=question, again=False))
    called = {"tool_name": "search", "parameters": {"query": "\x1b[2J" + "x" * 500}}
    progress.update(event("tool.call.started", "tool:search", "wave#1[0]/researcher#1/reply#1[0]", **called))
    progress.update(event("message.delta", "inference", "writer#1", text="a\x1b[31m\nb", index=0))
    row = progress.rows["s1"]
    assert row.title == "Why ]0;title ? Really?"
    assert row.detail.startswith("search( [2Jxxx")
    assert len(row.detail) < 200
    assert progress.text == "a [31m\nb"


def test_text_of_a_failed_attempt_is_forgotten() -> None:
    progress = Progress()
    progress.update(event("message.delta", "inference", "writer#1", text="half", index=0))
    progress.update(event("attempt.failed", "inference", "writer#1", error=GraphError("no luck")))
    progress.update(event("message.delta", "inference", "writer#1", text="whole", index=0))
    assert progress.text == "whole"


def test_plan_of_one_question_has_no_plural() -> None:
    progress = Progress()
    progress.update(event("step.started", "planner"))
    progress.update(event("custom.plan.accepted", "check", steps=[{}]))
    assert progress.rows["planner"].detail == "1 question"
