"""Which model the demo asks, and which documents it reads, from what a person gave and what is there."""

from __future__ import annotations

import os
import tomllib
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from graphrt.demo.documents import Documents
from graphrt.demo.standin import STAND_IN_NAME, OfflineStandIn
from graphrt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from graphrt.llm import LLMProvider

OWN_DOCUMENTS: Final = ("README.md", "docs", "graphrt/demo/concepts", "CHANGELOG.md")
"""What is read of a checkout of graphrt, in this order."""

_DEFAULT_MODEL: Final = "gpt-4o-mini"


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """The model that a run of the demo asks."""

    provider: LLMProvider
    name: str
    is_stand_in: bool
    temperature: float | None = None
    """Of every request; None: the server's own."""
    max_tokens: int | None = None
    """Of every reply; None: the server's own."""


def choose_model(
    model: str | None = None, *, offline: bool = False, environ: Mapping[str, str] = os.environ
) -> ChosenModel:
    """Take the model that is asked for or that the environment names, else the offline stand-in.

    ``OPENAI_BASE_URL`` alone is enough for a server that wants no key.

    Raises:
        ConfigError: A model is named, and nothing says where to ask it.
    """
    base_url, key = environ.get("OPENAI_BASE_URL"), environ.get("OPENAI_API_KEY")
    if offline or not (model or base_url or key):
        return ChosenModel(OfflineStandIn(), STAND_IN_NAME, is_stand_in=True)
    if not base_url and not key:
        raise ConfigError(
            f"model {model!r} cannot be asked without a key or a server",
            hint="set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own",
        )
    from graphrt.llm import OpenAIProvider

    name = model or _DEFAULT_MODEL
    provider = OpenAIProvider(name, api_key=key or "none", base_url=base_url or None)
    if not base_url:
        return ChosenModel(provider, name, is_stand_in=False)
    # A server of one's own may have a small model, which without a limit can go on for ever.
    return ChosenModel(provider, name, is_stand_in=False, temperature=0.2, max_tokens=400)


@contextmanager
def choose_documents(folder: str | Path | None = None) -> Iterator[Documents]:
    """Open the folder given; else, in a checkout of graphrt, its documents; else those in the package.

    Raises:
        DocumentError: There is no such folder.
    """
    if folder is not None:
        yield Documents(folder)
    elif is_checkout(here := Path.cwd()):
        yield Documents(here, only=OWN_DOCUMENTS)
    else:
        with as_file(files("graphrt.demo") / "concepts") as shipped:
            yield Documents(shipped)


def is_checkout(folder: Path) -> bool:
    """Say whether *folder* is the top of a checkout of graphrt."""
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(project.get("project", {}).get("name") == "graphrt" and (folder / "README.md").is_file())
