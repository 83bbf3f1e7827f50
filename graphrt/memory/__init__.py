"""Memory: what an application, a session and a conversation remember, in three layers on one interface.

======================  ======================================  ==============================================
Layer                   Classes                                 Lives
======================  ======================================  ==============================================
persistent              ``MemoryStore``, ``KnowledgeStore``     across sessions and processes; long-term
                                                                knowledge, which a ``MemoryRetriever`` finds
session                 ``SessionMemory``                       as long as its session; what its contexts have
                                                                to know of each other
conversation            ``ConversationMemory``                  per conversation; its messages, in order
======================  ======================================  ==============================================

The upper two are built on ``MemoryStore`` and add no storage of their own: with ``InMemoryStore`` they last as
long as the process, with ``SqliteMemoryStore`` they outlive it and are shared with others. Each uses
namespaces of its own (``_session_<id>``, ``_conversation_<id>``, ``knowledge``), so that all may share one store.

Memory is passive. No turn reads or writes it unless the application, a hook of its own or a tool does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "ConversationMemory",
    "InMemoryStore",
    "KnowledgeStore",
    "MemoryRetriever",
    "MemoryStore",
    "SessionMemory",
    "SqliteMemoryStore",
    "StoreRetriever",
    "session_memory_tools",
]

if TYPE_CHECKING:
    from graphrt.memory.conversation import ConversationMemory
    from graphrt.memory.knowledge import KnowledgeStore
    from graphrt.memory.retriever import MemoryRetriever, StoreRetriever
    from graphrt.memory.session_memory import SessionMemory
    from graphrt.memory.sqlite import SqliteMemoryStore
    from graphrt.memory.store import InMemoryStore, MemoryStore
    from graphrt.memory.tools import session_memory_tools

if not TYPE_CHECKING:
    from graphrt._lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "graphrt.memory.conversation": ("ConversationMemory",),
            "graphrt.memory.knowledge": ("KnowledgeStore",),
            "graphrt.memory.retriever": ("MemoryRetriever", "StoreRetriever"),
            "graphrt.memory.session_memory": ("SessionMemory",),
            "graphrt.memory.sqlite": ("SqliteMemoryStore",),
            "graphrt.memory.store": ("InMemoryStore", "MemoryStore"),
            "graphrt.memory.tools": ("session_memory_tools",),
        },
    )
