"""Where an agent has to end: its round limit, exactly, and what is left then."""

from __future__ import annotations

from typing import Any

import pytest

from graphrt import END, START, AgentNode, ConfigError, LimitExceededError, Workflow
from graphrt.graph import RunStatus, TerminationKind
from graphrt.llm import ScriptedProvider
from graphrt.messages import LLMResponse, Message
from tests.nodeclasses.helpers import Events, add, answers, asks, call, unanswered

pytestmark = pytest.mark.anyio


def always_asks(rounds: int, text: str = "") -> ScriptedProvider:
    """Play a model that always wants a tool."""
    return ScriptedProvider([LLMResponse(text, [call(f"c-{n}", a=n, b=1)]) for n in range(rounds)])


async def test_limit_is_exact_and_the_last_rounds_tools_still_run() -> None:
    """AC-W25, D-05."""
    ran: list[int] = []

    async def note(a: int, b: int) -> int:
        ran.append(a)
        return a

    provider = ScriptedProvider([asks(call(f"c-{n}", "note", a=n, b=0)) for n in range(3)])
    result = await AgentNode("a", model=provider, tools=[note], max_rounds=2).graph.run("go", check=False)

    assert len(provider.calls) == 2
    assert ran == [0, 1]
    assert result.status is RunStatus.STOPPED
    assert (result.termination.kind, result.termination.code) == (TerminationKind.STOPPED, "max_rounds")
    assert result.rounds == 2
    assert unanswered(result.messages) == []
    assert answers(result.messages) == [("c-0", "0"), ("c-1", "1")]
    assert result.response is not None
    assert (result.response.rounds, len(result.response.tool_calls)) == (2, 2)


async def test_limit_error_names_the_limit() -> None:
    """B-024."""
    with pytest.raises(LimitExceededError, match="2 rounds") as caught:
        await AgentNode("a", model=always_asks(3), tools=[add], max_rounds=2).graph.run("go")
    assert caught.value.limit == "max_rounds"


async def test_answer_in_the_last_round_is_no_stop() -> None:
    """B-024, D-05."""
    provider = ScriptedProvider([asks(call("c-1", a=1, b=1)), "just in time"])
    result = await AgentNode("a", model=provider, tools=[add], max_rounds=2).graph.run("go")

    assert result.output == "just in time"
    assert result.termination.kind is TerminationKind.NATURAL_END


async def test_model_answers_without_tools_in_the_last_round() -> None:
    """B-026: its text is the result, marked as cut short."""
    provider = ScriptedProvider([*[asks(call(f"c-{n}", a=n, b=1)) for n in range(2)], "what I have so far"])
    result = await AgentNode("a", model=provider, tools=[add], max_rounds=3, on_limit="answer").graph.run("go")

    assert [asked.tools is not None for asked in provider.calls] == [True, True, False]
    assert result.output == "what I have so far"
    assert result.status is RunStatus.SUCCEEDED
    assert (result.termination.kind, result.termination.code) == (TerminationKind.STOPPED, "max_rounds")
    assert result.response is not None
    assert result.response.termination == result.termination


async def test_model_that_asks_all_the_same_is_not_heard() -> None:
    """B-026: and no call is left without an answer."""
    result = await AgentNode(
        "a", model=always_asks(3, "so far"), tools=[add], max_rounds=3, on_limit="answer"
    ).graph.run("go")

    assert result.output == "so far"
    assert unanswered(result.messages) == []
    assert result.messages[-1] == Message.assistant("so far")


async def test_earlier_answer_is_not_cut_short() -> None:
    """B-026."""
    agent = AgentNode("a", model=ScriptedProvider(["done"]), tools=[add], max_rounds=3, on_limit="answer")
    result = await agent.graph.run("go")

    assert result.termination.kind is TerminationKind.NATURAL_END


async def test_agent_without_tools_is_never_cut_short() -> None:
    """B-026."""
    result = await AgentNode("a", model=ScriptedProvider(["done"]), max_rounds=1, on_limit="answer").graph.run("go")

    assert result.termination.kind is TerminationKind.NATURAL_END


async def test_limit_of_an_agent_in_a_graph_is_the_failure_of_its_node() -> None:
    """E10b."""

    async def instead(error: LimitExceededError) -> str:
        return f"stopped at {error.limit}"

    workflow = Workflow("w", input=str, output=str)
    workflow.add(AgentNode("a", model=always_asks(3), tools=[add], max_rounds=2))
    workflow.node(instead)
    workflow.chain(START, "a", END)
    workflow.edge("a", instead, on_error=LimitExceededError)
    workflow.edge(instead, END)

    assert (await workflow.run("go")).output == "stopped at max_rounds"


async def test_cycle_around_an_agent_has_its_own_limit() -> None:
    """E20: every activation counts from 1."""
    provider = ScriptedProvider([asks(call("c", a=1, b=1)), "again", asks(call("c", a=1, b=1)), "enough"])
    workflow = Workflow("w", input=str, output=str, max_rounds=2)
    workflow.add(AgentNode("a", model=provider, tools=[add], max_rounds=2))
    workflow.edge(START, "a")
    workflow.edge("a", "a", when=lambda text: text == "again")
    workflow.edge("a", END, when=lambda text: text != "again")

    assert (await workflow.run("go")).output == "enough"


async def test_rounds_are_told_in_pairs() -> None:
    """`round.started` and `round.completed`, at a limit too."""
    events = Events()
    agent = AgentNode("a", model=always_asks(3), tools=[add], max_rounds=2)
    await agent.graph.run("go", check=False, on_event=events)

    assert [event.data["round"] for event in events.of("round.started")] == [1, 2]
    assert [event.data["round"] for event in events.of("round.completed")] == [1, 2]


def test_agent_has_at_least_one_round() -> None:
    """D-03."""
    agent = AgentNode("a", model=ScriptedProvider(), max_rounds=0)
    with pytest.raises(ConfigError, match="max_rounds of graph 'a' is 0"):
        _ = agent.graph


async def test_transcript_grows_by_what_is_new_alone() -> None:
    """B-062: a step stores only what it adds to the conversation."""
    rounds = 20
    events = Events()
    agent = AgentNode("a", model=ScriptedProvider([*always_asks(rounds)._script, "done"]), tools=[add], max_rounds=30)
    result = await agent.graph.run("go", on_event=events)

    assert len(result.messages) == 2 * rounds + 2
    written: list[Any] = [event.data["update"] for event in events.of("step.completed") if event.data.get("update")]
    assert sum(len(fields["messages"]) for fields in written) == 2 * rounds + 2
    outputs = [event.data["output"] for event in events.of("step.completed")]
    assert max(len(repr(output)) for output in outputs) < 400
