"""The demo's workflow: what is planned is checked, what fails is named, and nothing leaves the folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from graphrt.demo.plan import Plan, PlanError
from graphrt.demo.standin import OfflineStandIn
from graphrt.demo.workflow import ANSWERS, PLANNING_ROUNDS, Research, build_workflow
from graphrt.errors import ConfigError, GraphrtError, LlmError, LlmErrorKind
from graphrt.graph import RunEvent, RunResult
from graphrt.llm.provider import Tools
from graphrt.messages import LLMResponse, Message, Role, ToolCall

pytestmark = pytest.mark.anyio

TWO = {"steps": [{"id": "s1", "question": "Do ants have wings?"}, {"id": "s2", "question": "What do bees eat?"}]}
CHAIN = {
    "steps": [
        {"id": "s2", "question": "What do bees eat?", "depends_on": ["s1"]},
        {"id": "s1", "question": "Do ants have wings?"},
    ]
}
CIRCLE = {"steps": [{"id": "s1", "question": "Why?", "depends_on": ["s1"]}]}


class Model(OfflineStandIn):
    """The stand-in, with other plans or other answers; keeps the prompts it was given."""

    def __init__(
        self, *plans: Any, research: Callable[[Sequence[Message]], LLMResponse | Exception | None] | None = None
    ) -> None:
        self.plans = list(plans)
        self.research = research
        self.prompts: list[str] = []

    async def chat(self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any) -> LLMResponse:
        self.prompts.append(next(each.content for each in reversed(messages) if each.role is Role.USER))
        if kwargs.get("response_format") is not None and self.plans:
            if isinstance(self.plans[0], (str, Exception)):
                return self._other_reply(self.plans.pop(0))
            plan = Plan.model_validate(self.plans.pop(0))
            return LLMResponse(plan.model_dump_json(), parsed=plan)
        if tools and self.research is not None:
            answer = self.research(messages)
            if isinstance(answer, Exception):
                raise answer
            if answer is not None:
                return answer
        return await super().chat(messages, tools, **kwargs)

    def _other_reply(self, reply: str | Exception) -> LLMResponse:
        if isinstance(reply, Exception):
            raise reply
        return LLMResponse(reply)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "inside"
    root.mkdir()
    (root / "bees.md").write_text("# Bees\n\n## Food\n\nBees eat nectar and pollen.\n")
    (root / "ants.md").write_text("# Ants\n\nAnts have no wings.\n")
    (tmp_path / "secret.md").write_text("kept outside")
    return root


async def run(root: Path, model: Model | None = None, **options: Any) -> tuple[RunResult, list[RunEvent]]:
    events: list[RunEvent] = []
    graph = build_workflow(model or Model(), root, **options)
    return await graph.run("Tell about insects", on_event=events.append, check=False), events


def researched(events: list[RunEvent]) -> list[str]:
    return [event.data["id"] for event in events if event.type == "custom.research"]


def findings(result: RunResult) -> list[tuple[str, str | None]]:
    state = result.state
    assert isinstance(state, Research)
    return [(finding.step.id, finding.answer) for finding in state.findings]


async def test_report_quotes_the_files_and_names_its_sources(root: Path) -> None:
    result, _ = await run(root)
    assert result.status == "succeeded"
    assert result.output.startswith("# Tell about insects\n")
    assert '- "Ants have no wings." (ants.md:3)' in result.output
    assert "- bees.md:5 `Bees eat nectar and pollen.`" in result.output
    assert "with offline stand-in. That is no language model" in result.output


async def test_same_files_give_the_same_report_and_other_files_another(root: Path) -> None:
    first, _ = await run(root)
    second, _ = await run(root)
    assert first.output == second.output
    (root / "ants.md").write_text("# Ants\n\nSome ants have wings.\n")
    third, _ = await run(root)
    assert "Some ants have wings." in third.output
    assert "Ants have no wings." not in third.output


async def test_questions_are_researched_side_by_side(root: Path) -> None:
    result, events = await run(root, Model(TWO))
    assert researched(events) == ["s1", "s2"]
    first_end = next(each.sequence for each in events if each.step and each.step.node == "answer")
    begun = [each.sequence for each in events if each.type == "custom.research"]
    assert max(begun) < first_end
    assert [id for id, _ in findings(result)] == ["s1", "s2"]


async def test_step_waits_for_what_it_depends_on_and_is_told_its_answer(root: Path) -> None:
    model = Model(CHAIN)
    result, events = await run(root, model)
    assert researched(events) == ["s1", "s2"]
    prompt = next(each for each in model.prompts if each.startswith("Question: What do bees eat?"))
    assert "- Do ants have wings? " in prompt
    assert "(ants.md:3)" in prompt
    assert result.output.index("What do bees eat?") < result.output.index("Do ants have wings?")


async def test_refused_plan_is_made_again_with_what_was_wrong(root: Path) -> None:
    model = Model(CIRCLE, {"steps": []}, TWO)
    result, events = await run(root, model)
    assert result.status == "succeeded"
    assert "wait for each other in a circle" in model.prompts[1]
    assert "it has no steps" in model.prompts[2]
    assert [each.type for each in events if each.type.startswith("custom.plan")] == [
        "custom.plan.refused",
        "custom.plan.refused",
        "custom.plan.accepted",
    ]


async def test_reply_that_is_no_plan_is_told_to_the_planner(root: Path) -> None:
    cut_off = LlmError("the reply was cut off", LlmErrorKind.INVALID_REQUEST)
    model = Model("no JSON", "none again", cut_off, TWO)
    result, events = await run(root, model)
    assert result.status == "succeeded"
    refused = [each.data["problems"] for each in events if each.type == "custom.plan.refused"]
    assert refused == [["no reply was a plan in the form asked for"], ["the reply was cut off"]]


async def test_planner_whose_model_cannot_be_asked_fails_the_run_at_once(root: Path) -> None:
    model = Model(LlmError("wrong key", LlmErrorKind.UNAUTHORIZED))
    result, _ = await run(root, model)
    assert result.status == "failed"
    assert str(result.error) == "wrong key"
    assert len(model.prompts) == 1


async def test_planner_that_never_makes_a_plan_fails_the_run_before_anything_is_researched(root: Path) -> None:
    model = Model(*[CIRCLE] * 10)
    result, events = await run(root, model)
    assert result.status == "failed"
    assert isinstance(result.error, PlanError)
    assert "3 plans that cannot be run" in str(result.error)
    assert len(model.prompts) == PLANNING_ROUNDS == 3
    assert researched(events) == []


async def test_planner_is_held_to_the_number_of_questions(root: Path) -> None:
    result, _ = await run(root, Model(TWO, {"steps": TWO["steps"][:1]}), most_steps=1)
    assert [id for id, _ in findings(result)] == ["s1"]


async def test_failed_research_is_named_in_the_report_and_fails_nothing_else(root: Path) -> None:
    def research(messages: Sequence[Message]) -> Exception | None:
        return LlmError("no luck", LlmErrorKind.UNAUTHORIZED) if "ants" in messages[1].content else None

    result, _ = await run(root, Model(TWO, research=research))
    assert result.status == "succeeded"
    assert "## Not answered\n\n- Do ants have wings?\n  no luck\n" in result.output
    assert "from 1 of 2 questions" in result.output
    assert "bees.md:5" in result.output


async def test_step_after_a_failed_one_is_researched_all_the_same(root: Path) -> None:
    def research(messages: Sequence[Message]) -> Exception | None:
        is_first = messages[1].content.startswith("Question: Do ants")
        return LlmError("no luck", LlmErrorKind.UNAUTHORIZED) if is_first else None

    model = Model(CHAIN, research=research)
    result, _ = await run(root, model)
    assert result.status == "succeeded"
    assert any("- Do ants have wings? This was not answered." in prompt for prompt in model.prompts)


async def test_run_without_any_answer_fails(root: Path) -> None:
    result, _ = await run(root, Model(TWO, research=lambda _: LlmError("no luck", LlmErrorKind.UNAUTHORIZED)))
    assert result.status == "failed"
    assert isinstance(result.error, GraphrtError)
    assert "no question could be researched: no luck" in str(result.error)


async def test_answer_without_a_source_is_sent_back_once_and_then_marked(root: Path) -> None:
    model = Model(TWO, research=lambda _: LLMResponse("Surely (nothing.md:7)."))
    result, _ = await run(root, model)
    again = [prompt for prompt in model.prompts if "named no line of a file" in prompt]
    assert len(again) == (ANSWERS - 1) * 2
    assert "## Answered without a source\n\n- Do ants have wings?\n- What do bees eat?" in result.output
    assert "## Sources" not in result.output


async def test_path_out_of_the_folder_is_refused_to_the_model_and_the_run_goes_on(root: Path) -> None:
    told: list[str] = []

    def research(messages: Sequence[Message]) -> LLMResponse:
        if messages[-1].role is Role.TOOL:
            told.append(messages[-1].content)
            return LLMResponse("See (ants.md:3).")
        return LLMResponse(tool_calls=[ToolCall("c", "read_lines", {"path": "../secret.md"})])

    result, _ = await run(root, Model(TWO, research=research))
    assert result.status == "succeeded"
    assert len(told) == 2
    assert all("leads out of the folder" in each for each in told)


async def test_model_that_asks_for_tools_for_ever_has_to_answer(root: Path) -> None:
    def research(messages: Sequence[Message]) -> LLMResponse:
        return LLMResponse("no", tool_calls=[ToolCall(f"c{len(messages)}", "list_files", {})])

    result, _ = await run(root, Model(TWO, research=research))
    assert result.status == "succeeded"


async def test_folder_without_text_fails_the_run(tmp_path: Path) -> None:
    result, _ = await run(tmp_path)
    assert result.status == "failed"
    assert "no text to read" in str(result.error)


@pytest.mark.parametrize("number", [0, 9])
async def test_number_of_questions_is_bounded(root: Path, number: int) -> None:
    with pytest.raises(ConfigError, match="a plan may have 1 to 8 steps"):
        build_workflow(Model(), root, most_steps=number)
