"""graphrt in the peer benchmark: each workload with the public API and the defaults that a user gets.

This file belongs beside `common.py`, `run.py` and the other peers of the suite; `README.md` says how to run it.
"""

from __future__ import annotations

import asyncio
import operator
import random
from typing import Annotated, Any

from common import (
    BUILD_CHAIN,
    BUILD_LAYERS,
    BUILD_WIDTH,
    CHAIN,
    CONC_CHAIN,
    CONC_SLEEP,
    DURABLE_N,
    FAN,
    GROW,
    LAYERS,
    ROUNDS,
    TOOL_CALLS,
    TRACE_N,
    WIDTH,
    combine,
    disk_bytes,
    grow_msg,
    growth,
    layered_deps,
    layered_expected,
)

NAME = "graphrt"
PROBE = "graphrt"
PACKAGES = ["graphrt", "anyio", "tenacity", "pydantic", "opentelemetry-sdk"]
NA: dict[str, str] = {}
COLD = """
import asyncio
from graphrt import Workflow, START, END, RunContext, RetryPolicy
mark("import")
w = Workflow("w")
@w.node
async def node(n: int) -> int: return n + 1
w.chain(START, node, END)
assert asyncio.run(w.run(0)).output == 1
"""


def make_inc(sleep=None):
    if sleep:

        async def node(state: dict[str, int]) -> dict[str, int]:
            await asyncio.sleep(sleep)
            return {"n": state["n"] + 1}

    else:

        async def node(state: dict[str, int]) -> dict[str, int]:
            return {"n": state["n"] + 1}

    return node


def chain(n, sleep=None):
    from graphrt import END, START, Workflow

    w = Workflow("chain")
    names = [w.add_node(f"n{i}", make_inc(sleep)) for i in range(n)]
    w.chain(START, *names, END)
    return w.compile()


def W1(h):
    async def main():
        out = {}
        for n in CHAIN:
            g = chain(n)

            async def once():
                assert (await g.run({"n": 0})).output == {"n": n}

            out[f"us_per_node@{n}"] = await h.atime(once) / n * 1e6
        return out

    return h.run(main)


def mapped():
    """One branch for each item of a list: the natural fan-out."""
    from graphrt import END, START, Workflow

    w = Workflow("fan", input=int, output=int)

    @w.node
    async def spread(k: int) -> list[int]:
        return list(range(k))

    @w.node
    async def branch(i: int) -> int:
        return i

    @w.node
    async def join(values: list[int]) -> int:
        return sum(values)

    w.chain(START, spread)
    w.map(spread, branch)
    w.gather(branch, join)
    w.chain(join, END)
    return w.compile()


def declared(k):
    """A node for each branch; END joins them."""
    from graphrt import END, START, Workflow

    def make(i):
        async def branch(start: int) -> int:
            return start + i

        return branch

    w = Workflow("declared")

    @w.node
    async def start() -> int:
        return 0

    w.chain(START, start)
    for i in range(k):
        w.add_node(f"b{i}", make(i))
        w.chain(start, f"b{i}", END)
    return w.compile()


def W2(h):
    async def main():
        out = {}
        g = mapped()
        for k in FAN:

            async def once():
                assert (await g.run(k)).output == k * (k - 1) // 2

            out[f"us_per_branch@{k}"] = await h.atime(once) / k * 1e6
        for k in FAN:
            d = declared(k)

            async def once_declared():
                r = await d.run()
                assert len(r.outputs) == k and sum(r.outputs.values()) == k * (k - 1) // 2

            out[f"us_per_branch@{k}_declared"] = await h.atime(once_declared) / k * 1e6
        return out

    return h.run(main)


def layered(layers, width):
    from graphrt import END, START, Workflow

    def first(i):
        async def node() -> int:
            return i + 1

        return node

    async def later(a: int, b: int, c: int) -> int:
        return combine((a, b, c))

    w = Workflow("layered")
    for layer in range(layers):
        for i in range(width):
            name = w.add_node(f"{layer}_{i}", later if layer else first(i))
            if layer:
                for into, d in zip("abc", layered_deps(i, width), strict=True):
                    w.edge(f"{layer - 1}_{d}", name, into=into)
            else:
                w.edge(START, name)
    for i in range(width):
        w.edge(f"{layers - 1}_{i}", END)
    return w.compile()


def W3(h):
    want = layered_expected()
    g = layered(LAYERS, WIDTH)

    async def main():
        async def once():
            r = await g.run()
            assert sum(r.outputs.values()) == want

        return {"us_per_node@30x30": await h.atime(once) / (LAYERS * WIDTH) * 1e6}

    return h.run(main)


def W4(h):
    from graphrt import END, START, Workflow

    w = Workflow("cycle", max_rounds=ROUNDS)

    async def same(state: dict[str, int]) -> dict[str, int]:
        return state

    w.add_node("a", make_inc())
    w.add_node("b", same)
    w.chain(START, "a", "b")
    w.edge("b", "a", when=lambda s: s["n"] < ROUNDS)
    w.edge("b", END, when=lambda s: s["n"] >= ROUNDS)
    g = w.compile()

    async def main():
        async def once():
            r = await g.run({"n": 0})
            assert r.output == {"n": ROUNDS} and r.rounds == ROUNDS

        return {"us_per_round@1000": await h.atime(once) / ROUNDS * 1e6}

    return h.run(main)


def agent(calls):
    """An agent that calls a tool *calls* times; its model counts the answers it has had."""
    from graphrt import AgentNode, LLMProvider
    from graphrt.messages import LLMResponse, Role, ToolCall

    class Fake(LLMProvider):
        async def chat(self, messages, tools=None, **kwargs):
            done = sum(1 for m in messages if m.role is Role.TOOL)
            if done < calls:
                call = ToolCall(id=f"c{done}", name="add", arguments={"a": 1, "b": 2})
                return LLMResponse(tool_calls=[call])
            return LLMResponse("done")

    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return AgentNode("agent", model=Fake(), tools=[add], max_rounds=calls + 1).graph


def W5(h):
    async def main():
        out = {}
        for calls in (10, TOOL_CALLS):
            g = agent(calls)

            async def once():
                r = await g.run("go")
                assert r.output == "done" and len(r.messages) == 2 + 2 * calls

            out[f"ms_per_run@{calls}"] = await h.atime(once, inner=5) * 1e3
        return out

    return h.run(main)


def W6(h):
    g = chain(CONC_CHAIN, CONC_SLEEP)

    async def one():
        return (await g.run({"n": 0})).output["n"]

    return h.concurrency(one)


def W7(h):
    return {
        "ms_chain@1000": h.time(lambda: chain(BUILD_CHAIN)) * 1e3,
        "ms_layered@5000": h.time(lambda: layered(BUILD_LAYERS, BUILD_WIDTH)) * 1e3,
    }


def W8(h):
    """Every step persisted to SQLite; a growing conversation is state to which each round adds."""
    import os

    from pydantic import BaseModel

    from graphrt import END, START, Reduce, SqliteRunLedgerStore, Update, Workflow

    class Growing(BaseModel):
        messages: Annotated[list[str], Reduce(operator.add)] = []

    def grower(n):
        w = Workflow("talk", input=int, output=int, state=Growing, max_rounds=n + 1)

        @w.node
        async def say(i: int) -> Update[int]:
            return Update(i + 1, messages=[grow_msg(i)])

        w.chain(START, say)
        w.edge(say, say, when=lambda i: i < n)
        w.edge(say, END, when=lambda i: i >= n)
        return w.compile()

    def line(n):
        w = Workflow("chain", input=dict[str, int], output=dict[str, int])
        names = [f"n{i}" for i in range(n)]
        for name in names:
            w.add_node(name, make_inc())
        w.chain(START, *names, END)
        return w.compile()

    async def main():
        out = {}
        for durability, suffix in (("sync", ""), ("async", "_async"), ("exit", "_exit")):
            with h.tmp() as d:
                async with SqliteRunLedgerStore(os.path.join(d, "s.db")) as store:
                    g = line(DURABLE_N)
                    runs = 0

                    async def once():
                        nonlocal runs
                        runs += 1
                        result = await g.run({"n": 0}, ledger=store, run_id=f"t{runs}", durability=durability)
                        assert result.output["n"] == DURABLE_N

                    cpu, wall = await h.aboth(once, inner=2)
                    out[f"ms_per_step@200{suffix}"] = wall / DURABLE_N * 1e3
                    out[f"cpu_ms_per_step@200{suffix}"] = cpu / DURABLE_N * 1e3
                out[f"bytes_per_step@200{suffix}"] = disk_bytes(d) / (runs * DURABLE_N)
        sizes = {}
        for n in GROW:
            with h.tmp() as d:
                async with SqliteRunLedgerStore(os.path.join(d, "s.db")) as store:
                    result = await grower(n).run(0, ledger=store)
                    assert len(result.state.messages) == n
                sizes[n] = disk_bytes(d)
        out.update(growth(sizes))
        return out

    return h.run(main)


def W10(h):
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from graphrt.telemetry import Telemetry

    exp = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exp))
    g = chain(TRACE_N)

    async def main():
        async def off():
            assert (await g.run({"n": 0})).output == {"n": TRACE_N}

        async def on():
            r = await g.run({"n": 0}, telemetry=Telemetry(provider))
            assert r.output == {"n": TRACE_N}

        a = await h.atime(off) / TRACE_N * 1e6
        assert not exp.get_finished_spans()
        b = await h.atime(on) / TRACE_N * 1e6
        n = len(exp.get_finished_spans())
        assert n >= TRACE_N, n
        return {
            "us_per_node_off": a,
            "us_per_node_on": b,
            "overhead_us": b - a,
            "spans_per_node": n / (h.inner + 1) / TRACE_N,
        }

    return h.run(main)


# --------------------------------------------------------------------------- the suite of LangGraph's authors


def sequential(n):
    """No-ops over a state with messages, as they have it."""
    from pydantic import BaseModel

    from graphrt import END, START, Reduce, Workflow

    class Messages(BaseModel):
        messages: Annotated[list[Any], Reduce(operator.add)] = []

    async def noop(state: Messages) -> None:
        return None

    w = Workflow("sequential", state=Messages)
    names = [w.add_node(f"n{i}", noop) for i in range(n)]
    w.chain(START, *names, END)
    return w.compile()


def fan_of_graphs():
    """A map whose body is a graph with a loop of ten rounds."""
    from graphrt import END, START, Workflow

    joke = Workflow("joke", input=str, output=list)

    @joke.node
    async def edit(subject: str) -> str:
        return f"{subject} - hohoho"

    @joke.node
    async def generate(subject: str) -> list[str]:
        return [f"Joke about {subject}"]

    @joke.node
    async def bump(jokes: list[str]) -> list[str]:
        return [jokes[0] + " a"]

    joke.chain(START, edit, generate, bump)
    joke.edge(bump, bump, when=lambda jokes: not jokes[0].endswith(" a" * 10))
    joke.edge(bump, END, when=lambda jokes: jokes[0].endswith(" a" * 10))

    w = Workflow("jokes", input=list)

    @w.node
    async def spread(subjects: list) -> list[str]:
        return subjects

    w.add(joke, name="joke")
    w.chain(START, spread)
    w.map(spread, "joke")
    w.gather("joke", END)
    return w.compile()


def wide(n, **options):
    """Fifteen fields of state, six with reducers, written and read for *n* rounds."""
    from pydantic import Field, create_model, field_validator

    from graphrt import END, START, Reduce, Update, Workflow

    lists = ["messages", "trigger_events", "categorizations", "responses"]
    plain_lists = ["relevant_rules", "memory_docs"]
    dicts = ["autoresponse", "issue", "user_info", "crm_info"]
    merged = ["slack_participants", "notified_assignees"]
    strs = ["medium", "thread", "bot_id"]

    def check(cls, value):
        if not all(isinstance(m, dict) and all(isinstance(k, str) for k in m) for m in value):
            raise ValueError("a list of dicts with str keys")
        return value

    State = create_model(
        "State",
        __validators__={"check": field_validator(*lists, mode="after")(classmethod(check))},
        **{k: (Annotated[list, Reduce(operator.add)], Field(default_factory=list)) for k in lists},
        **dict.fromkeys(plain_lists + dicts + strs, (Any, None)),
        **{k: (Annotated[dict, Reduce(operator.or_)], Field(default_factory=dict)) for k in merged},
    )
    letters = "abcdefghijklmnopqrstuvwxyz"

    def node(read, write):
        async def f(s: State):
            v = getattr(s, read)
            one = v[-1] if isinstance(v, list) else v
            many = v if isinstance(v, list) else [v]
            fields = {}
            for k in write:
                if k in lists + plain_lists:
                    fields[k] = many
                else:
                    fields[k] = one if k in dicts + merged else "".join(random.choices(letters, k=n))
            return Update(len(s.messages) + len(many), **fields)

        return f

    async def begin(messages: list):
        return Update(0, messages=messages)

    w = Workflow("wide", state=State, max_rounds=10 * n, **options)
    w.add_node("begin", begin)
    w.add_node("one", node("messages", ["trigger_events", "medium"]))
    w.add_node("two", node("trigger_events", ["autoresponse", "issue"]))
    w.add_node("three", node("autoresponse", ["relevant_rules"]))
    w.add_node("four", node("trigger_events", ["categorizations", "responses", "memory_docs"]))
    five = ["user_info", "crm_info", "thread", "slack_participants", "bot_id", "notified_assignees"]
    w.add_node("five", node("categorizations", five))
    w.add_node("six", node("responses", ["messages"]))
    w.chain(START, "begin", "one", "two", "three", "five", "six")
    w.chain("two", "four", "five")
    w.edge("six", "one", when=lambda messages: messages <= n)
    w.edge("six", END, when=lambda messages: messages > n)
    return w.compile()


def W11(h):
    async def main():
        out = {}

        async def cell(name, g, value, check):
            async def once():
                r = await g.run(value)
                assert check(r), name

            out[name] = await h.atime(once) * 1e3

        for n in (10, 1000):
            await cell(f"sequential_{n}_ms", sequential(n), None, lambda r: r.state.messages == [])
        for k in (10, 100):
            subjects = ["".join(random.choices("abc", k=1000)) for _ in range(k)]
            await cell(
                f"fanout_to_subgraph_{k}x_ms",
                fan_of_graphs(),
                subjects,
                lambda r, k=k: len(r.output) == k and all(j[0].endswith(" a" * 10) for j in r.output),
            )
        hi = ["hi?" * 10, True, 1, 6327816386138, None] * 5
        messages = [{str(i) * 10: {str(j) * 10: hi for j in range(5)} for i in range(5)}]
        grown = lambda r: len(r.state.messages) > 300  # noqa: E731
        await cell("wide_state_25x300_pydantic_ms", wide(300), messages, grown)
        await cell("wide_state_25x300_pydantic_ms_uncopied", wide(300, copy_values=False), messages, grown)
        for calls in (10, 100):
            await cell(f"react_agent_{calls}x_ms", agent(calls), "hi?", lambda r, c=calls: len(r.messages) == 2 + 2 * c)
        return out

    return h.run(main)
