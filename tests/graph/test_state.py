from __future__ import annotations

import collections
import gc
import itertools
import operator
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator, model_validator

from graphrt.errors import GraphError, GraphTypeError, StateConflictError
from graphrt.graph.state import (
    FoldCache,
    History,
    Update,
    apply_write,
    fold,
    link,
    links,
    merge,
    read,
)
from graphrt.graph.statemodel import Reduce, StateSpec
from graphrt.graph.values import SharedValueWarning


class State(BaseModel):
    log: Annotated[list[str], Reduce(operator.add)] = []
    total: Annotated[int, Reduce(operator.add)] = 0
    topic: str = "none"
    mark: str = "none"
    notes: list[str] = []


SPEC = StateSpec.of(State)


def write(
    history: History | None, writer: Any, spec: StateSpec = SPEC, cache: FoldCache | None = None, **fields: Any
) -> History:
    new = apply_write(history, spec, cache or FoldCache(), fields, writer=writer, label=str(writer))
    assert new is not None
    return new


def writers(history: History | None) -> list[Any]:
    """Who wrote, the oldest first."""
    return [one.writer for one in links(history)][::-1]


def state_of(history: History | None, spec: StateSpec = SPEC) -> Any:
    return read(history, spec, FoldCache(), where="reader")


# --- what is declared --------------------------------------------------------------------------------------


def test_an_update_keeps_value_and_fields_apart() -> None:
    update = Update("value", output=1, self=2)
    assert update.output == "value"
    assert update.fields == {"output": 1, "self": 2}
    assert update == Update("value", output=1, self=2) != Update("value")
    assert repr(update) == "Update('value', output=1, self=2)"
    assert Update(n=1).output is None


def test_a_reducer_is_a_function() -> None:
    with pytest.raises(GraphTypeError, match="Reduce got 3"):
        Reduce(3)  # type: ignore[arg-type]  # the subject


def test_a_state_is_declared_by_a_model_class() -> None:
    class Bare:
        pass

    class Root(RootModel[int]):
        root: int = 0

    for wrong in (Bare, State(), dict, Root, None):
        with pytest.raises(GraphTypeError, match="not a pydantic model class") as caught:
            StateSpec.of(wrong)
        assert "class State(BaseModel)" in (caught.value.hint or "")


def test_every_field_needs_a_default() -> None:
    class Lacking(BaseModel):
        a: int = 0
        b: int

    with pytest.raises(GraphError, match="field 'b' of state 'Lacking' has no default"):
        StateSpec.of(Lacking)


def test_a_reducer_stands_around_the_whole_type() -> None:
    class Inside(BaseModel):
        a: Annotated[int, Reduce(operator.add)] | None = None

    class Twice(BaseModel):
        a: Annotated[int, Reduce(operator.add), Reduce(max)] = 0

    class Bare(BaseModel):
        a: Annotated[int, operator.add] = 0

    for wrong, what in ((Inside, "inside its type"), (Twice, "two reducers"), (Bare, "function 'add'")):
        with pytest.raises(GraphError, match=what):
            StateSpec.of(wrong)


def test_a_type_that_is_not_known_is_named() -> None:
    class Open(BaseModel):
        a: Nowhere = None  # type: ignore[name-defined]  # noqa: F821  # the subject

    with pytest.raises(GraphTypeError, match="state 'Open' names a type that is not known: 'Nowhere'"):
        StateSpec.of(Open)


def test_defaults_are_made_once_in_a_run() -> None:
    numbers = itertools.count()

    class Numbered(BaseModel):
        number: int = Field(default_factory=lambda: next(numbers))

    spec = StateSpec.of(Numbered)
    cache = FoldCache()
    assert [fold(None, spec, cache)["number"] for _ in range(3)] == [0, 0, 0]
    assert fold(None, spec, FoldCache())["number"] == 1


def test_defaults_that_the_model_refuses_are_an_error_of_the_graph() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(validate_default=True)
        n: int = "x"  # type: ignore[assignment]  # the subject

    with pytest.raises(GraphError, match="'Strict' does not take its own defaults"):
        fold(None, StateSpec.of(Strict), FoldCache())


# --- writing -----------------------------------------------------------------------------------------------


def test_an_unknown_field_is_named_with_what_was_meant() -> None:
    with pytest.raises(GraphError, match="node 'draft' wrote 'topik'") as caught:
        write(None, "draft", topik="bees")
    assert "did you mean 'topic'?" in (caught.value.hint or "")
    assert "fields: log, total, topic, mark, notes" in (caught.value.hint or "")


def test_a_value_given_by_the_name_output_gets_the_way_out() -> None:
    with pytest.raises(GraphError, match="wrote 'output'") as caught:
        write(None, "draft", output="x")
    assert "Update(value, ...)" in (caught.value.hint or "")


def test_a_value_of_the_wrong_type_is_refused_with_field_and_writer() -> None:
    with pytest.raises(GraphTypeError, match=r"'notes' does not take what 'draft' wrote: notes\[1\]: ") as caught:
        write(None, "draft", notes=["a", 1])
    assert caught.value.hint == "it is declared as list[str]"


def test_a_value_is_converted_as_the_model_does() -> None:
    class Inner(BaseModel):
        x: int

    class Rich(BaseModel):
        model_config = ConfigDict(str_strip_whitespace=True, frozen=True)
        inner: Inner | None = None
        name: str = ""
        n: Annotated[int, Field(ge=0)] = 0
        twice: int = 0
        halved: int = 0

        @field_validator("twice")
        @classmethod
        def double(cls, value: int) -> int:
            return value * 2

        @field_validator("halved", mode="before")
        @classmethod
        def halve(cls, value: Any, info: Any) -> Any:
            return value // 2

        @model_validator(mode="after")
        def whole(self) -> Rich:
            if self.n > 5:
                raise ValueError("for whole models")
            return self

    spec = StateSpec.of(Rich)
    history = write(None, "a", spec, inner={"x": "1"}, name=" bees ", n="7", twice=2, halved=8)
    expected = Rich.model_construct(inner=Inner(x=1), name="bees", n=7, twice=4, halved=4)
    assert state_of(history, spec) == expected
    with pytest.raises(GraphTypeError, match="greater than or equal to 0"):
        write(None, "a", spec, n=-1)


def test_the_result_of_a_reducer_is_checked_and_not_the_write() -> None:
    class Words(BaseModel):
        words: Annotated[list[str], Reduce(lambda old, new: [*old, new]), Field(max_length=2)] = []

    spec = StateSpec.of(Words)
    one = write(None, "a", spec, words="x")
    two = write(one, "b", spec, words="y")
    assert state_of(two, spec).words == ["x", "y"]
    with pytest.raises(GraphTypeError, match="does not take what its reducer made of what 'c' wrote"):
        write(two, "c", spec, words="z")
    with pytest.raises(GraphTypeError, match=r"words\[0\]: Input should be a valid string"):
        write(None, "d", spec, words=3)


@pytest.mark.parametrize(
    ("tp", "default", "fn", "written", "expected"),
    [
        (float, 0, operator.add, 1, 1),
        (Decimal, Decimal(0), operator.add, Decimal("1.5"), Decimal("1.5")),
        (tuple[str, ...], (), operator.add, ("a",), ("a",)),
        (set[str], set(), operator.or_, {"a"}, {"a"}),
        (dict[str, int], {}, operator.or_, {"a": 1}, {"a": 1}),
        (Sequence[str], (), lambda old, new: [*old, *new], ["a"], ["a"]),
        (collections.Counter[str], collections.Counter(), operator.add, collections.Counter("aa"), {"a": 2}),
        (State, State(), lambda old, new: new, State(mark="x"), State(mark="x")),
        (str | None, None, lambda old, new: old or new, "a", "a"),
    ],
)
def test_reducers_work_on_fields_of_many_types(
    tp: Any, default: Any, fn: Callable[[Any, Any], Any], written: Any, expected: Any
) -> None:
    model = type("Made", (BaseModel,), {"__annotations__": {"it": Annotated[tp, Reduce(fn)]}, "it": default})
    spec = StateSpec.of(model)
    assert state_of(write(None, "a", spec, it=written), spec).it == expected


def test_what_a_reducer_raises_is_raised_where_the_write_is_made() -> None:
    with pytest.raises(TypeError) as caught:
        write(None, "draft", total="x")
    assert caught.value.__notes__ == ["in the reducer of state field 'total', for what 'draft' wrote"]


def test_a_reducer_that_changes_its_argument_is_refused() -> None:
    class Wrong(BaseModel):
        log: Annotated[list[str], Reduce(operator.iadd)] = []

    spec, cache = StateSpec.of(Wrong), FoldCache()
    with pytest.raises(GraphError, match="reducer of state field 'log' changes the value it is given"):
        write(None, "a", spec, cache, log=["x"])
    assert fold(None, spec, cache) == {"log": []}


def test_a_write_of_nothing_adds_nothing() -> None:
    one = write(None, "a", topic="x")
    assert apply_write(one, SPEC, FoldCache(), {}, writer="b", label="b") is one


# --- reading -----------------------------------------------------------------------------------------------


def test_a_reader_sees_the_writes_upstream_of_it() -> None:
    one = write(None, "a", topic="x", log=["1"])
    two = write(one, "b", log=["2"], total=2)
    assert state_of(None) == State()
    assert state_of(one) == State(topic="x", log=["1"])
    assert state_of(two) == State(topic="x", log=["1", "2"], total=2)


def test_readers_and_writers_share_nothing_that_can_be_changed() -> None:
    cache, given = FoldCache(), ["a"]
    history = write(None, "a", SPEC, cache, notes=given, log=given)
    given.append("late")
    first = read(history, SPEC, cache, where="x")
    first.notes.append("mine")
    first.log.append("mine")
    read(None, SPEC, cache, where="x").notes.append("mine")
    assert read(history, SPEC, cache, where="x") == State(notes=["a"], log=["a"])
    assert read(None, SPEC, cache, where="x") == State()


def test_without_copies_a_reader_gets_the_written_object() -> None:
    class Loose(BaseModel):
        it: Any = None

    spec, cache, given = StateSpec.of(Loose), FoldCache(), ["a"]
    history = apply_write(None, spec, cache, {"it": given}, writer="a", label="a", copies=False)
    assert read(history, spec, cache, where="x", copies=False).it is given


def test_what_cannot_be_copied_is_warned_of_by_writer_and_reader() -> None:
    class Loose(BaseModel):
        it: Any = None

    spec, lock = StateSpec.of(Loose), threading.Lock()
    warned: set[tuple[str, type]] = set()
    with pytest.warns(SharedValueWarning, match="'writer'"):
        history = apply_write(None, spec, FoldCache(), {"it": lock}, writer=1, label="writer", warned=warned)
    with pytest.warns(SharedValueWarning, match="'reader'"):
        assert read(history, spec, FoldCache(), where="reader", warned=warned).it is lock


def test_a_frozen_model_can_be_the_state() -> None:
    class Fixed(BaseModel):
        model_config = ConfigDict(frozen=True)
        n: int = 0

    spec = StateSpec.of(Fixed)
    assert state_of(write(None, "a", spec, n=1), spec) == Fixed(n=1)


# --- joins -------------------------------------------------------------------------------------------------


def test_a_join_adds_what_is_not_there_yet_in_the_order_of_its_edges() -> None:
    trunk = write(None, "t", log=["t"])
    left = write(write(trunk, "a", log=["a"]), "b", log=["b"])
    right = write(trunk, "c", log=["c"])
    assert state_of(merge([left, right], SPEC)).log == ["t", "a", "b", "c"]
    assert state_of(merge([right, left], SPEC)).log == ["t", "c", "a", "b"]
    assert state_of(merge([None, right, trunk], SPEC)).log == ["t", "c"]
    assert merge([], SPEC) is merge([None, None], SPEC) is None


def test_a_history_that_holds_the_others_is_the_result_itself() -> None:
    trunk = write(None, "t", log=["t"])
    tip = write(write(trunk, "a", log=["a"]), "b", log=["b"])
    assert merge([tip, trunk], SPEC) is tip
    assert merge([trunk, tip, tip], SPEC) is tip
    assert merge([None, tip], SPEC) is tip


def test_a_write_counts_once_however_often_it_arrives() -> None:
    one, two = write(None, "a", total=1), write(None, "b", total=2)
    left, right = merge([one, two], SPEC), merge([two, one], SPEC)
    left, right = write(left, "c", total=4), write(right, "d", total=8)
    assert state_of(merge([left, right, one], SPEC)).total == 15


def test_two_writes_side_by_side_without_a_reducer_are_a_conflict() -> None:
    """B-001."""
    trunk = write(None, "t", topic="x")
    left, right = write(trunk, "left", topic="y"), write(trunk, "right", topic="z")
    with pytest.raises(StateConflictError, match="'topic' was written by 'left' and by 'right'") as caught:
        merge([left, right], SPEC)
    assert "Reduce" in (caught.value.hint or "")
    assert caught.value.__class__ is StateConflictError


def test_a_write_downstream_of_the_other_is_no_conflict() -> None:
    early = write(None, "early", topic="x")
    late = write(merge([write(early, "a", mark="a"), early], SPEC), "late", topic="y")
    assert state_of(merge([early, late], SPEC)).topic == "y"
    assert state_of(merge([late, early], SPEC)).topic == "y"
    other = write(early, "other", total=1)
    assert state_of(merge([other, late], SPEC)) == State(topic="y", mark="a", total=1)
    assert state_of(merge([late, other], SPEC)) == State(topic="y", mark="a", total=1)


def test_a_conflict_is_found_between_any_two_of_many() -> None:
    trunk = write(None, "t", topic="x")
    branches = [write(trunk, f"b{i}", total=1) for i in range(5)]
    branches[3] = write(branches[3], "three", topic="y")
    assert state_of(merge(branches, SPEC)) == State(topic="y", total=5)
    branches[1] = write(branches[1], "one", topic="z")
    with pytest.raises(StateConflictError, match="by 'one' and by 'three'"):
        merge(branches, SPEC)


def test_what_reducers_make_of_writes_side_by_side_is_checked_for_the_reader() -> None:
    class Few(BaseModel):
        log: Annotated[list[str], Reduce(operator.add), Field(max_length=3)] = []

    spec = StateSpec.of(Few)
    left, right = write(None, "left", spec, log=["a", "b"]), write(None, "right", spec, log=["c", "d"])
    with pytest.raises(GraphTypeError, match="what its reducer made of what 'right' wrote"):
        state_of(merge([left, right], spec), spec)


# --- what it costs -----------------------------------------------------------------------------------------


@dataclass
class Steps:
    """How many links were gone along."""

    count: int = 0


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    found = Steps()

    def counting(slot: Any) -> property:
        def get(one: History) -> Any:
            found.count += 1
            return slot.__get__(one)

        return property(get, slot.__set__)

    for name in ("prev", "_jump"):
        monkeypatch.setattr(History, name, counting(vars(History)[name]))
    return found


def trunk_of(length: int) -> History:
    history: History | None = None
    for n in range(length):
        history = link(history, n, {"total": 1}, "trunk")
    assert history is not None
    return history


def test_merging_branches_does_not_walk_the_trunk(steps: Steps) -> None:
    trunk = trunk_of(10_000)
    left, right = link(trunk, "a", {"total": 1}, "a"), link(trunk, "b", {"total": 1}, "b")
    steps.count = 0
    merged = merge([left, right], SPEC)
    assert merged is not None
    assert merged.depth == 10_002
    assert steps.count < 40


def test_merging_many_branches_costs_what_each_adds(steps: Steps) -> None:
    trunk = trunk_of(10_000)
    branches = [link(link(trunk, (n, 1), {"total": 1}, "x"), (n, 2), {"total": 1}, "y") for n in range(100)]
    steps.count = 0
    merged = merge(branches, SPEC)
    assert merged is not None
    assert merged.depth == 10_200
    assert steps.count < 40 * 100


def test_a_far_ancestor_is_found_in_a_few_steps(steps: Steps) -> None:
    trunk = trunk_of(10_000)
    early = next(itertools.islice(links(trunk), 9_000, None))
    steps.count = 0
    assert merge([trunk, early], SPEC) is trunk
    assert merge([early, trunk], SPEC) is trunk
    assert steps.count < 200


def test_merging_the_same_again_gives_the_same_links() -> None:
    branches = [link(None, n, {"total": 1}, "x") for n in range(5)]
    merged = merge(branches, SPEC)
    assert merge(branches, SPEC) is merged
    other = merge([*branches[:3], branches[4]], SPEC)
    assert {id(one) for one in links(other)} & {id(one) for one in links(merged)}


def test_layers_that_all_meet_share_their_histories(steps: Steps) -> None:
    layer: list[History] = [link(None, (0, n), {"total": 1}, "x") for n in range(10)]
    for depth in range(1, 11):
        steps.count = 0
        layer = [link(merge(layer, SPEC), (depth, n), {"total": 1}, "x") for n in range(10)]
        assert steps.count < 40 * 10 * 10
    assert fold(merge(layer, SPEC), SPEC, FoldCache())["total"] == 110


def test_a_loop_that_reads_in_every_round_folds_each_write_once(steps: Steps) -> None:
    cache = FoldCache(size=4)
    history: History | None = None
    for n in range(1_000):
        steps.count = 0
        assert read(history, SPEC, cache, where="x").total == n
        history = write(history, n, SPEC, cache, total=1)
        assert steps.count < 40


def test_a_reducer_runs_once_for_each_write_of_a_chain() -> None:
    calls: list[int] = []

    def count(old: int, new: int) -> int:
        calls.append(new)
        return old + new

    class Counting(BaseModel):
        n: Annotated[int, Reduce(count)] = 0

    spec, cache = StateSpec.of(Counting), FoldCache()
    history: History | None = None
    for n in range(20):
        history = write(history, n, spec, cache, n=1)
        assert fold(history, spec, cache)["n"] == n + 1
    assert len(calls) == 20


def test_nothing_is_folded_before_somebody_asks() -> None:
    class Untouched(BaseModel):
        a: int = Field(default_factory=lambda: pytest.fail("was folded"))
        b: int = 0

    spec, cache = StateSpec.of(Untouched), FoldCache()
    left, right = write(None, "left", spec, cache, a=1), write(None, "right", spec, cache, b=1)
    merged = merge([left, right], spec)
    assert merged is not None
    assert merged.depth == 2


def test_the_cache_forgets_what_was_not_used_for_longest() -> None:
    cache = FoldCache(size=3)
    histories = [link(None, n, {"total": n}, "x") for n in range(5)]
    for one in histories:
        fold(one, SPEC, cache)
        fold(histories[0], SPEC, cache)
    assert [cache.get(one) is not None for one in histories] == [True, False, False, True, True]


def test_histories_are_freed_with_the_last_reference() -> None:
    gc.disable()
    try:
        trunk = trunk_of(100)
        merged = merge([link(trunk, "a", {}, "a"), link(trunk, "b", {}, "b")], SPEC)
        assert merged is not None
        fold(merged, SPEC, cache := FoldCache())
        gone = [weakref.ref(one) for one in links(merged)]
        del trunk, merged, cache
        assert not any(one() for one in gone)
    finally:
        gc.enable()


def test_very_long_histories_are_folded_merged_and_freed() -> None:
    trunk = trunk_of(100_000)
    left, right = link(trunk, "a", {"total": 1}, "a"), link(trunk, "b", {"total": 1}, "b")
    cache = FoldCache()
    merged = merge([left, right], SPEC)
    assert fold(merged, SPEC, cache)["total"] == 100_002
    gone = weakref.ref(trunk)
    del trunk, left, right, merged, cache
    assert gone() is None


# --- properties --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Write:
    writer: int
    fields: tuple[tuple[str, Any], ...]
    upstream: frozenset[int]
    """Writers of what its step had seen."""


Naive = tuple[Write, ...]


def naive_merge(histories: Iterable[Naive]) -> Naive:
    found: dict[int, Write] = {}
    for history in histories:
        for one in history:
            found.setdefault(one.writer, one)
    return tuple(found.values())


def naive_conflict(history: Naive) -> bool:
    for name in ("topic", "mark"):
        writes = [one for one in history if name in dict(one.fields)]
        if any(one is not writes[-1] and one.writer not in writes[-1].upstream for one in writes):
            return True
    return False


def naive_state(history: Naive) -> State:
    state = State()
    for one in history:
        for name, value in one.fields:
            setattr(state, name, getattr(state, name) + value if name in SPEC.reducers else value)
    return state


@dataclass
class Run:
    """A run of a random graph, by the histories and by ordered lists of writes."""

    cache: FoldCache = field(default_factory=lambda: FoldCache(size=3))
    both: list[tuple[History | None, Naive]] = field(default_factory=list)

    def step(self, sources: list[int], fields: dict[str, Any]) -> None:
        """Join some earlier steps and write; a step whose sources conflict has no history and is left out."""
        taken = [self.both[n % len(self.both)] for n in sources] if self.both else []
        naive = naive_merge(one for _, one in taken)
        if naive_conflict(naive):
            with pytest.raises(StateConflictError):
                merge([history for history, _ in taken], SPEC)
            return
        history = merge([history for history, _ in taken], SPEC)
        assert writers(history) == [one.writer for one in naive]
        if fields:
            writer = len(self.both)
            history = write(history, writer, SPEC, self.cache, **fields)
            upstream = frozenset(one.writer for one in naive)
            naive = (*naive, Write(writer, tuple(fields.items()), upstream))
        assert read(history, SPEC, self.cache, where="x") == naive_state(naive)
        self.both.append((history, naive))


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "log": st.lists(st.sampled_from("abc"), min_size=1, max_size=2),
        "total": st.integers(0, 3),
        "topic": st.sampled_from("xyz"),
        "mark": st.sampled_from("xyz"),
    },
)
STEPS = st.lists(st.tuples(st.lists(st.integers(0, 30), max_size=4), FIELDS), min_size=1, max_size=14)
QUIET = st.lists(
    st.tuples(st.lists(st.integers(0, 30), max_size=4), st.builds(lambda n: {"log": [str(n)]}, st.integers(0, 9))),
    min_size=1,
    max_size=14,
)


@given(STEPS)
def test_histories_say_what_ordered_lists_of_writes_say(steps: list[tuple[list[int], dict[str, Any]]]) -> None:
    run = Run()
    for sources, fields in steps:
        run.step(sources, fields)


@given(QUIET, st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(1, 5))
def test_merging_in_groups_gives_what_merging_at_once_gives(
    steps: list[tuple[list[int], dict[str, Any]]], chosen: list[int], cut: int
) -> None:
    run = Run()
    for sources, fields in steps:
        run.step(sources, fields)
    histories = [run.both[n % len(run.both)][0] for n in chosen]
    at_once = merge(histories, SPEC)
    for grouped in (
        merge([merge(histories[:cut], SPEC), *histories[cut:]], SPEC),
        merge([*histories[:cut], merge(histories[cut:], SPEC)], SPEC),
    ):
        assert writers(grouped) == writers(at_once)
        assert state_of(grouped) == state_of(at_once)


@given(STEPS, st.lists(st.integers(0, 30), min_size=2, max_size=4))
def test_the_order_of_edges_decides_nothing_but_the_order_of_reduced_writes(
    steps: list[tuple[list[int], dict[str, Any]]], chosen: list[int]
) -> None:
    run = Run()
    for sources, fields in steps:
        run.step(sources, fields)
    histories = [run.both[n % len(run.both)][0] for n in chosen]
    found: list[Any] = []
    for order in (histories, histories[::-1]):
        try:
            state = state_of(merge(order, SPEC))
        except StateConflictError:
            found.append(None)
        else:
            found.append((sorted(state.log), state.total, state.topic, state.mark))
    assert found[0] == found[1]
