"""The command `graphrt worker`, in processes of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from graphrt.cli import main
from tests.ledger.stores import postgres_dsn, postgres_server

__all__ = ["postgres_dsn", "postgres_server"]  # fixtures

ROOT = Path(__file__).parents[2]
GUARD = 60.0
Command = Callable[..., tuple[int, str, str]]
Start = Callable[..., "Process"]

FLOWS = """
import os
from pathlib import Path
import anyio
from graphrt import END, START, Ask, Workflow

def log(line):
    with open("log", "a") as file:
        file.write(f"{line} {os.getpid()}\\n")

three = Workflow("three", input=int, output=int)

@three.node
async def first(number: int) -> int:
    log(f"first {number}")
    return number

@three.node
async def wait(number: int) -> int:
    log(f"wait {number}")
    while not Path("go").exists():
        await anyio.sleep(0.01)
    return number

@three.node
async def last(number: int) -> int:
    log(f"last {number}")
    return number + 1

three.chain(START, first, wait, last, END)

asks = Workflow("asks", input=int, output=str)
asks.add(Ask("approve", question="Ship it?", answer=bool))

@asks.node
async def ship(approve: bool) -> str:
    return "shipped" if approve else "kept"

asks.chain(START, "approve", ship, END)
"""


class Process:
    """A worker that has been started, and what it has said so far."""

    def __init__(self, words: tuple[str, ...], folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "graphrt.cli", "worker", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def says(self, part: str) -> None:
        """Wait until it has said something."""
        until(lambda: any(part in line for line in self.lines), lambda: f"{part!r} is not in {self.lines}")

    def ends(self) -> tuple[int, str]:
        """Wait for its end; give its code and what it said on standard error."""
        code = self.process.wait(GUARD)
        self._reader.join(GUARD)
        assert self.process.stderr is not None
        return code, self.process.stderr.read()

    def close(self) -> None:
        self.process.kill()
        self.process.wait(GUARD)
        self._reader.join(GUARD)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


def until(condition: Callable[[], object], why: Callable[[], str] = lambda: "it did not happen") -> None:
    """Wait until something holds."""
    end = time.monotonic() + GUARD
    while not condition():
        assert time.monotonic() < end, why()
        time.sleep(0.02)


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
def start(command: Command, tmp_path: Path) -> Iterator[Start]:
    """Start a worker as a process, in the folder with the module `flows`."""
    begun: list[Process] = []

    def begin(*words: str) -> Process:
        begun.append(Process(words, tmp_path))
        return begun[-1]

    yield begin
    for process in begun:
        process.close()


def enqueue(command: Command, target: str, *numbers: int) -> None:
    for number in numbers:
        code, _, err = command("runs", "enqueue", target, "--input", str(number), "--run-id", f"r{number}")
        assert (code, err) == (0, "")


def shown(command: Command, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command("runs", "show", run_id, "--json")[1])
    return found


def logged(tmp_path: Path) -> list[str]:
    """Give what nodes have done, without the processes that did it."""
    path = tmp_path / "log"
    return [line.rpartition(" ")[0] for line in path.read_text().splitlines()] if path.exists() else []


# --- working


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_worker_does_what_is_queued(command: Command, tmp_path: Path, backend: str) -> None:
    """L-055."""
    (tmp_path / "go").touch()
    enqueue(command, "flows:three", 1, 2)
    code, out, err = command("worker", "flows:three", "flows:asks", "--once", "--backend", backend)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert re.fullmatch(r"worker \S+:\d+:\w+: three, asks; 4 at once; ledger \.graphrt/runs\.db", lines[0])
    assert Counter(lines[1:]) == {
        "r1 three claimed": 1,
        "r2 three claimed": 1,
        "r1 three completed": 1,
        "r2 three completed": 1,
    }
    assert shown(command, "r1")["output"] == 2


def test_worker_says_the_same_as_json(command: Command, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    enqueue(command, "flows:three", 1)
    code, out, err = command("worker", "flows:three", "--once", "--json", "--concurrency", "2")
    assert (code, err) == (0, "")
    started, claimed, ended = map(json.loads, out.splitlines())
    assert (started["what"], list(started["graphs"]), started["concurrency"]) == ("started", ["three"], 2)
    assert claimed == {
        "what": "claimed",
        "run_id": "r1",
        "graph": "three",
        "attempt": 1,
        "status": None,
        "reason": None,
    }
    assert (ended["what"], ended["run_id"], ended["status"]) == ("ended", "r1", "completed")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("flows",), "not of the form module:workflow"),
        (("no_such_module:flow",), "there is no module 'no_such_module'"),
        (("flows:three", "--ledger", "flows.py"), "flows.py"),
    ],
)
def test_worker_that_cannot_work_is_code_2_and_one_line(command: Command, words: tuple[str, ...], problem: str) -> None:
    code, _, err = command("worker", *words)
    assert code == 2
    assert problem in err
    assert err.startswith("graphrt: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words", [(), ("flows:three", "--concurrency", "0"), ("flows:three", "--lease", "0"), ("f:t", "--backend", "curio")]
)
def test_wrong_call_is_code_2(command: Command, words: tuple[str, ...]) -> None:
    code, out, err = command("worker", *words)
    assert (code, out) == (2, "")
    assert err.startswith("usage: graphrt worker")


def test_run_of_a_graph_that_no_worker_has_says_so(command: Command) -> None:
    """L-055."""
    enqueue(command, "flows:three", 1)
    assert command("worker", "flows:asks", "--once")[0] == 0
    _, out, _ = command("runs", "list")
    assert f"waits for a worker that has its graph {shown(command, 'r1')['graph_fingerprint']}" in out


# --- several processes


def test_workers_of_several_processes_do_each_run_once(command: Command, start: Start, tmp_path: Path) -> None:
    """L-055: no double claim."""
    (tmp_path / "go").touch()
    enqueue(command, "flows:three", *range(1, 11))
    workers = [start("flows:three", "--once", "--concurrency", "2", "--json") for _ in range(2)]
    for worker in workers:
        assert worker.ends() == (0, "")
    said = [json.loads(line) for worker in workers for line in worker.lines]
    assert sorted(each["run_id"] for each in said if each["what"] == "claimed") == sorted(f"r{n}" for n in range(1, 11))
    assert max(Counter(logged(tmp_path)).values()) == 1
    assert len(logged(tmp_path)) == 30
    assert command("runs", "list", "--status", "completed", "--json")[1].count('"run_id"') == 10


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent as on POSIX systems")
def test_killed_worker_is_replaced_by_another(command: Command, start: Start, tmp_path: Path) -> None:
    """L-055."""
    enqueue(command, "flows:three", 1)
    first = start("flows:three", "--lease", "2")
    until(lambda: "wait 1" in logged(tmp_path))
    second = start("flows:three", "--lease", "2", "--backend", "trio")
    second.says("worker ")
    time.sleep(0.5)  # it has found nothing to do: the run is held
    assert len(second.lines) == 1
    first.process.kill()
    second.says("r1 three claimed (attempt 2)")
    (tmp_path / "go").touch()
    second.says("r1 three completed")
    second.process.send_signal(signal.SIGTERM)
    code, err = second.ends()
    assert code == 0
    assert err == "run 'r1' lost its worker, and is queued\n"
    assert logged(tmp_path) == ["first 1", "wait 1", "wait 1", "last 1"]
    assert shown(command, "r1")["output"] == 2


@pytest.mark.postgres
def test_workers_share_a_ledger_in_postgresql(
    command: Command, start: Start, tmp_path: Path, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHRT_LEDGER", postgres_dsn)
    (tmp_path / "go").touch()
    worker = start("flows:three", "flows:asks")
    worker.says("worker ")
    enqueue(command, "flows:three", 1)
    worker.says("r1 three completed")
    enqueue(command, "flows:asks", 2)
    worker.says("r2 asks waiting")
    assert command("runs", "resume", "r2", "--answer", "approve=true")[0] == 0
    worker.says("r2 asks completed")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.ends() == (0, "")
    assert [run["run_id"] for run in json.loads(command("runs", "list", "--json")[1])["runs"]] == ["r2", "r1"]
    assert not (tmp_path / ".graphrt").exists()


# --- stopping


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent as on POSIX systems")
@pytest.mark.parametrize(
    ("number", "backend"), [(signal.SIGTERM, "asyncio"), (signal.SIGINT, "asyncio"), (signal.SIGTERM, "trio")]
)
def test_signal_lets_steps_end_and_gives_runs_back(
    command: Command, start: Start, tmp_path: Path, number: signal.Signals, backend: str
) -> None:
    """L-055."""
    enqueue(command, "flows:three", 1)
    worker = start("flows:three", "--grace", "60", "--backend", backend)
    until(lambda: "wait 1" in logged(tmp_path))
    worker.process.send_signal(number)
    worker.says("stopping: runs go back to the queue when the steps at work have ended")
    enqueue(command, "flows:three", 2)
    (tmp_path / "go").touch()
    assert worker.ends() == (0, "")
    assert worker.lines[-1] == "r1 three back in the queue"
    assert shown(command, "r1")["status"] == "queued"
    assert [step["state"] for step in shown(command, "r1")["steps"]] == ["succeeded", "succeeded"]
    assert logged(tmp_path) == ["first 1", "wait 1"]
    code, out, _ = command("worker", "flows:three", "--once")
    assert code == 0
    assert "r1 three completed" in out
    assert logged(tmp_path).count("wait 1") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent as on POSIX systems")
@pytest.mark.parametrize("words", [("--grace", "0.1"), ("--grace", "60")])
def test_steps_that_do_not_end_are_given_up_after_the_grace_or_a_second_signal(
    command: Command, start: Start, tmp_path: Path, words: tuple[str, str]
) -> None:
    """L-055."""
    enqueue(command, "flows:three", 1)
    worker = start("flows:three", "--json", *words)
    until(lambda: "wait 1" in logged(tmp_path))
    worker.process.send_signal(signal.SIGTERM)
    worker.says('"stopping"')
    if words == ("--grace", "60"):
        worker.process.send_signal(signal.SIGTERM)
    assert worker.ends() == (0, "")
    assert json.loads(worker.lines[-1])["what"] == "handed_back"
    assert shown(command, "r1")["status"] == "queued"
    (tmp_path / "go").touch()
    assert command("worker", "flows:three", "--once")[0] == 0
    assert logged(tmp_path) == ["first 1", "wait 1", "wait 1", "last 1"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent as on POSIX systems")
def test_idle_worker_ends_at_once(start: Start) -> None:
    worker = start("flows:three")
    worker.says("worker ")
    time.sleep(0.3)
    worker.process.send_signal(signal.SIGINT)
    assert worker.ends() == (0, "")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes break as on POSIX systems")
def test_worker_whose_reader_goes_away_stops_quietly(command: Command, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    words = [sys.executable, "-W", "error", "-m", "graphrt.cli", "worker", "flows:three"]
    with subprocess.Popen(
        words,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        worker.stdout.close()
        enqueue(command, "flows:three", 1)
        assert worker.wait(GUARD) == 1
        assert worker.stderr is not None
        assert worker.stderr.read() == ""
    assert shown(command, "r1")["claimed_by"] is None


# --- from outside


def test_waiting_run_holds_no_place_and_goes_on_when_answered(command: Command, start: Start, tmp_path: Path) -> None:
    """L-055."""
    enqueue(command, "flows:asks", 1)
    worker = start("flows:three", "flows:asks", "--concurrency", "1")
    worker.says("r1 asks waiting")
    (tmp_path / "go").touch()
    enqueue(command, "flows:three", 2)
    worker.says("r2 three completed")
    assert shown(command, "r1")["claimed_by"] is None
    code, out, err = command("runs", "resume", "r1", "--answer", "approve=true")
    assert (code, out, err) == (0, "run r1 is queued: a worker that has its graph goes on with it\n", "")
    worker.says("r1 asks completed")
    assert shown(command, "r1")["output"] == "shipped"


def test_run_at_work_is_cancelled_from_outside(command: Command, start: Start, tmp_path: Path) -> None:
    """L-055, L-027."""
    enqueue(command, "flows:three", 1)
    worker = start("flows:three")
    until(lambda: "wait 1" in logged(tmp_path))
    until(lambda: shown(command, "r1")["status"] == "running")
    code, out, _ = command("runs", "cancel", "r1", "--reason", "enough")
    assert code == 0
    assert out.startswith("run r1 is asked to stop; ")
    worker.says("r1 three cancelled: RunCancelledError: run was cancelled: enough")
    (tmp_path / "go").touch()
    enqueue(command, "flows:three", 2)
    worker.says("r2 three completed")
