"""What holds for every store: the same calls give the same answers, whichever keeps the values."""

from __future__ import annotations

import math
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.errors import MemoryStoreError
from graphrt.memory import InMemoryStore, MemoryStore, SqliteMemoryStore

pytestmark = pytest.mark.anyio


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


@pytest.fixture(params=["in memory", "sqlite"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, anyio_backend: str
) -> AsyncIterator[InMemoryStore | SqliteMemoryStore]:
    if request.param == "in memory":
        yield InMemoryStore()
    else:
        async with SqliteMemoryStore(tmp_path / "memory.db") as opened:
            yield opened


async def test_store_has_the_interface(store: MemoryStore) -> None:
    assert isinstance(store, MemoryStore)


async def test_value_comes_back(store: MemoryStore) -> None:
    await store.save("a", "city", "Bern")

    assert await store.load("a", "city") == "Bern"
    assert await store.load("a", "land") is None
    assert await store.load("b", "city") is None


@pytest.mark.parametrize(
    "value",
    ["", "7", "null", "é\0\n", 7, -0.5, 1e300, True, False, None, [], {}, [1, [None, "x"]], {"": {"b": [1.0, True]}}],
    ids=repr,
)
async def test_value_keeps_its_type(store: MemoryStore, value: Any) -> None:
    await store.save("a", "k", value)

    loaded = await store.load("a", "k")
    assert repr(loaded) == repr(value)
    assert repr(await store.search("a")) == repr([("k", value)])


@pytest.mark.parametrize(("value", "plain"), [(Colour.RED, "red"), ([Level.HIGH], [3])])
async def test_member_of_an_enum_is_stored_as_what_it_equals(store: MemoryStore, value: Any, plain: Any) -> None:
    await store.save("a", "k", value)

    assert repr(await store.load("a", "k")) == repr(plain)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ((1, 2), "the value is of type tuple"),
        ({"at": [b"x"]}, r"the value\['at'\]\[0\] is of type bytes"),
        ({1: "x"}, "has the name 1, which is no string"),
        (math.nan, "the value is nan"),
        ([math.inf], r"the value\[0\] is inf"),
        ({1, 2}, "of type set"),
        (object(), "of type object"),
        ("\ud800", "lone surrogate"),
        ({"\ud800": 1}, "lone surrogate"),
        (10**5_000, "integer of 16610 bits"),
        (nested(101), "nested more than 100 deep"),
    ],
    ids=lambda case: case if isinstance(case, str) and case.isascii() else "",
)
async def test_value_that_json_cannot_hold_is_refused_by_name(store: MemoryStore, value: Any, reason: str) -> None:
    await store.save("a", "k", "old")

    with pytest.raises(MemoryStoreError, match=f"the value for 'k' cannot be stored as JSON: .*{reason}"):
        await store.save("a", "k", value)
    assert await store.load("a", "k") == "old"


async def test_value_that_contains_itself_is_refused(store: MemoryStore) -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(MemoryStoreError, match="deep"):
        await store.save("a", "k", endless)


async def test_deepest_value_and_largest_integer_are_kept(store: MemoryStore) -> None:
    await store.save("a", "k", [nested(99), 2**3_300 - 1, -(2**3_300) + 1])

    assert await store.load("a", "k") == [nested(99), 2**3_300 - 1, -(2**3_300) + 1]


@pytest.mark.parametrize("name", ["\ud800", "a\0b", 7, None])
async def test_name_that_not_every_store_can_keep_is_refused(store: MemoryStore, name: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: store.save(name, "k", 1),
        lambda: store.save("a", name, 1),
        lambda: store.load("a", name),
        lambda: store.load(name, "k"),
        lambda: store.search(name),
        lambda: store.delete("a", name),
        lambda: store.clear(name),
    ]
    for call in calls:
        with pytest.raises(MemoryStoreError, match=r"^(namespace|key) "):
            await call()


async def test_stored_value_is_the_stores_own(store: MemoryStore) -> None:
    value = {"tags": ["x"]}
    await store.save("a", "k", value)
    value["tags"].append("after saving")
    (await store.load("a", "k"))["tags"].append("after loading")
    (await store.search("a"))[0][1]["tags"].append("after searching")

    assert await store.load("a", "k") == {"tags": ["x"]}


async def test_keys_come_in_the_order_of_their_first_saving(store: MemoryStore) -> None:
    for key in ("b", "a", "c"):
        await store.save("n", key, key)
    await store.save("n", "b", "again")
    await store.delete("n", "a")
    await store.save("n", "a", "new")

    assert await store.search("n") == [("b", "again"), ("c", "c"), ("a", "new")]


async def test_search_looks_into_keys_and_values_whatever_their_case(store: MemoryStore) -> None:
    await store.save("n", "Database", "PostgreSQL")
    await store.save("n", "region", "Straße 1")
    await store.save("n", "team", {"lead": "Postma", "size": 12})

    assert [key for key, _ in await store.search("n", "post")] == ["Database", "team"]
    assert [key for key, _ in await store.search("n", "DATA")] == ["Database"]
    assert [key for key, _ in await store.search("n", "STRASSE")] == ["region"]
    assert [key for key, _ in await store.search("n", '"size": 12')] == ["team"]
    assert await store.search("n", "%") == []
    assert await store.search("other", "post") == []


async def test_search_gives_no_more_than_its_limit(store: MemoryStore) -> None:
    for number in range(6):
        await store.save("n", f"k{number}", "even" if number % 2 == 0 else "odd")

    assert [key for key, _ in await store.search("n", "odd", 2)] == ["k1", "k3"]
    assert [key for key, _ in await store.search("n", limit=1)] == ["k0"]
    assert await store.search("n", limit=0) == []
    assert len(await store.search("n", limit=99)) == 6
    with pytest.raises(MemoryStoreError, match="limit of a search is -1"):
        await store.search("n", limit=-1)


async def test_clearing_leaves_other_namespaces_alone(store: MemoryStore) -> None:
    await store.save("a", "k", 1)
    await store.save("ab", "k", 2)
    await store.clear("a")
    await store.clear("never used")
    await store.delete("ab", "never used")

    assert await store.search("a") == []
    assert await store.search("ab") == [("k", 2)]


async def test_tasks_that_save_at_once_lose_nothing(store: MemoryStore) -> None:
    async with anyio.create_task_group() as tasks:
        for number in range(60):
            tasks.start_soon(store.save, "n", f"k{number}", number)

    assert dict(await store.search("n")) == {f"k{number}": number for number in range(60)}


@pytest.mark.parametrize("kind", ["in memory", "sqlite"])
def test_threads_with_loops_of_their_own_share_a_store(kind: str, tmp_path: Path, anyio_backend: str) -> None:
    """NF3, A-035."""
    store: MemoryStore = InMemoryStore() if kind == "in memory" else SqliteMemoryStore(tmp_path / "memory.db")
    failed: list[BaseException] = []

    async def write(name: str) -> None:
        for number in range(20):
            await store.save("n", f"{name}-{number}", number)
            await store.save("n", "shared", name)
            await store.search("n", limit=3)

    def in_thread(name: str) -> None:
        try:
            anyio.run(write, name, backend=anyio_backend)
        except BaseException as error:  # noqa: BLE001 - asserted on below
            failed.append(error)

    threads = [threading.Thread(target=in_thread, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def read() -> list[tuple[str, Any]]:
        found = await store.search("n")
        if isinstance(store, SqliteMemoryStore):
            await store.close()
        return found

    found = anyio.run(read, backend=anyio_backend)
    assert failed == []
    assert {key for key, _ in found} == {f"{name}-{number}" for name in "abcd" for number in range(20)} | {"shared"}
    assert len(found) == 81


# --- the same as a dict of dicts, for any calls

NAMES = st.sampled_from(["", "a", "b", "é", "a'b", "_session_1"])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
NUMBER = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
VALUE = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
CALL = st.one_of(
    st.tuples(st.just("save"), NAMES, NAMES, VALUE),
    st.tuples(st.just("save"), NAMES, NAMES, VALUE),
    st.tuples(st.just("load"), NAMES, NAMES),
    st.tuples(st.just("search"), NAMES, st.just("")),
    st.tuples(st.just("search"), NAMES, st.just(""), st.integers(0, 3)),
    st.tuples(st.just("delete"), NAMES, NAMES),
    st.tuples(st.just("clear"), NAMES),
)
Model = dict[str, dict[str, Any]]


def by_model(model: Model, call: tuple[Any, ...]) -> Any:
    """Give what a store has to answer to *call*, and do to *model* what it does."""
    name, namespace, *rest = call
    entries = model.setdefault(namespace, {})
    match name, rest:
        case "save", [key, value]:
            entries[key] = value
        case "load", [key]:
            return entries.get(key)
        case "search", [_, *limit]:
            return list(entries.items())[: limit[0] if limit else None]
        case "delete", [key]:
            entries.pop(key, None)
        case _:
            entries.clear()
    return None


async def answers(store: MemoryStore, calls: Sequence[tuple[Any, ...]]) -> list[str]:
    return [repr(await getattr(store, name)(*rest)) for name, *rest in calls]


@settings(max_examples=60)
@given(st.lists(CALL, max_size=20))
def test_in_memory_store_does_what_a_dict_does(calls: list[tuple[Any, ...]]) -> None:
    model: Model = {}

    assert anyio.run(answers, InMemoryStore(), calls) == [repr(by_model(model, call)) for call in calls]


@settings(max_examples=30)
@given(st.lists(CALL, max_size=20), st.integers(0, 20))
def test_sqlite_store_does_what_a_dict_does_also_when_it_is_opened_anew(
    calls: list[tuple[Any, ...]], pause: int
) -> None:
    model: Model = {}

    async def in_file(path: Path) -> list[str]:
        async with SqliteMemoryStore(path) as first:
            before = await answers(first, calls[:pause])
        async with SqliteMemoryStore(path) as second:
            return before + await answers(second, calls[pause:])

    with tempfile.TemporaryDirectory() as folder:
        got = anyio.run(in_file, Path(folder, "memory.db"))
    assert got == [repr(by_model(model, call)) for call in calls]


@settings(max_examples=60)
@given(st.lists(st.tuples(TEXT, VALUE), max_size=5), TEXT)
def test_what_a_search_gives_depends_on_no_store(entries: list[tuple[str, Any]], query: str) -> None:
    kept = [(f"k{index} {text}".replace("\0", ""), value) for index, (text, value) in enumerate(entries)]

    async def both(path: Path) -> list[list[str]]:
        found = []
        async with SqliteMemoryStore(path) as in_file:
            for store in (InMemoryStore(), in_file):
                for key, value in kept:
                    await store.save("n", key, value)
                found.append([key for key, _ in await store.search("n", query)])
        return found

    with tempfile.TemporaryDirectory() as folder:
        one, other = anyio.run(both, Path(folder, "memory.db"))
    assert one == other
    assert {key for key, value in kept if query in key or query == value} <= set(one)
