"""What every test gets: both event loops, reproducible properties, a check that nothing is left running."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],  # says how busy the machine is
)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run every async test on both event loops."""
    backend: str = request.param
    return backend


@pytest.fixture(scope="module", autouse=True)
def old_objects_set_aside() -> None:
    """Keep what was there before out of the search for leftovers, which would take most of the time."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    """Fail a test that leaves a task or thread of graphrt behind."""
    yield
    from graphrt.testing import assert_no_orphans

    assert_no_orphans()
