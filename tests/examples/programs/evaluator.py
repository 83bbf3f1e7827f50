"""An evaluator and an optimiser: write, judge, and write again until it is good, at most five times.

The edge back from `judge` to `write` closes a cycle. In the first round `write` gets the topic; in later rounds it gets
the judge's verdict, by the name of its node, and the topic is still to be had.
"""

from __future__ import annotations

from pydantic import BaseModel

from graphrt import END, START, Workflow


class Verdict(BaseModel):
    """What the judge says."""

    ok: bool
    remark: str = ""


slogans = Workflow("slogans", input=str, output=str, max_rounds=5)


@slogans.node
async def write(topic: str, judge: Verdict | None = None) -> str:
    """Write a slogan, or a better one; a model would get the remark in its prompt."""
    if judge is None:
        return f"{topic} are good"
    return f"{topic} are better"


@slogans.node
async def judge(draft: str) -> Verdict:
    """Judge a slogan."""
    if "better" in draft:
        return Verdict(ok=True)
    return Verdict(ok=False, remark="be bolder")


@slogans.node
async def publish(verdict: Verdict, write: str) -> str:
    """Publish the slogan of the last round."""
    return f"{write}!"


slogans.chain(START, write, judge)
slogans.edge(judge, write, when=lambda verdict: not verdict.ok)
slogans.edge(judge, publish, when=lambda verdict: verdict.ok)
slogans.edge(publish, END)


def main() -> str:
    """Run it once."""
    return str(slogans.run_sync("bees").output)
