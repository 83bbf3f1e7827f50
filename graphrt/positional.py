"""Pydantic models that take their first fields by position, as their signatures in the documentation are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Callable


def by_position(*names: str) -> Callable[..., None]:
    """Make a constructor that also takes its first fields without their names.

    What is wrong with the fields themselves is said by pydantic, an unknown keyword too.
    """

    def init(self: BaseModel, *args: Any, **fields: Any) -> None:
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__} takes {len(names)} fields by position, and {len(args)} are given")
        given = dict(zip(names, args, strict=False))
        if twice := given.keys() & fields:
            raise TypeError(f"{type(self).__name__} is given {min(twice)!r} twice, by position and by name")
        BaseModel.__init__(self, **given, **fields)

    init.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # what is read from data goes past it
    return init
