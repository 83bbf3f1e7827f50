"""Every event of a run is written as JSON text, read back, and gives the same core (E25)."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from graphrt import END, START, CompiledGraph, Reduce, RunEvent, Update, Workflow
from graphrt.errors import GraphrtError, GraphTypeError, LimitExceededError, RecordedError
from graphrt.graph.core.records import Step
from graphrt.graph.core.replay import requeue, restore
from graphrt.graph.core.run import RunCore
from graphrt.graph.durable.events import EventCodec, is_holder, stored_event
from graphrt.graph.protocols import StepRef
from tests.properties.building import build
from tests.properties.description import Graph, Outcome
from tests.properties.driver import Session
from tests.properties.graphs import VALUE, Flavour, graphs

CALM = Flavour(races=False, failures=False, wrong=False)
FAILING = Flavour(races=False)
RACING = Flavour()

Row = tuple[int, str, str, float]
"""Sequence, type, data and time of an event, as a store holds them."""


class StoredSession(Session):
    """A run of the pure core whose events are written as they come."""

    def __init__(self, compiled: CompiledGraph, value: Any) -> None:
        self.rows: list[Row] = []
        self.codec = EventCodec(compiled.program)
        self.events, self.live, self.inputs = [], {}, {}
        self.core = RunCore(compiled.program, "run", sink=self.events.append)
        self.core.recorder = self.record
        self.core.start(value, 0.0)
        self.carry_out()

    @classmethod
    def resumed(cls, compiled: CompiledGraph, rows: Sequence[Row], *, again: bool = True) -> StoredSession:
        """Take up a run where *rows* end."""
        session = cls.__new__(cls)
        session.rows, session.codec = [], EventCodec(compiled.program)
        session.events, session.live, session.inputs = [], {}, {}
        session.core = restore(
            compiled.program,
            "run",
            read_rows(rows),
            sink=session.events.append,
            recorder=session.record,
            read=session.codec.read,
        )
        if again:
            requeue(session.core, 0.0)
            session.carry_out()
        return session

    def record(self, event: RunEvent, step: Step | None) -> None:
        """Write an event as JSON text."""
        text = self.codec.write(event, step, None)
        text.encode()
        self.rows.append((event.sequence, event.type, text, event.time))

    def to_end(self, place: int = 0) -> Outcome:
        """Let the run end, always finishing the step at *place* among those that run."""
        while not self.over:
            self.finish(self.running()[place])
        return self.outcome()


def read_rows(rows: Sequence[Row]) -> list[RunEvent]:
    """Make events of what a store holds."""
    return [
        stored_event("run", sequence, kind, json.loads(text, parse_constant=_no_constant), time)
        for sequence, kind, text, time in rows
    ]


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@settings(max_examples=25)
@given(st.sampled_from((CALM, FAILING, RACING)).flatmap(graphs), st.integers(0, 200))
def test_written_events_are_enough_to_stand_where_the_run_was_left(graph: Graph, cut: int) -> None:
    session = StoredSession(build(graph).compile(), VALUE)
    session.to_end()
    rows = session.rows
    stored = rows[: cut % len(rows) + 1]
    again = StoredSession.resumed(build(graph).compile(), stored, again=False)
    assert again.rows == rows[len(stored) :][: len(again.rows)]
    if len(stored) + len(again.rows) == len(rows):
        assert [(s.key, s.state, s.value, describe(s.error)) for s in again.core.steps] == [
            (s.key, s.state, s.value, describe(s.error)) for s in session.core.steps
        ]


@settings(max_examples=25)
@given(graphs(CALM), st.integers(0, 200))
def test_run_read_back_from_text_ends_the_same(graph: Graph, cut: int) -> None:
    session = StoredSession(build(graph).compile(), VALUE)
    whole = session.to_end()
    stored = session.rows[: cut % len(session.rows) + 1]
    again = StoredSession.resumed(build(graph).compile(), stored)
    end = again.to_end(-1)
    if whole.status != "succeeded":  # which failure comes first depends on the order (E7)
        assert end.status != "succeeded"
        return
    assert (end.status, end.output, end.outputs, end.state) == (whole.status, whole.output, whole.outputs, whole.state)
    numbers = [row[0] for row in (*stored, *again.rows)]
    assert numbers == list(range(1, len(numbers) + 1))
    last = StoredSession.resumed(build(graph).compile(), [*stored, *again.rows], again=False)
    assert (last.outcome().output, last.outcome().state) == (whole.output, whole.state)


@settings(max_examples=25)
@given(graphs(RACING), st.integers(0, 200))
def test_run_with_failures_read_back_from_text_goes_on_to_an_end(graph: Graph, cut: int) -> None:
    session = StoredSession(build(graph).compile(), VALUE)
    session.to_end()
    stored = session.rows[: cut % len(session.rows) + 1]
    again = StoredSession.resumed(build(graph).compile(), stored)
    again.to_end()
    last = StoredSession.resumed(build(graph).compile(), [*stored, *again.rows], again=False)
    assert last.over
    one, other = last.core.outcome, again.core.outcome
    assert one is not None
    assert other is not None
    assert (one.status, describe(one.error)) == (other.status, describe(other.error))


def describe(error: BaseException | None) -> tuple[str, str] | None:
    """Say what an error is, or stands for."""
    if isinstance(error, RecordedError):
        return error.type_name.rpartition(".")[2], error.recorded_message
    return None if error is None else (type(error).__name__, str(error))


# --- typed values -------------------------------------------------------------------------------------------


class Kind(Enum):
    BUG = ("bug", 1)
    IDEA = "idea"


@dataclass(frozen=True)
class Ticket:
    text: str
    day: date


class Verdict(BaseModel):
    ticket: Ticket
    words: set[str] = set()
    left: int = Field(default=0, alias="still left")


class Notes(BaseModel):
    tickets: Annotated[list[Ticket], Reduce(lambda before, one: [*before, one])] = []
    """Takes one ticket, which is not of the field's type."""
    words: Annotated[set[str], Reduce(lambda before, more: before | set(more))] = set()
    """Takes any collection."""
    last: Verdict | None = None
    share: float = 0.0


def tickets() -> CompiledGraph:
    """Build a graph with a loop, a map and state, all of whose values have types of their own."""
    workflow = Workflow("tickets", input={"texts": list[str], "day": date}, state=Notes)

    @workflow.node
    async def read(texts: list[str], day: date) -> tuple[Ticket, ...]:
        return tuple(Ticket(text, day) for text in texts)

    @workflow.node
    async def judge(ticket: Ticket) -> Verdict | Ticket:
        if not ticket.text:
            return ticket
        verdict = Verdict.model_validate({"ticket": ticket, "words": set(ticket.text.split()), "still left": 3})
        return Update(verdict, words=ticket.text.split())  # type: ignore[return-value]  # as it may be annotated

    @workflow.node
    async def sum_up(verdicts: list[Verdict | Ticket], state: Notes) -> Verdict:
        last = next(each for each in verdicts if isinstance(each, Verdict))
        return Update(last, last=last, share=math.inf)  # type: ignore[return-value]  # as above

    @workflow.node
    async def shrink(verdict: Verdict) -> Verdict:
        return verdict.model_copy(update={"left": verdict.left - 1})

    workflow.chain(START, read)
    workflow.map(read, judge)
    workflow.gather(judge, sum_up, into="verdicts")
    workflow.chain(sum_up, shrink)
    workflow.edge(shrink, shrink, when=lambda verdict: verdict.left > 0)
    workflow.edge(shrink, END, when=lambda verdict: verdict.left <= 0)
    return workflow.compile()


def test_typed_values_and_state_come_back_from_every_event() -> None:
    given = {"texts": ["a b", "", "b c"], "day": date(2024, 2, 29)}
    session = StoredSession(tickets(), given)
    whole = session.to_end()
    assert whole.status == "succeeded", session.core.outcome.error  # type: ignore[union-attr]  # it has ended
    assert isinstance(whole.output, Verdict)
    for upto in range(1, len(session.rows) + 1):
        again = StoredSession.resumed(tickets(), session.rows[:upto])
        end = again.to_end()
        assert (end.output, end.outputs, end.state) == (whole.output, whole.outputs, whole.state)


def test_update_that_is_neither_of_the_type_nor_json_is_refused() -> None:
    session = StoredSession(tickets(), {"texts": ["a"], "day": date(2024, 2, 29)})
    session.finish(session.running()[0])
    step = next(step for step in session.core.steps if step.node.name == "judge")
    verdict = Verdict(ticket=Ticket("a", date(2024, 2, 29)))
    session.codec.dump_value(step, Update(verdict, share=3))
    with pytest.raises(GraphTypeError, match="field 'words' of the state of graph 'tickets'"):
        session.codec.dump_value(step, Update(verdict, words=("a",)))
    assert '"plain":{"words":["a"]}' in session.codec.dump_value(step, Update(verdict, words=["a"]))


def test_input_that_was_stored_for_another_graph_is_an_error_that_says_so() -> None:
    codec = EventCodec(tickets().program)
    with pytest.raises(GraphTypeError, match="is without 'day'"):
        codec.load_input({"texts": []})
    with pytest.raises(GraphTypeError, match="input 'day' of graph 'tickets'"):
        codec.load_input({"texts": [], "day": "no day"})


# --- every type of event ------------------------------------------------------------------------------------


def chain() -> CompiledGraph:
    """Build a graph of one node."""
    workflow = Workflow("chain")

    @workflow.node
    async def work(x: int) -> int:
        return x

    workflow.chain(START, work, END)
    return workflow.compile()


def one_step() -> tuple[EventCodec, Step]:
    """Give a codec, and a step that is running."""
    session = StoredSession(chain(), 1)
    return session.codec, session.core.steps[0]


def back(codec: EventCodec, kind: str, data: Mapping[str, Any], step: Step | None = None) -> tuple[Any, Any]:
    """Write an event as text and read it back; give its step and its data."""
    event = RunEvent(kind, "r", 7, None if step is None else step.ref, data, 1.5)
    text = codec.write(event, step, None)
    text.encode()
    stored = stored_event("r", 7, kind, json.loads(text, parse_constant=_no_constant), 1.5)
    return stored.step, codec.read(stored, step)


KINDS: list[tuple[str, dict[str, Any]]] = [
    ("run.started", {"input": {"a": [1]}, "graph": "chain"}),
    ("run.resumed", {"after": 3}),
    ("run.waiting", {"questions": ["a"]}),
    ("run.completed", {"status": "succeeded", "output": [1, "x"]}),
    ("round.started", {"cycle": "a", "round": 2, "scope": "m[3]"}),
    ("round.completed", {"cycle": "a", "round": 2, "scope": ""}),
    ("step.started", {"edges": [1, 2]}),
    ("step.completed", {"output": 3, "taken": [0], "text": "st\u00e9"}),
    ("step.skipped", {"reason": "1 of 2"}),
    ("step.cancelled", {"partial": "so far"}),
    ("step.waiting", {"question_id": "work", "question": {"tool": "x"}}),
    ("map.item", {"map": "a", "index": 3, "scope": "a[3]"}),
    ("message.completed", {"message": {"role": "user"}, "usage": None}),
    ("tool.call.started", {"tool_call_id": "c", "parameters": {"a": 1}}),
    ("tool.call.completed", {"tool_call_id": "c", "error": "text"}),
    ("artifact.created", {"id": "a"}),
    ("state.updated", {"fields": ["a"]}),
    ("action.requested", {"request": "cancel_after_round"}),
    ("action.requested", {"request": "answer", "question_id": "q", "value": {"approved": True}}),
    ("thread.abandoned", {"node": "a"}),
    ("custom.x", {"step": {"of": 3}, "~step": 1, "error": {"type": "ValueError"}, "": None}),
]


@pytest.mark.parametrize(("kind", "data"), KINDS, ids=lambda each: each if isinstance(each, str) else "")
def test_data_of_every_type_of_event_comes_back(kind: str, data: dict[str, Any]) -> None:
    codec, step = one_step()
    of_step = step if not kind.startswith(("run.", "round.", "action.")) else None
    ref, read = back(codec, kind, data, of_step)
    assert ref == (step.ref if of_step is not None else None)
    assert read == data


@pytest.mark.parametrize("kind", ["step.failed", "step.timed_out", "attempt.failed", "run.failed", "run.stopped"])
def test_error_of_an_event_comes_back(kind: str) -> None:
    codec, step = one_step()
    error = LimitExceededError("enough", limit="max_steps")
    _, read = back(codec, kind, {"error": error, "handled": True, "partial": "so"}, step)
    assert type(read["error"]) is LimitExceededError
    assert (read["error"].limit, read["handled"], read["partial"]) == ("max_steps", True, "so")


@pytest.mark.parametrize("kind", ["action.requested", "run.cancelled", "run.timed_out"])
def test_end_of_a_run_and_what_was_asked_for_come_back_with_their_error(kind: str) -> None:
    codec, _ = one_step()
    _, read = back(codec, kind, {"request": "cancel", "error": TimeoutError("late"), "timed_out": True})
    assert (type(read["error"]), str(read["error"]), read["timed_out"]) == (TimeoutError, "late", True)


def test_what_is_only_shown_is_written_whatever_it_is() -> None:
    """A node's own event, a question or an output can hold anything: it never stops a run."""
    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(2000):
        deep = [deep]
    data = {
        "odd": object(),
        "3": {1: "\ud800", 2: Ticket("b", date(2024, 1, 1))},
        "not clean": Ticket("\ud800", date(2024, 1, 1)),
        "far": [math.nan, math.inf],
        "raw": b"\xff",
        "circle": circle,
        "deep": deep,
        "error": ValueError("x"),
        "in": [ValueError("y"), Kind.BUG],
        "\ud800": 1,
        "model": Verdict(ticket=Ticket("a", date(2024, 1, 1))),
    }
    codec, step = one_step()
    _, read = back(codec, "custom.x", data, step)
    assert read["far"] == ["NaN", "Infinity"]
    assert read["3"] == {"1": "\ufffd", "2": {"text": "b", "day": "2024-01-01"}}
    assert "Ticket" in read["not clean"]
    assert read["error"]["message"] == "x"
    assert read["in"][0]["type"] == "ValueError"
    assert read["model"]["ticket"] == {"text": "a", "day": "2024-01-01"}
    assert set(read) >= {"odd", "raw", "circle", "deep"}


def test_answer_that_comes_before_its_question_is_stored_as_a_person_would_give_it() -> None:
    codec, _ = one_step()
    data = {"request": "answer", "question_id": "q", "value": Ticket("a", date(2024, 1, 1))}
    _, read = back(codec, "action.requested", data)
    assert read["value"] == {"text": "a", "day": "2024-01-01"}
    with pytest.raises(GraphTypeError, match="the answer to 'q' cannot be stored"):
        codec.dump_answer("q", object())


def test_step_that_no_version_names_so_is_an_error_that_says_so() -> None:
    for ref in ({"node": "a"}, "a", 3):
        with pytest.raises(GraphTypeError, match="event 4 of run 'r' names its step as"):
            stored_event("r", 4, "step.started", {"step": ref}, 0.0)
    assert stored_event("r", 4, "round.started", {"round": 1}, 0.0).step is None
    full = {"node": "a", "scope": "m[1]", "round": 2, "attempt": 1, "key": "m[1]/a#2"}
    assert stored_event("r", 4, "step.started", {"step": full}, 0.0).step == StepRef("a", "m[1]", 2, 1, "m[1]/a#2")


def test_event_of_a_chain_is_small() -> None:
    """One step of a chain takes two events."""
    session = StoredSession(chain(), 1)
    session.to_end()
    sizes = [len(text) for _, kind, text, _ in session.rows if kind.startswith("step.")]
    assert sum(sizes) < 150


def test_item_of_an_iterator_is_stored_by_its_type() -> None:
    workflow = Workflow("items")

    @workflow.node
    async def items(x: int) -> AsyncIterator[Ticket]:
        yield Ticket("a", date(2024, 1, 1))

    @workflow.node
    async def one(ticket: Ticket) -> Ticket:
        return ticket

    @workflow.node
    async def end(tickets: list[Ticket]) -> int:
        return len(tickets)

    workflow.chain(START, items)
    workflow.map(items, one)
    workflow.gather(one, end, into="tickets")
    workflow.chain(end, END)
    session = StoredSession(workflow.compile(), 1)
    step = session.core.steps[0]
    data = {"map": "items", "index": 0, "scope": "items[0]", "value": Ticket("a", date(2024, 1, 1))}
    assert back(session.codec, "map.item", data, step)[1] == data
    with pytest.raises(GraphTypeError, match="an item of node 'items' cannot be stored"):
        session.codec.dump_item(step, "a")
    assert session.codec.dump_value(step, None) == '"output":null'


def test_run_with_a_map_from_start_goes_on_from_every_event() -> None:
    workflow = Workflow("mapped")

    @workflow.node
    async def one(x: int) -> int:
        return x + 1

    @workflow.node
    async def add(xs: list[int]) -> int:
        return sum(xs)

    workflow.map(START, one)
    workflow.gather(one, add, into="xs")
    workflow.chain(add, END)
    graph = workflow.compile()
    session = StoredSession(graph, [1, 2])
    session.to_end()
    for upto in range(1, len(session.rows) + 1):
        assert StoredSession.resumed(graph, session.rows[:upto]).to_end().output == 5


class MineError(Exception):
    """What no edge names."""


def failing(error: Exception, *edges: tuple[Any, Any]) -> CompiledGraph:
    """Build a graph whose first node fails, with an edge to a node of its own for each of *edges*: class, condition."""
    workflow = Workflow("failing")

    @workflow.node
    async def work(x: int) -> str:
        raise error

    workflow.chain(START, work, END)
    for number, (errors, when) in enumerate(edges):

        async def mend(error: Exception, number: int = number) -> str:
            return f"edge {number}"

        mend.__annotations__.pop("number")
        workflow.add_node(f"mend{number}", mend)
        workflow.edge(work, f"mend{number}", on_error=errors, when=when)
        workflow.chain(f"mend{number}", END)
    return workflow.compile()


def breaks(error: Exception) -> bool:
    """Stand for a condition with a mistake in it."""
    raise KeyError("condition")


@pytest.mark.parametrize(
    "graph",
    [
        lambda: failing(MineError("x"), (GraphrtError, None), (Exception, None)),
        lambda: failing(ValueError("x"), (ValueError, breaks), (KeyError, None)),
        lambda: failing(
            MineError(object()), (Exception, lambda error: type(error.args[0]) is object), (Exception, None)
        ),
    ],
)
def test_error_goes_the_way_it_went_whatever_is_left_of_it(graph: Callable[[], CompiledGraph]) -> None:
    session = StoredSession(graph(), 1)
    whole = session.to_end()
    for upto in range(4, len(session.rows) + 1):
        end = StoredSession.resumed(graph(), session.rows[:upto]).to_end()
        assert (end.status, end.output) == (whole.status, whole.output)


def holder(fallback: Any) -> Step:
    """Give a running step whose node holds a graph."""
    workflow = Workflow("outer")
    workflow.add(inner(), name="held", fallback=fallback)
    workflow.chain(START, "held", END)
    session = StoredSession(workflow.compile(), 1)
    return session.core.steps[0]


def inner() -> Workflow:
    """Build a graph to be held, whose output has a type."""
    workflow = Workflow("inner", output=Ticket)

    @workflow.node
    async def make(x: int) -> Ticket:
        return Ticket(str(x), date(2024, 1, 1))

    workflow.chain(START, make, END)
    return workflow


def test_value_of_a_graph_inside_is_stored_only_where_a_fallback_may_take_its_place() -> None:
    bare = holder(None)
    assert is_holder(bare)
    codec = EventCodec(bare.frame.scope.program)
    event = RunEvent("step.completed", "r", 7, bare.ref, {"output": Ticket("1", date(2024, 1, 1))}, 0.0)
    assert "output" not in codec.write(event, bare, None)
    step = holder(Ticket("none", date(2024, 1, 1)))
    assert not is_holder(step)
    codec = EventCodec(step.frame.scope.program)
    assert "output" not in codec.write(event, step, None)
    text = codec.write(event, step, codec.dump_value(step, Ticket("none", date(2024, 1, 1))))
    read = codec.read(stored_event("r", 7, "step.completed", json.loads(text), 0.0), step)
    assert read["output"] == Ticket("none", date(2024, 1, 1))
