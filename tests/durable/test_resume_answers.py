"""Runs that wait for a person: they end, are answered, and go on, as often as it takes (E25)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from graphrt import END, START, GraphTypeError, RunContext, Workflow
from graphrt.errors import GraphError, RunControlError
from graphrt.ledger import RunLedgerStore
from graphrt.nodes import Ask
from tests.durable.helpers import Calls, check_numbers, ended_keys, store_of, stored_events

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    async with store_of(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def calls() -> Calls:
    return Calls()


async def check_whole(store: RunLedgerStore) -> None:
    events = await stored_events(store, "r")
    check_numbers(events)
    assert not [key for key, times in ended_keys(events).items() if times > 1]


async def seen(store: RunLedgerStore) -> Any:
    """Give all of a run that a refusal must leave as it is."""
    stored = await store.get_run("r")
    assert stored is not None
    return stored, [(e.sequence, e.type) for e in await stored_events(store, "r")]


def revising(calls: Calls) -> Workflow:
    """Make a loop in which a person is asked in every round."""
    workflow = Workflow("revising", input=str, output=str)

    @workflow.node
    async def draft(text: str, ctx: RunContext[Any]) -> str:
        calls(f"draft{ctx.step.round}")
        return f"draft {ctx.step.round} after {text}"

    workflow.add(Ask("ask", question=lambda draft: f"is {draft!r} good?", answer=str))
    workflow.chain(START, draft, "ask")
    workflow.edge("ask", draft, when=lambda answer: answer != "yes")
    workflow.edge("ask", END, when=lambda answer: answer == "yes")
    return workflow


async def test_ask_revise_ask_revise_ask(store: RunLedgerStore, calls: Calls) -> None:
    """B-064."""
    graph = revising(calls).compile()
    result = await graph.run("start", ledger=store, run_id="r")
    for number in (1, 2, 3):
        assert result.status == "waiting"
        (question,) = result.questions
        assert question.id == f"ask#{number}"
        assert calls.taken() == [f"draft{number}"]
        stored = await store.get_run("r")
        assert stored is not None
        assert (stored.status, stored.claimed_by) == ("waiting", None)
        result = await graph.resume("r", ledger=store, answers={question.id: "no" if number < 3 else "yes"})
    assert (result.status, result.output) == ("succeeded", "yes")
    assert calls.taken() == []
    await check_whole(store)


async def test_hundred_pauses_store_little_more_than_what_was_made(store: RunLedgerStore) -> None:
    """B-062."""
    pauses = 40
    long = Workflow("long", input=str, output=str, max_rounds=pauses + 1)

    @long.node
    async def work(text: str) -> str:
        return "x" * 10_000

    long.add(Ask("ask", question="more?", answer=str))
    long.chain(START, work, "ask")
    long.edge("ask", work, when=lambda answer: answer == "more")
    long.edge("ask", END, when=lambda answer: answer == "end")
    graph = long.compile()
    await graph.run("start", ledger=store, run_id="r")
    for _ in range(pauses - 1):
        await graph.resume("r", ledger=store, answers="more")
    assert (await graph.resume("r", ledger=store, answers="end")).output == "end"
    size = sum(len(str(dict(e.data))) for e in await stored_events(store, "r"))
    assert size < 1.2 * pauses * 10_000


async def test_waiting_run_asked_for_again_shows_its_questions(store: RunLedgerStore, calls: Calls) -> None:
    graph = revising(calls).compile()
    await graph.run("start", ledger=store, run_id="r")
    calls.taken()
    again = await graph.run("start", ledger=store, run_id="r")
    assert (again.status, [q.id for q in again.questions]) == ("waiting", ["ask#1"])
    assert again.questions[0].question == "is 'draft 1 after start' good?"
    assert (await graph.resume("r", ledger=store)).status == "waiting"
    assert calls.taken() == []


def parallel(calls: Calls) -> Workflow:
    """Make three parallel sub-graphs that ask, one of them twice, and a branch that does not."""
    workflow = Workflow("parallel", input=str)
    for name in ("a", "b", "c"):
        inner = Workflow(f"inner {name}", input=str, output=str)
        inner.add(Ask("ask", question=f"{name}?", answer=str))
        if name == "b":
            inner.add(Ask("again", question="b again?", answer=str))
            inner.chain(START, "ask", "again", END)
        else:
            inner.chain(START, "ask", END)
        workflow.add(inner, name=name)
        workflow.edge(START, name)

    @workflow.node
    async def free(text: str) -> str:
        calls("free")
        return "free"

    @workflow.node
    async def end(a: str, b: str, c: str, free: str) -> str:
        return f"{a} {b} {c} {free}"

    workflow.edge(START, free)
    for name in ("a", "b", "c", "free"):
        workflow.edge(name, "end")
    workflow.edge(end, END)
    return workflow


async def test_several_open_questions_are_answered_by_their_ids_in_one_call(
    store: RunLedgerStore, calls: Calls
) -> None:
    """B-093."""
    graph = parallel(calls).compile()
    result = await graph.run("x", ledger=store, run_id="r")
    assert [q.id for q in result.questions] == ["a/ask", "b/ask", "c/ask"]
    before = await seen(store)
    with pytest.raises(GraphError, match="3 questions open") as caught:
        await graph.resume("r", ledger=store, answers="yes")
    assert "a/ask, b/ask, c/ask" in str(caught.value.hint)
    assert await seen(store) == before
    result = await graph.resume("r", ledger=store, answers={"c/ask": "3", "a/ask": "1", "b/ask": "2", "b/again": "4"})
    assert result.output == "1 4 3 free"
    assert calls.taken() == ["free"]
    await check_whole(store)


async def test_after_each_answer_only_open_questions_are_listed(store: RunLedgerStore, calls: Calls) -> None:
    """B-091 and B-095."""
    graph = parallel(calls).compile()
    await graph.run("x", ledger=store, run_id="r")
    open_: list[list[str]] = []
    for answers in ({"b/ask": "2"}, {"a/ask": "1"}, {"b/again": "4"}):
        result = await graph.resume("r", ledger=store, answers=answers)
        assert result.status == "waiting"
        open_.append(sorted(q.id for q in result.questions))
    assert open_ == [["a/ask", "b/again", "c/ask"], ["b/again", "c/ask"], ["c/ask"]]
    assert (await graph.resume("r", ledger=store, answers="3")).output == "1 4 3 free"
    assert calls.taken() == ["free"]


async def test_item_that_asks_leaves_no_hole(store: RunLedgerStore, calls: Calls) -> None:
    """B-098."""
    fan = Workflow("fan", input=int)

    @fan.node
    async def items(x: int) -> list[int]:
        return list(range(x))

    @fan.node
    async def first(i: int) -> int:
        calls(f"first{i}")
        return i

    fan.add(Ask("ask", question=lambda first: f"{first}?", answer=int))

    @fan.node
    async def last(value: int) -> int:
        calls("last")
        return value

    @fan.node
    async def end(xs: list[int]) -> list[int]:
        return xs

    fan.chain(START, items)
    fan.map(items, first)
    fan.edge(first, "ask", when=lambda i: i == 1)
    fan.edge(first, last, when=lambda i: i != 1)
    fan.edge("ask", last)
    fan.gather(last, end)
    fan.edge(end, END)
    graph = fan.compile()
    result = await graph.run(3, ledger=store, run_id="r")
    assert [q.id for q in result.questions] == ["items[1]/ask"]
    calls.taken()
    assert (await graph.resume("r", ledger=store, answers=17)).output == [0, 17, 2]
    assert calls.taken() == ["last"]


class Approval(BaseModel):
    ok: bool
    why: str = ""


def approving(calls: Calls) -> Workflow:
    workflow = Workflow("approving", input=str, output=str, deps=dict)
    workflow.add(Ask("approve", question="ok?", answer=Approval))

    @workflow.node
    async def tool(approval: Approval, ctx: RunContext[dict[str, int]]) -> str:
        calls("tool")
        return f"{approval.ok} {ctx.deps['n']}"

    workflow.chain(START, "approve", tool, END)
    return workflow


@pytest.mark.parametrize("answer", [Approval(ok=True), {"ok": True}])
async def test_approval_counts_when_the_call_brings_dependencies(
    store: RunLedgerStore, calls: Calls, answer: Any
) -> None:
    """B-099."""
    graph = approving(calls).compile()
    await graph.run("x", ledger=store, run_id="r", deps={"n": 1})
    result = await graph.resume("r", ledger=store, answers={"approve": answer}, deps={"n": 2})
    assert (result.output, calls.taken()) == ("True 2", ["tool"])


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ({"approve": "perhaps"}, GraphTypeError),
        ("perhaps", GraphTypeError),
        ({"aprove": {"ok": True}}, GraphError),
        ({3: True}, GraphError),
        ({"approve": Approval.model_construct(ok=object())}, GraphTypeError),
    ],
)
async def test_wrong_answer_is_refused_and_nothing_is_changed(
    store: RunLedgerStore, calls: Calls, answers: Any, error: type[Exception]
) -> None:
    graph = approving(calls).compile()
    await graph.run("x", ledger=store, run_id="r", deps={})
    before = await seen(store)
    with pytest.raises(error):
        await graph.resume("r", ledger=store, answers=answers)
    assert await seen(store) == before
    assert (await graph.resume("r", ledger=store, answers={"approve": {"ok": True}}, deps={"n": 1})).output == "True 1"


async def test_answer_to_a_question_that_is_closed_is_ignored(store: RunLedgerStore, calls: Calls) -> None:
    graph = parallel(calls).compile()
    await graph.run("x", ledger=store, run_id="r")
    await graph.resume("r", ledger=store, answers={"a/ask": "1"})
    result = await graph.resume("r", ledger=store, answers={"a/ask": "other", "b/ask": "2"})
    assert sorted(q.id for q in result.questions) == ["b/again", "c/ask"]
    result = await graph.resume("r", ledger=store, answers={"b/again": "4", "c/ask": "3"})
    assert result.output == "1 4 3 free"


async def test_early_answer_survives_a_resume(store: RunLedgerStore, calls: Calls) -> None:
    """It is stored as an event, and taken when its question comes."""
    late = Workflow("late", input=str, output=str)
    late.add(Ask("first", question="first?", answer=str))

    @late.node
    async def work(first: str) -> str:
        calls("work")
        return first

    late.add(Ask("second", question="second?", answer=str))
    late.chain(START, "first", work, "second", END)
    graph = late.compile()
    await graph.run("x", ledger=store, run_id="r")
    assert (await graph.resume("r", ledger=store, answers={"second": "early"})).status == "waiting"
    calls.fails = {"work"}
    with pytest.raises(ValueError, match="work"):
        await graph.resume("r", ledger=store, answers={"first": "one"})
    calls.fails = set()
    assert (await graph.resume("r", ledger=store)).output == "early"
    await check_whole(store)


async def test_early_answer_that_does_not_fit_is_dropped_and_the_question_asked(store: RunLedgerStore) -> None:
    late = Workflow("late", input=str)
    late.add(Ask("first", question="first?", answer=str))
    late.add(Ask("second", question="second?", answer=int))
    late.chain(START, "first", "second", END)
    graph = late.compile()
    await graph.run("x", ledger=store, run_id="r")
    await graph.resume("r", ledger=store, answers={"second": "no number"})
    result = await graph.resume("r", ledger=store, answers={"first": "one"})
    assert [q.id for q in result.questions] == ["second"]
    for _ in range(2):
        assert (await graph.resume("r", ledger=store)).status == "waiting"
    assert (await graph.resume("r", ledger=store, answers=5)).output == 5
    await check_whole(store)


async def test_answers_that_come_while_others_work_are_taken(store: RunLedgerStore) -> None:
    both = Workflow("both", input=int)
    both.add(Ask("ask", question="?", answer=int))

    @both.node
    async def work(x: int) -> int:
        await anyio.sleep(0.3)
        return x

    @both.node
    async def end(ask: int, work: int) -> int:
        return ask + work

    both.edge(START, "ask")
    both.edge(START, work)
    both.edge("ask", end)
    both.edge(work, end)
    both.edge(end, END)
    graph = both.compile()
    async with graph.stream(1, ledger=store, run_id="r") as run:
        async for event in run:
            if event.type == "step.waiting":
                with pytest.raises(GraphTypeError):
                    await run.answer("ask", "no number")
                await run.answer("ask", 4)
    assert run.result.output == 5
    assert (await graph.run(1, ledger=store, run_id="r")).output == 5


async def test_question_answered_by_a_function_needs_no_second_call(store: RunLedgerStore, calls: Calls) -> None:
    async def on_ask(question: Any) -> str:
        calls(question.id)
        return "no" if question.round < 2 else "yes"

    graph = revising(calls).compile()
    assert (await graph.run("x", ledger=store, run_id="r", on_ask=on_ask)).output == "yes"
    assert calls.taken() == ["draft1", "ask#1", "draft2", "ask#2"]


async def test_open_question_of_a_stored_run_is_put_to_who_answers_after_a_resume(
    store: RunLedgerStore, calls: Calls
) -> None:
    async def on_ask(question: Any) -> str:
        return "yes"

    graph = revising(calls).compile()
    await graph.run("x", ledger=store, run_id="r")
    assert (await graph.resume("r", ledger=store, on_ask=on_ask)).output == "yes"
    assert calls.taken() == ["draft1"]


async def test_questions_beside_a_failure_are_open_again_after_a_resume(store: RunLedgerStore, calls: Calls) -> None:
    beside = Workflow("beside", input=int)
    beside.add(Ask("ask", question="?", answer=int))

    @beside.node
    async def work(x: int) -> int:
        await anyio.sleep(0.02)
        calls("work")
        return x

    @beside.node
    async def end(ask: int, work: int) -> int:
        return ask + work

    beside.edge(START, "ask")
    beside.edge(START, work)
    beside.edge("ask", end)
    beside.edge(work, end)
    beside.edge(end, END)
    calls.fails = {"work"}
    graph = beside.compile()
    await graph.run(1, ledger=store, run_id="r", check=False)
    calls.fails = set()
    assert (await graph.resume("r", ledger=store, answers=4)).output == 5
    await check_whole(store)


async def test_nobody_can_resume_while_a_run_is_worked_on(store: RunLedgerStore) -> None:
    slow = Workflow("slow", input=int)

    @slow.node
    async def work(x: int) -> int:
        await anyio.sleep(0.3)
        return x

    slow.chain(START, work, END)
    graph = slow.compile()
    async with graph.stream(1, ledger=store, run_id="r") as run:
        await anyio.sleep(0.05)
        with pytest.raises(RunControlError, match="being worked on"):
            await graph.resume("r", ledger=store, answers=1)
        assert (await run.wait()).output == 1
