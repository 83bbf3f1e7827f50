"""The example programs do what they say, on both event loops."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from graphrt import LimitExceededError, RunEvent
from graphrt.messages import Role
from tests.engine.helpers import GUARD, check_whole, ran, watch
from tests.examples.programs import (
    approval,
    branches,
    chain,
    chat,
    evaluator,
    memory,
    nested_map,
    own_tests,
    plan_execute,
    plugin,
    report,
    router,
    streamed_map,
    subgraph,
    supervisor,
    task_plan,
    tool_agent,
)

pytestmark = pytest.mark.anyio

RESULTS = {
    chain: "150.00 USD",
    branches: "accepted, in 3 days",
    router: "Dear customer, a developer looks at: it crashes when I click",
    report: "All about bees\nFood of bees.\nHomes of bees.\nDances of bees.",
    nested_map: [("the", 6), ("and", 2), ("ant", 2)],
    streamed_map: [f"{hit}: what it says about bees" for hit in ("hive", "honey", "queen", "drone", "swarm")],
    evaluator: "bees are better!",
    approval: "sent: Dear Ann",
    subgraph: "Bees: 8 findings",
    plan_execute: "the cake is ready",
    tool_agent: "Together they cost 10 euros.",
    supervisor: "You need a new fuse, for 2 euros.",
    chat: [
        "2 lamps bought",
        "tool 'buy' was not executed: permission denied: too many",
        "Two lamps, and no nails.",
        "Lamps.",
    ],
    task_plan: [
        "buy flour: completed",
        "buy honey: completed",
        "bake: completed",
        "find candles: failed",
        "light candles: skipped",
    ],
    plugin: ("Both are still there.", 2),
    memory: ["I will remember.", "By train!"],
    own_tests: 3,
}


@pytest.mark.parametrize("program", RESULTS, ids=lambda program: program.__name__.rpartition(".")[2])
def test_program_gives_its_result(program: Any) -> None:
    assert program.main() == RESULTS[program]


@pytest.mark.parametrize("program", RESULTS, ids=lambda program: program.__name__.rpartition(".")[2])
def test_program_says_what_it_shows(program: Any) -> None:
    first = program.__doc__.splitlines()[0]
    assert first[0].isupper()
    assert program.main.__doc__


@pytest.mark.parametrize(
    ("failures", "amount", "calls"), [(0, "150.00 USD", 1), (2, "150.00 USD", 3), (9, "125.00 USD", 3)]
)
async def test_chain_retries_and_then_falls_back(failures: int, amount: str, calls: int) -> None:
    service = chain.Service(failures)
    with anyio.fail_after(GUARD):
        result = await chain.invoice.run(100.0, deps=service)
    assert result.output == amount
    assert service.calls == calls


@pytest.mark.parametrize(
    ("item", "amount", "customer", "expected"),
    [
        ("chair", 2, "ann", "accepted, in 3 days"),
        ("chair", 20, "ann", "refused: out of stock"),
        ("chair", 2, "mallory", "refused: no credit"),
        ("table", 1, "ann", "accepted"),
    ],
)
async def test_branches_join_whatever_fails(item: str, amount: int, customer: str, expected: str) -> None:
    order = branches.Order(item=item, amount=amount, customer=customer)
    result = await branches.order_check.run(order)
    assert result.output == expected
    assert ran(result)[-1] == "verdict"


@pytest.mark.parametrize(
    ("text", "way"),
    [("it crashes", "debug"), ("how?", "answer"), ("thank you", "escalate"), ("hello", "escalate")],
)
async def test_router_takes_one_way(text: str, way: str) -> None:
    result = await router.tickets.run(text)
    assert ran(result) == ["classify", way, "reply"]
    assert result.output.endswith(text)


async def test_report_leaves_out_what_fails() -> None:
    result = await report.report.run("bees")
    assert result.output == RESULTS[report]
    assert [s.attempts for s in result.steps if s.scope == "outline[2]"] == [2]


async def test_nested_map_counts_every_chapter_of_every_book() -> None:
    result = await nested_map.word_count.run(nested_map.LIBRARY)
    assert result.output == RESULTS[nested_map]
    assert ran(result).count("count") == 5


async def test_streamed_map_works_while_pages_come() -> None:
    events: list[RunEvent] = []
    run = streamed_map.search.stream("bees")
    await watch(run, events)
    assert run.result.output == RESULTS[streamed_map]
    check_whole(events)
    order = [e.type for e in events if e.type == "custom.page" or (e.step and e.step.node == "summarise")]
    assert order.index("step.started") < len(order) - 1 - order[::-1].index("custom.page")


async def test_evaluator_takes_two_rounds_and_five_at_most() -> None:
    result = await evaluator.slogans.run("bees")
    assert (result.output, result.rounds) == ("bees are better!", 2)


async def test_approval_by_a_reader_and_by_a_function() -> None:
    with anyio.fail_after(GUARD):
        assert await approval.by_stream("Ann") == "sent: Dear Ann"
        assert await approval.by_function("Ben") == "sent: Dear Ben"


@pytest.mark.parametrize(
    ("topic", "expected"), [("Bees", "Bees: 8 findings"), ("Everything", "Everything: 1 findings")]
)
async def test_subgraph_that_reaches_its_limit_has_a_fallback(topic: str, expected: str) -> None:
    assert (await subgraph.article.run(topic)).output == expected


async def test_subgraph_alone_is_stopped_by_its_limit() -> None:
    with pytest.raises(LimitExceededError, match="has had its 3 rounds"):
        await subgraph.research.run("everything")


async def test_plan_is_carried_out_and_made_anew() -> None:
    model = plan_execute.scripted()
    result = await plan_execute.build(model).run("bake a honey cake")
    assert result.output == "the cake is ready"
    assert result.rounds == 3
    assert [s.value for s in result.steps if s.node == "execute"] == [
        "buy flour: done",
        "buy honey: done",
        "bake: done",
    ]
    assert model.calls[1].messages[-1].content == "buy flour: done\nbuy honey: done"


async def test_tool_agent_calls_its_tools_and_answers() -> None:
    model = tool_agent.scripted()
    result = await tool_agent.build(model).graph.run("What do honey and wax cost together?")
    assert result.output == "Together they cost 10 euros."
    told = [m.content for m in model.calls[-1].messages if m.role is Role.TOOL]
    assert told == ["7", "3", "10"]


async def test_supervisor_hands_over_and_replies() -> None:
    models = supervisor.scripted()
    result = await supervisor.build(models).run("My machine does not start. What will it cost?")
    assert result.output == "You need a new fuse, for 2 euros."
    assert [len(model.calls) for model in models.values()] == [3, 1, 1]
    assert models["supervisor"].calls[2].messages[-1].content == "A fuse costs 2 euros."
    assert models["billing"].calls[0].messages[-1].content == "a new fuse"


async def test_chat_keeps_what_was_said_and_denied() -> None:
    model = chat.scripted()
    session = chat.build(model)
    with anyio.fail_after(GUARD):
        await chat.say(session, "Two lamps and 900 nails, please.")
        assert await chat.say(session, "What did I get?") == ["Lamps."]
    assert session.turn_index == 2
    assert session.questions == []
    assert "too many" in model.calls[1].messages[-1].content


async def test_plan_is_told_of_as_it_goes() -> None:
    told: list[str] = []
    assert await task_plan.bake(told) == RESULTS[task_plan]
    assert told.index("2 running") > max(told.index("0 completed"), told.index("1 completed"))
    assert {"0 running", "1 running", "2 completed", "3 failed", "4 skipped"} <= set(told)


async def test_plugin_reminds_the_model_and_leaves_no_trace_in_the_conversation() -> None:
    model = plugin.scripted()
    with anyio.fail_after(GUARD):
        assert await plugin.run(model) == ("Both are still there.", 2)
    reminders = [call.messages[0].content for call in model.calls]
    assert reminders == ["Calls so far: 0", "Calls so far: 2", "Calls so far: 2"]
    assert "nothing is deleted on Mondays" in model.calls[2].messages[-1].content


async def test_memory_is_there_on_the_next_day(tmp_path: Path) -> None:
    first, second = memory.scripted()
    with anyio.fail_after(GUARD):
        assert await memory.journey(tmp_path / "memory.db", first, second) == RESULTS[memory]
    prompt, *said = second.calls[0].messages
    assert "likes: trains" in prompt.content
    assert [each.content for each in said if each.role is Role.USER] == ["I like trains.", "How shall I travel?"]


def test_own_tests_are_run_by_pytest_on_both_event_loops() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", own_tests.__file__]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "6 passed" in done.stdout, done.stdout + done.stderr
