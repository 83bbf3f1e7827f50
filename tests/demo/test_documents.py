"""What the tools of the demo give a model: bounded, numbered, and an error it can act on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphrt.demo.confined import DocumentError
from graphrt.demo.documents import Documents, Limits, document_tools, key_words
from graphrt.tools import ToolContext


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "docs" / "deep").mkdir(parents=True)
    (tmp_path / "readme.md").write_text("# Bees\n\nBees dance.\nA hive has ONE queen.\n")
    (tmp_path / "b.txt").write_text("the queen lays eggs\r\nworkers do not\r\n")
    (tmp_path / "docs" / "hive.md").write_text("# Hive\n\nwax and honey\n")
    (tmp_path / "docs" / "deep" / "old.md").write_text("old\n")
    return tmp_path


def tool(name: str, documents: Documents) -> object:
    return next(each for each in document_tools(documents) if each.descriptor.id == name)


def listed(documents: Documents) -> str:
    return str(tool("list_files", documents)())  # type: ignore[operator]  # a function tool calls its function


def read(documents: Documents, *given: object) -> str:
    return str(tool("read_lines", documents)(*given))  # type: ignore[operator]  # as above


def search(documents: Documents, query: str) -> str:
    return str(tool("search", documents)(query))  # type: ignore[operator]  # as above


def test_files_are_listed_sorted_and_those_of_a_folder_before_its_folders(root: Path) -> None:
    assert Documents(root).paths() == ["b.txt", "readme.md", "docs/hive.md", "docs/deep/old.md"]


def test_links_and_special_files_are_not_listed(root: Path) -> None:
    (root / "link.md").symlink_to("readme.md")
    os.mkfifo(root / "pipe")
    assert listed(Documents(root)) == "b.txt\nreadme.md\ndocs/hive.md\ndocs/deep/old.md"


def test_number_of_files_and_depth_are_bounded(root: Path) -> None:
    assert Documents(root, limits=Limits(files=2)).paths() == ["b.txt", "readme.md"]
    assert Documents(root, limits=Limits(depth=1)).paths() == ["b.txt", "readme.md", "docs/hive.md"]


def test_long_list_says_how_many_more_there_are(root: Path) -> None:
    assert listed(Documents(root, limits=Limits(listed=1))) == "b.txt\n... and 3 more"


def test_empty_folder_says_so(tmp_path: Path) -> None:
    assert listed(Documents(tmp_path)) == "no files"


def test_only_what_is_named_is_there_and_in_that_order(root: Path) -> None:
    documents = Documents(root, only=("docs/deep", "readme.md"))
    assert documents.paths() == ["docs/deep/old.md", "readme.md"]
    with pytest.raises(DocumentError, match="is not among the documents"):
        documents.lines("b.txt")


def test_lines_are_read_with_their_numbers(root: Path) -> None:
    expected = "readme.md, lines 3 to 4 of 4\n3: Bees dance.\n4: A hive has ONE queen."
    assert read(Documents(root), "readme.md", 3, 9) == expected
    assert read(Documents(root), "readme.md", 3) == expected


def test_line_ends_of_both_kinds_are_left_out(root: Path) -> None:
    assert Documents(root).lines("b.txt") == ["the queen lays eggs", "workers do not"]


def test_one_answer_has_a_bounded_number_of_lines_and_characters(root: Path) -> None:
    (root / "long.txt").write_text("".join(f"{number}{'x' * 500}\n" for number in range(100)))
    documents = Documents(root, limits=Limits(lines=3, line_chars=10, answer_chars=1000))
    assert read(documents, "long.txt").splitlines() == [
        "long.txt, lines 1 to 3 of 100",
        "1: 0xxxxxxxxx...",
        "2: 1xxxxxxxxx...",
        "3: 2xxxxxxxxx...",
    ]
    documents = Documents(root, limits=Limits(lines=3, line_chars=10, answer_chars=20))
    assert read(documents, "long.txt", 5).splitlines() == [
        "long.txt, lines 5 to 5 of 100",
        "5: 4xxxxxxxxx...",
    ]


def test_empty_file_can_be_read(root: Path) -> None:
    (root / "empty.md").touch()
    assert read(Documents(root), "empty.md") == "empty.md, lines 1 to 0 of 0"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (("readme.md", 5), "has 4 lines, none with the number 5"),
        (("readme.md", 3, 2), "the last line, 2, is before the first, 3"),
        (("../readme.md",), "leads out of the folder"),
        (("nothing.md",), r"there is no 'nothing\.md'"),
        (("docs",), "is a folder"),
    ],
)
def test_what_cannot_be_read_is_an_error_for_the_model(root: Path, given: tuple[object, ...], problem: str) -> None:
    with pytest.raises(DocumentError, match=problem):
        read(Documents(root), *given)


@pytest.mark.parametrize("data", [b"GIF89a\0\1", "é".encode("latin-1"), "text".encode("utf-16")])
def test_binary_file_is_refused_and_not_searched(root: Path, data: bytes) -> None:
    (root / "picture.gif").write_bytes(data)
    with pytest.raises(DocumentError, match="cannot be read here"):
        read(Documents(root), "picture.gif")
    assert search(Documents(root), "GIF89a text") == "nothing found for 'GIF89a text'"


def test_file_over_the_limit_is_refused(root: Path) -> None:
    with pytest.raises(DocumentError, match="more than 5 bytes"):
        read(Documents(root, limits=Limits(file_bytes=5)), "readme.md")


def test_search_ignores_case_and_gives_file_line_and_text(root: Path) -> None:
    assert search(Documents(root), "Queen") == "b.txt:1: the queen lays eggs\nreadme.md:4: A hive has ONE queen."


def test_line_with_the_whole_query_comes_before_lines_with_its_words(root: Path) -> None:
    (root / "a.txt").write_text("one hive, another queen\n")
    found = search(Documents(root), '"one queen"').splitlines()
    assert found == [
        "readme.md:4: A hive has ONE queen.",
        "a.txt:1: one hive, another queen",
        "b.txt:1: the queen lays eggs",
    ]


def test_word_is_found_where_another_begins_with_it_but_not_inside_one(root: Path) -> None:
    (root / "a.txt").write_text("remap\nmaps\n")
    assert search(Documents(root), "map") == "a.txt:2: maps"


def test_signs_in_a_query_are_no_pattern(root: Path) -> None:
    (root / "a.txt").write_text("a.*b (c) [d] \\e\n")
    assert search(Documents(root), "a.*b (c)").startswith("a.txt:1: a.*b (c)")
    assert search(Documents(root), "(((zebra").startswith("nothing found")


def test_hits_are_bounded_and_the_rest_is_counted(root: Path) -> None:
    (root / "many.txt").write_text("bee\n" * 50)
    found = search(Documents(root, limits=Limits(hits=2)), "bee").splitlines()
    assert len(found) == 3
    assert found[-1] == "... and 50 more lines"


def test_search_ends_after_so_many_bytes(root: Path) -> None:
    assert search(Documents(root, limits=Limits(searched_bytes=40)), "queen") == "b.txt:1: the queen lays eggs"


@pytest.mark.parametrize("query", ["", "  ", "?!"])
def test_query_without_a_word_is_an_error(root: Path, query: str) -> None:
    with pytest.raises(DocumentError, match="no word to look for"):
        search(Documents(root), query)


def test_query_of_common_words_alone_is_searched_for(root: Path) -> None:
    assert "workers do not" in search(Documents(root), "do not")


def test_key_words_leave_out_what_tells_nothing() -> None:
    assert key_words("What does the Bee say about the bee and its Hive?") == ["bee", "hive"]


@pytest.mark.anyio
async def test_tool_checks_the_arguments_of_a_model(root: Path) -> None:
    reader = document_tools(Documents(root))[1]
    text = await reader.execute({"path": "readme.md", "first_line": 1, "last_line": 1}, ToolContext())
    assert text == "readme.md, lines 1 to 1 of 4\n1: # Bees"
