"""Map and gather: an outline, its sections side by side, and the whole in the outline's order.

Each item of the outline gets a scope of its own, in which `section` runs. A section that fails for good is left out,
as long as two are delivered.
"""

from __future__ import annotations

from graphrt import END, START, RetryPolicy, Workflow

report = Workflow("report", input=str, output=str)


@report.node
async def outline(topic: str) -> list[str]:
    """Make the headings."""
    return ["food", "homes", "taxes", "dances"]


@report.node(retry=RetryPolicy(attempts=2, wait_initial=0))
async def section(heading: str, topic: str) -> str:
    """Write one section."""
    if heading == "taxes":
        raise LookupError(f"nothing is known about the taxes of {topic}")
    return f"{heading.capitalize()} of {topic}."


@report.node
async def assemble(topic: str, sections: list[str]) -> str:
    """Put it together."""
    return "\n".join([f"All about {topic}", *sections])


report.chain(START, outline)
report.map(outline, section, on_error="skip", min_success=2, max_concurrency=10)
report.gather(section, assemble, into="sections")
report.chain(assemble, END)


def main() -> str:
    """Run it once."""
    return str(report.run_sync("bees").output)
