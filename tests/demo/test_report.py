"""The report says what it rests on, and prompts stay short enough for a small model."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphrt.demo import prompts
from graphrt.demo.documents import Documents
from graphrt.demo.plan import PlanStep
from graphrt.demo.report import Finding, cited, is_backed, make_report
from graphrt.demo.standin import STAND_IN_NAME
from graphrt.demo.survey import survey

SMALL_CONTEXT = 4096 * 3  # characters that a context of 4096 tokens holds at least


def finding(id: str = "s1", *, answer: str | None = None, problem: str | None = None) -> Finding:
    return Finding(step=PlanStep(id=id, question=f"what of {id}?"), answer=answer, problem=problem)


@pytest.fixture
def documents(tmp_path: Path) -> Documents:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n\nuse `x` here\n")
    return Documents(tmp_path)


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("It is so (docs/a.md:3).", [("docs/a.md", 3)]),
        ("See docs/a.md:3, ./docs/a.md:3 and [b.md:10].", [("docs/a.md", 3), ("b.md", 10)]),
        ('`a.md:1`; "b.md:2"', [("a.md", 1), ("b.md", 2)]),
        ("no source: none, 12:30 is a time", [("12", 30)]),
        ("nothing", []),
    ],
)
def test_sources_are_found_in_a_text(text: str, places: list[tuple[str, int]]) -> None:
    assert cited(text) == places


@pytest.mark.parametrize(
    ("text", "backed"),
    [
        ("(docs/a.md:3)", True),
        ("(docs/a.md:0) (docs/a.md:4)", False),
        ("(docs/b.md:1)", False),
        ("(../docs/a.md:1) (/etc/hosts:1)", False),
        ("(docs/b.md:1) (docs/a.md:1)", True),
    ],
)
def test_text_is_backed_by_a_line_that_exists(documents: Documents, text: str, backed: bool) -> None:
    assert is_backed(text, documents) is backed


def test_lines_named_are_shown_as_they_stand_in_the_files(documents: Documents) -> None:
    found = [finding(answer="Use it (docs/a.md:3), not (docs/a.md:2) or (docs/a.md:9); as in (b.md:1).")]
    report = make_report("Why?\nSo", "text", found, documents, "small")
    assert report.startswith("# Why? So\n\ntext\n\n## Sources\n\n")
    assert (
        "- docs/a.md:3 `use 'x' here`\n- docs/a.md:2 (an empty line)\n- docs/a.md:9 (there is no such line)\n" in report
    )
    assert "b.md" not in report


def test_what_failed_and_what_has_no_source_are_named(documents: Documents) -> None:
    found = [finding("s1", problem="LlmError: no luck"), finding("s2", answer="Surely.")]
    report = make_report("Why?", "text", found, documents, "small")
    assert "## Not answered\n\n- what of s1?\n  LlmError: no luck\n" in report
    assert "## Answered without a source\n\n- what of s2?\n" in report
    assert "from 1 of 2 questions, with small." in report


def test_stand_in_is_named_as_what_it_is(documents: Documents) -> None:
    assert "no language model" in make_report("Why?", "text", [], documents, STAND_IN_NAME)
    assert "no language model" not in make_report("Why?", "text", [], documents, "small")


def test_prompts_fit_into_a_small_context_however_much_there_is(tmp_path: Path) -> None:
    for number in range(100):
        text = "".join(f"## heading {part} of file {number} {'x' * 80}\n" for part in range(30))
        (tmp_path / f"file{number}.md").write_text(f"# {number}\n{text}")
    everything = survey(Documents(tmp_path))
    problems = ["step 's1' depends on 's2', and no step has that id"] * 8
    long = [finding(f"s{number}", answer="y" * 5000) for number in range(8)]
    assert len(prompts.planner(8)) + len(prompts.planning("goal", everything, problems)) < SMALL_CONTEXT / 2
    assert len(prompts.RESEARCHER) + len(prompts.research("question", long[:4], again=True)) < SMALL_CONTEXT / 3
    assert len(prompts.WRITER) + len(prompts.writing("goal", long)) < SMALL_CONTEXT * 2 / 3
