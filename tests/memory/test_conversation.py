"""What was said, in order."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from graphrt.errors import MemoryStoreError
from graphrt.memory import ConversationMemory, InMemoryStore, SqliteMemoryStore
from graphrt.messages import Message, ToolCall
from tests.memory.failing import FailingStore

pytestmark = pytest.mark.anyio

TALK = [
    Message.system("be brief"),
    Message.user("6 x 7?"),
    Message.assistant("", [ToolCall("c1", "multiply", {"a": 6, "b": [7, None, {"c": 0.5}]})]),
    Message.tool("c1", "42", name="multiply"),
    Message.assistant("42"),
    Message.assistant("", [ToolCall("c2", "broken", error="no JSON", raw_arguments="{")]),
    Message.user("6 x 7?"),
]


async def test_messages_come_back_as_they_were_in_order() -> None:
    memory = ConversationMemory()
    for message in TALK:
        await memory.add_message("s", message)

    assert await memory.messages("s") == TALK
    assert await memory.messages("unknown") == []


async def test_messages_outlive_the_store(tmp_path: Path) -> None:
    for message in TALK:
        async with SqliteMemoryStore(tmp_path / "memory.db") as store:
            await ConversationMemory(store).add_message("s", message)

    async with SqliteMemoryStore(tmp_path / "memory.db") as store:
        assert await ConversationMemory(store).messages("s") == TALK


async def test_conversations_are_kept_apart() -> None:
    store = InMemoryStore()
    memory = ConversationMemory(store)
    await memory.add_message("1", Message.user("one"))
    await memory.add_message("12", Message.user("twelve"))
    await memory.clear("1")

    assert await memory.messages("1") == []
    assert await ConversationMemory(store).messages("12") == [Message.user("twelve")]


@pytest.mark.parametrize("kind", ["in memory", "sqlite"])
async def test_messages_added_at_once_are_all_there(kind: str, tmp_path: Path) -> None:
    """Two objects on one store: nothing is read, changed and written back."""
    sqlite = SqliteMemoryStore(tmp_path / "memory.db")
    store = sqlite if kind == "sqlite" else InMemoryStore()
    writers = [ConversationMemory(store), ConversationMemory(store)]

    async def speak(writer: ConversationMemory, name: str) -> None:
        for number in range(10):
            await writer.add_message("s", Message.user(f"{name} {number}"))

    async with anyio.create_task_group() as tasks:
        for index, name in enumerate("abcd"):
            tasks.start_soon(speak, writers[index % 2], name)

    said = [message.content for message in await writers[0].messages("s")]
    await sqlite.close()
    assert len(said) == 40
    for name in "abcd":
        assert [text for text in said if text.startswith(name)] == [f"{name} {number}" for number in range(10)]


async def test_entry_that_is_no_message_is_named() -> None:
    store = InMemoryStore()
    await store.save("_conversation_s", "k", {"role": "nobody"})

    with pytest.raises(MemoryStoreError, match="what is stored for 'k' is no message"):
        await ConversationMemory(store).messages("s")


async def test_failure_of_the_store_comes_out_as_it_is() -> None:
    error = OSError("disk gone")
    memory = ConversationMemory(FailingStore(error))

    for call in (lambda: memory.add_message("s", Message.user("x")), lambda: memory.messages("s")):
        with pytest.raises(OSError, match="disk gone") as caught:
            await call()
        assert caught.value is error
