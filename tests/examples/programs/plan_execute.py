"""Plan and execute: a model makes a plan, its steps are carried out, and it plans anew until it is done.

The planner is an agent whose answer is of a declared type. The steps of one plan run side by side, one scope each; what
came of them goes back to the planner, which adds steps or says that it is done.
"""

from __future__ import annotations

from pydantic import BaseModel

from graphrt import END, START, AgentNode, LLMProvider, Workflow
from graphrt.llm import ScriptedProvider


class Plan(BaseModel):
    """What the planner wants done; an answer instead once nothing is left."""

    steps: list[str] = []
    answer: str = ""


def build(model: LLMProvider) -> Workflow:
    """Make the workflow with *model* as its planner."""
    workflow = Workflow("plan and execute", input=str, output=str, max_rounds=5)
    workflow.add(AgentNode("planner", model=model, system_prompt="Plan, or answer.", output=Plan))

    @workflow.node
    async def steps(plan: Plan) -> list[str]:
        return plan.steps

    @workflow.node
    async def execute(step: str) -> str:
        return f"{step}: done"

    @workflow.node
    async def results(done: list[str]) -> str:
        return "\n".join(done)

    @workflow.node
    async def answer(plan: Plan) -> str:
        return plan.answer

    workflow.edge(START, "planner")
    workflow.branch("planner", {True: steps, False: answer}, key=lambda plan: bool(plan.steps))
    workflow.map(steps, execute)
    workflow.gather(execute, results)
    workflow.edge(results, "planner")
    workflow.edge(answer, END)
    return workflow


def scripted() -> ScriptedProvider:
    """Stand in for a model that plans twice and then answers."""
    plans = [
        Plan(steps=["buy flour", "buy honey"]),
        Plan(steps=["bake"]),
        Plan(answer="the cake is ready"),
    ]
    return ScriptedProvider([plan.model_dump_json() for plan in plans])


def main() -> str:
    """Run it once."""
    return str(build(scripted()).run_sync("bake a honey cake").output)
