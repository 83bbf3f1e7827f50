"""Approval by a person: the run waits for an answer, and goes on with it.

Whoever reads the run's events sees the question and answers it, or a function given as `on_ask` does. While it waits
the run holds no slot, and its time limit stands still.
"""

from __future__ import annotations

from pydantic import BaseModel

from graphrt import END, START, Ask, Workflow
from graphrt.graph import Question


class Approval(BaseModel):
    """What the person says."""

    ok: bool
    remark: str = ""


letters = Workflow("letters", input=str, output=str, timeout=60)


@letters.node
async def draft(name: str, approve: Approval | None = None) -> str:
    """Write the letter, or change it as the person wants."""
    greeting = approve.remark if approve is not None else "Hi"
    return f"{greeting} {name}"


letters.add(Ask("approve", question=lambda draft: f"Shall this go out? {draft}", answer=Approval))


@letters.node
async def send(approval: Approval, draft: str) -> str:
    """Send the letter that was approved."""
    return f"sent: {draft}"


letters.chain(START, draft, "approve")
letters.edge("approve", draft, when=lambda approval: not approval.ok)
letters.edge("approve", send, when=lambda approval: approval.ok)
letters.edge(send, END)


async def by_stream(name: str) -> str:
    """Answer where the events are read: refuse the first draft, then approve."""
    async with letters.stream(name) as run:
        async for event in run:
            if event.type == "step.waiting":
                (question,) = run.questions
                await run.answer(question.id, decide(question))
        return str(run.result.output)


async def by_function(name: str) -> str:
    """Let a function answer."""

    async def on_ask(question: Question) -> Approval:
        return decide(question)

    return str((await letters.run(name, on_ask=on_ask)).output)


def decide(question: Question) -> Approval:
    """Stand in for a person who wants it more formal."""
    if "Dear" in question.question:
        return Approval(ok=True)
    return Approval(ok=False, remark="Dear")


def main() -> str:
    """Run it once."""
    import anyio

    return anyio.run(by_stream, "Ann")
