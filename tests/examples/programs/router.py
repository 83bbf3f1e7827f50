"""A router: one node decides, exactly one of several others goes on, and the ways meet again.

`branch` goes by the value itself or by a key of it. What was not chosen is skipped, and nobody waits for it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from graphrt import END, START, Workflow

Kind: TypeAlias = Literal["bug", "question", "praise", "other"]

tickets = Workflow("tickets", input=str, output=str)


@tickets.node
async def classify(text: str) -> Kind:
    """Say what kind of ticket it is; a model would do this better."""
    if "crash" in text:
        return "bug"
    if text.endswith("?"):
        return "question"
    return "praise" if "thank" in text else "other"


@tickets.node
async def debug(kind: Kind, text: str) -> str:
    """Look into a bug. The ticket itself is the run's input, and is to be had by its name."""
    return f"a developer looks at: {text}"


@tickets.node
async def answer(kind: Kind, text: str) -> str:
    """Answer a question."""
    return f"please read the manual about: {text}"


@tickets.node
async def escalate(kind: Kind, text: str) -> str:
    """Pass on whatever has no place of its own."""
    return f"somebody else will see to ({kind}): {text}"


@tickets.node
async def reply(body: str) -> str:
    """Write the reply, whichever way the ticket went."""
    return f"Dear customer, {body}"


tickets.edge(START, classify)
tickets.branch(classify, {"bug": debug, "question": answer}, default=escalate)
for way in (debug, answer, escalate):
    tickets.edge(way, reply)
tickets.edge(reply, END)


def main() -> str:
    """Run it once."""
    return str(tickets.run_sync("it crashes when I click").output)
