"""The package as it is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import graphrt.memory

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", graphrt.memory.__all__)
def test_public_name_is_there(name: str) -> None:
    assert getattr(graphrt.memory, name).__name__ == name
    assert name in dir(graphrt.memory)


def test_three_layers_are_explained() -> None:
    """A-091."""
    text = graphrt.memory.__doc__ or ""

    for name in ("MemoryStore", "KnowledgeStore", "SessionMemory", "ConversationMemory"):
        assert f"``{name}``" in text


def test_session_memory_loads_no_database_and_no_models() -> None:
    code = (
        "import sys; from graphrt.memory import InMemoryStore, SessionMemory, KnowledgeStore, ConversationMemory;"
        "print([name for name in ('sqlite3', 'pydantic', 'anyio', 'jsonschema') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
