from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import networkx as nx
import pytest

from graphrt import (
    END,
    START,
    AgentNode,
    Budget,
    ConfigError,
    GraphTypeError,
    LlmError,
    RetryPolicy,
    ToolRegistry,
    Workflow,
    function_tool,
)
from graphrt.config import RetryConfig
from graphrt.errors import LlmErrorKind
from graphrt.graph import NodeKind, NodeState, TerminationKind
from graphrt.hooks import HookContext, HookEvent, HookExecutor
from graphrt.llm import ProviderExecutor, RetryingExecutor, ScriptedProvider
from graphrt.messages import ChatResponse, LLMResponse, Message, TokenUsage, ToolCall
from graphrt.nodes import AgentParts, compile_agent
from graphrt.tools import PermissionChecker, PermissionDecision, ToolContext
from tests.nodeclasses.helpers import Events, add, answers, asks, call, unanswered
from tests.telemetry.collecting import Collected

pytestmark = pytest.mark.anyio


async def sub(a: int, b: int) -> int:
    """Subtract one number from another."""
    return a - b


# --- shape


def test_graph_has_a_node_for_every_tool_and_model_and_one_way_back() -> None:
    """AC-C01."""
    a, b = function_tool(add, id="a"), function_tool(sub, id="b")
    resolved = AgentParts("agent", ScriptedProvider(), "big", fallbacks=[(ScriptedProvider(), "small")], tools=[a, b])
    graph = compile_agent(resolved)

    nodes = set(graph.nx.nodes) - {"START", "END"}
    back = [(src, dst) for src, dst, data in graph.nx.edges(data=True) if data["back"]]
    forward = graph.nx.copy()
    forward.remove_edges_from(back)

    assert nodes == {"inference", "fallback:small", "reply", "call", "tool:a", "tool:b", "unknown", "results"}
    assert back == [("results", "inference")]
    assert nx.is_directed_acyclic_graph(forward)
    kinds = {name: data["kind"] for name, data in graph.nx.nodes(data=True)}
    assert (kinds["inference"], kinds["fallback:small"], kinds["tool:a"]) == (
        NodeKind.INFERENCE,
        NodeKind.FALLBACK,
        NodeKind.TOOL,
    )


def test_two_models_of_one_name_are_two_nodes() -> None:
    again = [(ScriptedProvider(), "small"), (ScriptedProvider(), "small"), (ScriptedProvider(), None)]
    graph = compile_agent(AgentParts("agent", ScriptedProvider(), fallbacks=again))

    assert {"fallback:small", "fallback:small#2", "fallback:3"} <= set(graph.nx.nodes)


# --- the loop


async def test_agent_calls_a_tool_and_answers() -> None:
    provider = ScriptedProvider(
        [asks(call("c-1", a=1, b=2), usage=TokenUsage(10, 5)), LLMResponse("3", usage=TokenUsage(7, 3))]
    )
    agent = AgentNode("calculator", model=provider, tools=[add], system_prompt="Add.", temperature=0.0)

    result = await agent.graph.run("1 + 2?")

    assert result.output == "3"
    assert result.messages == [
        Message.user("1 + 2?"),
        Message.assistant("", [call("c-1", a=1, b=2)]),
        Message.tool("c-1", "3"),
        Message.assistant("3"),
    ]
    assert result.response == ChatResponse("3", TokenUsage(17, 8), 2, result.termination, [call("c-1", a=1, b=2)])
    assert result.termination.kind is TerminationKind.NATURAL_END
    first, second = provider.calls
    assert first.messages == [Message.system("Add."), Message.user("1 + 2?")]
    assert second.messages == [Message.system("Add."), *result.messages[:-1]]
    assert first.kwargs == {"temperature": 0.0}
    assert [tool.name for tool in first.tools or ()] == ["add"]  # type: ignore[union-attr]  # a descriptor


async def test_agent_takes_a_conversation_and_keeps_it_apart_from_the_turn() -> None:
    before = [Message.user("hi"), Message.assistant("hello", [call("old", a=0, b=0)]), Message.tool("old", "0")]
    provider = ScriptedProvider(["fine"])

    result = await AgentNode("a", model=provider).graph.run(before)

    assert provider.calls[0].messages == before
    assert result.messages == [*before, Message.assistant("fine")]
    assert result.response is not None
    assert result.response.tool_calls == []
    assert before == [Message.user("hi"), Message.assistant("hello", [call("old", a=0, b=0)]), Message.tool("old", "0")]


async def test_other_input_is_refused() -> None:
    with pytest.raises(GraphTypeError):
        await AgentNode("a", model=ScriptedProvider()).graph.run(3)


async def test_unknown_tool_is_text_for_the_model() -> None:
    """AC-A09: what was not offered never runs."""
    ran: list[str] = []

    async def delete() -> None:
        ran.append("delete")

    provider = ScriptedProvider([asks(call("c-1", "delete")), "sorry"])
    result = await AgentNode("a", model=provider, tools=[add]).graph.run("go")

    assert answers(result.messages) == [("c-1", "unknown tool 'delete'; the tools are: add")]
    assert result.output == "sorry"


async def test_calls_of_one_round_run_together_and_are_answered_in_order() -> None:
    """B-120, D-30."""
    ended: list[str] = []
    turns = [anyio.Event() for _ in range(4)]
    turns[3].set()

    async def work(n: int) -> str:
        await turns[n + 1].wait()
        ended.append(f"c-{n}")
        turns[n].set()
        return f"result {n}"

    events = Events()
    provider = ScriptedProvider([asks(*(call(f"c-{n}", "work", n=n) for n in range(3))), "done"])
    with anyio.fail_after(10):
        result = await AgentNode("a", model=provider, tools=[work]).graph.run("go", on_event=events)

    assert ended == ["c-2", "c-1", "c-0"]
    assert answers(provider.calls[1].messages) == [("c-0", "result 0"), ("c-1", "result 1"), ("c-2", "result 2")]
    assert answers(result.messages) == answers(provider.calls[1].messages)
    assert [event.data["tool_call_id"] for event in events.of("tool.call.completed")] == ended


async def test_calls_run_one_after_another_when_asked_to() -> None:
    """D-30."""
    inside: list[int] = []
    most: list[int] = []

    async def work(n: int) -> int:
        inside.append(n)
        most.append(len(inside))
        await anyio.lowlevel.checkpoint()
        inside.remove(n)
        return n

    provider = ScriptedProvider([asks(*(call(f"c-{n}", "work", n=n) for n in range(4))), "done"])
    agent = AgentNode("a", model=provider, tools=[work], tool_execution="sequential")

    result = await agent.graph.run("go")

    assert max(most) == 1
    assert [text for _, text in answers(result.messages)] == ["0", "1", "2", "3"]


async def test_exclusive_tool_runs_alone_in_its_round() -> None:
    """D-30."""
    inside: set[str] = set()
    together: list[set[str]] = []

    async def work(who: str) -> None:
        inside.add(who)
        for _ in range(5):
            together.append(set(inside))
            await anyio.lowlevel.checkpoint()
        inside.discard(who)

    tools = [function_tool(work, id="shared"), function_tool(work, id="alone", exclusive=True)]
    calls = [call(f"c-{n}", name, who=f"{name}{n}") for n, name in enumerate(("shared", "alone", "shared", "shared"))]
    provider = ScriptedProvider([asks(*calls), "done"])

    await AgentNode("a", model=provider, tools=tools).graph.run("go")

    assert all(names == {"alone1"} for names in together if "alone1" in names)
    assert {"shared2", "shared3"} in together


async def test_failing_tool_is_text_and_the_loop_goes_on() -> None:
    """AC-M03, D-12."""

    async def save() -> None:
        raise ValueError("disk full")

    provider = ScriptedProvider([asks(call("c-1", "save"), call("c-2", a=1, b=1)), "answered"])
    result = await AgentNode("a", model=provider, tools=[save, add]).graph.run("go")

    assert result.output == "answered"
    assert "disk full" in answers(result.messages)[0][1]
    assert answers(result.messages)[1] == ("c-2", "2")


async def test_cut_arguments_are_answered_and_not_executed() -> None:
    """B-111."""
    deleted: list[str] = []

    async def delete(path: str = "/") -> None:
        deleted.append(path)

    cut = ToolCall("c-1", "delete", error="unexpected end", raw_arguments='{"path"')
    result = await AgentNode("a", model=ScriptedProvider([asks(cut), "sorry"]), tools=[delete]).graph.run("go")

    assert deleted == []
    assert "unexpected end" in answers(result.messages)[0][1]
    assert result.messages[1].tool_calls[0].raw_arguments == '{"path"'


class DenyDelete(PermissionChecker):
    async def check(self, tool_id: str, arguments: Mapping[str, Any], ctx: ToolContext[Any]) -> PermissionDecision:
        return PermissionDecision.deny("read only") if tool_id == "delete" else PermissionDecision.allow()


@pytest.mark.parametrize("from_registry", [False, True])
async def test_denied_tool_is_not_executed_and_the_model_reads_why(from_registry: bool) -> None:
    """AC-W33, D-46."""
    deleted: list[str] = []

    async def delete(path: str) -> None:
        deleted.append(path)

    provider = ScriptedProvider([asks(call("c-1", "delete", path="/"), call("c-2", a=1, b=2)), "ok"])
    if from_registry:
        registry = ToolRegistry(permission_checker=DenyDelete())
        registry.register(delete)
        registry.register(add)
        agent = AgentNode("a", model=provider, tools=registry)
    else:
        agent = AgentNode("a", model=provider, tools=[delete, add], permission=DenyDelete())

    result = await agent.graph.run("go")

    assert deleted == []
    assert "read only" in answers(result.messages)[0][1]
    assert answers(result.messages)[1] == ("c-2", "3")
    assert result.output == "ok"


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="'a' has two tools called 'add'"):
        AgentNode("a", model=ScriptedProvider(), tools=[add, function_tool(sub, id="add")])


def test_unknown_choice_is_refused() -> None:
    choice: Any = "retry"
    with pytest.raises(ConfigError, match="on_limit of agent 'a' is 'retry'"):
        AgentNode("a", model=ScriptedProvider(), on_limit=choice)


# --- models that fail


def busy() -> LlmError:
    return LlmError("busy", LlmErrorKind.OVERLOADED)


async def test_each_model_has_its_whole_budget_of_attempts() -> None:
    """AC-M17, D-38."""
    first = ScriptedProvider([busy(), busy()])
    second = ScriptedProvider([busy(), busy()])
    third = ScriptedProvider(["from the third"])
    agent = AgentNode("a", model=first, fallbacks=[second, third], retry=RetryConfig(max_retries=1, backoff_base=0))

    result = await agent.graph.run("go")

    assert result.output == "from the third"
    assert [len(each.calls) for each in (first, second, third)] == [2, 2, 1]


async def test_error_that_no_other_try_mends_ends_the_chain() -> None:
    """D-38."""
    second = ScriptedProvider(["never"])
    first = ScriptedProvider([LlmError("who are you", LlmErrorKind.UNAUTHORIZED)])
    agent = AgentNode("a", model=first, fallbacks=[second], retry=RetryPolicy(attempts=3, wait_initial=0))

    with pytest.raises(LlmError, match="who are you"):
        await agent.graph.run("go")
    assert (len(first.calls), len(second.calls)) == (1, 0)


async def test_without_a_policy_nothing_is_retried() -> None:
    """D-08."""
    provider = ScriptedProvider([busy(), "never"])
    with pytest.raises(LlmError, match="busy"):
        await AgentNode("a", model=provider).graph.run("go")
    assert len(provider.calls) == 1


async def test_model_that_stands_in_later_sees_the_whole_conversation() -> None:
    first = ScriptedProvider([asks(call("c-1", a=1, b=2)), busy(), "back again"])
    second = ScriptedProvider([asks(call("c-2", a=3, b=4))])
    agent = AgentNode("a", model=first, fallbacks=[(second, "small")], tools=[add], system_prompt="Add.")

    result = await agent.graph.run("go")

    assert second.calls[0].messages == [
        Message.system("Add."),
        Message.user("go"),
        Message.assistant("", [call("c-1", a=1, b=2)]),
        Message.tool("c-1", "3"),
    ]
    assert answers(first.calls[2].messages) == [("c-1", "3"), ("c-2", "7")]
    assert result.output == "back again"
    assert result.node_states["fallback:small"] is NodeState.SKIPPED


async def test_last_error_has_notes_on_the_models_before_it() -> None:
    """D-38."""
    models = [ScriptedProvider([LlmError(text)]) for text in ("one", "two", "three")]
    with pytest.raises(LlmError, match="three") as caught:
        await AgentNode("a", model=models[0], fallbacks=models[1:]).graph.run("go")

    notes = [note for note in caught.value.__notes__ if note.startswith("before this")]
    assert [note.rpartition(" ")[2] for note in notes] == ["one", "two"]


async def test_retrying_executor_is_taken_apart() -> None:
    """Each model is a node with retries only, each fallback a node."""
    told: list[int] = []

    def note(ctx: HookContext) -> None:
        told.append(ctx.data["attempt"])

    hooks = HookExecutor()
    hooks.register(HookEvent.ON_RETRY, note)
    first, second = ScriptedProvider([busy(), busy()]), ScriptedProvider(["bad", "good"])
    executor = RetryingExecutor(
        ProviderExecutor(first),
        RetryConfig(max_retries=1, backoff_base=0),
        fallbacks=[(ProviderExecutor(second), "small")],
        accept=lambda reply: reply.content != "bad",
        hooks=hooks,
    )
    agent = AgentNode("a", model=executor)

    result = await agent.graph.run("go")

    assert result.output == "good"
    assert (len(first.calls), len(second.calls)) == (2, 2)
    assert result.node_states["fallback:small"] is NodeState.SUCCEEDED
    assert told == [1, 1]


async def test_what_a_failed_attempt_had_streamed_is_not_part_of_the_reply() -> None:
    events = Events()
    provider = ScriptedProvider([["half a ", busy()], "whole"])
    agent = AgentNode("a", model=provider, retry=RetryPolicy(attempts=2, wait_initial=0))

    result = await agent.graph.run("go", on_event=events)

    assert result.output == "whole"
    (ended,) = [
        event for event in events.of("step.completed") if event.step is not None and event.step.node == "inference"
    ]
    assert ended.data["text"] == "whole"


# --- in a larger graph


async def test_agent_is_a_node_among_others() -> None:
    async def ask(topic: str) -> str:
        return f"What of {topic}?"

    async def shout(answer: str) -> str:
        return answer.upper()

    seen: list[Any] = []

    async def look(ctx: ToolContext[Any]) -> str:
        seen.append((ctx.run_id, ctx.deps))
        return "seen"

    provider = ScriptedProvider(
        [asks(call("c-1", "look"), usage=TokenUsage(1, 1)), LLMResponse("fine", usage=TokenUsage(2, 2))]
    )
    workflow = Workflow("w", input=str, output=str)
    workflow.node(ask)
    workflow.add(AgentNode("researcher", model=provider, tools=[look]))
    workflow.node(shout)
    workflow.chain(START, ask, "researcher", shout, END)

    result = await workflow.run("bees", deps={"db": 1}, run_id="r-1")

    assert result.output == "FINE"
    assert seen == [("r-1", {"db": 1})]
    assert provider.calls[0].messages == [Message.user("What of bees?")]
    assert result.usage == TokenUsage(3, 3)
    assert (result.response, result.messages) == (None, [])
    assert [step.scope for step in result.steps if step.node == "inference"] == ["researcher", "researcher"]


async def test_agent_that_does_not_fit_is_a_compile_error() -> None:
    async def number() -> int:
        return 1

    workflow = Workflow("w")
    workflow.node(number)
    workflow.add(AgentNode("a", model=ScriptedProvider()))
    workflow.chain(START, number, "a", END)

    with pytest.raises(GraphTypeError, match="brings int"):
        workflow.compile()


async def test_agents_inside_agents_keep_their_conversations_apart() -> None:
    """E10b: state is shared by graphs of one class of state, and no two agents have one."""
    inner = AgentNode("inner", model=ScriptedProvider(["inner says"]))
    outer = AgentNode("outer", model=ScriptedProvider(["outer says"]))
    workflow = Workflow("both", input=str, state=outer.graph.program.decl.state)
    workflow.add(outer)
    workflow.add(inner)
    workflow.chain(START, "outer", "inner", END)

    await workflow.run("go")

    assert inner.graph.program.decl.state is not outer.graph.program.decl.state


async def test_many_runs_of_one_agent_share_nothing() -> None:
    """B-006."""

    def reply(messages: list[Message], tools: Any, kwargs: Any) -> LLMResponse:
        if messages[-1].role == "user":
            n = int(messages[-1].content)
            return asks(call("c", a=n, b=n))
        return LLMResponse(messages[-1].content)

    graph = AgentNode("a", model=ScriptedProvider([reply] * 40), tools=[add]).graph
    outputs: dict[int, str] = {}

    async def one(n: int) -> None:
        outputs[n] = (await graph.run(str(n))).output

    async with anyio.create_task_group() as tasks:
        for n in range(20):
            tasks.start_soon(one, n)

    assert outputs == {n: str(2 * n) for n in range(20)}


async def test_agent_runs_by_hand() -> None:
    class Context:
        deps = None
        budget = None

    ctx: Any = Context()
    assert await AgentNode("a", model=ScriptedProvider(["hi"])).run({"input": "go"}, ctx) == "hi"


async def test_budget_is_shared_by_model_and_tools_of_nested_agents() -> None:
    workflow = Workflow("w", input=str)
    providers = [ScriptedProvider([asks(call("c", a=1, b=1)), "x"]) for _ in range(2)]
    for n, provider in enumerate(providers):
        workflow.add(AgentNode(f"a{n}", model=provider, tools=[add]))
    workflow.chain(START, "a0", "a1", END)

    result = await workflow.run("go", budget=Budget(requests=3, tool_calls=2), check=False)

    assert sum(len(provider.calls) for provider in providers) == 3
    assert "budget of 3 requests is spent" in str(result.error)


# --- what was said, after a bad end


async def test_conversation_of_a_failed_run_ends_with_what_is_answered() -> None:
    """AC-W25: every call in the transcript has its result."""
    provider = ScriptedProvider([asks(call("c-1", a=1, b=2)), LlmError("down")])
    result = await AgentNode("a", model=provider, tools=[add]).graph.run("go", check=False)

    assert result.response is None
    assert answers(result.messages) == [("c-1", "3")]


async def test_conversation_of_a_cancelled_run_has_no_call_without_an_answer() -> None:
    """AC-W25."""
    started = anyio.Event()

    async def wait() -> None:
        started.set()
        await anyio.sleep_forever()

    provider = ScriptedProvider([asks(call("c-1", a=1, b=2)), asks(call("c-2", "wait"), call("c-3", a=1, b=1))])
    graph = AgentNode("a", model=provider, tools=[add, wait]).graph
    async with graph.stream("go", check=False) as run:
        with anyio.fail_after(10):
            await started.wait()
        await run.cancel()
    messages = run.result.messages

    assert unanswered(messages) == []
    assert answers(messages) == [("c-1", "3")]


# --- traces


async def test_every_tool_of_a_round_has_a_span() -> None:
    """B-107."""
    script: Sequence[Any] = [asks(*(call(f"c-{n}", a=n, b=n) for n in range(8))), "done"] * 5
    graph = AgentNode("a", model=ScriptedProvider(script), tools=[add]).graph
    for _ in range(5):
        collected = Collected()
        await graph.run("go", telemetry=collected.telemetry)

        spans = collected.named("execute_tool add")
        assert len(spans) == 8
        assert len({span.context.trace_id for span in spans if span.context}) == 1


async def test_inference_spans_have_what_is_known_of_the_tokens() -> None:
    """AC-C13."""
    first = LLMResponse("", [call("c-1", a=1, b=2)], TokenUsage(10, 5))
    collected = Collected()
    agent = AgentNode("a", model=(ScriptedProvider([first, "done"]), "big"), tools=[add])
    await agent.graph.run("go", telemetry=collected.telemetry)

    one, two = (span.attributes or {} for span in collected.named("chat big"))
    assert (one["gen_ai.usage.input_tokens"], one["gen_ai.usage.output_tokens"]) == (10, 5)
    assert not any(key.startswith("gen_ai.usage") for key in two)
    assert {each["gen_ai.operation.name"] for each in (one, two)} == {"chat"}
    assert {each["gen_ai.request.model"] for each in (one, two)} == {"big"}


async def test_request_parameters_are_hidden_only_by_those_that_are_given() -> None:
    provider = ScriptedProvider([LLMResponse("yes")])
    agent = AgentNode("a", model=provider, temperature=0.5, params={"max_tokens": 7, "temperature": 0.1})
    await agent.graph.run("?")
    assert provider.calls[0].kwargs == {"max_tokens": 7, "temperature": 0.5}
