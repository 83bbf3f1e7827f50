"""A supervisor that hands over to specialists: each is an agent, and reports back.

The supervisor reads what was said last and names who goes on, or gives the reply to the customer. The specialists are
graphs of their own, each with a round limit of its own; every answer goes back to the supervisor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel

from graphrt import END, START, AgentNode, LLMProvider, Workflow
from graphrt.llm import ScriptedProvider


class HandOver(BaseModel):
    """Who goes on, and with what."""

    to: Literal["billing", "technical", "customer"]
    text: str


def specialist(name: str, model: LLMProvider, system_prompt: str) -> Workflow:
    """Make the graph of one specialist: a brief for its agent, and the agent."""
    desk = Workflow(name, input=HandOver, output=str)

    @desk.node
    async def brief(hand_over: HandOver) -> str:
        return hand_over.text

    agent = AgentNode(f"{name} agent", model=model, system_prompt=system_prompt, max_rounds=3)
    desk.add(agent)
    desk.chain(START, brief, agent, END)
    return desk


def build(models: Mapping[str, LLMProvider]) -> Workflow:
    """Make the workflow; *models* has one for the supervisor and each specialist."""
    service = Workflow("service", input=str, output=str, max_rounds=6)
    supervisor = AgentNode("supervisor", model=models["supervisor"], output=HandOver, system_prompt="Hand over.")
    service.add(supervisor)
    billing = specialist("billing", models["billing"], "You know about bills.")
    technical = specialist("technical", models["technical"], "You know about machines.")
    service.add(billing)
    service.add(technical)

    @service.node
    async def reply(hand_over: HandOver) -> str:
        return hand_over.text

    service.edge(START, supervisor)
    service.branch(
        supervisor,
        {"billing": billing, "technical": technical, "customer": reply},
        key=lambda hand_over: hand_over.to,
    )
    service.edge(billing, supervisor)
    service.edge(technical, supervisor)
    service.edge(reply, END)
    return service


def scripted() -> dict[str, ScriptedProvider]:
    """Stand in for models that solve the case in three rounds."""
    decisions = [
        HandOver(to="technical", text="the machine does not start"),
        HandOver(to="billing", text="a new fuse"),
        HandOver(to="customer", text="You need a new fuse, for 2 euros."),
    ]
    return {
        "supervisor": ScriptedProvider([one.model_dump_json() for one in decisions]),
        "technical": ScriptedProvider(["It needs a new fuse."]),
        "billing": ScriptedProvider(["A fuse costs 2 euros."]),
    }


def main() -> str:
    """Run it once."""
    return str(build(scripted()).run_sync("My machine does not start. What will it cost?").output)
