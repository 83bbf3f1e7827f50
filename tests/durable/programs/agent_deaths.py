"""An agent's run whose process is killed in the middle of a round of tools, and another process that goes on with it.

`python agent_deaths.py FOLDER BACKEND CASE die|resume|run`
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio

from graphrt.agent import AgentRuntime, AgentRuntimeBuilder, RunRequest
from graphrt.ledger import RunFilter, RunLedgerStore, SqliteRunLedgerStore
from graphrt.llm import ScriptedProvider
from graphrt.messages import LLMResponse, ToolCall
from graphrt.registry import AgentSpec, ModelSpec
from graphrt.tools import ToolContext

FOLDER, BACKEND, CASE, WHAT = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
CALLS = FOLDER / "calls"
ROUND = LLMResponse("", [ToolCall(str(n), *each) for n, each in enumerate([("count", {"n": 1}), ("count", {"n": 2})])])
DIES = LLMResponse("", [*ROUND.tool_calls, ToolCall("3", "fatal", {})])
ASKS = LLMResponse("", [ToolCall("c", "agent_run_worker", {"prompt": "count"})])


def note(text: str) -> None:
    with CALLS.open("a") as file:
        file.write(f"{text}\n")


def runtime_on(store: RunLedgerStore) -> tuple[AgentRuntime, list[ScriptedProvider]]:
    """Make the runtime as each of the processes does; what its models say is what is left for this one to ask."""
    first = WHAT == "die"
    boss: list[Any] = [DIES] if CASE == "tools" else [ASKS]
    worker: list[Any] = [DIES]
    if not first:
        boss, worker = ["done"], ["counted"]

    async def count(n: int, ctx: ToolContext[Any]) -> int:
        """Count."""
        note(f"count {n} {ctx.idempotency_key}")
        return n

    async def fatal(ctx: ToolContext[Any]) -> str:
        """Die, once the other calls of the round are stored."""
        note(f"fatal 0 {ctx.idempotency_key}")
        if first:
            assert ctx.run_id is not None
            while await stored_counts(store, ctx.run_id) < 2:  # noqa: ASYNC110 - nobody tells of what is stored
                await anyio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        return "alive"

    providers = [ScriptedProvider(boss), ScriptedProvider(worker)]
    builder = AgentRuntimeBuilder().with_ledger(store).with_tool("count", count).with_tool("fatal", fatal)
    for name, provider in zip(("boss", "worker"), providers, strict=True):
        builder.with_model(ModelSpec(name, name, name)).with_provider(name, provider)
    builder.with_agent_spec(AgentSpec("boss", "boss", delegates=["worker"]))
    return builder.with_agent_spec(AgentSpec("worker", "worker")).build(), providers


async def stored_counts(store: RunLedgerStore, run_id: str) -> int:
    """Count the stored ends of the tool `count`."""
    events = (await store.page_events(run_id, limit=1000)).items
    return sum(each.type == "step.completed" and each.data["step"]["node"] == "tool:count" for each in events)


async def main() -> None:
    """Do what the command line says, and print what came of it."""
    async with SqliteRunLedgerStore(FOLDER / "ledger.db") as store:
        runtime, providers = runtime_on(store)
        if WHAT == "resume":
            result = await runtime.resume("r")
        else:
            result = await runtime.run(RunRequest("boss", "go", run_id="r"))
        rows = (await store.list_runs(RunFilter())).items
        told = [
            [each.content for each in provider.calls[-1].messages if each.role == "tool"]
            for provider in providers
            if provider.calls
        ]
        said = {"output": result.output, "told": told, "asked": [len(each.calls) for each in providers]}
        runs = {row.agent_id: row.status for row in rows}
        sys.stdout.write(json.dumps({**said, "runs": runs, "rows": len(rows)}))


anyio.run(main, backend=BACKEND)
