"""The stand-in answers by rules on what it is sent, like a model would, and touches no file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from graphrt.demo.documents import Documents, document_tools
from graphrt.demo.plan import Plan, check_plan
from graphrt.demo.standin import STAND_IN_NAME, OfflineStandIn
from graphrt.demo.survey import survey
from graphrt.errors import LlmError
from graphrt.llm.provider import ToolSpec
from graphrt.messages import LLMResponse, Message
from graphrt.tools import Tool, ToolContext

pytestmark = pytest.mark.anyio


class Weather(BaseModel):
    degrees: int


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "bees.md").write_text(
        "# Bees\n\nAbout bees.\n\n## Dances\n\nBees dance to tell the way.\nThe dance has two parts.\n\n"
        "### Waggle dance\n\nIt tells far places.\n\n## Food\n\nNectar and pollen.\n"
    )
    (tmp_path / "ants.md").write_text("# Ants\n\nAnts have no wings.\n")
    return tmp_path


def plan_messages(root: Path, *, goal: str = "Goal: tell about insects", most: int = 4) -> list[Message]:
    system = Message.system(f"Make a plan of at most {most} steps.")
    return [system, Message.user(f"{goal}\n\n{survey(Documents(root))}")]


async def make_plan(root: Path, **options: Any) -> Plan:
    reply = await OfflineStandIn().chat(plan_messages(root, **options), response_format=Plan)
    assert isinstance(reply.parsed, Plan)
    assert Plan.model_validate_json(reply.content) == reply.parsed
    return reply.parsed


async def converse(question: str, tools: list[Tool]) -> list[LLMResponse]:
    """Carry out the calls of the stand-in until it answers, as an agent does."""
    specs: list[ToolSpec] = [tool.descriptor for tool in tools]
    by_name = {tool.descriptor.id: tool for tool in tools}
    messages, replies = [Message.system("Research."), Message.user(question)], list[LLMResponse]()
    while not replies or replies[-1].tool_calls:
        assert len(replies) < 6
        replies.append(await OfflineStandIn().chat(messages, specs))
        messages.append(replies[-1].to_message())
        for call in replies[-1].tool_calls:
            result = await by_name[call.name].execute(call.arguments, ToolContext())
            messages.append(Message.tool(call.id, str(result)))
    return replies


async def test_headings_become_questions_and_a_part_comes_after_its_whole(root: Path) -> None:
    plan = await make_plan(root)
    assert [(step.id, step.question, step.depends_on) for step in plan.steps] == [
        ("s1", 'What does ants.md say about "Ants"?', []),
        ("s2", 'What does bees.md say about "Dances"?', []),
        ("s3", 'What does bees.md say about "Waggle dance"?', ["s2"]),
        ("s4", 'What does bees.md say about "Food"?', []),
    ]
    check_plan(plan)


async def test_plan_has_at_most_the_steps_that_are_asked_for(root: Path) -> None:
    assert len((await make_plan(root, most=2)).steps) == 2


async def test_goal_decides_which_headings_are_chosen(root: Path) -> None:
    plan = await make_plan(root, goal="Goal: what is their food?", most=2)
    assert plan.steps[1].question == 'What does bees.md say about "Food"?'


async def test_plan_changes_with_the_files(root: Path) -> None:
    before = await make_plan(root)
    (root / "ants.md").write_text("# Termites\n")
    after = await make_plan(root)
    assert before != after
    assert "Termites" in after.steps[0].question


async def test_form_other_than_a_plan_is_refused(root: Path) -> None:
    with pytest.raises(LlmError, match="can fill in plans only"):
        await OfflineStandIn().chat([Message.user("how warm is it?")], response_format=Weather)


async def test_form_given_as_a_schema_is_filled_in_too(root: Path) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "Plan", "schema": Plan.model_json_schema()}}
    reply = await OfflineStandIn().chat(plan_messages(root), response_format=wanted)
    assert reply.parsed is None
    assert len(Plan.model_validate_json(reply.content).steps) == 4


async def test_question_is_answered_with_quotes_after_a_search_and_a_reading(root: Path) -> None:
    replies = await converse('What does bees.md say about "Dances"?', document_tools(Documents(root)))
    calls = [(call.name, call.arguments) for reply in replies for call in reply.tool_calls]
    assert calls == [
        ("search", {"query": "Dances"}),
        ("read_lines", {"path": "bees.md", "first_line": 5, "last_line": 19}),
    ]
    assert replies[-1].content.splitlines() == [
        '- "Bees dance to tell the way." (bees.md:7)',
        '- "The dance has two parts." (bees.md:8)',
    ]


async def test_question_in_a_persons_words_is_answered_too(root: Path) -> None:
    replies = await converse("Question: Do ants have wings?\n\nKnown so far: nothing", document_tools(Documents(root)))
    assert '- "Ants have no wings." (ants.md:3)' in replies[-1].content


async def test_answer_changes_with_the_files(root: Path) -> None:
    (root / "ants.md").write_text("# Ants\n\nSome ants have wings.\n")
    replies = await converse("Do ants have wings?", document_tools(Documents(root)))
    assert '- "Some ants have wings." (ants.md:3)' in replies[-1].content


async def test_what_the_files_do_not_say_is_said(root: Path) -> None:
    replies = await converse("What is the price of submarines?", document_tools(Documents(root)))
    assert replies[-1].content == ("The files say nothing on this; searched for 'price submarines' and 'submarines'.")


async def test_each_call_has_an_id_of_its_own(root: Path) -> None:
    replies = await converse("What of bees and ants?", document_tools(Documents(root)))
    ids = [call.id for reply in replies for call in reply.tool_calls]
    assert len(ids) == len(set(ids)) == 3


async def test_findings_are_put_in_order_with_their_sources() -> None:
    findings = 'Goal: insects\n\n## Why?\n- "Because." (a.md:1)\n\n## How?\nThe files say nothing on this.'
    reply = await OfflineStandIn().chat([Message.system("Write."), Message.user(findings)])
    assert reply.content == (
        "Questions: 2. Lines quoted: 1. Files: a.md.\n\n"
        '## Why?\n\n- "Because." (a.md:1)\n\n## How?\n\nThe files say nothing on this.'
    )
    assert reply.model == STAND_IN_NAME


async def test_stream_gives_the_words_and_then_the_whole(root: Path) -> None:
    deltas = [each async for each in OfflineStandIn().stream([Message.user("## Why?\nno reason")])]
    assert deltas[-1].response is not None
    assert "".join(each.text for each in deltas) == deltas[-1].response.content
    assert len(deltas) > 5
