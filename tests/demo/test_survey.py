"""What the planner gets to see of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphrt.demo.confined import DocumentError
from graphrt.demo.documents import Documents
from graphrt.demo.survey import Heading, first_headings, headings, survey


def test_marked_headings_are_found_outside_fences() -> None:
    lines = [
        "# One",
        "",
        "```",
        "# no heading",
        "```",
        "## Two ##",
        "#hash",
        "~~~",
        "# no",
        "```",
        "~~~",
        "### Three",
    ]
    assert headings(lines) == [Heading(1, 1, "One"), Heading(6, 2, "Two"), Heading(12, 3, "Three")]


def test_underlined_headings_are_found() -> None:
    lines = ["Title", "=====", "", "Part", "----", "", "text", "", "---", "| a |", "|---|"]
    assert headings(lines) == [Heading(1, 1, "Title"), Heading(4, 2, "Part")]


def test_text_without_headings_has_its_first_line_with_words() -> None:
    assert headings(["", "---", "  Dear all,", "more"]) == [Heading(3, 1, "Dear all,")]
    assert headings(["", "--"]) == []


def test_survey_has_files_and_headings_with_line_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\n\n## Part\ntext\n")
    (tmp_path / "b.txt").write_text("hello\n")
    assert survey(Documents(tmp_path)) == "a.md (4 lines)\n  1: # A\n  3: ## Part\nb.txt (1 lines)\n  1: # hello"


def test_deepest_headings_are_left_out_first_where_not_all_fit(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\n## Part\n### Detail\n")
    (tmp_path / "b.md").write_text("# B\n## Other\n")
    expected = "a.md (3 lines)\n  1: # A\n  2: ## Part\nb.md (2 lines)\n  1: # B\n  2: ## Other"
    assert survey(Documents(tmp_path), most=80) == expected


def test_files_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    for name in "abcdef":
        (tmp_path / f"{name}.md").write_text("# A\n")
    assert survey(Documents(tmp_path), most=60) == "a.md (1 lines)\nb.md (1 lines)\n... and 4 more files"


def test_what_is_no_text_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\n")
    (tmp_path / "b.gif").write_bytes(b"\0")
    (tmp_path / "c.md").write_text("\n\n")
    assert survey(Documents(tmp_path)) == "a.md (1 lines)\n  1: # A"


def test_folder_without_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="no text to read"):
        survey(Documents(tmp_path))


def test_first_headings_are_read_from_a_survey(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\n## Part\n## More\n")
    (tmp_path / "b.txt").write_text("hello\n")
    (tmp_path / "c.txt").write_text("third\n")
    assert first_headings(survey(Documents(tmp_path))) == [("a.md", "Part"), ("b.txt", "hello")]
