"""What is read from a docstring, in three styles and in none."""

from __future__ import annotations

from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrt.tools.docstring import parse_docstring

GOOGLE = """
    Copy a file.

    Links are followed.

    Args:
        source (str, optional): Where it is:
            a path or an address.
        target: Where it goes.
        **options: More.
        unexplained:

    Returns:
        Bytes copied.

    Raises:
        OSError: No room.

    Note:
        Slow on networks.
    """

NUMPY = """
    Copy a file.

    Links are followed.

    Parameters
    ----------
    source : str, optional
        Where it is:
        a path or an address.
    target
        Where it goes.
    low, high : int
        Limits.
    unexplained : int

    Returns
    -------
    int
        Bytes copied.

    Notes
    -----
    Slow on networks.
    """

SPHINX = """
    Copy a file.

    Links are followed.

    :param str source: Where it is:
        a path or an address.
    :type source: str
    :param target: Where it goes.
    :returns: Bytes copied.
    :rtype: int
    :raises OSError: No room.
    """

BOTH = {"source": "Where it is: a path or an address.", "target": "Where it goes."}


def test_google_sections_describe_the_parameters() -> None:
    text, parameters = parse_docstring(GOOGLE)

    assert text == "Copy a file.\n\nLinks are followed.\n\nNote:\n    Slow on networks."
    assert parameters == {**BOTH, "options": "More."}


def test_numpy_sections_describe_the_parameters() -> None:
    text, parameters = parse_docstring(NUMPY)

    assert text == "Copy a file.\n\nLinks are followed.\n\nNotes\n-----\nSlow on networks."
    assert parameters == {**BOTH, "low": "Limits.", "high": "Limits."}


def test_sphinx_fields_describe_the_parameters() -> None:
    assert parse_docstring(SPHINX) == ("Copy a file.\n\nLinks are followed.", BOTH)


@pytest.mark.parametrize("text", [None, "", "   "])
def test_no_docstring_describes_nothing(text: str | None) -> None:
    assert parse_docstring(text) == ("", {})


def test_text_that_only_looks_like_a_section_stays() -> None:
    text = dedent("""\
        Args are passed on.

        returns nothing
        key: value""")

    assert parse_docstring(text) == (text, {})


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    description, parameters = parse_docstring(text)

    assert isinstance(description, str)
    assert all(parameters.values())


@given(st.lists(st.sampled_from([*GOOGLE.splitlines(), *NUMPY.splitlines(), *SPHINX.splitlines()])))
def test_any_mixture_of_styles_can_be_read(lines: list[str]) -> None:
    parse_docstring("\n".join(lines))
