"""What the events of a run say of it is what its result says."""

from __future__ import annotations

from functools import partial

import anyio
import pytest
from hypothesis import given, settings

from graphrt import RunEvent
from graphrt.graph import Question
from graphrt.graph.progress import RunProgress, error_text
from graphrt.llm import ScriptedProvider
from graphrt.messages import LLMResponse, TokenUsage
from graphrt.nodes import Ask, InferenceNode
from tests.engine.helpers import yield_often
from tests.nodeclasses.helpers import alone
from tests.properties.building import build
from tests.properties.description import Graph
from tests.properties.graphs import VALUE, Flavour, graphs


@settings(max_examples=60)
@given(graphs(Flavour()))
def test_progress_at_the_end_of_any_run_is_its_result(graph: Graph) -> None:
    events: list[RunEvent] = []
    compiled = build(graph, partial(yield_often, 1)).compile()
    result = anyio.run(partial(compiled.run, VALUE, check=False, on_event=events.append))
    progress = RunProgress().update_all(events)
    assert progress.status == result.status
    assert (progress.run_id, progress.graph, progress.events) == (result.run_id, compiled.name, len(events))
    told = [(s.node, s.scope, s.round, s.state, s.started, s.ended) for s in progress.steps.values()]
    assert told == [(s.node, s.scope, s.round, s.state.value, s.started, s.ended) for s in result.steps]
    attempts = [max(s.attempts, s.started is not None) for s in result.steps]  # one may be cut off before its first
    assert [s.attempts for s in progress.steps.values()] == attempts
    assert progress.error == error_text(result.error)


@pytest.mark.anyio
async def test_text_and_tokens_of_a_step_are_kept() -> None:
    provider = ScriptedProvider([LLMResponse("hello there", usage=TokenUsage(10, 5), model="m-1")])
    progress = RunProgress()
    seen: list[str] = []

    def listen(event: RunEvent) -> None:
        step = progress.update(event)
        if step is not None and step.state == "running" and step.text:
            seen.append(step.text)

    await alone(InferenceNode("ask", model=provider)).run("hi", on_event=listen)

    [step] = progress.steps.values()
    assert seen[-1] == "hello there"
    assert (step.state, step.text, step.usage) == ("succeeded", "hello there", TokenUsage(10, 5))
    assert progress.usage == TokenUsage(10, 5)


@pytest.mark.anyio
async def test_question_is_open_until_it_is_answered() -> None:
    progress = RunProgress()
    open_then: list[list[str]] = []

    async def reply(question: Question) -> bool:
        open_then.append([step.id for step in progress.questions])
        assert [step.question for step in progress.questions] == ["Publish?"]
        return True

    await alone(Ask("approve", question="Publish?", answer=bool)).run("x", on_ask=reply, on_event=progress.update)

    assert open_then == [["approve"]]
    assert (progress.questions, progress.status, progress.output) == ([], "succeeded", True)


def test_text_of_an_error_that_has_none_is_its_class() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert error_text(MuteError()) == "MuteError"
    assert error_text({"type": "ValueError", "message": "no"}) == "ValueError: no"
    assert error_text(None) is None
