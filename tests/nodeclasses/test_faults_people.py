"""Several questions at once: each is asked once, answers come in any order, and nothing is run again for them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from graphrt import END, START, AgentNode, Ask, RunContext, Workflow
from graphrt.llm import ScriptedProvider
from graphrt.tools import ToolContext, function_tool
from tests.nodeclasses.helpers import answers, asks, call

pytestmark = pytest.mark.anyio


async def open_questions(run: Any, number: int) -> list[Any]:
    """Wait until so many questions are open."""
    with anyio.fail_after(10):
        while len(run.questions) != number:
            await anyio.lowlevel.checkpoint()
    return list(run.questions)


async def test_answered_question_is_not_asked_again_and_its_neighbour_is_not_run_again() -> None:
    """B-091: nodes side by side, of which one asks twice."""
    ran: list[str] = []
    workflow = Workflow("two")

    async def first(x: str) -> str:
        ran.append("first")
        return x

    async def second(name: str, age: int) -> str:
        return f"{name} {age}"

    workflow.add(first)
    workflow.add(Ask("name", question="your name?", answer=str))
    workflow.add(Ask("age", question="your age?", answer=int))
    workflow.add(second)
    workflow.chain(START, first, END)
    workflow.chain(START, "name", "age", second, END)
    async with workflow.stream("x") as run:
        assert [each.node for each in await open_questions(run, 1)] == ["name"]
        await run.answer("name", "Ada")
        with anyio.fail_after(10):
            while [each.node for each in run.questions] != ["age"]:
                await anyio.lowlevel.checkpoint()
        await run.answer("age", 36)
        result = await run.wait()

    assert result.outputs["second"] == "Ada 36"
    assert ran == ["first"]


async def test_run_waits_until_the_last_of_its_questions_is_answered() -> None:
    """B-095: one of two suspended calls is answered, and the other still can be; ids tell them apart."""
    bought: list[str] = []

    @function_tool(requires_approval=True)
    async def buy(item: str) -> str:
        bought.append(item)
        return f"bought {item}"

    provider = ScriptedProvider([asks(call("c-1", "buy", item="lamp"), call("c-2", "buy", item="desk")), "done"])
    agent = AgentNode("agent", model=provider, tools=[buy])
    async with agent.graph.stream("shop") as run:
        found = {each.question["tool_call_id"]: each.id for each in await open_questions(run, 2)}
        await run.answer(found["c-2"], {"approved": False, "reason": "too dear"})
        still = await open_questions(run, 1)
        assert [each.id for each in still] == [found["c-1"]]
        assert provider.remaining == 1
        await run.answer(found["c-1"], {"approved": True, "arguments": {"item": "small lamp"}})
        result = await run.wait()

    assert bought == ["small lamp"]
    told = answers(provider.calls[1].messages)
    assert [call_id for call_id, _ in told] == ["c-1", "c-2"]
    assert told[0][1] == "bought small lamp"
    assert "too dear" in told[1][1]
    assert result.output == "done"


async def test_approved_tool_is_called_once_with_the_deps_of_the_run() -> None:
    """B-099: an approval is kept whatever context object the caller brings."""
    seen: list[Any] = []

    @function_tool(requires_approval=True)
    async def pay(amount: int, ctx: ToolContext[dict[str, str]]) -> str:
        seen.append((amount, ctx.deps))
        return "paid"

    workflow = Workflow("pays")

    async def note(x: str, ctx: RunContext[dict[str, str]]) -> str:
        seen.append(ctx.deps)
        return x

    workflow.add(note)
    workflow.add(AgentNode("agent", model=ScriptedProvider([asks(call("c-1", "pay", amount=3)), "done"]), tools=[pay]))
    workflow.chain(START, note, "agent", END)

    async def yes(question: Any) -> bool:
        await anyio.lowlevel.checkpoint()
        return True

    context = {"user": "ada"}
    result = await workflow.run("go", deps=context, on_ask=yes)

    assert seen == [context, (3, context)]
    assert result.output == "done"
