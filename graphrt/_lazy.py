"""Names of a package that are loaded when they are first used (PEP 562).

Importing a package then costs nothing for the parts that a user has not asked for.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` of *package*.

    Assign them under `if not TYPE_CHECKING`, beside a block that imports the names for type checkers. Where
    these see a `__getattr__`, they take every misspelt import for right.

    Args:
        package: Full name of the package, its `__name__`.
        homes: Full name of a module, and the names that the package takes from it.
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    def get(name: str) -> object:
        module = home_of.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    def listing() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return get, listing
