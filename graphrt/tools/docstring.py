"""What a docstring says of a function and of its parameters, in Google, NumPy or Sphinx style.

Nothing here is strict: what is not understood stays part of the description.
"""

from __future__ import annotations

import inspect
import re
from typing import Final

_PARAMETERS: Final = frozenset(
    {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters"}
)
_DROPPED: Final = frozenset({"returns", "return", "raises", "yields", "yield", "receives", "warns"})
_KEPT: Final = frozenset(
    {
        "attributes",
        "example",
        "examples",
        "note",
        "notes",
        "references",
        "see also",
        "todo",
        "warning",
        "warnings",
    }
)
_SECTIONS: Final = _PARAMETERS | _DROPPED | _KEPT

_GOOGLE_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:(?:\s+(.*))?$")
_NUMPY_ENTRY: Final = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_UNDERLINE: Final = re.compile(r"-{3,}$")
_SPHINX_PARAMETER: Final = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$"
)
_SPHINX_FIELD: Final = re.compile(
    r":(?:type|rtype|returns?|raises?|except|exception|yields?|var|ivar|cvar|vartype|meta)\b[^:]*:"
)


def parse_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """Split a docstring into what it says of the function, and of each parameter by name.

    Sections on what is returned, yielded and raised are left out of the description.
    """
    lines = inspect.cleandoc(text or "").splitlines()
    description: list[str] = []
    parameters: dict[str, str] = {}
    at = 0
    while at < len(lines):
        end, section = _section(lines, at)
        if section is None:
            end = _sphinx_field(lines, at)
            if end == at:
                description.append(lines[at])
                end = at + 1
            elif found := _SPHINX_PARAMETER.match(lines[at]):
                parameters[found[1]] = _joined([found[2], *lines[at + 1 : end]])
        elif section in _PARAMETERS:
            parameters |= _entries(lines[at:end])
        elif section in _KEPT:
            description += lines[at:end]
        at = end
    return re.sub(r"\n{3,}", "\n\n", "\n".join(description)).strip(), parameters


def _section(lines: list[str], at: int) -> tuple[int, str | None]:
    """Find where the section that starts at line *at* ends, and its name; no name if none starts there."""
    line = lines[at].rstrip()
    name = line.removesuffix(":").lower()
    if name not in _SECTIONS:
        return at, None
    end = at + 1
    if line.endswith(":"):  # Google: what is indented belongs to it
        while end < len(lines) and (not lines[end].strip() or lines[end][0].isspace()):
            end += 1
        return end, name
    if end < len(lines) and _UNDERLINE.match(lines[end].strip()):  # NumPy: up to the next underlined header
        end += 1
        while end < len(lines) and not (
            end + 1 < len(lines) and lines[end].strip() and _UNDERLINE.match(lines[end + 1].strip())
        ):
            end += 1
        return end, name
    return at, None


def _entries(section: list[str]) -> dict[str, str]:
    """Read the parameters of a Google or NumPy section, its header included."""
    google = section[0].rstrip().endswith(":")
    body = inspect.cleandoc("\n".join(["", *section[1 if google else 2 :]])).splitlines()
    found: dict[str, str] = {}
    names: list[str] = []
    text: list[str] = []
    for line in [*body, "end"]:
        if line[:1].isspace() or not line:
            text.append(line)
            continue
        found |= dict.fromkeys(names, _joined(text))
        entry = (_GOOGLE_ENTRY if google else _NUMPY_ENTRY).match(line)
        names = re.findall(r"\w+", entry[1]) if entry else []
        text = [entry[2] or ""] if entry and google else []
    return {name: words for name, words in found.items() if words}


def _sphinx_field(lines: list[str], at: int) -> int:
    """Find where the Sphinx field that starts at line *at* ends; *at* itself if none starts there."""
    if not (_SPHINX_PARAMETER.match(lines[at]) or _SPHINX_FIELD.match(lines[at])):
        return at
    end = at + 1
    while end < len(lines) and lines[end][:1].isspace():
        end += 1
    return end


def _joined(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())
