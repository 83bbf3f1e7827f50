"""Faults of kind 1: state, merging, sharing. Values and state of one reader are never another's (E22 to E24)."""

from __future__ import annotations

import operator
import threading
import warnings
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel, ConfigDict

from graphrt import END, START, Reduce, RetryPolicy, StateConflictError, Update, Workflow
from tests.engine.helpers import GUARD, line, yield_often

pytestmark = pytest.mark.anyio


class Plain(BaseModel):
    counter: int = 0
    names: list[str] = []


class Reduced(BaseModel):
    counter: Annotated[int, Reduce(operator.add)] = 0
    names: Annotated[list[str], Reduce(operator.add)] = []


def mapped(workflow: Workflow, source: Any, body: Any, last: Any = END) -> Workflow:
    """Map *body* over *source* and gather it in *last*."""
    for fn in (source, body) if last is END else (source, body, last):
        workflow.add(fn)
    workflow.edge(START, source)
    workflow.map(source, body)
    workflow.gather(body, last)
    if last is not END:
        workflow.edge(last, END)
    return workflow


# --- B-001: an unsafe write --------------------------------------------------------------------------------


async def fifty(x: Any) -> list[int]:
    return list(range(50))


async def test_unsafe_counter_of_fifty_items_is_an_error_that_names_it() -> None:
    """B-001."""

    async def count(item: int, state: Plain) -> Update[int]:
        before = state.counter
        await yield_often()
        return Update(item, counter=before + 1)

    workflow = mapped(Workflow("g", state=Plain), fifty, count)
    with pytest.raises(StateConflictError, match="state field 'counter' was written by 'count' and by 'count'") as e:
        await workflow.run()
    assert "Reduce(fn)" in str(e.value)


async def test_reduced_counter_of_fifty_items_is_fifty() -> None:
    """B-001."""

    async def count(item: int) -> Update[int]:
        await yield_often(item % 3)
        return Update(item, counter=1, names=[str(item)])

    result = await mapped(Workflow("g", state=Reduced), fifty, count).run()
    assert result.state.counter == 50
    assert result.state.names == [str(i) for i in range(50)]


async def test_two_branches_that_write_one_field_conflict_where_they_meet() -> None:
    async def left(x: Any) -> Update[None]:
        return Update(counter=1)

    async def right(x: Any) -> Update[None]:
        return Update(counter=1)

    async def meet(left: Any, right: Any) -> None: ...

    workflow = Workflow("g", state=Plain)
    for fn in (left, right, meet):
        workflow.add(fn)
    for fn in (left, right):
        workflow.chain(START, fn, meet)
    workflow.edge(meet, END)
    with pytest.raises(StateConflictError, match="'counter' was written by 'left' and by 'right'"):
        await workflow.run()


async def test_write_after_the_join_settles_the_field() -> None:
    """The last write is downstream of all others: no conflict."""

    async def left(x: Any) -> Update[int]:
        return Update(1, counter=1)

    async def right(x: Any) -> int:
        return 2

    async def meet(left: int, right: int, state: Plain) -> Update[None]:
        return Update(counter=state.counter + left + right)

    workflow = Workflow("g", state=Plain)
    for fn in (left, right, meet):
        workflow.add(fn)
    for fn in (left, right):
        workflow.chain(START, fn, meet)
    workflow.edge(meet, END)
    assert (await workflow.run()).state.counter == 4


async def test_branch_does_not_see_what_its_sibling_writes() -> None:
    seen: list[int] = []
    written = anyio.Event()

    async def left(x: Any) -> Update[int]:
        return Update(1, counter=10)

    async def after_left(x: int) -> None:
        written.set()

    async def right(x: Any) -> None:
        await written.wait()

    async def reader(x: Any, state: Reduced) -> None:
        seen.append(state.counter)

    workflow = Workflow("g", state=Reduced)
    for fn in (left, after_left, right, reader):
        workflow.add(fn)
    workflow.chain(START, left, after_left, END)
    workflow.chain(START, right, reader, END)
    with anyio.fail_after(GUARD):
        assert (await workflow.run()).state.counter == 10
    assert seen == [0]


async def test_state_changed_in_place_is_nobody_elses() -> None:
    async def spoil(x: Any, state: Plain) -> int:
        state.names.append("spoilt")
        state.counter = 99
        return 1

    async def reader(x: int, state: Plain) -> Any:
        return (state.counter, list(state.names))

    workflow = line(spoil, reader, state=Plain)
    for _ in range(2):
        result = await workflow.run()
        assert result.output == (0, [])
        assert result.state == Plain()


async def test_list_that_was_written_is_the_states_own() -> None:
    mine = ["mine"]

    async def write(x: Any) -> Update[None]:
        return Update(names=mine)

    async def spoil(x: None) -> None:
        mine.append("later")

    async def reader(x: Any, state: Plain) -> list[str]:
        return state.names

    assert (await line(write, spoil, reader, state=Plain).run()).output == ["mine"]


async def test_failed_step_brings_no_write() -> None:
    calls = Counter[str]()

    async def write(x: Any) -> Update[int]:
        calls["write"] += 1
        return Update(calls["write"], counter=1)

    async def fails(x: int) -> Update[int]:
        raise ValueError("no")

    async def mend(error: Exception, state: Reduced) -> int:
        return state.counter

    workflow = Workflow("g", state=Reduced)
    for fn in (write, fails, mend):
        workflow.add(fn)
    workflow.chain(START, write, fails, END)
    workflow.edge(fails, mend, on_error=True)
    workflow.edge(mend, END)
    result = await workflow.run()
    assert (result.output, result.state.counter) == (1, 1)


# --- B-003: one value, two readers -------------------------------------------------------------------------


@dataclass
class Holder:
    items: list[int] = field(default_factory=lambda: [1, 2])


def mutables() -> list[Any]:
    """Values that a reader can spoil; each with its inner list."""
    return [[1, 2], {"items": [1, 2]}, Holder(), ([1, 2],), [[1, 2]], Plain(names=["1", "2"])]


def spoil(value: Any) -> None:
    """Change everything in *value* that can be changed."""
    for inner in (value, getattr(value, "items", None), getattr(value, "names", None)):
        if isinstance(inner, list):
            inner.append("spoilt")
    if isinstance(value, dict):
        value["items"].append("spoilt")
    if isinstance(value, (list, tuple)):
        for one in value:
            if isinstance(one, list):
                one.append("spoilt")


@pytest.mark.parametrize("number", range(6))
async def test_fan_out_gives_each_reader_and_the_caller_their_own(number: int) -> None:
    """B-003."""
    given = mutables()[number]

    async def first(value: Any) -> None:
        spoil(value)

    async def second(value: Any) -> Any:
        await yield_often()
        return value

    workflow = Workflow("g")
    for fn in (first, second):
        workflow.add(fn)
        workflow.chain(START, fn, END)
    result = await workflow.run(given)
    assert result.output == mutables()[number]
    assert given == mutables()[number]


async def test_only_reader_of_the_input_still_leaves_the_callers_alone() -> None:
    """B-003."""

    async def node(value: list[int]) -> None:
        value.append(3)

    given = [1]
    await line(node).run(given)
    assert given == [1]


async def test_value_read_by_name_is_not_what_the_first_reader_made_of_it() -> None:
    async def source(x: Any) -> list[int]:
        return [1]

    async def spoiler(value: list[int]) -> None:
        value.append(2)

    async def reader(x: None, source: list[int]) -> list[int]:
        source.append(3)
        return source

    async def again(x: Any, source: list[int]) -> list[int]:
        return source

    assert (await line(source, spoiler, reader, again).run()).output == [1]


async def test_header_reads_its_entry_afresh_in_every_round() -> None:
    seen: list[list[int]] = []

    async def step(basis: list[int], n: int = 0) -> int:
        seen.append(list(basis))
        basis.append(n)
        return n + 1

    workflow = Workflow("g")
    workflow.add(step)
    workflow.edge(START, step, into="basis")
    workflow.edge(step, step, into="n", when=lambda n: n < 3)
    workflow.edge(step, END, when=lambda n: n >= 3)
    await workflow.run([7])
    assert seen == [[7], [7], [7]]


async def test_second_attempt_sees_the_input_as_it_was() -> None:
    seen: list[list[int]] = []

    async def source(x: Any) -> list[int]:
        return [1]

    async def node(value: list[int]) -> list[int]:
        seen.append(list(value))
        value.append(9)
        if len(seen) < 3:
            raise ValueError
        return value

    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(node, retry=RetryPolicy(attempts=3, wait_initial=0))
    workflow.chain(START, source, node, END)
    assert (await workflow.run()).output == [1, 9]
    assert seen == [[1]] * 3


async def test_fallback_sees_the_input_as_it_was() -> None:
    async def source(x: Any) -> list[int]:
        return [1]

    async def node(value: list[int]) -> list[int]:
        value.append(9)
        raise ValueError

    async def spare(value: list[int]) -> list[int]:
        return value

    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(node, fallback=spare)
    workflow.chain(START, source, node, END)
    assert (await workflow.run()).output == [1]


async def test_constant_fallback_is_fresh_in_every_run() -> None:
    async def node(x: Any) -> list[int]:
        raise ValueError

    async def spoiler(value: list[int]) -> list[int]:
        value.append(1)
        return value

    workflow = Workflow("g")
    workflow.add(node, fallback=[[]])
    workflow.add(spoiler)
    workflow.chain(START, node, spoiler, END)
    assert [(await workflow.run()).output for _ in range(3)] == [[1]] * 3


async def test_items_of_a_map_are_not_the_sources_list() -> None:
    async def source(x: Any) -> list[list[int]]:
        shared: list[int] = []
        return [shared, shared, shared]

    async def body(item: list[int]) -> list[int]:
        item.append(1)
        await yield_often()
        return item

    async def last(parts: list[list[int]], source: list[list[int]]) -> Any:
        return (parts, source)

    parts, items = (await mapped(Workflow("g"), source, body, last).run()).output
    assert parts == [[1]] * 3
    assert items == [[]] * 3


async def test_gathered_list_has_two_readers_with_their_own() -> None:
    async def source(x: Any) -> list[int]:
        return [1, 2]

    async def body(item: int) -> list[int]:
        return [item]

    async def spoiler(parts: list[list[int]]) -> None:
        parts[0].append(9)
        parts.pop()

    async def reader(parts: list[list[int]]) -> Any:
        await yield_often()
        return parts

    workflow = Workflow("g")
    for fn in (source, body, spoiler, reader):
        workflow.add(fn)
    workflow.edge(START, source)
    workflow.map(source, body)
    for fn in (spoiler, reader):
        workflow.gather(body, fn)
        workflow.edge(fn, END)
    assert (await workflow.run()).output == [[1], [2]]


async def test_value_into_a_graph_is_the_graphs_own() -> None:
    async def source(x: Any) -> list[int]:
        return [1]

    async def inside(value: list[int]) -> None:
        value.append(2)

    async def reader(source: list[int], x: Any = None) -> list[int]:
        return source

    inner = line(inside)
    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(inner, name="inner")
    workflow.add(reader)
    workflow.chain(START, source, "inner")
    workflow.edge("inner", reader, into="x")
    workflow.edge(reader, END)
    assert (await workflow.run()).output == [1]


async def test_single_reader_gets_the_object_itself() -> None:
    """E22: and costs no copy."""
    made: list[Any] = []

    async def source(x: Any) -> list[int]:
        made.append([1])
        return made[0]  # type: ignore[no-any-return]  # the list

    async def reader(value: list[int]) -> bool:
        return value is made[0]

    assert (await line(source, reader).run()).output is True


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)
    name: str = ""


@pytest.mark.parametrize("value", ["text", (1, ("a", b"b")), Frozen(name="x"), frozenset({1}), ValueError("e")])
async def test_what_nobody_can_change_is_shared(value: Any) -> None:
    seen: list[Any] = []

    async def source(x: Any) -> Any:
        return value

    async def reader(given: Any) -> None:
        seen.append(given)

    workflow = Workflow("g")
    workflow.add(source)
    workflow.edge(START, source)
    for name in ("one", "two"):
        workflow.add(reader, name=name)
        workflow.chain("source", name, END)
    await workflow.run()
    assert [one is value for one in seen] == [True, True]


async def test_what_cannot_be_copied_is_shared_with_one_warning() -> None:
    seen: list[Any] = []
    lock = threading.Lock()

    async def source(x: Any) -> Any:
        return lock

    async def reader(given: Any) -> None:
        seen.append(given)

    workflow = Workflow("g")
    workflow.add(source)
    workflow.edge(START, source)
    for name in ("one", "two", "three"):
        workflow.add(reader, name=name)
        workflow.chain("source", name, END)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        await workflow.run()
    assert [one is lock for one in seen] == [True] * 3
    assert len(caught) == 1
    assert "lock" in str(caught[0].message)
    assert "'source'" in str(caught[0].message)


async def test_copies_can_be_turned_off() -> None:
    async def first(value: list[int]) -> None:
        value.append(2)

    async def second(first: None, START: list[int]) -> list[int]:  # noqa: N803 - named like its edge
        return START

    workflow = Workflow("g", copy_values=False)
    for fn in (first, second):
        workflow.add(fn)
        workflow.edge(START, fn)
    workflow.chain(first, second, END)
    given = [1]
    result = await workflow.run(given)
    assert result.output is given
    assert given == [1, 2]


# --- B-006: runs at once -----------------------------------------------------------------------------------


def counting() -> Workflow:
    """A graph with a map, a cycle and state; its result says which input it had."""

    async def spread(x: int) -> list[int]:
        await yield_often(x % 3)
        return [x] * 3

    async def body(item: int) -> Update[int]:
        await anyio.lowlevel.checkpoint()
        return Update(item, counter=1, names=[str(item)])

    async def total(parts: list[int]) -> int:
        return sum(parts)

    async def loop(n: int) -> int:
        await anyio.lowlevel.checkpoint()
        return n + 1000

    workflow = Workflow("g", state=Reduced)
    for fn in (spread, body, total, loop):
        workflow.add(fn)
    workflow.edge(START, spread)
    workflow.map(spread, body)
    workflow.gather(body, total)
    workflow.edge(total, loop)
    workflow.edge(loop, loop, when=lambda n: n < 3000)
    workflow.edge(loop, END, when=lambda n: n >= 3000)
    return workflow


async def test_twenty_runs_of_one_graph_at_once_do_not_meet() -> None:
    """B-006."""
    graph = counting().compile()
    results: dict[int, Any] = {}

    async def one(x: int) -> None:
        results[x] = await graph.run(x)

    with anyio.fail_after(GUARD):
        async with anyio.create_task_group() as tasks:
            for x in range(20):
                tasks.start_soon(one, x)
    assert {x: r.output for x, r in results.items()} == {x: 3000 + 3 * x for x in range(20)}
    assert {x: r.state.names for x, r in results.items()} == {x: [str(x)] * 3 for x in range(20)}
    assert len({r.run_id for r in results.values()}) == 20


def test_runs_in_several_threads_and_on_both_loops_do_not_meet() -> None:
    """B-006, E24."""
    graph = counting().compile()
    outputs: dict[int, int] = {}

    def one(x: int) -> None:
        outputs[x] = graph.run_sync(x, backend=("asyncio", "trio")[x % 2]).output

    threads = [threading.Thread(target=one, args=(x,)) for x in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD)
    assert outputs == {x: 3000 + 3 * x for x in range(8)}


async def test_context_variable_of_one_step_is_never_seen_in_another() -> None:
    """E24."""
    variable: ContextVar[str] = ContextVar("variable", default="unset")
    seen: list[str] = []

    async def node(x: Any) -> None:
        seen.append(variable.get())
        variable.set("by a node")
        await yield_often()
        seen.append(variable.get())

    def threaded(x: Any) -> None:
        seen.append(variable.get())
        variable.set("by a thread")

    variable.set("caller's")
    workflow = Workflow("g")
    for name, fn in (("a", node), ("b", threaded), ("c", node)):
        workflow.add(fn, name=name)
    workflow.chain(START, "a", "b", "c", END)
    with anyio.fail_after(GUARD):
        await workflow.run()
    assert seen == ["caller's", "by a node", "caller's", "caller's", "by a node"]
    assert variable.get() == "caller's"


# --- B-008: counters of a run ------------------------------------------------------------------------------


async def test_new_run_has_all_its_attempts_under_the_same_id() -> None:
    """B-008."""
    calls = Counter[str]()

    async def fails(x: Any) -> None:
        calls["fails"] += 1
        raise ValueError

    workflow = Workflow("g")
    workflow.add(fails, retry=RetryPolicy(attempts=3, wait_initial=0))
    workflow.chain(START, fails, END)
    for run in (1, 2, 3):
        result = await workflow.run(run_id="the same", check=False)
        assert calls["fails"] == 3 * run
        assert result.steps[0].attempts == 3


@pytest.mark.parametrize("limits", [{"max_rounds": 3}, {"max_steps": 3}])
async def test_new_run_has_all_its_rounds_and_steps(limits: dict[str, int]) -> None:
    """B-008: other counters of the kind."""
    calls = Counter[str]()

    async def step(x: Any) -> int:
        calls["step"] += 1
        return 1

    workflow = Workflow("g", **limits)  # type: ignore[arg-type]  # keywords of one type
    workflow.add(step)
    workflow.edge(START, step)
    workflow.edge(step, step, when=lambda n: True)
    workflow.edge(step, END, when=lambda n: False)
    for run in (1, 2):
        assert (await workflow.run(check=False)).status == "stopped"
        assert calls["step"] == 3 * run


async def test_cycle_starts_afresh_for_each_item_of_a_map() -> None:
    async def source(x: Any) -> list[int]:
        return [1, 2, 3]

    async def step(n: int) -> int:
        return n + 10

    async def done(n: int) -> int:
        return n

    workflow = Workflow("g", max_rounds=3)
    for fn in (source, step, done):
        workflow.add(fn)
    workflow.edge(START, source)
    workflow.map(source, step)
    workflow.edge(step, step, when=lambda n: n < 30)
    workflow.edge(step, done, when=lambda n: n >= 30)
    workflow.gather(done, END)
    result = await workflow.run()
    assert result.output == [31, 32, 33]
    assert Counter(s.round for s in result.steps if s.node == "step") == {1: 3, 2: 3, 3: 3}
