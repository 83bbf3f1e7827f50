"""A chain: one step after the other, with a retry, a time limit and a fallback.

The exchange rate comes from a service that fails now and then. It is asked up to three times, for at most a second
each; when all that fails, yesterday's rate will do.
"""

from __future__ import annotations

from graphrt import END, START, RetryPolicy, RunContext, Workflow

YESTERDAY = 1.25

invoice = Workflow("invoice", input=float, output=str)


class Service:
    """Stands in for a service that is down for its first few calls."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls = 0

    async def rate(self) -> float:
        """Give today's rate."""
        self.calls += 1
        if self.calls <= self.failures:
            raise ConnectionError("the service is down")
        return 1.5


async def yesterdays_rate(error: Exception) -> float:
    """Stand in for a rate that is not to be had."""
    return YESTERDAY


@invoice.node(
    retry=RetryPolicy(attempts=3, wait_initial=0.01, retry_on=(ConnectionError, TimeoutError)),
    timeout=1,
    fallback=yesterdays_rate,
)
async def rate(euros: float, ctx: RunContext[Service]) -> float:
    """Ask for today's rate."""
    return await ctx.deps.rate()


@invoice.node
async def convert(rate: float, euros: float) -> float:
    """Convert the amount, which is still to be had by its name."""
    return round(euros * rate, 2)


@invoice.node
def write(dollars: float) -> str:
    """Write the line of the invoice. A function that is not async runs in a thread."""
    return f"{dollars:.2f} USD"


invoice.chain(START, rate, convert, write, END)


def main() -> str:
    """Run it once."""
    return str(invoice.run_sync(100.0, deps=Service(failures=2)).output)
