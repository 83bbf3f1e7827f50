from __future__ import annotations

import copy
import functools
import operator
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.errors import StateError
from graphrt.plugins import MergeStrategy, Snapshot, StateCommand, StateKey, StateStore

COMMUTATIVE = MergeStrategy.COMMUTATIVE
PLAIN = st.recursive(
    st.none() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


def spoil(value: Any) -> None:
    """Change everything in a value that can be changed."""
    if isinstance(value, dict):
        for inner in value.values():
            spoil(inner)
        value["spoilt"] = True
    elif isinstance(value, list):
        for inner in value:
            spoil(inner)
        value.append("spoilt")


@settings(max_examples=60)
@given(default=PLAIN, written=PLAIN)
def test_nothing_that_is_read_or_written_can_be_changed_from_outside(default: Any, written: Any) -> None:
    default_before, written_before = copy.deepcopy(default), copy.deepcopy(written)
    store = StateStore([StateKey("a", default), StateKey("log", list, COMMUTATIVE), StateKey("copy", default)])
    spoil(default)
    assert store.snapshot()["a"] == default_before
    spoil(store.snapshot()["a"])
    before = store.snapshot()
    command = StateCommand().update("a", written).update("log", [written])
    spoil(written)
    store.commit(command)
    after = store.snapshot()
    spoil(after["a"])
    spoil(after["log"])
    assert after["a"] == written_before
    assert after["log"] == [written_before]
    assert before["a"] == default_before
    assert before["log"] == []


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(), max_size=4), max_size=5), st.sampled_from([operator.add, max, operator.sub]))
def test_commutative_updates_are_folded_in_the_order_of_the_commands(batches: list[list[int]], combine: Any) -> None:
    """X-03"""
    store = StateStore([StateKey("n", 7, COMMUTATIVE, combine)])
    commands = [functools.reduce(lambda command, n: command.update("n", n), batch, StateCommand()) for batch in batches]
    snapshot = store.commit(*commands)
    flat = [n for batch in batches for n in batch]
    assert snapshot["n"] == store.snapshot()["n"] == functools.reduce(combine, flat, 7)


def test_combine_that_changes_its_arguments_changes_no_snapshot() -> None:
    store = StateStore([StateKey("log", list, COMMUTATIVE, operator.iadd)])
    command = StateCommand().update("log", ["x"])
    first = store.commit(command)
    second = store.commit(command)
    assert (first["log"], second["log"], command.updates) == (["x"], ["x", "x"], (("log", ["x"]),))


def test_two_commands_may_not_write_one_exclusive_key_in_one_commit() -> None:
    store = StateStore([StateKey("a", 0), StateKey("n", 0, COMMUTATIVE)])
    with pytest.raises(StateError, match="'a' is exclusive") as caught:
        store.commit(StateCommand().update("n", 1), StateCommand().update("a", 1), StateCommand().update("a", 2))
    assert caught.value.hint is not None
    assert dict(store.snapshot()) == {"a": 0, "n": 0}
    assert store.snapshot().version == 0


def test_last_of_two_updates_in_one_command_counts() -> None:
    store = StateStore([StateKey("a", 0)])
    assert store.commit(StateCommand().update("a", 1).update("a", 2))["a"] == 2


@pytest.mark.parametrize(
    "bad", [StateCommand().update("unknown", 1), StateCommand().update("n", "text")], ids=["unknown key", "no sum"]
)
def test_refused_commit_writes_nothing(bad: StateCommand) -> None:
    store = StateStore([StateKey("a", 0), StateKey("n", 0, COMMUTATIVE)])
    name = bad.updates[0][0]
    with pytest.raises(StateError, match=f"'{name}'") as caught:
        store.commit(StateCommand().update("a", 1), bad)
    assert caught.value.hint is not None
    assert dict(store.snapshot()) == {"a": 0, "n": 0}


def test_value_that_cannot_be_copied_is_refused_where_it_is_written() -> None:
    with pytest.raises(StateError, match="value of state key 'lock', a lock, cannot be copied"):
        StateCommand().update("lock", threading.Lock())


def test_default_may_be_a_function_that_makes_it() -> None:
    key = StateKey("seen", list)
    one, other = StateStore([key]), StateStore([key])
    one.commit(StateCommand().update(key, ["x"]))
    assert (one.snapshot()[key], other.snapshot()[key]) == (["x"], [])


def test_snapshot_is_a_mapping_by_name_that_cannot_be_written() -> None:
    snapshot: Any = StateStore([StateKey("a", 1), StateKey("b", 2)]).snapshot()
    assert isinstance(snapshot, Snapshot)
    assert (dict(snapshot), len(snapshot), "a" in snapshot, "c" in snapshot) == ({"a": 1, "b": 2}, 2, True, False)
    assert snapshot.get("c", 3) == 3
    with pytest.raises(KeyError):
        snapshot["c"]
    with pytest.raises(TypeError):
        snapshot["a"] = 2  # type: ignore[index]  # what is refused


def test_version_counts_commits_that_wrote_something() -> None:
    store = StateStore([StateKey("a", 0)])
    versions = [store.commit(*commands).version for commands in ([], [StateCommand()], [StateCommand().update("a", 1)])]
    assert versions == [0, 0, 1]


def test_initial_values_replace_defaults_and_need_a_key() -> None:
    given = {"a": [1]}
    store = StateStore([StateKey("a", 0), StateKey("b", 2)], given)
    spoil(given["a"])
    assert dict(store.snapshot()) == {"a": [1], "b": 2}
    with pytest.raises(StateError, match="'c' is not declared"):
        StateStore([StateKey("a", 0)], {"c": 1})


def test_one_key_may_be_declared_twice_but_not_two_of_one_name() -> None:
    key = StateKey("a", [1])
    assert len(StateStore([key, key, StateKey("a", [1])]).keys) == 1
    with pytest.raises(StateError, match="'a' is declared twice"):
        StateStore([key, StateKey("a", [2])])


@pytest.mark.parametrize("name", ["", None, 3])
def test_state_key_needs_a_name(name: Any) -> None:
    with pytest.raises(StateError, match="no name"):
        StateKey(name)


def test_late_is_a_command_whose_exclusive_key_was_written_since_it_was_made() -> None:
    store = StateStore([StateKey("a", 0), StateKey("n", 0, COMMUTATIVE)])
    seen = store.snapshot()
    store.commit(StateCommand().update("a", 1).update("n", 1))
    assert store.is_late(StateCommand().update("a", 2), seen)
    assert not store.is_late(StateCommand().update("n", 2), seen)
    assert not store.is_late(StateCommand().update("a", 2), store.snapshot())
