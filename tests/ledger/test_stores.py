"""Every store does what the conformance tests say."""

import pytest

from tests.ledger.conformance import TestClaims, TestEvents, TestLife, TestRuns, TestWhatRunsLeave, TestWorkers

pytestmark = pytest.mark.anyio

__all__ = ["TestClaims", "TestEvents", "TestLife", "TestRuns", "TestWhatRunsLeave", "TestWorkers"]
