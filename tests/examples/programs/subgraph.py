"""A graph inside a graph, with limits of its own.

`research` looks further until it has enough, at most three rounds, and for at most ten seconds. In `article` it is a
node like any other: when it reaches a limit that is the failure of this node, and its fallback stands in.
"""

from __future__ import annotations

from graphrt import END, START, Workflow

research = Workflow("research", input=str, output=list[str], max_rounds=3, timeout=10)


@research.node
async def look(query: str) -> list[str]:
    """Begin with the query itself."""
    return [query]


@research.node
async def further(found: list[str]) -> list[str]:
    """Find twice as much as there was."""
    return [*found, *(f"more on {one}" for one in found)]


research.chain(START, look, further)
research.edge(further, further, when=lambda found: len(found) < 8 or "everything" in found)
research.edge(further, END, when=lambda found: len(found) >= 8 and "everything" not in found)

article = Workflow("article", input=str, output=str)


@article.node
async def write(findings: list[str], topic: str) -> str:
    """Write the article; the topic is the run's input."""
    return f"{topic}: {len(findings)} findings"


@article.node
async def plan(topic: str) -> str:
    """Say what to look for."""
    return topic.lower()


article.add(research, fallback=[["nothing sure"]])
article.chain(START, plan, research, write, END)


def main() -> str:
    """Run it once."""
    return str(article.run_sync("Bees").output)
