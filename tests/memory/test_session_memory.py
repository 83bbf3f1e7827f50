"""What the contexts of a session tell each other."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.errors import AgentError, AgentErrorKind, AgentMemoryError, ConfigError, MemoryStoreError
from graphrt.memory import InMemoryStore, SessionMemory, SqliteMemoryStore
from tests.memory.failing import FailingStore, SilentStore

pytestmark = pytest.mark.anyio


async def test_values_are_given_back_and_written_down() -> None:
    """AC-A17 (A-081, A-082, A-084)."""
    memory = SessionMemory(InMemoryStore(), "_session_s1")
    await memory.set("design_decision", "use PostgreSQL")
    await memory.set("region", "eu")

    assert await memory.get("design_decision") == "use PostgreSQL"
    assert await memory.get("region") == "eu"
    assert await memory.get("missing") is None
    assert await memory.snapshot() == (
        "<session-context>\ndesign_decision: use PostgreSQL\nregion: eu\n</session-context>"
    )


async def test_removed_key_is_gone_and_cleared_memory_is_the_empty_text() -> None:
    """AC-A19 (A-082, D-31)."""
    memory = SessionMemory(InMemoryStore(), "_session_s1")
    await memory.set("a", "1")
    await memory.set("b", "2")

    await memory.remove("a")
    assert await memory.snapshot() == "<session-context>\nb: 2\n</session-context>"
    await memory.clear()
    assert await memory.snapshot() == ""


async def test_key_that_is_set_again_keeps_its_place() -> None:
    """D-31."""
    memory = SessionMemory(InMemoryStore(), "n")
    for key, value in [("b", "1"), ("a", "2"), ("b", "two\nlines")]:
        await memory.set(key, value)

    assert await memory.snapshot() == "<session-context>\nb: two\nlines\na: 2\n</session-context>"


async def test_sessions_on_one_back_end_see_nothing_of_each_other() -> None:
    """A-083: also where one id begins with the other."""
    store = InMemoryStore()
    one, other = SessionMemory.for_session(store, "1"), SessionMemory.for_session(store, "12")
    await one.set("k", "of one")
    await other.set("k", "of other")
    await store.save("1", "k", "the application's own")

    assert one.namespace == "_session_1"
    assert await one.get("k") == "of one"
    await one.clear()
    assert await one.get("k") is None
    assert await other.get("k") == "of other"
    assert await store.load("1", "k") == "the application's own"


async def test_one_session_in_two_places_shares_its_memory(tmp_path: Path) -> None:
    """A-088, A-051."""
    path = tmp_path / "memory.db"
    async with SqliteMemoryStore(path) as here, SqliteMemoryStore(path) as there:
        await SessionMemory.for_session(here, "s").set("k", "v")

        assert await SessionMemory.for_session(there, "s").snapshot() == "<session-context>\nk: v\n</session-context>"


async def test_value_of_another_writer_is_given_as_text() -> None:
    store = InMemoryStore()
    await store.save("n", "sizes", [1, 2.5, None])

    memory = SessionMemory(store, "n")
    assert await memory.get("sizes") == "[1, 2.5, null]"
    assert "\nsizes: [1, 2.5, null]\n" in await memory.snapshot()


@pytest.mark.parametrize(
    "error",
    [
        MemoryStoreError("disk gone", hint="plug it in"),
        OSError("disk gone"),
        RuntimeError("disk gone"),
        ConfigError("disk gone"),
        TimeoutError("disk gone"),
        ExceptionGroup("disk gone", [ValueError("x")]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_failure_of_a_back_end_is_an_agents_memory_error(error: Exception) -> None:
    """A-086."""
    memory = SessionMemory(FailingStore(error), "n")
    calls = {
        "set 'k'": lambda: memory.set("k", "v"),
        "get 'k'": lambda: memory.get("k"),
        "read": memory.snapshot,
        "remove 'k'": lambda: memory.remove("k"),
        "clear": memory.clear,
    }
    for what, call in calls.items():
        with pytest.raises(AgentMemoryError, match=f"cannot {what} in 'n': .*disk gone") as caught:
            await call()
        assert caught.value.cause is error
        assert caught.value.kind is AgentErrorKind.MEMORY
        assert caught.value.hint == getattr(error, "hint", None)
        assert caught.value.is_recoverable()
        assert AgentError.wrap(caught.value) is caught.value


async def test_agents_memory_error_of_a_back_end_is_not_wrapped_again() -> None:
    """A-097."""
    error = AgentMemoryError("gone")

    with pytest.raises(AgentMemoryError) as caught:
        await SessionMemory(FailingStore(error), "n").get("k")
    assert caught.value is error


async def test_value_that_cannot_be_stored_is_an_agents_memory_error() -> None:
    with pytest.raises(AgentMemoryError, match="cannot set 'k' in 'n': the value for 'k' cannot be stored as JSON"):
        await SessionMemory(InMemoryStore(), "n").set("k", "\ud800")


async def test_cancellation_passes() -> None:
    memory = SessionMemory(SilentStore(), "n")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(memory.get, "k")
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert tasks.cancel_scope.cancelled_caught


async def test_time_limit_passes() -> None:
    with pytest.raises(TimeoutError), anyio.fail_after(0.01):
        await SessionMemory(SilentStore(), "n").get("k")


KEY = st.text("abé: <>/", max_size=3)
VALUE = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@settings(max_examples=60)
@given(st.lists(st.tuples(KEY, VALUE | st.none()), max_size=12))
def test_snapshot_is_the_lines_of_a_dict(calls: list[tuple[str, str | None]]) -> None:
    """A-084, D-31; None stands for a removal."""
    model: dict[str, str] = {}

    async def snapshot() -> str:
        memory = SessionMemory(InMemoryStore(), "n")
        for key, value in calls:
            await (memory.remove(key) if value is None else memory.set(key, value))
        return await memory.snapshot()

    for key, value in calls:
        if value is None:
            model.pop(key, None)
        else:
            model[key] = value
    lines = "".join(f"{key}: {value}\n" for key, value in model.items())
    assert anyio.run(snapshot) == (f"<session-context>\n{lines}</session-context>" if model else "")
