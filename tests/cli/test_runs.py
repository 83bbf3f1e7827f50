"""The commands `graphrt runs ...`, and `graphrt run` with a ledger."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from graphrt.cli import main
from graphrt.cli.ledger import shown_place
from graphrt.ledger import AgentRunStatus, RunChange, SqliteRunLedgerStore

ROOT = Path(__file__).parents[2]
Command = Callable[..., tuple[int, str, str]]

FLOWS = """
from pathlib import Path
import anyio
from graphrt import END, START, Ask, Workflow

double = Workflow("double", input=int, output=int)

@double.node
async def twice(number: int) -> int:
    return 2 * number

double.chain(START, twice, END)

asks = Workflow("asks", input=int, output=str)
asks.add(Ask("approve", question="Ship it?\\x1b[31m", answer=bool))

@asks.node
async def prepare(number: int) -> int:
    with open("prepared", "a") as log:
        log.write("x")
    return number

@asks.node
async def ship(approve: bool) -> str:
    return "shipped" if approve else "kept"

asks.chain(START, prepare, "approve", ship, END)

changed = Workflow("asks", input=int, output=str)
changed.add(Ask("approve", question="Ship it?", answer=bool))
changed.node(prepare)
changed.node(ship)

@changed.node
async def loud(text: str) -> str:
    return text + "!"

changed.chain(START, prepare, "approve", ship, loud, END)

bad = Workflow("bad", output=int)

@bad.node
async def fail() -> int:
    if Path("mended").exists():
        return 7
    raise ValueError("no\\nluck")

bad.chain(START, fail, END)

slow = Workflow("slow", output=str)

@slow.node
async def wait() -> str:
    print("waiting", flush=True)
    while not Path("go").exists():
        await anyio.sleep(0.01)
    return "done"

slow.chain(START, wait, END)
"""

LATER = """
from datetime import UTC, datetime
from graphrt import END, START, Workflow
from graphrt.nodes import Wait

later = Workflow("later", input=int, output=int)
later.add(Wait("pause", until=datetime(2999, 1, 1, tzinfo=UTC), type=int))
later.chain(START, "pause", END)
"""


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Call the command in an empty folder with a module `flows`."""
    (tmp_path / "flows.py").write_text(FLOWS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # takes what the command adds away again
    monkeypatch.delitem(sys.modules, "flows", raising=False)
    monkeypatch.delenv("GRAPHRT_LEDGER", raising=False)

    def call(*words: str) -> tuple[int, str, str]:
        code = main(words)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
def started(command: Command, tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start the command as a process, in the folder with the module `flows`."""

    def start(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "graphrt.cli", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def change(run_id: str, what: RunChange) -> None:
    """Change a run of the default ledger, as its worker would."""
    from datetime import UTC, datetime

    async def do() -> None:
        async with SqliteRunLedgerStore(".graphrt/runs.db") as store:
            await store.change_run(run_id, what, now=datetime.now(UTC))

    anyio.run(do)


def shown(command: Command, run_id: str) -> dict[str, Any]:
    code, out, err = command("runs", "show", run_id, "--json")
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


# --- where the ledger is


def test_commands_that_read_want_a_ledger_that_is_there(command: Command, tmp_path: Path) -> None:
    for words in (
        ["list"],
        ["show", "r"],
        ["events", "r"],
        ["cancel", "r"],
        ["resume", "r"],
        ["fork", "r", "--at", "1"],
    ):
        code, out, err = command("runs", *words)
        assert (code, out) == (2, "")
        assert err == "graphrt: there is no ledger '.graphrt/runs.db' (name another with --ledger, or GRAPHRT_LEDGER)\n"
    assert not (tmp_path / ".graphrt").exists()


def test_ledger_is_named_by_option_or_environment(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("runs", "enqueue", "flows:double", "--input", "1", "--run-id", "default")[0] == 0
    monkeypatch.setenv("GRAPHRT_LEDGER", "sqlite:///env.db")
    assert command("runs", "enqueue", "flows:double", "--input", "1", "--run-id", "env")[0] == 0
    assert command("runs", "enqueue", "flows:double", "--input", "1", "--run-id", "own", "--ledger", "own.db")[0] == 0
    for place in (".graphrt/runs.db", "env.db", "own.db"):
        assert (tmp_path / place).is_file()
    assert "own" in command("runs", "list", "--ledger", "own.db")[1]
    assert "own" not in command("runs", "list")[1]


@pytest.mark.parametrize(
    ("place", "printed"),
    [
        ("runs.db", "runs.db"),
        ("postgresql://ann:secret@host:5432/runs?x=1", "postgresql://ann:***@host:5432/runs?x=1"),
        ("postgresql://ann@host/runs", "postgresql://ann@host/runs"),
    ],
)
def test_password_of_a_ledger_is_not_printed(place: str, printed: str) -> None:
    assert shown_place(place) == printed


@pytest.mark.parametrize(
    ("ledger", "problem"),
    [
        ("mysql://host/runs", "there is no ledger of kind 'mysql'"),
        ("flows.py", "flows.py"),
    ],
)
def test_ledger_that_is_none_is_code_2_and_one_line(command: Command, ledger: str, problem: str) -> None:
    code, out, err = command("runs", "list", "--ledger", ledger)
    assert (code, out) == (2, "")
    assert problem in err
    assert err.startswith("graphrt: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("no-such-command",),
        ("show",),
        ("fork", "r"),
        ("fork", "r", "--at", "0"),
        ("list", "--limit", "many"),
        ("resume", "r", "--here", "--queue"),
        ("enqueue",),
    ],
)
def test_wrong_call_is_code_2(command: Command, words: tuple[str, ...]) -> None:
    code, out, err = command("runs", *words)
    assert (code, out) == (2, "")
    assert err.startswith("usage: graphrt runs")


def test_unknown_run_is_code_2_and_one_line(command: Command) -> None:
    command("runs", "enqueue", "flows:double", "--input", "1")
    for words in (["show"], ["events"], ["cancel"], ["resume"]):
        code, out, err = command("runs", *words, "nobody")
        assert (code, out) == (2, "")
        assert "there is no run 'nobody'" in err
        assert err.count("\n") == 1


# --- enqueue and list


def test_enqueue_prints_the_id_of_a_run_that_is_queued(command: Command) -> None:
    code, out, err = command("runs", "enqueue", "flows:double", "--input", "21", "--priority", "3")
    assert (code, err) == (0, "")
    run = shown(command, out.strip())
    assert (run["status"], run["priority"], run["input"], run["target"]) == ("queued", 3, 21, "flows:double")


def test_enqueue_with_an_id_that_is_there_puts_nothing(command: Command) -> None:
    command("runs", "enqueue", "flows:double", "--input", "21", "--run-id", "r")
    code, out, err = command("runs", "enqueue", "flows:double", "--input", "21", "--run-id", "r")
    assert (code, out, err) == (0, "r\n", "graphrt: run 'r' was there already, and is queued\n")
    code, out, _ = command("runs", "enqueue", "flows:double", "--input", "21", "--run-id", "r", "--json")
    assert (code, json.loads(out)["created"]) == (0, False)
    code, _, err = command("runs", "enqueue", "flows:double", "--input", "22", "--run-id", "r")
    assert code == 2
    assert "has another input" in err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("flows:double", "--input", "bees"), "the input is not JSON"),
        (("flows:nothing", "--input", "1"), "has no 'nothing'"),
    ],
)
def test_what_cannot_be_enqueued_is_code_2(command: Command, words: tuple[str, ...], problem: str) -> None:
    code, out, err = command("runs", "enqueue", *words)
    assert (code, out) == (2, "")
    assert problem in err


def test_list_shows_the_newest_first_and_filters(command: Command) -> None:
    assert command("runs", "enqueue", "flows:double", "--input", "1", "--run-id", "older")[0] == 0
    command("run", "flows:bad", "--ledger", ".graphrt/runs.db", "--run-id", "newer")
    code, out, err = command("runs", "list")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert re.split(r"\s{2,}", lines[0]) == ["RUN", "STATUS", "GRAPH", "CREATED", "TOOK", "REASON"]
    assert [re.split(r"\s{2,}", line)[:3] for line in lines[1:]] == [
        ["newer", "failed", "bad"],
        ["older", "queued", "double"],
    ]
    assert lines[1].endswith("ValueError: no luck")
    assert command("runs", "list", "--status", "completed")[1] == "no runs\n"
    for words in (["--status", "failed"], ["--graph", "bad"], ["--limit", "1"]):
        _, out, _ = command("runs", "list", "--json", *words)
        assert [run["run_id"] for run in json.loads(out)["runs"]] == ["newer"]


def test_list_goes_on_where_it_ended(command: Command) -> None:
    for name in ("a", "b", "c"):
        command("runs", "enqueue", "flows:double", "--input", "1", "--run-id", name)
    _, out, _ = command("runs", "list", "--limit", "2")
    cursor = out.splitlines()[-1].rpartition(" ")[2]
    assert out.splitlines()[-1] == f"more: graphrt runs list --cursor {cursor}"
    _, out, _ = command("runs", "list", "--cursor", cursor, "--json")
    page = json.loads(out)
    assert ([run["run_id"] for run in page["runs"]], page["has_more"]) == (["a"], False)
    assert command("runs", "list", "--cursor", "nonsense")[0] == 2


def test_list_refuses_a_status_that_is_none(command: Command) -> None:
    command("runs", "enqueue", "flows:double", "--input", "1")
    code, out, err = command("runs", "list", "--status", "done")
    assert (code, out) == (2, "")
    assert "'done' is no status of a run" in err


# --- graphrt run with a ledger


def test_run_is_stored_only_where_a_ledger_is_named(command: Command, tmp_path: Path) -> None:
    assert command("run", "flows:double", "--input", "21") == (0, "42\n", "")
    assert not (tmp_path / ".graphrt").exists()
    words = ("run", "flows:double", "--input", "21", "--ledger", ".graphrt/runs.db", "--run-id", "r")
    assert command(*words) == (0, "42\n", "")
    assert (shown(command, "r")["status"], shown(command, "r")["output"]) == ("completed", 42)
    assert command(*words) == (0, "42\n", "")
    assert shown(command, "r")["attempt"] == 1


def test_run_without_a_ledger_loads_none(command: Command) -> None:
    code = (
        "import sys; from graphrt.cli import main; main(['run', 'flows:double', '--input', '1']); print(*sys.modules)"
    )
    words = [sys.executable, "-c", code]
    done = subprocess.run(
        words, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True, timeout=60
    )
    assert {"sqlalchemy", "graphrt.ledger.store", "graphrt.graph.durable.runs"} & set(done.stdout.split()) == set()


def test_run_of_an_id_with_another_input_is_code_2(command: Command) -> None:
    command("run", "flows:double", "--input", "21", "--ledger", "l.db", "--run-id", "r")
    code, out, err = command("run", "flows:double", "--input", "22", "--ledger", "l.db", "--run-id", "r")
    assert (code, out) == (2, "")
    assert "has another input" in err


def test_failed_run_says_how_to_try_it_again(command: Command, tmp_path: Path) -> None:
    code, out, err = command("run", "flows:bad", "--ledger", ".graphrt/runs.db", "--run-id", "r")
    assert (code, out) == (1, "")
    assert err.endswith("to try again: graphrt runs resume --ledger .graphrt/runs.db r\n")
    assert err.count("\n") == 1
    (tmp_path / "mended").touch()
    assert command("runs", "resume", "r") == (0, "7\n", "")
    code, out, err = command("runs", "resume", "r")
    assert (code, out) == (2, "")
    assert "run 'r' is completed (fork it" in err


def test_run_that_asks_is_left_waiting_and_says_how_to_answer(command: Command, tmp_path: Path) -> None:
    code, out, err = command("run", "flows:asks", "--input", "1", "--ledger", ".graphrt/runs.db", "--run-id", "r")
    assert (code, out) == (3, "")
    answer = "graphrt runs resume --ledger .graphrt/runs.db r --answer approve=JSON"
    assert err == f"run r waits for an answer\n  approve: Ship it? [31m\n    answer it: {answer}\n"
    code, out, _ = command("runs", "show", "r")
    assert code == 0
    assert "\n  approve  waiting" in out
    assert "questions\n  approve: Ship it? [31m\n    answer it: graphrt runs resume r --answer approve=JSON\n" in out
    assert shown(command, "r")["questions"] == [
        {"id": "approve", "node": "approve", "scope": "", "question": "Ship it?\x1b[31m"}
    ]
    assert command("runs", "resume", "r", "--answer", "approve=true") == (0, "shipped\n", "")
    assert (tmp_path / "prepared").read_text() == "x"


def test_run_that_waits_for_a_time_says_for_which(command: Command, tmp_path: Path) -> None:
    (tmp_path / "later.py").write_text(LATER)
    code, out, err = command("run", "later:later", "--input", "1", "--ledger", ".graphrt/runs.db", "--run-id", "r")
    assert (code, out) == (3, "")
    command_to_go_on = "graphrt runs resume --ledger .graphrt/runs.db r"
    assert err == f"run r waits until 2999-01-01 00:00:00Z; then: {command_to_go_on}\n"
    code, out, _ = command("runs", "show", "r")
    assert code == 0
    assert "\n  goes on    2999-01-01 00:00:00Z\n" in out
    assert re.search(r"\n  pause  waiting  1 attempt +until 2999-01-01T00:00:00\+00:00\n", out)
    assert "questions" not in out
    run = shown(command, "r")
    assert (run["questions"], run["wake_at"]) == ([], "2999-01-01T00:00:00+00:00")


# --- show and events


def test_show_tells_how_a_run_stands(command: Command) -> None:
    command("run", "flows:asks", "--input", "1", "--ledger", ".graphrt/runs.db", "--run-id", "r")
    command("runs", "resume", "r", "--answer", "approve=false")
    code, out, err = command("runs", "show", "r")
    assert (code, err) == (0, "")
    assert out.startswith("run r: completed\n  graph      asks (flows:asks)\n  created    ")
    assert re.search(r"\n  finished   \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ, took \d+\.\d\d s\n", out)
    assert "\n  attempt    2\n  input      1\n  output     kept\n" in out
    assert re.search(r"\nsteps\n  prepare  succeeded  1 attempt  \d+\.\d\d s\n  approve  succeeded", out)
    run = shown(command, "r")
    assert [(step["id"], step["state"], step["attempts"]) for step in run["steps"]] == [
        ("prepare", "succeeded", 1),
        ("approve", "succeeded", 1),
        ("ship", "succeeded", 1),
    ]


def test_show_tells_why_a_run_failed(command: Command) -> None:
    command("run", "flows:bad", "--ledger", ".graphrt/runs.db", "--run-id", "r")
    _, out, _ = command("runs", "show", "r")
    assert out.startswith("run r: failed\n")
    assert "\n  reason     ValueError: no luck\n" in out
    assert re.search(r"\n  fail  failed  1 attempt  \d+\.\d\d s  ValueError: no luck\n", out)
    assert shown(command, "r")["steps"][0]["error"] == "ValueError: no\nluck"


def test_events_are_printed_in_order(command: Command) -> None:
    command("run", "flows:double", "--input", "21", "--ledger", ".graphrt/runs.db", "--run-id", "r")
    code, out, err = command("runs", "events", "r")
    assert (code, err) == (0, "")
    lines = [re.sub(r"^( *\d+) \d\d:\d\d:\d\d\.\d{3}", r"\1", line) for line in out.splitlines()]
    assert lines == [
        '   1 run.started {"input": 21, "graph": "double"}',
        "   2 step.started twice",
        '   3 step.completed twice {"output": 42}',
        '   4 run.completed {"status": "succeeded", "output": 42}',
    ]
    _, out, _ = command("runs", "events", "r", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["sequence"] for event in events] == [1, 2, 3, 4]
    assert events[2]["data"]["output"] == 42


def test_following_events_ends_when_the_run_ends(
    command: Command, started: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    with started("run", "flows:slow", "--ledger", ".graphrt/runs.db", "--run-id", "r") as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "waiting\n"
        with started("runs", "events", "r", "--follow", "--json") as following:
            assert following.stdout is not None
            assert json.loads(following.stdout.readline())["type"] == "run.started"
            (tmp_path / "go").touch()
            out, err = following.communicate(timeout=30)
        assert run.communicate(timeout=30) == ("done\n", "")
    assert (following.returncode, err) == (0, "")
    assert json.loads(out.splitlines()[-1])["type"] == "run.completed"


# --- cancel


def test_run_that_nobody_works_on_is_cancelled_at_once(command: Command) -> None:
    command("runs", "enqueue", "flows:double", "--input", "1", "--run-id", "r")
    assert command("runs", "cancel", "r", "--reason", "not needed") == (0, "run r is cancelled\n", "")
    run = shown(command, "r")
    assert (run["status"], run["status_reason"]) == ("cancelled", "not needed")
    assert command("runs", "cancel", "r") == (0, "run r is cancelled already\n", "")
    _, out, _ = command("runs", "cancel", "r", "--json")
    assert json.loads(out)["status"] == "cancelled"


def test_waiting_run_is_cancelled_at_once_and_may_go_on(command: Command) -> None:
    command("run", "flows:asks", "--input", "1", "--ledger", ".graphrt/runs.db", "--run-id", "r")
    assert command("runs", "cancel", "r") == (0, "run r is cancelled\n", "")
    code, _, err = command("runs", "resume", "r")
    assert (code, err.splitlines()[0]) == (3, "run r waits for an answer")
    assert command("runs", "resume", "r", "--answer", "approve=true") == (0, "shipped\n", "")


def test_run_at_work_is_asked_to_stop(
    command: Command, started: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """L-027."""
    with started("run", "flows:slow", "--ledger", ".graphrt/runs.db", "--run-id", "r") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        code, out, err = command("runs", "cancel", "r", "--reason", "enough")
        assert (code, err) == (0, "")
        assert out.startswith("run r is asked to stop; ")
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "")
    assert "cancelled" in err
    assert "enough" in err
    assert shown(command, "r")["status"] == "cancelled"


# --- resume


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("approve=perhaps", "which takes bool"),
        ("aprove=true", "run 'r' has no question 'aprove' open (open are: approve)"),
        ("true", "'true' is not of the form ID=JSON (open are: approve)"),
    ],
)
@pytest.mark.parametrize("where", ["--here", "--queue"])
def test_answer_that_cannot_be_is_code_2_and_changes_nothing(
    command: Command, answer: str, problem: str, where: str
) -> None:
    command("run", "flows:asks", "--input", "1", "--ledger", ".graphrt/runs.db", "--run-id", "r")
    before = shown(command, "r")
    code, out, err = command("runs", "resume", "r", where, "--answer", answer)
    assert (code, out) == (2, "")
    assert problem in err
    assert err.count("\n") == 1
    after = shown(command, "r")
    assert (after["status"], after["events"]) == ("waiting", before["events"])


def test_run_from_the_queue_goes_back_to_it(command: Command) -> None:
    command("runs", "enqueue", "flows:asks", "--input", "1", "--run-id", "r")
    assert command("worker", "flows:asks", "--once")[0] == 0
    code, out, err = command("runs", "resume", "r")
    assert (code, out) == (2, "")
    assert "run 'r' waits for an answer (give it with --answer)" in err
    code, out, _ = command("runs", "resume", "r", "--answer", "approve=true")
    assert (code, out) == (0, "run r is queued: a worker that has its graph goes on with it\n")
    assert [step["state"] for step in shown(command, "r")["steps"]] == ["succeeded", "answered"]
    assert shown(command, "r")["questions"] == []
    assert command("worker", "flows:asks", "--once")[0] == 0
    assert (shown(command, "r")["status"], shown(command, "r")["output"]) == ("completed", "shipped")


def test_run_from_the_queue_can_go_on_here(command: Command) -> None:
    command("runs", "enqueue", "flows:asks", "--input", "1", "--run-id", "r")
    command("worker", "flows:asks", "--once")
    code, out, _ = command("runs", "resume", "r", "--here", "--json", "--answer", "approve=true")
    assert code == 0
    result = json.loads(out)
    assert (result["status"], result["output"], result["exit_code"], result["here"]) == (
        "completed",
        "shipped",
        0,
        True,
    )


def test_time_limit_is_refused_for_a_run_that_goes_to_a_worker(command: Command) -> None:
    command("runs", "enqueue", "flows:double", "--input", "1", "--run-id", "r")
    code, out, err = command("runs", "resume", "r", "--timeout", "5")
    assert (code, out, err) == (
        2,
        "",
        "graphrt: --timeout is for a run that goes on here (add --here, or leave it out)\n",
    )
    assert command("runs", "resume", "r", "--timeout", "5", "--here") == (0, "2\n", "")


def test_run_here_can_be_left_to_a_worker(command: Command, tmp_path: Path) -> None:
    command("run", "flows:bad", "--ledger", ".graphrt/runs.db", "--run-id", "r")
    code, out, _ = command("runs", "resume", "r", "--queue", "--json")
    assert (code, json.loads(out)["status"]) == (0, "queued")
    (tmp_path / "mended").touch()
    command("worker", "flows:bad", "--once")
    assert (shown(command, "r")["status"], shown(command, "r")["output"]) == ("completed", 7)


def test_changed_graph_is_refused_and_taken_with_force(command: Command) -> None:
    command("run", "flows:asks", "--input", "1", "--ledger", ".graphrt/runs.db", "--run-id", "r")
    words = ("runs", "resume", "r", "--graph", "flows:changed", "--answer", "approve=true")
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert "is not the one that run 'r' was started with" in err
    assert "--force goes on" in err
    assert err.count("\n") == 1
    assert command(*words, "--force") == (0, "shipped!\n", "")


def test_queued_run_whose_graph_no_worker_has_is_moved_with_force(command: Command) -> None:
    """L-055."""
    command("runs", "enqueue", "flows:asks", "--input", "1", "--run-id", "r")
    command("worker", "flows:changed", "--once")
    run = shown(command, "r")
    assert run["status"] == "queued"
    assert run["graph_fingerprint"] in run["status_reason"]
    code, _, err = command("runs", "resume", "r", "--graph", "flows:changed", "--force")
    assert (code, err) == (0, "")
    command("worker", "flows:changed", "--once")
    assert shown(command, "r")["status"] == "waiting"


def test_graph_that_a_run_does_not_fit_is_refused_even_with_force(command: Command) -> None:
    command("run", "flows:asks", "--input", "1", "--ledger", ".graphrt/runs.db", "--run-id", "r")
    code, out, err = command("runs", "resume", "r", "--graph", "flows:double", "--force")
    assert (code, out) == (2, "")
    assert "cannot be continued" in err
    assert shown(command, "r")["status"] == "waiting"


def test_graph_that_is_not_where_it_was_has_to_be_named(command: Command) -> None:
    command("run", "flows:bad", "--ledger", ".graphrt/runs.db", "--run-id", "r")
    change("r", RunChange(metadata={"target": "gone:flow"}))
    code, _, err = command("runs", "resume", "r")
    assert code == 2
    assert "the graph of run 'r' cannot be loaded: there is no module 'gone' (name it: --graph module:workflow)" in err
    change("r", RunChange(metadata={"target": None}))
    code, _, err = command("runs", "resume", "r")
    assert code == 2
    assert "run 'r' does not say where its graph is (name it: --graph module:workflow)" in err
    assert command("runs", "resume", "r", "--graph", "flows:bad")[0] == 1


def test_killed_run_goes_on_where_it_was(
    command: Command, started: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """L-029b."""
    with started("run", "flows:slow", "--ledger", ".graphrt/runs.db", "--run-id", "r") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        time.sleep(0.2)  # until what has happened is stored
        code, _, err = command("runs", "resume", "r")
        assert code == 2
        assert "is being worked on by" in err
        process.kill()
        process.communicate()
    (tmp_path / "go").touch()
    code, out, _ = command("runs", "resume", "r")
    assert (code, out) == (0, "waiting\ndone\n")


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent as on POSIX systems")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_cancels_a_stored_run_which_may_go_on(
    command: Command,
    started: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
    number: signal.Signals,
    code: int,
) -> None:
    with started("run", "flows:slow", "--ledger", ".graphrt/runs.db", "--run-id", "r") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (code, "")
    assert err == "graphrt: cancelled; to go on: graphrt runs resume --ledger .graphrt/runs.db r\n"
    assert shown(command, "r")["status"] == "cancelled"
    (tmp_path / "go").touch()
    assert command("runs", "resume", "r")[:2] == (0, "waiting\ndone\n")


# --- fork


def test_fork_begins_with_the_events_of_another_run(command: Command, tmp_path: Path) -> None:
    command("run", "flows:asks", "--input", "1", "--ledger", ".graphrt/runs.db", "--run-id", "r")
    command("runs", "resume", "r", "--answer", "approve=true")
    code, out, err = command("runs", "fork", "r", "--at", "5", "--new-id", "f")
    assert (code, out, err) == (0, "f\n", "go on with it: graphrt runs resume f\n")
    assert shown(command, "f")["forked_from"] == {"run_id": "r", "at": 5}
    assert command("runs", "resume", "f")[0] == 3
    assert command("runs", "resume", "f", "--answer", "approve=false") == (0, "kept\n", "")
    assert (tmp_path / "prepared").read_text() == "x"
    code, out, _ = command("runs", "fork", "r", "--at", "3", "--json")
    assert code == 0
    assert json.loads(out)["forked_from"] == "r"


def test_fork_at_an_event_that_is_not_there_is_code_2(command: Command) -> None:
    command("run", "flows:double", "--input", "1", "--ledger", ".graphrt/runs.db", "--run-id", "r")
    code, out, err = command("runs", "fork", "r", "--at", "99")
    assert (code, out) == (2, "")
    assert "has no event 99" in err


# --- readers that go away


def test_reader_that_goes_away_ends_the_command_quietly(
    command: Command, started: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    with started("run", "flows:slow", "--ledger", ".graphrt/runs.db", "--run-id", "r") as run:
        assert run.stdout is not None
        run.stdout.readline()
        with started("runs", "events", "r", "--follow") as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            (tmp_path / "go").touch()
            watchdog = threading.Timer(30, process.kill)
            watchdog.start()
            err = process.stderr.read()
            watchdog.cancel()
        run.communicate(timeout=30)
    assert process.returncode == 1
    assert err == ""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent as on POSIX systems")
def test_following_is_left_with_ctrl_c(command: Command, started: Callable[..., subprocess.Popen[str]]) -> None:
    command("runs", "enqueue", "flows:double", "--input", "1", "--run-id", "r")
    command("runs", "cancel", "r")
    command("run", "flows:asks", "--input", "1", "--ledger", ".graphrt/runs.db", "--run-id", "w")
    with started("runs", "events", "w", "--follow") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "graphrt: interrupted\n")


def test_statuses_are_those_of_the_ledger() -> None:
    from graphrt.cli.runs import checked_status

    assert [checked_status(status) for status in AgentRunStatus] == list(AgentRunStatus)
