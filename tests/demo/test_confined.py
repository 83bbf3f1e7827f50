"""Nothing outside the folder can be read through it, whatever the path, the links or the timing."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrt.demo import confined
from graphrt.demo.confined import MARKER, ConfinedFolder, DocumentError, EntryKind, path_parts

MOST = 10_000
OUTSIDE = "kept outside"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links and pipes are made as on POSIX systems")


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Make a folder `inside` with documents, beside a file and a folder that are out of bounds."""
    inside = tmp_path / "inside"
    (inside / "notes").mkdir(parents=True)
    (inside / "readme.md").write_text("hello")
    (inside / "notes" / "one.md").write_text("first")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.md").write_text(OUTSIDE)
    (tmp_path / "secret.md").write_text(OUTSIDE)
    return tmp_path


@pytest.fixture(params=[True, False], ids=["relative opens", "paths alone"])
def folder(request: pytest.FixtureRequest, top: Path) -> ConfinedFolder:
    """Give the folder, in both ways in which it can be read."""
    return ConfinedFolder(top / "inside", relative_opens=request.param)


def read(folder: ConfinedFolder, path: str) -> str:
    return folder.read(path, most=MOST).decode()


@pytest.mark.parametrize("path", ["readme.md", "./readme.md", ".//readme.md", "readme.md/."])
def test_file_is_read_by_its_listed_name(folder: ConfinedFolder, path: str) -> None:
    assert read(folder, path) == "hello"


def test_file_in_a_folder_is_read(folder: ConfinedFolder) -> None:
    assert read(folder, "notes/one.md") == "first"


@pytest.mark.parametrize(
    "path",
    [
        "../secret.md",
        "notes/../../secret.md",
        "notes/../readme.md",
        "..",
        "/etc/hostname",
        "//etc/hostname",
        "~/secret.md",
        "..\\secret.md",
        "C:\\secret.md",
        "readme.md\0",
        "readme.md\n",
        "",
        "  ",
        ".",
        "x" * 2000,
    ],
)
def test_path_that_could_lead_out_is_refused(folder: ConfinedFolder, path: str) -> None:
    with pytest.raises(DocumentError):
        folder.read(path, most=MOST)


def test_absolute_path_of_a_file_inside_is_refused(folder: ConfinedFolder) -> None:
    with pytest.raises(DocumentError, match="not a path inside the folder"):
        folder.read(str(folder.root / "readme.md"), most=MOST)


@pytest.mark.parametrize("path", ["README.md", "Readme.MD", "NOTES/one.md"])
def test_other_case_is_no_other_way_in(folder: ConfinedFolder, path: str) -> None:
    with pytest.raises(DocumentError, match="there is no") as caught:
        folder.read(path, most=MOST)
    assert "its name is" in str(caught.value)


def test_unlisted_spelling_is_refused_where_the_system_takes_it(
    folder: ConfinedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a file system that ignores case: the system finds the file, the folder's list does not have it.
    (folder.root / "README.MD").write_text("hello")
    listed = confined._names
    monkeypatch.setattr(confined, "_names", lambda *given: [each for each in listed(*given) if each != "README.MD"])
    with pytest.raises(DocumentError, match=r"there is no 'README\.MD'"):
        folder.read("README.MD", most=MOST)


def test_link_to_a_file_outside_is_not_followed(folder: ConfinedFolder, top: Path) -> None:
    (folder.root / "link.md").symlink_to(top / "secret.md")
    with pytest.raises(DocumentError, match="links are not followed"):
        folder.read("link.md", most=MOST)


def test_link_to_a_folder_outside_is_not_followed(folder: ConfinedFolder, top: Path) -> None:
    (folder.root / "linked").symlink_to(top / "outside", target_is_directory=True)
    with pytest.raises(DocumentError, match="links are not followed"):
        folder.read("linked/secret.md", most=MOST)
    with pytest.raises(DocumentError, match="links are not followed"):
        folder.entries("linked")


def test_link_within_the_folder_is_not_followed_either(folder: ConfinedFolder) -> None:
    (folder.root / "link.md").symlink_to("readme.md")
    with pytest.raises(DocumentError, match="links are not followed"):
        folder.read("link.md", most=MOST)


def test_link_is_listed_as_one(folder: ConfinedFolder, top: Path) -> None:
    (folder.root / "link.md").symlink_to(top / "secret.md")
    kinds = {each.name: each.kind for each in folder.entries()}
    assert kinds == {"link.md": EntryKind.LINK, "notes": EntryKind.FOLDER, "readme.md": EntryKind.FILE}


def test_root_may_itself_be_a_link(top: Path) -> None:
    (top / "short").symlink_to("inside", target_is_directory=True)
    assert read(ConfinedFolder(top / "short"), "readme.md") == "hello"


def test_pipe_is_refused_without_waiting_for_it(folder: ConfinedFolder) -> None:
    os.mkfifo(folder.root / "pipe")
    with pytest.raises(DocumentError, match="no ordinary file"):
        folder.read("pipe", most=MOST)


def test_socket_is_refused(folder: ConfinedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.root)  # a socket's path has to be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        with pytest.raises(DocumentError, match="no ordinary file"):
            folder.read("socket", most=MOST)


@pytest.mark.parametrize("path", [".env", ".git/config", "notes/.hidden.md", ".GIT/config"])
def test_hidden_name_is_neither_read_nor_listed(folder: ConfinedFolder, path: str) -> None:
    (folder.root / path).parent.mkdir(exist_ok=True)
    (folder.root / path).write_text(OUTSIDE)
    with pytest.raises(DocumentError, match="is hidden"):
        folder.read(path, most=MOST)
    assert {each.name for each in folder.entries()} == {"notes", "readme.md"}


@pytest.mark.parametrize("name", ["node_modules", "Build", "dist", "__pycache__", "graphrt.egg-info"])
def test_folder_with_what_programs_made_is_neither_read_nor_listed(folder: ConfinedFolder, name: str) -> None:
    (folder.root / name).mkdir()
    (folder.root / name / "made.md").write_text(OUTSIDE)
    with pytest.raises(DocumentError, match="what programs made"):
        folder.read(f"{name}/made.md", most=MOST)
    assert name not in {each.name for each in folder.entries()}


@pytest.mark.parametrize("sign", ["pyvenv.cfg", "CACHEDIR.TAG", MARKER])
def test_virtual_environment_cache_and_the_demos_own_output_are_left_out(folder: ConfinedFolder, sign: str) -> None:
    (folder.root / "made").mkdir()
    (folder.root / "made" / sign).touch()
    assert "made" not in {each.name for each in folder.entries()}


def test_large_file_is_refused(folder: ConfinedFolder) -> None:
    (folder.root / "large.md").write_bytes(b"x" * (MOST + 1))
    with pytest.raises(DocumentError, match="more than 10,000 bytes"):
        folder.read("large.md", most=MOST)


def test_folder_is_no_file_and_a_file_no_folder(folder: ConfinedFolder) -> None:
    with pytest.raises(DocumentError, match="is a folder"):
        folder.read("notes", most=MOST)
    with pytest.raises(DocumentError, match=r"'readme\.md' is no folder"):
        folder.read("readme.md/one.md", most=MOST)


def test_missing_root_and_a_file_as_root_are_refused(top: Path) -> None:
    with pytest.raises(DocumentError, match="there is no folder"):
        ConfinedFolder(top / "nowhere")
    with pytest.raises(DocumentError, match="is no folder"):
        ConfinedFolder(top / "secret.md")


def test_replaced_root_is_noticed(folder: ConfinedFolder, top: Path) -> None:
    folder.root.rename(top / "moved")
    (top / "outside").rename(folder.root)
    with pytest.raises(DocumentError, match="has been replaced"):
        folder.read("secret.md", most=MOST)


@pytest.fixture
def swap_after_listing(
    folder: ConfinedFolder, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Path, Path], None]]:
    """Put a link in the place of a path at the worst moment: after its check, before it is opened."""
    planned: list[tuple[Path, Path]] = []
    check = confined._listed

    def check_and_swap(place: confined.Place, name: str, path: str) -> confined.Entry:
        entry = check(place, name, path)
        if planned and planned[0][0].name == name:
            victim, target = planned.pop()
            shutil.rmtree(victim) if victim.is_dir() else victim.unlink()
            victim.symlink_to(target)
        return entry

    monkeypatch.setattr(confined, "_listed", check_and_swap)
    yield lambda victim, target: planned.append((victim, target))
    assert planned == []


def test_file_swapped_for_a_link_while_it_is_opened_is_not_read(
    folder: ConfinedFolder, top: Path, swap_after_listing: Callable[[Path, Path], None]
) -> None:
    swap_after_listing(folder.root / "readme.md", top / "secret.md")
    with pytest.raises(DocumentError):
        folder.read("readme.md", most=MOST)


def test_folder_swapped_for_a_link_while_it_is_opened_is_not_entered(
    folder: ConfinedFolder, top: Path, swap_after_listing: Callable[[Path, Path], None]
) -> None:
    (top / "outside" / "one.md").write_text(OUTSIDE)
    swap_after_listing(folder.root / "notes", top / "outside")
    with pytest.raises(DocumentError):
        folder.read("notes/one.md", most=MOST)


def test_nothing_stays_open(folder: ConfinedFolder) -> None:
    def descriptors() -> int:
        return len(list(Path("/dev/fd").iterdir()))

    before = descriptors()
    for path in ("readme.md", "notes/one.md", "notes", "nothing.md", "readme.md/x"):
        try:
            folder.read(path, most=MOST)
        except DocumentError:
            continue
    assert descriptors() == before


@given(st.lists(st.sampled_from(["..", ".", "/", "notes", "readme.md", "link", "~", "\\", "", " ", "\0"]), max_size=6))
def test_no_mixture_of_parts_leads_out(parts: list[str]) -> None:
    with TemporaryDirectory() as made:
        top = Path(made).resolve()
        (top / "inside" / "notes").mkdir(parents=True)
        (top / "readme.md").write_text(OUTSIDE)
        (top / "inside" / "readme.md").write_text("hello")
        (top / "inside" / "link").symlink_to("..")
        (top / "inside" / "notes" / "link").symlink_to(top)
        try:
            text = read(ConfinedFolder(top / "inside"), "/".join(parts))
        except DocumentError:
            return
        assert text == "hello"


@given(st.text(max_size=30))
def test_path_is_refused_or_has_only_plain_parts(path: str) -> None:
    try:
        parts = path_parts(path)
    except DocumentError:
        return
    assert parts
    assert not any(part in {"", ".", ".."} or part.startswith(".") or "/" in part or "\0" in part for part in parts)
