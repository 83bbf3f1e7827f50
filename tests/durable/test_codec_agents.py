"""An agent's graph is as durable as any other: cut after every event, it goes on to the same answer (E25)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any

import pytest
from pydantic import BaseModel, Field

from graphrt import AgentNode, CompiledGraph, GraphTypeError, LlmError, RunEvent
from graphrt.errors import LlmErrorKind
from graphrt.graph.core.records import Step
from graphrt.graph.core.replay import restore
from graphrt.graph.core.run import RunCore
from graphrt.graph.durable.events import EventCodec, is_holder, stored_event
from graphrt.graph.protocols import Question
from graphrt.llm import ScriptedProvider
from graphrt.messages import LLMResponse, Message, Role, TokenUsage
from graphrt.tools import FunctionTool
from tests.nodeclasses.helpers import add, asks, call

pytestmark = pytest.mark.anyio


class Mood(StrEnum):
    CALM = "calm"
    GLAD = "glad"


class Report(BaseModel):
    """Has what no JSON value is, names that are no field names, and looks like what an agent has of its own."""

    complaint: str
    day: date = Field(alias="onDay")
    mood: Mood = Mood.CALM


@dataclass
class Point:
    x: int


class Kept:
    """Stores a run in memory, as JSON text."""

    def __init__(self, graph: CompiledGraph) -> None:
        self.codec = EventCodec(graph.program)
        self.codec.check()
        self.rows: list[tuple[int, str, str, float]] = []
        self.values: dict[Step, str] = {}

    def check(self, step: Step, value: Any) -> Exception | None:
        if is_holder(step):
            return None
        try:
            self.values[step] = self.codec.dump_value(step, value)
        except GraphTypeError as error:
            return error
        return None

    def record(self, event: RunEvent, step: Step | None) -> None:
        value = self.values.pop(step, None) if step is not None and event.type == "step.completed" else None
        self.rows.append((event.sequence, event.type, self.codec.write(event, step, value), event.time))

    def gate(self) -> None:
        return None

    def restored(self, graph: CompiledGraph, upto: int) -> RunCore:
        """Make the core that stands after the first *upto* events."""
        events = [stored_event("r", number, kind, json.loads(text), at) for number, kind, text, at in self.rows[:upto]]
        return restore(graph.program, "r", events, recorder=self.record, read=self.codec.read)


async def run(graph: CompiledGraph, value: Any, core: RunCore | None = None) -> tuple[RunCore, Kept]:
    """Run a graph, from its start or from where *core* stands; give how it ended, and what was stored."""
    kept = Kept(graph)
    scheduler = graph.make_scheduler(run_id="r", durable=kept, core=core, on_ask=approve)
    await scheduler.run(value)
    return scheduler.core, kept


async def approve(question: Question) -> Any:
    return {"approved": True, "arguments": {"a": 40, "b": 2}}


async def check_every_cut(graph: CompiledGraph, value: Any) -> RunCore:
    """Run a graph, then go on from every one of its events, and see that it ends as before."""
    core, kept = await run(graph, value)
    assert core.outcome is not None
    assert core.outcome.error is None
    for upto in range(1, len(kept.rows) + 1):
        standing = Kept.restored(_copy(kept), graph, upto)
        ended = {step.key for step in standing.steps if step.state == "succeeded"}
        again, after = await run(graph, None, standing)
        assert again.outcome is not None
        assert again.outcome.error is None
        assert again.outcome.output == core.outcome.output
        assert type(again.outcome.output) is type(core.outcome.output)
        assert state_of(again) == state_of(core)
        started = [json.loads(text)["step"] for _, kind, text, _ in after.rows if kind == "step.started"]
        assert not [step for step in started if step.get("key", step["node"]) in ended]
    return core


def _copy(kept: Kept) -> Kept:
    copy = Kept.__new__(Kept)
    copy.codec, copy.rows, copy.values = kept.codec, list(kept.rows), {}
    return copy


def state_of(core: RunCore) -> Any:
    """Give the conversation at the end, as plain data."""
    from graphrt.graph.state import read

    assert core.outcome is not None
    assert core.program.state is not None
    state = read(core.outcome.history, core.program.state, core.folds, where="END")
    return [message.model_dump() for message in state.messages], state.given, state.cut_short


def provider(*replies: LLMResponse | str) -> ScriptedProvider:
    """Answer by how many replies the conversation has already, so that a run can be taken up anywhere."""

    def reply(messages: Sequence[Message], tools: Any, params: Mapping[str, Any]) -> LLMResponse | str:
        return replies[sum(message.role is Role.ASSISTANT for message in messages)]

    return ScriptedProvider([reply] * 500)


async def test_agent_with_tools_goes_on_from_every_event() -> None:
    calls = asks(call("c1", a=1, b=2), call("c2", a=3, b=4), usage=TokenUsage(3, 4, 7))
    model = provider(calls, asks(call("c3", "nothing")), asks(call("c4", a="no")), "done \0\ud800 é")
    core = await check_every_cut(AgentNode("a", model=model, tools=[add]).graph, "go")
    assert core.outcome is not None
    assert core.outcome.output.startswith("done")


async def test_agent_that_asks_for_approval_goes_on_from_every_event() -> None:
    tool = FunctionTool(add, requires_approval=True)
    model = provider(asks(call("c1", a=1, b=2), call("c2", a="x")), "42")
    core = await check_every_cut(AgentNode("a", model=model, tools=[tool]).graph, [Message.user("go")])
    assert core.outcome is not None
    assert core.outcome.output == "42"


@pytest.mark.parametrize("parsed", [True, False])
async def test_agent_with_a_declared_answer_goes_on_from_every_event(parsed: bool) -> None:
    answer = Report(complaint="none", onDay=date(2024, 2, 29), mood=Mood.GLAD)
    text = answer.model_dump_json(by_alias=True)
    last = LLMResponse(text, parsed=answer) if parsed else LLMResponse(text)
    model = provider(asks(call("c1", a=1, b=2)), "no JSON at all", last)
    core = await check_every_cut(AgentNode("a", model=model, tools=[add], output=Report).graph, "go")
    assert core.outcome is not None
    assert core.outcome.output == answer


@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        (dict[str, int], '{"calls": 1}', {"calls": 1}),
        (list[Point], '[{"x": 1}]', [Point(1)]),
        (Report | Point, '{"answer": {"x": 1}}', Point(1)),
        (tuple[int, ...], "[1, 2]", (1, 2)),
        (int | None, '{"answer": null}', None),
    ],
)
async def test_answers_of_other_types_can_be_stored(output: Any, text: str, value: Any) -> None:
    core = await check_every_cut(AgentNode("a", model=provider("?", text), output=output).graph, "go")
    assert core.outcome is not None
    assert core.outcome.output == value


async def test_model_that_stands_in_is_not_asked_again_what_it_has_answered() -> None:
    """The error of the first model is stored with its kind, so the edge to the second is taken again."""
    down = ScriptedProvider([LlmError("slow down", LlmErrorKind.RATE_LIMITED)] * 500)
    graph = AgentNode("a", model=down, fallbacks=[provider("fine")]).graph
    core = await check_every_cut(graph, "go")
    assert core.outcome is not None
    assert core.outcome.output == "fine"


async def test_reply_keeps_what_its_provider_has_read() -> None:
    answer = Report(complaint="none", onDay=date(2024, 2, 29))
    graph = AgentNode("a", model=provider(LLMResponse("not looked at", parsed=answer)), output=Report).graph
    _, kept = await run(graph, "go")
    core = kept.restored(graph, len(kept.rows))
    assert [step.value.parsed for step in core.steps if step.node.name == "inference"] == [answer]


async def test_value_that_cannot_be_stored_is_the_failure_of_its_step() -> None:
    class Odd(LLMResponse):
        extra: int = 1

    graph = AgentNode("a", model=ScriptedProvider([Odd.model_construct(content="x")])).graph
    core, _ = await run(graph, "go")
    assert core.outcome is not None
    assert isinstance(core.outcome.error, GraphTypeError)
    assert "the value of node 'inference' cannot be stored" in str(core.outcome.error)
