"""A server that is left open, when its event loop ends."""

from __future__ import annotations

import anyio
import pytest

from tests.mcp.helpers import REASON, is_gone, pid_of, shop

pytest.importorskip("mcp", reason=REASON)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_server_that_nobody_closes_ends_with_the_event_loop(backend: str) -> None:
    async def forget() -> int:
        server = await shop().__aenter__()
        return await pid_of(server.tools)

    assert is_gone(anyio.run(forget, backend=backend))
