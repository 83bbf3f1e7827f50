"""A map over what is still coming: an async generator yields items, and their scopes open while it goes on.

Pages of a search are fetched one after the other; each hit is worked on as soon as it is there, three at a time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio.lowlevel

from graphrt import END, START, RunContext, Workflow

search = Workflow("search", input=str, output=list[str])

PAGES = [["hive", "honey"], ["queen", "drone"], ["swarm"]]


@search.node
async def hits(query: str, ctx: RunContext[None]) -> AsyncIterator[str]:
    """Yield the hits of one page after the other."""
    for number, page in enumerate(PAGES):
        await anyio.lowlevel.checkpoint()  # the next page is fetched here
        ctx.emit("custom.page", {"number": number})
        for hit in page:
            yield hit


@search.node
async def summarise(hit: str, query: str) -> str:
    """Work on one hit."""
    return f"{hit}: what it says about {query}"


search.edge(START, hits)
search.map(hits, summarise, max_concurrency=3)
search.gather(summarise, END)


def main() -> list[str]:
    """Run it once."""
    return list(search.run_sync("bees").output)
