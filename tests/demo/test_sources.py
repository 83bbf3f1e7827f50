"""Which model is asked, and which documents are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphrt.demo.confined import DocumentError
from graphrt.demo.sources import choose_documents, choose_model
from graphrt.demo.standin import STAND_IN_NAME, OfflineStandIn
from graphrt.errors import ConfigError
from graphrt.llm import OpenAIProvider

SERVER = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}


def test_stand_in_is_taken_where_nothing_names_a_model() -> None:
    chosen = choose_model(environ={})
    assert isinstance(chosen.provider, OfflineStandIn)
    assert (chosen.name, chosen.is_stand_in) == (STAND_IN_NAME, True)


@pytest.mark.parametrize("environ", [SERVER, {"OPENAI_API_KEY": "key"}])
def test_server_or_key_is_enough_to_ask_a_model(environ: dict[str, str]) -> None:
    chosen = choose_model(environ=environ)
    assert isinstance(chosen.provider, OpenAIProvider)
    assert (chosen.name, chosen.is_stand_in) == ("gpt-4o-mini", False)


def test_model_is_named_by_the_caller() -> None:
    chosen = choose_model("small", environ=SERVER)
    assert isinstance(chosen.provider, OpenAIProvider)
    assert chosen.name == chosen.provider.model == "small"


def test_model_without_a_key_or_a_server_is_an_error() -> None:
    with pytest.raises(ConfigError, match="cannot be asked without a key or a server"):
        choose_model("small", environ={})


def test_stand_in_can_be_asked_for() -> None:
    assert choose_model("small", offline=True, environ=SERVER).is_stand_in


def test_given_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\n")
    with choose_documents(tmp_path) as documents:
        assert documents.paths() == ["a.md"]


def test_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="there is no folder"), choose_documents(tmp_path / "nowhere"):
        pass


def test_checkout_has_its_own_documents_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "graphrt"\n')
    (tmp_path / "README.md").write_text("# graphrt\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n")
    (tmp_path / "private.md").write_text("# not for this\n")
    monkeypatch.chdir(tmp_path)
    with choose_documents() as documents:
        assert documents.paths() == ["README.md", "docs/a.md"]


@pytest.mark.parametrize("project", [None, "no TOML [", '[project]\nname = "other"\n', "[project]\n"])
def test_elsewhere_the_documents_in_the_package_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: str | None
) -> None:
    (tmp_path / "README.md").write_text("# other\n")
    if project is not None:
        (tmp_path / "pyproject.toml").write_text(project)
    monkeypatch.chdir(tmp_path)
    with choose_documents() as documents:
        assert documents.paths() == ["agents.md", "failures.md", "graphs.md", "runs.md", "states.md", "values.md"]
        assert all(documents.lines(path)[0].startswith("# ") for path in documents.paths())
