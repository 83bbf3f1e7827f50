"""From text to plans."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrt.agent.parser import JsonPlanParser, PlanParser
from graphrt.agent.plan import Plan, StepState
from graphrt.errors import PlanParseError
from graphrt.nodes.plan_order import order_of

pytestmark = pytest.mark.anyio

PLAN = '{"steps":[{"description":"a"},{"description":"b","note":1}]}'


async def test_json_plan_becomes_a_plan() -> None:
    """AC-A25."""
    plan = await JsonPlanParser().parse(PLAN, "g")
    assert plan.goal == "g"
    assert [(step.index, step.description) for step in plan.steps] == [(0, "a"), (1, "b")]
    assert {step.status.state for step in plan.steps} == {StepState.PENDING}
    assert (await JsonPlanParser().parse(PLAN, "g")).id != plan.id


@pytest.mark.parametrize(
    "text",
    [
        f"\n  {PLAN}\t\n",
        f"```json\n{PLAN}\n```",
        f"  ```\n{PLAN}\n```  \n",
        f"~~~ JSON\r\n{PLAN}\r\n~~~",
        f"````json\n{PLAN}\n````",
        f"```json {PLAN} ```",
        f"```{PLAN}```",
    ],
)
async def test_white_space_and_one_fence_are_no_matter(text: str) -> None:
    """D-31."""
    assert [step.description for step in (await JsonPlanParser().parse(text, "g")).steps] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no JSON: ''"),
        ("first a, then b", "no JSON: 'first a"),
        (f"Here it is: {PLAN}", "no JSON"),
        (f"```\n```\n{PLAN}\n```\n```", "no JSON"),
        (f"```json\n{PLAN}", "no JSON"),
        ("```", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[1]", "no JSON object"),
        ('"steps"', "no JSON object"),
        ("null", "no JSON object"),
        ("{}", "has no 'steps', but nothing"),
        ('{"plan": []}', "has no 'steps', but 'plan'"),
        ('{"steps": {"description": "a"}}', "is no list"),
        ('{"steps": null}', "None, which is no list"),
        ('{"steps": []}', "has no steps"),
        ('{"steps": ["a"]}', "step 0 of the plan is 'a', which is no object"),
        ('{"steps": [{"description": "a"}, {}]}', "step 1 of the plan has None for its 'description'"),
        ('{"steps": [{"description": ""}]}', "step 0 of the plan has ''"),
        ('{"steps": [{"description": " "}]}', "step 0 of the plan has ' '"),
        ('{"steps": [{"description": 1}]}', "step 0 of the plan has 1"),
        ('{"steps": [{"description": "a", "depends_on": 0}]}', "has 0 for its 'depends_on'"),
        ('{"steps": [{"description": "a", "depends_on": ["0"]}]}', "for its 'depends_on'"),
        ('{"steps": [{"description": "a", "depends_on": [false]}]}', "for its 'depends_on'"),
        ('{"steps": [{"description": "a", "depends_on": [1]}]}', "depends on step 1, which the plan does not have"),
        ('{"steps": [{"description": "a", "depends_on": [0]}]}', "in a circle: 0 -> 0"),
    ],
)
async def test_text_that_is_no_plan_is_refused(text: str, message: str) -> None:
    """D-31."""
    with pytest.raises(PlanParseError) as raised:
        await JsonPlanParser().parse(text, "g")
    assert message in str(raised.value)
    assert not raised.value.is_recoverable()


async def test_steps_may_depend_on_others() -> None:
    text = '{"steps": [{"description": "a", "depends_on": []}, {"description": "b", "depends_on": [0, 2]},'
    text += ' {"description": "c", "depends_on": null}]}'
    plan = await JsonPlanParser().parse(text, "g")
    assert [step.depends_on for step in plan.steps] == [(), (0, 2), None]


async def test_plan_whose_steps_all_say_that_they_need_none_is_no_sequence() -> None:
    text = '{"steps": [{"description": "a", "depends_on": []}, {"description": "b", "depends_on": []}]}'
    plan = await JsonPlanParser().parse(text, "g")
    assert [step.depends_on for step in plan.steps] == [(), ()]
    assert order_of(plan.steps, plan="p").edges(plan.steps) == [(None, 0), (None, 1), (0, None), (1, None)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["steps", "description", "depends_on", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON | st.fixed_dictionaries({"steps": JSON}) | st.fixed_dictionaries({"steps": st.lists(JSON, min_size=1)}))
def test_any_json_is_a_plan_or_is_refused(value: Any) -> None:
    async def parse() -> Plan | None:
        try:
            return await JsonPlanParser().parse(json.dumps(value), "g")
        except PlanParseError:
            return None

    plan = anyio.run(parse)
    if plan is not None:
        assert [step.description for step in plan.steps] == [each["description"] for each in value["steps"]]
        assert plan.goal == "g"


async def test_parser_need_not_inherit() -> None:
    class Lines:
        async def parse(self, raw: str, goal: str) -> Plan:
            return Plan(goal, [])

    assert isinstance(Lines(), PlanParser)
    assert isinstance(JsonPlanParser(), PlanParser)


async def test_parser_that_inherits_has_to_parse() -> None:
    class Empty(PlanParser):
        pass

    with pytest.raises(TypeError, match="parse"):
        Empty()  # type: ignore[abstract]  # as said
