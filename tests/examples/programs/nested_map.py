"""Nested maps: a map inside a map. Each gather closes one, so the result is a list of lists, made flat by hand.

A word count of several books, each in several chapters.
"""

from __future__ import annotations

from collections import Counter

from graphrt import END, START, Workflow

Library = dict[str, list[str]]

word_count = Workflow("word count", input=Library, output=list[tuple[str, int]])


@word_count.node
async def books(library: Library) -> list[tuple[str, list[str]]]:
    """List the books with their chapters; a mapping has to be made a list for a map."""
    return list(library.items())


@word_count.node
async def chapters(book: tuple[str, list[str]]) -> list[str]:
    """List the chapters of one book."""
    return book[1]


@word_count.node
def count(chapter: str) -> Counter[str]:
    """Count the words of one chapter, in a thread."""
    return Counter(chapter.lower().split())


@word_count.node
async def book_total(counts: list[Counter[str]]) -> Counter[str]:
    """Add up one book."""
    return sum(counts, Counter())


@word_count.node
async def total(totals: list[Counter[str]]) -> list[tuple[str, int]]:
    """Add up all books, and give the three words that are used most."""
    return sum(totals, Counter[str]()).most_common(3)


word_count.edge(START, books)
word_count.map(books, chapters)
word_count.map(chapters, count)
word_count.gather(count, book_total)
word_count.gather(book_total, total)
word_count.edge(total, END)

LIBRARY: Library = {
    "bees": ["the bee and the flower", "the hive"],
    "ants": ["the ant", "the hill and the ant", "nobody"],
    "nothing": [],
}


def main() -> list[tuple[str, int]]:
    """Run it once."""
    return list(word_count.run_sync(LIBRARY).output)
