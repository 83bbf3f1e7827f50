"""The demo writes into a folder of its own, and never over what is somebody else's."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphrt.demo.confined import MARKER
from graphrt.demo.output import OutputError, OutputFolder


def test_new_and_empty_folders_become_the_demos_own(tmp_path: Path) -> None:
    OutputFolder(tmp_path / "new" / "deep")
    (tmp_path / "empty").mkdir()
    OutputFolder(tmp_path / "empty")
    assert (tmp_path / "new" / "deep" / MARKER).is_file()
    assert (tmp_path / "empty" / MARKER).is_file()


def test_own_folder_is_written_again(tmp_path: Path) -> None:
    OutputFolder(tmp_path / "out").write("report.md", "old")
    path = OutputFolder(tmp_path / "out").write("report.md", "new")
    assert path.read_text() == "new"
    assert sorted(each.name for each in path.parent.iterdir()) == [MARKER, "report.md"]


def test_folder_with_other_files_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "report.md").write_text("mine")
    with pytest.raises(OutputError, match="did not write"):
        OutputFolder(tmp_path)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("report.md", "mine")]


def test_file_in_the_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(OutputError, match="cannot write to"):
        OutputFolder(tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.parametrize("name", ["report.md", ".report.md.part"])
def test_link_is_replaced_and_not_followed(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.md").write_text("mine")
    out = OutputFolder(tmp_path / "out")
    (out.path / name).symlink_to(tmp_path / "mine.md")
    assert out.write("report.md", "new").read_text() == "new"
    assert (tmp_path / "mine.md").read_text() == "mine"


def test_link_is_taken_away_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine.md").write_text("mine")
    out = OutputFolder(tmp_path / "out")
    (out.path / "trace.jsonl").symlink_to(tmp_path / "mine.md")
    assert not out.clear("trace.jsonl").exists()
    assert (tmp_path / "mine.md").read_text() == "mine"


def test_folder_in_the_place_of_a_file_is_an_error(tmp_path: Path) -> None:
    out = OutputFolder(tmp_path / "out")
    (out.path / "report.md").mkdir()
    with pytest.raises(OutputError, match="cannot write to"):
        out.write("report.md", "new")
    with pytest.raises(OutputError, match="cannot write to"):
        out.clear("report.md")
