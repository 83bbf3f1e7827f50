"""A goal becomes a plan, and its steps are turns of one session: those that need nothing of each other run at once.

The planner is the session's own model. Each step names the steps whose results it needs; a step whose turn fails takes
those along that depend on it, and no other where the failure policy says so. A hook is told how the steps stand.
"""

from __future__ import annotations

import json

from graphrt import AgentBuilder, AgentSession, HookEvent, HookExecutor, SessionTaskAgent, SimpleAgent, ToolRegistry
from graphrt.agent import FailurePolicy, JsonPlanParser
from graphrt.errors import LlmError
from graphrt.hooks import HookContext
from graphrt.llm import ScriptedProvider
from graphrt.llm.provider import Tools
from graphrt.messages import Message

PLAN = [
    {"description": "buy flour", "depends_on": []},
    {"description": "buy honey", "depends_on": []},
    {"description": "bake", "depends_on": [0, 1]},
    {"description": "find candles", "depends_on": []},
    {"description": "light candles", "depends_on": [3]},
]


def step(messages: list[Message], tools: Tools, params: dict[str, object]) -> str | LlmError:
    """Stand in for a model that carries out a step."""
    text = messages[-1].content
    return LlmError("there are no candles") if text == "find candles" else f"{text}: done"


def build(model: ScriptedProvider, told: list[str]) -> SessionTaskAgent:
    """Make the agent on top of *model*; what its steps come to goes into *told*."""
    hooks = HookExecutor()

    def tell(ctx: HookContext) -> None:
        told.append(f"{ctx.plan_step_index} {ctx.data['status']}")

    hooks.register(HookEvent.ON_PLAN_STEP_COMPLETE, tell)
    bundle = AgentBuilder().provider(model).tool_registry(ToolRegistry()).hook_executor(hooks).build()
    session = AgentSession("s-1", SimpleAgent("baker"), bundle)
    return SessionTaskAgent(session, JsonPlanParser(), failure_policy=FailurePolicy.CONTINUE)


def scripted() -> ScriptedProvider:
    """Stand in for a model that plans, and then carries out four steps of the five."""
    return ScriptedProvider([json.dumps({"steps": PLAN}), *[step] * 4])


async def bake(told: list[str]) -> list[str]:
    """Plan it, carry it out, and list the steps with their ends."""
    plan = await build(scripted(), told).run("a birthday cake")
    return [f"{step.description}: {step.status.state}" for step in plan.steps]


def main() -> list[str]:
    """Run it once."""
    import anyio

    return anyio.run(bake, [])
