"""The commands, as a person or a script calls them."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from graphrt import __version__
from graphrt.cli import MOST_QUESTIONS, counted, main
from graphrt.demo.plan import MOST_STEPS

ROOT = Path(__file__).parents[2]
Command = Callable[..., tuple[int, str, str]]

FLOWS = """
import time
import anyio
from graphrt import END, START, AgentNode, Ask, Workflow
from graphrt.llm import ScriptedProvider

double = Workflow("double", input=int, output=int)

@double.node
async def twice(number: int) -> int:
    return 2 * number

double.chain(START, twice, END)

greet = Workflow("greet", input=str, output=str)

@greet.node
async def hello(name: str) -> str:
    return f"hello {name}"

greet.chain(START, hello, END)

bad = Workflow("bad", output=int)

@bad.node
async def fail() -> int:
    raise ValueError("no\\nluck")

bad.chain(START, fail, END)

slow = Workflow("slow", output=str)

@slow.node
async def wait() -> str:
    print("waiting", flush=True)
    await anyio.sleep(600)
    return "never"

slow.chain(START, wait, END)

asks = Workflow("asks", output=bool)
asks.add(Ask("approve", question="Ship it?", answer=bool))
asks.chain(START, "approve", END)
agent = AgentNode("polite", model=ScriptedProvider(["hi"]))
"""


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Call the command in an empty folder with a module `flows`, without a model in the environment."""
    (tmp_path / "flows.py").write_text(FLOWS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # takes what the command adds away again
    monkeypatch.delitem(sys.modules, "flows", raising=False)
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    def call(*words: str) -> tuple[int, str, str]:
        code = main(words)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def test_help_names_the_commands(command: Command) -> None:
    code, out, _ = command("--help")
    assert code == 0
    assert all(name in out for name in ("demo", "run", "show"))


def test_version_is_printed(command: Command) -> None:
    assert command("--version") == (0, f"graphrt {__version__}\n", "")


def test_package_is_the_command_as_well() -> None:
    words = [sys.executable, "-m", "graphrt", "--version"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"graphrt {__version__}\n"


def test_one_thing_has_no_plural() -> None:
    assert [counted(number, "node") for number in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]


@pytest.mark.parametrize(
    "words", [(), ("no-such-command",), ("run",), ("demo", "--questions", "many"), ("demo", "--timeout", "0")]
)
def test_wrong_call_is_code_2(command: Command, words: tuple[str, ...]) -> None:
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert err.startswith("usage: graphrt")


def test_help_and_version_load_nothing_heavy() -> None:
    code = "import sys; from graphrt.cli import main; main(['--version']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"pydantic", "openai", "rich", "opentelemetry"} & set(done.stdout.split()) == set()


# --- run -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("flows:double", "--input", "21"), "42\n"),
        (("flows:greet", "--input", "the bees"), "hello the bees\n"),
        (("flows:greet", "--input", '"the bees"'), "hello the bees\n"),
    ],
)
def test_run_prints_the_output_and_nothing_else(command: Command, words: tuple[str, ...], printed: str) -> None:
    assert command("run", *words) == (0, printed, "")


def test_run_draws_and_traces_where_it_is_told_to(command: Command, tmp_path: Path) -> None:
    code, _, _ = command("run", "flows:double", "--input", "1", "--svg", "g.svg", "--trace", "t.jsonl")
    assert code == 0
    assert 'data-state="succeeded"' in (tmp_path / "g.svg").read_text()
    names = [json.loads(line)["name"] for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert names[-1] == "invoke_workflow double"


def test_run_draws_to_standard_output_and_nothing_else_there(command: Command, tmp_path: Path) -> None:
    code, out, err = command("run", "flows:double", "--input", "21", "--svg", "-")
    assert (code, err) == (0, "42\n")
    assert out.lstrip().startswith("<svg")
    assert out.rstrip().endswith("</svg>")
    assert not (tmp_path / "-").exists()


def test_run_does_not_trace_to_standard_output(command: Command, tmp_path: Path) -> None:
    code, out, err = command("run", "flows:double", "--input", "1", "--trace", "-")
    assert (code, out) == (2, "")
    assert "--trace cannot write to standard output, which has the workflow's output (name a file for it)" in err
    assert not (tmp_path / "-").exists()


def test_run_and_show_take_an_agent_and_a_text_for_it(command: Command) -> None:
    assert command("run", "flows:agent", "--input", "good day") == (0, "hi\n", "")
    code, out, _ = command("show", "flows:agent")
    assert code == 0
    assert out.startswith("polite: ")


def test_run_tells_its_events_to_standard_error(command: Command) -> None:
    code, out, err = command("run", "flows:double", "--input", "1", "--verbose")
    assert (code, out) == (0, "2\n")
    assert "step.completed twice" in err


def test_failed_run_is_code_1_and_says_where_in_one_line(command: Command) -> None:
    code, out, err = command("run", "flows:bad")
    assert (code, out) == (1, "")
    assert err.startswith("graphrt: the run failed: ValueError: no luck (node 'fail'")
    assert err.count("\n") == 1


def test_failed_run_shows_its_traceback_when_asked(command: Command) -> None:
    code, _, err = command("run", "flows:bad", "--traceback")
    assert code == 1
    assert 'raise ValueError("no\\nluck")' in err


def test_run_out_of_time_is_code_1(command: Command) -> None:
    code, _, err = command("run", "flows:slow", "--timeout", "0.05")
    assert code == 1
    assert re.fullmatch(r"graphrt: the run timed out: run '[^']+' did not finish within 0\.05 s\n", err)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("flows",), "not of the form module:workflow"),
        (("no_such_module:flow",), "there is no module 'no_such_module'"),
        (("flows:nothing",), "has no 'nothing' (workflows in it: double, greet, bad, slow, asks, agent)"),
        (("flows:twice",), "is a function and not a workflow"),
        (("flows:double", "--input", "bees"), "the input is not JSON"),
        (("flows:double", "--input", "1", "--svg", "no/such/folder.svg"), "cannot write to"),
        (("flows:double", "--input", "1", "--trace", "no/such/folder.jsonl"), "cannot write to"),
    ],
)
def test_what_cannot_be_run_is_code_2_and_one_line(command: Command, words: tuple[str, ...], problem: str) -> None:
    code, _, err = command("run", *words)
    assert code == 2
    assert problem in err
    assert err.startswith("graphrt: ")
    assert err.count("\n") == 1


def test_run_asks_the_person_at_the_terminal(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("true\n"))
    assert command("run", "flows:asks") == (0, "true\n", "approve asks: Ship it?\n")


def test_run_that_nobody_answers_fails(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    code, _, err = command("run", "flows:asks")
    assert code == 1
    assert "nobody answers 'approve'" in err


# --- show ------------------------------------------------------------------------------------------------


def test_show_lists_nodes_and_edges(command: Command) -> None:
    code, out, _ = command("show", "flows:double")
    assert code == 0
    assert "twice (function)" in out
    assert "-> END" in out


def test_show_prints_mermaid(command: Command) -> None:
    code, out, _ = command("show", "flows:double", "--mermaid")
    assert code == 0
    assert out.startswith("flowchart")


def test_show_draws_into_a_file_or_to_standard_output(command: Command, tmp_path: Path) -> None:
    assert command("show", "flows:double", "--svg", "g.svg") == (0, "g.svg\n", "")
    assert (tmp_path / "g.svg").read_text().lstrip().startswith("<svg")
    code, out, _ = command("show", "flows:double", "--svg", "-")
    assert code == 0
    assert out.lstrip().startswith("<svg")


def test_show_refuses_what_is_no_workflow(command: Command) -> None:
    code, _, err = command("show", "flows:twice")
    assert code == 2
    assert "not a workflow" in err


# --- demo ------------------------------------------------------------------------------------------------


def test_demo_in_an_empty_folder_reads_the_documents_of_the_package(command: Command, tmp_path: Path) -> None:
    code, out, err = command("demo")
    assert (code, err) == (0, "")
    assert "an offline stand-in, which is no language model" in out
    for name in ("report.md", "graph.svg", "trace.jsonl"):
        assert str(Path("graphrt-demo", name)) in out
        assert (tmp_path / "graphrt-demo" / name).stat().st_size > 0
    assert "graphs.md:" in (tmp_path / "graphrt-demo" / "report.md").read_text()


def test_demo_reads_the_folder_it_is_given(command: Command, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "bees.md").write_text("# Bees\n\n## Food\n\nBees eat nectar.\n")
    code, out, _ = command("demo", "notes", "--out", "out", "--goal", "What of bees?", "--questions", "1")
    assert code == 0
    report = (tmp_path / "out" / "report.md").read_text()
    assert report.startswith("# What of bees?\n")
    assert "Bees eat nectar." in report
    assert "from 1 of 1 question, with" in report
    assert "[ok] plan: 1 question\n" in out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("nowhere",), "there is no folder 'nowhere'"),
        (("--model", "small"), "cannot be asked without a key or a server"),
        (("--out", "."), "has files in it that the demo did not write"),
    ],
)
def test_demo_that_cannot_start_is_code_2_and_one_line(command: Command, words: tuple[str, ...], problem: str) -> None:
    code, _, err = command("demo", *words)
    assert code == 2
    assert problem in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("number", ["0", "9", "99", "-1", "many"])
def test_demo_refuses_a_number_of_questions_before_anything_is_written(
    command: Command, tmp_path: Path, number: str
) -> None:
    code, out, err = command("demo", "--questions", number)
    assert (code, out) == (2, "")
    assert f"argument --questions: {number!r} is not a number from 1 to 8" in err
    assert not (tmp_path / "graphrt-demo").exists()


def test_demo_takes_as_many_questions_as_a_plan_has_steps() -> None:
    assert MOST_QUESTIONS == MOST_STEPS


def test_demo_out_of_time_says_so_once(command: Command) -> None:
    code, _, err = command("demo", "--timeout", "0.0001")
    assert code == 1
    assert re.fullmatch(r"graphrt: the run timed out: run '[^']+' did not finish within 0\.0001 s\n", err)


def test_demo_with_nothing_to_read_is_code_1(command: Command, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    code, _, err = command("demo", "nothing")
    assert code == 1
    assert "no text to read" in err


# --- a process of its own --------------------------------------------------------------------------------


@pytest.fixture
def started(command: Command, tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start the command as a process, in the folder with the module `flows`."""

    def start(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "graphrt.cli", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent as on POSIX systems")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_cancels_the_run_and_says_so(
    started: Callable[..., subprocess.Popen[str]], number: signal.Signals, code: int
) -> None:
    with started("run", "flows:slow") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(number)
        out, err = process.communicate()
    assert process.returncode == code
    assert (out, err) == ("", "graphrt: cancelled\n")


def test_reader_that_goes_away_ends_the_command_quietly(started: Callable[..., subprocess.Popen[str]]) -> None:
    with started("demo") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
    assert process.returncode != 0
    assert err == ""
