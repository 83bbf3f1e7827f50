"""A real model, asked over the OpenAI wire: what every test in this folder needs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from graphrt.llm import OpenAIProvider

URL = os.environ.get("GRAPHRT_TEST_MODEL_URL")
NAME = os.environ.get("GRAPHRT_TEST_MODEL", "local")
KEY = os.environ.get("GRAPHRT_TEST_MODEL_KEY", "none")

COMMAND = "GRAPHRT_TEST_MODEL_URL=http://127.0.0.1:8080/v1 GRAPHRT_TEST_MODEL=name pytest -m model tests/model"


@pytest.fixture(autouse=True)
def real_model() -> None:
    """Leave a test out where no model can be asked."""
    if URL is None:
        pytest.skip(f"no model to ask: start a server and run {COMMAND}")


@pytest.fixture
async def provider() -> AsyncIterator[OpenAIProvider]:
    """Give the model."""
    async with OpenAIProvider(NAME, base_url=URL, api_key=KEY) as provider:
        yield provider
