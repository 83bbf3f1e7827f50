"""Who may do what, of which run."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from graphrt.errors import RunControlError
from graphrt.ledger.authorization import CallerIdentity
from graphrt.ledger.control import RunControl
from graphrt.ledger.memory import InMemoryRunLedgerStore
from graphrt.ledger.proxy import ACCESS, READS, Reach, RunControlProxy
from graphrt.ledger.store import RunLedgerStore
from graphrt.testing import FakeClock
from tests.ledger.control_helpers import new_run, rights, said

pytestmark = pytest.mark.anyio

Call = Callable[[RunControlProxy], Awaitable[Any]]

VERBS: dict[str, list[Call]] = {
    "create": [lambda proxy: proxy.create_run(run_id="run", runner_id="r", authorization=rights())],
    "get": [lambda proxy: proxy.get_run("run"), lambda proxy: proxy.wait_run("run", 0.0)],
    "list": [lambda proxy: proxy.list_runs()],
    "page": [lambda proxy: proxy.page_run_events("run")],
    "read": [
        lambda proxy: proxy.read_state("run", "run"),
        lambda proxy: proxy.read_history("run"),
        lambda proxy: proxy.list_artifacts("run"),
    ],
    "check": [lambda proxy: proxy.check_access("run", "tool", "t")],
    "start": [lambda proxy: proxy.start_run("run")],
    "cancel": [lambda proxy: proxy.cancel_run("run")],
    "append": [lambda proxy: proxy.append_run_result("run", said("hi"))],
    "audit": [lambda proxy: proxy.record_audit_event("run", "host.note")],
    "finalize": [lambda proxy: proxy.finalize_run("run", "completed")],
    "prune": [lambda proxy: proxy.prune_runs(timedelta(days=1))],
}
CALLERS: dict[str, CallerIdentity | None] = {
    "host": CallerIdentity(kind="host"),
    "platform": CallerIdentity(kind="platform", plugin_id="p"),
    "platform of the workspace": CallerIdentity(kind="platform", workspace_id="w"),
    "other platform": CallerIdentity(kind="platform", plugin_id="q", workspace_id="v"),
    "nameless platform": CallerIdentity(kind="platform"),
    "owning runner": CallerIdentity(kind="runner", runner_id="r"),
    "owning bridge": CallerIdentity(kind="bridge", runner_id="r"),
    "other runner": CallerIdentity(kind="runner", runner_id="s", plugin_id="p", workspace_id="w"),
    "nameless runner": CallerIdentity(kind="runner", plugin_id="p"),
    "harness": CallerIdentity(kind="harness", plugin_id="p", runner_id="r", workspace_id="w"),
    "nobody": None,
}
_PLATFORM = {"create", "get", "list", "page", "read", "cancel"}
_RUNNER = {"get", "page", "read", "check", "start", "append", "finalize"}
ALLOWED: dict[str, set[str]] = {
    "host": set(VERBS),
    "platform": _PLATFORM,
    "platform of the workspace": _PLATFORM,
    "other platform": {"list"},  # and finds nothing
    "owning runner": _RUNNER,
    "owning bridge": _RUNNER,
}
"""Written out by hand from the rules, and not from the table under test."""
UNKNOWN = {"other platform": {"get", "page", "read"}, "other runner": {"get", "page", "read"}}
"""Where a run out of reach is as good as none."""


@pytest.fixture
async def control(store: RunLedgerStore) -> RunControl:
    return await with_a_run(store)


async def with_a_run(store: RunLedgerStore) -> RunControl:
    control = RunControl(store, clock=FakeClock())
    snapshot = rights(caller_plugin_id="p", allowed_tools=("t",), state_scopes=("run",))
    await new_run(control, authorization=snapshot, workspace_id="w")
    return control


async def outcome(call: Awaitable[Any]) -> str | None:
    """Name the code of a refusal; None for none."""
    try:
        await call
    except RunControlError as error:
        return error.code
    return None


@pytest.mark.parametrize("caller", CALLERS)
async def test_each_caller_may_do_what_the_table_says_and_nothing_else(caller: str) -> None:
    """AC-L23, D-43."""
    for verb, calls in VERBS.items():
        control = await with_a_run(InMemoryRunLedgerStore())
        before = await control.get_run("run")
        allowed, hidden = verb in ALLOWED.get(caller, ()), verb in UNKNOWN.get(caller, ())
        for call in calls:
            code = await outcome(call(RunControlProxy(control, CALLERS[caller])))
            if allowed:
                assert code in (None, "deadline_exceeded"), (verb, code)
            else:
                assert code == ("not_found" if hidden else "unauthorized"), (verb, code)
                assert await control.get_run("run") == before


async def test_a_caller_of_an_unknown_kind_is_none() -> None:
    with pytest.raises(ValidationError):
        CallerIdentity(kind="guest")  # type: ignore[arg-type]  # what is refused


def test_the_table_knows_every_kind_and_every_verb() -> None:
    kinds = get_args(CallerIdentity.model_fields["kind"].annotation)
    assert set(ACCESS) == set(kinds)
    assert {verb for verbs in ACCESS.values() for verb in verbs} == set(VERBS)
    assert set(ACCESS["host"].values()) == {Reach.ALL}
    assert set(VERBS) >= READS


def test_the_proxy_takes_what_control_takes() -> None:
    """1.5: the same verbs."""
    own = {"watch_cancel", "using"}  # for the host's own process
    for name, method in inspect.getmembers(RunControl, inspect.isfunction):
        if name.startswith("_") or name in own:
            continue
        there = list(inspect.signature(method).parameters)
        here = list(inspect.signature(getattr(RunControlProxy, name)).parameters)
        assert here == [each for each in there if each != "source"], name


# --- creating


async def test_a_run_belongs_to_the_plugin_and_the_workspace_that_created_it(store: RunLedgerStore) -> None:
    control = RunControl(store, clock=FakeClock())
    platform = RunControlProxy(control, CallerIdentity(kind="platform", plugin_id="p", workspace_id="w"))
    made = await platform.create_run(run_id="run", runner_id="r", authorization=rights())
    snapshot = made.run.authorization
    assert (made.run.workspace_id, snapshot.caller_plugin_id, snapshot.workspace_id) == ("w", "p", "w")
    wrongs: tuple[dict[str, Any], ...] = (
        {"authorization": rights(caller_plugin_id="q")},
        {"authorization": rights(workspace_id="v")},
        {"workspace_id": "v"},
    )
    for wrong in wrongs:
        with pytest.raises(RunControlError) as refusal:
            await platform.create_run({"run_id": "two", "runner_id": "r", "authorization": rights()} | wrong)
        assert refusal.value.code == "unauthorized"
    assert len((await control.list_runs()).items) == 1


async def test_a_name_that_is_taken_gives_nothing_away(control: RunControl) -> None:
    other = RunControlProxy(control, CallerIdentity(kind="platform", plugin_id="q"))
    with pytest.raises(RunControlError) as refusal:
        await other.create_run(run_id="run", runner_id="r", authorization=rights())
    assert refusal.value.code == "unauthorized"


# --- listing


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.sampled_from("pqr"), st.sampled_from("wv")), max_size=12),
    st.integers(1, 4),
    st.sampled_from(["p", None]),
    st.sampled_from(["w", None]),
)
def test_a_list_shows_each_run_within_reach_once(
    runs: list[tuple[str, str]], limit: int, plugin: str | None, workspace: str | None
) -> None:
    import anyio

    async def check() -> None:
        control = RunControl(InMemoryRunLedgerStore(), clock=FakeClock())
        for index, (creator, place) in enumerate(runs):
            await new_run(control, f"{index}", authorization=rights(caller_plugin_id=creator), workspace_id=place)
        proxy = RunControlProxy(
            control, CallerIdentity(kind="platform", plugin_id=plugin or "nobody", workspace_id=workspace)
        )
        wanted = [f"{i}" for i, (creator, place) in enumerate(runs) if creator == plugin or place == workspace]
        found: list[str] = []
        cursor, more = None, True
        while more:
            page = await proxy.list_runs(cursor=cursor, limit=limit)
            assert len(page.items) == limit or not page.has_more
            found += [run.run_id for run in page.items]
            cursor, more = page.next_cursor, page.has_more
        assert found == wanted[::-1]

    anyio.run(check)


async def test_a_list_of_anothers_runs_is_empty(control: RunControl) -> None:
    platform = RunControlProxy(control, CallerIdentity(kind="platform", plugin_id="p"))
    assert [run.run_id for run in (await platform.list_runs(created_by="p")).items] == ["run"]
    assert (await platform.list_runs(created_by="q")).items == ()


# --- artifacts, claims


async def test_an_artifact_is_read_only_by_whom_its_run_is_in_reach_of(control: RunControl) -> None:
    data = {"name": "a", "content": "x"}
    event = await control.append_run_result("run", {"type": "artifact.created", "data": data})
    for caller, identity in CALLERS.items():
        proxy = RunControlProxy(control, identity)
        if "read" in ALLOWED.get(caller, ()):
            assert (await proxy.read_artifact(event.artifact_refs[0]))[1] == b"x"
            continue
        with pytest.raises(RunControlError) as refusal:
            await proxy.read_artifact(event.artifact_refs[0])
        assert refusal.value.code == ("not_found" if "read" in UNKNOWN.get(caller, ()) else "unauthorized")


async def test_the_host_too_needs_the_claim_of_a_claimed_run(control: RunControl) -> None:
    """D-43."""
    claim = await control.store.claim_run("w", 30, now=control.clock.now(), run_id="run")
    assert claim is not None
    for caller in ("host", "owning runner"):
        proxy = RunControlProxy(control, CALLERS[caller])
        calls: list[Any] = [proxy.append_run_result("run", said("hi")), proxy.finalize_run("run", "completed")]
        for call in calls:
            with pytest.raises(RunControlError) as refusal:
                await call
            assert refusal.value.code == "conflict"
    runner = RunControlProxy(control, CALLERS["owning runner"])
    await runner.append_run_result("run", said("hi"), claim_token=claim.token)
    assert claim.token not in repr(await runner.get_run("run"))
    await runner.finalize_run("run", "completed", claim_token=claim.token)


async def test_a_runner_far_away_sees_a_cancel_on_its_next_call(control: RunControl) -> None:
    """D-22."""
    await RunControlProxy(control, CALLERS["platform"]).cancel_run("run", "enough")
    assert (await RunControlProxy(control, CALLERS["owning runner"]).get_run("run")).cancel_reason == "enough"
