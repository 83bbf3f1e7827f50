"""Memory that outlives the process: notes of the session, and what was said, in one SQLite file.

Notes are short texts that the model writes and reads by tools. What was said is kept by the application, here after
each turn; a session that is opened later goes on with it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from graphrt import AgentBuilder, AgentSession, HookExecutor, LLMProvider, SimpleAgent, ToolRegistry
from graphrt.agent import Session
from graphrt.llm import ScriptedProvider
from graphrt.memory import ConversationMemory, MemoryStore, SessionMemory, SqliteMemoryStore
from graphrt.messages import LLMResponse, ToolCall


async def open_session(id: str, store: MemoryStore, model: LLMProvider) -> AgentSession:
    """Open a session where the last one of this id was left; its prompt says what was noted so far."""
    notes = await SessionMemory.for_session(store, id).snapshot()
    agent = SimpleAgent("guide", f"You plan journeys.\n\n{notes}".strip())
    bundle = (
        AgentBuilder()
        .provider(model)
        .tool_registry(ToolRegistry())
        .hook_executor(HookExecutor())
        .session_memory_backend(store)
        .build()
    )
    said = Session(id, await ConversationMemory(store).messages(id))
    return AgentSession(id, agent, bundle, memory_tools=True, session=said)


async def say(session: AgentSession, store: MemoryStore, text: str) -> str:
    """Carry out a turn, and keep what was said in it."""
    before = len(session.messages)
    response = await session.submit_turn(text)
    for message in session.messages[before:]:
        await ConversationMemory(store).add_message(session.session_id, message)
    return response.content


async def day(file: Path, model: LLMProvider, text: str) -> str:
    """Do what one process does: open the file, have a turn, close it."""
    async with SqliteMemoryStore(file) as store:
        session = await open_session("ann", store, model)
        return await say(session, store, text)


def scripted() -> tuple[ScriptedProvider, ScriptedProvider]:
    """Stand in for the models of two days: on the first one a note is written."""
    note = ToolCall("1", "session_memory_set", {"key": "likes", "value": "trains"})
    return ScriptedProvider([LLMResponse(tool_calls=[note]), "I will remember."]), ScriptedProvider(["By train!"])


async def journey(file: Path, first: LLMProvider, second: LLMProvider) -> list[str]:
    """Have two days."""
    return [await day(file, first, "I like trains."), await day(file, second, "How shall I travel?")]


def main() -> list[str]:
    """Run it once."""
    import anyio

    with tempfile.TemporaryDirectory() as folder:
        return anyio.run(journey, Path(folder) / "memory.db", *scripted())
